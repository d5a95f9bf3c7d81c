//! An event to emit.

use serde::Serialize;
use serde_json::value::RawValue;
use towpath_model::id::EventId;

use crate::Error;

/// An event to emit. Domain and type are required; the database validates all fields.
///
/// The fields have the names of the parameters of `fn_event_emit`, because a batch is an array of these.
#[derive(Debug, Clone, Serialize)]
pub struct NewEvent {
    pub(super) event_domain: String,
    pub(super) event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject_table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ordering_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_id: Option<EventId>,
}

impl NewEvent {
    /// An event of this domain and type with an empty payload.
    pub fn new(domain: impl Into<String>, event_type: impl Into<String>) -> NewEvent {
        NewEvent {
            event_domain: domain.into(),
            event_type: event_type.into(),
            event_stream: None,
            subject_table: None,
            subject_ref: None,
            payload: None,
            actor: None,
            ordering_key: None,
            event_id: None,
        }
    }

    /// The payload for receivers: references, never secrets (E01).
    pub fn payload(mut self, payload: &impl Serialize) -> Result<NewEvent, Error> {
        let payload = serde_json::value::to_raw_value(payload).map_err(|error| {
            let NewEvent { event_domain, event_type, .. } = &self;
            Error::Invalid(format!("the payload of {event_domain}/{event_type} is not JSON: {error}"))
        })?;
        self.payload = Some(payload);
        Ok(self)
    }

    /// The stream inside the domain, such as `audit` or `alert`.
    pub fn stream(mut self, stream: impl Into<String>) -> NewEvent {
        self.event_stream = Some(stream.into());
        self
    }

    /// Its subject. Without an ordering key, events with the same subject keep their order.
    pub fn subject(self, table: impl Into<String>, reference: impl Into<String>) -> NewEvent {
        self.subject_table(table).subject_ref(reference)
    }

    /// The table it is about.
    pub fn subject_table(mut self, table: impl Into<String>) -> NewEvent {
        self.subject_table = Some(table.into());
        self
    }

    /// The row of that table.
    pub fn subject_ref(mut self, reference: impl Into<String>) -> NewEvent {
        self.subject_ref = Some(reference.into());
        self
    }

    /// Events with the same key are routed in order.
    pub fn ordering_key(mut self, key: impl Into<String>) -> NewEvent {
        self.ordering_key = Some(key.into());
        self
    }

    /// The actor; the login role if not given.
    pub fn actor(mut self, actor: impl Into<String>) -> NewEvent {
        self.actor = Some(actor.into());
        self
    }

    /// The producer's own id, a UUID v7 of about now: emitting it again returns a duplicate.
    pub fn event_id(mut self, event_id: EventId) -> NewEvent {
        self.event_id = Some(event_id);
        self
    }
}
