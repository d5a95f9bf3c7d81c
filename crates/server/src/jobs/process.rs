//! Processes over HTTP, `/api/v1/processes`: started, signalled and read by applications; claimed, stepped, suspended
//! and ended by workers in any language.
//!
//! A claim takes jobs as `/jobs/claim` does and begins their attempts: each comes with its input and the results of all
//! earlier steps. The owner of the claim is the fence of every later call about the attempt.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use towpath_db::process_run::{AttemptEnd, AttemptKey, NewStep, Signal, Wait};
use towpath_model::id::ProcessId;
use towpath_model::job::{Attempt, JobId};

use super::caller::{Caller, Holder};
use super::claim::{self, Asked};
use super::{Error, Jobs, body};
use crate::limits;

/// The routes below `/processes`.
pub(super) fn router() -> Router<Jobs> {
    Router::new()
        .route("/start", post(start))
        .route("/signal", post(signal))
        .route("/claim", post(claim_many))
        .route("/begin", post(begin))
        .route("/step", post(step))
        .route("/wait", post(wait))
        .route("/extend", post(extend))
        .route("/end", post(end))
        .route("/{process_id}", get(status))
        .route("/{process_id}/resolve", post(resolve))
        .method_not_allowed_fallback(super::error::method_not_allowed)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    kind: String,
    #[serde(rename = "ref")]
    reference: String,
    #[serde(default)]
    input: Value,
    run_at: Option<Timestamp>,
    deadline_at: Option<Timestamp>,
    max_attempts: Option<i32>,
}

