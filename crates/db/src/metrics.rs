//! Metrics from the database: `sql/functions/metrics.sql`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::answer::read;
use crate::{Database, Error, limits};

/// The state of the whole system at one time.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in sql/functions/metrics.sql; the metrics made of them are described")]
pub struct Survey {
    /// The kinds with their own label, for the next survey.
    pub kinds: Vec<String>,
    pub jobs_enqueued: u64,
    pub jobs_depth: Vec<Depth>,
    pub jobs_finished: Vec<Finished>,
    pub oldest_ready: Vec<OldestReady>,
    pub jobs_unhandled: Vec<UnhandledJobs>,
    pub dead_letters: BTreeMap<String, f64>,
    pub kinds_paused: f64,
    pub schedules_paused: f64,
    pub schedule_late_seconds: f64,
    pub executors: BTreeMap<String, f64>,
    pub events_numbered: u64,
    pub outbox_horizon_lag_seconds: f64,
    pub outbox_cursor_lag: Vec<CursorLag>,
    pub deliveries: BTreeMap<String, f64>,
    pub route_dead_letters: f64,
    pub route_circuits_open: f64,
    pub processes: Vec<Processes>,
    pub gates: BTreeMap<String, bool>,
    pub dead_rows: BTreeMap<String, f64>,
    pub loop_faults: BTreeMap<String, f64>,
}

/// Unfinished jobs of a kind in a state.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct Depth {
    pub kind: String,
    pub state: String,
    pub n: f64,
}

/// Finished attempts of a kind with one outcome.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct Finished {
    pub kind: String,
    pub outcome: String,
    pub n: u64,
}

/// How long the oldest job of a kind has been due.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct OldestReady {
    pub kind: String,
    pub seconds: f64,
}

/// Due jobs of a kind that no live worker handles, for one cause.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct UnhandledJobs {
    pub kind: String,
    pub cause: String,
    pub n: f64,
}

/// How far the slowest slice of a route worker is behind.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct CursorLag {
    pub worker: String,
    pub n: f64,
}

/// Unfinished processes of a kind in a state.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct Processes {
    pub kind: String,
    pub state: String,
    pub n: f64,
    pub overdue: f64,
}

/// The health of PostgreSQL itself, as far as the login can see it.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "as in Survey")]
pub struct PostgresHealth {
    pub connections: BTreeMap<String, f64>,
    pub connections_max: f64,
    pub oldest_transaction_seconds: f64,
    pub commits: u64,
    pub rollbacks: u64,
    pub deadlocks: u64,
    pub transaction_id_age: f64,
    pub replicas: f64,
    pub replica_lag_bytes: f64,
}

/// The connections of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolState {
    /// In use.
    pub used: usize,
    /// Open and free.
    pub free: usize,
    /// Callers waiting for one.
    pub waiting: usize,
}

impl Database {
    /// Reads everything within a time limit (O05). `named` are the kinds of the last survey.
    pub async fn survey(&self, named: &[String]) -> Result<(Survey, PostgresHealth), Error> {
        let mut client = self.client().await?;
        // A transaction, so that the limit applies to this read only.
        let look = client.build_transaction().read_only(true).start().await?;
        let bound = format!("set local statement_timeout = {}", limits::SURVEY_WAIT_MAX.as_millis());
        look.batch_execute(&bound).await?;
        let sql = "select towpath.fn_metrics_read($1, $2), towpath.fn_metrics_postgres()";
        let row = look.query_one(sql, &[&named, &(limits::LABELS_MAX as i32)]).await?;
        look.commit().await?;
        Ok((read(row.get(0))?, read(row.get(1))?))
    }

    /// The connections of this process.
    pub fn pool_state(&self) -> PoolState {
        let state = self.pool_status();
        PoolState { used: state.size - state.available, free: state.available, waiting: state.waiting }
    }
}
