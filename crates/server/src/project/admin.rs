//! `/admin/v1/projects`: the registry over HTTP, for users who can read the data directory.
//!
//! Every start makes a new token and writes it to a file there that only the owner can read;
//! `towpath project` reads it from the file. Tokens of projects do not work here, and this token
//! works nowhere else.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::record::{Change, ChangeError, Record};
use super::{Mint, Projects};
use crate::jobs::{body, error};
use crate::limits;

#[derive(Clone)]
struct Admin {
    projects: Projects,
    token: String,
}

/// The routes, which require the token.
pub(crate) fn router(projects: Projects, token: String, more: Router) -> Router {
    let admin = Admin { projects, token };
    Router::new()
        .route("/projects", get(list))
        .route("/projects/{project}", get(show).post(change))
        .route("/projects/{project}/token", axum::routing::post(mint))
        .with_state(admin.clone())
        .merge(more)
        .layer(middleware::from_fn_with_state(admin, guard))
}

async fn guard(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let given = given.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default();
    match verify_slices_are_equal(given, admin.token.as_bytes()) {
        Ok(()) => next.run(request).await,
        Err(_) => {
            let detail = "this requires the token from server.json in the server's data directory";
            (StatusCode::UNAUTHORIZED, Json(json!({ "error": "unauthorized", "detail": detail })))
                .into_response()
        }
    }
}

async fn list(State(admin): State<Admin>) -> Json<Value> {
    let projects: Vec<Value> =
        admin.projects.list().iter().map(|(name, record)| record.describe(name)).collect();
    Json(json!({ "projects": projects }))
}

async fn show(State(admin): State<Admin>, Path(project): Path<String>) -> Result<Json<Value>, ChangeError> {
    let found = admin.projects.get(&project).ok_or_else(|| ChangeError::Unknown(project.clone()))?;
    Ok(Json(found.record.describe(&project)))
}

async fn change(
    State(admin): State<Admin>,
    Path(project): Path<String>,
    body: Body,
) -> Result<Json<Value>, Refused> {
    let change: Change = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    let after: Option<Record> = admin.projects.change(&project, change).await?;
    Ok(Json(after.map_or(Value::Null, |record| record.describe(&project))))
}

async fn mint(
    State(admin): State<Admin>,
    Path(project): Path<String>,
    body: Body,
) -> Result<Json<Value>, Refused> {
    let mint: Mint = body::read(body, limits::JOB_BODY_BYTES_MAX).await?;
    Ok(Json(json!({ "token": admin.projects.mint(&project, &mint)? })))
}

/// Why a change is refused: its body, or the change itself.
enum Refused {
    Body(error::Error),
    Change(ChangeError),
}

impl From<error::Error> for Refused {
    fn from(error: error::Error) -> Refused {
        Refused::Body(error)
    }
}

impl From<ChangeError> for Refused {
    fn from(error: ChangeError) -> Refused {
        Refused::Change(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Refused::Body(error) => error.into_response(),
            Refused::Change(error) => error.into_response(),
        }
    }
}

impl IntoResponse for ChangeError {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            ChangeError::Exists(_) => (StatusCode::CONFLICT, "exists"),
            ChangeError::Unknown(_) | ChangeError::UnknownKey { .. } => (StatusCode::NOT_FOUND, "not_found"),
            ChangeError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            ChangeError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        (status, Json(json!({ "error": error, "detail": self.to_string() }))).into_response()
    }
}
