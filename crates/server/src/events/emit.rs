//! `POST /api/v1/events`: emits one event, or up to a thousand.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use towpath_db::event::Emitted;
use towpath_model::id::EventId;

use super::Events;
use super::read::Reader;
use crate::jobs::body;
use crate::jobs::error::Error;
use crate::limits;

/// An event as a client describes it. No actor: that is always the token's.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Event {
    domain: String,
    r#type: String,
    /// Passed on unparsed: numbers keep all their digits.
    payload: Option<Box<RawValue>>,
    stream: Option<String>,
    subject_table: Option<String>,
    subject_ref: Option<String>,
    ordering_key: Option<String>,
    event_id: Option<EventId>,
}

impl Event {
    /// Refuses a payload that is not an object before anything is emitted.
    fn checked(self) -> Result<Event, Error> {
        match &self.payload {
            Some(payload) if !payload.get().starts_with('{') => {
                Err(Error::Invalid("payload: must be a JSON object".into()))
            }
            _ => Ok(self),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    events: Vec<Event>,
}

/// One event: 201 with its id, 200 if its `event_id` was emitted before. Many, all of them or none: 200 with their ids,
/// in order.
pub(crate) async fn emit(
    State(events): State<Events>,
    reader: Reader,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Error> {
    let bytes = body::bytes(body, limits::JOBS_BODY_BYTES_MAX).await?;
    let (given, is_batch) = read(&bytes)?;
    let answers = events.database.executor_token_emit(&reader.hash, &given).await.map_err(Error::from);
    if !is_batch {
        let emitted = answers.map_err(Error::of_one)?.pop().expect("one answer for one event");
        let status = if emitted.duplicate { StatusCode::OK } else { StatusCode::CREATED };
        return Ok((status, Json(told(emitted))));
    }
    let body = json!({ "ok": true, "events": answers?.into_iter().map(told).collect::<Vec<_>>() });
    Ok((StatusCode::OK, Json(body)))
}

/// The events of a body, and whether it is a batch.
fn read(bytes: &[u8]) -> Result<(Vec<Event>, bool), Error> {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        events: Option<&'a RawValue>,
    }
    if body::parse::<Peek<'_>>(bytes)?.events.is_none() {
        return Ok((vec![body::parse::<Event>(bytes)?.checked()?], false));
    }
    let Many { events } = body::parse(bytes)?;
    let events = events.into_iter().map(Event::checked).collect::<Result<Vec<_>, _>>()?;
    if events.is_empty() || events.len() > limits::EVENTS_PER_CALL_MAX {
        return Err(Error::Invalid(format!("events must have 1 to {} entries", limits::EVENTS_PER_CALL_MAX)));
    }
    Ok((events, true))
}

fn told(emitted: Emitted) -> Value {
    json!({ "ok": true, "event_id": emitted.event_id, "duplicate": emitted.duplicate })
}
