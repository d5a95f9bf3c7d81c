//! The commands, one file each.

mod audit;
mod config;
mod db;
mod demo;
mod dev_token;
mod dlq;
mod doctor;
mod events;
mod executor;
mod fault;
mod gate;
mod init;
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
mod token;
mod top;
mod up;
mod work;

use anyhow::bail;
use clap::{Args, Subcommand};
use towpath_db::Database;

use crate::master_key;
use crate::output::{Exit, Output, done, table};
use crate::session::Session;
use crate::settings::{Origins, Settings};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run every role in one process until interrupted
    Up(up::Up),
    /// Set up a database: migrate, open gates, register the executor, write towpath.toml
    Init(init::Init),
    /// Run everything with sample traffic, or send sample traffic to a running server
    Demo(demo::Demo),
    /// Run only the HTTP server; without a database it serves streams
    Serve,
    /// Manage streams of a running server
    #[command(alias = "streams")]
    Stream(stream::Stream),
    /// Publish a message to a stream and its subscribed sessions
    Publish(session::Publish),
    /// Subscribe a session to a stream
    Subscribe(session::Subscribe),
    /// Unsubscribe a session from a stream
    Unsubscribe(session::Unsubscribe),
    /// Manage sessions of a running server
    #[command(alias = "session")]
    Sessions(session::Sessions),
    /// Manage projects: keys, tokens and origins
    #[command(subcommand, alias = "projects")]
    Project(project::Project),
    /// Run a worker until interrupted
    Work(work::Work),
    /// Run maintenance until interrupted: reaper, schedules, partitions, retention
    Maintain(maintain::Maintain),
    /// Run event routing until interrupted: positions, routes, webhooks
    Route(route::Route),
    /// Migrate the database to this binary's schema
    Migrate(migrate::Migrate),
    /// Manage the database
    #[command(subcommand)]
    Db(db::Db),
    /// Show a live overview in the terminal
    Top(top::Top),
    /// Report problems and how to fix them
    Doctor,
    /// Manage gates: enable and disable parts of the system
    #[command(subcommand, alias = "gates")]
    Gate(gate::Gate),
    /// Manage config keys: gates and numbers that can change at run time
    #[command(subcommand)]
    Config(config::Config),
    /// Show the audit log of the dashboard
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Manage jobs: enqueue, list, watch, cancel, retry
    #[command(subcommand, alias = "jobs")]
    Job(job::Job),
    /// Manage stored payloads that jobs reference: store, read, encrypt, erase
    #[command(subcommand, alias = "payloads")]
    Payload(payload::Payload),
    /// Manage dead letters: list, triage, replay
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Manage the queue: health, backlog, pauses
    #[command(subcommand, alias = "queues")]
    Queue(queue::Queue),
    /// Manage faults, the items that loops set aside because they fail: list, retry, drop
    #[command(subcommand, alias = "faults")]
    Fault(fault::Fault),
    /// Manage schedules of periodic jobs
    #[command(subcommand, alias = "schedules")]
    Schedule(schedule::Schedule),
    /// Manage executors, their tokens, and who may enqueue
    #[command(subcommand, alias = "executors")]
    Executor(executor::Executor),
    /// Manage tokens for programs that enqueue and emit over HTTP
    #[command(subcommand, alias = "tokens")]
    Token(token::Token),
    /// Manage events: emit, tail, explain, replay, verify
    #[command(subcommand, alias = "event")]
    Events(events::Events),
    /// Manage routes and their dead letters
    #[command(subcommand)]
    Routes(Box<routes::Routes>),
    /// Manage event subscriptions and readers
    #[command(subcommand, alias = "subscription")]
    Subscriptions(subscriptions::Subscriptions),
    /// Manage business processes: list, watch, cancel, resolve
    #[command(subcommand, alias = "processes")]
    Process(process::Process),
    /// Send and list e-mail and SMS
    #[command(subcommand, alias = "messages")]
    Message(message::Message),
    /// List every metric and its meaning
    Metrics(metrics::Metrics),
    /// Write manual pages, one file per command
    Man(man::Man),
    /// Show every setting and where its value comes from
    Settings,
    /// Print shell completions
    Completions {
        /// The shell
        shell: crate::complete::Shell,
    },
    /// Print what may come next on a command line, for the completion scripts
    #[command(hide = true)]
    Complete(crate::complete::Complete),
}

/// Runs one command to its exit code.
pub(crate) async fn run(command: Command, settings: &Settings, origins: &Origins, output: &Output) -> Exit {
    match command {
        Command::Up(up) => up::run(up, settings, origins, output).await,
        Command::Init(init) => init::run(init, settings, origins, output).await,
        Command::Demo(demo) => demo::run(demo, settings, origins, output).await,
        Command::Serve => serve::run(settings, origins, output).await,
        Command::Stream(stream) => stream::run(stream, settings, output).await,
        Command::Publish(args) => session::publish(args, settings, output).await,
        Command::Subscribe(args) => session::subscribe(args, settings, output).await,
        Command::Unsubscribe(args) => session::unsubscribe(args, settings, output).await,
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
        Command::Token(token) => token::run(token, settings, output).await,
        Command::Events(events) => events::run(events, settings, output).await,
        Command::Routes(routes) => routes::run(*routes, settings, output).await,
        Command::Subscriptions(which) => subscriptions::run(which, settings, output).await,
        Command::Process(process) => process::run(process, settings, output).await,
        Command::Message(message) => message::run(message, settings, output).await,
        Command::Metrics(args) => Ok(metrics::run(&args, output)),
        Command::Man(man) => man::run(&man, output),
        Command::Settings => {
            output.show(&origins.0, |origins| {
                let rows = origins
                    .iter()
                    .map(|o| [o.key.clone(), o.value.clone().unwrap_or_else(|| "-".into()), o.from.clone()]);
                table(["SETTING", "VALUE", "FROM"], rows)
            });
            done()
        }
        Command::Completions { shell } => {
            output.line(crate::complete::script(shell));
            done()
        }
        Command::Complete(complete) => {
            crate::complete::run(&complete, settings).await;
            done()
        }
    }
}

/// Opens the database, checks its schema, runs `work`, and closes it.
async fn with_database<T>(
    settings: &Settings,
    work: impl AsyncFnOnce(Database) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Starting a private PostgreSQL here would leave an empty one behind.
    let installed = ["postgres", "towpath.lock"].iter().any(|name| settings.data.join(name).exists());
    if settings.database_url.is_none() && !installed {
        bail!(
            "nothing is installed in {} yet; start with: towpath up, or give the directory with --data or a \
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

/// Who is recorded in the audit log.
#[derive(Args)]
pub(crate) struct Actor {
    /// Actor to record (default: user@host)
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
}

impl Actor {
    fn name(&self) -> String {
        self.by.clone().unwrap_or_else(actor)
    }
}

/// The user who runs this command.
fn actor() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten();
    let name = user.map_or_else(|| nix::unistd::Uid::current().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{name}@{}", host.to_string_lossy())
}
