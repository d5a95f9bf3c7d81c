//! Attempts of processes whose kind has a handler or an SQL function: begun once, stepped, ended, in batches.
//!
//! The database decides; here is only what asks it. A call that the database did not answer is repeated: every one of
//! them is safe to repeat under the attempt's fence, except a begin, which finds its own attempt begun.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::process_run::{
    Answers, AttemptEnd, AttemptKey, Begun, Moved, NewStep, Stepped, Wait, Waited,
};
use towpath_db::{Database, Error};
use towpath_model::mask::masked;
use towpath_model::message::{Keys, Outcome};

use crate::batch::Batch;
use crate::handler::Follow;
use crate::process::{AttemptTask, NotDone};
use crate::task::gate_closed;
use crate::{Context, Failure, limits};

type Answer<T> = Result<T, Arc<Error>>;

/// The calls about processes of one worker.
pub(crate) struct Calls {
    begin: Arc<Batch<AttemptKey, Answer<Begun>>>,
    /// The same where the other side honours keys.
    begin_keyed: Arc<Batch<AttemptKey, Answer<Begun>>>,
    step: Arc<Batch<NewStep, Answer<Stepped>>>,
    end: Arc<Batch<(AttemptKey, AttemptEnd), Answer<Moved>>>,
    run: Arc<Batch<AttemptKey, Answer<Moved>>>,
    extend: Arc<Batch<AttemptKey, Answer<bool>>>,
}

impl Calls {
    pub(crate) fn new(database: &Arc<Database>, worker: &str) -> Calls {
        let of = || (database.clone(), Arc::<str>::from(worker));
        let begin = |keys: Keys| {
            let begin = of();
            Batch::new(limits::PROCESS_BATCH_MAX, move |attempts: Vec<AttemptKey>| {
                let (database, worker) = begin.clone();
                async move {
                    let honoured = keys == Keys::Honoured;
                    each(database.process_begin_many(&attempts, &worker, honoured).await, attempts.len())
                }
            })
        };
        let (step, end, run, extend) = (of(), of(), of(), of());
        Calls {
            begin: begin(Keys::Ignored),
            begin_keyed: begin(Keys::Honoured),
            step: Batch::new(limits::PROCESS_BATCH_MAX, move |steps: Vec<NewStep>| {
                let (database, worker) = step.clone();
                async move { each(database.process_step_many(&steps, &worker).await, steps.len()) }
            }),
            end: Batch::new(limits::PROCESS_BATCH_MAX, move |ends: Vec<(AttemptKey, AttemptEnd)>| {
                let (database, worker) = end.clone();
                async move { each(database.process_end_many(&ends, &worker).await, ends.len()) }
            }),
            run: Batch::new(limits::PROCESS_FUNCTIONS_MAX, move |attempts: Vec<AttemptKey>| {
                let (database, worker) = run.clone();
                async move {
                    let answered = database.process_run_many(&attempts, &worker).await;
                    match (&answered, attempts.len()) {
                        // Nothing was kept: each alone.
                        (Err(_), 2..) => attempts.iter().map(|_| None).collect(),
                        _ => each(answered, attempts.len()),
                    }
                }
            }),
            extend: Batch::new(limits::PROCESS_BATCH_MAX, move |attempts: Vec<AttemptKey>| {
                let (database, worker) = extend.clone();
                async move {
                    let held = database.process_extend_many(&attempts, &worker).await;
                    each(
                        held.map(|held| held.into_iter().map(|held| Some(Ok(held))).collect()),
                        attempts.len(),
                    )
                }
            }),
        }
    }

    /// Runs an attempt of a process that is an SQL function.
    pub(crate) async fn run(&self, attempt: AttemptKey) -> Answer<Moved> {
        self.run.ask(attempt).await
    }
}

/// The answers one by one; an error is everybody's.
fn each<T>(answered: Result<Answers<T>, Error>, count: usize) -> Vec<Option<Answer<T>>> {
    match answered {
        Ok(answers) => answers.into_iter().map(|one| one.map(|one| one.map_err(Arc::new))).collect(),
        Err(error) => {
            let error = Arc::new(error);
            (0..count).map(|_| Some(Err(error.clone()))).collect()
        }
    }
}

/// An attempt that this worker holds.
pub struct Attempt {
    pub(crate) begun: Begun,
    pub(crate) context: Context,
    key: AttemptKey,
}

