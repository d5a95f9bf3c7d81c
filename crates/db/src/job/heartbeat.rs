//! The heartbeat: an executor says that it lives (Q13).

use serde_json::Value;
use tokio_postgres::types::Json;
use towpath_model::job::JobId;

use super::LeaseOwner;
use crate::answer::read_field;
use crate::{Database, Error};

/// How an executor says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Fine.
    Ok,
    /// Working, with trouble.
    Warn,
    /// Not working.
    Error,
}

/// One sign of life.
#[derive(Debug, Clone)]
pub struct Heartbeat<'a> {
    /// The process, by a name that outlives a restart, so that dead names do not pile up.
    pub executor_name: &'a str,
    /// The whitelisted kind of executor it is; none for the one it is registered as.
    pub executor_kind: Option<&'a str>,
    /// How it is.
    pub status: Status,
    /// A job it runs now.
    pub current_job: Option<JobId>,
    /// The name under which it holds leases.
    pub owner: &'a LeaseOwner,
    /// What else an operator may want to see; no personal data.
    pub metadata: Value,
    /// The kinds that the process handles, if it says.
    pub kinds: Option<&'a [String]>,
}

impl Database {
    /// Records a sign of life; answers how many there were.
    pub async fn heartbeat(&self, heartbeat: &Heartbeat<'_>) -> Result<i64, Error> {
        let status = match heartbeat.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Error => "error",
        };
        let sql = "select towpath.fn_queue_heartbeat_tick($1, $2, $3, $4, $5, $6, $7)";
        let (job, metadata) = (heartbeat.current_job.map(JobId::uuid), Json(&heartbeat.metadata));
        let answer = self
            .call(
                sql,
                &[
                    &heartbeat.executor_name,
                    &heartbeat.executor_kind,
                    &status,
                    &job,
                    &heartbeat.owner.as_str(),
                    &metadata,
                    &heartbeat.kinds,
                ],
            )
            .await?;
        read_field(answer, "ticks_total")
    }

    /// The last word of a process: its silence from now on is no failure. Answers whether
    /// the heartbeat of this name was its own.
    pub async fn heartbeat_end(&self, executor_name: &str, owner: &LeaseOwner) -> Result<bool, Error> {
        let sql = "select towpath.fn_queue_heartbeat_end($1, $2)";
        read_field(self.call(sql, &[&executor_name, &owner.as_str()]).await?, "ended")
    }
}
