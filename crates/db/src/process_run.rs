//! Attempts of processes with a handler or a function, many in one call: `sql/functions/process_run.sql`,
//! `process_function.sql`, `process_signal.sql` and `process_start.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use towpath_model::id::ProcessId;

use crate::answer::{read, read_field};
use crate::connect::Parameter;
use crate::{Database, Error};

/// One attempt of a process, by its number.
pub type AttemptKey = (ProcessId, i32);

/// What a call about many attempts answers for each; none for one that somebody else has locked: ask for it alone.
pub type Answers<T> = Vec<Option<Result<T, Error>>>;

/// A process to start among others of its kind.
#[derive(Debug, Clone, Serialize)]
pub struct NewOfMany {
    /// Its reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// What it works on.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub input: Value,
}

/// An attempt that a worker holds now, and everything that earlier attempts recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fn_process_begin_many says what each is")]
pub struct Begun {
    pub process_id: ProcessId,
    pub attempt_no: i32,
    pub process_kind: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub input: Value,
    pub steps: Map<String, Value>,
    pub lease_until: Timestamp,
    pub lease_seconds: i32,
    pub idempotency_key: String,
}

/// The result of a step as it was recorded first.
#[derive(Debug, Clone, Deserialize)]
pub struct Stepped {
    /// The result.
    pub value: Value,
}

/// A result to record.
#[derive(Debug, Clone)]
pub struct NewStep {
    /// Whose.
    pub attempt: AttemptKey,
    /// The name of the step.
    pub name: String,
    /// Its result.
    pub value: Value,
}

/// How an attempt ended.
#[derive(Debug, Clone, Serialize)]
pub struct AttemptEnd {
    /// `accepted`, `transient`, `permanent` or `uncertain`.
    pub outcome: &'static str,
    /// What the process came to, if it was accepted.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// What there is to say: references and short words.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// A process after an attempt of it ended, or was suspended.
#[derive(Debug, Clone, Deserialize)]
pub struct Moved {
    /// The state of the process, or `suspended`.
    pub state: String,
    /// What went wrong in its function, if that failed.
    #[serde(default)]
    pub error_text: Option<String>,
}

/// What an attempt waits for; at least one of these.
#[derive(Debug, Clone, Default)]
pub struct Wait<'a> {
    /// The step that remembers it.
    pub name: &'a str,
    /// A signal of this name.
    pub signal: Option<&'a str>,
    /// This moment.
    pub until_at: Option<Timestamp>,
    /// So many seconds from now.
    pub seconds: Option<f64>,
    /// The end of a process of its own: `{kind, ref, input}`.
    pub child: Option<Value>,
}

/// Whether what an attempt waits for has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Waited {
    /// If not, the attempt has ended as suspended.
    pub ready: bool,
    /// What came.
    #[serde(default)]
    pub value: Value,
    /// When it ends at the latest.
    #[serde(default)]
    pub until_at: Option<Timestamp>,
}

/// A signal for a process, which is named by its kind and reference, or by its id.
#[derive(Debug, Clone, Default)]
pub struct Signal<'a> {
    /// The kind of the process.
    pub process_kind: Option<&'a str>,
    /// The reference of the process.
    pub reference: Option<&'a str>,
    /// Its id instead.
    pub process_id: Option<ProcessId>,
    /// The name of the signal.
    pub name: &'a str,
    /// What it says.
    pub payload: Value,
    /// The actor; none means the login.
    pub actor: Option<&'a str>,
}

/// A signal that was recorded, now or earlier.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Signalled {
    /// The process.
    pub process_id: ProcessId,
    /// Whether it was the first of its name: only that one counts.
    pub recorded: bool,
    /// The state of the process.
    pub state: String,
}

impl Database {
    /// Starts many processes of one kind, all or none, in one call.
    pub async fn process_start_many(
        &self,
        process_kind: &str,
        processes: &[NewOfMany],
        actor: Option<&str>,
    ) -> Result<Vec<ProcessId>, Error> {
        let processes = json!(processes);
        let sql = "select towpath.fn_process_start_many($1, $2, $3)";
        read_field(self.call(sql, &[&process_kind, &processes, &actor]).await?, "process_ids")
    }

    /// Begins attempts, each once.
    pub async fn process_begin_many(
        &self,
        attempts: &[AttemptKey],
        worker: &str,
        key_honoured: bool,
    ) -> Result<Answers<Begun>, Error> {
        let (ids, numbers) = columns(attempts);
        let sql = "select * from towpath.fn_process_begin_many($1, $2, $3, $4)";
        self.answers(sql, &[&ids, &numbers, &worker, &key_honoured], attempts.len()).await
    }

