//! The trace of a request: its parent, and its own span if spans are exported.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use towpath_model::trace::TraceParent;
use towpath_trace::{Side, Span, Tracer};

const TRACEPARENT: &str = "traceparent";

/// The parent of everything a request causes. Handlers take it as an argument.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trace(pub(crate) Option<TraceParent>);

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Trace, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// Begins the span of an API request below the parent it names. A malformed parent is ignored.
pub(crate) fn begin(tracer: &Tracer, endpoint: &str, headers: &HeaderMap) -> (Span, Trace) {
    let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    let span = tracer.span(Side::Server, given, || endpoint.to_owned());
    let parent = span.traceparent().or(given);
    (span, Trace(parent))
}

/// Records the status of a request and ends its span.
pub(crate) fn end(mut span: Span, status: u16) {
    span.set("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.fail(|| format!("status {status}"));
    }
}
