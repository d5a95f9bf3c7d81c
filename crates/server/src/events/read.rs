//! `GET /api/v1/events?after=POSITION&limit=&wait=&as=`: a page, at once or when there is one.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use serde::Deserialize;
use towpath_db::event::EventPage;
use towpath_db::executor_token::{TokenHash, TokenScope};

use super::Events;
use crate::jobs::caller::authenticated;
use crate::jobs::error::Error;
use crate::limits;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The last position the consumer has handled; absent for new events only.
    after: Option<i64>,
    #[serde(default = "hundred")]
    limit: i32,
    /// Seconds.
    #[serde(default)]
    wait: u64,
    /// The recipient, if the executor has several.
    r#as: Option<String>,
}

fn hundred() -> i32 {
    100
}

/// The holder of a valid token. The database decides what it may read.
pub(crate) struct Reader {
    pub(super) hash: TokenHash,
    scope: TokenScope,
}

impl FromRequestParts<Events> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, events: &Events) -> Result<Reader, Error> {
        let (hash, scope) = authenticated(parts, &events.database).await?;
        Ok(Reader { hash, scope })
    }
}

pub(crate) async fn read(
    State(events): State<Events>,
    reader: Reader,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<impl IntoResponse, Error> {
    let Query(asked) = asked.map_err(|error| Error::Invalid(error.body_text()))?;
    if !(1..=limits::EVENTS_PER_PAGE_MAX).contains(&asked.limit) {
        return Err(Error::Invalid(format!("limit must be between 1 and {}", limits::EVENTS_PER_PAGE_MAX)));
    }
    let wait = Duration::from_secs(asked.wait);
    if wait > limits::EVENTS_WAIT_MAX {
        let most = limits::EVENTS_WAIT_MAX.as_secs();
        return Err(Error::Invalid(format!("wait must be between 0 and {most}; read again to wait longer")));
    }
    let page = match wait.is_zero() {
        true => look(&events, &reader, &asked, asked.after).await?,
        false => follow(&events, &reader, &asked, wait).await?,
    };
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(page)))
}

/// Polls until there is an event or the time limit is reached, and sleeps between polls until notified. The position of the
/// answer is behind the events that were skipped.
async fn follow(events: &Events, reader: &Reader, asked: &Asked, wait: Duration) -> Result<EventPage, Error> {
    let _place = events.waiting.enter(reader.scope.token_id.uuid())?;
    let deadline = tokio::time::Instant::now() + wait;
    let mut woken = events.wake.subscribe();
    let mut after = asked.after;
    loop {
        // Before the poll, so that a notification between the poll and the sleep is not lost.
        woken.borrow_and_update();
        let looked = tokio::time::Instant::now();
        let page = look(events, reader, asked, after).await?;
        let over = tokio::time::Instant::now() >= deadline || events.shutdown.is_cancelled();
        if !page.events.is_empty() || over {
            return Ok(page);
        }
        after = Some(page.position);
        if page.more {
            continue;
        }
        tokio::select! {
            _ = woken.changed() => {}
            () = tokio::time::sleep(limits::EVENTS_POLL) => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = events.shutdown.cancelled() => {}
        }
        let rest = (looked + limits::EVENTS_LOOK_EVERY).min(deadline);
        tokio::time::sleep_until(rest).await;
    }
}

/// One poll. The database checks the token and the subscriptions each time, so that rights revoked while a call
/// waited have no effect any more.
async fn look(
    events: &Events,
    reader: &Reader,
    asked: &Asked,
    after: Option<i64>,
) -> Result<EventPage, Error> {
    let consumer = asked.r#as.as_deref();
    Ok(events.database.executor_token_event_read(&reader.hash, consumer, after, asked.limit).await?)
}
