//! Metrics of the database, from a survey that runs every few seconds while they are scraped.
//!
//! The survey runs in the background, never in a scrape: a scrape gets the last result, and without
//! a database its gauges are absent, not stale. The longer a survey takes, the rarer it runs, so that
//! monitoring stays a small part of the database's load.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::metrics::{PostgresHealth, Survey};
use towpath_model::metrics::Register;

use super::Metrics;
use crate::limits;

/// The metrics of the database and its survey.
pub struct SurveyNumbers {
    database: Option<Database>,
    shared: Arc<Shared>,
}

struct Shared {
    last: Mutex<Last>,
    gauges: Gauges,
}

/// The last result, and the time of the last scrape.
struct Last {
    seen: Option<(Survey, PostgresHealth)>,
    seconds: f64,
    failed: u64,
    up: bool,
    asked_at: Instant,
}

type Number = Gauge<f64, AtomicU64>;
type Numbers<L> = Family<L, Number>;

macro_rules! labels {
    ($($name:ident { $($label:ident: $type:ty),* })*) => {
        $(#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($label: $type),* })*
    };
}

labels! {
    KindState { kind: String, state: String }
    KindOutcome { kind: String, outcome: String }
    KindCause { kind: String, cause: String }
    Kind { kind: String }
    State { state: String }
    Status { status: String }
    Freshness { freshness: String }
    Worker { worker: String }
    Target { target: String }
    Gate { gate: String }
    Table { table: String }
    Loop { r#loop: String }
    Outcome { outcome: &'static str }
}

/// No labels: a family with one member, so that it can be absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Plain;

impl EncodeLabelSet for Plain {
    fn encode(&self, _: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        Ok(())
    }
}

#[derive(Default)]
struct Gauges {
    up: Number,
    seconds: Number,
    failed: Counter,
    jobs_enqueued: Counter,
    jobs_finished: Family<KindOutcome, Counter>,
    jobs_depth: Numbers<KindState>,
    oldest_ready: Numbers<Kind>,
    jobs_unhandled: Numbers<KindCause>,
    dead_letters: Numbers<Status>,
    kinds_paused: Numbers<Plain>,
    schedules_paused: Numbers<Plain>,
    schedule_late: Numbers<Plain>,
    executors: Numbers<Freshness>,
    events_numbered: Counter,
    horizon_lag: Numbers<Plain>,
    cursor_lag: Numbers<Worker>,
    deliveries: Numbers<Target>,
    route_dead_letters: Numbers<Plain>,
    circuits_open: Numbers<Plain>,
    processes: Numbers<KindState>,
    processes_overdue: Numbers<Kind>,
    gates: Numbers<Gate>,
    dead_rows: Numbers<Table>,
    loop_faults: Numbers<Loop>,
    connections: Numbers<State>,
    connections_max: Numbers<Plain>,
    oldest_transaction: Numbers<Plain>,
    transactions: Family<Outcome, Counter>,
    deadlocks: Counter,
    transaction_id_age: Numbers<Plain>,
    replicas: Numbers<Plain>,
    replica_lag: Numbers<Plain>,
    pool: Numbers<State>,
}

impl SurveyNumbers {
    /// The metrics of this database; without one, only their names.
    pub fn new(metrics: &Metrics, database: Option<Database>) -> SurveyNumbers {
        let last = Last { seen: None, seconds: 0.0, failed: 0, up: false, asked_at: Instant::now() };
        let shared = Arc::new(Shared { last: Mutex::new(last), gauges: Gauges::default() });
        metrics.register(|registry| shared.gauges.register(registry));
        let (asked, pool) = (shared.clone(), database.clone());
        metrics.on_scrape(move || asked.refresh(pool.as_ref()));
        SurveyNumbers { database, shared }
    }

    /// Runs the survey until `shutdown`, while metrics are scraped.
    pub async fn run(self, shutdown: CancellationToken) {
        let Some(database) = &self.database else { return };
        let mut kinds = vec![];
        while !shutdown.is_cancelled() {
            let mut rest = limits::SURVEY_EVERY;
            if self.shared.last().asked_at.elapsed() < limits::SURVEY_UNASKED_MAX {
                let began = Instant::now();
                let seen = look(database, &kinds).await;
                let took = began.elapsed();
                // A failed survey cost the database nothing.
                if let Some((survey, _)) = &seen {
                    kinds.clone_from(&survey.kinds);
                    rest = rest.max(took * limits::SURVEY_SHARE).min(limits::SURVEY_REST_MAX);
                }
                self.shared.note(seen, took);
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }
}

/// One survey with a time limit; `None` if it failed.
async fn look(database: &Database, kinds: &[String]) -> Option<(Survey, PostgresHealth)> {
    match tokio::time::timeout(limits::SURVEY_WAIT_MAX, database.survey(kinds)).await {
        Ok(Ok(seen)) => Some(seen),
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot read metrics from the database");
            None
        }
        Err(_) => None,
    }
}

impl Shared {
    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, seen: Option<(Survey, PostgresHealth)>, took: Duration) {
        let mut last = self.last();
        last.up = seen.is_some();
        last.failed += u64::from(seen.is_none());
        last.seen = seen;
        last.seconds = took.as_secs_f64();
    }

    /// Sets the gauges to the last result. Called under the registry's lock.
    fn refresh(&self, pool: Option<&Database>) {
        let mut last = self.last();
        last.asked_at = Instant::now();
        let gauges = &self.gauges;
        gauges.clear();
        if let Some((survey, postgres)) = &last.seen {
            gauges.set(survey);
            gauges.set_postgres(postgres);
        }
        gauges.up.set(f64::from(u8::from(last.up)));
        gauges.seconds.set(last.seconds);
        gauges.failed.inner().store(last.failed, Relaxed);
        if let Some(pool) = pool.map(Database::pool_state) {
            for (state, n) in [("used", pool.used), ("free", pool.free), ("waiting", pool.waiting)] {
                set(&gauges.pool, &State { state: state.to_owned() }, n as f64);
            }
        }
    }
}

fn set<L: Clone + std::hash::Hash + Eq>(numbers: &Numbers<L>, label: &L, value: f64) {
    numbers.get_or_create(label).set(value);
}

impl Gauges {
    fn clear(&self) {
        self.jobs_depth.clear();
        self.oldest_ready.clear();
        self.jobs_unhandled.clear();
        self.dead_letters.clear();
        self.executors.clear();
        self.cursor_lag.clear();
        self.deliveries.clear();
        self.processes.clear();
        self.processes_overdue.clear();
        self.gates.clear();
        self.dead_rows.clear();
        self.loop_faults.clear();
        self.connections.clear();
        for number in self.plain() {
            number.clear();
        }
    }

    /// The metrics without labels.
    fn plain(&self) -> [&Numbers<Plain>; 11] {
        [
            &self.kinds_paused,
            &self.schedules_paused,
            &self.schedule_late,
            &self.horizon_lag,
            &self.route_dead_letters,
            &self.circuits_open,
            &self.connections_max,
            &self.oldest_transaction,
            &self.transaction_id_age,
            &self.replicas,
            &self.replica_lag,
        ]
    }

    fn set(&self, survey: &Survey) {
        self.jobs_enqueued.inner().store(survey.jobs_enqueued, Relaxed);
        self.events_numbered.inner().store(survey.events_numbered, Relaxed);
        for one in &survey.jobs_finished {
            let label = KindOutcome { kind: one.kind.clone(), outcome: one.outcome.clone() };
            self.jobs_finished.get_or_create(&label).inner().store(one.n, Relaxed);
        }
        for one in &survey.jobs_depth {
            set(&self.jobs_depth, &KindState { kind: one.kind.clone(), state: one.state.clone() }, one.n);
        }
        for one in &survey.oldest_ready {
            set(&self.oldest_ready, &Kind { kind: one.kind.clone() }, one.seconds);
        }
        for one in &survey.jobs_unhandled {
            set(&self.jobs_unhandled, &KindCause { kind: one.kind.clone(), cause: one.cause.clone() }, one.n);
        }
        for (status, n) in &survey.dead_letters {
            set(&self.dead_letters, &Status { status: status.clone() }, *n);
        }
        for (freshness, n) in &survey.executors {
            set(&self.executors, &Freshness { freshness: freshness.clone() }, *n);
        }
        for one in &survey.outbox_cursor_lag {
            set(&self.cursor_lag, &Worker { worker: one.worker.clone() }, one.n);
        }
        for (target, n) in &survey.deliveries {
            set(&self.deliveries, &Target { target: target.clone() }, *n);
        }
        for one in &survey.processes {
            set(&self.processes, &KindState { kind: one.kind.clone(), state: one.state.clone() }, one.n);
            let overdue = self.processes_overdue.get_or_create_owned(&Kind { kind: one.kind.clone() });
            overdue.inc_by(one.overdue);
        }
        for (gate, open) in &survey.gates {
            set(&self.gates, &Gate { gate: gate.clone() }, f64::from(u8::from(*open)));
        }
        for (table, n) in &survey.dead_rows {
            set(&self.dead_rows, &Table { table: table.clone() }, *n);
        }
        for (name, n) in &survey.loop_faults {
            set(&self.loop_faults, &Loop { r#loop: name.clone() }, *n);
        }
        set(&self.kinds_paused, &Plain, survey.kinds_paused);
        set(&self.schedules_paused, &Plain, survey.schedules_paused);
        set(&self.schedule_late, &Plain, survey.schedule_late_seconds);
        set(&self.horizon_lag, &Plain, survey.outbox_horizon_lag_seconds);
        set(&self.route_dead_letters, &Plain, survey.route_dead_letters);
        set(&self.circuits_open, &Plain, survey.route_circuits_open);
    }

    fn set_postgres(&self, postgres: &PostgresHealth) {
        for (state, n) in &postgres.connections {
            set(&self.connections, &State { state: state.clone() }, *n);
        }
        for (outcome, n) in [("commit", postgres.commits), ("rollback", postgres.rollbacks)] {
            self.transactions.get_or_create(&Outcome { outcome }).inner().store(n, Relaxed);
        }
        self.deadlocks.inner().store(postgres.deadlocks, Relaxed);
        set(&self.connections_max, &Plain, postgres.connections_max);
        set(&self.oldest_transaction, &Plain, postgres.oldest_transaction_seconds);
        set(&self.transaction_id_age, &Plain, postgres.transaction_id_age);
        set(&self.replicas, &Plain, postgres.replicas);
        set(&self.replica_lag, &Plain, postgres.replica_lag_bytes);
    }

    fn register(&self, to: &mut Register<'_>) {
        to.register("database_up", "1 if the last read of the database succeeded", &self.up);
        to.register("database_survey_seconds", "Duration of the last read of the database", &self.seconds);
        to.register("database_survey_failures", "Failed reads of the database", &self.failed);
        self.register_jobs(to);
        self.register_events(to);
        self.register_postgres(to);
    }

    fn register_jobs(&self, to: &mut Register<'_>) {
        let help = "Jobs written, as counted by PostgreSQL, including rolled-back transactions";
        to.register("jobs_enqueued", help, &self.jobs_enqueued);
        let help = "Finished attempts in the whole system, by kind and outcome";
        to.register("jobs_finished", help, &self.jobs_finished);
        let help = "Unfinished jobs, by kind and state; estimated above about 50000";
        to.register("jobs_depth", help, &self.jobs_depth);
        let help = "How long the oldest claimable job has been due, by kind";
        to.register("oldest_ready_age_seconds", help, &self.oldest_ready);
        let help = "Due jobs that no live worker handles, by kind and cause; see: towpath queue health";
        to.register("jobs_unhandled", help, &self.jobs_unhandled);
        let help = "Dead letters that are not closed, by status; each counted up to 100000";
        to.register("dead_letters_open", help, &self.dead_letters);
        to.register("kinds_paused", "Paused job kinds", &self.kinds_paused);
        to.register("schedules_paused", "Paused schedules", &self.schedules_paused);
        let help = "How long the most overdue schedule tick has been due";
        to.register("schedule_late_seconds", help, &self.schedule_late);
        let help = "Executors, by age of their heartbeat (fresh, warning, stale)";
        to.register("executors", help, &self.executors);
        let help = "1 if the gate is open";
        to.register("gate_open", help, &self.gates);
        let help = "Unfinished processes, by kind and state; counted up to 100000";
        to.register("processes", help, &self.processes);
        let help = "Processes whose next check is overdue, by kind";
        to.register("processes_overdue", help, &self.processes_overdue);
        let help = "Items that a loop set aside because they fail, by loop; see: towpath fault list";
        to.register("loop_faults", help, &self.loop_faults);
    }

    fn register_events(&self, to: &mut Register<'_>) {
        to.register("events_numbered", "Events that got a position", &self.events_numbered);
        let help = "Age of the oldest committed event without a position";
        to.register("outbox_horizon_lag_seconds", help, &self.horizon_lag);
        let help = "Events that the slowest slice of a route worker is behind, by worker";
        to.register("outbox_cursor_lag_events", help, &self.cursor_lag);
        let help = "Unfinished route deliveries, by target (webhook, stream); each counted up to 100000";
        to.register("route_deliveries_open", help, &self.deliveries);
        let help = "Unresolved route dead letters; counted up to 100000";
        to.register("route_dead_letters_open", help, &self.route_dead_letters);
        let help = "Route targets whose circuit is open or half-open";
        to.register("route_circuits_open", help, &self.circuits_open);
    }

    fn register_postgres(&self, to: &mut Register<'_>) {
        let help = "PostgreSQL connections of all clients, by state";
        to.register("postgres_connections", help, &self.connections);
        let help = "max_connections of PostgreSQL";
        to.register("postgres_connections_max", help, &self.connections_max);
        let help = "Age of the oldest transaction in this database that the login can see";
        to.register("postgres_oldest_transaction_seconds", help, &self.oldest_transaction);
        let help = "Transactions of this database, by outcome (commit, rollback)";
        to.register("postgres_transactions", help, &self.transactions);
        to.register("postgres_deadlocks", "Deadlocks in this database", &self.deadlocks);
        let help =
            "Age of the oldest unfrozen transaction id in the cluster; PostgreSQL stops near 2 billion";
        to.register("postgres_transaction_id_age", help, &self.transaction_id_age);
        let help = "Dead rows that vacuum has not removed, by table";
        to.register("postgres_dead_rows", help, &self.dead_rows);
        to.register("postgres_replicas", "Streaming replicas", &self.replicas);
        let help = "Bytes that the slowest replica has not replayed";
        to.register("postgres_replica_lag_bytes", help, &self.replica_lag);
        let help = "Database connections of this process, by state (used, free), and callers waiting for one";
        to.register("database_pool", help, &self.pool);
    }
}
