//! What a worker counts about the jobs it runs.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use towpath_model::metrics::Register;

use crate::handler::{Follow, Output, Result};

/// The numbers. Clones are one. Kinds are those with a handler, so that labels are bounded.
#[derive(Clone)]
pub(crate) struct Numbers {
    run: Family<Ended, Histogram, fn() -> Histogram>,
    running: Family<Kind, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    kind: Arc<str>,
    outcome: &'static str,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { run: Family::new_with_constructor(seconds), running: Family::default() }
    }
}

/// From a quarter of a millisecond to an hour, four times wider each.
fn seconds() -> Histogram {
    Histogram::new([0.00025, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0])
}

impl Numbers {
    pub(crate) fn register(&self, registry: &mut Register<'_>) {
        registry.register(
            "job_run_seconds",
            "Run time of handlers in this process, by kind and outcome (succeeded, failed, permanent, snoozed)",
            &self.run,
        );
        registry.register("jobs_running", "Handlers running in this process, by kind", &self.running);
    }

    /// A handler begins.
    pub(crate) fn began(&self, kind: &Arc<str>) {
        self.running.get_or_create(&Kind { kind: kind.clone() }).inc();
    }

    /// And has ended.
    pub(crate) fn ended(&self, kind: &Arc<str>, result: &Result<Output>, took: Duration) {
        self.running.get_or_create(&Kind { kind: kind.clone() }).dec();
        let outcome = outcome(result);
        self.run.get_or_create(&Ended { kind: kind.clone(), outcome }).observe(took.as_secs_f64());
    }
}

/// How it went, in a word.
pub(crate) fn outcome(result: &Result<Output>) -> &'static str {
    match result.as_ref().map_err(|failure| failure.follow) {
        Ok(_) => "succeeded",
        Err(Follow::Retry(_)) => "failed",
        Err(Follow::Permanent) => "permanent",
        Err(Follow::Snooze(_)) => "snoozed",
        Err(Follow::Suspended) => "succeeded",
    }
}
