//! Numbers for monitoring, in the text form of Prometheus at `/metrics`.
//!
//! One registry for the whole process. A part of the program brings a struct of its own
//! metrics, registers it once with [`Metrics::register`], and keeps the struct; numbers that
//! somebody else holds (how many sessions, how far behind) are read when they are asked for,
//! with [`Metrics::on_scrape`]. Labels are words from closed lists, or names of which so many
//! have a series and the rest share one: no ids, no paths.

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

/// The registry. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<(Registry, Vec<Described>)>,
    refresh: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    http: http::Numbers,
}

impl Metrics {
    /// A registry with the metrics of HTTP in it.
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

    /// Everything there is, with or without a value.
    pub fn described(&self) -> Vec<Described> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Runs before every answer of `/metrics`, to set gauges. Must not block.
    pub fn on_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// Everything as text.
    pub fn text(&self) -> String {
        // Before the refresh, so that nobody reads what is being set.
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        for refresh in &*self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner) {
            refresh();
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry.0);
        text
    }

    /// What HTTP counts.
    pub(crate) fn http(&self) -> &http::Numbers {
        &self.0.http
    }

    /// Counts a request.
    pub(crate) fn request(&self, request: Request, status: u16, took: Duration) {
        self.0.http.request(request, status, took);
    }
}

/// Registers what fan-outs and sessions count, without any: to know what there is.
pub fn describe_streams(metrics: &Metrics) {
    crate::stream::describe(metrics);
}

/// Serves `/metrics` and `/health` alone, for roles without the HTTP server.
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

/// `/metrics`, for whoever may ask.
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

    /// F10: requests are counted with their time, and others can add their own numbers.
    #[test]
    fn one_registry_holds_everybodys_numbers() {
        let metrics = Metrics::new();
        let gauge = Gauge::<i64>::default();
        metrics.register(|registry| registry.register("ducks", "Ducks on the water", gauge.clone()));
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
