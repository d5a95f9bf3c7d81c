//! The error pages.

use askama::Template;
use axum::http::{StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};

use crate::shell;

/// What a handler answers.
pub(crate) type Answer = Result<Response, Fault>;

/// One variant per response.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Not signed in.
    SignIn,
    /// Signed in, but not allowed.
    Forbidden(String),
    /// Does not exist.
    NotFound(String),
    /// A field is invalid, or the state does not allow it.
    Invalid(String),
    /// The database or the store does not respond.
    Unavailable(String),
    /// A page has a bug.
    Broken(String),
}

/// Why a request was refused, for the audit log.
#[derive(Debug, Clone)]
pub(crate) struct Refused(pub(crate) String);

impl From<towpath_db::Error> for Fault {
    fn from(error: towpath_db::Error) -> Fault {
        use towpath_db::Error;
        let text = error.to_string();
        match error {
            Error::NotFound(_) => Fault::NotFound(text),
            Error::Invalid(_) | Error::Conflict(_) | Error::GateClosed { .. } | Error::LeaseLost(_) => {
                Fault::Invalid(text)
            }
            Error::NotAuthorised(_) => Fault::Forbidden(text),
            _ => Fault::Unavailable(text),
        }
    }
}

impl From<towpath_streams::Error> for Fault {
    fn from(error: towpath_streams::Error) -> Fault {
        use towpath_streams::Error;
        match error {
            Error::NotFound(_) | Error::Deleted(_) => Fault::NotFound(error.to_string()),
            _ => Fault::Unavailable(error.to_string()),
        }
    }
}

impl From<askama::Error> for Fault {
    fn from(error: askama::Error) -> Fault {
        Fault::Broken(error.to_string())
    }
}

#[derive(Template)]
#[template(path = "fault.html")]
struct Page<'a> {
    assets: shell::Assets,
    title: &'a str,
    detail: &'a str,
    next: &'a str,
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, title, detail, next) = match &self {
            Fault::SignIn => {
                return (StatusCode::SEE_OTHER, [(header::LOCATION, "/ui/login")]).into_response();
            }
            Fault::Forbidden(detail) => {
                (StatusCode::FORBIDDEN, "Not allowed", detail, "Sign in as an administrator, or go back.")
            }
            Fault::NotFound(detail) => {
                (StatusCode::NOT_FOUND, "Not found", detail, "Go back, or to the overview.")
            }
            Fault::Invalid(detail) => {
                (StatusCode::BAD_REQUEST, "Invalid request", detail, "Go back and correct it.")
            }
            Fault::Unavailable(detail) => {
                tracing::warn!("cannot show a page: {detail}");
                let next = "Run towpath doctor; this page reloads automatically.";
                (StatusCode::SERVICE_UNAVAILABLE, "Unavailable", detail, next)
            }
            Fault::Broken(detail) => {
                tracing::error!("bug in a page: {detail}");
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal error", detail, "Please report it.")
            }
        };
        let page = Page { assets: shell::ASSETS, title, detail, next };
        let mut response = (status, Html(page.render().unwrap_or_else(|_| title.to_owned()))).into_response();
        if status.is_client_error() {
            response.extensions_mut().insert(Refused(detail.clone()));
        }
        response
    }
}

/// Anything else below `/ui`.
pub(crate) async fn not_found(uri: Uri) -> Fault {
    Fault::NotFound(format!("there is no page {}", uri.path()))
}
