//! Emit: one event, with options.

use std::marker::PhantomData;

use serde::Serialize;
use serde_json::value::RawValue;
use towpath_model::id::EventId;

use super::{Answer, Error, Handle, json};

const EMIT: &str = "select towpath.emit(e.domain, e.type, e.payload, e.stream, e.subject_table, e.subject_ref, \
                           e.ordering_key, e.actor, e.event_id)::text \
                      from jsonb_to_record($1::text::jsonb) \
                           as e(domain text, type text, payload jsonb, stream text, subject_table text, \
                                subject_ref text, ordering_key text, actor text, event_id uuid)";

/// One event on its way to the outbox. Await it to emit; it does nothing before.
#[must_use = "an event is emitted when this is awaited"]
pub struct Emit<'h, H> {
    handle: H,
    event: Event,
    payload: serde_json::Result<Box<RawValue>>,
    lives: PhantomData<&'h ()>,
}

#[derive(Serialize)]
struct Event {
    domain: String,
    r#type: String,
    payload: Option<Box<RawValue>>,
    stream: Option<String>,
    subject_table: Option<String>,
    subject_ref: Option<String>,
    ordering_key: Option<String>,
    actor: Option<String>,
    event_id: Option<EventId>,
}

impl<'h, H: Handle + 'h> Emit<'h, H> {
    /// An event of this domain and type with this payload.
    pub fn new(handle: H, domain: &str, r#type: &str, payload: &impl Serialize) -> Emit<'h, H> {
        let event = Event {
            domain: domain.to_owned(),
            r#type: r#type.to_owned(),
            payload: None,
            stream: None,
            subject_table: None,
            subject_ref: None,
            ordering_key: None,
            actor: None,
            event_id: None,
        };
        Emit { handle, event, payload: serde_json::value::to_raw_value(payload), lives: PhantomData }
    }

    /// The stream it belongs to.
    pub fn stream(mut self, stream: impl Into<String>) -> Self {
        self.event.stream = Some(stream.into());
        self
    }

    /// The row it is about: a table of yours and the row's reference.
    pub fn subject(mut self, table: impl Into<String>, reference: impl Into<String>) -> Self {
        self.event.subject_table = Some(table.into());
        self.event.subject_ref = Some(reference.into());
        self
    }

    /// Events with the same key are delivered in order.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.event.ordering_key = Some(key.into());
        self
    }

    /// Who emits it; the login if not set.
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.event.actor = Some(actor.into());
        self
    }

    /// Its id: emitted again with the same id, it is stored once.
    pub fn event_id(mut self, id: EventId) -> Self {
        self.event.event_id = Some(id);
        self
    }
}

impl<'h, H: Handle + 'h> IntoFuture for Emit<'h, H> {
    type Output = Result<EventId, Error>;
    type IntoFuture = Answer<'h, EventId>;

    fn into_future(self) -> Answer<'h, EventId> {
        Box::pin(async move {
            let Emit { handle, mut event, payload, .. } = self;
            event.payload = Some(payload.map_err(|error| {
                let what = format!("{}/{}", event.domain, event.r#type);
                Error::invalid(format!("emit {what} was refused: the payload is not JSON: {error}"))
            })?);
            let id = handle.ask(EMIT, json(&event)).await?;
            id.parse().map_err(|_| Error::Other(format!("towpath.emit answered {id:?}").into()))
        })
    }
}
