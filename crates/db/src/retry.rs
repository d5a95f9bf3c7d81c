//! How a loop retries: it logs an error once, waits longer after each further error, and logs the recovery.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Error, limits};

/// The errors that a loop had in a row.
pub struct Retry {
    what: String,
    logged: Option<String>,
    failures: u32,
}

impl Retry {
    /// No errors so far. Log lines begin with `what`: "routing events".
    pub fn of(what: impl Into<String>) -> Retry {
        Retry { what: what.into(), logged: None, failures: 0 }
    }

    /// A pass succeeded: the row of errors is over.
    pub fn succeeded(&mut self) {
        if let Some(message) = self.logged.take() {
            tracing::info!("{}: working again after: {message}", self.what);
        }
        self.failures = 0;
    }

    /// A pass failed. Returns how long to wait before the next one.
    pub fn failed(&mut self, error: &Error) -> Duration {
        let message = error.to_string();
        let refused = matches!(
            error,
            Error::GateClosed { .. } | Error::NotFound(_) | Error::NotAuthorised(_) | Error::Invalid(_)
        );
        if self.logged.as_ref() != Some(&message) {
            match refused {
                true => tracing::info!("{} is paused: {message}", self.what),
                false => tracing::warn!("{} failed, retrying: {message}", self.what),
            }
            self.logged = Some(message);
        }
        self.failures += 1;
        jittered(if refused { limits::REFUSED_WAIT } else { backoff(self.failures) })
    }
}

fn backoff(failures: u32) -> Duration {
    (limits::RETRY_MIN * 2_u32.pow(failures.clamp(1, 6) - 1)).min(limits::RETRY_MAX)
}

/// Between three quarters and five quarters of a time, so that processes that started together drift apart.
pub fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// Ends `grace` after the order to stop. A pass in progress may finish, but a database that does not answer does not
/// keep the process from stopping.
pub async fn grace_over(shutdown: &CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    tokio::time::sleep(grace).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_start_over_after_a_success() {
        let mut retry = Retry::of("testing");
        let lost = Error::Unreachable("no server".to_owned());
        let within = |wait: Duration, middle: Duration| {
            assert!(
                wait >= middle.mul_f64(0.75) && wait <= middle.mul_f64(1.25),
                "{wait:?} is not near {middle:?}"
            );
        };
        let waits: Vec<Duration> = (0..8).map(|_| retry.failed(&lost)).collect();
        within(waits[0], limits::RETRY_MIN);
        within(waits[1], limits::RETRY_MIN * 2);
        within(waits[7], limits::RETRY_MAX);
        retry.succeeded();
        within(retry.failed(&lost), limits::RETRY_MIN);
        // A refusal does not pass by itself, so its wait is the longest at once.
        within(retry.failed(&Error::GateClosed { gate: "queue.claim".to_owned() }), limits::REFUSED_WAIT);
    }
}
