//! The ticks of schedules: what is due, and firing it exactly once (Q17).

use jiff::Timestamp;
use serde::Deserialize;
use towpath_model::job::JobId;

use crate::answer::read;
use crate::{Database, Error};

/// What to do with ticks that were missed while no maintenance ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Forget them.
    Skip,
    /// Run the last one.
    Last,
    /// Run every one.
    All,
}

/// A schedule whose tick has come.
#[derive(Debug, Clone, Deserialize)]
pub struct DueSchedule {
    /// Its name.
    pub name: String,
    /// The cron expression.
    pub expression: String,
    /// The time zone it is read in.
    pub time_zone: String,
    /// What to do with missed ticks.
    pub catch_up: CatchUp,
    /// The tick it waits for.
    pub next_at: Timestamp,
}

/// The answer to what is due.
#[derive(Debug, Clone, Deserialize)]
pub struct DueSchedules {
    /// The database's clock, the only one that counts.
    pub now: Timestamp,
    /// The schedules whose tick has come.
    pub due: Vec<DueSchedule>,
    /// When the next of the others will come.
    pub next_at: Option<Timestamp>,
}

/// One tick and the one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// The moment to fire for.
    pub at: Timestamp,
    /// What the schedule waits for afterwards.
    pub next_at: Timestamp,
}

/// The outcome of firing.
#[derive(Debug, Clone, Deserialize)]
pub struct Fired {
    /// Whether this call enqueued the job; another node may have been first.
    pub fired: bool,
    /// The job.
    pub job_id: Option<JobId>,
}

impl Database {
    /// The schedules whose tick has come, at most `limit`.
    pub async fn schedule_due(&self, limit: i32) -> Result<DueSchedules, Error> {
        read(self.call("select towpath.fn_schedule_due($1)", &[&limit]).await?)
    }

    /// Enqueues the job of one tick, if no other node has.
    pub async fn schedule_fire(&self, name: &str, tick: Tick) -> Result<Fired, Error> {
        let sql = "select towpath.fn_schedule_fire($1, $2, $3)";
        read(self.call(sql, &[&name, &tick.at, &tick.next_at]).await?)
    }

    /// Moves a schedule on without a job, if it still waits for what the caller saw.
    pub async fn schedule_skip(&self, name: &str, seen: Timestamp, next_at: Timestamp) -> Result<(), Error> {
        let sql = "select towpath.fn_schedule_skip($1, $2, $3)";
        let answer = self.call(sql, &[&name, &seen, &next_at]).await?;
        crate::answer::read_field::<bool>(answer, "skipped").map(drop)
    }
}
