//! The front door: stream paths go straight to the streams, everything else to the router.
//!
//! Streams are looked up before the router because they are the hot path, and because a
//! stream's id may have any number of segments.

use std::convert::Infallible;
use std::time::Instant;

use axum::Router;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tower::ServiceExt;
use towpath_model::stream::name::Place;
use towpath_trace::Tracer;

use crate::body::Body;
use crate::metrics::{self, Metrics};
use crate::stream::Streams;
use crate::trace;
use crate::upload::Upload;

/// What answers requests. Cheap to clone, once per connection.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) streams: Option<Streams>,
    pub(crate) router: Router,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
}

impl Front {
    pub(crate) async fn answer(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if let Some(streams) = &self.streams
            && let Some(place) = Place::parse(request.uri().path())
        {
            return Ok(streams.answer(place, request.map(Upload::Coming)).await);
        }
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
        let response = self.router.clone().oneshot(request.map(axum::body::Body::new)).await;
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
        Ok(response.map(Body::Other))
    }
}
