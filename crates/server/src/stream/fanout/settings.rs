//! Settings of sessions and their fan-out.

use std::time::Duration;

use towpath_model::circuit;
use towpath_model::fanout::Limits;
use towpath_model::token::Bearer;
use towpath_streams::{Beyond, FanOut};

/// Thresholds and timeouts of fan-outs.
#[derive(Debug, Clone)]
pub struct FanOutSettings {
    /// When a publish delivers at once. [`Limits::REMOTE`] suits sessions on another server.
    pub limits: Limits,
    /// When the circuit of a source opens.
    pub circuit: circuit::Limits,
    /// How long an unused session lives.
    pub session_ttl_seconds: u64,
    /// How often expired sessions are logged.
    pub clean_every: Duration,
    /// The server with the streams of sessions; `None` is this one. The streams of a project are at
    /// `{url}/v1/{project}/stream/`, or where `{project}` stands in the URL.
    pub sessions_url: Option<String>,
    /// The token for that server.
    pub sessions_bearer: Bearer,
    /// Concurrent deliveries to another server, per source.
    pub batch: usize,
    /// The timeout of one of them.
    pub delivery_wait_max: Duration,
}

impl Default for FanOutSettings {
    fn default() -> FanOutSettings {
        FanOutSettings {
            limits: Limits::LOCAL,
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

/// The thresholds for the store, which decides again inside the commit.
pub(super) fn as_fan_out(limits: Limits) -> FanOut {
    match limits.queue {
        true => FanOut { inline_max: limits.queue_threshold, beyond: Beyond::Queue },
        false => FanOut { inline_max: limits.inline_max, beyond: Beyond::Skip },
    }
}
