//! Who receives an event (R02, R04).
//!
//! For each recipient the most specific matching row decides, muted or not. An event without recipients is a
//! broadcast, for everybody who is not suppressed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contain::contains;
use super::{Event, fits};

/// How a recipient was found; the lower step wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A row with type and stream.
    ExactMatch,
    /// A row with the stream and any type.
    DomainWildcard,
    /// A row with the type and any stream.
    StreamWildcard,
    /// A row with nothing but the domain.
    DomainOnly,
    /// No row matched.
    BroadcastFallback,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Step::ExactMatch => "exact_match",
            Step::DomainWildcard => "domain_wildcard",
            Step::StreamWildcard => "stream_wildcard",
            Step::DomainOnly => "domain_only",
            Step::BroadcastFallback => "broadcast_fallback",
        })
    }
}

/// One row of `event_subscription`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    /// Its age: of two equal rows the lower number wins.
    pub no: i32,
    /// The recipient.
    pub recipient_ref: String,
    /// Of which domain.
    pub event_domain: String,
    /// Of which type; none for any.
    pub event_type: Option<String>,
    /// Of which stream; none for any.
    pub event_stream: Option<String>,
    /// About which table; none for any.
    pub scope_subject_table: Option<String>,
    /// What the payload must contain: an object.
    pub scope_filter: Value,
    /// Whether it excludes the recipient.
    pub mute: bool,
}

/// Whether subscriptions are resolved: the switch of R04.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// They are.
    On,
    /// Everything is a broadcast, and nobody is suppressed.
    Off,
}

/// One recipient and the row that decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recipient {
    /// The recipient.
    pub recipient_ref: String,
    /// The step of its row.
    pub step: Step,
    /// The row.
    pub no: i32,
}

/// The result, both lists sorted by recipient.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipients {
    /// Who receives it.
    pub recipients: Vec<Recipient>,
    /// Whose most specific row is muted.
    pub suppressed: Vec<Recipient>,
}

impl Recipients {
    /// The best step of all recipients.
    pub fn step(&self) -> Step {
        self.recipients.iter().map(|recipient| recipient.step).min().unwrap_or(Step::BroadcastFallback)
    }

    /// Whether no row selects a recipient.
    pub fn is_broadcast(&self) -> bool {
        self.recipients.is_empty()
    }
}

/// Resolves the recipients of an event.
pub fn resolve(event: &Event, rows: &[Subscription], resolution: Resolution) -> Recipients {
    let mut deciding = BTreeMap::<&str, &Subscription>::new();
    if resolution == Resolution::On {
        for row in rows.iter().filter(|row| row.fits(event)) {
            let best = deciding.entry(&row.recipient_ref).or_insert(row);
            if row.rank() < best.rank() {
                *best = row;
            }
        }
    }
    let mut answer = Recipients::default();
    for row in deciding.values() {
        let recipient = Recipient { recipient_ref: row.recipient_ref.clone(), step: row.step(), no: row.no };
        match row.mute {
            true => answer.suppressed.push(recipient),
            false => answer.recipients.push(recipient),
        }
    }
    answer
}

impl Subscription {
    fn fits(&self, event: &Event) -> bool {
        self.event_domain == event.event_domain
            && fits(self.event_type.as_deref(), Some(&event.event_type))
            && fits(self.event_stream.as_deref(), event.event_stream.as_deref())
            && fits(self.scope_subject_table.as_deref(), event.subject_table.as_deref())
            && contains(&event.payload, &self.scope_filter)
    }

    /// What makes one row more specific than another: the step, a subject table, more keys in the filter, age. The
    /// lowest wins.
    fn rank(&self) -> (Step, bool, usize, i32) {
        let keys = self.scope_filter.as_object().map_or(0, serde_json::Map::len);
        (self.step(), self.scope_subject_table.is_none(), usize::MAX - keys, self.no)
    }

    fn step(&self) -> Step {
        match (&self.event_type, &self.event_stream) {
            (Some(_), Some(_)) => Step::ExactMatch,
            (None, Some(_)) => Step::DomainWildcard,
            (Some(_), None) => Step::StreamWildcard,
            (None, None) => Step::DomainOnly,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Event, Resolution, Step, Subscription, resolve};

    fn row(no: i32, who: &str, event_type: Option<&str>, mute: bool) -> Subscription {
        Subscription {
            no,
            recipient_ref: who.into(),
            event_domain: "d".into(),
            event_type: event_type.map(Into::into),
            event_stream: None,
            scope_subject_table: None,
            scope_filter: json!({}),
            mute,
        }
    }

    /// R02, R04: a muted specific row outranks only broader rows of the same recipient.
    #[test]
    fn a_muted_row_silences_its_own_recipient() {
        let event = Event {
            event_domain: "d".into(),
            event_type: "t".into(),
            event_stream: None,
            subject_table: None,
            payload: json!({}),
        };
        let rows =
            [row(1, "role:a", None, false), row(2, "role:a", Some("t"), true), row(3, "role:b", None, false)];
        let resolved = resolve(&event, &rows, Resolution::On);
        assert_eq!((resolved.recipients[0].no, resolved.suppressed[0].no), (3, 2));
        assert_eq!(resolved.step(), Step::DomainOnly);
        assert!(!resolved.is_broadcast());
        let off = resolve(&event, &rows, Resolution::Off);
        assert!(off.is_broadcast() && off.suppressed.is_empty());
    }
}
