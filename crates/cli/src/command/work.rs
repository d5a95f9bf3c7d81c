//! `towpath work`: the worker alone, with the kinds that come with the binary.
//!
//! Those are `db_function`, `email` and `sms` (the last two if they have a way out), and
//! `towpath.noop`, `towpath.sleep` and `towpath.fail`, for trying things out.
//! Handlers of one's own live in a program of one's own, built on `towpath-worker`, or behind
//! the HTTP executor API.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use towpath_db::Database;
use towpath_db::cluster::Login;
use towpath_message::Transports;
use towpath_server::metrics::Metrics;
use towpath_trace::Tracer;
use towpath_worker::{Builder, Worker, builtin, task};

use crate::output::Output;
use crate::settings::Settings;
use crate::{metrics, program, shutdown, trace};

/// The executor that the binary's own worker claims as.
pub(crate) const EXECUTOR: &str = "towpath";

#[derive(Args)]
pub(crate) struct Work {
    /// The executor whose subscriptions decide what is claimed
    #[arg(long, value_name = "NAME", default_value = EXECUTOR)]
    executor: String,
    /// The name of this process in heartbeats; EXECUTOR@HOST-PID if not given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Jobs to run at once [default: 64]
    #[arg(long, value_name = "JOBS")]
    concurrency: Option<NonZeroUsize>,
    /// How long jobs of a killed worker wait to run elsewhere [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    lease: Option<u64>,
    /// Never listen for notifications, only poll: for connections through a transaction pooler
    #[arg(long)]
    poll_only: bool,
}

pub(crate) async fn run(work: Work, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    let shutdown = shutdown::on_signal()?;
    let listener = metrics::listen(settings).await?;
    super::with_database(settings, async |database| {
        let database = program::database(&database, Login::Worker, settings).await?;
        let numbers = Metrics::new();
        let tracer = trace::tracer(settings)?;
        numbers.register(|registry| database.job_numbers().register(registry));
        let worker = worker(&work, database, &settings.message.transports()?, tracer.clone())?;
        numbers.register(|registry| worker.register(registry));
        let published = metrics::serve(listener, &numbers, settings, &shutdown);
        output.show(&json!({ "executor": work.executor, "kinds": worker.kinds() }), |_| {
            format!("towpath works as {}: {}", work.executor, worker.kinds().join(", "))
        });
        worker.run(shutdown).await;
        published.await?;
        trace::end(tracer).await;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// The worker that `towpath up` runs.
pub(crate) fn everyday(
    database: Database,
    transports: &Transports,
    tracer: Tracer,
) -> anyhow::Result<Worker> {
    Ok(with_kinds(Worker::builder(database, EXECUTOR).tracer(tracer), transports).build()?)
}

/// Every kind that comes with the binary.
fn with_kinds(builder: Builder, transports: &Transports) -> Builder {
    towpath_message::register(task::register(builtin::register(builder)), transports)
}

fn worker(
    work: &Work,
    database: Database,
    transports: &Transports,
    tracer: Tracer,
) -> anyhow::Result<Worker> {
    let mut builder = with_kinds(Worker::builder(database, &work.executor).tracer(tracer), transports);
    if let Some(name) = &work.name {
        builder = builder.name(name);
    }
    if let Some(concurrency) = work.concurrency {
        builder = builder.concurrency(concurrency.get());
    }
    if let Some(seconds) = work.lease {
        builder = builder.lease(Duration::from_secs(seconds));
    }
    if work.poll_only {
        builder = builder.poll_only();
    }
    Ok(builder.build()?)
}
