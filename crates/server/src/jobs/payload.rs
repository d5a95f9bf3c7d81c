//! Stored payloads, `/api/v1/payloads`: the data that a job names instead of carrying it (Q25).
//!
//! A token that may enqueue may store. Only the holder of a job's lease may read the payload that the job names, so a
//! reference alone gives no access. Who may read a job may read its result, which is a payload if it is large. Bodies
//! are bytes, returned as they were stored.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;
use towpath_db::executor_token_job::JobRight;
use towpath_db::payload::NewPayload;
use towpath_model::job::{Attempt, JobId};
use towpath_model::payload::{BYTES_MAX, PayloadRef};

use super::caller::{Caller, Holder};
use super::{Error, Jobs, body};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    #[serde(default = "default_project")]
    project: String,
}

fn default_project() -> String {
    "default".to_owned()
}

/// Stores the body, with its content type, and answers its reference.
pub(crate) async fn put(
    State(jobs): State<Jobs>,
    holder: Holder,
    place: Result<Query<Place>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Error> {
    let Query(Place { project }) = place.map_err(|error| Error::Invalid(error.body_text()))?;
    let content_type = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let content_type = content_type.unwrap_or("application/octet-stream");
    let _permit = admitted(&jobs)?;
    let data = body::bytes(body, BYTES_MAX).await?;
    let new = NewPayload { data: &data, content_type, project: &project };
    let payload_ref = jobs.database.executor_token_payload_put(holder.hash()?, new).await?;
    Ok((StatusCode::CREATED, Json(json!({ "payload_ref": payload_ref.to_string() }))))
}

/// One of the few slots for payloads in this server's memory.
fn admitted(jobs: &Jobs) -> Result<SemaphorePermit<'_>, Error> {
    let busy = "too many payloads are being transferred; try again in a moment";
    jobs.payloads.try_acquire().map_err(|_| Error::Busy(busy.into()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leased {
    job_id: JobId,
    attempt: Attempt,
}

/// The payload that a job leased by the caller names in `payload_ref`.
pub(crate) async fn get(
    State(jobs): State<Jobs>,
    caller: Caller,
    Path(asked): Path<String>,
    leased: Result<Query<Leased>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Error> {
    let asked: PayloadRef = asked.parse().map_err(Error::Invalid)?;
    let Query(Leased { job_id, attempt }) = leased.map_err(|error| {
        Error::Invalid(format!("{}; send the id of a job you have leased and its attempt", error.body_text()))
    })?;
    let _permit = admitted(&jobs)?;
    let payload = jobs.database.job_payload(&caller.owner, (job_id, attempt)).await?;
    if payload.payload_ref != asked {
        return Err(Error::NotAuthorised(format!(
            "job {job_id} refers to {}, not {asked}",
            payload.payload_ref
        )));
    }
    Ok(untrusted(payload.content_type, payload.data))
}

/// What the handler of a job returned, also where the job has only a reference to it.
pub(crate) async fn result(
    State(jobs): State<Jobs>,
    holder: Holder,
    Path(job_id): Path<String>,
) -> Result<Response, Error> {
    let job_id = super::status::parse(&job_id)?;
    let result = holder.job_status(&jobs, job_id, JobRight::Read).await?.result;
    let Some(result) = result else {
        let none =
            format!("job {job_id} has no result: it has not succeeded, or its handler returned nothing");
        return Err(towpath_db::Error::NotFound(none).into());
    };
    if PayloadRef::of_result(&result).is_none() {
        return Ok(untrusted("application/json".to_owned(), result.to_string().into_bytes()));
    }
    let _permit = admitted(&jobs)?;
    let payload = jobs.database.job_result_payload(job_id).await?;
    Ok(untrusted(payload.content_type, payload.data))
}

/// Content of others: a browser must not run it, and no cache may keep it.
fn untrusted(content_type: String, data: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, data).into_response()
}
