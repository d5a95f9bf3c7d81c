//! HTTP: everything that listens.
//!
//! `run(listener, …)` serves until it is told to stop. The server keeps no truth in
//! memory: kill it, and clients go on from the database and from their offsets.

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

/// What the server needs. Each part may be missing; what needs it then answers 404.
#[derive(Clone, Default)]
pub struct Config {
    /// The database it answers from.
    pub database: Option<Database>,
    /// The streams it serves, and how.
    pub streams: Option<(Arc<dyn Store>, stream::Settings)>,
    /// Open connections; more are refused with 503. `None` is a default that fits a small
    /// machine.
    pub connections_max: Option<usize>,
    /// How much may be held in memory for readers.
    pub readers: ReaderLimits,
    /// Names besides those of this machine that a listener on loopback answers to.
    pub hosts: Vec<String>,
    /// Connections from one address that is not this machine; `None` is a default for clients, and proxies of a
    /// few hundred of them. 0 is as many as there may be.
    pub connections_per_address_max: Option<usize>,
    /// Speaks TLS with this; `None` is plain HTTP.
    pub tls: Option<Tls>,
    /// Where everybody's numbers are, for `/metrics`.
    pub metrics: Metrics,
    /// The breakers of fan-outs, shared with who shows them.
    pub circuits: Circuits,
    /// Who may read them there.
    pub metrics_access: Access,
    /// Makes spans of requests to the API and of what they enqueue.
    pub tracer: Tracer,
    /// The token that opens `/admin/v1/projects`; `None` leaves it closed.
    pub admin_token: Option<String>,
    /// Routes of others, at the root beside ours: the dashboard.
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
    // Without its registry nobody knows who may do what: nothing is served then.
    let (streams, projects) = match opened {
        Ok(opened) => opened.unzip(),
        Err(error) => {
            tracing::error!(%error, "streams are not served");
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
    let admin = projects.zip(config.admin_token.clone());
    let api = config.database.clone().map(|database| {
        let jobs = jobs::router(database.clone(), config.tracer.clone(), shutdown.clone());
        jobs.nest("/events", events::router(database, shutdown))
    });
    let router = Router::new()
        .route("/health", get(ready::health))
        .route("/ready", get(ready::ready))
        .route("/api/openapi.json", get(openapi::answer))
        .fallback(ready::not_found)
        .with_state(config)
        .merge(metrics)
        .merge(pages);
    let router = match admin {
        Some((projects, token)) => router.nest("/admin/v1/projects", project::router(projects, token)),
        None => router,
    };
    match api {
        Some(api) => router.nest("/api/v1", api),
        None => router,
    }
}
