//! Events over HTTP, `/api/v1/events`: GET reads those a consumer may see, with the token of an executor (R05); POST emits.
//!
//! The consumer keeps its position: it asks for events after it, and may wait for more.
//! The database decides at every poll which events it sees: those of its own subscriptions, unmuted.

mod emit;
mod read;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;

use crate::jobs::error::method_not_allowed;
use crate::jobs::wake::{For, Wake};
use crate::limits;
use crate::waiting::Waiting;

/// Shared state of the calls.
#[derive(Clone)]
pub(crate) struct Events {
    database: Database,
    wake: Wake,
    waiting: Arc<Waiting>,
    shutdown: CancellationToken,
}

/// The route. It needs a database, so it is mounted only where there is one.
pub(crate) fn router(database: Database, shutdown: CancellationToken) -> Router {
    let events = Events {
        wake: Wake::new(For::Events, database.clone(), shutdown.clone()),
        waiting: Waiting::new(
            "reads of events",
            limits::EVENTS_WAITING_MAX,
            limits::EVENTS_WAITING_PER_TOKEN_MAX,
        ),
        database,
        shutdown,
    };
    Router::new()
        .route("/", get(read::read).post(emit::emit))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(events)
}
