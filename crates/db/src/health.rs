//! Health of parts, and events by minute (`sql/functions/health.sql`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::{read, read_field};
use crate::{Database, Error};

/// Whether maintenance, numbering and supervision keep up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Health {
    /// When the database was asked, by its clock.
    pub checked_at: Timestamp,
    /// The oldest count that maintenance has not folded; seconds old only if nobody maintains.
    pub unfolded_since: Option<Timestamp>,
    /// The oldest new event without a position.
    pub unnumbered_since: Option<Timestamp>,
    /// Processes that wait for a person; 10,001 is more than 10,000.
    pub processes_held: i64,
    /// Processes whose supervisor, a function here, was not called in time; 10,001 is more than 10,000.
    pub processes_overdue: i64,
    /// The check that is longest overdue.
    pub overdue_since: Option<Timestamp>,
}

/// Events of one minute.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct EventMinute {
    /// Its beginning.
    pub minute_at: Timestamp,
    /// How many.
    pub n: i64,
}

impl Database {
    /// Whether maintenance, numbering and supervision keep up.
    pub async fn health_show(&self) -> Result<Health, Error> {
        read(self.call("select towpath.fn_health_show()", &[]).await?)
    }

    /// For each topic that pages show, a text that is another one after anything of it changed.
    pub async fn health_marks(&self) -> Result<BTreeMap<String, Option<String>>, Error> {
        read_field(self.call("select towpath.fn_health_marks()", &[]).await?, "marks")
    }

    /// Events by minute of the last hour; minutes without any are missing.
    pub async fn event_chart(&self) -> Result<Vec<EventMinute>, Error> {
        read_field(self.call("select towpath.fn_event_chart()", &[]).await?, "minutes")
    }
}
