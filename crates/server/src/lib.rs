//! HTTP: everything that listens.
//!
//! `run(listener, …)` serves until it is told to stop. The server keeps no truth in
//! memory: kill it, and clients go on from the database.

mod accept;
mod jobs;
mod limits;
mod ready;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;

/// What the server needs.
#[derive(Clone)]
pub struct Config {
    /// The database it answers from.
    pub database: Database,
}

/// Serves on `listener` until `shutdown`, then lets requests in flight finish.
pub async fn run(listener: TcpListener, config: Config, shutdown: CancellationToken) {
    accept::run(listener, router(config, shutdown.clone()), shutdown).await;
}

fn router(config: Config, shutdown: CancellationToken) -> Router {
    let jobs = jobs::router(config.database.clone(), shutdown);
    Router::new()
        .route("/health", get(ready::health))
        .route("/ready", get(ready::ready))
        .fallback(ready::not_found)
        .with_state(config)
        .nest("/api/v1/jobs", jobs)
}
