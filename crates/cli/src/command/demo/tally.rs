//! What the demo has made so far.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Counts of what was accepted, plane by plane.
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
    /// What was refused or could not be reached, such as behind a gate that somebody closed.
    pub(crate) refused: u64,
    #[serde(skip)]
    complained_at: Option<Instant>,
}

/// Between two lines about refusals: a closed gate refuses several times a second.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

impl Tally {
    /// Whether it was accepted; if not, it is counted, and said now and then.
    pub(super) fn took<T, E: Into<anyhow::Error>>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error.into(),
        };
        self.refused += 1;
        if self.complained_at.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY) {
            self.complained_at = Some(Instant::now());
            tracing::warn!("the demo's {what} was refused: {error:#}");
        }
        None
    }

    pub(crate) fn in_words(&self) -> String {
        let Tally { jobs, graphs, events, messages, appends, publishes, sessions, .. } = self;
        let mut words = format!(
            "the demo made {jobs} jobs and {graphs} graphs, {events} events, {messages} messages, \
             {appends} appends, {publishes} publishes, {sessions} sessions",
        );
        if self.webhooks_received > 0 {
            words += &format!(", and took {} webhooks", self.webhooks_received);
        }
        if self.refused > 0 {
            words += &format!("; {} things were refused", self.refused);
        }
        words
    }
}
