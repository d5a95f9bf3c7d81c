//! Attempts at jobs.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::id::JobId;

/// The number of one claim of a job. Together with the owner it is the fence: a worker that lost the lease has
/// an old number (Q08). It only increases, so it may be higher than the number of counted attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(i32);

impl Attempt {
    /// The plain number, for the database and the wire.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl From<i32> for Attempt {
    fn from(number: i32) -> Attempt {
        Attempt(number)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
