//! Metrics in the text format of Prometheus at `/metrics`.
//!
//! One registry for the whole process. Each part of the program has a struct of metrics,
//! registers it once with [`Metrics::register`], and keeps the struct. Values that other
//! parts hold (number of sessions, lag) are read at each scrape, with [`Metrics::on_scrape`].
//! Labels have values from fixed lists, or names of which a limited number have a series of their
//! own and the rest share one: no ids, no paths.

mod access;
mod http;
mod survey;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use towpath_model::metrics::{Described, Register};
use towpath_trace::Tracer;

pub use access::Access;
pub(crate) use http::{ReaderNumbers, Request, endpoint, method};
pub use survey::SurveyNumbers;

use crate::admission::ConnectionLimits;
use crate::budget::{Budget, ReaderLimits};
use crate::front::Front;
use crate::hosts::Hosts;
use crate::stop::Stop;
use crate::{accept, limits, ready};

/// The registry. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<(Registry, Vec<Described>)>,
    refresh: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    http: http::Numbers,
}

impl Metrics {
    /// A registry with the metrics of HTTP.
    pub fn new() -> Metrics {
        let metrics = Metrics::default();
        metrics.register(|registry| metrics.0.http.register(registry));
        metrics
    }

    /// Adds metrics. Their names get the prefix `towpath_`.
    pub fn register(&self, add: impl FnOnce(&mut Register<'_>)) {
        let mut inner = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let (registry, described) = &mut *inner;
        add(&mut Register { registry: registry.sub_registry_with_prefix("towpath"), described });
    }

    /// The descriptions of all metrics, with or without a value.
    pub fn described(&self) -> Vec<Described> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Runs before every scrape, to set gauges. Must not block.
    pub fn on_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// All metrics as text.
    pub fn text(&self) -> String {
        // Before the refresh, so that no other scrape reads half of it.
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        for refresh in &*self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner) {
            refresh();
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry.0);
        text
    }

    /// The metrics of HTTP.
    pub(crate) fn http(&self) -> &http::Numbers {
        &self.0.http
    }

    /// Counts a request.
    pub(crate) fn request(&self, request: Request, status: u16, took: Duration) {
        self.0.http.request(request, status, took);
    }
}

/// Registers the metrics of fan-outs and sessions without any, to list them.
pub fn describe_streams(metrics: &Metrics) {
    crate::stream::describe(metrics);
}

/// Serves only `/metrics` and `/health`, for roles without the HTTP server.
pub async fn run(listener: TcpListener, metrics: Metrics, access: Access, shutdown: CancellationToken) {
    let router = Router::new()
        .route("/health", get(ready::health))
        .merge(router(metrics.clone(), access))
        .fallback(ready::not_found);
    let hosts = Hosts::new(listener.local_addr().ok(), &[]);
    let budget = Budget::new(ReaderLimits::default(), metrics.http().readers.clone());
    let front = Front { streams: None, router, hosts, budget, metrics, tracer: Tracer::default() };
    let connections = ConnectionLimits { all: limits::METRICS_CONNECTIONS_MAX, per_address: None };
    accept::run(listener, front, connections, None, shutdown, Stop::default()).await;
}

/// `/metrics`, for clients that may read it.
pub(crate) fn router(metrics: Metrics, access: Access) -> Router {
    Router::new().route("/metrics", get(answer)).with_state((metrics, Arc::new(access)))
}

async fn answer(State((metrics, access)): State<(Metrics, Arc<Access>)>, headers: HeaderMap) -> Response {
    if let Some(refusal) = access.refusal(&headers) {
        return refusal;
    }
    let text = metrics.text();
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    /// F10: requests are counted with their time, and other parts can add metrics.
    #[test]
    fn one_registry_holds_all_metrics() {
        let metrics = Metrics::new();
        let gauge = Gauge::<i64>::default();
        metrics.register(|registry| registry.register("ducks", "Ducks on the water", &gauge));
        metrics.on_scrape(move || {
            gauge.set(7);
        });
        let request = Request { endpoint: "publish", method: method(&hyper::Method::POST) };
        metrics.request(request, 204, Duration::from_millis(2));
        let text = metrics.text();
        for line in [
            "towpath_ducks 7",
            r#"towpath_http_requests_total{endpoint="publish",method="POST",status="204"} 1"#,
            r#"towpath_http_request_seconds_bucket{le="0.004",endpoint="publish",method="POST"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert_eq!(method(&hyper::Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
