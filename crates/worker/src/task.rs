//! Tasks whose work is a function in the database: the task type `db_function`, and the calls of
//! handlers by name that other task types make.
//!
//! A function answers the result envelope. Whatever is not success is recorded in `task_error`
//! with the ids it is about; what follows is the caller's decision. The worker enqueues nothing
//! here: supervisors and handlers, in the database, do.

use serde_json::{Value, json};
use towpath_db::Error;
use towpath_db::task::NewTaskError;
use towpath_model::function_result::Verdict;
use towpath_model::mask::masked;

use crate::process::AttemptTask;
use crate::{Builder, Context, Failure, Options, Result, limits};

/// The task type whose payload names a function.
pub const DB_FUNCTION: &str = "db_function";

/// The task type of processes that are SQL functions.
pub const PROCESS: &str = "process";

/// How a call by name ended. Everything but `Done` and `Closed` has been recorded, and holds no credentials.
#[derive(Debug, Clone, PartialEq)]
pub enum Called {
    /// The function did it; its data.
    Done(Option<Value>),
    /// The function says that trying again cannot help.
    Invalid(String),
    /// It failed, or the database did not answer: another try may help.
    Failed(String),
    /// The runner does not call this function; its words say which grant is missing.
    Refused(String),
    /// A gate is closed: nothing was done, and nothing is wrong. See [`gate_closed`].
    Closed(String),
}

/// What went wrong in a task, for `task_error`.
#[derive(Debug, Clone, Copy)]
pub struct Trouble<'a> {
    /// `validation`, `operational`, `provider` or `refused`.
    pub kind: &'a str,
    /// What happened.
    pub message: &'a str,
    /// The function that was called.
    pub function: Option<&'a str>,
}

/// Adds the task type `db_function` (P01).
///
/// A validation failure ends the job, an operational error is tried again by the job's own
/// backoff, and a refusal of the runner is a dead letter: replay it once the grant is there.
pub fn register(builder: Builder) -> Builder {
    let many = Options::default().concurrency(limits::PROCESSES_AT_ONCE);
    builder
        .handle_kind(DB_FUNCTION, Options::default(), |payload: Value, context| async move {
            db_function(&payload, &context).await
        })
        .handle_kind(
            PROCESS,
            many,
            |task: AttemptTask, context| async move { process(&task, &context).await },
        )
}

/// An attempt of a process that is an SQL function (P16): begun, run and ended in one transaction.
async fn process(task: &AttemptTask, context: &Context) -> Result {
    let moved = match context.calls.run((task.process_id, task.attempt_no)).await {
        Ok(moved) => moved,
        Err(error) => {
            return match &*error {
                Error::LeaseLost(_) | Error::Conflict(_) => Ok(()),
                Error::NotFound(why) | Error::NotAuthorised(why) => Err(Failure::permanent(why)),
                Error::GateClosed { .. } => Err(gate_closed()),
                other => Err(Failure::retry(other)),
            };
        }
    };
    if let Some(error) = moved.error_text {
        let payload = json!({ "process_id": task.process_id, "attempt_no": task.attempt_no });
        let trouble = Trouble { kind: "operational", message: &masked(&error), function: None };
        record(context, &payload, trouble).await;
    }
    Ok(())
}

async fn db_function(payload: &Value, context: &Context) -> Result {
    let Some(name) = payload[DB_FUNCTION].as_str() else {
        let message = "the payload has no db_function; set it to schema.function";
        record(context, payload, Trouble { kind: "validation", message, function: None }).await;
        return Err(Failure::permanent(message));
    };
    match call(context, name, payload, payload).await {
        Called::Done(_) | Called::Invalid(_) => Ok(()),
        Called::Failed(error) => Err(Failure::retry(error)),
        Called::Refused(why) => Err(Failure::permanent(why)),
        Called::Closed(_) => Err(gate_closed()),
    }
}

/// The job asks again later, and the attempt does not count.
pub fn gate_closed() -> Failure {
    Failure::snooze(limits::GATE_WAIT)
}

/// Calls a function by name on behalf of a job whose payload is `about`, once.
pub async fn call(context: &Context, name: &str, payload: &Value, about: &Value) -> Called {
    let called = match context.database().run_function(name, payload).await {
        Ok(result) if result.more.get("refusal").is_some_and(|word| word == "gate_closed") => {
            return Called::Closed(refusal(name, result.verdict()));
        }
        Ok(result) if result.more.contains_key("refusal") => Called::Refused(refusal(name, result.verdict())),
        Ok(result) => match result.verdict() {
            Verdict::Done(data) => return Called::Done(data),
            Verdict::Invalid(message) => Called::Invalid(masked(&message).into_owned()),
            Verdict::Failed(error) => Called::Failed(masked(&error).into_owned()),
        },
        Err(error) => Called::Failed(masked(&error.to_string()).into_owned()),
    };
    let (kind, message) = match &called {
        Called::Invalid(message) => ("validation", message),
        Called::Refused(message) => ("refused", message),
        Called::Failed(message) => ("operational", message),
        Called::Done(_) | Called::Closed(_) => unreachable!("returned above"),
    };
    record(context, about, Trouble { kind, message, function: Some(name) }).await;
    called
}

fn refusal(name: &str, verdict: Verdict) -> String {
    match verdict {
        Verdict::Invalid(message) | Verdict::Failed(message) => message,
        Verdict::Done(_) => format!("{name} was refused without a reason"),
    }
}

/// Writes what went wrong into `task_error`, and into the log if that does not work either.
pub async fn record(context: &Context, payload: &Value, trouble: Trouble<'_>) {
    let Trouble { kind, message, function } = trouble;
    let error = NewTaskError {
        kind,
        message,
        job: Some((context.id(), context.attempt().number())),
        task_type: Some(context.kind()),
        function_name: function,
        context: &references(payload),
    };
    tracing::info!(job_id = %context.id(), task_type = context.kind(), function, kind, "task error: {message}");
    if let Err(error) = context.database().task_error_record(&error).await {
        tracing::warn!(job_id = %context.id(), "cannot record the task error: {error}");
    }
}

/// Of a payload, what leads to the rest: ids and names, no text and nothing nested.
fn references(payload: &Value) -> Value {
    let fields = payload.as_object().into_iter().flatten();
    let short = |value: &Value| match value {
        Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => text.len() <= 200,
        _ => false,
    };
    json!(fields.filter(|(_, value)| short(value)).collect::<std::collections::BTreeMap<_, _>>())
}
