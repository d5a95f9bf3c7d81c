//! Schedules: `sql/functions/schedule.sql`. Cron arithmetic is `towpath_model::cron`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::id::JobId;

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// A periodic job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of the table schedule; 0002_job.sql says what each holds")]
pub struct Schedule {
    pub name: String,
    pub expression: String,
    pub time_zone: String,
    pub catch_up: String,
    pub job_kind: String,
    pub executor: Option<String>,
    pub event_domain: Option<String>,
    pub source_ref: Option<String>,
    pub target_ref: Option<String>,
    pub payload_ref: Option<String>,
    pub payload_json: Value,
    pub priority: i32,
    pub max_attempts: Option<i32>,
    pub paused: bool,
    pub next_at: Timestamp,
    pub last_tick_at: Option<Timestamp>,
    pub last_job_id: Option<JobId>,
    pub changed_by: String,
    pub changed_at: Timestamp,
}

/// A schedule to create or change.
#[derive(Debug, Clone)]
pub struct ScheduleSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// A valid cron expression.
    pub expression: &'a str,
    /// Its time zone.
    pub time_zone: &'a str,
    /// What to do with missed ticks: `skip`, `last` or `all`.
    pub catch_up: &'a str,
    /// The job template of each tick.
    pub job: Value,
    /// The first tick.
    pub next_at: Timestamp,
    /// The actor.
    pub actor: &'a str,
}

/// The outcome of creating or changing a schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SchedulePut {
    /// Its name.
    pub name: String,
    /// Whether it is new.
    pub created: bool,
    /// Its next tick.
    pub next_at: Timestamp,
}

/// The outcome of a pause or a resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleSet {
    /// Its name.
    pub name: String,
    /// Whether anything changed.
    pub changed: bool,
}

impl Database {
    /// Every schedule, by name.
    pub async fn schedule_list(&self) -> Result<Vec<Schedule>, Error> {
        read_field(self.call("select towpath.fn_schedule_list()", &[]).await?, "schedules")
    }

    /// Creates or changes a schedule.
    pub async fn schedule_put(&self, spec: &ScheduleSpec<'_>) -> Result<SchedulePut, Error> {
        let sql = "select towpath.fn_schedule_put($1, $2, $3, $4, $5, $6, $7)";
        read(
            self.call(
                sql,
                &[
                    &spec.name,
                    &spec.expression,
                    &spec.time_zone,
                    &spec.job,
                    &spec.next_at,
                    &spec.catch_up,
                    &spec.actor,
                ],
            )
            .await?,
        )
    }

    /// Pauses a schedule.
    pub async fn schedule_pause(&self, name: &str, actor: &str) -> Result<ScheduleSet, Error> {
        read(self.call("select towpath.fn_schedule_pause($1, $2)", &[&name, &actor]).await?)
    }

    /// Resumes a schedule at `next_at`.
    pub async fn schedule_resume(
        &self,
        name: &str,
        next_at: Timestamp,
        actor: &str,
    ) -> Result<ScheduleSet, Error> {
        read(self.call("select towpath.fn_schedule_resume($1, $2, $3)", &[&name, &next_at, &actor]).await?)
    }

    /// Deletes a schedule; jobs it enqueued stay.
    pub async fn schedule_delete(&self, name: &str) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_schedule_delete($1)", &[&name]).await?;
        read_field::<String>(answer, "name").map(drop)
    }
}
