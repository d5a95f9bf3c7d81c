//! `POST /api/v1/executors/register`: a worker subscribes its executor to the kinds it handles.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use towpath_db::executor_token::Handles;

use super::caller::Caller;
use super::{Error, Jobs, body};
use crate::limits;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    kinds: Vec<String>,
    concurrency: Option<i32>,
}

/// Subscribes to kinds that are not subscribed yet. Doing it again changes nothing.
pub(crate) async fn register(
    State(jobs): State<Jobs>,
    caller: Caller,
    body: Body,
) -> Result<Json<Value>, Error> {
    let Register { kinds, concurrency } = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let done = jobs
        .database
        .executor_token_register(&caller.hash, &caller.owner, Handles { kinds: &kinds, concurrency })
        .await?;
    let mut told = serde_json::to_value(done).expect("our own types serialise");
    told["ok"] = json!(true);
    Ok(Json(told))
}
