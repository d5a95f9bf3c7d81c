//! Maintenance: what must happen again and again, on any node.
//!
//! Every node runs all of it. There is no leader to elect or to lose: each pass is one
//! transaction that takes its own advisory lock and answers `busy` while another
//! node holds it. Such a lock ends with its transaction, so it is safe behind a pooler
//! and a killed node leaves nothing behind.

mod numbers;
mod schedule;

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use towpath_db::job::Pass;
use towpath_db::retry::jittered;
use towpath_db::{Database, Error};
use towpath_model::metrics::Register;

use crate::limits;

/// The item of a fault that is a whole pass.
const WHOLE: &str = "*";

/// One kind of maintenance and how often it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Reap,
    Floors,
    Lanes,
    Counters,
    Schedules,
    Processes,
    Recount,
    Retention,
    Heartbeats,
    Partitions,
    EventPartitions,
    EventCounters,
    EventBroadcasts,
    EventRetention,
    PayloadRetention,
}

impl Task {
    const ALL: [Task; 15] = [
        // First, because a fresh database has no partition for today.
        Task::Partitions,
        Task::EventPartitions,
        Task::Reap,
        Task::Floors,
        Task::Lanes,
        Task::Counters,
        Task::Schedules,
        Task::Processes,
        Task::Recount,
        Task::Retention,
        Task::Heartbeats,
        Task::EventCounters,
        Task::EventBroadcasts,
        Task::EventRetention,
        Task::PayloadRetention,
    ];

    /// Its name, as a label.
    fn word(self) -> &'static str {
        match self {
            Task::Reap => "reap",
            Task::Floors => "floors",
            Task::Lanes => "lanes",
            Task::Counters => "counters",
            Task::Schedules => "schedules",
            Task::Processes => "processes",
            Task::Recount => "recount",
            Task::Retention => "retention",
            Task::Heartbeats => "heartbeats",
            Task::Partitions => "partitions",
            Task::EventPartitions => "event_partitions",
            Task::EventCounters => "event_counters",
            Task::EventBroadcasts => "event_broadcasts",
            Task::EventRetention => "event_retention",
            Task::PayloadRetention => "payload_retention",
        }
    }

    /// The reaper decides how soon a dead worker's jobs run again, the floors how cheap a
    /// claim stays, the schedules and processes how punctual they are; the rest only tidies up.
    fn every(self) -> Duration {
        match self {
            Task::Reap | Task::Counters => Duration::from_secs(1),
            Task::Floors | Task::Schedules | Task::Processes => Duration::from_millis(500),
            Task::EventCounters => Duration::from_secs(5),
            Task::Lanes => Duration::from_secs(5),
            Task::Recount => Duration::from_secs(30),
            Task::Retention | Task::PayloadRetention | Task::Heartbeats => Duration::from_secs(60),
            Task::EventBroadcasts | Task::EventRetention => Duration::from_secs(60),
            Task::Partitions | Task::EventPartitions => Duration::from_secs(3_600),
        }
    }
}

/// Registers what maintenance counts, without any.
pub(crate) fn describe(registry: &mut Register<'_>) {
    numbers::Numbers::default().register(registry);
}

/// Everything that must happen again and again.
pub struct Maintenance {
    database: Database,
    stale: i64,
    numbers: numbers::Numbers,
    /// Tasks whose last pass failed, or that have not run yet: a fault of theirs may be noted.
    suspects: Vec<Task>,
}

/// What one round of everything did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Jobs whose lease had run out: requeued, or made dead letters.
    pub reaped: i64,
    /// Ticks of schedules that became jobs here.
    pub fired: usize,
    /// Processes whose time had come.
    pub supervised: i64,
    /// Passes that another node was at.
    pub busy: usize,
    /// Executors without a heartbeat for long.
    pub stale: i64,
    /// Too many events of the last day had no subscriber, and a warning event says so.
    pub warned: bool,
}

