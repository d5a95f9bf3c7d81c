//! The metrics of fan-outs and sessions: one family per category of the source document.

use std::sync::Mutex;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use towpath_model::fanout::Mode;
use towpath_streams::SessionCounts;

use super::Endpoint;
use crate::metrics::Metrics;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    event: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    error: &'static str,
}

type Events = Family<Event, Counter>;

#[derive(Default)]
pub(super) struct Counts {
    fanout: Events,
    deliveries: Family<Outcome, Counter>,
    subscription: Events,
    session: Events,
    cleanup: Events,
    cleaned_sessions: Counter,
    cleaned_subscriptions: Counter,
    publish: Events,
    publish_error: Family<Failed, Counter>,
    sessions: Gauge,
    lag_bytes: Gauge,
    lagging_sources: Gauge,
    open_circuits: Gauge,
    /// The store's counts that are in `session` already.
    seen: Mutex<SessionCounts>,
}

/// The lag of all fan-outs together.
pub(super) struct Lag {
    pub(super) sources: usize,
    pub(super) bytes: u64,
    pub(super) open_circuits: usize,
}

impl Counts {
    pub(super) fn new(metrics: &Metrics) -> Counts {
        let counts = Counts::default();
        metrics.register(|registry| {
            registry.register("fanout", "Publishes, by fan-out mode", &counts.fanout);
            registry.register("fanout_deliveries", "Deliveries to sessions", &counts.deliveries);
            registry.register("subscription", "Subscriptions created and removed", &counts.subscription);
            registry.register("session", "Session events, by event", &counts.session);
            registry.register("cleanup", "Session clean-up runs", &counts.cleanup);
            registry.register(
                "cleanup_sessions",
                "Sessions removed because they expired",
                &counts.cleaned_sessions,
            );
            registry.register(
                "cleanup_subscriptions",
                "Subscriptions removed with expired sessions",
                &counts.cleaned_subscriptions,
            );
            registry.register("publish", "Publishes and plain appends, by event", &counts.publish);
            registry.register("publish_error", "Refused publishes", &counts.publish_error);
            registry.register("sessions", "Current sessions", &counts.sessions);
            registry.register("fanout_lag_bytes", "Bytes waiting in sources", &counts.lag_bytes);
            registry.register(
                "fanout_lagging_sources",
                "Sources with waiting messages",
                &counts.lagging_sources,
            );
            registry.register("fanout_open_circuits", "Sources with an open circuit", &counts.open_circuits);
        });
        // Every label exists from the start, at zero.
        for mode in Mode::ALL {
            drop(counts.fanout.get_or_create(&Event { event: fanout_event(mode) }));
        }
        for event in ["subscribe", "unsubscribe"] {
            drop(counts.subscription.get_or_create(&Event { event }));
        }
        for event in ["session_create", "session_touch", "session_delete", "session_expire"] {
            drop(counts.session.get_or_create(&Event { event }));
        }
        drop(counts.cleanup.get_or_create(&Event { event: "cleanup_batch" }));
        for endpoint in [Endpoint::Publish, Endpoint::Append] {
            drop(counts.publish.get_or_create(&Event { event: publish_event(endpoint) }));
        }
        counts
    }

    pub(super) fn published(&self, mode: Mode, endpoint: Endpoint) {
        self.publish.get_or_create(&Event { event: publish_event(endpoint) }).inc();
        self.fanout.get_or_create(&Event { event: fanout_event(mode) }).inc();
    }

    pub(super) fn refused(&self, error: &'static str) {
        self.publish_error.get_or_create(&Failed { error }).inc();
    }

    pub(super) fn delivered(&self, successes: usize, failures: usize) {
        for (outcome, count) in [("success", successes), ("failure", failures)] {
            if count > 0 {
                self.deliveries.get_or_create(&Outcome { outcome }).inc_by(count as u64);
            }
        }
    }

    pub(super) fn subscription(&self, event: &'static str) {
        self.subscription.get_or_create(&Event { event }).inc();
    }

    pub(super) fn touched(&self) {
        self.session.get_or_create(&Event { event: "session_touch" }).inc();
    }

    pub(super) fn cleaned(&self, sessions: u64, subscriptions: u64) {
        self.cleanup.get_or_create(&Event { event: "cleanup_batch" }).inc();
        self.cleaned_sessions.inc_by(sessions);
        self.cleaned_subscriptions.inc_by(subscriptions);
    }

    /// Adds what the store has counted since the last time.
    pub(super) fn refresh(&self, now: SessionCounts, lag: &Lag) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (event, before, now) in [
            ("session_create", seen.created, now.created),
            ("session_delete", seen.deleted, now.deleted),
            ("session_expire", seen.expired, now.expired),
        ] {
            self.session.get_or_create(&Event { event }).inc_by(now.saturating_sub(before));
        }
        *seen = now;
        drop(seen);
        self.sessions.set(now.sessions as i64);
        self.lagging_sources.set(lag.sources as i64);
        self.lag_bytes.set(i64::try_from(lag.bytes).unwrap_or(i64::MAX));
        self.open_circuits.set(lag.open_circuits as i64);
    }
}

fn publish_event(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Publish => "publish",
        Endpoint::Append => "append",
    }
}

fn fanout_event(mode: Mode) -> &'static str {
    match mode {
        Mode::Inline => "fanout",
        Mode::Queued => "fanout_queued",
        Mode::CircuitOpen => "fanout_circuit_open",
        Mode::Skipped => "fanout_skipped",
    }
}
