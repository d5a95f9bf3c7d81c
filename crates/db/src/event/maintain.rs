//! Maintenance and verification of events: `sql/functions/{event_retention,recipient,event_verify}.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use towpath_model::id::EventId;

use crate::answer::read;
use crate::job::Pass;
use crate::{Database, Error};

/// Broadcasts in the last 24 hours (R03).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BroadcastCheck {
    /// Resolved events.
    pub events: i64,
    /// Those without a subscriber.
    pub broadcasts: i64,
    /// Their percentage.
    pub percent: f64,
    /// Whether this call emitted the warning.
    pub warned: bool,
    /// The warning.
    pub event_id: Option<EventId>,
}

/// The report of the W checks (E10).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Verified {
    /// Whether every check passed.
    pub passed: bool,
    /// Whether every stored event was checked, or only the newest.
    pub full: bool,
    /// The highest position.
    pub last_position: i64,
    /// The checks.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    /// Its name: `W1_gates` to `W9_lag`.
    pub check: String,
    /// Whether it passed.
    pub ok: bool,
    /// What it found.
    pub text: String,
    /// Further data: cursors, lock holders.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How much a verification reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The newest 100,000 positions and ten minutes.
    Newest,
    /// Everything stored.
    Everything,
}

/// The state of events in one row (R10).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of sql/views/event_health.sql")]
pub struct EventHealth {
    pub last_position: i64,
    pub last_numbered_at: Timestamp,
    pub kept_from: i64,
    pub slowest_lag: i64,
    pub last_route_run_at: Option<Timestamp>,
    pub deliveries_waiting: i64,
    pub deliveries_leased: i64,
    pub oldest_delivery_at: Option<Timestamp>,
    pub route_dead_letters_open: i64,
    pub circuits_open: i64,
    pub events_24h: i64,
    pub broadcast_events_24h: i64,
    pub broadcast_percent_24h: Option<f64>,
    pub routing_enabled: bool,
    pub route_worker_enabled: bool,
    pub delivery_enabled: bool,
    pub subscription_resolution_enabled: bool,
    pub checked_at: Timestamp,
}

/// Events of one kind without a subscriber (R03).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of sql/views/subscription_broadcast_used.sql")]
pub struct BroadcastUsed {
    pub event_domain: String,
    pub event_type: String,
    pub broadcast_events_24h: i64,
    pub events_24h: i64,
    pub broadcast_percent: f64,
}

impl Database {
    /// Creates the partitions of today and the days ahead, and of the next positions.
    pub async fn event_partition_tick(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_event_partition_tick()", &[]).await?)
    }

    /// Drops one old partition of events, unless a cursor or an open dead letter needs it.
    pub async fn event_retention_tick(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_event_retention_tick()", &[]).await?)
    }

    /// Counts up to `limit` uncounted events.
    pub async fn event_counter_fold(&self, limit: i32) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_event_counter_fold($1)", &[&limit]).await?)
    }

    /// Emits a warning event if too many events were broadcast, once a day.
    pub async fn event_broadcast_check(&self) -> Result<BroadcastCheck, Error> {
        read(self.call("select towpath.fn_event_broadcast_check()", &[]).await?)
    }

    /// Runs the W checks (E10).
    pub async fn event_verify(&self, extent: Extent) -> Result<Verified, Error> {
        let full = extent == Extent::Everything;
        read(self.call("select towpath.fn_event_verify($1)", &[&full]).await?)
    }

    /// The state of events in one row.
    pub async fn event_health(&self) -> Result<EventHealth, Error> {
        let row = self.rows("towpath.v_event_health", "last_position").await?.pop();
        row.ok_or_else(|| Error::Unreadable("no row of v_event_health".into()))
    }

    /// Events without a subscriber, the most frequent first.
    pub async fn event_broadcasts(&self) -> Result<Vec<BroadcastUsed>, Error> {
        self.rows(
            "towpath.v_subscription_broadcast_used",
            "broadcast_events_24h desc, event_domain, event_type",
        )
        .await
    }
}
