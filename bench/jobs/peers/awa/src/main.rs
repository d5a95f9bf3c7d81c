//! awa with 1,024 slots, no deadline per job (its compact receipts need that) and batches
//! enqueued by COPY.
//!
//! Its defaults (50 slots, deadlines, batches by INSERT) are some four times slower.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig,
};
use measure::NOTE;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "noop";
const WORKER_CONNECTIONS: u32 = 20;

#[derive(Serialize, Deserialize, JobArgs)]
struct Noop {
    number: u64,
    note: String,
}

impl Noop {
    fn new(number: u64) -> Noop {
        Noop { number, note: NOTE.to_owned() }
    }
}

#[derive(Clone)]
struct Queue {
    pool: PgPool,
    storage: Arc<QueueStorage>,
}

impl measure::Queue for Queue {
    type Worker = Client;

    async fn setup(url: &str) -> Result<()> {
        let queue = Self::connect(url, 2).await?;
        Ok(awa::migrations::run(&queue.pool).await?)
    }

    async fn connect(url: &str, connections: u32) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(connections).connect(url).await?;
        let storage = Arc::new(QueueStorage::new(QueueStorageConfig::default())?);
        Ok(Queue { pool, storage })
    }

    async fn enqueue_one(&self, number: u64) -> Result<()> {
        awa::insert_with(&self.pool, &Noop::new(number), options()).await?;
        Ok(())
    }

    async fn enqueue_many(&self, numbers: Range<u64>) -> Result<()> {
        let job = |number| -> Result<InsertParams> {
            let args = serde_json::to_value(Noop::new(number))?;
            Ok(InsertParams { kind: Noop::kind().to_owned(), args, opts: options() })
        };
        let jobs = numbers.map(job).collect::<Result<Vec<_>>>()?;
        self.storage.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn work(url: &str) -> Result<Client> {
        let pool = PgPoolOptions::new().max_connections(WORKER_CONNECTIONS).connect(url).await?;
        let config =
            QueueConfig { max_workers: 1024, deadline_duration: Duration::ZERO, ..QueueConfig::default() };
        let client = Client::builder(pool)
            .queue(QUEUE, config)
            .register::<Noop, _, _>(|_args, _context| async move {
                measure::started();
                Ok(JobResult::Completed)
            })
            .build()?;
        client.start().await?;
        Ok(client)
    }

    /// Its views take seconds on a long history, so the three tables that record ends are
    /// added up here.
    async fn all_finished(&self, jobs: u64) -> Result<bool> {
        let finished: i64 = sqlx::query_scalar(
            "select ((select coalesce(sum(cardinality(job_ids)), 0) from awa.receipt_completion_batches)
                  + (select count(*) from awa.done_entries)
                  + (select coalesce(sum(pruned_completed_count), 0) from awa.queue_terminal_rollups))::bigint",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(finished >= i64::try_from(jobs)?)
    }

    async fn stop(worker: Client) -> Result<()> {
        worker.shutdown(Duration::from_secs(2)).await;
        Ok(())
    }
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

#[tokio::main]
async fn main() -> Result<()> {
    measure::run::<Queue>().await
}
