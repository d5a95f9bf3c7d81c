//! Processes: `sql/functions/process.sql`, `process_attempt.sql` and `process_kind.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_postgres::types::ToSql;
use towpath_model::id::{JobId, ProcessId};

use crate::answer::{given, read, read_field};
use crate::{Attribution, Database, Error};

/// One process: the row that its supervisor locks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of process; 0005_process.sql says what each holds")]
pub struct Process {
    pub process_id: ProcessId,
    pub process_kind: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub state: String,
    pub next_check_at: Option<Timestamp>,
    pub deadline_at: Timestamp,
    pub max_attempts: i32,
    pub started_by: String,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// What it was started with.
    #[serde(default)]
    pub input: Value,
    /// What it came to, once it has ended.
    #[serde(default)]
    pub result: Value,
    /// Increases with every fact; a decision names the one it is based on.
    #[serde(default)]
    pub generation: i32,
    /// Columns that a newer schema adds.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Process {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.finished_at.is_some()
    }
}

/// One attempt of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of process_attempt; 0005_process.sql says what each holds")]
pub struct ProcessAttempt {
    pub attempt_no: i32,
    pub job_id: Option<JobId>,
    pub scheduled_at: Timestamp,
    pub due_at: Option<Timestamp>,
    pub begun_at: Option<Timestamp>,
    pub worker: Option<String>,
    pub key_honoured: bool,
    pub lease_until: Option<Timestamp>,
    pub outcome: Option<String>,
    pub ended_at: Option<Timestamp>,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One permanent statement about a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessFact {
    /// Its number within the process.
    pub fact_no: i32,
    /// When it was recorded.
    pub at: Timestamp,
    /// The fact, in one word.
    pub fact: String,
    /// Of which attempt.
    pub attempt_no: Option<i32>,
    /// Details.
    pub detail: Value,
    /// Who recorded it.
    pub actor: Option<String>,
    /// Of a step, a wait or a signal: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The result of a step, or what a signal says.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// A process with its attempts and facts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessWhole {
    /// The process.
    pub process: Process,
    /// Its attempts, oldest first.
    pub attempts: Vec<ProcessAttempt>,
    /// Its facts, oldest first.
    pub facts: Vec<ProcessFact>,
}

/// A filter of processes; absent fields match everything.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name")]
pub struct ProcessFilter {
    pub process_kind: Option<String>,
    pub state: Option<String>,
    #[serde(rename = "ref")]
    pub reference: Option<String>,
}

/// A page of processes, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessPage {
    /// The processes.
    pub processes: Vec<Process>,
    /// Where to continue.
    pub cursor: Option<ProcessId>,
}

/// A process after a decision about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessMoved {
    /// The process.
    pub process_id: ProcessId,
    /// Its state now.
    pub state: String,
}

/// A process to start.
#[derive(Debug, Clone, Default)]
pub struct NewProcess<'a> {
    /// Its kind.
    pub process_kind: &'a str,
    /// Its reference; there is only ever one process per kind and reference.
    pub reference: &'a str,
    /// When its supervisor first runs; none is immediately.
    pub check_at: Option<Timestamp>,
    /// Its deadline; none means the kind's default.
    pub deadline_at: Option<Timestamp>,
    /// Its maximum attempts; none means the kind's default.
    pub max_attempts: Option<i32>,
    /// The actor; none means the login.
    pub actor: Option<&'a str>,
    /// What it works on.
    pub input: Value,
}

/// A process that was started, now or earlier.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessStarted {
    /// The process.
    pub process_id: ProcessId,
    /// Whether it already existed.
    pub duplicate: bool,
    /// Its state.
    pub state: String,
}

/// The decision of a supervisor outside the database.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Decision {
    /// One more attempt, now or later.
    Attempt {
        /// When its job becomes due; none means now.
        #[serde(skip_serializing_if = "Option::is_none")]
        due_at: Option<Timestamp>,
    },
    /// Nothing yet.
    Wait {
        /// When to check again.
        check_at: Timestamp,
    },
    /// It succeeded.
    Succeed {
        /// Details.
        detail: Value,
    },
    /// Give up.
    GiveUp {
        /// Why.
        detail: Value,
    },
    /// It should never have been started.
    Invalid {
        /// Why.
        detail: Value,
    },
    /// Hold it for an operator.
    Hold {
        /// What.
        why: String,
    },
}

/// An attempt that was begun; it cannot be begun again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptBegun {
    /// The end of its lease.
    pub lease_until: Timestamp,
    /// The idempotency key for the other side: the same for every attempt.
    pub idempotency_key: String,
}

/// A process after an attempt of it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The state of the process.
    pub state: String,
    /// Whether the attempt was already counted as lost.
    #[serde(default)]
    pub late: bool,
}

