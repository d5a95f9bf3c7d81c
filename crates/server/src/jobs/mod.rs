//! The executor API, `/api/v1/jobs` and `/api/v1/payloads`: workers in any language, without a database login.
//!
//! Every call about jobs is a POST with a JSON body and `Authorization: Bearer <token>`. The path is
//! the verb of the SQL function behind it; the database decides. A token stands for one
//! executor, and its leases carry the token's id, so that no other token can touch them.

pub(crate) mod body;
pub(crate) mod caller;
mod claim;
mod enqueue;
pub(crate) mod error;
mod lease;
mod payload;
pub(crate) mod wake;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_trace::Tracer;

use claim::Waiting;
use error::Error;
use wake::Wake;

use crate::limits;

/// Shared state of the calls.
#[derive(Clone)]
pub(crate) struct Jobs {
    database: Database,
    wake: Wake,
    waiting: Arc<Waiting>,
    payloads: Arc<Semaphore>,
    tracer: Tracer,
    shutdown: CancellationToken,
}

/// The routes of jobs and of their payloads. They need a database, so they are mounted only where there is one.
pub(crate) fn router(database: Database, tracer: Tracer, shutdown: CancellationToken) -> Router {
    let jobs = Jobs {
        wake: Wake::new(wake::For::Jobs, database.clone(), shutdown.clone()),
        waiting: Arc::default(),
        payloads: Arc::new(Semaphore::new(limits::PAYLOADS_AT_ONCE_MAX)),
        database,
        tracer,
        shutdown,
    };
    let verbs = Router::new()
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
        .method_not_allowed_fallback(error::method_not_allowed);
    Router::new()
        .nest("/jobs", verbs)
        .route("/payloads", post(payload::put))
        .route("/payloads/{payload_ref}", get(payload::get))
        .with_state(jobs)
}
