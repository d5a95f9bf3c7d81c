//! A queue to test on: open gates, one subscribed executor, a login per role.

use std::time::Duration;

use serde_json::Value;
use towpath_db::job::{Claim, ClaimedJob, Lease, LeaseOwner, NewJob};
use towpath_db::{Database, Error};
use towpath_model::job::JobId;
use towpath_testkit::TestDb;

/// The executor that is subscribed to everything.
pub(crate) const EXECUTOR: &str = "tester";
pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A database, and its usual users: a producer that may enqueue everything, a worker, a maintainer.
pub(crate) struct Queue {
    pub(crate) db: TestDb,
    pub(crate) producer: Database,
    pub(crate) worker: Database,
    pub(crate) maintainer: Database,
}

impl Queue {
    /// Every gate open, no limit on what runs at once.
    pub(crate) async fn open() -> Queue {
        let db = TestDb::open().await;
        let (worker, _) = db.database_as("worker_service_user").await;
        let (maintainer, _) = db.database_as("towpath_maintainer").await;
        let (producer, login) = db.database_as("towpath_producer").await;
        db.execute(&format!("select towpath.fn_producer_grant_put('{login}', p_any_kind => true)")).await;
        let queue = Queue { db, producer, worker, maintainer };
        queue.subscribe(EXECUTOR, "p_max_parallel => null, p_enabled => true").await;
        queue
    }

    /// Makes a subscription as the administrator does; `more` are further arguments.
    pub(crate) async fn subscribe(&self, executor: &str, more: &str) -> Value {
        self.db.json(&format!("towpath.fn_consumer_put('{executor}', 'PG_worker')")).await;
        let sql = format!("towpath.fn_job_subscription_put('{executor}', 'PG_worker', {more})");
        self.db.json(&sql).await
    }

    pub(crate) async fn enqueue(&self, kind: &str) -> JobId {
        self.enqueue_job(&NewJob::new(kind)).await
    }

    pub(crate) async fn enqueue_job(&self, job: &NewJob) -> JobId {
        self.producer.enqueue(job).await.unwrap().job_id
    }

    pub(crate) async fn enqueue_times(&self, kind: &str, count: usize) {
        for _ in 0..count / 1_000 {
            self.producer.enqueue_many(&vec![NewJob::new(kind); 1_000]).await.unwrap();
        }
        if !count.is_multiple_of(1_000) {
            self.producer.enqueue_many(&vec![NewJob::new(kind); count % 1_000]).await.unwrap();
        }
    }

    /// Claims up to `limit` jobs of any kind as `owner`.
    pub(crate) async fn claim_as(&self, owner: &str, limit: i32) -> Result<Vec<ClaimedJob>, Error> {
        let owner = LeaseOwner::new(owner);
        let claim = Claim { executor: EXECUTOR, kinds: None, limit, owner: &owner, lease: Some(LEASE) };
        self.worker.claim(&claim).await
    }

    /// Claims the one job that is due.
    pub(crate) async fn claim(&self) -> Lease {
        let mut jobs = self.claim_as("a", 1).await.unwrap();
        jobs.pop().expect("a job is due").lease
    }

    /// Runs the reaper; answers how many jobs it took back or buried.
    pub(crate) async fn reap(&self) -> i64 {
        let reaped = self.maintainer.job_reap(1_000).await.unwrap();
        reaped.retried + reaped.dead_letter
    }

    /// The one number that a query answers.
    pub(crate) async fn number(&self, sql: &str) -> usize {
        self.db.text(sql).await.parse().unwrap()
    }

    /// The state of a job as `job_queue` shows it.
    pub(crate) async fn state(&self, job_id: JobId) -> String {
        self.db.text(&format!("select state from towpath.job_queue where job_id = '{job_id}'")).await
    }
}

/// The seed of a random history, printed, or the one to repeat.
#[expect(clippy::print_stdout, reason = "a failed test shows it, and it can be run again")]
pub(crate) fn seed() -> u64 {
    const VARIABLE: &str = "TOWPATH_TEST_SEED";
    let seed = std::env::var(VARIABLE).map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("{VARIABLE}={seed}");
    seed
}
