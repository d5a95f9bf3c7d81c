//! The HTTP server. An internal part: applications depend on the crate `towpath`.
//!
//! `run(listener, …)` serves until it is told to stop. The server keeps no state of its own:
//! kill it, and clients go on from the database and from their offsets.

mod accept;
mod admission;
mod body;
mod budget;
pub mod descriptors;
mod events;
mod flood;
mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod hosts;
mod http1;
mod io;
mod jobs;
mod limits;
pub mod metrics;
mod openapi;
pub mod project;
mod ready;
mod stop;
pub mod stream;
pub mod tls;
mod trace;
mod unsent;
mod upload;
mod waiting;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_streams::{Circuits, Store};
use towpath_trace::Tracer;

use admission::ConnectionLimits;
use budget::Budget;
pub use budget::ReaderLimits;
use front::Front;
use hosts::Hosts;
use metrics::{Access, Metrics};
use project::Projects;
use stop::Stop;
use stream::{Around, Streams};
use tls::Tls;

/// The configuration of the server. Each part may be missing; its routes then answer 404.
#[derive(Clone, Default)]
pub struct Config {
    /// The database.
    pub database: Option<Database>,
    /// The stream store, and its settings.
    pub streams: Option<(Arc<dyn Store>, stream::Settings)>,
    /// Open connections; more are refused with 503. `None` is a default that fits a small
    /// machine.
    pub connections_max: Option<usize>,
    /// The memory limits of readers.
    pub readers: ReaderLimits,
    /// Host names that a listener on loopback answers to, besides those of this machine.
    pub hosts: Vec<String>,
    /// Connections from one remote address; `None` is a default that fits clients, and proxies of a few hundred
    /// clients. 0 is no limit.
    pub connections_per_address_max: Option<usize>,
    /// The certificate for TLS; `None` is plain HTTP.
    pub tls: Option<Tls>,
    /// The registry behind `/metrics`.
    pub metrics: Metrics,
    /// The circuit breakers of fan-outs, shared with the dashboard.
    pub circuits: Circuits,
    /// Who may read `/metrics`.
    pub metrics_access: Access,
    /// Traces requests to the API and the jobs they enqueue.
    pub tracer: Tracer,
    /// The token for `/admin/v1/projects`; `None` disables it.
    pub admin_token: Option<String>,
    /// More routes below `/admin/v1`, behind `admin_token`.
    pub admin: Option<Router>,
    /// More routes at the root: the dashboard.
    pub pages: Option<Router>,
}

/// Serves on `listener` until `shutdown`, then lets requests in flight finish.
pub async fn run(listener: TcpListener, config: Config, shutdown: CancellationToken) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let address = listener.local_addr().map(|address| format!("{scheme}://{address}")).unwrap_or_default();
    let stop = Stop::default();
    let budget = Budget::new(config.readers, config.metrics.http().readers.clone());
    let opened = match config.streams.clone() {
        Some((store, settings)) => {
            let ends = (shutdown.clone(), stop.clone());
            open(store, settings, (&config, budget.clone()), address, ends).await.map(Some)
        }
        None => Ok(None),
    };
    // Without the registry of projects no request can be authorised, so no stream is served.
    let (streams, projects) = match opened {
        Ok(opened) => opened.unzip(),
        Err(error) => {
            tracing::error!(%error, "cannot serve streams");
            (None, None)
        }
    };
    let per_address = config.connections_per_address_max.unwrap_or(limits::CONNECTIONS_PER_ADDRESS_MAX);
    let connections = ConnectionLimits {
        all: descriptors::connections_max(config.connections_max.unwrap_or(limits::CONNECTIONS_MAX)),
        per_address: Some(per_address).filter(|max| *max > 0),
    };
    let tls = config.tls.clone();
    let (metrics, tracer) = (config.metrics.clone(), config.tracer.clone());
    let hosts = Hosts::new(listener.local_addr().ok(), &config.hosts);
    let router = router(config, projects, shutdown.clone());
    let front = Front { streams, router, hosts, budget, metrics, tracer };
    accept::run(listener, front, connections, tls, shutdown, stop).await;
}

async fn open(
    store: Arc<dyn Store>,
    settings: stream::Settings,
    (config, budget): (&Config, Budget),
    base_url: String,
    (shutdown, stop): (CancellationToken, Stop),
) -> Result<(Streams, Projects), towpath_streams::Error> {
    let projects = Projects::open(store.clone())?;
    let around = Around {
        base_url,
        projects: projects.clone(),
        metrics: config.metrics.clone(),
        circuits: config.circuits.clone(),
        budget,
    };
    Ok((Streams::open(store, settings, around, shutdown, stop).await?, projects))
}

fn router(config: Config, projects: Option<Projects>, shutdown: CancellationToken) -> Router {
    let pages = config.pages.clone().unwrap_or_default();
    let metrics = metrics::router(config.metrics.clone(), config.metrics_access.clone());
    let admin = projects.clone().zip(config.admin_token.clone());
    let more = config.admin.clone().unwrap_or_default();
    let api = config.database.clone().map(|database| {
        let store = config.streams.as_ref().zip(projects);
        let store =
            store.map(|((store, settings), projects)| (store.clone(), projects, settings.streams_max));
        let jobs = jobs::router(database.clone(), store, config.tracer.clone(), shutdown.clone());
        jobs.nest("/events", events::router(database, shutdown))
    });
    let router = Router::new()
        .route("/", get(ready::root))
        .route("/health", get(ready::health))
        .route("/ready", get(ready::ready))
        .route("/api/openapi.json", get(openapi::answer))
        .fallback(ready::not_found)
        .with_state(config)
        .merge(metrics)
        .merge(pages);
    let router = match admin {
        Some((projects, token)) => router.nest("/admin/v1", project::router(projects, token, more)),
        None => router,
    };
    match api {
        Some(api) => router.nest("/api/v1", api),
        None => router,
    }
}
