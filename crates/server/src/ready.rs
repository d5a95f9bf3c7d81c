//! Health (the process answers) and readiness (it can do its work).

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;

use crate::{Config, limits};

/// `GET /health`: 200 while the process answers.
pub(crate) async fn health() -> impl IntoResponse {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /ready`: 200 when the database, if there is one, answers and has the schema of this program,
/// else 503 and the reason.
pub(crate) async fn ready(State(config): State<Config>) -> impl IntoResponse {
    let Some(database) = &config.database else {
        return (StatusCode::OK, Json(json!({ "status": "ready" })));
    };
    let check = tokio::time::timeout(limits::READY_WAIT_MAX, database.require_schema());
    let problem = match check.await {
        Ok(Ok(())) => return (StatusCode::OK, Json(json!({ "status": "ready" }))),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the database does not respond".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "not_ready", "reason": problem })))
}

/// `GET /`: the dashboard, if there is one.
pub(crate) async fn root(State(config): State<Config>, uri: Uri) -> Response {
    match config.pages {
        Some(_) => Redirect::temporary("/ui").into_response(),
        None => not_found(uri).await.into_response(),
    }
}

/// 404 for any other path.
pub(crate) async fn not_found(uri: Uri) -> impl IntoResponse {
    let body = json!({ "error": "not_found", "detail": format!("there is nothing at {}; see /health and /ready", uri.path()) });
    (StatusCode::NOT_FOUND, Json(body))
}
