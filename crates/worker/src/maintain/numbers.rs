//! What maintenance counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use towpath_db::Error;
use towpath_model::metrics::Register;

use super::{MaintenanceReport, Task};

#[derive(Clone, Default)]
pub(super) struct Numbers {
    passes: Family<Pass, Counter>,
    last: Family<Which, Gauge>,
    leases_expired: Counter,
    schedule_ticks: Counter,
    processes_supervised: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    task: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Which {
    task: &'static str,
}

impl Numbers {
    pub(super) fn register(&self, to: &mut Register<'_>) {
        let help = "Maintenance passes, by task and outcome (done, busy: another node was running it, gate_closed, failed)";
        to.register("maintenance_passes", help, &self.passes);
        let help = "When a maintenance task last ran, here or on another node, in seconds since 1970";
        to.register("maintenance_last_pass_timestamp_seconds", help, &self.last);
        let help = "Jobs reaped because their lease expired";
        to.register("leases_expired", help, &self.leases_expired);
        to.register("schedule_ticks", "Schedule ticks that this process enqueued", &self.schedule_ticks);
        let help = "Processes whose due check ran in this process";
        to.register("processes_supervised", help, &self.processes_supervised);
    }

    /// Notes how one task went.
    pub(super) fn note(&self, task: Task, done: &Result<(), Error>, report: &MaintenanceReport) {
        let outcome = match done {
            Ok(()) if report.busy > 0 => "busy",
            Ok(()) => "done",
            Err(Error::GateClosed { .. }) => "gate_closed",
            Err(_) => "failed",
        };
        let task = task.word();
        self.passes.get_or_create(&Pass { task, outcome }).inc();
        if done.is_ok() {
            self.last.get_or_create(&Which { task }).set(jiff::Timestamp::now().as_second());
        }
        self.leases_expired.inc_by(u64::try_from(report.reaped).unwrap_or(0));
        self.schedule_ticks.inc_by(report.fired as u64);
        self.processes_supervised.inc_by(u64::try_from(report.supervised).unwrap_or(0));
    }
}
