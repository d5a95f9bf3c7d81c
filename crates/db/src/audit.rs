//! The audit of the dashboard's actions: `sql/functions/audit.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::read_field;
use crate::{Database, Error};

/// One action, as it was written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Audited {
    /// Its number; later actions have higher ones.
    pub audit_id: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What, as the command line would say it: `job cancel`.
    pub action: String,
    /// On what.
    pub target: String,
    /// The reason that was given.
    pub detail: Option<String>,
    /// `ok`, or what went wrong.
    pub outcome: String,
}

/// An action to be written down.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as in Audited")]
pub struct Audit<'a> {
    pub actor: &'a str,
    pub action: &'a str,
    pub target: &'a str,
    pub detail: Option<&'a str>,
    pub outcome: &'a str,
}

impl Database {
    /// Writes one action down.
    pub async fn audit_record(&self, audit: Audit<'_>) -> Result<(), Error> {
        let sql = "select towpath.fn_audit_record($1, $2, $3, $4, $5)";
        let Audit { actor, action, target, detail, outcome } = audit;
        let answer = self.call(sql, &[&actor, &action, &target, &detail, &outcome]).await?;
        read_field::<i64>(answer, "audit_id").map(drop)
    }

    /// The newest actions first; `before` pages back.
    pub async fn audit_list(&self, limit: i32, before: Option<i64>) -> Result<Vec<Audited>, Error> {
        read_field(self.call("select towpath.fn_audit_list($1, $2)", &[&limit, &before]).await?, "actions")
    }
}
