//! What runs behind fan-outs: the worker that drains sources, and the cleaner's report.

use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use towpath_model::circuit::Batch;
use towpath_model::stream::name::StreamName;

use super::FanOuts;
use crate::limits;

impl FanOuts {
    /// Drains whatever waits, until `shutdown`. Wake-ups are hints; looking is the truth.
    pub(crate) async fn work(self, shutdown: CancellationToken) {
        loop {
            self.drain_all().await;
            let jitter = Duration::from_millis(fastrand::u64(..limits::FANOUT_POLL.as_millis() as u64 / 4));
            let rest = (limits::FANOUT_POLL + jitter)
                .min(self.0.circuits.next_probe(self.0.settings.circuit).unwrap_or(Duration::MAX));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.0.news.notified() => {}
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
            let delivered = match self.0.core.deliver(source.clone()).await {
                Ok(delivered) => delivered,
                Err(error) => {
                    tracing::warn!(%error, source = %source, "a fan-out waits");
                    self.0.note(&source, Batch { successes: 0, failures: 1 });
                    return;
                }
            };
            self.0.note(&source, Batch { successes: delivered.successes, failures: delivered.failures });
            if delivered.lag_bytes == 0 || delivered.failures > 0 {
                return;
            }
        }
    }

    /// Says every few minutes which sessions ended by themselves. The store ends them when
    /// their time has come, with their subscriptions, in one commit.
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
