//! The SQL in this binary, in the order of execution.
//!
//! A test compares these lists with the files under `sql/`.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::template::{CHANNEL, PROCESS, Template};

/// A numbered change of the tables. Frozen once released.
pub struct Migration {
    /// Its number; one more than the one before.
    pub version: i32,
    /// The file's name without number and extension.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

/// A file of functions or views, reinstalled whole whenever any of them changes.
pub struct Source {
    /// The path below `sql/`.
    pub path: &'static str,
    /// The statements.
    pub sql: Cow<'static, str>,
}

macro_rules! migrations {
    ($($version:literal $file:literal,)*) => {
        &[$(Migration {
            version: $version,
            name: $file,
            sql: include_str!(concat!("../../sql/migrations/", $file, ".sql")),
        },)*]
    };
}

macro_rules! sources {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!("../../sql/", $path))),)*]
    };
}

/// Roles, the schema, default privileges and the schema ledger; idempotent.
pub const INSTALL: &str = include_str!("../../sql/install.sql");

/// Every migration, oldest first.
pub const MIGRATIONS: &[Migration] = migrations! {
    1 "0001_base",
    2 "0002_job",
    3 "0003_executor",
    4 "0004_event",
    5 "0005_process",
    6 "0006_comms",
    7 "0007_audit",
    8 "0008_stream_delivery",
    9 "0009_stream_log",
};

/// Every file of functions and views, then the templates, filled in for each channel of messages.
pub static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let files = FILES.iter().map(|(path, sql)| Source { path, sql: Cow::Borrowed(sql) });
    let channels = Template::CHANNELS.into_iter().flat_map(|channel| {
        [("template/process.sql", PROCESS), ("template/channel.sql", CHANNEL)]
            .map(|(path, text)| Source { path, sql: channel.fill(text).into() })
    });
    files.chain(channels).collect()
});

/// Functions first, because views call them.
const FILES: &[(&str, &str)] = sources! {
    "functions/schema.sql",
    "functions/config.sql",
    "functions/value.sql",
    "functions/error_text.sql",
    "functions/payload.sql",
    "functions/payload_store.sql",
    "functions/payload_keep.sql",
    "functions/filter.sql",
    "functions/loop_fault.sql",
    "functions/subscription.sql",
    "functions/job_limits.sql",
    "functions/job_wake.sql",
    "functions/job_lane.sql",
    "functions/job_enqueue.sql",
    "functions/job_enqueue_many.sql",
    "functions/job_run.sql",
    "functions/job_stream.sql",
    "functions/job_ready.sql",
    "functions/job_parallel.sql",
    "functions/job_claim.sql",
    "functions/lease_entry.sql",
    "functions/job_lease.sql",
    "functions/job_finish.sql",
    "functions/job_dead_letter.sql",
    "functions/graph.sql",
    "functions/schedule.sql",
    "functions/queue.sql",
    "functions/queue_latency.sql",
    "functions/audit.sql",
    "functions/job_fault.sql",
    "functions/job_maintain.sql",
    "functions/job_retention.sql",
    "functions/job_read.sql",
    "functions/job_why.sql",
    "functions/executor_token.sql",
    "functions/event_emit.sql",
    "functions/executor_token_job.sql",
    "functions/event_subscription.sql",
    "functions/sequencer.sql",
    "functions/recipient.sql",
    "functions/route.sql",
    "functions/route_decide.sql",
    "functions/route_operate.sql",
    "functions/route_worker.sql",
    "functions/route_replay.sql",
    "functions/route_dead_letter.sql",
    "functions/delivery.sql",
    "functions/delivery_finish.sql",
    "functions/stream_delivery.sql",
    "functions/event_read.sql",
    "functions/event_retention.sql",
    "functions/event_verify.sql",
    "functions/health.sql",
    "functions/run_function.sql",
    "functions/task_error.sql",
    "functions/job_checkpoint.sql",
    "functions/process_kind.sql",
    "functions/process.sql",
    "functions/process_attempt.sql",
    "functions/process_supervise.sql",
    "functions/process_start.sql",
    "functions/process_run.sql",
    "functions/process_signal.sql",
    "functions/process_function.sql",
    "functions/executor_token_process.sql",
    "functions/process_read.sql",
    "functions/process_outside.sql",
    "functions/process_operate.sql",
    "functions/door.sql",
    "functions/stream_log.sql",
    "functions/stream_intake.sql",
    "functions/comms_message.sql",
    "functions/comms_read.sql",
    "functions/metrics.sql",
    "views/job_now.sql",
    "views/job_run_each.sql",
    "views/job_queue.sql",
    "views/job_queue_backlog.sql",
    "views/job_dead_letter_summary.sql",
    "views/executor_subscription_health.sql",
    "views/queue_heartbeat.sql",
    "views/subscription_broadcast_used.sql",
    "views/delivery_now.sql",
    "views/route_attempt.sql",
    "views/route_worker_cursor.sql",
    "views/route_health.sql",
    "views/event_health.sql",
    "views/queue_health.sql",
    "views/process_attention.sql",
    "views/process_health.sql",
};
