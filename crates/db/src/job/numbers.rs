//! What this process asked about jobs, counted: every claim and every end goes through here.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use towpath_model::label::Labels;
use towpath_model::metrics::Register;

use super::ClaimedJob;
use crate::Error;
use crate::limits::LABELS_MAX;

/// Numbers of one process about jobs. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Numbers {
    claims: Family<Found, Counter>,
    claimed: Family<Kind, Counter>,
    wait: Family<Kind, Histogram, fn() -> Histogram>,
    rejected: Counter,
    labels: Arc<Mutex<Labels>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Found {
    found: &'static str,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            claims: Family::default(),
            claimed: Family::default(),
            wait: Family::new_with_constructor(seconds),
            rejected: Counter::default(),
            labels: Arc::new(Mutex::new(Labels::new(LABELS_MAX))),
        }
    }
}

/// From a millisecond to an hour, four times wider each.
fn seconds() -> Histogram {
    Histogram::new([0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0])
}

impl Numbers {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Register<'_>) {
        registry.register(
            "job_claims",
            "Claims by this process, by whether they returned jobs (some, nothing)",
            &self.claims,
        );
        registry.register("jobs_claimed", "Jobs claimed by this process, by kind", &self.claimed);
        registry.register(
            "job_wait_seconds",
            "Time from when a job was due until this process claimed it, by kind",
            &self.wait,
        );
        registry.register(
            "stale_finish_rejected",
            "Results that this process reported too late, after the lease was lost",
            &self.rejected,
        );
    }

    /// Counts a claim, kind by kind: most claims have one.
    pub(super) fn claimed(&self, jobs: &[ClaimedJob]) {
        let found = if jobs.is_empty() { "nothing" } else { "some" };
        self.claims.get_or_create(&Found { found }).inc();
        let now = Timestamp::now();
        for jobs in jobs.chunk_by(|one, next| one.kind == next.kind) {
            let kind = self.labels.lock().unwrap_or_else(PoisonError::into_inner).of(&jobs[0].kind);
            let label = Kind { kind };
            self.claimed.get_or_create(&label).inc_by(jobs.len() as u64);
            let wait = self.wait.get_or_create(&label);
            for job in jobs {
                let waited = now.duration_since(job.scheduled_at).as_secs_f64();
                wait.observe(waited.max(0.0));
            }
        }
    }

    /// Counts ends that came too late.
    pub(super) fn rejected(&self, attempts: usize) {
        if attempts > 0 {
            self.rejected.inc_by(attempts as u64);
        }
    }

    /// Counts the end of one attempt if it came too late.
    pub(super) fn ended<T>(&self, ended: Result<T, Error>) -> Result<T, Error> {
        if matches!(ended, Err(Error::LeaseLost(_))) {
            self.rejected.inc();
        }
        ended
    }
}
