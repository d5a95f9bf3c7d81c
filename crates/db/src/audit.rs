//! The audit log of the dashboard: `sql/functions/audit.sql`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::ToSql;

use crate::answer::read_field;
use crate::{Database, Error};

/// One recorded action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Audited {
    /// Its number; later actions have higher ones.
    pub audit_id: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What, as a command: `job cancel`.
    pub action: String,
    /// On what.
    pub target: String,
    /// The given reason.
    pub detail: Option<String>,
    /// `ok`, or the error.
    pub outcome: String,
}

/// An action to record.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as in Audited")]
pub struct Audit<'a> {
    pub actor: &'a str,
    pub action: &'a str,
    pub target: &'a str,
    pub detail: Option<&'a str>,
    pub outcome: &'a str,
}

pub(crate) const RECORD: &str = "select towpath.fn_audit_record($1, $2, $3, $4, $5)";

/// An action that is recorded in its own transaction.
pub(crate) struct Note {
    actor: String,
    action: String,
    target: String,
    detail: Option<String>,
    written: AtomicBool,
}

impl Note {
    pub(crate) fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self) {
        self.written.store(true, Ordering::Release);
    }

    pub(crate) fn params<'a>(&'a self, outcome: &'a (dyn ToSql + Sync)) -> [&'a (dyn ToSql + Sync); 5] {
        [&self.actor, &self.action, &self.target, &self.detail, outcome]
    }
}

impl Database {
    /// Records one action.
    pub async fn audit_record(&self, audit: Audit<'_>) -> Result<(), Error> {
        let Audit { actor, action, target, detail, outcome } = audit;
        let answer = self.call(RECORD, &[&actor, &action, &target, &detail, &outcome]).await?;
        read_field::<i64>(answer, "audit_id").map(drop)
    }

    /// This database, whose next call is recorded in its own transaction with its outcome.
    pub fn auditing(&self, audit: Audit<'_>) -> Database {
        let Audit { actor, action, target, detail, .. } = audit;
        self.with_note(Arc::new(Note {
            actor: actor.to_owned(),
            action: action.to_owned(),
            target: target.to_owned(),
            detail: detail.map(str::to_owned),
            written: AtomicBool::new(false),
        }))
    }

    /// Whether that call was made and recorded.
    pub fn is_audited(&self) -> bool {
        self.note().is_some_and(Note::is_written)
    }

    /// The newest actions first; `before` pages back.
    pub async fn audit_list(&self, limit: i32, before: Option<i64>) -> Result<Vec<Audited>, Error> {
        read_field(self.call("select towpath.fn_audit_list($1, $2)", &[&limit, &before]).await?, "actions")
    }
}
