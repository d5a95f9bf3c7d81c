//! The log of commits that the nodes of a stream store share (S04).

use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Object;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::{Database, Error, Parameter, limits};

/// The log of a database.
#[derive(Debug, Clone, Deserialize)]
pub struct OpenedLog {
    /// Which log.
    pub log_id: Uuid,
    /// The number of the last commit, 0 if there is none.
    pub last: u64,
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

#[derive(Deserialize)]
struct Hold {
    held: bool,
    address: Option<String>,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCommit {
    /// Its number.
    pub number: u64,
    /// The checksum over all commits up to it.
    pub chain: u32,
    /// Its records.
    pub body: Bytes,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is durable, by this call or by an earlier one of the same writer.
    Done,
    /// Another writer has the number.
    Taken,
    /// The commit before is another one.
    Diverged,
}

impl Database {
    /// Which log there is. Makes it, the first time.
    pub async fn stream_log_open(&self) -> Result<OpenedLog, Error> {
        read(self.call("select towpath.fn_stream_log_open()", &[]).await?)
    }

    /// Asks for the place of the node that serves, for so many seconds; with 0 gives it up. Answers who has it instead.
    pub async fn stream_log_hold(
        &self,
        node: Uuid,
        address: &str,
        seconds: i32,
    ) -> Result<Option<String>, Error> {
        let sql = "select towpath.fn_stream_log_hold($1, $2, $3)";
        let hold: Hold = read(self.call(sql, &[&node, &address, &seconds]).await?)?;
        Ok((!hold.held).then(|| hold.address.unwrap_or_default()))
    }

    /// Makes a commit durable, if it follows one with the chain `before`. After an error, call it again with the same
    /// arguments.
    pub async fn stream_log_put(
        &self,
        writer: Uuid,
        before: u32,
        commit: &StoredCommit,
    ) -> Result<Put, Error> {
        let sql = "select towpath.fn_stream_log_put($1, $2, $3, $4, $5)";
        let (number, chain) = (number(commit.number), i64::from(commit.chain));
        let params: &[Parameter<'_>] = &[&writer, &number, &i64::from(before), &chain, &&*commit.body];
        let client = self.client().await?;
        let (client, rows) = within(client, sql, params, limits::STREAM_PUT_WAIT_MAX).await?;
        drop(client);
        let answer: Value = rows.first().map(|row| row.get(0)).unwrap_or_default();
        match read_field::<String>(answer, "put")?.as_str() {
            "done" | "found" => Ok(Put::Done),
            "taken" => Ok(Put::Taken),
            "diverged" => Ok(Put::Diverged),
            other => Err(Error::Unreadable(other.to_owned())),
        }
    }

    /// The commits after a number, about `bytes_max` bytes of them, and at least one if there is one.
    pub async fn stream_log_read(&self, after: u64, bytes_max: usize) -> Result<Vec<StoredCommit>, Error> {
        let sql = "select number, chain, body from towpath.fn_stream_log_read($1, $2)";
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let client = self.client().await?;
        let (client, rows) =
            within(client, sql, &[&number(after), &bytes_max], limits::STREAM_READ_WAIT_MAX).await?;
        drop(client);
        let commit = |row: &tokio_postgres::Row| StoredCommit {
            number: row.get::<_, i64>(0).unsigned_abs(),
            chain: u32::try_from(row.get::<_, i64>(1)).unwrap_or_default(),
            body: Bytes::copy_from_slice(row.get(2)),
        };
        Ok(rows.iter().map(commit).collect())
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).expect("commits are counted one by one")
}

/// Runs a statement for a limited time. A connection that has not answered by then is closed: it may be half open.
async fn within(
    client: Object,
    sql: &str,
    params: &[Parameter<'_>],
    wait: Duration,
) -> Result<(Object, Vec<tokio_postgres::Row>), Error> {
    let query = async {
        let statement = client.prepare_cached(sql).await?;
        client.query(&statement, params).await
    };
    match tokio::time::timeout(wait, query).await {
        Ok(rows) => Ok((client, rows?)),
        Err(_) => {
            drop(Object::take(client));
            Err(Error::Unreachable(format!("the database has not answered for {} s", wait.as_secs())))
        }
    }
}
