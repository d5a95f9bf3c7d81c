//! `towpath up`: every role in one process.

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use towpath_db::cluster::Cluster;
use towpath_db::migrate::{self, Mode};
use towpath_db::stream_intake::Routes;
use towpath_db::{Attribution, Database, GateMove};
use towpath_message::Transports;
use towpath_route::Role;
use towpath_route::stream::Local;
use towpath_server::metrics::Metrics;
use towpath_server::tls::Tls;
use towpath_streams::Circuits;
use towpath_worker::Maintenance;

use super::demo::{Demo, Place, Tally};
use super::migrate::report_in_words;
use super::work::EXECUTOR;
use crate::output::{Exit, Output, done};
use crate::program::Programs;
use crate::server_file::ServerFile;
use crate::session::cluster_config;
use crate::settings::{Origins, Settings};
use crate::streams::{Dashboard, OpenStreams};
use crate::{dashboard, master_key, metrics, shutdown, streams, trace};

#[derive(Args)]
pub(crate) struct Up {
    /// For development: open every gate, allow webhooks to this machine, and print a token for the HTTP API
    #[arg(long)]
    dev: bool,
    /// Sample traffic to start
    #[arg(skip)]
    demo: Option<Demo>,
}

impl Up {
    /// `towpath demo`.
    pub(super) fn with_traffic(demo: Demo) -> Up {
        Up { dev: demo.opens_gates(), demo: Some(demo) }
    }
}

pub(crate) async fn run(up: Up, settings: &Settings, origins: &Origins, output: &Output) -> Exit {
    let mut settings = settings.clone();
    if up.dev {
        settings.stream.allow_webhook_local();
    }
    let settings = &settings;
    let shutdown = shutdown::on_signal()?;
    towpath_server::descriptors::raise();
    tracing::info!("towpath {}: {}", env!("CARGO_PKG_VERSION"), origins.in_words());
    let tls = streams::tls(settings)?;
    // Checked again later; a mistake is reported before anything starts.
    streams::for_server(settings)?;
    streams::require_keys(settings, Dashboard::Served).await?;
    let transports = match (&up.demo, up.dev) {
        (Some(demo), _) => demo.transports(settings)?,
        (None, true) => settings.message.transports_or_log()?,
        (None, false) => settings.message.transports()?,
    };
    // Bind the port first: if it is taken, nothing has been written or started yet.
    let listener = listen(settings).await?;
    let metrics_listener = metrics::listen(settings).await?;
    tokio::select! {
        running = Running::start(&up, &transports, settings) => running?.serve((listener, metrics_listener), tls, transports, settings, output, shutdown).await,
        () = shutdown.cancelled() => bail!("interrupted during startup"),
    }
}

/// The database, started here or found, and everything that uses it.
struct Running {
    programs: Programs,
    cluster: Option<Cluster>,
    streams: OpenStreams,
    /// With `--dev`, a token for the HTTP API.
    dev_token: Option<String>,
    /// Sample traffic, and the database with the rights to set it up, which nothing else keeps.
    demo: Option<(Demo, Database)>,
}

