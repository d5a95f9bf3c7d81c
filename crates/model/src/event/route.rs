//! What a route does with an event (E05).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contain::contains;
use super::recipient::Recipients;
use super::{Event, fits};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$each])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The name in the database.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    )*};
}

words! {
    /// The mode of a route.
    Mode {
        /// Takes no events, and waiting deliveries are held.
        Off = "off",
        /// Records decisions and delivers nothing.
        DryRun = "dry_run",
        /// Delivers.
        Live = "live",
    }

    /// The decision about an event on a route.
    Decision {
        /// It would have been sent.
        DryRun = "dry_run",
        /// The route is off.
        Disabled = "disabled",
        /// It is not for this route's recipient, or for no route at all.
        Skipped = "skipped",
        /// The target cannot accept it: a dead letter.
        Failed = "failed",
        /// It became a job or a delivery.
        Sent = "sent",
    }

    /// Why a decision differs from the mode's.
    Reason {
        /// The route is off.
        ModeOff = "mode_off",
        /// The route's recipient muted such events.
        Suppressed = "suppressed",
        /// No route of the worker matches the event.
        NoRoute = "no_route",
        /// The target cannot accept it.
        Refused = "refused",
    }
}

/// Which events a route matches, and its mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Its name.
    pub route_name: String,
    /// Of which domain; none for any.
    pub event_domain: Option<String>,
    /// Of which type; none for any.
    pub event_type: Option<String>,
    /// Of which stream; none for any.
    pub event_stream: Option<String>,
    /// One recipient, or all of a kind as in `role:*`; none for any.
    pub recipient_filter: Option<String>,
    /// What the payload must contain: an object.
    pub payload_filter: Value,
    /// Its mode.
    pub mode: Mode,
}

/// Whether the target accepts an event of a live route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It accepts the event.
    Takes,
    /// It does not: for example a field is not a number, or the kind is unknown.
    Refuses,
}

/// The recorded decision about one event and one route, or no route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decided {
    /// The route; none if no route matches.
    pub route_name: Option<String>,
    /// The decision.
    pub decision: Decision,
    /// The reason, if it is not the mode.
    pub reason: Option<Reason>,
}

/// What a worker with these routes records about an event: one decision per matching route, or a single one if
/// none matches.
pub fn decide(
    event: &Event,
    resolved: &Recipients,
    routes: &[Route],
    target: impl Fn(&Route) -> Target,
) -> Vec<Decided> {
    let taken: Vec<_> =
        routes.iter().filter_map(|route| route.decide(event, resolved, || target(route))).collect();
    if taken.is_empty() {
        let reason = Some(Reason::NoRoute);
        return vec![Decided { route_name: None, decision: Decision::Skipped, reason }];
    }
    taken
}

impl Route {
    fn decide(&self, event: &Event, resolved: &Recipients, target: impl Fn() -> Target) -> Option<Decided> {
        let receives = self.receives(resolved);
        if !self.fits(event) || !(receives || self.is_suppressed(resolved)) {
            return None;
        }
        let (decision, reason) = match self.mode {
            Mode::Off => (Decision::Disabled, Some(Reason::ModeOff)),
            _ if !receives => (Decision::Skipped, Some(Reason::Suppressed)),
            Mode::DryRun => (Decision::DryRun, None),
            Mode::Live => match target() {
                Target::Takes => (Decision::Sent, None),
                Target::Refuses => (Decision::Failed, Some(Reason::Refused)),
            },
        };
        Some(Decided { route_name: Some(self.route_name.clone()), decision, reason })
    }

    fn fits(&self, event: &Event) -> bool {
        fits(self.event_domain.as_deref(), Some(&event.event_domain))
            && fits(self.event_type.as_deref(), Some(&event.event_type))
            && fits(self.event_stream.as_deref(), event.event_stream.as_deref())
            && contains(&event.payload, &self.payload_filter)
    }

    /// Everybody receives a broadcast, except recipients that are suppressed by name.
    fn receives(&self, resolved: &Recipients) -> bool {
        let Some(filter) = self.recipient_filter.as_deref() else { return true };
        match resolved.is_broadcast() {
            true => resolved.suppressed.iter().all(|muted| muted.recipient_ref != filter),
            false => resolved.recipients.iter().any(|one| recipient_fits(&one.recipient_ref, filter)),
        }
    }

    fn is_suppressed(&self, resolved: &Recipients) -> bool {
        let Some(filter) = self.recipient_filter.as_deref() else { return false };
        resolved.suppressed.iter().any(|muted| recipient_fits(&muted.recipient_ref, filter))
    }
}

/// Whether a filter matches a recipient. It names one or, ending in `:*`, all of a kind.
fn recipient_fits(recipient: &str, filter: &str) -> bool {
    match filter.strip_suffix('*').filter(|kind| kind.ends_with(':')) {
        Some(kind) => recipient.starts_with(kind),
        None => recipient == filter,
    }
}

#[cfg(test)]
mod tests {
    use super::{Decision, Mode, recipient_fits};

    #[test]
    fn a_filter_names_one_or_all_of_a_kind() {
        for (recipient, filter, fits) in [
            ("role:a", "role:a", true),
            ("role:a", "role:*", true),
            ("user:a", "role:*", false),
            ("role:ab", "role:a", false),
            ("role:a*", "role:a*", true),
            ("role:ab", "role:a*", false),
        ] {
            assert_eq!(recipient_fits(recipient, filter), fits, "{recipient} {filter}");
        }
    }

    #[test]
    fn words_and_serde_are_one_list() {
        let json = |value: &Decision| serde_json::to_string(value).expect("serialises");
        assert_eq!(json(&Decision::DryRun), format!("\"{}\"", Decision::DryRun.word()));
        assert_eq!(Mode::Live.to_string(), "live");
    }
}
