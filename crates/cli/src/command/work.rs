//! `towpath work`: only the worker, with the built-in job kinds.
//!
//! Those are `db_function`, `email` and `sms` (the last two if they have a transport), and
//! `towpath.noop`, `towpath.sleep` and `towpath.fail`, for experiments.
//! Your own handlers run in your own program, built on the crate `towpath` or the HTTP executor API.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use towpath_db::cluster::Login;
use towpath_db::{Database, Error};
use towpath_message::Transports;
use towpath_server::metrics::Metrics;
use towpath_trace::Tracer;
use towpath_worker::{Builder, Worker, builtin, task};

use crate::output::{Exit, Output, done};
use crate::settings::Settings;
use crate::{metrics, program, shutdown, trace};

/// The executor of the built-in worker.
pub(crate) const EXECUTOR: &str = "towpath";

#[derive(Args)]
pub(crate) struct Work {
    /// Executor whose subscriptions decide what is claimed
    #[arg(long, value_name = "NAME", default_value = EXECUTOR)]
    executor: String,
    /// Name of this process in heartbeats (default: EXECUTOR@HOST-PID)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Concurrent jobs (default: 64)
    #[arg(long, value_name = "JOBS")]
    concurrency: Option<NonZeroUsize>,
    /// Lease of a job; after a worker is killed its jobs run elsewhere this much later (default: 15)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    lease: Option<u64>,
    /// Poll instead of listening for notifications, for connections through a transaction pooler
    #[arg(long)]
    poll_only: bool,
}

pub(crate) async fn run(work: Work, settings: &Settings, output: &Output) -> Exit {
    let shutdown = shutdown::on_signal()?;
    let listener = metrics::listen(settings).await?;
    super::with_database(settings, async |database| {
        let transports = settings.message.transports()?;
        register(&database, &work.executor, &transports).await?;
        let database = program::database(&database, Login::Worker, settings).await?;
        let numbers = Metrics::new();
        let tracer = trace::tracer(settings)?;
        numbers.register(|registry| database.job_numbers().register(registry));
        let worker = worker(&work, database, &transports, tracer.clone())?;
        numbers.register(|registry| worker.register(registry));
        let published = metrics::serve(listener, &numbers, settings, &shutdown);
        output.show(&json!({ "executor": work.executor, "kinds": worker.kinds() }), |_| {
            format!("towpath worker is running as {}: {}", work.executor, worker.kinds().join(", "))
        });
        worker.run(shutdown).await;
        published.await?;
        trace::end(tracer).await;
        done()
    })
    .await
}

/// Registers an executor and subscribes it to the built-in kinds, so that their jobs run without any other command.
/// What an administrator has set stays. A login without the right uses what is registered.
pub(crate) async fn register(
    database: &Database,
    executor: &str,
    transports: &Transports,
) -> anyhow::Result<Vec<String>> {
    let kinds = with_kinds(Worker::builder(database.clone(), executor), transports).build()?.kinds();
    match database.executor_register(executor, &kinds).await {
        Ok(added) if added.is_empty() => Ok(added),
        Ok(added) => {
            tracing::info!("registered executor {executor} for {}", added.join(", "));
            Ok(added)
        }
        Err(Error::NotAuthorised(why)) => {
            tracing::info!("executor {executor} was not registered by this login: {why}");
            Ok(vec![])
        }
        Err(error) => Err(error.into()),
    }
}

/// The worker that `towpath up` runs.
pub(crate) fn everyday(
    database: Database,
    transports: &Transports,
    tracer: Tracer,
) -> anyhow::Result<Worker> {
    Ok(with_kinds(Worker::builder(database, EXECUTOR).tracer(tracer), transports).build()?)
}

/// Every built-in kind.
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
