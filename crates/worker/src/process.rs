//! Processes in Rust: a supervisor that decides, and attempts that are begun once (P11).
//!
//! A kind whose `supervisor` is null is supervised by a program. The database keeps the facts, the
//! locks and the clock; the program reads the facts and decides what to do next. It may be killed
//! at any moment, and any number of programs may run: a decision counts only if no fact was added
//! since the facts were read, and at most one attempt is outstanding.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::process::{Decision, ProcessWhole};
use towpath_db::retry::{Retry, jittered};
use towpath_db::task::NewTaskError;
use towpath_db::{Database, Error};
use towpath_model::id::ProcessId;
use towpath_model::message::{Keys, Outcome};

use crate::task::gate_closed;
use crate::{Context, Failure, Result, limits};

/// Decides what to do next for processes of one kind.
pub struct Supervisor<D> {
    database: Database,
    process_kind: String,
    decide: D,
}

impl<D: Fn(&ProcessWhole) -> Decision> Supervisor<D> {
    /// A supervisor of this kind. `decide` computes from the facts and does nothing else: it may be
    /// called again for the same ones.
    pub fn new(database: Database, process_kind: impl Into<String>, decide: D) -> Supervisor<D> {
        Supervisor { database, process_kind: process_kind.into(), decide }
    }

