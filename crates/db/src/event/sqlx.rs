//! Emitting inside an sqlx transaction (E01).

use sqlx::PgExecutor;
use sqlx::types::Json;
use towpath_model::id::EventId;

use super::emit::{EMIT, EMIT_MANY, read_row};
use super::{Emitted, NewEvent};
use crate::answer::refusal;
use crate::job::sqlx::{Failed, as_text};

/// Like [`super::emit`], for an sqlx connection or transaction: `emit(&mut *tx, &event)`.
pub async fn emit<'c>(executor: impl PgExecutor<'c>, event: &NewEvent) -> Result<Emitted, Failed> {
    let (answer,): (String,) = sqlx::query_as(sqlx::AssertSqlSafe(as_text(EMIT)))
        .bind(&event.event_domain)
        .bind(&event.event_type)
        .bind(&event.event_stream)
        .bind(&event.subject_table)
        .bind(&event.subject_ref)
        .bind(event.payload.as_ref().map(Json))
        .bind(&event.actor)
        .bind(&event.ordering_key)
        .bind(event.event_id.map(EventId::uuid))
        .fetch_one(executor)
        .await?;
    Ok(read_row(&answer)?)
}

/// Like [`super::emit_many`], for sqlx. Returns the ids; the first refused row is the error.
pub async fn emit_many<'c>(
    executor: impl PgExecutor<'c>,
    events: &[NewEvent],
) -> Result<Vec<EventId>, Failed> {
    #[derive(serde::Deserialize)]
    struct Answer {
        events: Vec<Box<serde_json::value::RawValue>>,
    }
    let (answer,): (String,) = sqlx::query_as(sqlx::AssertSqlSafe(as_text(EMIT_MANY)))
        .bind(Json(events))
        .fetch_one(executor)
        .await?;
    let read: Answer = serde_json::from_str(&answer).map_err(|_| refusal(&answer))?;
    read.events.iter().map(|row| Ok(read_row(row.get())?.event_id)).collect()
}
