//! The events a consumer may see, `GET /api/v1/events`, read with the token of an executor (R05).
//!
//! The consumer keeps its position: it asks for events after it, and may wait for more.
//! The database decides at every poll which events it sees: those of its own subscriptions, unmuted.

mod read;
mod waiting;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;

use crate::jobs::wake::{For, Wake};
use waiting::Waiting;

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
        waiting: Arc::default(),
        database,
        shutdown,
    };
    Router::new()
        .route("/", get(read::read))
        .method_not_allowed_fallback(read::method_not_allowed)
        .with_state(events)
}
