//! Enqueueing inside a transaction of sqlx (Q19).

use sqlx::PgExecutor;
use sqlx::types::Json;
use towpath_model::job::JobId;

use super::enqueue::{ENQUEUE, ENQUEUE_MANY, read_row};
use super::{Enqueued, NewJob, refusal};
use crate::{Error, Raised};

/// Like [`super::enqueue`], for a connection or transaction of sqlx: `enqueue(&mut *tx, &job)`.
pub async fn enqueue<'c>(executor: impl PgExecutor<'c>, job: &NewJob) -> Result<Enqueued, Failed> {
    if job.traceparent.is_some() {
        let only = enqueue_all(executor, std::slice::from_ref(job)).await?.into_iter().next();
        return Ok(only.unwrap_or_else(|| Err(Error::Unreadable("nothing".into())))?);
    }
    let scheduled_at = job.scheduled_at.map(|at| at.to_string());
    // A moment travels as text: sqlx knows chrono and time, not jiff.
    let sql = ENQUEUE.replace("$7", "$7::text::timestamptz");
    let (answer,): (String,) = sqlx::query_as(sqlx::AssertSqlSafe(as_text(&sql)))
        .bind(&job.job_kind)
        .bind(&job.source_ref)
        .bind(&job.target_ref)
        .bind(&job.payload_ref)
        .bind(job.payload_json.as_ref().map(Json))
        .bind(job.priority)
        .bind(scheduled_at)
        .bind(job.max_attempts)
        .bind(&job.idempotency_key)
        .bind(&job.actor)
        .bind(job.run_id)
        .bind(&job.executor)
        .bind(&job.event_domain)
        .fetch_one(executor)
        .await?;
    Ok(read_row(&answer)?)
}

/// Like [`super::enqueue_many`], for sqlx. Answers the ids; the first refused row is the error.
pub async fn enqueue_many<'c>(executor: impl PgExecutor<'c>, jobs: &[NewJob]) -> Result<Vec<JobId>, Failed> {
    let answers = enqueue_all(executor, jobs).await?;
    answers.into_iter().map(|answer| Ok(answer?.job_id)).collect()
}

async fn enqueue_all<'c>(
    executor: impl PgExecutor<'c>,
    jobs: &[NewJob],
) -> Result<Vec<Result<Enqueued, Error>>, Failed> {
    #[derive(serde::Deserialize)]
    struct Answer {
        jobs: Vec<Box<serde_json::value::RawValue>>,
    }
    let (answer,): (String,) = sqlx::query_as(sqlx::AssertSqlSafe(as_text(ENQUEUE_MANY)))
        .bind(Json(jobs))
        .fetch_one(executor)
        .await?;
    let read: Answer = serde_json::from_str(&answer).map_err(|_| refusal(&answer))?;
    Ok(read.jobs.iter().map(|row| read_row(row.get())).collect())
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The database refused the job.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The connection or the transaction failed.
    #[error(transparent)]
    Sqlx(sqlx::Error),
}

/// What a door raised is a refusal, whoever called it: `sqlx::query("select towpath.enqueue(…)")` too.
impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Failed {
        let refused = error.as_database_error().and_then(|database| {
            let postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
            Error::raised(Raised {
                sqlstate: postgres.code(),
                message: postgres.message(),
                detail: postgres.detail().unwrap_or_default(),
                hint: postgres.hint().unwrap_or_default(),
            })
        });
        refused.map_or(Failed::Sqlx(error), Failed::Refused)
    }
}

pub(crate) fn as_text(sql: &str) -> String {
    format!("{sql}::text")
}
