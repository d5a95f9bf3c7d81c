//! What the holder of a token may do with jobs that it does not hold, and with events:
//! `sql/functions/executor_token_job.sql`.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::{Json, ToSql};
use towpath_model::job::{Attempt, JobId};
use towpath_model::job_state::JobState;
use uuid::Uuid;

use crate::answer::{read, read_field, read_raw};
use crate::event::Emitted;
use crate::executor_token::TokenHash;
use crate::job::LeaseOwner;
use crate::job_read::JobMoved;
use crate::{Database, Error};

/// Where one job stands, for the program that enqueued it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    pub job_id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its state.
    pub state: JobState,
    /// How many attempts counted so far.
    pub attempt: i32,
    /// How many may.
    pub max_attempts: i32,
    /// From 0 to 100.
    pub percent: Option<i32>,
    /// The progress in words.
    pub message: Option<String>,
    /// What its handler returned.
    #[serde(default)]
    pub result: Option<Value>,
    /// The error of the last attempt, or the reason of a cancellation.
    pub error: Option<String>,
    /// When it is or was due.
    pub scheduled_at: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// What the holder of a token wants to do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRight {
    /// Read it.
    Read,
    /// Read and cancel it.
    Cancel,
}

impl Database {
    /// Where a job stands.
    pub async fn job_status(&self, job_id: JobId) -> Result<JobStatus, Error> {
        self.status("select towpath.fn_job_state($1)", &[&job_id.uuid()]).await
    }

    /// The same for the holder of a token that has this right.
    pub async fn executor_token_job_status(
        &self,
        hash: &TokenHash,
        job_id: JobId,
        right: JobRight,
    ) -> Result<JobStatus, Error> {
        let sql = "select towpath.fn_executor_token_job_state($1, $2, $3)";
        self.status(sql, &[&hash.bytes(), &job_id.uuid(), &(right == JobRight::Cancel)]).await
    }

    async fn status(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<JobStatus, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        read_raw(&client.query_one(&statement, parameters).await?.get(0))
    }

    /// Refuses with `LeaseLost` unless the owner holds this attempt.
    pub async fn job_held(&self, owner: &LeaseOwner, attempt: (JobId, Attempt)) -> Result<(), Error> {
        let (job_id, number) = (attempt.0.uuid(), attempt.1.number());
        let sql = "select towpath.fn_job_held($1, $2, $3)";
        read_field::<JobId>(self.call(sql, &[&job_id, &owner.as_str(), &number]).await?, "job_id").map(drop)
    }

    /// Which of these jobs have ended; at most 1,000.
    pub async fn job_ended(&self, job_ids: &[JobId]) -> Result<Vec<JobId>, Error> {
        let ids: Vec<Uuid> = job_ids.iter().map(|id| id.uuid()).collect();
        read_field(self.call("select towpath.fn_job_ended($1)", &[&ids]).await?, "ended")
    }

    /// Cancels a job for the holder of a token that may.
    pub async fn executor_token_job_cancel(
        &self,
        hash: &TokenHash,
        job_id: JobId,
        reason: Option<&str>,
    ) -> Result<JobMoved, Error> {
        let sql = "select towpath.fn_executor_token_job_cancel($1, $2, $3)";
        read(self.call(sql, &[&hash.bytes(), &job_id.uuid(), &reason]).await?)
    }

    /// Emits with a token; the answers are in the events' order.
    pub async fn executor_token_emit<T>(
        &self,
        hash: &TokenHash,
        events: &[T],
    ) -> Result<Vec<Result<Emitted, Error>>, Error>
    where
        T: Serialize + fmt::Debug + Sync,
    {
        let sql = "select towpath.fn_executor_token_emit($1, $2)";
        let answer = self.call(sql, &[&hash.bytes(), &Json(events)]).await?;
        Ok(read_field::<Vec<Value>>(answer, "events")?.into_iter().map(read).collect())
    }
}
