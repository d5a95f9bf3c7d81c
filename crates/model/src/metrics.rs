//! Metrics with their descriptions: a registry that remembers what was put into it.
//!
//! A page about every metric is written from the same words that a collector gets, also about those
//! that have no value yet.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

/// What is known about a metric without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Its name, without prefix and ending.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What it says.
    pub help: &'static str,
}

/// A registry on its way through those who have metrics.
pub struct Register<'a> {
    /// Where they go.
    pub registry: &'a mut Registry,
    /// What is remembered of them.
    pub described: &'a mut Vec<Described>,
}

impl Register<'_> {
    /// Adds a metric.
    pub fn register(&mut self, name: &'static str, help: &'static str, metric: impl Metric) {
        self.described.push(Described { name, kind: word(metric.metric_type()), help });
        self.registry.register(name, help, metric);
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
