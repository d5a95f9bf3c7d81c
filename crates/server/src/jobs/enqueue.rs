//! `enqueue` and `enqueue_many`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use towpath_db::job::Enqueued;
use towpath_model::trace::TraceParent;
use towpath_trace::{Side, Span};
use uuid::Uuid;

use super::caller::Holder;
use super::{Error, Jobs, body};
use crate::limits;
use crate::trace::Trace;

/// A job as a client describes it. No actor: that is always the token's.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    job_kind: String,
    executor: Option<String>,
    event_domain: Option<String>,
    source_ref: Option<String>,
    target_ref: Option<String>,
    payload_ref: Option<String>,
    /// Passed on unparsed: numbers keep all their digits.
    payload_json: Option<Box<RawValue>>,
    priority: Option<i32>,
    scheduled_at: Option<Timestamp>,
    max_attempts: Option<i32>,
    idempotency_key: Option<String>,
    run_id: Option<Uuid>,
    /// From the header of the request, not its body.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    traceparent: Option<TraceParent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    jobs: Vec<Job>,
}

/// One job: 201 with its id, 200 if an unfinished job has its idempotency key.
pub(crate) async fn enqueue(
    State(jobs): State<Jobs>,
    holder: Holder,
    trace: Trace,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Error> {
    let mut job: Job = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let mut span = jobs.enqueue_span(trace, 1, || job.job_kind.clone());
    job.traceparent = span.traceparent().or(trace.0);
    let answers = jobs.database.executor_token_enqueue(holder.hash()?, &[job]).await;
    let answers = answers.map_err(|error| Error::from(error).of_one())?;
    let answer = answers.into_iter().next().expect("one answer for one job");
    if span.is_on() {
        span.set("towpath.job.id", answer.job_id.to_string());
    }
    let status = if answer.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(told(answer))))
}

/// Many jobs, all of them or none: 200 with their ids, in order.
pub(crate) async fn enqueue_many(
    State(jobs): State<Jobs>,
    holder: Holder,
    trace: Trace,
    body: Body,
) -> Result<Json<Value>, Error> {
    let mut many: Many = body::read(body, limits::JOBS_BODY_BYTES_MAX).await?;
    if many.jobs.is_empty() || many.jobs.len() > limits::JOBS_PER_CALL_MAX {
        return Err(Error::Invalid(format!("jobs must have 1 to {} entries", limits::JOBS_PER_CALL_MAX)));
    }
    let span = jobs.enqueue_span(trace, many.jobs.len(), || "many".to_owned());
    let parent = span.traceparent().or(trace.0);
    many.jobs.iter_mut().for_each(|job| job.traceparent = parent);
    let answers = jobs.database.executor_token_enqueue(holder.hash()?, &many.jobs).await?;
    drop(span);
    Ok(Json(json!({ "jobs": answers.into_iter().map(told).collect::<Vec<_>>() })))
}

impl Jobs {
    /// The parent span of every attempt of the jobs enqueued now.
    fn enqueue_span(&self, trace: Trace, jobs: usize, kind: impl Fn() -> String) -> Span {
        let mut span = self.tracer.span(Side::Producer, trace.0, || format!("enqueue {}", kind()));
        if span.is_on() {
            span.set("towpath.job.kind", kind());
            span.set("towpath.jobs", jobs as i64);
        }
        span
    }
}

fn told(enqueued: Enqueued) -> Value {
    json!({ "job_id": enqueued.job_id, "duplicate": enqueued.duplicate })
}
