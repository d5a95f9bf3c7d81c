//! A queue to test on: open gates, one subscribed executor, a login per role.

use std::time::Duration;

use serde_json::Value;
use towpath_db::job::{Claim, ClaimedJob, Lease, LeaseOwner, NewJob};
use towpath_db::{Database, Error};
use towpath_model::job::JobId;

use crate::TestDb;

/// The executor that is subscribed to everything.
pub const EXECUTOR: &str = "tester";
/// The lease that `claim_as` asks for.
pub const LEASE: Duration = Duration::from_secs(30);
/// A second.
pub const SECOND: Duration = Duration::from_secs(1);

/// A database, and its usual users: an administrator, a producer that may enqueue everything, a worker, a maintainer.
pub struct Queue {
    /// The database.
    pub db: TestDb,
    /// As the owner of the server.
    pub admin: Database,
    /// As a login that may enqueue every kind and do nothing else.
    pub producer: Database,
    /// As a login that has `worker_service_user` and nothing else (P10).
    pub worker: Database,
    /// As a login that has `towpath_maintainer` and nothing else.
    pub maintainer: Database,
}

impl Queue {
    /// All gates open, no limit on parallel jobs.
    pub async fn open() -> Queue {
        let db = TestDb::open().await;
        let admin = db.database().await;
        let (worker, _) = db.database_as("worker_service_user").await;
        let (maintainer, _) = db.database_as("towpath_maintainer").await;
        let (producer, login) = db.database_as("towpath_producer").await;
        db.call(&format!("fn_producer_grant_put('{login}', p_any_kind => true)")).await;
        let queue = Queue { db, admin, producer, worker, maintainer };
        queue.subscribe(EXECUTOR, "p_max_parallel => null, p_enabled => true").await;
        queue
    }

    /// Subscribes an executor as the administrator does; `more` are further arguments.
    pub async fn subscribe(&self, executor: &str, more: &str) -> Value {
        self.db.call(&format!("fn_consumer_put('{executor}', 'PG_worker')")).await;
        self.db.json(&format!("towpath.fn_job_subscription_put('{executor}', 'PG_worker', {more})")).await
    }

    /// Enqueues a job of this kind.
    pub async fn enqueue(&self, kind: &str) -> JobId {
        self.enqueue_job(&NewJob::new(kind)).await
    }

    /// Enqueues this job.
    pub async fn enqueue_job(&self, job: &NewJob) -> JobId {
        self.producer.enqueue(job).await.expect("the producer may enqueue").job_id
    }

    /// Enqueues `count` jobs of this kind, at most a thousand per call.
    pub async fn enqueue_times(&self, kind: &str, count: usize) {
        let jobs = vec![NewJob::new(kind); count];
        for some in jobs.chunks(1_000) {
            self.producer.enqueue_many(some).await.expect("the producer may enqueue");
        }
    }

    /// Claims up to `limit` jobs of any kind as `owner`.
    pub async fn claim_as(&self, owner: &str, limit: i32) -> Result<Vec<ClaimedJob>, Error> {
        let owner = LeaseOwner::new(owner);
        let claim = Claim { executor: EXECUTOR, kinds: None, limit, owner: &owner, lease: Some(LEASE) };
        self.worker.claim(&claim).await
    }

    /// Claims the one job that is due.
    pub async fn claim(&self) -> Lease {
        let mut jobs = self.claim_as("a", 1).await.expect("the worker may claim");
        jobs.pop().expect("a job is due").lease
    }

    /// Runs the reaper; returns how many jobs wait again or became dead letters.
    pub async fn reap(&self) -> i64 {
        let reaped = self.maintainer.job_reap(1_000).await.expect("the maintainer may reap");
        reaped.retried + reaped.dead_letter
    }

    /// The one number that a query returns.
    pub async fn number(&self, sql: &str) -> usize {
        self.db.text(sql).await.parse().expect("the query returns a number")
    }

    /// The state of a job as `job_queue` shows it.
    pub async fn state(&self, job_id: JobId) -> String {
        self.db.text(&format!("select state from towpath.job_queue where job_id = '{job_id}'")).await
    }

    /// The number of jobs by state, as in `queued 1, succeeded 2`.
    pub async fn states(&self) -> String {
        self.db.text(STATES).await
    }

    /// Waits until the jobs have these states.
    pub async fn until_states(&self, wanted: &str) {
        self.db.until(STATES, wanted).await;
    }
}

const STATES: &str = "select coalesce(string_agg(state || ' ' || n, ', ' order by state), '')
                        from (select state, count(*) n from towpath.job_queue group by state) s";
