//! Races with a fixed outcome: a test waits until PostgreSQL reports that one connection waits for another,
//! instead of sleeping.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::TestDb;
use crate::wait::{until_true, within};

/// One side of a race: a connection and its backend's process id.
pub struct Rival {
    client: Arc<Client>,
    pid: i32,
}

/// A statement that was sent and may be waiting for a lock.
pub struct Pending {
    statement: JoinHandle<Result<Vec<tokio_postgres::SimpleQueryMessage>, Error>>,
    pid: i32,
}

impl TestDb {
    /// A connection that can be one side of a race.
    pub async fn rival(&self) -> Rival {
        let client = self.client().await;
        let row = client.query_one("select pg_backend_pid()", &[]).await.expect("a backend has a number");
        Rival { pid: row.get(0), client: Arc::new(client) }
    }

    /// Waits until PostgreSQL reports that this statement waits for a lock.
    pub async fn until_blocked(&self, pending: &Pending) {
        let observer = self.client().await;
        let sql = "select cardinality(pg_blocking_pids($1)) > 0";
        until_true("a statement that waits for a lock", async || {
            assert!(!pending.statement.is_finished(), "the statement finished without waiting for anybody");
            observer.query_one(sql, &[&pending.pid]).await.expect("an answer").get(0)
        })
        .await;
    }
}

impl Rival {
    /// Runs statements and waits for them.
    pub async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Sends statements without waiting for them.
    pub fn send(&self, sql: &str) -> Pending {
        let (client, sql) = (self.client.clone(), sql.to_owned());
        let statement = tokio::spawn(async move { client.simple_query(&sql).await });
        Pending { statement, pid: self.pid }
    }
}

impl Pending {
    /// The first value of the first row, or the error, once the statement has ended.
    pub async fn value(self) -> Result<Option<String>, Error> {
        let messages = within("the end of the statement", self.statement).await.expect("no panic")?;
        Ok(messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0)?.to_owned()),
            _ => None,
        }))
    }
}

/// Runs `count` tasks that start at the same moment, and collects their results.
pub async fn all_at_once<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(count));
    let mut tasks = vec![];
    for index in 0..count {
        let (barrier, work) = (barrier.clone(), task(index));
        tasks.push(tokio::spawn(async move {
            barrier.wait().await;
            work.await
        }));
    }
    let mut answers = vec![];
    for task in tasks {
        answers.push(task.await.expect("a racing task does not panic"));
    }
    answers
}
