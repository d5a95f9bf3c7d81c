//! The intake: messages that transactions left for streams (S07).

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// A message for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeRow {
    /// Its number.
    pub intake_id: i64,
    /// The stream's project.
    pub project: String,
    /// The stream's id.
    pub stream: String,
    /// Whether it is JSON: then the stream is created if there is none.
    pub is_json: bool,
    /// The message.
    pub body: Bytes,
}

/// A message that its stream refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Its number.
    pub intake_id: i64,
    /// Why.
    pub error: String,
}

/// A refused message, for operators.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedMessage {
    /// Its number.
    pub intake_id: i64,
    /// The stream's project.
    pub project: String,
    /// The stream's id.
    pub stream: String,
    /// How long the message is.
    pub bytes: i64,
    /// The login that left it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Why the stream refused it.
    pub error: String,
    /// When.
    pub refused_at: Timestamp,
}

/// Where the streams of routes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routes {
    /// In the store that takes the intake in: routes leave their events there.
    Here,
    /// On a server that `towpath route` delivers to.
    Elsewhere,
}

/// The place of the one store that takes the intake in.
#[derive(Debug, Clone, Deserialize)]
pub struct Hold {
    /// Whether the caller has it.
    pub held: bool,
    /// The store that has it instead.
    #[serde(default)]
    pub address: String,
}

impl Database {
    /// Says that a store takes the intake in, for so many seconds, and whether it has the streams of routes.
    pub async fn stream_intake_hold(
        &self,
        store: Uuid,
        address: &str,
        seconds: i32,
        routes: Routes,
    ) -> Result<Hold, Error> {
        let sql = "select towpath.fn_stream_intake_hold($1, $2, $3, $4)";
        read(self.call(sql, &[&store, &address, &seconds, &(routes == Routes::Here)]).await?)
    }

    /// Ends the batch before and reads the next one. `done` are the messages that the store has appended.
    pub async fn stream_intake_read(
        &self,
        store: Uuid,
        done: &[i64],
        refused: &[Refused],
        limit: i32,
    ) -> Result<Vec<IntakeRow>, Error> {
        let sql = "select intake_id, project, stream, is_json, body \
                   from towpath.fn_stream_intake_read($1, $2, $3, $4)";
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        let rows = client.query(&statement, &[&store, &done, &json!(refused), &limit]).await?;
        let row = |row: &tokio_postgres::Row| IntakeRow {
            intake_id: row.get(0),
            project: row.get(1),
            stream: row.get(2),
            is_json: row.get(3),
            body: Bytes::copy_from_slice(row.get(4)),
        };
        Ok(rows.iter().map(row).collect())
    }

    /// Asks for a notification by the next message.
    pub async fn stream_intake_arm(&self) -> Result<(), Error> {
        read_field::<bool>(self.call("select towpath.fn_stream_intake_arm()", &[]).await?, "ok").map(drop)
    }

    /// Messages that their stream refused, oldest first.
    pub async fn stream_intake_refused(&self, limit: i32) -> Result<Vec<RefusedMessage>, Error> {
        read_field(self.call("select towpath.fn_stream_intake_refused($1)", &[&limit]).await?, "refused")
    }

    /// Tries a refused message again (`retry`), or removes it (`discard`).
    pub async fn stream_intake_end(&self, intake_id: i64, action: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_stream_intake_end($1, $2)";
        read_field::<bool>(self.call(sql, &[&intake_id, &action]).await?, "ok").map(drop)
    }
}
