//! Errors as a status and `{error, detail}`: the one place that maps them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use towpath_db::executor_token::{BatchError, RefusedRow};

/// An error response.
#[derive(Debug)]
pub(crate) enum Error {
    /// No token, or an invalid one.
    Unauthenticated(String),
    /// The token does not have this right.
    NotAuthorised(String),
    /// The body is not the expected JSON.
    Malformed(String),
    /// The body is larger than this.
    TooLarge(usize),
    /// The body did not arrive in time.
    TooSlow,
    /// Too many claims wait already.
    Busy(String),
    /// A value is out of range.
    Invalid(String),
    /// The job has ended.
    Ended(String),
    /// The streams cannot be used now.
    Streams(String),
    /// Rows of a batch are refused, and with them all its rows: their places and reasons.
    Rows(Vec<RefusedRow>),
    /// An error of the database.
    Database(towpath_db::Error),
}

impl From<towpath_db::Error> for Error {
    fn from(error: towpath_db::Error) -> Error {
        Error::Database(error)
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Error {
        match error {
            BatchError::Rows(rows) => Error::Rows(rows),
            BatchError::Whole(error) => Error::Database(error),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, body) = self.told();
        let seconds = retry_after(status, &body);
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

impl Error {
    /// The status and the body.
    fn told(self) -> (StatusCode, Value) {
        if let Error::Rows(rows) = self {
            return rows_told(rows);
        }
        let (status, word, detail) = self.mapped();
        (status, json!({ "ok": false, "error": word, "detail": detail }))
    }

    /// The error of one row as the error of the whole call, for a call with one row.
    pub(crate) fn of_one(self) -> Error {
        match self {
            Error::Rows(mut rows) if rows.len() == 1 => Error::Database(rows.remove(0).error),
            error => error,
        }
    }

    fn mapped(self) -> (StatusCode, &'static str, String) {
        use towpath_db::Error as Db;
        match self {
            Error::Unauthenticated(detail) => (StatusCode::UNAUTHORIZED, "unauthenticated", detail),
            Error::NotAuthorised(detail) => (StatusCode::FORBIDDEN, "not_authorised", detail),
            Error::Malformed(detail) => (StatusCode::BAD_REQUEST, "malformed", detail),
            Error::TooLarge(bytes_max) => {
                let detail = format!("the body is larger than {bytes_max} bytes; send less, or a reference");
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
            }
            Error::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time".into())
            }
            Error::Busy(detail) => (StatusCode::SERVICE_UNAVAILABLE, "busy", detail),
            Error::Invalid(detail) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail),
            Error::Ended(detail) => (StatusCode::CONFLICT, "conflict", detail),
            Error::Streams(detail) => {
                tracing::warn!(%detail, "the stream of a job is unavailable");
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
            Error::Rows(_) => unreachable!("`told` has answered it"),
            Error::Database(Db::GateClosed { gate }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "gate_closed", format!("the gate {gate} is closed"))
            }
            Error::Database(Db::NotAuthorised(detail)) => (StatusCode::FORBIDDEN, "not_authorised", detail),
            Error::Database(error @ Db::LeaseLost(_)) => {
                (StatusCode::CONFLICT, "lease_lost", format!("{error}; stop working on it"))
            }
            Error::Database(Db::Conflict(detail)) => (StatusCode::CONFLICT, "conflict", detail),
            Error::Database(Db::NotFound(detail)) => (StatusCode::NOT_FOUND, "not_found", detail),
            Error::Database(Db::Invalid(detail)) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail),
            Error::Database(error @ Db::Postgres(_)) if is_bad_value(&error) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid", error.to_string())
            }
            Error::Database(error @ (Db::Unreachable(_) | Db::Postgres(_))) if is_passing(&error) => {
                tracing::warn!(%error, "the database is unavailable for an executor");
                let detail = "the database is not answering; try again".into();
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
            Error::Database(error) => {
                tracing::error!(%error, "executor request failed");
                let detail = "internal error; see the server's log".into();
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
        }
    }
}

/// The first row's status and word, for the whole; and every refused row with its own.
fn rows_told(rows: Vec<RefusedRow>) -> (StatusCode, Value) {
    let count = rows.len();
    let rows: Vec<_> = rows.into_iter().map(|row| (row.index, Error::Database(row.error).mapped())).collect();
    let (index, (status, word, detail)) = rows.first().expect("a refusal of rows names one").clone();
    let more = match count {
        1 => String::new(),
        _ => format!(" ({} more are refused)", count - 1),
    };
    let refused: Vec<_> = rows
        .into_iter()
        .map(|(index, (_, word, detail))| json!({ "index": index, "error": word, "detail": detail }))
        .collect();
    let detail = format!("entry {index}: {detail}{more}; nothing of the batch was written");
    (status, json!({ "ok": false, "error": word, "detail": detail, "refused": refused }))
}

/// A value that PostgreSQL cannot store, such as a zero byte in a text (SQLSTATE class 22)
/// or a kind too long for an index (class 54).
fn is_bad_value(error: &towpath_db::Error) -> bool {
    sqlstate(error).is_some_and(|code| code.starts_with("22") || code.starts_with("54"))
}

/// A lost connection, a restart, a deadlock: a retry may succeed.
fn is_passing(error: &towpath_db::Error) -> bool {
    sqlstate(error).is_none_or(|code| ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class)))
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method's type belongs to a crate that only db depends on"
)]
fn sqlstate(error: &towpath_db::Error) -> Option<&str> {
    match error {
        towpath_db::Error::Postgres(error) => error.code().map(|code| code.code()),
        _ => None,
    }
}

/// `Retry-After`: a gate stays closed for a while, other causes pass quickly.
fn retry_after(status: StatusCode, body: &Value) -> Option<&'static str> {
    (status == StatusCode::SERVICE_UNAVAILABLE).then_some(if body["error"] == "gate_closed" {
        "5"
    } else {
        "1"
    })
}

/// A method that the path does not have. The router adds `Allow`.
pub(crate) async fn method_not_allowed() -> impl IntoResponse {
    let detail = "this path does not take this method; the header Allow names those it takes";
    (
        StatusCode::METHOD_NOT_ALLOWED,
        Json(json!({ "ok": false, "error": "method_not_allowed", "detail": detail })),
    )
}
