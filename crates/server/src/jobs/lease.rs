//! The calls of a lease holder: start, extend, progress, ack, fail, snooze, release; and the
//! heartbeat of its executor.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use towpath_db::job::{
    AfterFailure, Ended, Extended, FailedAttempt, Failure, Heartbeat, Lease, Progress, Status,
};
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

/// Attempts with what a call says of each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Many<T> {
    jobs: Vec<T>,
}

/// The attempts of a batch.
async fn many<T: DeserializeOwned>(body: Body) -> Result<Vec<T>, Error> {
    let Many { jobs } = body::read(body, limits::JOBS_BODY_BYTES_MAX).await?;
    counted(jobs)
}

fn counted<T>(jobs: Vec<T>) -> Result<Vec<T>, Error> {
    if jobs.is_empty() || jobs.len() > limits::JOBS_PER_CALL_MAX {
        return Err(Error::Invalid(format!("jobs must have 1 to {} entries", limits::JOBS_PER_CALL_MAX)));
    }
    Ok(jobs)
}

/// An attempt to ack.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ack {
    job_id: JobId,
    attempt: Attempt,
    /// As the claim answered it.
    entry_id: Option<i64>,
    /// What the handler returned, passed on unparsed.
    result: Option<Box<RawValue>>,
}

impl Ack {
    fn lease(self, caller: &Caller) -> Result<Lease, Error> {
        let lease = Held { job_id: self.job_id, attempt: self.attempt }.lease(caller).in_entry(self.entry_id);
        match self.result {
            Some(result) if has_zero(result.get()) => Err(Error::Invalid(format!(
                "the result of job {} has the character \\u0000, which PostgreSQL cannot store",
                self.job_id
            ))),
            Some(result) => Ok(lease.with_result(result)),
            None => Ok(lease),
        }
    }
}

