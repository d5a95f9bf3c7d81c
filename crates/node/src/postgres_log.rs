//! The log of commits in PostgreSQL: one row per commit, and the primary key is the fence.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use towpath_db::stream_log::{self, StoredCommit};
use towpath_db::{Database, Error};
use towpath_streams::{Commit, CommitLog, Put, Unreachable};
use uuid::Uuid;

/// The log in one database. The committer's thread calls it and waits; the runtime that opened it does the work.
pub struct PostgresLog {
    database: Database,
    runtime: Handle,
    /// This process, so that a retry knows its own commit from one with the same bytes.
    writer: Uuid,
    log_id: Uuid,
    /// By how much the database's clock is ahead of this machine's.
    ahead: SignedDuration,
}

impl PostgresLog {
    /// The log in a database that has the schema. Must be called in a runtime with several threads.
    pub async fn open(database: Database) -> Result<PostgresLog, Error> {
        let opened = database.stream_log_open().await?;
        let ahead = SignedDuration::from_millis(opened.now_ms - Timestamp::now().as_millisecond());
        let (runtime, writer) = (Handle::current(), Uuid::now_v7());
        Ok(PostgresLog { database, runtime, writer, log_id: opened.log_id, ahead })
    }

    /// The clock of the database, as it was when the log was opened. All nodes of a store go by it, because lives and
    /// ages are decided by time.
    pub fn clock(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let ahead = self.ahead;
        Arc::new(move || Timestamp::now() + ahead)
    }
}

impl CommitLog for PostgresLog {
    fn id(&self) -> String {
        self.log_id.to_string()
    }

    fn put(&self, commit: &Commit) -> Result<Put, Unreachable> {
        let stored = StoredCommit { number: commit.number, chain: commit.chain, body: commit.body.clone() };
        let put = self.database.stream_log_put(self.writer, commit.before, &stored);
        match self.runtime.block_on(put).map_err(|error| unreachable(&error))? {
            stream_log::Put::Done => Ok(Put::Done),
            stream_log::Put::Taken => Ok(Put::Taken),
            stream_log::Put::Diverged => Ok(Put::Diverged),
        }
    }

    fn after(&self, number: u64, bytes_max: usize) -> Result<Vec<Commit>, Unreachable> {
        let read = self.database.stream_log_read(number, bytes_max);
        let stored = self.runtime.block_on(read).map_err(|error| unreachable(&error))?;
        // What comes before the first is the reader's own: it compares the chain.
        let commit = |StoredCommit { number, chain, body }| Commit { number, chain, before: 0, body };
        Ok(stored.into_iter().map(commit).collect())
    }
}

fn unreachable(error: &Error) -> Unreachable {
    Unreachable(error.to_string())
}
