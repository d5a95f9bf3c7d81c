//! The scan that checks every due process.

use serde::{Deserialize, Serialize};

use crate::answer::read;
use crate::{Database, Error};

/// What one scan did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessScan {
    /// Processes that were due.
    pub checked: i64,
    /// Those whose supervisor failed; see the task errors.
    pub failed: i64,
    /// There is more to do now.
    pub more: bool,
}

impl Database {
    /// Looks at up to `limit` processes that are due: lost attempts become facts,
    /// deadlines end what is not over, supervisors decide.
    pub async fn process_scan(&self, limit: i32) -> Result<ProcessScan, Error> {
        read(self.call("select towpath.fn_process_scan($1)", &[&limit]).await?)
    }
}
