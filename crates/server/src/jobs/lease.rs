//! The calls of a lease holder: start, extend, progress, ack, fail, release; and the
//! heartbeat of its executor.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use towpath_db::job::{AfterFailure, Ended, Failure, Heartbeat, Lease, Progress, Status};
use towpath_model::job::{Attempt, JobId};

use super::caller::Caller;
use super::{Error, Jobs, body};
use crate::limits;

/// The attempt of a call. The owner comes from the token, never from the client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Held {
    job_id: JobId,
    attempt: Attempt,
}

impl Held {
    fn lease(&self, caller: &Caller) -> Lease {
        Lease::held_elsewhere(self.job_id, caller.owner.clone(), self.attempt)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldMany {
    jobs: Vec<Held>,
}

impl HeldMany {
    async fn read(body: Body, caller: &Caller) -> Result<Vec<Lease>, Error> {
        let many: HeldMany = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
        if many.jobs.is_empty() || many.jobs.len() > limits::JOBS_PER_CALL_MAX {
            return Err(Error::Invalid(format!("jobs must have 1 to {} entries", limits::JOBS_PER_CALL_MAX)));
        }
        Ok(many.jobs.iter().map(|held| held.lease(caller)).collect())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extend {
    job_id: JobId,
    attempt: Attempt,
    seconds: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HowFar {
    job_id: JobId,
    attempt: Attempt,
    percent: Option<i32>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    job_id: JobId,
    attempt: Attempt,
    error: String,
    #[serde(default)]
    permanent: bool,
    retry_after_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beat {
    #[serde(default)]
    status: BeatStatus,
    current_job_id: Option<JobId>,
    metadata: Option<serde_json::Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BeatStatus {
    #[default]
    Ok,
    Warn,
    Error,
}

/// leased -> in_progress.
pub(crate) async fn start(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let held: Held = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    held.lease(&caller).start(&jobs.database).await?;
    Ok(Json(json!({ "job_id": held.job_id, "state": "in_progress" })))
}

/// Extends the lease to at least so many seconds from now.
pub(crate) async fn extend(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let Extend { job_id, attempt, seconds } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let mut lease = Held { job_id, attempt }.lease(&caller);
    lease.extend(&jobs.database, Duration::from_secs(seconds.into())).await?;
    Ok(Json(json!({ "job_id": job_id, "lease_until": lease.expires_at() })))
}

/// Stores the progress of the job.
pub(crate) async fn progress(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let HowFar { job_id, attempt, percent, message } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let progress = Progress { percent, message: message.as_deref() };
    Held { job_id, attempt }.lease(&caller).progress(&jobs.database, progress).await?;
    Ok(Json(json!({ "job_id": job_id })))
}

/// leased | in_progress -> succeeded.
pub(crate) async fn ack(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let held: Held = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    held.lease(&caller).ack(&jobs.database).await?;
    Ok(Json(json!({ "job_id": held.job_id, "state": "succeeded" })))
}

/// The same for many; jobs whose lease was lost are listed and not changed.
pub(crate) async fn ack_many(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let leases = HeldMany::read(body, &caller).await?;
    let Ended { ended, lost } =
        jobs.database.ack_many(leases).await.map_err(|unfinished| unfinished.error)?;
    Ok(Json(json!({ "acked": ended, "lost": lost })))
}

/// leased | in_progress -> retry_waiting or dead_letter.
pub(crate) async fn fail(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let fail: Fail = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let retry_after = fail.retry_after_seconds.map(Duration::try_from_secs_f64).transpose();
    let failure = Failure {
        error: fail.error,
        permanent: fail.permanent,
        retry_after: retry_after.map_err(|error| Error::Invalid(format!("retry_after_seconds: {error}")))?,
    };
    let lease = Held { job_id: fail.job_id, attempt: fail.attempt }.lease(&caller);
    Ok(Json(match lease.fail(&jobs.database, failure).await? {
        AfterFailure::RetryWaiting { scheduled_at } => {
            json!({ "job_id": fail.job_id, "state": "retry_waiting", "scheduled_at": scheduled_at })
        }
        AfterFailure::DeadLetter => json!({ "job_id": fail.job_id, "state": "dead_letter" }),
    }))
}

/// Releases jobs that were claimed and not started, as if never claimed.
pub(crate) async fn release(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let leases = HeldMany::read(body, &caller).await?;
    let Ended { ended, lost } = jobs.database.release(leases).await.map_err(|unfinished| unfinished.error)?;
    Ok(Json(json!({ "released": ended, "lost": lost })))
}

/// The heartbeat of an executor. One row per executor, whatever its processes are called: a name
/// that the client chooses could be another executor's.
pub(crate) async fn heartbeat(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let beat: Beat = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let ticks = jobs
        .database
        .heartbeat(&Heartbeat {
            executor_name: &caller.scope.executor_id,
            executor_kind: Some(&caller.scope.executor),
            status: match beat.status {
                BeatStatus::Ok => Status::Ok,
                BeatStatus::Warn => Status::Warn,
                BeatStatus::Error => Status::Error,
            },
            current_job: beat.current_job_id,
            owner: &caller.owner,
            metadata: beat.metadata.unwrap_or_default().into(),
        })
        .await?;
    Ok(Json(json!({ "executor_id": caller.scope.executor_id, "ticks_total": ticks })))
}