impl Running {
    async fn start(up: &Up, transports: &Transports, settings: &Settings) -> anyhow::Result<Running> {
        let cluster = match &settings.database_url {
            Some(_) => None,
            None => Some(Cluster::start(&cluster_config(settings)).await?),
        };
        let named = settings.database_url.as_deref();
        let url = cluster.as_ref().map(Cluster::url).or(named).unwrap_or_default().to_owned();
        let prepared = async {
            let database = prepare(&url, up, settings).await?;
            super::work::register(&database, EXECUTOR, transports).await?;
            let programs = Programs::open(&database, settings).await?;
            let dev_token = match up.dev {
                true => Some(super::dev_token::keep(&database, &settings.data).await?),
                false => None,
            };
            let streams = streams::open(settings, Some(&programs.server)).await?;
            Ok((database, programs, streams, dev_token))
        }
        .await;
        match (prepared, cluster) {
            (Ok((database, programs, streams, dev_token)), cluster) => {
                let demo = up.demo.clone().map(|demo| (demo, database));
                Ok(Running { programs, cluster, streams, dev_token, demo })
            }
            (Err(error), Some(cluster)) => {
                cluster.stop().await;
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Serves until shutdown, then stops everything in reverse order.
    async fn serve(
        self,
        (listener, metrics_listener): (TcpListener, Option<TcpListener>),
        tls: Option<Tls>,
        transports: Transports,
        settings: &Settings,
        output: &Output,
        shutdown: CancellationToken,
    ) -> Exit {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", listener.local_addr()?);
        tracing::info!("ready at {address}; Ctrl-C to stop");
        let server_file = ServerFile::new(&address, settings);
        let server_file_guard = server_file.write_to(&settings.data)?;
        match &self.dev_token {
            Some(token) => output.show(&json!({ "ready": address, "token": token }), |_| {
                format!("towpath is ready: {address}/ui\nexport TOWPATH_URL={address} TOWPATH_TOKEN={token}")
            }),
            None => output.show(&json!({ "ready": address }), |_| format!("towpath is ready: {address}/ui")),
        }
        let server = &self.programs.server;
        let circuits = Circuits::default();
        let numbers = Metrics::new();
        let tracer = trace::tracer(settings)?;
        let config = towpath_server::Config {
            circuits: circuits.clone(),
            database: Some(server.clone()),
            streams: Some((Arc::new(self.streams.store.clone()), streams::for_server(settings)?)),
            connections_max: Some(settings.connections_max as usize),
            hosts: streams::hosts(settings),
            readers: streams::readers(settings),
            connections_per_address_max: Some(settings.connections_per_address_max as usize),
            tls,
            metrics: numbers.clone(),
            metrics_access: metrics::access(settings, settings.listen),
            tracer: tracer.clone(),
            admin_token: Some(server_file.token),
            admin: Some(crate::backup::router(&self.streams)),
            pages: Some(dashboard::router(
                settings,
                server.clone(),
                Arc::new(self.streams.store.clone()),
                circuits,
                shutdown.clone(),
            )?),
        };
        let store = Arc::new(self.streams.store.clone());
        let local = Arc::new(match settings.fan_out.sessions_elsewhere() {
            true => Local::with_sessions_elsewhere(store),
            false => Local::new(store),
        });
        let router = self.programs.router.clone();
        let role = Role::new(router, crate::route::config(settings))?.streams(local);
        numbers.register(|registry| role.register(registry));
        let route = tokio::spawn(role.run(shutdown.clone()));
        let worker = super::work::everyday(self.programs.worker.clone(), &transports, tracer.clone())?;
        let maintenance = Maintenance::new(self.programs.maintainer.clone());
        numbers.register(|registry| {
            server.job_numbers().register(registry);
            worker.register(registry);
            maintenance.register(registry);
        });
        let survey = metrics::survey(&numbers, server, &shutdown);
        let background = self.streams.work(settings, Some(server.clone()), Routes::Here, &shutdown);
        let published = metrics::serve(metrics_listener, &numbers, settings, &shutdown);
        let worker = tokio::spawn(worker.run(shutdown.clone()));
        let maintenance = tokio::spawn(maintenance.run(shutdown.clone()));
        let demo = self.demo.map(|(demo, database)| {
            let (settings, shutdown) = (settings.clone(), shutdown.clone());
            let place = Place { url: address.clone(), webhooks: true };
            tokio::spawn(async move { demo.run(database, place, &settings, shutdown).await })
        });
        towpath_server::run(listener, config, shutdown).await;
        drop(server_file_guard);
        let demo = match demo {
            Some(demo) => Some(demo.await?),
            None => None,
        };
        route.await?;
        for task in background {
            task.await?;
        }
        self.streams.shut_down().await;
        worker.await?;
        maintenance.await?;
        trace::end(tracer).await;
        published.await?;
        survey.await?;
        self.programs.close();
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
        tracing::info!("stopped");
        if let Some(tally) = demo {
            output.show(&tally?, Tally::in_words);
        }
        done()
    }
}

pub(super) async fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let address = settings.listen;
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}; stop the program that uses the port, or choose another with --listen"
        )
    })
}

/// Migrates the schema and, with `--dev`, opens the gates.
async fn prepare(url: &str, up: &Up, settings: &Settings) -> anyhow::Result<Database> {
    let report = migrate::run(url, Mode::Apply).await?;
    if report.changed() {
        tracing::info!("migrated: {}", report_in_words(&report, Mode::Apply).replace('\n', "; "));
    }
    let database = master_key::with(settings, Database::connect(url).await?)?;
    if let Some(demo) = &up.demo {
        demo.refuse_foreign(&database).await?;
    }
    if up.dev {
        open_gates(&database, "towpath up --dev").await?;
        return Ok(database);
    }
    let names = closed_gates(&database).await?;
    if !names.is_empty() {
        tracing::info!("closed gates: {}; open them with: towpath gate open --all --why …", names.join(", "));
    }
    Ok(database)
}

/// Opens every gate that is closed.
pub(super) async fn open_gates(database: &Database, reason: &str) -> anyhow::Result<()> {
    let names = closed_gates(database).await?;
    for gate in &names {
        let by = Attribution { actor: &super::actor(), reason };
        database.gate_set(gate, GateMove::Open, by).await?;
    }
    if !names.is_empty() {
        tracing::warn!("{reason} opened every gate: {}", names.join(", "));
    }
    Ok(())
}

pub(super) async fn closed_gates(database: &Database) -> anyhow::Result<Vec<String>> {
    let gates = super::gate::gates(database).await?.into_iter();
    Ok(gates.filter(|gate| !gate.is_open()).map(|gate| gate.key).collect())
}
