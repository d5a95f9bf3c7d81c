//! Enqueue: alone, in a batch, and inside the caller's own transaction (Q04, Q05, Q19).

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, ToSql, Type};
use towpath_model::job::JobId;

use super::{NewJob, RawAnswer, read_raw, refusal};
use crate::{Database, Error};

pub(super) const ENQUEUE: &str =
    "select towpath.fn_job_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
pub(super) const ENQUEUE_MANY: &str = "select towpath.fn_job_enqueue_many($1)";

/// A job that is in the queue, or will be when the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Enqueued {
    /// Its id.
    pub job_id: JobId,
    /// Whether an unfinished job with the same idempotency key was there before.
    pub duplicate: bool,
}

/// Enqueues on the caller's connection, in the caller's transaction if there is one: commit
/// makes the job visible, rollback leaves nothing (Q19).
///
/// One round trip and no named statement, so that it works behind a transaction pooler.
pub async fn enqueue(client: &impl GenericClient, job: &NewJob) -> Result<Enqueued, Error> {
    if job.traceparent.is_some() {
        return only(enqueue_many(client, std::slice::from_ref(job)).await?);
    }
    let payload = job.payload_json.as_deref().map(Json);
    let values = parameters(job, &payload);
    let typed: Vec<_> = values.into_iter().zip(TYPES).collect();
    let row = client.query_typed(ENQUEUE, &typed).await?.into_iter().next();
    read_raw(&row.ok_or_else(|| Error::Unreadable("nothing".into()))?.get(0))
}

/// Enqueues a whole batch on the caller's connection; the answers are in the batch's order.
pub async fn enqueue_many(
    client: &impl GenericClient,
    jobs: &[NewJob],
) -> Result<Vec<Result<Enqueued, Error>>, Error> {
    let rows = client.query_typed(ENQUEUE_MANY, &[(&Json(jobs), Type::JSONB)]).await?;
    let row = rows.into_iter().next();
    read_many(&row.ok_or_else(|| Error::Unreadable("nothing".into()))?.get(0))
}

impl Database {
    /// Enqueues one job in a transaction of its own.
    pub async fn enqueue(&self, job: &NewJob) -> Result<Enqueued, Error> {
        if job.traceparent.is_some() {
            return only(self.enqueue_many(std::slice::from_ref(job)).await?);
        }
        let payload = job.payload_json.as_deref().map(Json);
        if self.note().is_some() {
            return crate::answer::read(self.call(ENQUEUE, &parameters(job, &payload)).await?);
        }
        let client = self.client().await?;
        let statement = client.prepare_cached(ENQUEUE).await?;
        read_raw(&client.query_one(&statement, &parameters(job, &payload)).await?.get(0))
    }

    /// Enqueues a batch in one transaction; the answers are in the batch's order.
    pub async fn enqueue_many(&self, jobs: &[NewJob]) -> Result<Vec<Result<Enqueued, Error>>, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(ENQUEUE_MANY).await?;
        read_many(&client.query_one(&statement, &[&Json(jobs)]).await?.get(0))
    }
}

const TYPES: [Type; 13] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::INT4,
    Type::TIMESTAMPTZ,
    Type::INT4,
    Type::TEXT,
    Type::TEXT,
    Type::UUID,
    Type::TEXT,
    Type::TEXT,
];

fn parameters<'a>(job: &'a NewJob, payload: &'a Option<Json<&'a RawValue>>) -> [&'a (dyn ToSql + Sync); 13] {
    [
        &job.job_kind,
        &job.source_ref,
        &job.target_ref,
        &job.payload_ref,
        payload,
        &job.priority,
        &job.scheduled_at,
        &job.max_attempts,
        &job.idempotency_key,
        &job.actor,
        &job.run_id,
        &job.executor,
        &job.event_domain,
    ]
}

/// The answer about the one job of a batch. A job that belongs to a trace goes this way: the function
/// for one job has no parameter for it, and need not get slower for those that do not.
fn only(answers: Vec<Result<Enqueued, Error>>) -> Result<Enqueued, Error> {
    answers.into_iter().next().unwrap_or_else(|| Err(Error::Unreadable("nothing".into())))
}

fn read_many(answer: &RawAnswer) -> Result<Vec<Result<Enqueued, Error>>, Error> {
    #[derive(Deserialize)]
    struct Answer {
        jobs: Vec<Box<RawValue>>,
    }
    let answer: Answer = read_raw(answer)?;
    Ok(answer.jobs.iter().map(|row| read_row(row.get())).collect())
}

/// A refused row has no id.
pub(super) fn read_row(text: &str) -> Result<Enqueued, Error> {
    serde_json::from_str(text).map_err(|_| refusal(text))
}
