//! The executor API, `/api/v1/jobs`, `/api/v1/processes`, `/api/v1/executors` and `/api/v1/payloads`: workers and producers in any language,
//! without a database login.
//!
//! Calls about jobs are POSTs with a JSON body and `Authorization: Bearer <token>`. The path is
//! the verb of the SQL function behind it; the database decides. A token stands for one
//! executor or for a producer, and its leases carry the token's id, so that no other token can touch them.

pub(crate) mod body;
pub(crate) mod caller;
mod claim;
mod enqueue;
pub(crate) mod error;
mod lease;
mod payload;
mod process;
mod register;
mod status;
mod stream;
pub(crate) mod wake;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_streams::Store;
use towpath_trace::Tracer;

use claim::Waiting;
use error::Error;
use stream::JobStreams;
use wake::Wake;
use watch::Watches;

use crate::limits;
use crate::project::Projects;
use crate::waiting;

/// Shared state of the calls.
#[derive(Clone)]
pub(crate) struct Jobs {
    database: Database,
    wake: Wake,
    waiting: Arc<Waiting>,
    waiting_for_ends: Arc<waiting::Waiting>,
    watches: Watches,
    /// None without a stream store.
    streams: Option<JobStreams>,
    payloads: Arc<Semaphore>,
    tracer: Tracer,
    shutdown: CancellationToken,
}

/// The routes of jobs and of their payloads. They need a database, so they are mounted only where there is one.
pub(crate) fn router(
    database: Database,
    store: Option<(Arc<dyn Store>, Projects, usize)>,
    tracer: Tracer,
    shutdown: CancellationToken,
) -> Router {
    let watches = Watches::start(database.clone(), shutdown.clone());
    let streams =
        store.map(|store| JobStreams::start(store, database.clone(), watches.clone(), shutdown.clone()));
    let jobs = Jobs {
        wake: Wake::new(wake::For::Jobs, database.clone(), shutdown.clone()),
        waiting: Arc::default(),
        waiting_for_ends: waiting::Waiting::new(
            "requests for the end of a job",
            limits::JOBS_WAITED_FOR_MAX,
            limits::JOBS_WAITED_FOR_PER_TOKEN_MAX,
        ),
        watches,
        streams,
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
        .route("/extend_many", post(lease::extend_many))
        .route("/progress", post(lease::progress))
        .route("/checkpoint", post(process::checkpoint))
        .route("/ack", post(lease::ack))
        .route("/ack_many", post(lease::ack_many))
        .route("/fail", post(lease::fail))
        .route("/fail_many", post(lease::fail_many))
        .route("/snooze", post(lease::snooze))
        .route("/release", post(lease::release))
        .route("/heartbeat", post(lease::heartbeat))
        .route("/{job_id}/append", post(status::append))
        .route("/{job_id}/token", post(status::token))
        .merge(pages(&jobs))
        .method_not_allowed_fallback(error::method_not_allowed);
    Router::new()
        .nest("/jobs", verbs)
        .nest("/processes", process::router())
        .route("/executors/register", post(register::register))
        .route("/payloads", post(payload::put))
        .route("/payloads/{payload_ref}", get(payload::get))
        .with_state(jobs)
}

/// What a browser may call with the token of a job, from a page of any origin that the project of jobs allows.
fn pages(jobs: &Jobs) -> Router<Jobs> {
    Router::new()
        .route("/{job_id}", get(status::get).options(status::preflight))
        .route("/{job_id}/result", get(payload::result).options(status::preflight))
        .route("/{job_id}/cancel", post(status::cancel).options(status::preflight))
        .layer(axum::middleware::from_fn_with_state(jobs.clone(), status::cors))
}
