//! The trace of a request: the parent it came with, and its own span if anybody exports.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use towpath_model::trace::TraceParent;
use towpath_trace::{Side, Span, Tracer};

const TRACEPARENT: &str = "traceparent";

/// What whatever a request causes names as its parent. Handlers take it as an argument.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trace(pub(crate) Option<TraceParent>);

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Trace, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// Begins the span of a request to our API, below the parent it names. A malformed one is none.
pub(crate) fn begin(tracer: &Tracer, endpoint: &str, headers: &HeaderMap) -> (Span, Trace) {
    let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    let span = tracer.span(Side::Server, given, || endpoint.to_owned());
    let parent = span.traceparent().or(given);
    (span, Trace(parent))
}

/// Says how a request went, and ends its span.
pub(crate) fn end(mut span: Span, status: u16) {
    span.set("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.fail(|| format!("status {status}"));
    }
}
