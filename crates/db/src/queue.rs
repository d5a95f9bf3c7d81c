//! The queue as operators see it: `sql/functions/queue.sql` and the views.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::health::Unhandled;
use towpath_model::id::JobId;

use crate::answer::{read, read_field};
use crate::{Attribution, Database, Error};

/// One row of `v_queue_health`: an executor's heartbeat, and the whole queue beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the columns of the contract; sql/views/queue_health.sql says what each shows"
)]
pub struct QueueHealth {
    pub executor_name: Option<String>,
    pub executor_kind: Option<String>,
    pub last_tick_at: Option<Timestamp>,
    pub last_tick_status: Option<String>,
    pub seconds_since_tick: Option<f64>,
    pub freshness: Option<String>,
    pub ticks_total: Option<i64>,
    pub current_job_id: Option<JobId>,
    pub lease_owner: Option<String>,
    pub jobs_queued: i64,
    pub jobs_leased: i64,
    pub jobs_in_progress: i64,
    pub jobs_retry_waiting: i64,
    pub jobs_succeeded: i64,
    pub jobs_failed: i64,
    pub attempts_failed: i64,
    pub jobs_dead_letter: i64,
    pub jobs_cancelled: i64,
    pub jobs_blocked: i64,
    pub leases_expired: i64,
    pub oldest_due_at: Option<Timestamp>,
    pub dead_letters_pending: i64,
    pub kinds_paused: i64,
    pub subscription_rules: i64,
    pub subscriptions_enabled: i64,
    pub job_substrate_enabled: bool,
    pub worker_enabled: bool,
    pub notify_enabled: bool,
    pub heartbeat_enabled: bool,
    pub checked_at: Timestamp,
    pub event_last_position: i64,
    pub event_slowest_lag: i64,
    pub deliveries_waiting: i64,
    pub route_dead_letters_open: i64,
    pub circuits_open: i64,
    pub events_24h: i64,
    pub broadcast_events_24h: i64,
    pub broadcast_kinds_24h: i64,
    pub routing_enabled: bool,
    pub route_worker_enabled: bool,
    pub delivery_enabled: bool,
    pub subscription_resolution_enabled: bool,
    /// Columns that a newer schema adds.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// Unfinished jobs of one kind in one state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the columns of the contract; sql/views/job_queue_backlog.sql says what each shows"
)]
pub struct Backlog {
    pub job_kind: String,
    pub state: String,
    pub row_count: i64,
    pub oldest_created_at: Timestamp,
    pub newest_created_at: Timestamp,
    pub next_scheduled_at: Option<Timestamp>,
    pub avg_attempts: f64,
    pub max_attempts: i32,
    pub blocked_count: i64,
    pub paused: bool,
}

/// A paused job kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct Pause {
    pub job_kind: String,
    pub paused_at: Timestamp,
    pub paused_by: String,
    pub reason: String,
}

/// A past pause or resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct PauseMove {
    pub at: Timestamp,
    pub job_kind: String,
    /// `pause` or `resume`.
    pub action: String,
    pub actor: String,
    pub reason: Option<String>,
}

/// The outcome of a pause or a resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PauseSet {
    /// The kind.
    pub job_kind: String,
    /// Whether anything changed.
    pub changed: bool,
}

/// One executor's heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of sql/views/queue_heartbeat.sql")]
pub struct ExecutorHeartbeat {
    pub executor_name: String,
    pub executor_kind: String,
    pub last_tick_at: Timestamp,
    pub last_tick_status: String,
    pub ticks_total: i64,
    pub current_job_id: Option<JobId>,
    pub lease_owner: Option<String>,
    pub metadata: Value,
    pub seconds_since_tick: f64,
    pub freshness: String,
}

/// Finished attempts of one kind, minute and outcome, for charts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueMinute {
    /// The minute.
    pub minute_at: Timestamp,
    /// The kind.
    pub job_kind: String,
    /// How they ended: an outcome of `job_run`.
    pub outcome: String,
    /// How many.
    pub n: i64,
    /// Their total wait until they were claimed.
    pub wait_ms: i64,
    /// Their total run time.
    pub run_ms: i64,
}

/// The 50th, 95th and 99th percentile, in milliseconds.
pub type Percentiles = [f64; 3];

/// How long the newest jobs took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Latency {
    /// The sample size.
    pub n: i64,
    /// From due to claimed; none before the first job has finished.
    pub wait: Option<Percentiles>,
    /// From claimed to finished.
    pub run: Option<Percentiles>,
    /// From due to finished.
    pub whole: Option<Percentiles>,
    /// The same by minute.
    pub minutes: Vec<LatencyMinute>,
}

