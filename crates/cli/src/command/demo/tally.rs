//! What the demo has created so far.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Counts of what was accepted.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) jobs: u64,
    pub(crate) graphs: u64,
    pub(crate) events: u64,
    pub(crate) webhooks_received: u64,
    pub(crate) messages: u64,
    pub(crate) appends: u64,
    pub(crate) publishes: u64,
    pub(crate) sessions: u64,
    /// Requests that failed, for example because a gate was closed.
    pub(crate) refused: u64,
    #[serde(skip)]
    complained_at: Option<Instant>,
}

/// Log refusals at most this often: a closed gate refuses several times a second.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

impl Tally {
    /// Returns the accepted value; counts a refusal and logs it now and then.
    pub(super) fn took<T, E: Into<anyhow::Error>>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error.into(),
        };
        self.refused += 1;
        if self.complained_at.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY) {
            self.complained_at = Some(Instant::now());
            tracing::warn!("demo: {what} refused: {error:#}");
        }
        None
    }

    pub(crate) fn in_words(&self) -> String {
        let Tally { jobs, graphs, events, messages, appends, publishes, sessions, .. } = self;
        let mut words = format!(
            "demo: {jobs} jobs, {graphs} graphs, {events} events, {messages} messages, \
             {appends} appends, {publishes} publishes, {sessions} sessions",
        );
        if self.webhooks_received > 0 {
            words += &format!(", {} webhooks received", self.webhooks_received);
        }
        if self.refused > 0 {
            words += &format!("; {} requests refused", self.refused);
        }
        words
    }
}
