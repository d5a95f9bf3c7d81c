//! What the holder of a token may do with jobs that it does not hold, and with events:
//! `sql/functions/executor_token_job.sql`.

use std::fmt;

use serde::Serialize;
use tokio_postgres::types::Json;
use towpath_model::job::JobId;

use crate::answer::read;
use crate::event::Emitted;
use crate::executor_token::{BatchError, TokenHash, read_rows};
use crate::job_read::JobMoved;
use crate::job_stream::JobStatus;
use crate::{Database, Error};

/// What the holder of a token wants to do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRight {
    /// Read it.
    Read,
    /// Read and cancel it.
    Cancel,
}

impl Database {
    /// Where a job stands, for the holder of a token that has this right.
    pub async fn executor_token_job_status(
        &self,
        hash: &TokenHash,
        job_id: JobId,
        right: JobRight,
    ) -> Result<JobStatus, Error> {
        let sql = "select towpath.fn_executor_token_job_state($1, $2, $3)";
        self.status_by(sql, &[&hash.bytes(), &job_id.uuid(), &(right == JobRight::Cancel)]).await
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

    /// Emits with a token, all events or none; the answers are in the events' order.
    pub async fn executor_token_emit<T>(
        &self,
        hash: &TokenHash,
        events: &[T],
    ) -> Result<Vec<Emitted>, BatchError>
    where
        T: Serialize + fmt::Debug + Sync,
    {
        let sql = "select towpath.fn_executor_token_emit($1, $2)";
        read_rows(self.call(sql, &[&hash.bytes(), &Json(events)]).await?, "events")
    }
}