/// Starts a process, or finds the one of that kind and reference.
async fn start(State(jobs): State<Jobs>, holder: Holder, body: Body) -> Result<Json<Value>, Error> {
    let start: Start = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let one = json!([{ "ref": start.reference, "input": start.input, "check_at": start.run_at,
        "deadline_at": start.deadline_at, "max_attempts": start.max_attempts }]);
    let made = jobs.database.executor_token_process_start(holder.hash()?, &start.kind, &one).await?;
    Ok(Json(json!({ "ok": true, "process_id": made.first() })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalAsked {
    kind: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    process_id: Option<ProcessId>,
    name: String,
    #[serde(default)]
    payload: Value,
}

/// Tells a process something; the first signal of a name stays.
async fn signal(State(jobs): State<Jobs>, holder: Holder, body: Body) -> Result<Json<Value>, Error> {
    let asked: SignalAsked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let signal = Signal {
        process_kind: asked.kind.as_deref(),
        reference: asked.reference.as_deref(),
        process_id: asked.process_id,
        name: &asked.name,
        payload: asked.payload,
        actor: None,
    };
    let signalled = jobs.database.executor_token_process_signal(holder.hash()?, &signal).await?;
    Ok(Json(json!({ "ok": true, "process_id": signalled.process_id, "recorded": signalled.recorded })))
}

/// The job of an attempt, as a claim gets it.
#[derive(Debug, Deserialize)]
struct Task {
    process_id: ProcessId,
    attempt_no: i32,
}

/// Claims jobs that are attempts of processes, and begins them. One that was begun before, or whose process has ended,
/// is acked and left out; one of a closed gate is given back.
async fn claim_many(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let asked: Asked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let claimed = claim::claimed(&jobs, &caller, asked).await?;
    let mut attempts: Vec<AttemptKey> = vec![];
    let mut held = vec![];
    let mut unusable = vec![];
    for job in claimed {
        match serde_json::from_str::<Task>(job.payload.get()) {
            Ok(task) => {
                attempts.push((task.process_id, task.attempt_no));
                held.push(job);
            }
            Err(_) => unusable.push(job.lease),
        }
    }
    if !unusable.is_empty() {
        // Not ours to run here: /jobs/claim is for plain jobs.
        jobs.database.release(unusable).await.map_err(|unfinished| unfinished.error)?;
        if attempts.is_empty() {
            return Err(Error::Invalid(
                "a claimed job is no attempt of a process; claim it from /jobs/claim".into(),
            ));
        }
    }
    let worker = caller.owner.to_string();
    let mut answers = jobs.database.process_begin_many(&attempts, &worker, false).await?;
    let (mut begun, mut over, mut later) = (vec![], vec![], vec![]);
    for (index, job) in held.into_iter().enumerate() {
        // Locked by somebody at this moment: alone, it waits.
        if answers[index].is_none() {
            let mut one = jobs.database.process_begin_many(&attempts[index..=index], &worker, false).await?;
            answers[index] = one.pop().flatten();
        }
        match answers[index].take() {
            Some(Ok(attempt)) => {
                let mut told = json!(attempt);
                told["job"] = json!({ "job_id": job.lease.job_id(), "attempt": job.lease.attempt(),
                    "lease_until": job.lease.expires_at() });
                begun.push(told);
            }
            Some(Err(towpath_db::Error::LeaseLost(_) | towpath_db::Error::Conflict(_))) => {
                over.push(job.lease);
            }
            Some(Err(_)) | None => later.push(job.lease),
        }
    }
    if !over.is_empty() {
        jobs.database.ack_many(over).await.map_err(|unfinished| unfinished.error)?;
    }
    for lease in later {
        // An error means that its lease runs out instead.
        let _ = lease.snooze(&jobs.database, limits::PROCESS_GATE_WAIT, "").await;
    }
    Ok(Json(json!({ "ok": true, "attempts": begun })))
}

/// Begins the attempt of a job that the caller has claimed by `/jobs/claim`: for workers that run jobs and processes.
async fn begin(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let held: Held = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    // Who holds the job may begin its attempt, and nobody else.
    jobs.database.job_held(&caller.owner, (held.job_id, held.attempt)).await?;
    let whole = jobs.database.process_show(held.process_id).await?;
    let of_job =
        whole.attempts.iter().any(|one| one.attempt_no == held.attempt_no && one.job_id == Some(held.job_id));
    if !of_job {
        let detail = format!("job {} is not attempt {} of the process", held.job_id, held.attempt_no);
        return Err(Error::NotAuthorised(detail));
    }
    let key = [(held.process_id, held.attempt_no)];
    let begun = alone(jobs.database.process_begin_many(&key, &caller.owner.to_string(), false).await?)?;
    let mut told = json!(begun);
    told["ok"] = json!(true);
    Ok(Json(told))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepAsked {
    process_id: ProcessId,
    attempt_no: i32,
    name: String,
    #[serde(default)]
    value: Value,
}

/// Records the result of a step; answers the one that was recorded first.
async fn step(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let asked: StepAsked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let step =
        NewStep { attempt: (asked.process_id, asked.attempt_no), name: asked.name, value: asked.value };
    let stepped = alone(jobs.database.process_step_many(&[step], &caller.owner.to_string()).await?)?;
    Ok(Json(json!({ "ok": true, "value": stepped.value })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitAsked {
    process_id: ProcessId,
    attempt_no: i32,
    name: String,
    signal: Option<String>,
    until_at: Option<Timestamp>,
    seconds: Option<f64>,
    child: Option<Value>,
}

/// Waits: answers what came, or suspends the process, and the attempt is over.
async fn wait(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let asked: WaitAsked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let wait = Wait {
        name: &asked.name,
        signal: asked.signal.as_deref(),
        until_at: asked.until_at,
        seconds: asked.seconds,
        child: asked.child,
    };
    let attempt = (asked.process_id, asked.attempt_no);
    let waited = jobs.database.process_wait(attempt, &caller.owner.to_string(), &wait).await?;
    Ok(Json(json!({ "ok": true, "ready": waited.ready, "value": waited.value, "until_at": waited.until_at })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    process_id: ProcessId,
    attempt_no: i32,
    job_id: JobId,
    attempt: Attempt,
}

/// Extends the leases of an attempt and of its job.
async fn extend(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let held: Held = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let key = (held.process_id, held.attempt_no);
    let holds = jobs.database.process_extend_many(&[key], &caller.owner.to_string()).await?;
    let job = [(held.job_id, held.attempt)];
    let extended = jobs.database.extend_many(&caller.owner, &job, limits::PROCESS_LEASE).await?;
    if !holds[0] || extended.lost.contains(&held.job_id) {
        return Err(towpath_db::Error::LeaseLost(held.job_id.to_string()).into());
    }
    Ok(Json(json!({ "ok": true })))
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Accepted,
    Transient,
    Permanent,
    Uncertain,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndAsked {
    process_id: ProcessId,
    attempt_no: i32,
    outcome: Outcome,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    detail: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    job_id: JobId,
    attempt: Attempt,
    checkpoint: Value,
}

/// Leaves a small value for the next attempt of a plain job.
pub(super) async fn checkpoint(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let left: Checkpoint = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    jobs.database.checkpoint(&caller.owner, (left.job_id, left.attempt), &left.checkpoint).await?;
    Ok(Json(json!({ "ok": true, "job_id": left.job_id })))
}

/// How an attempt ended. Its job is to be acked, whatever the outcome.
async fn end(State(jobs): State<Jobs>, caller: Caller, body: Body) -> Result<Json<Value>, Error> {
    let asked: EndAsked = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let outcome = match asked.outcome {
        Outcome::Accepted => "accepted",
        Outcome::Transient => "transient",
        Outcome::Permanent => "permanent",
        Outcome::Uncertain => "uncertain",
    };
    let end = AttemptEnd { outcome, result: asked.result, detail: asked.detail };
    let ends = [((asked.process_id, asked.attempt_no), end)];
    let moved = alone(jobs.database.process_end_many(&ends, &caller.owner.to_string()).await?)?;
    Ok(Json(json!({ "ok": true, "state": moved.state })))
}

/// The answer to a call about one attempt.
fn alone<T>(mut answers: towpath_db::process_run::Answers<T>) -> Result<T, Error> {
    let answer = answers.pop().flatten().expect("a call about one attempt waits for its lock");
    Ok(answer?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

/// Where a process stands, at once or when it has ended or the time is over.
async fn status(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(process_id): Path<String>,
    asked: Result<Query<Waiting>, QueryRejection>,
) -> Result<impl IntoResponse, Error> {
    let process_id = parse(&process_id)?;
    let Query(Waiting { wait }) = asked.map_err(|error| Error::Invalid(error.body_text()))?;
    let wait = Duration::from_secs(wait);
    if wait > limits::JOB_WAIT_MAX {
        let most = limits::JOB_WAIT_MAX.as_secs();
        return Err(Error::Invalid(format!("wait must be between 0 and {most}; ask again to wait longer")));
    }
    let mut status = jobs.database.executor_token_process_status(holder.hash()?, process_id).await?;
    if !wait.is_zero() && status.finished_at.is_none() {
        let _place = jobs.waiting_for_ends.enter(holder.id())?;
        tokio::select! {
            () = ended(&jobs, process_id) => {}
            () = tokio::time::sleep(wait) => {}
            () = jobs.shutdown.cancelled() => {}
        }
        // The right to read it may be gone meanwhile, so the database decides again.
        status = jobs.database.executor_token_process_status(holder.hash()?, process_id).await?;
    }
    let mut told = json!(status);
    told["ok"] = json!(true);
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(told)))
}

/// Asks soon at first, and less often the longer it waits. An error is asked again.
async fn ended(jobs: &Jobs, process_id: ProcessId) {
    let mut pause = limits::JOB_LOOK_MIN;
    loop {
        tokio::time::sleep(pause).await;
        if jobs.database.process_ended(&[process_id]).await.is_ok_and(|ended| !ended.is_empty()) {
            return;
        }
        pause = (pause * 5 / 4).min(limits::JOB_LOOK_MAX);
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    resolution: String,
    reason: Option<String>,
}

/// What a person decided about a held process: succeeded, retry, gave_up or cancelled.
async fn resolve(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(process_id): Path<String>,
    body: Body,
) -> Result<Json<Value>, Error> {
    let Resolve { resolution, reason } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let (process_id, hash) = (parse(&process_id)?, holder.hash()?);
    let moved = jobs
        .database
        .executor_token_process_resolve(hash, process_id, &resolution, reason.as_deref())
        .await?;
    Ok(Json(json!({ "ok": true, "process_id": moved.process_id, "state": moved.state })))
}

fn parse(process_id: &str) -> Result<ProcessId, Error> {
    process_id.parse().map_err(|error| Error::Invalid(format!("process_id: {error}")))
}
