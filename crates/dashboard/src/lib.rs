//! Pages for operators, at `/ui`.
//!
//! Every page is rendered on the server from the functions the command line calls, and every
//! action is one of them too. A page says which topics it shows; when a topic changes, one
//! line on our own stream makes the open pages fetch themselves again. The crate knows no SQL
//! and keeps nothing in memory that matters.

mod access;
mod act;
mod chart;
mod fault;
mod filters;
mod limits;
mod live;
mod page;
mod shell;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_streams::Store;

use access::Guard;
pub use access::{Access, Secret};
use live::Live;

/// What the pages are made from.
#[derive(Clone)]
pub struct Config {
    /// The database they show.
    pub database: Database,
    /// The streams they show, and are told of changes by.
    pub store: Arc<dyn Store>,
    /// Who may look and who may act.
    pub access: Access,
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct App {
    database: Database,
    store: Arc<dyn Store>,
    guard: Arc<Guard>,
    live: Live,
}

/// The routes, to be mounted at the root: they all begin with `/ui`.
pub fn router(config: Config, shutdown: CancellationToken) -> Router {
    let Config { database, store, access } = config;
    let live = Live::new(database.clone(), store.clone(), shutdown);
    let app = App { database, store, guard: Arc::new(Guard::new(access)), live };
    Router::new()
        .route("/ui", get(page::overview::show))
        .route("/ui/login", get(access::login::show).post(access::login::enter))
        .route("/ui/logout", post(access::login::leave))
        .route("/ui/live", get(live::follow))
        .route("/ui/assets/{name}", get(shell::asset))
        .route("/ui/jobs", get(page::jobs::show))
        .route("/ui/jobs/bulk", post(page::bulk::begin))
        .route("/ui/bulk/{id}", get(page::bulk::show))
        .route("/ui/jobs/{id}", get(page::job::show).post(page::job::act))
        .route("/ui/dead-letters", get(page::dead_letters::show))
        .route("/ui/dead-letters/{id}", get(page::dead_letter::show).post(page::dead_letter::act))
        .route("/ui/events", get(page::events::show))
        .route("/ui/events/{id}", get(page::event::show).post(page::event::act))
        .route("/ui/routes", get(page::routes::show).post(page::routes::act))
        .route("/ui/processes", get(page::processes::show))
        .route("/ui/processes/{id}", get(page::process::show).post(page::process::act))
        .route("/ui/executors", get(page::executors::show).post(page::executors::act))
        .route("/ui/schedules", get(page::schedules::show).post(page::schedules::act))
        .route("/ui/gates", get(page::gates::show).post(page::gates::act))
        .route("/ui/streams", get(page::streams::show))
        .route("/ui/stream", get(page::stream::show))
        .route("/ui/stream/follow", get(page::stream::follow))
        .route("/ui/audit", get(page::audit::show))
        .route("/ui/{*rest}", get(fault::not_found))
        .layer(DefaultBodyLimit::max(limits::FORM_BYTES_MAX))
        .layer(middleware::map_response(shell::harden))
        .with_state(app)
}
