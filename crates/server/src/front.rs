//! Dispatch: stream paths go straight to the streams, everything else to the router.
//!
//! Streams are looked up before the router because they are the hot path, and because a
//! stream's id may have any number of segments. Requests for another host name are refused before
//! either.

use std::convert::Infallible;
use std::time::Instant;

use axum::response::IntoResponse;
use axum::{Json, Router};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode};
use serde_json::json;
use tower::ServiceExt;
use towpath_model::stream::name::Resource;
use towpath_trace::Tracer;

use crate::body::Body;
use crate::budget::Budget;
use crate::hosts::{Hosts, SAFE_FIELDS};
use crate::limits::SMALL_ANSWER_BYTES;
use crate::metrics::{self, Metrics};
use crate::stream::Streams;
use crate::trace;
use crate::upload::{Timely, Upload};

/// The address of the client, as an extension of the request.
pub(crate) use towpath_model::address::Client;

/// Answers requests. Cheap to clone, once per connection.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) streams: Option<Streams>,
    pub(crate) router: Router,
    pub(crate) hosts: Hosts,
    pub(crate) budget: Budget,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
}

impl Front {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let authority = request.uri().authority().map(Authority::as_str);
        if !self.hosts.allow(request.headers(), authority) {
            self.metrics.http().not_let_in("wrong_host");
            return Ok(safe(wrong_host(&request).map(|body| Body::Other(body, None))));
        }
        if let Some(streams) = &self.streams
            && let Some(resource) = Resource::parse(request.uri().path())
        {
            return Ok(streams.answer(resource, request.map(Upload::Coming)).await);
        }
        Ok(safe(self.within_budget(self.route(request).await).await))
    }

    /// A large answer holds memory until it has been sent.
    async fn within_budget(&self, response: axum::response::Response) -> Response<Body> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = bytes.filter(|bytes| *bytes > SMALL_ANSWER_BYTES) else {
            return response.map(|body| Body::Other(body, None));
        };
        let share = self.budget.others();
        match share.hold(bytes).await {
            Some(held) => response.map(|body| Body::Other(body, Some(Box::new((share, held))))),
            None => Front::busy(
                "the memory for answers is used up by clients that do not read them; try again soon",
            ),
        }
    }

    /// 503 with `Retry-After`.
    pub(crate) fn busy(detail: &str) -> Response<Body> {
        let body = Json(json!({ "error": "busy", "detail": detail }));
        let response = (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body).into_response();
        safe(response.map(|body| Body::Other(body, None)))
    }

    /// Everything but streams.
    async fn route(&self, mut request: Request<Incoming>) -> axum::response::Response {
        let began = Instant::now();
        let measured = metrics::Request {
            endpoint: metrics::endpoint(request.uri().path()),
            method: metrics::method(request.method()),
        };
        let span = request.uri().path().starts_with("/api/").then(|| {
            let (span, trace) = trace::begin(&self.tracer, measured.endpoint, request.headers());
            request.extensions_mut().insert(trace);
            span
        });
        let response =
            self.router.clone().oneshot(request.map(|body| axum::body::Body::new(Timely::new(body)))).await;
        let response = response.unwrap_or_else(|never| match never {});
        let status = response.status().as_u16();
        self.metrics.request(measured, status, began.elapsed());
        if let Some(span) = span {
            trace::end(span, status);
        }
        match status {
            401 => self.metrics.http().not_let_in("unauthenticated"),
            403 => self.metrics.http().not_let_in("forbidden"),
            _ => {}
        }
        response
    }
}

/// Adds the headers that keep an answer from running as a page; the dashboard sets its own.
fn safe(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in SAFE_FIELDS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// 421: the request names another host, by mistake or by DNS rebinding.
fn wrong_host(request: &Request<Incoming>) -> axum::response::Response {
    let said = request.headers().get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let said = String::from_utf8_lossy(said);
    let detail = format!(
        "this server listens on loopback and does not answer to the host {said:?}; \
         list other host names in TOWPATH_HOSTS"
    );
    let body = Json(json!({ "error": "wrong_host", "detail": detail }));
    (StatusCode::MISDIRECTED_REQUEST, body).into_response()
}