    /// Supervises until `shutdown`. A look that fails is logged and retried.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut retry = Retry::of(format!("supervising {}", self.process_kind));
        while !shutdown.is_cancelled() {
            let wait = match self.run_once().await {
                Ok(processes) => {
                    retry.succeeded();
                    if processes > 0 {
                        continue;
                    }
                    jittered(limits::SUPERVISE_EVERY)
                }
                Err(error) => retry.failed(&error),
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Looks at the processes whose time has come and answers how many those were.
    pub async fn run_once(&self) -> std::result::Result<usize, Error> {
        let due = self.database.process_due(
            &self.process_kind,
            limits::SUPERVISE_PROCESSES,
            limits::SUPERVISE_LEASE_SECONDS,
        );
        let due = due.await?;
        for whole in &due {
            let process_id = whole.process.process_id;
            // A panic of one decision must not end the supervision of the others.
            let decided = catch_unwind(AssertUnwindSafe(|| (self.decide)(whole)));
            let Ok(decision) = decided else {
                self.set_aside(process_id, "the decision panicked").await;
                continue;
            };
            match self.database.process_decide(process_id, whole.process.generation, &decision).await {
                Ok(_) => {}
                // More is known by now, and recording it made the process due again.
                Err(Error::Conflict(why)) => tracing::debug!(%process_id, "decided too late: {why}"),
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => self.set_aside(process_id, &error.to_string()).await,
            }
        }
        Ok(due.len())
    }

    /// The process is due again when its lease has run out; meanwhile the others go on.
    async fn set_aside(&self, process_id: ProcessId, why: &str) {
        tracing::error!(%process_id, kind = self.process_kind, "decision failed: {why}");
        let error = NewTaskError {
            kind: "supervisor",
            message: why,
            job: None,
            task_type: None,
            function_name: None,
            context: &json!({ "process_id": process_id, "process_kind": self.process_kind }),
        };
        if let Err(error) = self.database.task_error_record(&error).await {
            tracing::warn!(%process_id, "cannot record the failed decision: {error}");
        }
    }
}

/// The usual decision: one attempt after the other, each after a longer wait, until one is
/// accepted, one fails permanently, or `max_attempts` of the process are used. An attempt whose
/// outcome is unknown goes to a person, unless the other side honours idempotency keys.
pub fn retry(whole: &ProcessWhole, backoff: Duration) -> Decision {
    let Some(last) = whole.attempts.last() else { return Decision::Attempt { due_at: None } };
    let tried =
        whole.attempts.iter().filter(|a| a.outcome.as_deref() != Some("lost") || a.begun_at.is_some());
    let tried = i32::try_from(tried.count()).unwrap_or(i32::MAX);
    let uncertain = last.outcome.as_deref() == Some("uncertain")
        || (last.outcome.as_deref() == Some("lost") && last.begun_at.is_some());
    match last.outcome.as_deref() {
        None => Decision::Wait { check_at: last.lease_until.unwrap_or(whole.process.deadline_at) },
        Some("accepted") => Decision::Succeed { detail: Value::Object(Map::new()) },
        Some("permanent") => give_up("the last attempt failed permanently"),
        _ if uncertain && !last.key_honoured => {
            Decision::Hold { why: "the last attempt has an unknown outcome".into() }
        }
        _ if tried >= whole.process.max_attempts => give_up("all attempts are used"),
        _ => {
            let wait = backoff.saturating_mul(1 << tried.clamp(1, 11).saturating_sub(1));
            let from = last.ended_at.unwrap_or(last.scheduled_at);
            Decision::Attempt { due_at: from.checked_add(wait).ok() }
        }
    }
}

fn give_up(why: &str) -> Decision {
    Decision::GiveUp { detail: json!({ "why": why }) }
}

/// The payload of an attempt's job. What the kind calls its ref is in `more`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptTask {
    /// The process.
    pub process_id: ProcessId,
    /// Which attempt of it.
    pub attempt_no: i32,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Why an attempt did not take effect, as far as it matters for what follows.
#[derive(Debug, Clone)]
pub struct NotDone {
    /// What may follow.
    pub outcome: Outcome,
    /// What there is to say: references and short words, they become a fact.
    pub detail: Value,
}

impl AttemptTask {
    /// Begins the attempt, acts, and says how it ended. `act` gets the key that is the same for
    /// every attempt of the process. A second run of the same attempt does nothing.
    ///
    /// While `act` runs the attempt's lease is renewed; once it is lost, `act` is dropped.
    pub async fn act<F, R>(&self, context: &Context, keys: Keys, act: F) -> Result
    where
        F: FnOnce(String) -> R,
        R: Future<Output = std::result::Result<Value, NotDone>>,
    {
        let database = context.database();
        let (attempt, worker) = ((self.process_id, self.attempt_no), context.lease_owner().to_string());
        let begun = match database.process_attempt_begin(attempt, &worker, keys == Keys::Honoured).await {
            Ok(begun) => begun,
            Err(Error::LeaseLost(_) | Error::Conflict(_)) => return Ok(()),
            Err(Error::NotFound(why) | Error::NotAuthorised(why)) => return Err(Failure::permanent(why)),
            Err(Error::GateClosed { .. }) => return Err(gate_closed()),
            Err(error) => return Err(error.into()),
        };
        let lease = begun.lease_until.duration_since(Timestamp::now()).unsigned_abs();
        let every =
            (lease / limits::LEASE_RENEWALS).clamp(limits::RENEW_LOOK_EVERY, limits::ATTEMPT_RENEWAL_MAX);
        let acting = act(begun.idempotency_key);
        tokio::pin!(acting);
        let ended = loop {
            tokio::select! {
                ended = &mut acting => break ended,
                () = tokio::time::sleep(every) => {}
            }
            if let Err(Error::LeaseLost(_)) = database.process_attempt_extend(attempt, &worker).await {
                return Ok(());
            }
        };
        let (outcome, detail) = match ended {
            Ok(detail) => ("accepted", detail),
            Err(NotDone { outcome: Outcome::Transient, detail }) => ("transient", detail),
            Err(NotDone { outcome: Outcome::Permanent, detail }) => ("permanent", detail),
            Err(NotDone { outcome: Outcome::Uncertain, detail }) => ("uncertain", detail),
        };
        match database.process_attempt_end(attempt, outcome, &detail).await {
            Ok(_) | Err(Error::LeaseLost(_)) => Ok(()),
            // Run again, the attempt is found begun; its lease ends it as lost, and the key helps.
            Err(error) => Err(error.into()),
        }
    }
}
