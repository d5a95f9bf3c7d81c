//! Settings of sessions and their fan-out.

use std::time::Duration;

use towpath_model::circuit;
use towpath_model::fanout::Limits;
use towpath_model::token::Bearer;
use towpath_streams::{Beyond, FanOut};

/// Thresholds and waits of fan-outs.
#[derive(Debug, Clone)]
pub struct FanOutSettings {
    /// When a publish delivers, and when it leaves that to the worker.
    pub limits: Limits,
    /// When deliveries of a source stop being tried.
    pub circuit: circuit::Limits,
    /// How long a session lives without being used.
    pub session_ttl_seconds: u64,
    /// How often the cleaner says what ended.
    pub clean_every: Duration,
    /// Where the streams of sessions are; `None` is here. A project's streams are found at
    /// `{url}/v1/{project}/stream/`, or wherever `{project}` stands in the URL.
    pub sessions_url: Option<String>,
    /// What to show to that server.
    pub sessions_bearer: Bearer,
    /// Deliveries to another server that are under way at a time, for one source.
    pub batch: usize,
    /// How long one of them may take.
    pub delivery_wait_max: Duration,
}

impl Default for FanOutSettings {
    fn default() -> FanOutSettings {
        FanOutSettings {
            limits: Limits { queue_threshold: 200, queue: true, inline_max: 1000 },
            circuit: circuit::Limits { failures_max: 5, recovery: Duration::from_secs(60) },
            session_ttl_seconds: 1800,
            clean_every: Duration::from_secs(300),
            sessions_url: None,
            sessions_bearer: Bearer::default(),
            batch: 50,
            delivery_wait_max: Duration::from_secs(10),
        }
    }
}

/// The thresholds as the store takes them, which decides again inside the commit.
pub(super) fn as_fan_out(limits: Limits) -> FanOut {
    match limits.queue {
        true => FanOut { inline_max: limits.queue_threshold, beyond: Beyond::Queue },
        false => FanOut { inline_max: limits.inline_max, beyond: Beyond::Skip },
    }
}
