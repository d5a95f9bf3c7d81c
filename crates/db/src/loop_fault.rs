//! Faults, the items that loops have set aside: `sql/functions/loop_fault.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use towpath_model::id::DeliveryId;

use crate::answer::read_field;
use crate::{Attribution, Database, Error};

/// An item that makes a loop fail; the loop continues without it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoopFault {
    /// The loop: `reap`, `schedules`, `retention`, …
    #[serde(rename = "loop")]
    pub name: String,
    /// The item's own key: a job id, the name of a schedule, …
    pub item: String,
    /// `waiting` for its next retry, or `dropped` by an operator.
    pub state: String,
    /// PostgreSQL's last error.
    pub error: String,
    /// How often it failed.
    pub times: i32,
    /// When it failed first.
    pub first_at: Timestamp,
    /// When it failed last.
    pub last_at: Timestamp,
    /// When it is retried.
    pub next_try_at: Timestamp,
    /// The deliveries that wait behind it, because their route keeps the order of its key; the first 1,000.
    pub behind: Vec<DeliveryId>,
    /// Who last retried or dropped it.
    pub changed_by: Option<String>,
    /// When.
    pub changed_at: Option<Timestamp>,
    /// Why it was dropped.
    pub reason: Option<String>,
}

impl Database {
    /// Faults, latest failure first; of one loop, or of all.
    pub async fn loop_fault_list(&self, name: Option<&str>, limit: i32) -> Result<Vec<LoopFault>, Error> {
        let sql = "select towpath.fn_loop_fault_list($1, $2)";
        read_field(self.call(sql, &[&name, &limit]).await?, "faults")
    }

    /// Makes a loop retry an item in its next pass.
    pub async fn loop_fault_retry(&self, name: &str, item: &str, actor: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_loop_fault_retry($1, $2, $3)";
        read_field::<String>(self.call(sql, &[&name, &item, &actor]).await?, "item").map(drop)
    }

    /// Makes a loop skip an item permanently.
    pub async fn loop_fault_drop(&self, name: &str, item: &str, by: Attribution<'_>) -> Result<(), Error> {
        let sql = "select towpath.fn_loop_fault_drop($1, $2, $3, $4)";
        let answer = self.call(sql, &[&name, &item, &by.reason, &by.actor]).await?;
        read_field::<String>(answer, "item").map(drop)
    }

    /// Sets an item aside, for loops outside the database.
    pub async fn loop_fault_record(&self, name: &str, item: &str, error: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_loop_fault_record($1, $2, $3)";
        read_field::<String>(self.call(sql, &[&name, &item, &error]).await?, "item").map(drop)
    }

    /// Records that an item was processed, which may have been set aside.
    pub async fn loop_fault_over(&self, name: &str, item: &str) -> Result<(), Error> {
        let sql = "select towpath.fn_loop_fault_over($1, $2)";
        read_field::<String>(self.call(sql, &[&name, &item]).await?, "item").map(drop)
    }
}
