//! Metrics of the HTTP server: requests, connections, live readers and refusals.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use towpath_model::metrics::Register;

/// The labels of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    /// The kind of path.
    pub(crate) endpoint: &'static str,
    /// A known method, or `other`.
    pub(crate) method: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    endpoint: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Memory of readers. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct ReaderNumbers {
    pub(crate) held: Gauge,
    pub(crate) waits: Counter,
    pub(crate) refusals: Counter,
}

impl ReaderNumbers {
    fn register(&self, registry: &mut Register<'_>) {
        registry.register(
            "reader_bytes",
            "Memory held for readers that have not yet received it",
            &self.held,
        );
        registry.register("reader_waits", "Reads that waited for memory (reader_bytes_max)", &self.waits);
        registry.register(
            "reader_refusals",
            "Reads refused or ended for lack of memory (reader_bytes_max)",
            &self.refusals,
        );
    }
}

/// The metrics. Clones share their values.
#[derive(Clone)]
pub(crate) struct Numbers {
    requests: Family<Answered, Counter>,
    seconds: Family<Request, Histogram, fn() -> Histogram>,
    /// Time from a parsed append to its response.
    pub(crate) append_seconds: Histogram,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) sse_clients: Gauge,
    pub(crate) readers: ReaderNumbers,
    pub(crate) slow_clients_dropped: Counter,
    pub(crate) http2_floods: Counter,
    quota_rejections: Family<Reason, Counter>,
    auth_failures: Family<Reason, Counter>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            append_seconds: seconds(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            sse_clients: Gauge::default(),
            readers: ReaderNumbers::default(),
            slow_clients_dropped: Counter::default(),
            http2_floods: Counter::default(),
            quota_rejections: Family::default(),
            auth_failures: Family::default(),
        }
    }
}

impl Numbers {
    pub(super) fn register(&self, registry: &mut Register<'_>) {
        registry.register("http_requests", "Requests, by endpoint, method and status", &self.requests);
        registry.register(
            "http_request_seconds",
            "Time until the response starts, by endpoint and method",
            &self.seconds,
        );
        registry.register(
            "stream_append_ack_seconds",
            "Time from an append to its durable acknowledgement",
            &self.append_seconds,
        );
        registry.register("http_connections", "Open connections", &self.connections);
        registry.register(
            "http_connections_refused",
            "Connections refused by connections_max or connections_per_address_max",
            &self.connections_refused,
        );
        registry.register(
            "http2_floods",
            "HTTP/2 connections closed because of a flood of control frames",
            &self.http2_floods,
        );
        registry.register("sse_clients", "Readers following a stream over SSE", &self.sse_clients);
        self.readers.register(registry);
        registry.register(
            "slow_clients_dropped",
            "Connections closed because the client did not read",
            &self.slow_clients_dropped,
        );
        registry.register(
            "quota_rejections",
            "Stream requests rejected by a limit, by reason (too_many, too_large, busy, disk_full)",
            &self.quota_rejections,
        );
        registry.register(
            "auth_failures",
            "Requests rejected by authentication or authorisation, by reason",
            &self.auth_failures,
        );
    }

    pub(super) fn request(&self, request: Request, status: u16, took: Duration) {
        let Request { endpoint, method } = request;
        self.requests.get_or_create(&Answered { endpoint, method, status }).inc();
        self.seconds.get_or_create(&request).observe(took.as_secs_f64());
    }

    /// Counts a request that was not authorised, by a fixed reason.
    pub(crate) fn not_let_in(&self, reason: &'static str) {
        self.auth_failures.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a refused request, if its error code is about a limit.
    pub(crate) fn refused(&self, word: &'static str) {
        match word {
            "too_many" | "too_large" | "busy" | "disk_full" => {
                self.quota_rejections.get_or_create(&Reason { reason: word }).inc();
            }
            "forbidden" => self.not_let_in("forbidden"),
            _ => {}
        }
    }
}

/// Buckets from a quarter of a millisecond to the longest wait, each four times the last.
fn seconds() -> Histogram {
    Histogram::new([0.00025, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0])
}

/// A method as a label: unknown ones are `other`.
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

/// A path outside of the streams as a label.
pub(crate) fn endpoint(path: &str) -> &'static str {
    let verb = path.strip_prefix("/api/v1/jobs/");
    match (verb, path) {
        (Some("enqueue" | "enqueue_many"), _) => "jobs_enqueue",
        (Some("claim"), _) => "jobs_claim",
        (Some("ack" | "ack_many" | "fail" | "release"), _) => "jobs_finish",
        (Some(_), _) => "jobs",
        (None, "/metrics") => "metrics",
        (None, "/health" | "/ready") => "health",
        (None, path) if path.starts_with("/api/v1/events") => "events",
        (None, path) if path == "/ui" || path.starts_with("/ui/") => "ui",
        (None, path) if path.starts_with("/admin/") => "admin",
        _ => "other",
    }
}
