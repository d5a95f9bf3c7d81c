//! The executor API, `/api/v1/jobs`: work in any language, without a database login.
//!
//! Every call is a POST with a JSON body and `Authorization: Bearer <token>`. The path is
//! the verb of the SQL function behind it; the database decides. A token stands for one
//! executor, and its leases carry the token's id, so that no other token can touch them.

pub(crate) mod body;
pub(crate) mod caller;
mod claim;
mod enqueue;
pub(crate) mod error;
mod lease;
pub(crate) mod wake;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_trace::Tracer;

use claim::Waiting;
use error::Error;
use wake::Wake;

/// What the calls share.
#[derive(Clone)]
pub(crate) struct Jobs {
    database: Database,
    wake: Wake,
    waiting: Arc<Waiting>,
    tracer: Tracer,
    shutdown: CancellationToken,
}

/// The routes. They need a database, so they are mounted only where there is one.
pub(crate) fn router(database: Database, tracer: Tracer, shutdown: CancellationToken) -> Router {
    let jobs = Jobs {
        wake: Wake::new(wake::For::Jobs, database.clone(), shutdown.clone()),
        waiting: Arc::default(),
        database,
        tracer,
        shutdown,
    };
    Router::new()
        .route("/enqueue", post(enqueue::enqueue))
        .route("/enqueue_many", post(enqueue::enqueue_many))
        .route("/claim", post(claim::claim))
        .route("/start", post(lease::start))
        .route("/extend", post(lease::extend))
        .route("/progress", post(lease::progress))
        .route("/ack", post(lease::ack))
        .route("/ack_many", post(lease::ack_many))
        .route("/fail", post(lease::fail))
        .route("/release", post(lease::release))
        .route("/heartbeat", post(lease::heartbeat))
        .method_not_allowed_fallback(error::method_not_allowed)
        .with_state(jobs)
}
