//! What maintenance asks for again and again. Every call is one bounded transaction, safe on
//! any number of nodes: the database lets one of them through and tells the others `busy`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::read;
use crate::{Database, Error};

/// What one pass did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Pass {
    /// Another node is at it.
    #[serde(default)]
    pub busy: bool,
    /// There is more to do now.
    #[serde(default)]
    pub more: bool,
    /// What it did, in the words of the SQL function, for the log.
    #[serde(flatten)]
    pub did: Map<String, Value>,
}

/// What one pass of the reaper did (Q11).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// Lease entries it looked at.
    pub entries: i64,
    /// Jobs that wait for another attempt.
    pub retried: i64,
    /// Jobs whose last attempt was lost.
    pub dead_letter: i64,
    /// There is more to do now.
    pub more: bool,
}

impl Database {
    /// Takes jobs back whose lease has run out, up to `limit` lease entries.
    pub async fn job_reap(&self, limit: i32) -> Result<Reaped, Error> {
        read(self.call("select towpath.fn_job_reap($1)", &[&limit]).await?)
    }

    /// Moves the floor below which no claim looks.
    pub async fn job_floor_tick(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_floor_tick()", &[]).await?)
    }

    /// Collects unused lanes, up to `limit` (Q23).
    pub async fn job_lane_tick(&self, limit: i32) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_lane_tick($1)", &[&limit]).await?)
    }

    /// Adds up to `limit` counted ends of attempts to the totals.
    pub async fn job_counter_fold(&self, limit: i32) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_counter_fold($1)", &[&limit]).await?)
    }

    /// Holds the counters of `max_parallel` against the leases there are.
    pub async fn job_parallel_recount(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_parallel_recount()", &[]).await?)
    }

    /// Makes the partitions of today and the days ahead.
    pub async fn job_partition_tick(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_partition_tick()", &[]).await?)
    }

    /// Cleans and drops what is old enough, in steps of up to `limit` rows (Q16).
    pub async fn job_retention_tick(&self, limit: i32) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_job_retention_tick($1)", &[&limit]).await?)
    }

    /// Which executors are late with their heartbeat; changes nothing.
    pub async fn queue_stale_check(&self) -> Result<Pass, Error> {
        read(self.call("select towpath.fn_queue_stale_check()", &[]).await?)
    }
}
