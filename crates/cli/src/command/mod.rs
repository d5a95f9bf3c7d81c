//! The commands, one file each.

mod audit;
mod config;
mod db;
mod demo;
mod dlq;
mod doctor;
mod events;
mod executor;
mod fault;
mod gate;
mod job;
mod maintain;
mod man;
mod message;
mod metrics;
mod migrate;
mod payload;
mod process;
mod project;
mod queue;
mod route;
mod routes;
mod schedule;
mod serve;
mod session;
mod stream;
mod subscriptions;
mod top;
mod up;
mod work;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use towpath_db::Database;

use crate::master_key;
use crate::output::{Output, table};
use crate::session::Session;
use crate::settings::{Origins, Settings};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine until interrupted
    Up(up::Up),
    /// Run everything with living traffic on every plane, or make traffic for what runs already
    Demo(demo::Demo),
    /// Run the HTTP server alone; without a database it serves streams
    Serve,
    /// Streams of a running server
    #[command(alias = "streams")]
    Stream(stream::Stream),
    /// Publish a message to a stream and to every session that follows it
    Publish(session::Publish),
    /// Let a session follow a stream
    Subscribe(session::Subscribe),
    /// Let a session no longer follow a stream
    Unsubscribe(session::Unsubscribe),
    /// Sessions of a running server
    Sessions(session::Sessions),
    /// Projects: their keys, tokens and origins
    #[command(subcommand)]
    Project(project::Project),
    /// Run jobs until interrupted
    Work(work::Work),
    /// Keep the queue in shape until interrupted: reaper, schedules, partitions, retention
    Maintain(maintain::Maintain),
    /// Route events until interrupted: number them, make jobs of them, send webhooks
    Route(route::Route),
    /// Bring the database to this binary's schema
    Migrate(migrate::Migrate),
    /// The database itself
    #[command(subcommand)]
    Db(db::Db),
    /// Everything on one screen, every second
    Top(top::Top),
    /// Say what is wrong and what to do about it
    Doctor,
    /// Gates: what is let through
    #[command(subcommand)]
    Gate(gate::Gate),
    /// Config keys in the database: gates and numbers that change while everything runs
    #[command(subcommand)]
    Config(config::Config),
    /// What people did on the dashboard
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Jobs: enqueue, look, follow, end
    #[command(subcommand)]
    Job(job::Job),
    /// Data that jobs name instead of carrying it: store, read, encrypt, erase
    #[command(subcommand)]
    Payload(payload::Payload),
    /// Dead letters: look, triage, run again
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// The queue as a whole
    #[command(subcommand)]
    Queue(queue::Queue),
    /// What loops have set aside because processing it fails: look, retry, drop
    #[command(subcommand)]
    Fault(fault::Fault),
    /// Periodic jobs
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Executors: who claims what, with which token; who enqueues what
    #[command(subcommand)]
    Executor(executor::Executor),
    /// Events: emit, follow, explain, send again, verify
    #[command(subcommand)]
    Events(events::Events),
    /// Routes: where events go, and what could not get there
    #[command(subcommand)]
    Routes(Box<routes::Routes>),
    /// Event subscriptions: who hears what, who may read it
    #[command(subcommand)]
    Subscriptions(subscriptions::Subscriptions),
    /// Business processes: look, follow, decide
    #[command(subcommand)]
    Process(process::Process),
    /// E-mail and SMS
    #[command(subcommand)]
    Message(message::Message),
    /// Every metric there is and what it says
    Metrics(metrics::Metrics),
    /// Manual pages, one file a command
    Man(man::Man),
    /// The settings of this process and where each comes from
    Settings,
    /// Shell completions, to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs one command to its exit code.
pub(crate) async fn run(
    command: Command,
    settings: &Settings,
    origins: &Origins,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(up) => up::run(up, settings, origins, output).await,
        Command::Demo(demo) => demo::run(demo, settings, origins, output).await,
        Command::Serve => serve::run(settings, origins, output).await,
        Command::Stream(stream) => stream::run(stream, settings, output).await,
        Command::Publish(wish) => session::publish(wish, settings, output).await,
        Command::Subscribe(wish) => session::subscribe(wish, settings, output).await,
        Command::Unsubscribe(wish) => session::unsubscribe(wish, settings, output).await,
        Command::Sessions(sessions) => session::sessions(sessions, settings, output).await,
        Command::Project(project) => project::run(project, settings, output).await,
        Command::Work(work) => work::run(work, settings, output).await,
        Command::Maintain(maintain) => maintain::run(maintain, settings, output).await,
        Command::Route(route) => route::run(route, settings, output).await,
        Command::Migrate(migrate) => migrate::run(migrate, settings, output).await,
        Command::Db(db) => db::run(db, settings, output).await,
        Command::Top(top) => top::run(top, settings, output).await,
        Command::Doctor => doctor::run(settings, output).await,
        Command::Gate(gate) => gate::run(gate, settings, output).await,
        Command::Config(config) => config::run(config, settings, output).await,
        Command::Audit(audit) => audit::run(audit, settings, output).await,
        Command::Job(job) => job::run(job, settings, output).await,
        Command::Payload(payload) => payload::run(payload, settings, output).await,
        Command::Dlq(dlq) => dlq::run(dlq, settings, output).await,
        Command::Queue(queue) => queue::run(queue, settings, output).await,
        Command::Fault(fault) => fault::run(fault, settings, output).await,
        Command::Schedule(schedule) => schedule::run(schedule, settings, output).await,
        Command::Executor(executor) => executor::run(executor, settings, output).await,
        Command::Events(events) => events::run(events, settings, output).await,
        Command::Routes(routes) => routes::run(*routes, settings, output).await,
        Command::Subscriptions(which) => subscriptions::run(which, settings, output).await,
        Command::Process(process) => process::run(process, settings, output).await,
        Command::Message(message) => message::run(message, settings, output).await,
        Command::Metrics(wish) => Ok(metrics::run(&wish, output)),
        Command::Man(man) => man::run(&man, output),
        Command::Settings => {
            output.show(&origins.0, |origins| {
                let rows: Vec<_> = origins
                    .iter()
                    .map(|o| [o.key.clone(), o.value.clone().unwrap_or_else(|| "-".into()), o.from.clone()])
                    .collect();
                table(["SETTING", "VALUE", "FROM"], &rows)
            });
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut crate::command_line(), "towpath", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Opens the database, makes sure the schema is ours, runs `work`, and closes it again.
async fn with_database<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(Database) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Starting a private PostgreSQL only to find nothing in it would leave an empty one behind.
    let installed = ["postgres", "towpath.lock"].iter().any(|name| settings.data.join(name).exists());
    if settings.database_url.is_none() && !installed {
        bail!(
            "nothing is installed in {} yet; start with: towpath up, or name the directory with --data or a \
             database with DATABASE_URL",
            settings.data.display()
        );
    }
    let session = Session::open(settings).await?;
    let result = async {
        let database = master_key::with(settings, session.database().await?)?;
        database.require_schema().await?;
        work(database).await
    }
    .await;
    session.close().await;
    result
}

/// Who runs this command, for the audit.
fn actor() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten();
    let name = user.map_or_else(|| nix::unistd::Uid::current().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{name}@{}", host.to_string_lossy())
}
