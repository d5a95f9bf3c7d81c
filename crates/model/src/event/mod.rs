//! Who receives an event and what a route does with it, as pure functions (R02, R04, E05).
//!
//! The database applies the same rules in `sql/functions/recipient.sql` and `route_decide.sql`; a property test
//! over random rule sets compares the two. These files are the shorter ones to read.

pub mod contain;
pub mod recipient;
pub mod route;

use serde_json::Value;

/// The fields that resolution and routing use.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the columns of event_outbox of these names")]
pub struct Event {
    pub event_domain: String,
    pub event_type: String,
    pub event_stream: Option<String>,
    pub subject_table: Option<String>,
    pub payload: Value,
}

/// Whether a pattern is absent, which matches everything, or equal.
fn fits(pattern: Option<&str>, value: Option<&str>) -> bool {
    pattern.is_none() || pattern == value
}
