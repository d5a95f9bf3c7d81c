//! graphile_worker (crate), batched, in the settings of its own performance test: 500 slots,
//! a local queue of 5,000, completions gathered for 5 ms.
//!
//! Its defaults (no local queue, no gathering) are some eighty times slower.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use measure::NOTE;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const SCHEMA: &str = "graphile_worker";
/// Enough for 500 slots that share batches; the rest would only wait for a core.
const WORKER_CONNECTIONS: u32 = 20;

#[derive(Serialize, Deserialize)]
struct Noop {
    number: u64,
    note: String,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        measure::started();
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Queue {
    pool: PgPool,
    utils: Arc<WorkerUtils>,
}

impl measure::Queue for Queue {
    type Worker = Arc<Worker>;

    async fn setup(url: &str) -> Result<()> {
        Ok(Self::connect(url, 1).await?.utils.migrate().await?)
    }

    async fn connect(url: &str, connections: u32) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(connections).connect(url).await?;
        let utils = Arc::new(WorkerUtils::new(Database::from(pool.clone()), SCHEMA));
        Ok(Queue { pool, utils })
    }

    async fn enqueue_one(&self, number: u64) -> Result<()> {
        self.utils.add_job(Noop { number, note: NOTE.to_owned() }, JobSpec::default()).await?;
        Ok(())
    }

    async fn enqueue_many(&self, numbers: Range<u64>) -> Result<()> {
        let job = |number| RawJobSpec {
            identifier: Noop::IDENTIFIER.to_owned(),
            payload: serde_json::json!({ "number": number, "note": NOTE }),
            spec: JobSpec::default(),
        };
        self.utils.add_raw_jobs(&numbers.map(job).collect::<Vec<_>>()).await?;
        Ok(())
    }

    async fn work(url: &str) -> Result<Arc<Worker>> {
        let pool = PgPoolOptions::new().max_connections(WORKER_CONNECTIONS).connect(url).await?;
        let worker = WorkerOptions::default()
            .schema(SCHEMA)
            .pg_pool(pool)
            .concurrency(500)
            .poll_interval(Duration::from_millis(5))
            .complete_job_batch_delay(Duration::from_millis(5))
            .local_queue(LocalQueueConfig::default().with_size(5000))
            .listen_os_shutdown_signals(false)
            .define_job::<Noop>()
            .init()
            .await?;
        let worker = Arc::new(worker);
        let running = worker.clone();
        tokio::spawn(async move { running.run().await.expect("the worker runs until it is stopped") });
        Ok(worker)
    }

    async fn all_finished(&self, _jobs: u64) -> Result<bool> {
        let left = sqlx::query("select from graphile_worker._private_jobs limit 1");
        Ok(left.fetch_optional(&self.pool).await?.is_none())
    }

    async fn stop(worker: Arc<Worker>) -> Result<()> {
        worker.request_shutdown();
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    measure::run::<Queue>().await
}
