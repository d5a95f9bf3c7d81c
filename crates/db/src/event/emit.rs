//! Emitting events: one, a batch, and inside the caller's transaction (E01).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, ToSql, Type};
use towpath_model::id::EventId;
use uuid::Uuid;

use super::NewEvent;
use crate::answer::{RawAnswer, read_raw, refusal};
use crate::{Database, Error};

pub(super) const EMIT: &str = "select towpath.fn_event_emit($1, $2, $3, $4, $5, $6, $7, $8, $9)";
pub(super) const EMIT_MANY: &str = "select towpath.fn_event_emit_many($1)";

/// An emitted event, stored once the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emitted {
    /// Its id.
    pub event_id: EventId,
    /// Whether it already existed.
    pub duplicate: bool,
}

/// Emits on the caller's connection, in the caller's transaction if there is one: commit stores the event, rollback
/// discards it.
///
/// One round trip without a named statement, so that it works behind a transaction pooler.
pub async fn emit(client: &impl GenericClient, event: &NewEvent) -> Result<Emitted, Error> {
    let (payload, id) = owned(event);
    let typed: Vec<_> = parameters(event, &payload, &id).into_iter().zip(TYPES).collect();
    let row = client.query_typed(EMIT, &typed).await?.into_iter().next();
    read_raw(&row.ok_or_else(|| Error::Unreadable("nothing".into()))?.get(0))
}

/// Emits a whole batch on the caller's connection; the answers are in the batch's order.
pub async fn emit_many(
    client: &impl GenericClient,
    events: &[NewEvent],
) -> Result<Vec<Result<Emitted, Error>>, Error> {
    let rows = client.query_typed(EMIT_MANY, &[(&Json(events), Type::JSONB)]).await?;
    let row = rows.into_iter().next();
    read_many(&row.ok_or_else(|| Error::Unreadable("nothing".into()))?.get(0))
}

impl Database {
    /// Emits one event in its own transaction.
    pub async fn event_emit(&self, event: &NewEvent) -> Result<Emitted, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(EMIT).await?;
        let (payload, id) = owned(event);
        read_raw(&client.query_one(&statement, &parameters(event, &payload, &id)).await?.get(0))
    }

    /// Emits a batch in one transaction; the answers are in the batch's order.
    pub async fn event_emit_many(&self, events: &[NewEvent]) -> Result<Vec<Result<Emitted, Error>>, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(EMIT_MANY).await?;
        read_many(&client.query_one(&statement, &[&Json(events)]).await?.get(0))
    }
}

const TYPES: [Type; 9] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::TEXT,
    Type::TEXT,
    Type::UUID,
];

/// Values that the parameters borrow.
type Owned<'a> = (Option<Json<&'a RawValue>>, Option<Uuid>);

fn owned(event: &NewEvent) -> Owned<'_> {
    (event.payload.as_deref().map(Json), event.event_id.map(EventId::uuid))
}

fn parameters<'a>(
    event: &'a NewEvent,
    payload: &'a Option<Json<&'a RawValue>>,
    id: &'a Option<Uuid>,
) -> [&'a (dyn ToSql + Sync); 9] {
    [
        &event.event_domain,
        &event.event_type,
        &event.event_stream,
        &event.subject_table,
        &event.subject_ref,
        payload,
        &event.actor,
        &event.ordering_key,
        id,
    ]
}

fn read_many(answer: &RawAnswer) -> Result<Vec<Result<Emitted, Error>>, Error> {
    #[derive(Deserialize)]
    struct Answer {
        events: Vec<Box<RawValue>>,
    }
    let answer: Answer = read_raw(answer)?;
    Ok(answer.events.iter().map(|row| read_row(row.get())).collect())
}

/// A refused row has no id.
pub(super) fn read_row(text: &str) -> Result<Emitted, Error> {
    serde_json::from_str(text).map_err(|_| refusal(text))
}
