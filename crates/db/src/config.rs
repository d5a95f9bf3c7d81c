//! Config keys and gates: `sql/functions/config.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// One config key with its value and its last change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// The key.
    pub key: String,
    /// `gate` or `number`.
    pub kind: String,
    /// What is stored.
    pub value: String,
    /// What a fresh installation has.
    pub default_value: String,
    /// The value in effect: if the stored one is invalid, `false` for a gate and the default for a number.
    pub effective_value: String,
    /// Why the stored value is invalid, if it is.
    pub value_error: Option<String>,
    /// What the key does.
    pub description: String,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// By whom.
    pub changed_by: String,
    /// And why.
    pub reason: String,
}

impl ConfigEntry {
    /// Whether this key is a gate rather than a number.
    pub fn is_gate(&self) -> bool {
        self.kind == "gate"
    }

    /// Whether this is a gate that is open.
    pub fn is_open(&self) -> bool {
        self.is_gate() && self.effective_value == "true"
    }
}

/// One recorded change of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigChange {
    /// Its number; later changes have higher ones.
    pub change_id: i64,
    /// The key.
    pub key: String,
    /// The value before, none for the first.
    pub old_value: Option<String>,
    /// The value after, none for a deletion.
    pub new_value: Option<String>,
    /// When.
    pub changed_at: Timestamp,
    /// The actor.
    pub changed_by: String,
    /// The reason.
    pub reason: String,
    /// The database user that was connected.
    pub db_user: String,
}

/// Actor and reason of a change. Both are recorded and neither may be blank.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    /// A person or a program.
    pub actor: &'a str,
    /// The reason.
    pub reason: &'a str,
}

/// Open or close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateMove {
    /// Enables what it controls.
    Open,
    /// Disables it.
    Close,
}

/// The outcome of a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigSet {
    /// The key.
    pub key: String,
    /// Its value now.
    pub value: String,
    /// Its value before, if it changed.
    pub old_value: Option<String>,
    /// Whether anything changed.
    pub changed: bool,
}

impl Database {
    /// Every key, by name.
    pub async fn config_list(&self) -> Result<Vec<ConfigEntry>, Error> {
        read_field(self.call("select towpath.fn_config_list()", &[]).await?, "config")
    }

    /// The changes of one key or of all, newest first.
    pub async fn config_history(&self, key: Option<&str>, limit: i32) -> Result<Vec<ConfigChange>, Error> {
        read_field(self.call("select towpath.fn_config_history($1, $2)", &[&key, &limit]).await?, "changes")
    }

    /// Changes one key.
    pub async fn config_set(&self, key: &str, value: &str, by: Attribution<'_>) -> Result<ConfigSet, Error> {
        let sql = "select towpath.fn_config_set($1, $2, $3, $4)";
        read(self.call(sql, &[&key, &value, &by.actor, &by.reason]).await?)
    }

    /// Opens or closes one gate.
    pub async fn gate_set(&self, gate: &str, to: GateMove, by: Attribution<'_>) -> Result<ConfigSet, Error> {
        let sql = "select towpath.fn_gate_set($1, $2, $3, $4)";
        read(self.call(sql, &[&gate, &(to == GateMove::Open), &by.actor, &by.reason]).await?)
    }
}
