//! Health of parts, and events by minute (`sql/functions/health.sql`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use towpath_model::health::{Events, Facts, Queue, Unhandled};

use crate::answer::{read, read_field};
use crate::config::ConfigEntry;
use crate::event::EventHealth;
use crate::queue::{ExecutorHeartbeat, QueueHealth};
use crate::schedule::Schedule;
use crate::{Database, Error};

/// Whether maintenance, sequencing and supervision keep up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Health {
    /// When the database was read, by its clock.
    pub checked_at: Timestamp,
    /// The oldest count that maintenance has not added up; old only if maintenance is not running.
    pub unfolded_since: Option<Timestamp>,
    /// The oldest new event without a position.
    pub unnumbered_since: Option<Timestamp>,
    /// Faults; 10,001 means more than 10,000.
    pub loop_faults: i64,
    /// Deliveries that wait behind one; 10,001 is more than 10,000.
    pub deliveries_behind: i64,
    /// Held processes; 10,001 means more than 10,000.
    pub processes_held: i64,
    /// Processes whose supervisor function was not called in time; 10,001 means more than 10,000.
    pub processes_overdue: i64,
    /// The check that is longest overdue.
    pub overdue_since: Option<Timestamp>,
    /// Due jobs that no live worker runs.
    pub unhandled: Vec<Unhandled>,
}

/// Events of one minute.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct EventMinute {
    /// Its beginning.
    pub minute_at: Timestamp,
    /// How many.
    pub n: i64,
}

/// What an operator's view read, for [`towpath_model::health`].
#[expect(missing_docs, reason = "the answers of the methods of these names; the rest as in Facts")]
pub struct Readings<'a> {
    pub health: &'a Health,
    pub answered_in: Duration,
    pub queue_health: Option<&'a QueueHealth>,
    pub event_health: Option<&'a EventHealth>,
    pub config: &'a [ConfigEntry],
    pub heartbeats: &'a [ExecutorHeartbeat],
    pub schedules: &'a [Schedule],
    pub circuits: Result<usize, String>,
}

impl Readings<'_> {
    /// The figures to check.
    pub fn facts(self) -> Facts {
        let with =
            |freshness: &'static str| self.heartbeats.iter().filter(move |one| one.freshness == freshness);
        Facts {
            at: self.health.checked_at,
            answered_in: self.answered_in,
            queue: self.queue_health.map(|queue| Queue {
                waiting: queue.jobs_queued + queue.jobs_retry_waiting,
                oldest_due_at: queue.oldest_due_at,
                leases_expired: queue.leases_expired,
                dead_letters_pending: queue.dead_letters_pending,
                kinds_paused: queue.kinds_paused,
                checked_at: queue.checked_at,
            }),
            events: self.event_health.map(|events| Events {
                slowest_lag: events.slowest_lag,
                circuits_open: events.circuits_open,
                oldest_delivery_at: events.oldest_delivery_at,
                route_dead_letters_open: events.route_dead_letters_open,
                checked_at: events.checked_at,
            }),
            unhandled: self.health.unhandled.clone(),
            unfolded_since: self.health.unfolded_since,
            unnumbered_since: self.health.unnumbered_since,
            loop_faults: self.health.loop_faults,
            deliveries_behind: self.health.deliveries_behind,
            overdue_since: self.health.overdue_since,
            processes_overdue: self.health.processes_overdue,
            processes_held: self.health.processes_held,
            executors_fresh: with("fresh").count(),
            executors_stale: with("stale").map(|one| one.executor_name.clone()).collect(),
            schedules_next: self.schedules.iter().filter(|one| !one.paused).map(|one| one.next_at).collect(),
            closed_gates: closed(self.config),
            circuits: self.circuits,
        }
    }
}

fn closed(config: &[ConfigEntry]) -> Vec<String> {
    config.iter().filter(|entry| entry.is_gate() && !entry.is_open()).map(|entry| entry.key.clone()).collect()
}

impl Database {
    /// Whether maintenance, sequencing and supervision keep up.
    pub async fn health_show(&self) -> Result<Health, Error> {
        read(self.call("select towpath.fn_health_show()", &[]).await?)
    }

    /// For each topic of the dashboard, a text that changes whenever the topic changes.
    pub async fn health_marks(&self) -> Result<BTreeMap<String, Option<String>>, Error> {
        read_field(self.call("select towpath.fn_health_marks()", &[]).await?, "marks")
    }

    /// Events by minute of the last hour; minutes without any are missing.
    pub async fn event_chart(&self) -> Result<Vec<EventMinute>, Error> {
        read_field(self.call("select towpath.fn_event_chart()", &[]).await?, "minutes")
    }
}
