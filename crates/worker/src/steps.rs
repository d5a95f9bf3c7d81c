//! Processes whose handler has steps: each runs once, and its result is kept (P13).
//!
//! A handler runs from the top at every attempt. What its steps returned before comes with the attempt, so a step that
//! was recorded is not run again. A handler that sleeps or waits ends its attempt, and another one begins when the time
//! or the signal comes, on any worker (P14).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::process_run::Wait;
use towpath_model::id::ProcessId;
use towpath_model::mask::masked;
use towpath_model::message::{Keys, Outcome};

use crate::attempt::Attempt;
use crate::handler::Follow;
use crate::held::lock;
use crate::process::{AttemptTask, NotDone};
use crate::{Builder, Context, Failure, Options, Result};

/// What a handler of a process knows, and what it can do. Cheap to clone.
#[derive(Clone)]
pub struct Steps {
    attempt: Arc<Attempt>,
    recorded: Arc<Mutex<Map<String, Value>>>,
}

/// How a child of a process ended.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct ChildEnd {
    /// The child.
    pub process_id: ProcessId,
    /// `succeeded`, `gave_up`, `cancelled` or `invalid`.
    pub state: String,
    /// What it came to, if it succeeded.
    #[serde(default)]
    pub result: Value,
}

impl Steps {
    /// The process.
    pub fn id(&self) -> ProcessId {
        self.attempt.begun.process_id
    }

    /// Its reference.
    pub fn reference(&self) -> &str {
        &self.attempt.begun.reference
    }

    /// The number of this attempt; one that was suspended counts here.
    pub fn attempt_no(&self) -> i32 {
        self.attempt.begun.attempt_no
    }

    /// A key for other services: the same at every attempt.
    pub fn idempotency_key(&self) -> &str {
        self.attempt.idempotency_key()
    }

    /// The job that runs this attempt.
    pub fn context(&self) -> &Context {
        &self.attempt.context
    }

    /// Runs a step once: if its result is recorded, that is the answer and `work` does not run. The first result that
    /// is recorded under a name stays, even if two attempts overlap. Should the worker die between the work and the
    /// record, the work runs again: give other services the [`Steps::idempotency_key`].
    pub async fn step<T, F, R>(&self, name: &str, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T>>,
    {
        let recorded = self.recorded(name);
        let value = match recorded {
            Some(value) => value,
            None => {
                let value = serde_json::to_value(work().await?).map_err(|error| {
                    Failure::permanent(format!("the result of {name} is not JSON: {error}"))
                })?;
                self.remember(name, self.attempt.record(name, value).await?)
            }
        };
        read(name, value)
    }

    /// Sleeps, once under this name. No worker is held meanwhile.
    pub async fn sleep(&self, name: &str, time: Duration) -> Result {
        self.wait(Wait { name, seconds: Some(time.as_secs_f64()), ..Wait::default() }).await.map(drop)
    }

    /// Sleeps until a moment.
    pub async fn sleep_until(&self, name: &str, moment: Timestamp) -> Result {
        self.wait(Wait { name, until_at: Some(moment), ..Wait::default() }).await.map(drop)
    }

    /// Waits for a signal; none if the time was over first. Without a timeout it waits until the deadline of the process.
    pub async fn wait_for<T: DeserializeOwned>(
        &self,
        signal: &str,
        timeout: Option<Duration>,
    ) -> Result<Option<T>> {
        let seconds = timeout.map(|timeout| timeout.as_secs_f64());
        let value =
            self.wait(Wait { name: signal, signal: Some(signal), seconds, ..Wait::default() }).await?;
        value.get("signal").map(|payload| read(signal, payload.clone())).transpose()
    }

    /// Starts a process and waits for its end. There is one process per kind and reference, and it must be a child of
    /// this one.
    pub async fn child(
        &self,
        name: &str,
        kind: &str,
        reference: &str,
        input: impl Serialize,
    ) -> Result<ChildEnd> {
        let child = json!({ "kind": kind, "ref": reference, "input": input });
        read(name, self.wait(Wait { name, child: Some(child), ..Wait::default() }).await?)
    }

    async fn wait(&self, wait: Wait<'_>) -> Result<Value> {
        match self.recorded(wait.name) {
            Some(value) => Ok(value),
            None => Ok(self.remember(wait.name, self.attempt.wait(&wait).await?)),
        }
    }

    fn recorded(&self, name: &str) -> Option<Value> {
        lock(&self.recorded).get(name).cloned()
    }

    fn remember(&self, name: &str, value: Value) -> Value {
        lock(&self.recorded).insert(name.to_owned(), value.clone());
        value
    }
}

fn read<T: DeserializeOwned>(name: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| {
        Failure::permanent(format!("what was recorded of {name} does not match its type: {error}"))
    })
}

