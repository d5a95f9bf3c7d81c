//! The stream of a job as far as the database knows it: `sql/functions/job_stream.sql`.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, ToSql};
use towpath_model::job::{Attempt, JobId};
use towpath_model::job_state::JobState;
use uuid::Uuid;

use crate::answer::{read, read_field, read_raw};
use crate::job::LeaseOwner;
use crate::{Database, Error};

/// Where one job stands, for the program that enqueued it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    #[serde(rename = "job_id")]
    pub id: JobId,
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
    /// What its handler returned; a result of more than 64 KiB is `{"payload_ref": …}`.
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

impl JobStatus {
    /// Whether it succeeded, became a dead letter or was cancelled.
    pub fn ended(&self) -> bool {
        self.state.ended()
    }
}

/// What a look at a job tells those who follow it.
#[derive(Debug, Clone, Deserialize)]
pub struct JobMark {
    /// The job.
    pub job_id: JobId,
    /// Whether it has ended or is gone.
    pub ended: bool,
    /// Changes with everything that its stream shows.
    pub mark: String,
}

/// A value that a handler appended to the stream of its job.
#[derive(Debug, Deserialize)]
pub struct JobChunk {
    /// The attempt.
    pub attempt: Attempt,
    /// Its number in the attempt, from 0.
    pub no: u64,
    /// The value.
    pub data: Box<RawValue>,
}

/// The key that signs tokens of jobs.
#[derive(Deserialize)]
pub struct JobTokenKey {
    /// Its name, which changes with it.
    pub kid: String,
    /// Its bytes, in base64.
    pub secret: String,
}

/// Not derived, so that the secret does not end up in a log.
impl fmt::Debug for JobTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobTokenKey({})", self.kid)
    }
}

impl Database {
    /// Where a job stands.
    pub async fn job_status(&self, job_id: JobId) -> Result<JobStatus, Error> {
        self.status_by("select towpath.fn_job_state($1)", &[&job_id.uuid()]).await
    }

    pub(crate) async fn status_by(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<JobStatus, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        read_raw(&client.query_one(&statement, parameters).await?.get(0))
    }

    /// Looks at jobs that somebody follows; at most 1,000.
    pub async fn job_watch(&self, job_ids: &[JobId]) -> Result<Vec<JobMark>, Error> {
        let ids: Vec<Uuid> = job_ids.iter().map(|id| id.uuid()).collect();
        read_field(self.call("select towpath.fn_job_watch($1)", &[&ids]).await?, "jobs")
    }

    /// Refuses with `LeaseLost` unless the owner holds this attempt.
    pub async fn job_held(&self, owner: &LeaseOwner, attempt: (JobId, Attempt)) -> Result<(), Error> {
        let (job_id, number) = (attempt.0.uuid(), attempt.1.number());
        let sql = "select towpath.fn_job_held($1, $2, $3)";
        read_field::<JobId>(self.call(sql, &[&job_id, &owner.as_str(), &number]).await?, "job_id").map(drop)
    }

    /// Keeps a value for the stream of a job that the owner holds. Answers its key.
    pub async fn job_append(
        &self,
        owner: &LeaseOwner,
        attempt: (JobId, Attempt),
        data: &Value,
    ) -> Result<String, Error> {
        let (job_id, number) = (attempt.0.uuid(), attempt.1.number());
        let sql = "select towpath.fn_job_append($1, $2, $3, $4)";
        read_field(self.call(sql, &[&job_id, &owner.as_str(), &number, &Json(data)]).await?, "key")
    }

    /// What was appended to a job after this attempt and number, in order; a page of it.
    pub async fn job_chunks(&self, job_id: JobId, after: Option<(i32, i32)>) -> Result<Vec<JobChunk>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            chunks: Vec<JobChunk>,
        }
        let (attempt, no) = after.unzip();
        let client = self.client().await?;
        let statement = client.prepare_cached("select towpath.fn_job_chunks($1, $2, $3)").await?;
        let row = client.query_one(&statement, &[&job_id.uuid(), &attempt, &no]).await?;
        Ok(read_raw::<Answer>(&row.get(0))?.chunks)
    }

    /// The key that signs tokens of jobs.
    pub async fn job_token_key(&self) -> Result<JobTokenKey, Error> {
        read(self.call("select towpath.fn_job_token_key()", &[]).await?)
    }

    /// Replaces that key and answers the name of the new one. Servers refuse tokens of the old one within seconds.
    pub async fn job_token_key_rotate(&self, actor: &str) -> Result<String, Error> {
        read_field(self.call("select towpath.fn_job_token_key_rotate($1)", &[&actor]).await?, "kid")
    }

    /// A token to read one job and its stream, and to cancel it; for who may enqueue such a job.
    pub async fn job_token(&self, job_id: JobId, lifetime: Duration) -> Result<String, Error> {
        let seconds = i32::try_from(lifetime.as_secs()).unwrap_or(i32::MAX);
        let sql = "select towpath.fn_job_token($1, $2)";
        read_field(self.call(sql, &[&job_id.uuid(), &seconds]).await?, "token")
    }
}