/// Whether a JSON text has the escape of the zero character. A backslash before it may be escaped itself.
fn has_zero(json: &str) -> bool {
    json.match_indices("\\u0000")
        .any(|(at, _)| json[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0)
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
struct ExtendMany {
    jobs: Vec<Held>,
    seconds: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snooze {
    job_id: JobId,
    attempt: Attempt,
    seconds: u32,
    note: Option<String>,
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
    #[serde(alias = "retry_delay_seconds")]
    retry_after_seconds: Option<f64>,
}

impl Fail {
    fn failed(self, caller: &Caller) -> Result<FailedAttempt, Error> {
        let retry_after = self.retry_after_seconds.map(Duration::try_from_secs_f64).transpose();
        let retry_after =
            retry_after.map_err(|error| Error::Invalid(format!("retry_after_seconds: {error}")))?;
        if retry_after.is_some_and(|after| after > limits::RETRY_DELAY_MAX) {
            let most = limits::RETRY_DELAY_MAX.as_secs();
            return Err(Error::Invalid(format!("the delay of a retry must be at most {most} seconds")));
        }
        let lease = Held { job_id: self.job_id, attempt: self.attempt }.lease(caller);
        Ok(FailedAttempt {
            lease,
            failure: Failure { error: self.error, permanent: self.permanent, retry_after },
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeartbeatBody {
    #[serde(default)]
    status: HeartbeatStatus,
    current_job_id: Option<JobId>,
    metadata: Option<serde_json::Map<String, Value>>,
    /// What the process handles.
    kinds: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeartbeatStatus {
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
    jobs.watches.look_at([held.job_id]);
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

/// The same for many; jobs whose lease was lost are listed and not changed.
pub(crate) async fn extend_many(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let ExtendMany { jobs: held, seconds } = body::read(body, limits::JOBS_BODY_BYTES_MAX).await?;
    let attempts: Vec<_> = counted(held)?.iter().map(|held| (held.job_id, held.attempt)).collect();
    let by = Duration::from_secs(seconds.into());
    let Extended { extended, lease_until, lost } =
        jobs.database.extend_many(&caller.owner, &attempts, by).await?;
    Ok(Json(json!({ "ok": true, "extended": extended, "lease_until": lease_until, "lost": lost })))
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
    if let Some(streams) = &jobs.streams {
        // The progress is stored; readers of the stream get it with the next one.
        if let Err(error) = streams.publish(job_id).await {
            tracing::warn!(%job_id, ?error, "the progress of a job is not in its stream");
        }
    }
    Ok(Json(json!({ "job_id": job_id })))
}

/// leased | in_progress -> succeeded.
pub(crate) async fn ack(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let ack: Ack = body::read(body, limits::JOBS_BODY_BYTES_MAX).await?;
    let job_id = ack.job_id;
    ack.lease(&caller)?.ack(&jobs.database).await?;
    jobs.watches.look_at([job_id]);
    Ok(Json(json!({ "job_id": job_id, "state": "succeeded" })))
}

/// The same for many; jobs whose lease was lost are listed and not changed.
pub(crate) async fn ack_many(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let acks: Vec<Ack> = many(body).await?;
    let ids: Vec<JobId> = acks.iter().map(|ack| ack.job_id).collect();
    // Without results, whole lease entries are acked at once.
    let (answers, acks): (Vec<Ack>, Vec<Ack>) = acks.into_iter().partition(|ack| ack.result.is_some());
    let (mut acked, mut lost) = (0, vec![]);
    for part in [answers, acks] {
        let leases = part.into_iter().map(|ack| ack.lease(&caller)).collect::<Result<_, _>>()?;
        let ended = jobs.database.ack_many(leases).await.map_err(|unfinished| unfinished.error)?;
        acked += ended.ended;
        lost.extend(ended.lost);
    }
    jobs.watches.look_at(ids);
    Ok(Json(json!({ "acked": acked, "lost": lost })))
}

/// leased | in_progress -> retry_waiting or dead_letter.
pub(crate) async fn fail(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let fail: Fail = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let job_id = fail.job_id;
    let FailedAttempt { lease, failure } = fail.failed(&caller)?;
    let after = lease.fail(&jobs.database, failure).await?;
    jobs.watches.look_at([job_id]);
    Ok(Json(match after {
        AfterFailure::RetryWaiting { scheduled_at } => {
            json!({ "job_id": job_id, "state": "retry_waiting", "scheduled_at": scheduled_at })
        }
        AfterFailure::DeadLetter => json!({ "job_id": job_id, "state": "dead_letter" }),
    }))
}

/// The same for many; jobs whose lease was lost are listed and not changed.
pub(crate) async fn fail_many(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let fails: Vec<Fail> = many(body).await?;
    let mut ids: Vec<JobId> = fails.iter().map(|fail| fail.job_id).collect();
    let failed = fails.into_iter().map(|fail| fail.failed(&caller)).collect::<Result<_, _>>()?;
    let Ended { lost, dead_letters, .. } =
        jobs.database.fail_many(failed).await.map_err(|unfinished| unfinished.error)?;
    jobs.watches.look_at(ids.iter().copied());
    // Two failures of one job count once.
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| !lost.contains(id));
    let state = |id| if dead_letters.contains(id) { "dead_letter" } else { "retry_waiting" };
    let failed: Vec<_> = ids.iter().map(|id| json!({ "job_id": id, "state": state(id) })).collect();
    Ok(Json(json!({ "ok": true, "failed": failed, "lost": lost })))
}

/// leased | in_progress -> queued or retry_waiting, to be tried again later without counting.
pub(crate) async fn snooze(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let Snooze { job_id, attempt, seconds, note } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let lease = Held { job_id, attempt }.lease(&caller);
    let by = Duration::from_secs(seconds.into());
    let scheduled_at = lease.snooze(&jobs.database, by, note.as_deref().unwrap_or_default()).await?;
    jobs.watches.look_at([job_id]);
    Ok(Json(json!({ "ok": true, "job_id": job_id, "scheduled_at": scheduled_at })))
}

/// Releases jobs that were claimed and not started, as if never claimed.
pub(crate) async fn release(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let held: Vec<Held> = many(body).await?;
    let leases = held.iter().map(|held| held.lease(&caller)).collect();
    let Ended { ended, lost, .. } =
        jobs.database.release(leases).await.map_err(|unfinished| unfinished.error)?;
    Ok(Json(json!({ "released": ended, "lost": lost })))
}

/// The heartbeat of an executor. One row per executor, whatever its processes are called: a name
/// that the client chooses could be another executor's.
pub(crate) async fn heartbeat(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let sent: HeartbeatBody = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let ticks = jobs
        .database
        .heartbeat(&Heartbeat {
            executor_name: &caller.executor_id,
            executor_kind: Some(&caller.executor),
            status: match sent.status {
                HeartbeatStatus::Ok => Status::Ok,
                HeartbeatStatus::Warn => Status::Warn,
                HeartbeatStatus::Error => Status::Error,
            },
            current_job: sent.current_job_id,
            owner: &caller.owner,
            metadata: sent.metadata.unwrap_or_default().into(),
            kinds: sent.kinds.as_deref(),
        })
        .await?;
    Ok(Json(json!({ "executor_id": caller.executor_id, "ticks_total": ticks })))
}
