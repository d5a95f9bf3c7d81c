//! A route worker's pass: decides about the events after a cursor in one transaction (E02).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::read;
use crate::{Database, Error};

/// One slice of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// From 0.
    pub slice: i32,
    /// The expected number of slices; a different number is refused.
    pub slices: i32,
}

/// What one pass did.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RoutePass {
    /// The slice it processed; none if no slice had work.
    pub slice: Option<i32>,
    /// The slices of the worker.
    pub slices: i32,
    /// The cursor's position; none if it did not move.
    #[serde(default)]
    pub position: Option<i64>,
    /// The highest position.
    pub last_position: i64,
    /// Events it routed.
    pub events: i64,
    /// Its decisions.
    #[serde(default)]
    pub decisions: Decisions,
    /// There is more to do now.
    pub more: bool,
    /// Other workers hold every slice with work.
    pub busy: bool,
}

/// How many decisions of each kind (E05).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Jobs and deliveries created.
    pub sent: i64,
    /// Only recorded, because the route is in dry run.
    pub dry_run: i64,
    /// The route is off.
    pub disabled: i64,
    /// No recipient gets it, or no route takes it.
    pub skipped: i64,
    /// The target refused it: a dead letter each.
    pub failed: i64,
}

/// All route workers, and the last position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteWorkers {
    /// The highest position.
    pub last_position: i64,
    /// By name.
    pub workers: Vec<RouteWorker>,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteWorker {
    /// Its name.
    pub worker_name: String,
    /// Its number of slices.
    pub slices: i32,
    /// The only domain it handles.
    pub event_domain: Option<String>,
    /// One cursor per slice.
    pub cursors: Vec<RouteCursor>,
}

/// The cursor of one slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteCursor {
    /// From 0.
    pub slice: i32,
    /// The last position it has routed.
    pub position: i64,
    /// Events it is behind.
    pub lag: i64,
    /// The database session that holds its lock, if any.
    pub held_by: Option<serde_json::Value>,
    /// Passes so far.
    pub runs: i64,
    /// Events so far.
    pub events: i64,
    /// When it last moved.
    pub last_run_at: Timestamp,
    /// The summary of the last pass.
    pub last_summary: serde_json::Value,
}

impl Database {
    /// One pass of a worker over at most about `batch` events. Without a slice it takes the one
    /// that lags most and that no other worker holds (E09).
    pub async fn route_worker_run(
        &self,
        worker_name: &str,
        batch: i32,
        slice: Option<Slice>,
    ) -> Result<RoutePass, Error> {
        let sql = "select towpath.fn_route_worker_run($1, $2, $3, $4)";
        let (number, slices) = (slice.map(|slice| slice.slice), slice.map(|slice| slice.slices));
        read(self.call(sql, &[&worker_name, &batch, &number, &slices]).await?)
    }

    /// The route workers with their slices and lag.
    pub async fn route_worker_list(&self) -> Result<RouteWorkers, Error> {
        read(self.call("select towpath.fn_route_worker_list()", &[]).await?)
    }
}
