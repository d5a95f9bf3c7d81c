//! One snapshot: what a frame shows, and what `--once --json` prints.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use towpath_db::event::{EventHealth, Route};
use towpath_db::process::Process;
use towpath_db::queue::{Backlog, ExecutorHeartbeat, Latency, QueueHealth};
use towpath_model::health::Attention;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Frame {
    pub(super) at: Timestamp,
    /// What needs attention, worst first.
    pub(super) attention: Vec<Attention>,
    /// Per second since the previous snapshot; none in the first.
    pub(super) rates: Option<Rates>,
    pub(super) queue: Queue,
    pub(super) latency: Latency,
    pub(super) backlog: Vec<Backlog>,
    pub(super) executors: Vec<ExecutorHeartbeat>,
    pub(super) events: EventHealth,
    pub(super) routes: Vec<Route>,
    /// The newest unfinished ones; held ones first.
    pub(super) processes: Vec<Process>,
    pub(super) closed_gates: Vec<String>,
    pub(super) streams: Streams,
}

/// Per second.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Rates {
    /// Jobs that succeeded.
    pub(super) succeeded: f64,
    /// Attempts that failed.
    pub(super) failed: f64,
    /// Events that got a position.
    pub(super) events: f64,
}

/// Counts of the whole queue.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Queue {
    pub(super) queued: i64,
    pub(super) blocked: i64,
    pub(super) leased: i64,
    pub(super) in_progress: i64,
    pub(super) retry_waiting: i64,
    pub(super) succeeded: i64,
    pub(super) failed_attempts: i64,
    pub(super) dead: i64,
    pub(super) dead_letters_pending: i64,
    pub(super) leases_expired: i64,
    pub(super) kinds_paused: i64,
    pub(super) oldest_due_at: Option<Timestamp>,
    pub(super) event_position: i64,
}

impl From<&QueueHealth> for Queue {
    fn from(health: &QueueHealth) -> Queue {
        Queue {
            queued: health.jobs_queued,
            blocked: health.jobs_blocked,
            leased: health.jobs_leased,
            in_progress: health.jobs_in_progress,
            retry_waiting: health.jobs_retry_waiting,
            succeeded: health.jobs_succeeded,
            failed_attempts: health.attempts_failed,
            dead: health.jobs_dead_letter,
            dead_letters_pending: health.dead_letters_pending,
            leases_expired: health.leases_expired,
            kinds_paused: health.kinds_paused,
            oldest_due_at: health.oldest_due_at,
            event_position: health.event_last_position,
        }
    }
}

impl Queue {
    /// Jobs that wait to run, now or later.
    pub(super) fn waiting(&self) -> i64 {
        self.queued + self.retry_waiting
    }

    pub(super) fn running(&self) -> i64 {
        self.leased + self.in_progress
    }

    /// The rates between an earlier snapshot and this one.
    pub(super) fn since(&self, before: &Queue, seconds: f64) -> Rates {
        // A restore may set counters back; a rate is never negative.
        let rate = |now: i64, before: i64| (now - before).max(0) as f64 / seconds.max(0.001);
        Rates {
            succeeded: rate(self.succeeded, before.succeeded),
            failed: rate(self.failed_attempts, before.failed_attempts),
            events: rate(self.event_position, before.event_position),
        }
    }
}

/// What the stream server reported, or why there is no report.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Streams {
    /// Why the server did not respond.
    pub(super) missing: Option<String>,
    pub(super) streams: Vec<Value>,
    /// Streams that sessions follow.
    pub(super) sources: Vec<Value>,
    pub(super) sessions: Vec<Value>,
}

impl Streams {
    /// How many sources have an open circuit, or why that is unknown.
    pub(super) fn circuits_open(&self) -> Result<usize, String> {
        let open = |source: &&Value| source["circuit"].as_str().is_some_and(|state| state != "closed");
        self.missing.clone().map_or_else(|| Ok(self.sources.iter().filter(open).count()), Err)
    }
}
