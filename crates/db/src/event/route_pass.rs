//! The route worker's pass: decisions about the events after a cursor, all or nothing (E02).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::read;
use crate::{Database, Error};

/// One slice of a worker, out of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// From 0.
    pub slice: i32,
    /// How many the caller believes there are; another number is refused.
    pub slices: i32,
}

/// What one pass did.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RoutePass {
    /// The slice it worked on; none if it found nothing to do in any.
    pub slice: Option<i32>,
    /// The slices of the worker.
    pub slices: i32,
    /// How far the cursor is now; none if it did not move.
    #[serde(default)]
    pub position: Option<i64>,
    /// The highest position there is.
    pub last_position: i64,
    /// Events it decided about.
    pub events: i64,
    /// And how.
    #[serde(default)]
    pub decisions: Decisions,
    /// There is more to do now.
    pub more: bool,
    /// Others hold every slice with something to do.
    pub busy: bool,
}

/// How many decisions of each kind (E05).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Jobs and deliveries made.
    pub sent: i64,
    /// Noted only, because the route is in a dry run.
    pub dry_run: i64,
    /// The route is off.
    pub disabled: i64,
    /// No recipient gets it, or no route takes it.
    pub skipped: i64,
    /// The target refused: a dead letter each.
    pub failed: i64,
}

/// The workers there are, and the end of the events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteWorkers {
    /// The highest position there is.
    pub last_position: i64,
    /// By name.
    pub workers: Vec<RouteWorker>,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteWorker {
    /// Its name.
    pub worker_name: String,
    /// Into how many slices its work is cut.
    pub slices: i32,
    /// The only domain it reads.
    pub event_domain: Option<String>,
    /// One cursor per slice.
    pub cursors: Vec<RouteCursor>,
}

/// How far one slice is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteCursor {
    /// From 0.
    pub slice: i32,
    /// The last position it has decided about.
    pub position: i64,
    /// Positions to go.
    pub lag: i64,
    /// The session that holds its lock now, as PostgreSQL describes it.
    pub held_by: Option<serde_json::Value>,
    /// Passes so far.
    pub runs: i64,
    /// Events so far.
    pub events: i64,
    /// When it last moved.
    pub last_run_at: Timestamp,
    /// What the last pass did, in the words of the SQL function.
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

    /// The workers, their slices, and how far each lags.
    pub async fn route_worker_list(&self) -> Result<RouteWorkers, Error> {
        read(self.call("select towpath.fn_route_worker_list()", &[]).await?)
    }
}
