//! `towpath serve`: only the HTTP server, with streams.

use std::sync::Arc;

use serde_json::json;
use towpath_db::Database;
use towpath_db::stream_intake::Routes;
use towpath_server::metrics::Metrics;
use towpath_streams::Circuits;

use crate::output::{Exit, Output, done};
use crate::server_file::ServerFile;
use crate::settings::{Origins, Settings};
use crate::streams::Dashboard;
use crate::{dashboard, master_key, metrics, shutdown, streams, trace};

/// Without a database it serves only streams.
pub(crate) async fn run(settings: &Settings, origins: &Origins, output: &Output) -> Exit {
    let shutdown = shutdown::on_signal()?;
    towpath_server::descriptors::raise();
    tracing::info!("towpath {}: {}", env!("CARGO_PKG_VERSION"), origins.in_words());
    let tls = streams::tls(settings)?;
    let dashboard = if settings.database_url.is_some() { Dashboard::Served } else { Dashboard::Absent };
    let stream_settings = streams::for_server(settings)?;
    streams::require_keys(settings, dashboard).await?;
    // A standby waits here, so it listens only when it serves.
    let opened = tokio::select! {
        opened = streams::open(settings, None) => opened?,
        () = shutdown.cancelled() => return done(),
    };
    let store = opened.store.clone();
    let listener = super::up::listen(settings).await?;
    let metrics_listener = metrics::listen(settings).await?;
    let database = match &settings.database_url {
        Some(url) => Some(master_key::with(settings, Database::connect(url).await?)?),
        None => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}", listener.local_addr()?);
    tracing::info!("ready at {address}; Ctrl-C to stop");
    let server_file = ServerFile::new(&address, settings);
    let server_file_guard = server_file.write_to(&settings.data)?;
    output.show(&json!({ "ready": address }), |_| format!("towpath is ready: {address}/v1/stream/"));
    let circuits = Circuits::default();
    let pages = match database.clone() {
        Some(database) => {
            let store = Arc::new(store.clone());
            Some(dashboard::router(settings, database, store, circuits.clone(), shutdown.clone())?)
        }
        None => None,
    };
    let numbers = Metrics::new();
    let tracer = trace::tracer(settings)?;
    let survey = database.as_ref().map(|database| {
        numbers.register(|registry| database.job_numbers().register(registry));
        metrics::survey(&numbers, database, &shutdown)
    });
    let background = opened.work(settings, database.clone(), Routes::Elsewhere, &shutdown);
    let published = metrics::serve(metrics_listener, &numbers, settings, &shutdown);
    let config = towpath_server::Config {
        circuits,
        database: database.clone(),
        streams: Some((Arc::new(store.clone()), stream_settings)),
        connections_max: Some(settings.connections_max as usize),
        hosts: streams::hosts(settings),
        readers: streams::readers(settings),
        connections_per_address_max: Some(settings.connections_per_address_max as usize),
        tls,
        metrics: numbers.clone(),
        metrics_access: metrics::access(settings, settings.listen),
        tracer: tracer.clone(),
        admin_token: Some(server_file.token),
        admin: Some(crate::backup::router(&opened)),
        pages,
    };
    towpath_server::run(listener, config, shutdown).await;
    drop(server_file_guard);
    trace::end(tracer).await;
    published.await?;
    if let Some(survey) = survey {
        survey.await?;
    }
    for task in background {
        task.await?;
    }
    opened.shut_down().await;
    if let Some(database) = database {
        database.close();
    }
    tracing::info!("stopped");
    done()
}
