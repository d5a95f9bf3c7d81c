//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Jobs that a pool runs at once by default. Handlers mostly wait for something else; a program
/// that needs more should set its own number.
pub(crate) const CONCURRENCY_DEFAULT: usize = 64;
/// The most jobs claimed ahead of need, per pool. Past it a claim does not get cheaper per
/// job, and all of these wait for a lease to run out when the process is killed.
pub(crate) const PREFETCH_MAX: usize = 4_000;
/// A job claimed ahead should start within this time, so that it is not kept from an idle
/// worker elsewhere, nor a more urgent one from its turn.
pub(crate) const PREFETCH_HORIZON: Duration = Duration::from_millis(200);
/// A job claimed ahead that has still not begun after this is given back to the queue.
pub(crate) const PREFETCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Results that are worth a flush whatever else goes on. Half as many cost the database 8 % more per job.
pub(crate) const FLUSH_MIN: usize = 1_000;
/// The most results in one flush: one transaction stays short.
pub(crate) const FLUSH_MAX: usize = 2_000;
/// The most failures in one call: `fn_job_fail_or_retry_many` takes no more.
pub(crate) const FAIL_MAX: usize = 1_000;
/// How long a result may wait for company while other jobs run. Without others it does not wait.
pub(crate) const FLUSH_WAIT_MAX: Duration = Duration::from_millis(2);
/// The lease a worker asks for. Short, because it is renewed: a killed worker's jobs run
/// elsewhere after this. `queue.lease.duration_sec` is for executors that do not renew.
pub(crate) const LEASE_DEFAULT: Duration = Duration::from_secs(15);
/// A lease is renewed when a third of it has passed: two renewals may fail in a row.
pub(crate) const LEASE_RENEWALS: u32 = 3;
/// Attempts in one renewal: one short transaction each.
pub(crate) const RENEW_MAX: usize = 2_000;
/// How often the renewer looks around. Twice a second finds a running job soon enough to show
/// it as in progress and costs nothing.
pub(crate) const RENEW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// A job that runs longer than this is shown as in progress. Sooner would cost every short
/// job a second write.
pub(crate) const START_AFTER: Duration = Duration::from_millis(500);
/// Between two signs of life; a fraction of `queue.heartbeat.stale_threshold_seconds`.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// A handler that runs longer has hung, unless its kind was given another time.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3_600);
/// Running jobs get this long after a stop, then they are asked to end.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// And this long after having been asked, then they are given back as they are.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// At the end of a drain, how long results may take to be recorded.
pub(crate) const LAST_FLUSH_WAIT_MAX: Duration = Duration::from_secs(5);
/// After a stop, how long a running claim may still take to answer.
pub(crate) const LAST_CLAIM_WAIT_MAX: Duration = Duration::from_secs(3);
/// After a claim that found fewer jobs than it wanted: time for the next ones to gather.
pub(crate) const COOL_DOWN: Duration = Duration::from_millis(2);
/// The first look after arming. A producer that looked at the flag just before and commits
/// just after does not notify.
pub(crate) const POLL_MIN: Duration = Duration::from_millis(10);
/// The slowest polling while the worker gets notifications.
pub(crate) const POLL_LISTENING_MAX: Duration = Duration::from_secs(1);
/// The slowest polling without: an idle claim costs the database a tenth of a millisecond.
pub(crate) const POLL_ALONE_MAX: Duration = Duration::from_millis(100);
/// A job that found its gate closed asks again after this: soon enough after the gate opens, and a
/// thousand such jobs cost the database a hundred short calls a second.
pub(crate) const GATE_WAIT: Duration = Duration::from_secs(10);
/// Jobs a slot runs in a row before it lets other tasks of its thread in.
pub(crate) const SLOT_TURN: u32 = 32;
/// A job's result as JSON, the same in every language: below what one HTTP request may have. The database keeps one
/// of more than 64 KiB as a payload.
pub(crate) const RESULT_BYTES_MAX: usize = 2 << 20;
/// A handler's error text, cut to what the database keeps.
pub(crate) const ERROR_BYTES_MAX: usize = 8_000;

/// Attempts of processes in one call: a transaction stays below a tenth of a second.
pub(crate) const PROCESS_BATCH_MAX: usize = 250;
/// Attempts whose SQL functions run in one transaction: each is a subtransaction, of which PostgreSQL keeps 64 in
/// memory, and the locks of each last until the end of all.
pub(crate) const PROCESS_FUNCTIONS_MAX: usize = 50;
/// Calls of one kind in flight at once. While they are, the next ones gather: more would make them smaller.
pub(crate) const BATCHES_AT_ONCE: usize = 2;
/// Attempts that a worker runs at once of task types whose handlers mostly wait for the database or the provider.
pub(crate) const PROCESSES_AT_ONCE: usize = 512;
/// A call about a process that the database did not answer is repeated after this, and then less often.
pub(crate) const PROCESS_RETRY_MIN: Duration = Duration::from_millis(100);
/// And at least this often: the job's lease ends the repeating.
pub(crate) const PROCESS_RETRY_MAX: Duration = Duration::from_secs(5);

/// Between looks of a supervisor at processes whose time may have come.
pub(crate) const SUPERVISE_EVERY: Duration = Duration::from_millis(500);
/// Processes per look: each is one decision and one short transaction.
pub(crate) const SUPERVISE_PROCESSES: i32 = 50;
/// No other supervisor is given a process for this long after a look; a killed supervisor costs that.
pub(crate) const SUPERVISE_LEASE_SECONDS: i32 = 30;
/// The lease of a running attempt is renewed at least this often, however long it is.
pub(crate) const ATTEMPT_RENEWAL_MAX: Duration = Duration::from_secs(60);

#[cfg(feature = "maintenance")]
pub(crate) use maintenance::*;

#[cfg(feature = "maintenance")]
mod maintenance {
    /// Lease entries per call of the reaper.
    pub(crate) const REAP_ENTRIES: i32 = 50;
    /// Processes per scan: each runs a supervisor, all in one transaction.
    pub(crate) const SCAN_PROCESSES: i32 = 100;
    /// Lanes closed or collected in one pass: a short transaction.
    pub(crate) const LANES: i32 = 1_000;
    /// Deltas of job counters, or events to count, per fold.
    pub(crate) const FOLD_ROWS: i32 = 10_000;
    /// Rows per retention step.
    pub(crate) const RETENTION_ROWS: i32 = 10_000;
    /// Calls in a row of one kind of maintenance while there is more: the others come in between.
    pub(crate) const PASSES_MAX: u32 = 20;
    /// Schedules per look.
    pub(crate) const SCHEDULES: i32 = 100;
    /// Missed ticks fired per schedule and look; the rest follow in the next.
    pub(crate) const CATCH_UP_TICKS: usize = 100;
    /// At most this many ticks of a cron expression are computed to find the last missed one: a week
    /// of minutes. If there are more, the search starts later.
    pub(crate) const TICKS_SEARCHED_MAX: usize = 10_080;
}
