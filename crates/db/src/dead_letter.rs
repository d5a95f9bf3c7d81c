//! Dead letters: `sql/functions/job_dead_letter.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use towpath_model::id::{DeadLetterId, JobId};
use uuid::Uuid;

use crate::answer::{given, read, read_field};
use crate::{Attribution, Database, Error};

/// A full copy of a job that failed for good.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of job_dead_letter; 0002_job.sql says what each holds")]
pub struct DeadLetter {
    pub dead_letter_id: DeadLetterId,
    pub job_id: JobId,
    pub job_kind: String,
    pub executor: String,
    pub event_domain: Option<String>,
    pub source_ref: Option<String>,
    pub target_ref: Option<String>,
    pub payload_ref: Option<String>,
    pub payload_json: Value,
    pub priority: i32,
    pub max_attempts: i32,
    pub final_error: String,
    pub attempts: i32,
    pub actor: String,
    pub run_id: Option<Uuid>,
    pub idempotency_key: String,
    pub created_at: Timestamp,
    pub moved_at: Timestamp,
    pub moved_by: String,
    pub triage_status: String,
    pub triage_note: Option<String>,
    pub triaged_at: Option<Timestamp>,
    pub triaged_by: Option<String>,
    pub replayed_job_id: Option<JobId>,
    pub replayed_at: Option<Timestamp>,
    pub replayed_by: Option<String>,
}

/// A filter of dead letters; absent fields match everything.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name, and bounds on moved_at")]
pub struct DeadLetterFilter {
    pub job_kind: Option<String>,
    pub executor: Option<String>,
    pub event_domain: Option<String>,
    pub triage_status: Option<String>,
    pub run_id: Option<Uuid>,
    pub error_contains: Option<String>,
    pub moved_after: Option<Timestamp>,
    pub moved_before: Option<Timestamp>,
    pub replayed: Option<bool>,
}

impl DeadLetterFilter {
    /// Whether this filter matches everything.
    pub fn is_empty(&self) -> bool {
        self.as_json().as_object().is_some_and(serde_json::Map::is_empty)
    }

    fn as_json(&self) -> Value {
        given(self)
    }
}

/// A page of dead letters, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadLetterPage {
    /// The dead letters.
    pub dead_letters: Vec<DeadLetter>,
    /// Where to continue, none at the end.
    pub cursor: Option<DeadLetterId>,
}

/// A new job and the dead letter it replays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replayed {
    /// The dead letter.
    pub dead_letter_id: DeadLetterId,
    /// The new job.
    pub job_id: JobId,
}

/// One step of a bulk replay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReplayedMany {
    /// What was replayed.
    pub replayed: Vec<Replayed>,
    /// Skipped because an unfinished job has their key.
    pub conflicts: Vec<DeadLetterId>,
    /// Where to continue, none at the end.
    pub cursor: Option<DeadLetterId>,
}

/// How many dead letters match a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeadLetterCount {
    /// All of them.
    pub count: u64,
    /// Those that were replayed.
    pub replayed: u64,
    /// By kind.
    pub kinds: std::collections::BTreeMap<String, u64>,
}

/// How many dead letters of a kind have a status.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the answer, named for what they hold")]
pub struct DeadLetterSummary {
    pub job_kind: String,
    pub triage_status: String,
    pub row_count: i64,
    pub replayed_count: i64,
    pub oldest_moved_at: Timestamp,
    pub newest_moved_at: Timestamp,
}

impl Database {
    /// A page of dead letters, oldest first.
    pub async fn dead_letter_list(
        &self,
        filter: &DeadLetterFilter,
        limit: i32,
        cursor: Option<DeadLetterId>,
    ) -> Result<DeadLetterPage, Error> {
        let sql = "select towpath.fn_job_dead_letter_list($1, $2, $3)";
        read(self.call(sql, &[&filter.as_json(), &limit, &cursor.map(DeadLetterId::uuid)]).await?)
    }

    /// One dead letter, by its own id or its job's.
    pub async fn dead_letter_show(&self, id: DeadLetterId) -> Result<DeadLetter, Error> {
        let answer = self.call("select towpath.fn_job_dead_letter_show($1)", &[&id.uuid()]).await?;
        match read_field(answer, "dead_letter") {
            Err(Error::NotFound(_)) => {}
            letter => return letter,
        }
        let of_job = match self.job_show(id.uuid().into()).await {
            Err(Error::NotFound(_)) => None,
            whole => whole?.dead_letter,
        };
        of_job.ok_or_else(|| no_such_letter(Error::NotFound(String::new()), id))
    }

    /// Sets the triage status of one dead letter.
    pub async fn dead_letter_triage(
        &self,
        id: DeadLetterId,
        status: &str,
        by: Attribution<'_>,
    ) -> Result<(), Error> {
        let sql = "select towpath.fn_job_dead_letter_triage($1, $2, $3, $4)";
        let answer = self.call(sql, &[&id.uuid(), &status, &by.actor, &by.reason]).await?;
        read_field::<String>(answer, "triage_status").map(drop).map_err(|error| no_such_letter(error, id))
    }

    /// Replays one dead letter as a new job, once.
    pub async fn dead_letter_replay(&self, id: DeadLetterId, actor: &str) -> Result<Replayed, Error> {
        let sql = "select towpath.fn_job_dead_letter_replay($1, $2)";
        read(self.call(sql, &[&id.uuid(), &actor]).await?).map_err(|error| no_such_letter(error, id))
    }

    /// Replays matching dead letters that were not replayed yet, oldest first, at most `limit` after the cursor.
    pub async fn dead_letter_replay_many(
        &self,
        filter: &DeadLetterFilter,
        actor: &str,
        limit: i32,
        cursor: Option<DeadLetterId>,
    ) -> Result<ReplayedMany, Error> {
        let sql = "select towpath.fn_job_dead_letter_replay_many($1, $2, $3, $4)";
        let cursor = cursor.map(DeadLetterId::uuid);
        read(self.call(sql, &[&filter.as_json(), &actor, &limit, &cursor]).await?)
    }

    /// How many dead letters match a filter.
    pub async fn dead_letter_count(&self, filter: &DeadLetterFilter) -> Result<DeadLetterCount, Error> {
        read(self.call("select towpath.fn_job_dead_letter_count($1)", &[&filter.as_json()]).await?)
    }

    /// Dead letters counted by kind and status.
    pub async fn dead_letter_summary(&self) -> Result<Vec<DeadLetterSummary>, Error> {
        self.rows("towpath.v_job_dead_letter_summary", "job_kind, triage_status").await
    }
}

fn no_such_letter(error: Error, id: DeadLetterId) -> Error {
    match error {
        Error::NotFound(_) => {
            Error::NotFound(format!("there is no dead letter {id}; list them with: towpath dlq list"))
        }
        other => other,
    }
}
