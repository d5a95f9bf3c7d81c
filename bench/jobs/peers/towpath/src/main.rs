//! Towpath with its defaults: one worker and its maintenance in one process.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use measure::NOTE;
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_db::job::NewJob;
use towpath_db::subscription::SubscriptionSpec;
use towpath_db::{Attribution, Database, GateMove, migrate};
use towpath_worker::{Job, Maintenance, Worker};

const EXECUTOR: &str = "bench";
const EXECUTOR_KIND: &str = "PG_worker";

#[derive(Serialize, Deserialize)]
struct Noop {
    number: u64,
    note: String,
}

impl Job for Noop {
    const KIND: &'static str = "noop";
}

impl Noop {
    fn new(number: u64) -> Noop {
        Noop { number, note: NOTE.to_owned() }
    }

    fn new_job(number: u64) -> Result<NewJob, towpath_db::Error> {
        NewJob::new(Noop::KIND).payload(&Noop::new(number))
    }
}

#[derive(Clone)]
struct Queue {
    database: Database,
    observer: Arc<tokio_postgres::Client>,
}

/// What runs, and how to end it.
struct Running {
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl measure::Queue for Queue {
    type Worker = Running;

    async fn setup(url: &str) -> Result<()> {
        migrate::run(url, migrate::Mode::Apply).await?;
        let database = Database::connect(url).await?;
        let by = Attribution { actor: EXECUTOR, reason: "to be measured" };
        for entry in database.config_list().await?.iter().filter(|entry| entry.is_gate()) {
            database.gate_set(&entry.key, GateMove::Open, by).await?;
        }
        database.consumer_put(EXECUTOR, EXECUTOR_KIND, None, None, EXECUTOR).await?;
        let subscription = SubscriptionSpec {
            executor_id: EXECUTOR,
            executor_kind: EXECUTOR_KIND,
            enabled: true,
            actor: EXECUTOR,
            ..SubscriptionSpec::default()
        };
        database.subscription_put(&subscription).await?;
        // A first round makes the partitions of the day, as `towpath up` does at its start.
        Maintenance::new(database).run_once().await?;
        Ok(())
    }

    /// The pool opens as many connections as there are callers, so the number needs no limit.
    async fn connect(url: &str, _connections: u32) -> Result<Self> {
        let (observer, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Queue { database: Database::connect(url).await?, observer: Arc::new(observer) })
    }

    async fn enqueue_one(&self, number: u64) -> Result<()> {
        self.database.enqueue(&Noop::new_job(number)?).await?;
        Ok(())
    }

    async fn enqueue_many(&self, numbers: Range<u64>) -> Result<()> {
        let jobs = numbers.map(Noop::new_job).collect::<Result<Vec<_>, _>>()?;
        for answer in self.database.enqueue_many(&jobs).await? {
            answer?;
        }
        Ok(())
    }

    async fn work(url: &str) -> Result<Running> {
        let database = Database::connect(url).await?;
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let worker = Worker::builder(database.clone(), EXECUTOR)
            .handle(|_: Noop, _| async {
                measure::started();
                Ok(())
            })
            .build()?;
        tasks.spawn(worker.run(shutdown.clone()));
        tasks.spawn(Maintenance::new(database).run(shutdown.clone()));
        tasks.close();
        Ok(Running { shutdown, tasks })
    }

    async fn all_finished(&self, _jobs: u64) -> Result<bool> {
        Ok(self.observer.query_opt("select from towpath._job_groups limit 1", &[]).await?.is_none())
    }

    async fn stop(worker: Running) -> Result<()> {
        worker.shutdown.cancel();
        worker.tasks.wait().await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    measure::run::<Queue>().await
}
