//! What the holder of a token may do with processes: `sql/functions/executor_token_process.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::id::ProcessId;

use crate::answer::{read, read_field};
use crate::executor_token::TokenHash;
use crate::process::ProcessMoved;
use crate::process_run::{Signal, Signalled};
use crate::{Database, Error};

/// Where a process stands and what it came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fn_executor_token_process_state says what each is")]
pub struct ProcessStatus {
    pub process_id: ProcessId,
    pub kind: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub state: String,
    pub input: Value,
    pub result: Value,
    pub waits_for: Option<String>,
    pub attempts: i64,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub error: Option<String>,
}

impl Database {
    /// Starts processes of one kind, all or none, for the holder of a token.
    pub async fn executor_token_process_start(
        &self,
        hash: &TokenHash,
        process_kind: &str,
        processes: &Value,
    ) -> Result<Vec<ProcessId>, Error> {
        let sql = "select towpath.fn_executor_token_process_start($1, $2, $3)";
        read_field(self.call(sql, &[&hash.bytes(), &process_kind, processes]).await?, "process_ids")
    }

    /// Signals a process for the holder of a token.
    pub async fn executor_token_process_signal(
        &self,
        hash: &TokenHash,
        signal: &Signal<'_>,
    ) -> Result<Signalled, Error> {
        let sql = "select towpath.fn_executor_token_process_signal($1, $2, $3, $4, $5, $6)";
        let Signal { process_kind, reference, process_id, name, payload, .. } = signal;
        let process_id = process_id.map(ProcessId::uuid);
        read(self.call(sql, &[&hash.bytes(), process_kind, reference, &process_id, name, payload]).await?)
    }

    /// Where a process stands, for the holder of a token.
    pub async fn executor_token_process_status(
        &self,
        hash: &TokenHash,
        process_id: ProcessId,
    ) -> Result<ProcessStatus, Error> {
        let sql = "select towpath.fn_executor_token_process_state($1, $2)";
        read(self.call(sql, &[&hash.bytes(), &process_id.uuid()]).await?)
    }

    /// Resolves a held process for the holder of a token.
    pub async fn executor_token_process_resolve(
        &self,
        hash: &TokenHash,
        process_id: ProcessId,
        resolution: &str,
        reason: Option<&str>,
    ) -> Result<ProcessMoved, Error> {
        let sql = "select towpath.fn_executor_token_process_resolve($1, $2, $3, $4)";
        read(self.call(sql, &[&hash.bytes(), &process_id.uuid(), &resolution, &reason]).await?)
    }

    /// Which of these processes have ended.
    pub async fn process_ended(&self, process_ids: &[ProcessId]) -> Result<Vec<ProcessId>, Error> {
        let ids: Vec<uuid::Uuid> = process_ids.iter().map(|id| id.uuid()).collect();
        read_field(self.call("select towpath.fn_process_ended($1)", &[&ids]).await?, "ended")
    }
}
