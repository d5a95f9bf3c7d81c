//! Metrics with their descriptions: a registry that remembers what was registered.
//!
//! The reference page of metrics uses the same descriptions as collectors, including metrics without a value.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

/// The description of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Its name, without prefix and ending.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its help text.
    pub help: &'static str,
}

/// A registry to which each part adds its metrics.
pub struct Register<'a> {
    /// The registry.
    pub registry: &'a mut Registry,
    /// Their descriptions.
    pub described: &'a mut Vec<Described>,
}

impl Register<'_> {
    /// Adds a metric.
    pub fn register(&mut self, name: &'static str, help: &'static str, metric: &(impl Metric + Clone)) {
        self.described.push(Described { name, kind: word(metric.metric_type()), help });
        self.registry.register(name, help, metric.clone());
    }
}

fn word(kind: MetricType) -> &'static str {
    match kind {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
        MetricType::Info => "info",
        MetricType::Unknown => "unknown",
    }
}
