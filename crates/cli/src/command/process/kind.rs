//! `towpath process kind`, `start` and `signal`: what else a process needs from a command line.

use clap::Args;
use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::process::NewProcess;
use towpath_db::process_run::Signal;

use crate::command::Actor;
use crate::input;
use crate::output::{Exit, Output, done};

#[derive(Args)]
pub(crate) struct Kind {
    /// Its name, such as shop.order
    kind: String,
    /// The SQL function that its processes are (default: a handler of a worker)
    #[arg(long, value_name = "SCHEMA.FUNCTION")]
    function: Option<String>,
    /// The job kind of its attempts: email and sms send the input (default: the kind itself)
    #[arg(long, value_name = "KIND", conflicts_with = "function")]
    task_kind: Option<String>,
    /// Most attempts that may fail or get lost (default: 5; email: 2)
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<i32>,
    /// A process ends this long after its start at the latest (default: 2592000)
    #[arg(long, value_name = "SECONDS")]
    deadline_seconds: Option<i32>,
    /// An attempt counts as lost if its worker is silent for this long (default: 120)
    #[arg(long, value_name = "SECONDS")]
    lease_seconds: Option<i32>,
    /// Wait after the first failure; then twice as long each time (default: 10)
    #[arg(long, value_name = "SECONDS")]
    backoff_seconds: Option<i32>,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Args)]
pub(crate) struct Start {
    /// Its kind
    kind: String,
    /// Its reference: there is one process per kind and reference
    #[arg(value_name = "REF")]
    reference: String,
    /// What it works on, as JSON
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Args)]
pub(crate) struct SendSignal {
    /// The kind of the process
    kind: String,
    /// The reference of the process
    #[arg(value_name = "REF")]
    reference: String,
    /// The name of the signal; the first one of a name stays
    name: String,
    /// What it says, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn put(kind: Kind, database: &Database, output: &Output) -> Exit {
    let runs_as = if kind.function.is_some() { "function" } else { "handler" };
    let mut settings = json!({ "runs_as": runs_as, "db_function": kind.function, "task_kind": kind.task_kind,
        "max_attempts": kind.max_attempts, "deadline_seconds": kind.deadline_seconds,
        "lease_seconds": kind.lease_seconds, "backoff_seconds": kind.backoff_seconds });
    if let Value::Object(fields) = &mut settings {
        fields.retain(|_, value| !value.is_null());
    }
    database.process_kind_put(&kind.kind, &settings, &kind.actor.name()).await?;
    output.show(&json!({ "process_kind": kind.kind, "runs_as": runs_as }), |_| {
        format!("process kind {} is registered\nnext: towpath process start {} REF", kind.kind, kind.kind)
    });
    done()
}

pub(crate) async fn start(start: Start, database: &Database, output: &Output) -> Exit {
    let actor = start.actor.name();
    let new = NewProcess {
        process_kind: &start.kind,
        reference: &start.reference,
        input: json_or_null(start.input.as_deref(), "--input")?,
        actor: Some(&actor),
        ..NewProcess::default()
    };
    let started = database.process_start(&new).await?;
    output.show(&started, |started| match started.duplicate {
        false => format!("process {} is started", started.process_id),
        true => format!("process {} was started before; it is {}", started.process_id, started.state),
    });
    done()
}

pub(crate) async fn signal(signal: SendSignal, database: &Database, output: &Output) -> Exit {
    let actor = signal.actor.name();
    let sent = Signal {
        process_kind: Some(&signal.kind),
        reference: Some(&signal.reference),
        name: &signal.name,
        payload: json_or_null(signal.payload.as_deref(), "--payload")?,
        actor: Some(&actor),
        ..Signal::default()
    };
    let sent = database.process_signal(&sent).await?;
    output.show(&sent, |sent| match sent.recorded {
        true => format!("process {} is told", sent.process_id),
        false => format!("process {} was told before, and the first signal stays", sent.process_id),
    });
    done()
}

fn json_or_null(text: Option<&str>, option: &str) -> anyhow::Result<Value> {
    text.map_or(Ok(Value::Null), |text| input::json(text, option))
}