impl Attempt {
    /// Begins the attempt of a job. None means that there is nothing to do: it was begun before, or its process has
    /// ended.
    pub async fn begin(
        task: &AttemptTask,
        context: &Context,
        keys: Keys,
    ) -> Result<Option<Attempt>, Failure> {
        let key = (task.process_id, task.attempt_no);
        let begin = match keys {
            Keys::Honoured => &context.calls.begin_keyed,
            Keys::Ignored => &context.calls.begin,
        };
        match begin.ask(key).await {
            Ok(begun) => Ok(Some(Attempt { begun, context: context.clone(), key })),
            Err(error) => match &*error {
                Error::LeaseLost(_) | Error::Conflict(_) => Ok(None),
                Error::NotFound(why) | Error::NotAuthorised(why) => Err(Failure::permanent(why)),
                Error::GateClosed { .. } => Err(gate_closed()),
                other => Err(Failure::retry(other)),
            },
        }
    }

    /// What the process was started with.
    pub fn input(&self) -> &Value {
        &self.begun.input
    }

    /// The key that is the same at every attempt.
    pub fn idempotency_key(&self) -> &str {
        &self.begun.idempotency_key
    }

    /// Records a result, and answers the one that was recorded first.
    pub(crate) async fn record(&self, name: &str, value: Value) -> Result<Value, Failure> {
        let step = NewStep { attempt: self.key, name: name.to_owned(), value };
        let stepped = self.until_answered(|| self.context.calls.step.ask(step.clone())).await?;
        Ok(stepped.value)
    }

    /// Waits; an attempt that has to is over.
    pub(crate) async fn wait(&self, wait: &Wait<'_>) -> Result<Value, Failure> {
        let worker = self.context.lease_owner().to_string();
        let waited: Waited = self
            .until_answered(|| async {
                self.context.database().process_wait(self.key, &worker, wait).await.map_err(Arc::new)
            })
            .await?;
        if waited.ready { Ok(waited.value) } else { Err(Failure::suspended()) }
    }

    /// Ends the attempt well: the process has succeeded.
    pub async fn succeed(&self, result: Value, detail: Value) -> Result<(), Failure> {
        self.end(AttemptEnd { outcome: "accepted", result, detail }).await
    }

    /// Ends the attempt otherwise: the supervisor decides what follows.
    pub async fn fail(&self, not_done: NotDone) -> Result<(), Failure> {
        let outcome = match not_done.outcome {
            Outcome::Transient => "transient",
            Outcome::Permanent => "permanent",
            Outcome::Uncertain => "uncertain",
        };
        self.end(AttemptEnd { outcome, result: Value::Null, detail: not_done.detail }).await
    }

    async fn end(&self, end: AttemptEnd) -> Result<(), Failure> {
        let ended = self.until_answered(|| self.context.calls.end.ask((self.key, end.clone()))).await;
        match ended {
            Ok(_) => Ok(()),
            // Over already: by an operator, a deadline, or a call whose answer got lost.
            Err(failure) if failure.follow == Follow::Suspended => Ok(()),
            // A value that the database does not take is the handler's error.
            Err(failure) if end.outcome == "accepted" && failure.follow == Follow::Permanent => {
                let detail = json!({ "message": masked(&failure.error) });
                let end = AttemptEnd { outcome: "permanent", result: Value::Null, detail };
                let ended = self.until_answered(|| self.context.calls.end.ask((self.key, end.clone()))).await;
                ended.map(drop)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Repeats a call until the database answers or the job's lease is lost.
    async fn until_answered<T, F: Future<Output = Answer<T>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let mut wait = limits::PROCESS_RETRY_MIN;
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) if matches!(&*error, Error::LeaseLost(_)) => return Err(Failure::suspended()),
                Err(error) if !error.is_passing() => return Err(Failure::permanent(error)),
                Err(error) if self.context.lost().is_cancelled() => return Err(Failure::retry(error)),
                Err(error) => {
                    tracing::debug!(process_id = %self.key.0, "the database did not answer: {error}");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(limits::PROCESS_RETRY_MAX);
        }
    }

    /// Renews the attempt's lease until `stop`, or until it is lost.
    pub(crate) async fn keep(&self, stop: &CancellationToken) {
        let lease = self.begun.lease_until.duration_since(Timestamp::now()).unsigned_abs();
        // By the database's clock the lease has this length; by ours it may have another.
        let lease = lease.max(Duration::from_secs(u64::try_from(self.begun.lease_seconds).unwrap_or(1)) / 2);
        let every = (lease / limits::LEASE_RENEWALS).min(limits::ATTEMPT_RENEWAL_MAX);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            if let Ok(false) = self.context.calls.extend.ask(self.key).await {
                return;
            }
        }
    }
}
