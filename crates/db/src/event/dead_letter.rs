//! Dead letters of routes: `sql/functions/route_dead_letter.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::event::route::{Decision, Mode};
use towpath_model::id::{DeadLetterId, EventId};

use crate::answer::{read, read_field};
use crate::{Attribution, Database, Error};

/// One dead letter of a route (E06).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of route_dead_letter; 0004_event.sql says what each holds")]
pub struct RouteDeadLetter {
    pub dead_letter_id: DeadLetterId,
    /// `routing` or `delivery`.
    pub stage: String,
    pub route_name: String,
    pub mode: Mode,
    pub generation: i32,
    pub position: i64,
    pub event_id: EventId,
    /// The whole event; absent if it is returned separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_snapshot: Option<Value>,
    pub recipients: Option<Vec<String>>,
    pub error: String,
    pub attempts: i32,
    pub idempotency_key: String,
    pub replays: i32,
    pub created_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    pub resolved_by: Option<String>,
    pub resolution: Option<String>,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Those that are open.
    Open,
    /// Those that are resolved.
    Resolved,
}

/// A page of dead letters, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RouteDeadLetterPage {
    /// The dead letters.
    pub dead_letters: Vec<RouteDeadLetter>,
    /// Where to continue, none at the end.
    pub cursor: Option<DeadLetterId>,
}

/// A replayed dead letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LetterReplayed {
    /// The dead letter.
    pub dead_letter_id: DeadLetterId,
    /// The result of this attempt.
    pub decision: Decision,
    /// How often it was replayed before.
    pub generation: i32,
    /// Whether it is resolved.
    pub resolved: bool,
    /// The new error, if it failed again.
    pub detail: Option<String>,
}

/// One step of a bulk replay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LettersReplayed {
    /// Resolved.
    pub replayed: Vec<DeadLetterId>,
    /// Replayed in dry run; they stay open, because nothing was delivered.
    #[serde(default)]
    pub dry_run: Vec<DeadLetterId>,
    /// Failed again; they stay open with the new error.
    pub failed: Vec<DeadLetterId>,
    /// Not replayed, each with the reason, such as a route that is off.
    pub refused: Vec<Value>,
}

impl Database {
    /// A page of dead letters of one route or of all, oldest first.
    pub async fn route_dead_letter_list(
        &self,
        route_name: Option<&str>,
        which: Letters,
        limit: i32,
        cursor: Option<DeadLetterId>,
    ) -> Result<RouteDeadLetterPage, Error> {
        let sql = "select towpath.fn_route_dead_letter_list($1, $2, $3, $4)";
        let resolved = which == Letters::Resolved;
        let cursor = cursor.map(DeadLetterId::uuid);
        read(self.call(sql, &[&route_name, &resolved, &limit, &cursor]).await?)
    }

    /// One dead letter in full.
    pub async fn route_dead_letter_show(&self, id: DeadLetterId) -> Result<RouteDeadLetter, Error> {
        let answer = self.call("select towpath.fn_route_dead_letter_show($1)", &[&id.uuid()]).await?;
        read_field(answer, "dead_letter").map_err(|error| no_such_letter(error, id))
    }

    /// Replays a dead letter from its snapshot, through the current route.
    pub async fn route_dead_letter_replay(
        &self,
        id: DeadLetterId,
        actor: &str,
    ) -> Result<LetterReplayed, Error> {
        let sql = "select towpath.fn_route_dead_letter_replay($1, $2)";
        read(self.call(sql, &[&id.uuid(), &actor]).await?).map_err(|error| no_such_letter(error, id))
    }

    /// Replays up to `limit` open dead letters, of one route or of all, oldest first.
    pub async fn route_dead_letter_replay_many(
        &self,
        route_name: Option<&str>,
        limit: i32,
        actor: &str,
    ) -> Result<LettersReplayed, Error> {
        let sql = "select towpath.fn_route_dead_letter_replay_many($1, $2, $3)";
        read(self.call(sql, &[&actor, &route_name, &limit]).await?)
    }

    /// Resolves a dead letter without a replay.
    pub async fn route_dead_letter_resolve(
        &self,
        id: DeadLetterId,
        by: Attribution<'_>,
    ) -> Result<(), Error> {
        let sql = "select towpath.fn_route_dead_letter_resolve($1, $2, $3)";
        let answer = self.call(sql, &[&id.uuid(), &by.actor, &by.reason]).await?;
        read_field::<DeadLetterId>(answer, "dead_letter_id")
            .map(drop)
            .map_err(|error| no_such_letter(error, id))
    }
}

fn no_such_letter(error: Error, id: DeadLetterId) -> Error {
    match error {
        Error::NotFound(_) => Error::NotFound(format!(
            "there is no route dead letter {id}; list them with: towpath routes dlq list"
        )),
        other => other,
    }
}
