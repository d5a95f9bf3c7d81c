//! One job for the program that enqueued it: `GET /api/v1/jobs/{job_id}`, which may wait for its end, and `cancel`; and
//! its stream: `append` for the worker, `token` for a page in a browser.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use towpath_db::executor_token_job::JobRight;
use towpath_db::job_stream::JobStatus;
use towpath_model::job::{Attempt, JobId};

use super::caller::{Caller, Holder};
use super::stream::JobStreams;
use super::{Error, Jobs, body};
use crate::limits;
use crate::project::Origins;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    reason: Option<String>,
}

/// Where a job stands, at once or when it has ended or the time is over.
pub(crate) async fn get(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(job_id): Path<String>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<impl IntoResponse, Error> {
    let job_id = parse(&job_id)?;
    let Query(Asked { wait }) = asked.map_err(|error| Error::Invalid(error.body_text()))?;
    let wait = Duration::from_secs(wait);
    if wait > limits::JOB_WAIT_MAX {
        let most = limits::JOB_WAIT_MAX.as_secs();
        return Err(Error::Invalid(format!("wait must be between 0 and {most}; ask again to wait longer")));
    }
    let mut status = holder.job_status(&jobs, job_id, JobRight::Read).await?;
    if !wait.is_zero() && !status.state.ended() {
        let _place = jobs.waiting_for_ends.enter(holder.id())?;
        tokio::select! {
            () = jobs.watches.ended(job_id) => {}
            () = tokio::time::sleep(wait) => {}
            () = jobs.shutdown.cancelled() => {}
        }
        // The right to read it may be gone meanwhile, so the database decides again.
        status = holder.job_status(&jobs, job_id, JobRight::Read).await?;
    }
    // Who has the token of a job wants to follow it; the token may have been made where there is no stream yet.
    if let (Holder::Job(_), Some(streams)) = (&holder, &jobs.streams)
        && let Err(error) = streams.open(job_id).await
    {
        tracing::warn!(%job_id, ?error, "cannot create the stream of a job");
    }
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(told(&jobs, status))))
}

/// Ends the job; its worker, if there is one, gets `lease_lost`.
pub(crate) async fn cancel(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(job_id): Path<String>,
    body: Body,
) -> Result<Json<Value>, Error> {
    // The body first: a refusal before it would cut off a client that is still sending.
    let Cancel { reason } = read_or(body, Cancel { reason: None }).await?;
    let job_id = parse(&job_id)?;
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > limits::REASON_CHARS_MAX) {
        return Err(Error::Invalid(format!("reason: at most {} characters", limits::REASON_CHARS_MAX)));
    }
    let moved = holder.job_cancel(&jobs, job_id, reason.as_deref()).await?;
    jobs.watches.look_at([job_id]);
    Ok(Json(json!({ "ok": true, "job_id": moved.job_id, "state": moved.state })))
}

pub(crate) fn parse(job_id: &str) -> Result<JobId, Error> {
    job_id.parse().map_err(|error| Error::Invalid(format!("job_id: {error}")))
}

#[derive(Serialize)]
struct Told {
    ok: bool,
    #[serde(flatten)]
    status: JobStatus,
    /// The path of its stream, once there is one.
    stream: Option<String>,
}

fn told(jobs: &Jobs, status: JobStatus) -> Told {
    let stream = jobs.streams.as_ref().and_then(|streams| streams.path(status.id));
    Told { ok: true, status, stream }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunk {
    attempt: Attempt,
    /// Passed on unparsed.
    data: Box<RawValue>,
}

/// Appends one value to the stream of a job that the caller holds.
pub(crate) async fn append(
    State(jobs): State<Jobs>,
    caller: Caller,
    Path(job_id): Path<String>,
    body: Body,
) -> Result<Json<Value>, Error> {
    let Chunk { attempt, data } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let job_id = parse(&job_id)?;
    jobs.database.job_held(&caller.owner, (job_id, attempt)).await?;
    let key = jobs.streams()?.chunk((job_id, attempt), &data).await?;
    Ok(Json(json!({ "ok": true, "job_id": job_id, "key": key })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskToken {
    #[serde(default = "hour")]
    seconds: u64,
}

fn hour() -> u64 {
    limits::JOB_TOKEN_SECONDS
}

/// A token for a page in a browser, and the stream that it can follow from now on.
pub(crate) async fn token(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(job_id): Path<String>,
    body: Body,
) -> Result<Json<Value>, Error> {
    let AskToken { seconds } = read_or(body, AskToken { seconds: hour() }).await?;
    let job_id = parse(&job_id)?;
    // The token of a job makes no other tokens.
    holder.hash()?;
    if !(1..=limits::JOB_TOKEN_SECONDS_MAX).contains(&seconds) {
        let most = limits::JOB_TOKEN_SECONDS_MAX;
        return Err(Error::Invalid(format!("seconds must be between 1 and {most}")));
    }
    holder.job_status(&jobs, job_id, JobRight::Cancel).await?;
    let streams = jobs.streams()?;
    let stream = streams.open(job_id).await?;
    let token = streams.mint(job_id, seconds).await?;
    let expires_at = Timestamp::now() + Duration::from_secs(seconds);
    Ok(Json(json!({ "ok": true, "token": token, "expires_at": expires_at, "stream": stream })))
}

/// The body, or this if it is empty.
async fn read_or<T: DeserializeOwned>(body: Body, empty: T) -> Result<T, Error> {
    let bytes = body::bytes(body, limits::JOB_BODY_BYTES_MAX).await?;
    if bytes.is_empty() { Ok(empty) } else { body::parse(&bytes) }
}

impl Jobs {
    fn streams(&self) -> Result<&JobStreams, Error> {
        self.streams.as_ref().ok_or_else(|| Error::Streams("this server has no stream store".into()))
    }
}

/// The answer to a browser that asks whether a page may call.
pub(crate) async fn preflight() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Lets pages of the origins that the project of jobs allows read the answer.
pub(crate) async fn cors(State(jobs): State<Jobs>, request: Request, next: Next) -> Response {
    let origins = jobs.streams.as_ref().map(|streams| streams.origins(request.headers()));
    let mut response = next.run(request).await;
    if let Some(Origins::One(origin)) = origins {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        let allowed = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
            (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        ];
        headers.extend(allowed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    }
    response
}