/// Latency of the jobs that finished in one minute.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in Latency")]
pub struct LatencyMinute {
    pub minute_at: Timestamp,
    pub n: i64,
    pub wait: Percentiles,
    pub run: Percentiles,
    pub whole: Percentiles,
}

/// An executor's subscriptions and heartbeat (R10).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of sql/views/executor_subscription_health.sql")]
pub struct ExecutorHealth {
    pub executor_id: String,
    pub executor_kind: String,
    pub rules: i64,
    pub enabled_rules: i64,
    pub unlimited_rules: i64,
    pub max_parallel_total: Option<i64>,
    pub registered: bool,
    pub last_tick_at: Option<Timestamp>,
}

impl Database {
    /// The whole queue, once per heartbeat, or once if there is none.
    pub async fn queue_health(&self) -> Result<Vec<QueueHealth>, Error> {
        self.rows("towpath.v_queue_health", "executor_name").await
    }

    /// The due jobs that no live worker runs, by kind, with the cause.
    pub async fn queue_unhandled(&self) -> Result<Vec<Unhandled>, Error> {
        read_field(self.call("select towpath.fn_queue_unhandled()", &[]).await?, "unhandled")
    }

    /// Unfinished jobs by kind and state.
    pub async fn queue_backlog(&self) -> Result<Vec<Backlog>, Error> {
        self.rows("towpath.v_job_queue_backlog", "job_kind, state").await
    }

    /// Every heartbeat with its freshness (Q13).
    pub async fn queue_heartbeats(&self) -> Result<Vec<ExecutorHeartbeat>, Error> {
        self.rows("towpath.v_queue_heartbeat", "executor_name").await
    }

    /// Every executor's subscriptions and last heartbeat.
    pub async fn executor_health(&self) -> Result<Vec<ExecutorHealth>, Error> {
        self.rows("towpath.v_executor_subscription_health", "executor_id").await
    }

    /// Finished attempts by minute since a time (none: an hour ago), of one kind or of all.
    pub async fn queue_chart(
        &self,
        since: Option<Timestamp>,
        job_kind: Option<&str>,
    ) -> Result<Vec<QueueMinute>, Error> {
        read_field(self.call("select towpath.fn_queue_chart($1, $2)", &[&since, &job_kind]).await?, "minutes")
    }

    /// Wait, run and total time of the newest jobs.
    pub async fn queue_latency(&self, limit: i32) -> Result<Latency, Error> {
        read(self.call("select towpath.fn_queue_latency($1)", &[&limit]).await?)
    }

    /// Pauses a job kind.
    pub async fn queue_pause(&self, job_kind: &str, by: Attribution<'_>) -> Result<PauseSet, Error> {
        let sql = "select towpath.fn_queue_pause($1, $2, $3)";
        read(self.call(sql, &[&job_kind, &by.actor, &by.reason]).await?)
    }

    /// Resumes a job kind.
    pub async fn queue_resume(&self, job_kind: &str, actor: &str) -> Result<PauseSet, Error> {
        read(self.call("select towpath.fn_queue_resume($1, $2)", &[&job_kind, &actor]).await?)
    }

    /// The history of pauses, newest first; of one kind or of all.
    pub async fn queue_pause_history(&self, job_kind: Option<&str>) -> Result<Vec<PauseMove>, Error> {
        let answer = self.call("select towpath.fn_queue_pause_history($1)", &[&job_kind]).await?;
        read_field(answer, "history")
    }

    /// The kinds that are paused.
    pub async fn queue_paused(&self) -> Result<Vec<Pause>, Error> {
        read_field(self.call("select towpath.fn_queue_paused()", &[]).await?, "paused")
    }

    /// Removes the heartbeat of an executor that is gone.
    pub async fn queue_heartbeat_forget(&self, executor_name: &str) -> Result<(), Error> {
        let answer = self.call("select towpath.fn_queue_heartbeat_forget($1)", &[&executor_name]).await?;
        read_field::<String>(answer, "executor_name").map(drop)
    }

    /// Every row of a view. Both arguments are constants, never user input.
    pub(crate) async fn rows<T: DeserializeOwned>(&self, view: &str, order: &str) -> Result<Vec<T>, Error> {
        let sql = format!("select coalesce(jsonb_agg(to_jsonb(v) order by {order}), '[]') from {view} v");
        let rows = self.call(&sql, &[]).await?;
        let text = rows.to_string();
        serde_json::from_value(rows).map_err(|_| Error::Unreadable(text))
    }
}
