//! Metrics of the route role.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use towpath_db::event::RoutePass;
use towpath_model::metrics::Register;

/// The metrics. Clones share them.
#[derive(Clone)]
pub(crate) struct Numbers {
    events: Counter,
    decisions: Family<Decision, Counter>,
    webhooks: Family<Outcome, Counter>,
    webhook_seconds: Histogram,
    leases_lost: Counter,
    stream_appends: Family<Outcome, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            events: Counter::default(),
            decisions: Family::default(),
            webhooks: Family::default(),
            // From a millisecond to a minute, four times wider each.
            webhook_seconds: Histogram::new([0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 64.0]),
            leases_lost: Counter::default(),
            stream_appends: Family::default(),
        }
    }
}

impl Numbers {
    pub(crate) fn register(&self, to: &mut Register<'_>) {
        to.register("events_routed", "Events routed by this process", &self.events);
        let help =
            "Routing decisions by this process, by decision (sent, dry_run, disabled, skipped, failed)";
        to.register("route_decisions", help, &self.decisions);
        let help = "Webhook attempts by this process, by outcome (delivered, failed)";
        to.register("webhooks", help, &self.webhooks);
        let help = "Response time of webhook receivers";
        to.register("webhook_seconds", help, &self.webhook_seconds);
        let help = "Deliveries whose sender lost its lease; they are retried";
        to.register("delivery_leases_lost", help, &self.leases_lost);
        let help = "Stream appends of routes by this process, by outcome (appended, failed)";
        to.register("route_stream_appends", help, &self.stream_appends);
    }

    pub(crate) fn pass(&self, pass: &RoutePass) {
        if pass.events == 0 {
            return;
        }
        self.events.inc_by(pass.events.unsigned_abs());
        let all = &pass.decisions;
        for (decision, n) in [
            ("sent", all.sent),
            ("dry_run", all.dry_run),
            ("disabled", all.disabled),
            ("skipped", all.skipped),
            ("failed", all.failed),
        ] {
            if n > 0 {
                self.decisions.get_or_create(&Decision { decision }).inc_by(n.unsigned_abs());
            }
        }
    }

    pub(crate) fn webhook(&self, delivered: bool, took: Duration) {
        let outcome = if delivered { "delivered" } else { "failed" };
        self.webhooks.get_or_create(&Outcome { outcome }).inc();
        self.webhook_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn lost(&self, deliveries: i64) {
        self.leases_lost.inc_by(deliveries.unsigned_abs());
    }

    pub(crate) fn appended(&self, outcome: &'static str) {
        self.stream_appends.get_or_create(&Outcome { outcome }).inc();
    }
}