impl Database {
    /// Starts a process, once per kind and reference.
    pub async fn process_start(&self, new: &NewProcess<'_>) -> Result<ProcessStarted, Error> {
        let sql = "select towpath.fn_process_start($1, $2, $3, $4, $5, $6, $7)";
        let NewProcess { process_kind, reference, check_at, deadline_at, max_attempts, actor, input } = new;
        let input = (!input.is_null()).then_some(input);
        let params: [&(dyn ToSql + Sync); 7] =
            [process_kind, reference, check_at, deadline_at, max_attempts, actor, &input];
        read(self.call(sql, &params).await?)
    }

    /// A page of processes, newest first.
    pub async fn process_list(
        &self,
        filter: &ProcessFilter,
        limit: i32,
        cursor: Option<ProcessId>,
    ) -> Result<ProcessPage, Error> {
        let filter = given(filter);
        let cursor = cursor.map(ProcessId::uuid);
        read(self.call("select towpath.fn_process_list($1, $2, $3)", &[&filter, &limit, &cursor]).await?)
    }

    /// One process with its attempts and facts.
    pub async fn process_show(&self, process_id: ProcessId) -> Result<ProcessWhole, Error> {
        let answer = self.call("select towpath.fn_process_show($1)", &[&process_id.uuid()]).await?;
        read(answer).map_err(|error| no_such_process(error, process_id))
    }

    /// Cancels an unfinished process.
    pub async fn process_cancel(
        &self,
        process_id: ProcessId,
        by: Attribution<'_>,
    ) -> Result<ProcessMoved, Error> {
        let sql = "select towpath.fn_process_cancel($1, $2, $3)";
        let answer = self.call(sql, &[&process_id.uuid(), &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_process(error, process_id))
    }

    /// Resolves a held process: `succeeded`, `retry` or `gave_up`.
    pub async fn process_resolve(
        &self,
        process_id: ProcessId,
        resolution: &str,
        by: Attribution<'_>,
    ) -> Result<ProcessMoved, Error> {
        let sql = "select towpath.fn_process_resolve($1, $2, $3, $4)";
        let answer = self.call(sql, &[&process_id.uuid(), &resolution, &by.actor, &by.reason]).await?;
        read(answer).map_err(|error| no_such_process(error, process_id))
    }

    /// Registers a process kind. The settings are those of `fn_process_kind_put`.
    pub async fn process_kind_put(&self, kind: &str, settings: &Value, actor: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_process_kind_put($1, $2, $3)";
        read_field::<Value>(self.call(sql, &[&kind, settings, &actor]).await?, "ok").map(drop)
    }

    /// Claims due processes of an externally supervised kind for `lease_seconds`.
    pub async fn process_due(
        &self,
        process_kind: &str,
        limit: i32,
        lease_seconds: i32,
    ) -> Result<Vec<ProcessWhole>, Error> {
        let sql = "select towpath.fn_process_due($1, $2, $3)";
        read_field(self.call(sql, &[&process_kind, &limit, &lease_seconds]).await?, "processes")
    }

    /// Applies a decision based on a generation. `Conflict` means that the process has changed since: read it again.
    pub async fn process_decide(
        &self,
        process_id: ProcessId,
        generation: i32,
        decision: &Decision,
    ) -> Result<ProcessMoved, Error> {
        let decision = serde_json::to_value(decision).expect("a decision is plain data");
        let sql = "select towpath.fn_process_decide($1, $2, $3)";
        let answer = self.call(sql, &[&process_id.uuid(), &generation, &decision]).await?;
        read(answer).map_err(|error| no_such_process(error, process_id))
    }

    /// Begins an attempt, once: a second call gets `Conflict`.
    pub async fn process_attempt_begin(
        &self,
        attempt: (ProcessId, i32),
        worker: &str,
        key_honoured: bool,
    ) -> Result<AttemptBegun, Error> {
        let sql = "select towpath.fn_process_attempt_begin($1, $2, $3, $4)";
        read(self.call(sql, &[&attempt.0.uuid(), &attempt.1, &worker, &key_honoured]).await?)
    }

    /// Extends a started attempt by one lease of its kind.
    pub async fn process_attempt_extend(&self, attempt: (ProcessId, i32), worker: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_process_attempt_extend($1, $2, $3)";
        let answer = self.call(sql, &[&attempt.0.uuid(), &attempt.1, &worker]).await?;
        read_field::<Value>(answer, "ok").map(drop)
    }

    /// Records the outcome of an attempt: `accepted`, `transient`, `permanent` or `uncertain`.
    pub async fn process_attempt_end(
        &self,
        attempt: (ProcessId, i32),
        outcome: &str,
        detail: &Value,
    ) -> Result<AttemptEnded, Error> {
        let sql = "select towpath.fn_process_attempt_end($1, $2, $3, $4)";
        read(self.call(sql, &[&attempt.0.uuid(), &attempt.1, &outcome, detail]).await?)
    }
}

fn no_such_process(error: Error, process_id: ProcessId) -> Error {
    match error {
        Error::NotFound(_) => {
            Error::NotFound(format!("there is no process {process_id}; list them with: towpath process list"))
        }
        other => other,
    }
}