    /// Records results of steps; answers the results that were recorded first.
    pub async fn process_step_many(
        &self,
        steps: &[NewStep],
        worker: &str,
    ) -> Result<Answers<Stepped>, Error> {
        let (ids, numbers) = columns(steps.iter().map(|step| &step.attempt));
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let values: Vec<&Value> = steps.iter().map(|step| &step.value).collect();
        let sql = "select * from towpath.fn_process_step_many($1, $2, $3, $4, $5)";
        self.answers(sql, &[&ids, &numbers, &worker, &names, &values], steps.len()).await
    }

    /// Records how attempts ended.
    pub async fn process_end_many(
        &self,
        ends: &[(AttemptKey, AttemptEnd)],
        worker: &str,
    ) -> Result<Answers<Moved>, Error> {
        let (ids, numbers) = columns(ends.iter().map(|(attempt, _)| attempt));
        let said = json!(ends.iter().map(|(_, end)| end).collect::<Vec<_>>());
        let sql = "select * from towpath.fn_process_end_many($1, $2, $3, $4)";
        self.answers(sql, &[&ids, &numbers, &worker, &said], ends.len()).await
    }

    /// Begins, runs and ends attempts of processes that are SQL functions, in one transaction.
    pub async fn process_run_many(
        &self,
        attempts: &[AttemptKey],
        worker: &str,
    ) -> Result<Answers<Moved>, Error> {
        let (ids, numbers) = columns(attempts);
        let sql = "select * from towpath.fn_process_run_many($1, $2, $3)";
        self.answers(sql, &[&ids, &numbers, &worker], attempts.len()).await
    }

    /// Extends the leases of attempts; answers for each whether the worker still holds it.
    pub async fn process_extend_many(
        &self,
        attempts: &[AttemptKey],
        worker: &str,
    ) -> Result<Vec<bool>, Error> {
        let (ids, numbers) = columns(attempts);
        let sql = "select no from towpath.fn_process_extend_many($1, $2, $3)";
        let mut held = vec![false; attempts.len()];
        for row in self.process_rows(sql, &[&ids, &numbers, &worker]).await? {
            held[index(&row)] = true;
        }
        Ok(held)
    }

    /// Waits: answers what came, or ends the attempt as suspended.
    pub async fn process_wait(
        &self,
        attempt: AttemptKey,
        worker: &str,
        wait: &Wait<'_>,
    ) -> Result<Waited, Error> {
        let sql = "select towpath.fn_process_wait($1, $2, $3, $4, $5, $6, $7, $8)";
        let Wait { name, signal, until_at, seconds, child } = wait;
        let params: [Parameter<'_>; 8] =
            [&attempt.0.uuid(), &attempt.1, &worker, name, signal, until_at, seconds, child];
        read(self.call(sql, &params).await?)
    }

    /// Tells a process something; the first signal of a name stays.
    pub async fn process_signal(&self, signal: &Signal<'_>) -> Result<Signalled, Error> {
        let sql = "select towpath.fn_process_signal($1, $2, $3, $4, $5, $6)";
        let Signal { process_kind, reference, process_id, name, payload, actor } = signal;
        let process_id = process_id.map(ProcessId::uuid);
        let params: [Parameter<'_>; 6] = [process_kind, reference, name, payload, actor, &process_id];
        read(self.call(sql, &params).await?)
    }

    async fn process_rows(&self, sql: &str, params: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, params).await?)
    }

    async fn answers<T: serde::de::DeserializeOwned>(
        &self,
        sql: &str,
        params: &[Parameter<'_>],
        count: usize,
    ) -> Result<Answers<T>, Error> {
        let mut answers: Answers<T> = (0..count).map(|_| None).collect();
        for row in self.process_rows(sql, params).await? {
            answers[index(&row)] = Some(read(row.get(1)));
        }
        Ok(answers)
    }
}

/// The place of a row's attempt in the call; the database counts from 1.
fn index(row: &Row) -> usize {
    usize::try_from(row.get::<_, i32>(0) - 1).expect("numbers count from 1")
}

fn columns<'a>(attempts: impl IntoIterator<Item = &'a AttemptKey>) -> (Vec<uuid::Uuid>, Vec<i32>) {
    attempts.into_iter().map(|(process_id, attempt_no)| (process_id.uuid(), *attempt_no)).unzip()
}