/// The tasks of a round that failed, and what the others did.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.in_words())]
pub struct MaintenanceFailure {
    /// What was done.
    pub report: MaintenanceReport,
    /// Each task that failed, by name.
    pub failed: Vec<(&'static str, Error)>,
}

impl MaintenanceFailure {
    /// One line per error, because a closed gate stops many tasks.
    fn in_words(&self) -> String {
        let mut lines: Vec<(String, Vec<&str>)> = vec![];
        for (task, error) in &self.failed {
            let error = error.to_string();
            match lines.iter_mut().find(|(known, _)| *known == error) {
                Some((_, tasks)) => tasks.push(task),
                None => lines.push((error, vec![task])),
            }
        }
        let line = |(error, tasks): &(String, Vec<&str>)| format!("{} failed: {error}", tasks.join(", "));
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Maintenance {
    /// Maintenance of this database.
    pub fn new(database: Database) -> Maintenance {
        Maintenance { database, stale: 0, numbers: numbers::Numbers::default(), suspects: Task::ALL.to_vec() }
    }

    /// Adds what it counts to a registry, for `/metrics`.
    pub fn register(&self, registry: &mut Register<'_>) {
        self.numbers.register(registry);
    }

    /// Maintains until `shutdown`. A pass that fails is said once and tried again.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tracing::info!("maintenance started");
        let start = Instant::now();
        let mut due = Task::ALL.map(|task| (task, start));
        let mut trouble = None;
        while !shutdown.is_cancelled() {
            for (task, at) in &mut due {
                if Instant::now() < *at || shutdown.is_cancelled() {
                    continue;
                }
                let mut report = MaintenanceReport::default();
                let done = self.perform(*task, &mut report).await;
                self.tell(*task, &done).await;
                self.numbers.note(*task, &done, &report);
                trouble = said_once(*task, done.err(), trouble);
                *at = Instant::now() + jittered(task.every());
            }
            let next = due.iter().map(|(_, at)| *at).min().unwrap_or(start);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    /// Does everything once, whether or not its time has come. A task that fails does not stop the others.
    pub async fn run_once(&mut self) -> Result<MaintenanceReport, MaintenanceFailure> {
        let mut report = MaintenanceReport::default();
        let mut failed = vec![];
        for task in Task::ALL {
            let done = self.perform(task, &mut report).await;
            self.tell(task, &done).await;
            failed.extend(done.err().map(|error| (task.word(), error)));
        }
        if failed.is_empty() { Ok(report) } else { Err(MaintenanceFailure { report, failed }) }
    }

    /// Notes the fault of a whole pass, and its end, where people look (Q22). Best effort: if the database cannot be
    /// reached, there is nothing to note it in.
    async fn tell(&mut self, task: Task, done: &Result<(), Error>) {
        let suspect = self.suspects.contains(&task);
        match done {
            Err(error @ Error::Postgres(_)) => {
                if !suspect {
                    self.suspects.push(task);
                }
                let _ = self.database.loop_fault_record(task.word(), WHOLE, &error.to_string()).await;
            }
            Ok(()) if suspect && self.database.loop_fault_over(task.word(), WHOLE).await.is_ok() => {
                self.suspects.retain(|one| *one != task);
            }
            _ => {}
        }
    }

    async fn perform(&mut self, task: Task, report: &mut MaintenanceReport) -> Result<(), Error> {
        for _ in 0..limits::PASSES_MAX {
            if !self.pass(task, report).await? {
                break;
            }
        }
        Ok(())
    }

    /// One bounded pass; answers whether there is more to do.
    async fn pass(&mut self, task: Task, report: &mut MaintenanceReport) -> Result<bool, Error> {
        let database = &self.database;
        let pass = match task {
            Task::Reap => {
                let reaped = database.job_reap(limits::REAP_ENTRIES).await?;
                if reaped.retried + reaped.dead_letter > 0 {
                    tracing::warn!(
                        retried = reaped.retried,
                        dead = reaped.dead_letter,
                        "reaped expired leases"
                    );
                }
                report.reaped += reaped.retried + reaped.dead_letter;
                return Ok(reaped.more);
            }
            Task::Schedules => {
                report.fired += schedule::tick(database).await?;
                return Ok(false);
            }
            Task::Processes => return self.scan(report).await,
            Task::Heartbeats => {
                report.stale = self.look_for_stale().await?;
                return Ok(false);
            }
            Task::Floors => database.job_floor_tick().await?,
            Task::Lanes => database.job_lane_tick(limits::LANES).await?,
            Task::Counters => database.job_counter_fold(limits::FOLD_ROWS).await?,
            Task::Recount => database.job_parallel_recount().await?,
            Task::Retention => database.job_retention_tick(limits::RETENTION_ROWS).await?,
            Task::Partitions => database.job_partition_tick().await?,
            Task::EventPartitions => database.event_partition_tick().await?,
            Task::EventCounters => database.event_counter_fold(limits::FOLD_ROWS).await?,
            Task::EventRetention => database.event_retention_tick().await?,
            Task::PayloadRetention => database.payload_retention_tick().await?,
            Task::EventBroadcasts => {
                let check = database.event_broadcast_check().await?;
                if check.warned {
                    let (broadcasts, events) = (check.broadcasts, check.events);
                    tracing::warn!(
                        broadcasts,
                        events,
                        "events without a subscriber; see: towpath subscriptions broadcasts"
                    );
                }
                report.warned |= check.warned;
                return Ok(false);
            }
        };
        report.busy += usize::from(pass.busy);
        note(task, &pass);
        Ok(pass.more && !pass.busy)
    }

    /// Looks at processes whose time has come. Jobs run without processes too, so that a gate
    /// closed for these is no failure.
    async fn scan(&self, report: &mut MaintenanceReport) -> Result<bool, Error> {
        let scan = match self.database.process_scan(limits::SCAN_PROCESSES).await {
            Err(Error::GateClosed { .. }) => return Ok(false),
            scan => scan?,
        };
        if scan.failed > 0 {
            tracing::warn!(failed = scan.failed, "supervisors failed; see: towpath process errors");
        }
        report.supervised += scan.checked;
        Ok(scan.more)
    }

    /// Says once that executors have fallen silent, and once that they have not any more.
    async fn look_for_stale(&mut self) -> Result<i64, Error> {
        let stale = self
            .database
            .queue_stale_check()
            .await?
            .did
            .get("stale")
            .and_then(serde_json::Value::as_i64)
            .unwrap_or(0);
        if stale > self.stale {
            tracing::warn!(stale, "executors without a recent heartbeat; see: towpath executor list");
        }
        self.stale = stale;
        Ok(stale)
    }
}

fn note(task: Task, pass: &Pass) {
    let filled =
        |field: &str| pass.did.get(field).and_then(|list| list.as_array()).is_some_and(|l| !l.is_empty());
    if ["created", "dropped", "repaired", "deferred"].iter().any(|field| filled(field)) {
        tracing::info!("{task:?}: {}", serde_json::Value::from(pass.did.clone()));
    }
}

/// Logs a failure when it is new and its end when it is over; answers what is the matter now.
fn said_once(task: Task, error: Option<Error>, before: Option<(Task, String)>) -> Option<(Task, String)> {
    match (error, before) {
        (Some(error), before) => {
            let words = error.to_string();
            match &before {
                Some((_, same)) if *same == words => return before,
                _ if matches!(error, Error::GateClosed { .. }) => {
                    tracing::info!("maintenance paused: {words}");
                }
                _ => tracing::warn!("{task:?} failed, will retry: {words}"),
            }
            Some((task, words))
        }
        (None, Some((failed, words))) if failed == task => {
            tracing::info!("{task:?} recovered from: {words}");
            None
        }
        (None, before) => before,
    }
}
