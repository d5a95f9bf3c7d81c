//! The fan-out worker, which delivers what waits in sources, and the report of expired sessions.

use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use towpath_model::circuit::Deliveries;
use towpath_model::stream::name::StreamName;

use super::FanOuts;
use crate::limits;

impl FanOuts {
    /// Delivers what waits in sources, until `shutdown`. A wake-up is only a hint; the poll finds
    /// everything.
    pub(crate) async fn work(self, shutdown: CancellationToken) {
        loop {
            self.drain_all().await;
            let jitter = Duration::from_millis(fastrand::u64(..limits::FANOUT_POLL.as_millis() as u64 / 4));
            let rest = (limits::FANOUT_POLL + jitter)
                .min(self.0.circuits.next_probe(self.0.settings.circuit).unwrap_or(Duration::MAX));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = tokio::time::sleep(rest.max(limits::FANOUT_REST_MIN)) => {}
            }
        }
    }

    /// One pass over every source with a lag.
    pub(crate) async fn drain_all(&self) {
        let lagging = self.0.store.lagging(limits::LAGGING_MAX);
        futures_util::stream::iter(lagging)
            .for_each_concurrent(limits::DRAINS_MAX, |(source, _)| self.drain(source))
            .await;
    }

    /// Delivers from a source's cursor until nothing waits or deliveries fail.
    async fn drain(&self, source: StreamName) {
        while self.0.circuits.admits(&source, self.0.settings.circuit) {
            let delivered = match self.0.sessions.deliver(source.clone()).await {
                Ok(delivered) => delivered,
                Err(error) => {
                    tracing::warn!(%error, source = %source, "a fan-out failed; it is tried again");
                    self.0.record(&source, Deliveries { successes: 0, failures: 1 });
                    return;
                }
            };
            self.0
                .record(&source, Deliveries { successes: delivered.successes, failures: delivered.failures });
            if delivered.lag_bytes == 0 || delivered.failures > 0 {
                return;
            }
        }
    }

    /// Logs every few minutes how many sessions have expired. The store itself ends them, with their
    /// subscriptions, in one commit.
    pub(crate) async fn clean(self, shutdown: CancellationToken) {
        let mut before = self.0.store.session_counts();
        let mut since = Timestamp::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.0.settings.clean_every) => {}
            }
            let now = self.0.store.session_counts();
            let expired = now.expired - before.expired;
            let removed = now.subscriptions_removed - before.subscriptions_removed;
            self.0.counts.cleaned(expired, removed);
            if expired + removed > 0 {
                let sessions = now.sessions;
                tracing::info!(expired, subscriptions_removed = removed, sessions, %since, "cleaned sessions");
            }
            (before, since) = (now, Timestamp::now());
        }
    }
}
