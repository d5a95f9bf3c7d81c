//! A queue and what a worker needs on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::NewJob;
use towpath_model::job::JobId;
use towpath_testkit::TestDb;
use towpath_worker::{Builder, Job, Maintenance, Worker};

pub(crate) const EXECUTOR: &str = "tester";
/// A test that waits longer than this has found a bug.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// A typed job for tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) to_ref: String,
}

impl Job for Mail {
    const KIND: &'static str = "mail";
}

pub(crate) fn mail(to: &str) -> NewJob {
    Mail { to_ref: to.to_owned() }.new_job().unwrap()
}

/// An open queue, seen as the worker's login.
pub(crate) struct Place {
    pub(crate) db: TestDb,
    pub(crate) worker: Database,
    pub(crate) admin: Database,
}

impl Place {
    pub(crate) async fn open() -> Place {
        let db = TestDb::open().await;
        let (worker, _) = db.database_as("worker_service_user").await;
        let admin = db.database().await;
        let place = Place { db, worker, admin };
        place.subscribe("p_max_parallel => null, p_enabled => true").await;
        place
    }

    pub(crate) async fn subscribe(&self, more: &str) {
        self.db.json(&format!("towpath.fn_consumer_put('{EXECUTOR}', 'PG_worker')")).await;
        self.db.json(&format!("towpath.fn_job_subscription_put('{EXECUTOR}', 'PG_worker', {more})")).await;
    }

    /// Maintenance, under the maintainer's own login.
    pub(crate) async fn maintenance(&self) -> Maintenance {
        Maintenance::new(self.db.database_as("towpath_maintainer").await.0)
    }

    /// A worker in the making, under the worker's own login.
    pub(crate) fn builder(&self) -> Builder {
        Worker::builder(self.worker.clone(), EXECUTOR)
    }

    pub(crate) async fn enqueue(&self, job: &NewJob) -> JobId {
        self.admin.enqueue(job).await.unwrap().job_id
    }

    pub(crate) async fn state(&self, job_id: JobId) -> String {
        self.db.text(&format!("select state from towpath.job_queue where job_id = '{job_id}'")).await
    }

    /// Jobs by state, as in `queued 1, succeeded 2`.
    pub(crate) async fn states(&self) -> String {
        self.db
            .text(
                "select coalesce(string_agg(state || ' ' || n, ', ' order by state), '')
                   from (select state, count(*) n from towpath.job_queue group by state) s",
            )
            .await
    }

    /// Waits until the queue looks like this.
    pub(crate) async fn until_states(&self, wanted: &str) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let states = self.states().await;
            if states == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "it is {states} and never became {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A worker that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(worker: Worker) -> Running {
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(worker.run(stop.clone())), stop }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("it drains").expect("without a panic");
    }
}

/// Counts, and lets a test wait for a number.
#[derive(Clone)]
pub(crate) struct Count(Arc<watch::Sender<usize>>);

impl Count {
    pub(crate) fn new() -> Count {
        Count(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn add(&self) -> usize {
        self.0.send_modify(|count| *count += 1);
        *self.0.borrow()
    }

    pub(crate) fn now(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) async fn until(&self, wanted: usize) {
        let mut seen = self.0.subscribe();
        let waited = tokio::time::timeout(WAIT_MAX, seen.wait_for(|count| *count >= wanted)).await;
        assert!(waited.is_ok(), "{} never became {wanted}", self.now());
    }
}

/// How many things happen at once, at most.
#[derive(Clone, Default)]
pub(crate) struct AtOnce(Arc<(AtomicUsize, Mutex<usize>)>);

impl AtOnce {
    pub(crate) fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        let mut most = self.0.1.lock().unwrap();
        *most = (*most).max(now);
    }

    pub(crate) fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn most(&self) -> usize {
        *self.0.1.lock().unwrap()
    }
}
