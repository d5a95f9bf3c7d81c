//! Numbers for monitoring, in the text form of Prometheus at `/metrics`.
//!
//! One registry for the whole process. A part of the program brings a struct of its own
//! metrics, registers it once with [`Metrics::register`], and keeps the struct; numbers that
//! somebody else holds (how many sessions, how far behind) are read when they are asked for,
//! with [`Metrics::on_scrape`]. Labels are words from closed lists: no ids, no paths.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The registry. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    refresh: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    http: Http,
}

impl Metrics {
    /// A registry with the metrics of HTTP in it.
    pub fn new() -> Metrics {
        let metrics = Metrics::default();
        let http = metrics.0.http.clone();
        metrics.register(|registry| {
            registry.register("http_requests", "Requests that were answered", http.requests);
            registry.register("http_request_seconds", "Time until an answer began", http.seconds);
        });
        metrics
    }

    /// Adds metrics. Their names get the prefix `towpath_`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        let mut registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        add(registry.sub_registry_with_prefix("towpath"));
    }

    /// Runs before every answer of `/metrics`, to set gauges. Must not block.
    pub fn on_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// Everything as text.
    pub fn text(&self) -> String {
        for refresh in &*self.0.refresh.lock().unwrap_or_else(PoisonError::into_inner) {
            refresh();
        }
        let mut text = String::new();
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    /// Counts a request.
    pub(crate) fn request(&self, request: Request, status: u16, took: Duration) {
        let Request { endpoint, method } = request;
        self.0.http.requests.get_or_create(&Answered { endpoint, method, status }).inc();
        self.0.http.seconds.get_or_create(&request).observe(took.as_secs_f64());
    }
}

/// `GET /metrics`.
pub(crate) async fn answer(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.text())
}

/// What was asked for, in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    /// Which kind of path.
    pub(crate) endpoint: &'static str,
    /// One of the methods there are, or `other`.
    pub(crate) method: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    endpoint: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Clone)]
struct Http {
    requests: Family<Answered, Counter>,
    seconds: Family<Request, Histogram, fn() -> Histogram>,
}

impl Default for Http {
    fn default() -> Http {
        Http { requests: Family::default(), seconds: Family::new_with_constructor(seconds) }
    }
}

/// From a quarter of a millisecond to the longest wait, four times wider each.
fn seconds() -> Histogram {
    Histogram::new([0.00025, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0])
}

/// A method as a label: whatever somebody invents is one word.
pub(crate) fn method(method: &hyper::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
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