impl Builder {
    /// Runs processes of a kind: the handler gets what the process was started with, and [`Steps`]. What it returns is
    /// the result of the process. A failure is retried after the kind's backoff, as often as the kind allows.
    pub fn process<I, F, R, T>(self, kind: impl Into<String>, handler: F) -> Builder
    where
        I: DeserializeOwned + Send + 'static,
        F: Fn(I, Steps) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        self.process_with(kind, Options::default(), handler)
    }

    /// The same with options.
    pub fn process_with<I, F, R, T>(self, kind: impl Into<String>, options: Options, handler: F) -> Builder
    where
        I: DeserializeOwned + Send + 'static,
        F: Fn(I, Steps) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        let handler = Arc::new(handler);
        self.handle_kind(kind, options, move |task: AttemptTask, context| {
            let handler = handler.clone();
            async move { run(&*handler, &task, &context).await }
        })
    }
}

async fn run<I, F, R, T>(handler: &F, task: &AttemptTask, context: &Context) -> Result
where
    I: DeserializeOwned + Send + 'static,
    F: Fn(I, Steps) -> R,
    R: Future<Output = Result<T>> + Send + 'static,
    T: Serialize + 'static,
{
    // Whether to repeat an attempt whose outcome nobody knows is for the kind to say: on_uncertain.
    let Some(mut attempt) = Attempt::begin(task, context, Keys::Ignored).await? else { return Ok(()) };
    let recorded = std::mem::take(&mut attempt.begun.steps);
    let attempt = Arc::new(attempt);
    let input: I = match serde_json::from_value(attempt.input().clone()) {
        Ok(input) => input,
        Err(error) => {
            let why = format!("the input does not match the handler's type: {error}");
            return attempt.fail(not_done(Outcome::Permanent, &why, None)).await;
        }
    };
    let steps = Steps { attempt: attempt.clone(), recorded: Arc::new(Mutex::new(recorded)) };
    let ended = CancellationToken::new();
    let working = AssertUnwindSafe(handler(input, steps)).catch_unwind();
    let working = async {
        let result = working.await;
        ended.cancel();
        // As JSON at once: the handler's type need not be Send.
        result.map(|result| result.map(|value| serde_json::to_value(&value)))
    };
    let (result, ()) = tokio::join!(working, attempt.keep(&ended));
    match result {
        Ok(Ok(Ok(result))) => attempt.succeed(result, Value::Null).await,
        Ok(Ok(Err(error))) => attempt.fail(not_done(Outcome::Permanent, &error.to_string(), None)).await,
        Ok(Err(Failure { error, follow })) => match follow {
            Follow::Suspended => Ok(()),
            Follow::Permanent => attempt.fail(not_done(Outcome::Permanent, &error, None)).await,
            Follow::Retry(after) => attempt.fail(not_done(Outcome::Transient, &error, after)).await,
            Follow::Snooze(after) => attempt.fail(not_done(Outcome::Transient, "put off", Some(after))).await,
        },
        Err(_) => attempt.fail(not_done(Outcome::Transient, "the handler panicked", None)).await,
    }
}

fn not_done(outcome: Outcome, message: &str, after: Option<Duration>) -> NotDone {
    let mut detail = json!({ "message": masked(message).chars().take(1_000).collect::<String>() });
    if let Some(after) = after {
        detail["retry_after_seconds"] = json!(after.as_secs_f64());
    }
    NotDone { outcome, detail }
}
