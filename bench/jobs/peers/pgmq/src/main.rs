//! pgmq: its SQL functions, called as its documentation says; four readers of 100 messages
//! that delete what they have handled.
//!
//! A message queue, not a job framework: no retry policy, no priorities, no handlers, and
//! nothing is left of a finished job. Its notifications are a trigger per row with a
//! throttle that is updated by each, so idle readers poll instead, more often than anyone
//! would like to pay for.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use measure::NOTE;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;
use tokio::time::sleep;

const READERS: u32 = 4;
const READ_JOBS: i32 = 100;
/// How long a message stays with its reader.
const VISIBILITY_SECONDS: i32 = 60;
/// How long a reader that found nothing waits.
const POLL: Duration = Duration::from_millis(5);

#[derive(Clone)]
struct Queue {
    pool: PgPool,
}

impl measure::Queue for Queue {
    type Worker = JoinSet<()>;

    async fn setup(url: &str) -> Result<()> {
        let pool = Self::connect(url, 2).await?.pool;
        pgmq::install::install_sql_from_embedded(&pool).await?;
        sqlx::query("select pgmq.create('noop')").execute(&pool).await?;
        Ok(())
    }

    async fn connect(url: &str, connections: u32) -> Result<Self> {
        Ok(Queue { pool: PgPoolOptions::new().max_connections(connections).connect(url).await? })
    }

    async fn enqueue_one(&self, number: u64) -> Result<()> {
        let message = json!({ "number": number, "note": NOTE });
        sqlx::query("select pgmq.send('noop', $1)").bind(message).execute(&self.pool).await?;
        Ok(())
    }

    async fn enqueue_many(&self, numbers: Range<u64>) -> Result<()> {
        let messages: Vec<Value> = numbers.map(|number| json!({ "number": number, "note": NOTE })).collect();
        sqlx::query("select count(*) from pgmq.send_batch('noop', $1)")
            .bind(messages)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn work(url: &str) -> Result<JoinSet<()>> {
        let queue = Self::connect(url, READERS).await?;
        let mut tasks = JoinSet::new();
        for _ in 0..READERS {
            let pool = queue.pool.clone();
            tasks.spawn(async move {
                loop {
                    if read(&pool).await.expect("pgmq answers") == 0 {
                        sleep(POLL).await;
                    }
                }
            });
        }
        Ok(tasks)
    }

    async fn all_finished(&self, _jobs: u64) -> Result<bool> {
        let left = sqlx::query("select from pgmq.q_noop limit 1");
        Ok(left.fetch_optional(&self.pool).await?.is_none())
    }

    async fn stop(mut worker: JoinSet<()>) -> Result<()> {
        worker.shutdown().await;
        Ok(())
    }
}

/// Reads, handles and deletes one batch.
async fn read(pool: &PgPool) -> Result<usize> {
    let messages: Vec<(i64, Value)> = sqlx::query_as("select msg_id, message from pgmq.read('noop', $1, $2)")
        .bind(VISIBILITY_SECONDS)
        .bind(READ_JOBS)
        .fetch_all(pool)
        .await?;
    messages.iter().for_each(|_| measure::started());
    let ids: Vec<i64> = messages.iter().map(|(id, _)| *id).collect();
    if !ids.is_empty() {
        sqlx::query("select count(*) from pgmq.delete('noop', $1)").bind(&ids).execute(pool).await?;
    }
    Ok(ids.len())
}

#[tokio::main]
async fn main() -> Result<()> {
    measure::run::<Queue>().await
}
