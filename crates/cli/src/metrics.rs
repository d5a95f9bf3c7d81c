//! Metrics: where they are served, who may read them, and their list.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_server::metrics::{self, Access, Metrics, SurveyNumbers};

use crate::settings::Settings;

/// Settings of `/metrics`.
#[derive(Args, Debug, Clone)]
pub(crate) struct MetricsSettings {
    /// Separate address that serves only /metrics, also for roles without the HTTP server (default: none)
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// Bearer token required by /metrics (default: none, open on loopback)
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    metrics_token: Option<String>,
}

/// Who may read `/metrics` at an address.
pub(crate) fn access(settings: &Settings, address: SocketAddr) -> Access {
    match &settings.metrics.metrics_token {
        Some(token) => Access::Token(token.clone()),
        None if address.ip().is_loopback() => Access::Open,
        None => Access::Closed,
    }
}

/// Binds the separate address, if one is set, before anything else starts.
pub(crate) async fn listen(settings: &Settings) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = settings.metrics.metrics_listen else { return Ok(None) };
    if matches!(access(settings, address), Access::Closed) {
        bail!(
            "{address} is public and metrics have no token; set one with \
             TOWPATH_METRICS_TOKEN, or listen on 127.0.0.1"
        );
    }
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; stop the program that uses the port, or choose another with --metrics-listen")
    })?;
    Ok(Some(listener))
}

/// Serves metrics until `shutdown`.
pub(crate) fn serve(
    listener: Option<TcpListener>,
    metrics: &Metrics,
    settings: &Settings,
    shutdown: &CancellationToken,
) -> JoinHandle<()> {
    let (metrics, shutdown) = (metrics.clone(), shutdown.clone());
    let access = settings.metrics.metrics_listen.map_or(Access::Closed, |address| access(settings, address));
    tokio::spawn(async move {
        let Some(listener) = listener else { return };
        if let Ok(address) = listener.local_addr() {
            tracing::info!("metrics at http://{address}/metrics");
        }
        metrics::run(listener, metrics, access, shutdown).await;
    })
}

/// Reads the database's numbers until `shutdown`.
pub(crate) fn survey(metrics: &Metrics, database: &Database, shutdown: &CancellationToken) -> JoinHandle<()> {
    tokio::spawn(SurveyNumbers::new(metrics, Some(database.clone())).run(shutdown.clone()))
}

/// One metric, as `towpath metrics` shows it.
#[derive(Serialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    /// The part of the program that exports it.
    pub(crate) of: &'static str,
}

/// Registers the metrics of one part.
type Register<'a> = &'a dyn Fn(&Metrics);

/// Every metric, read from the registries.
pub(crate) fn all() -> Vec<Described> {
    let database = "the whole system, read from the database: up, serve, maintain";
    let parts: [(&'static str, Register); 6] = [
        (database, &|metrics| drop(SurveyNumbers::new(metrics, None))),
        ("jobs this process claims and finishes: up, serve, work", &|metrics| {
            metrics.register(|registry| towpath_db::job::Numbers::default().register(registry));
        }),
        ("jobs this process runs: up, work", &|metrics| metrics.register(towpath_worker::describe)),
        ("maintenance: up, maintain", &|metrics| metrics.register(towpath_worker::describe_maintenance)),
        ("events and routes: up, route", &|metrics| metrics.register(towpath_route::describe)),
        ("fan-out and sessions: up, serve", &metrics::describe_streams),
    ];
    let http = ("HTTP and streams: up, serve; also on metrics_listen", Metrics::new());
    let rest = parts.map(|(of, add)| {
        let metrics = Metrics::default();
        add(&metrics);
        (of, metrics)
    });
    let all = rest.iter().chain([&http]).flat_map(|(of, metrics)| {
        metrics.described().into_iter().map(|metric| {
            let ending = if metric.kind == "counter" { "_total" } else { "" };
            let name = format!("towpath_{}{ending}", metric.name);
            Described { name, kind: metric.kind, help: metric.help, of }
        })
    });
    all.collect()
}
