//! What the overview makes of everything it saw: each part's state, and what a person should
//! look at first. Pure, so that each judgement is tested.

use std::time::Duration;

use jiff::Timestamp;
use towpath_db::event::EventHealth;
use towpath_db::health::Health;
use towpath_db::queue::QueueHealth;

use crate::filters::{bytes, grouped, span};

/// Work that maintenance does every second is late by more than a busy moment.
const MAINTENANCE_LATE: u64 = 30;
/// A job that is due waits longer than a busy moment.
const DUE_LATE: u64 = 60;
/// Numbering, supervision and webhooks are late by more than a busy moment.
const LATE: u64 = 30;
/// Events that a route worker may be behind while it works.
const LAG_MAX: i64 = 10_000;
/// A database that takes longer to answer one small question is under strain.
const ANSWER_SLOW: Duration = Duration::from_millis(250);
/// Where the database stops counting.
const COUNTED_MAX: i64 = 10_000;

/// What was seen beside the queue and the events.
pub(crate) struct Seen {
    pub(crate) health: Health,
    /// How long the database took for a small question.
    pub(crate) answered_in: Duration,
    pub(crate) closed_gates: Vec<String>,
    pub(crate) executors: usize,
    pub(crate) fresh: usize,
    pub(crate) stale: Vec<String>,
    pub(crate) schedules: usize,
    pub(crate) schedules_late: usize,
    pub(crate) streams: usize,
    pub(crate) sessions: usize,
    /// Sources with something that waits, and how much.
    pub(crate) lagging: usize,
    pub(crate) lag_bytes: u64,
    pub(crate) circuits_open: usize,
    pub(crate) now: Timestamp,
}

impl Seen {
    /// Seconds since a moment, if they are more than a busy moment.
    fn late(&self, since: Option<Timestamp>, after: u64) -> Option<u64> {
        let seconds = u64::try_from(self.now.as_second() - since?.as_second()).ok()?;
        (seconds > after).then_some(seconds)
    }

    fn maintenance(&self) -> Option<u64> {
        self.late(self.health.unfolded_since, MAINTENANCE_LATE)
    }

    fn numbering(&self) -> Option<u64> {
        self.late(self.health.unnumbered_since, LATE)
    }

    fn supervision(&self) -> Option<u64> {
        self.late(self.health.overdue_since, LATE)
    }
}

/// Something a person should look at, worst first.
pub(crate) struct Attention {
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) link: &'static str,
    /// The command that does something about it.
    pub(crate) command: &'static str,
}

/// What is wrong, worst first: what stands still before what waits for a person before what
/// somebody chose.
pub(crate) fn attention(
    queue: Option<&QueueHealth>,
    events: Option<&EventHealth>,
    seen: &Seen,
) -> Vec<Attention> {
    let mut found = vec![];
    let (circuits, lag, dead) = events.map_or((0, 0, 0), |events| {
        (events.circuits_open, events.slowest_lag, events.route_dead_letters_open)
    });
    let mut add = |class, text: String, link, command| found.push(Attention { class, text, link, command });
    if let Some(queue) = queue {
        let waiting = queue.jobs_queued + queue.jobs_retry_waiting;
        if waiting > 0 && seen.fresh == 0 {
            let text = format!("{} jobs wait and no executor is alive", grouped(waiting));
            add("bad", text, "/ui/executors", "towpath work");
        }
        if let Some(late) = seen.late(queue.oldest_due_at, DUE_LATE) {
            let text = format!("the oldest due job has waited {}", span(late));
            add("bad", text, "/ui/jobs?state=queued", "towpath queue health");
        }
    }
    if let Some(late) = seen.maintenance() {
        let text = format!("nobody maintains the queue: nothing was tidied for {}", span(late));
        add("bad", text, "/ui/gates", "towpath maintain");
    }
    if let Some(late) = seen.numbering() {
        let text = format!("events wait for their position since {}: no route role runs", span(late));
        add("bad", text, "/ui/events", "towpath route");
    }
    if let Some(late) = seen.supervision() {
        let text = format!(
            "{} processes are overdue, the longest by {}",
            about(seen.health.processes_overdue),
            span(late)
        );
        add("bad", text, "/ui/processes?state=open", "towpath maintain");
    }
    if circuits > 0 {
        let text = format!("{circuits} webhook targets keep failing; their circuits are open");
        add("bad", text, "/ui/routes", "towpath routes list");
    }
    if seen.circuits_open > 0 {
        let text = format!("deliveries to sessions keep failing for {} streams", seen.circuits_open);
        add("bad", text, "/ui/sessions#sources", "towpath sessions sources");
    }
    if lag > LAG_MAX {
        let text = format!("the slowest route worker is {} events behind", grouped(lag));
        add("warn", text, "/ui/routes", "towpath routes worker");
    }
    if seen.schedules_late > 0 {
        let text = format!("{} schedules missed their time", seen.schedules_late);
        add("warn", text, "/ui/schedules", "towpath schedule list");
    }
    if let Some(queue) = queue.filter(|queue| queue.leases_expired > 0) {
        let text =
            format!("{} leases have run out and were not taken back yet", grouped(queue.leases_expired));
        add("warn", text, "/ui/jobs?state=in_progress", "towpath maintain");
    }
    if let Some(queue) = queue.filter(|queue| queue.dead_letters_pending > 0) {
        let text = format!("{} dead letters wait for a decision", grouped(queue.dead_letters_pending));
        add("warn", text, "/ui/dead-letters?status=pending", "towpath dlq list");
    }
    if dead > 0 {
        let text = format!("{} events could not be delivered", grouped(dead));
        add("warn", text, "/ui/routes#dead-letters", "towpath routes dlq list");
    }
    if seen.health.processes_held > 0 {
        let text = format!("{} processes wait for a person", about(seen.health.processes_held));
        add("warn", text, "/ui/processes?state=held", "towpath process list --state held");
    }
    if !seen.stale.is_empty() {
        let text = format!("not heard of: {}", listed(&seen.stale));
        add("warn", text, "/ui/executors", "towpath executor list");
    }
    if let Some(queue) = queue.filter(|queue| queue.kinds_paused > 0) {
        let text = format!("{} kinds of job are paused", queue.kinds_paused);
        add("info", text, "/ui/executors#paused", "towpath queue health");
    }
    if !seen.closed_gates.is_empty() {
        let text = format!("closed gates: {}", listed(&seen.closed_gates));
        add("info", text, "/ui/gates", "towpath gate list");
    }
    found
}

/// One part of the whole and how it is.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) link: &'static str,
}

/// Every part, in the order in which work passes through them.
pub(crate) fn parts(queue: Option<&QueueHealth>, events: Option<&EventHealth>, seen: &Seen) -> Vec<Part> {
    let of = |number: fn(&EventHealth) -> i64| events.map_or(0, number);
    let (lag, circuits) = (of(|events| events.slowest_lag), of(|events| events.circuits_open));
    let part = |name, class, text, link| Part { name, class, text, link };
    let unfinished = queue.map_or(0, |queue| {
        queue.jobs_queued + queue.jobs_leased + queue.jobs_in_progress + queue.jobs_retry_waiting
    });
    let letters = queue.map_or(0, |queue| queue.dead_letters_pending);
    let keeps_up = |late: Option<u64>| match late {
        None => ("good", "keeps up".to_owned()),
        Some(late) => ("bad", format!("stands still for {}", span(late))),
    };
    let (maintenance, maintained) = keeps_up(seen.maintenance());
    let (sequencer, numbered) = keeps_up(seen.numbering());
    let supervision = if seen.supervision().is_some() { "bad" } else { "good" };
    let (alive, all) = (seen.fresh, seen.executors);
    let gates = &seen.closed_gates;
    vec![
        part(
            "Database",
            mark(false, seen.answered_in > ANSWER_SLOW),
            format!("answers in {} ms", seen.answered_in.as_millis().max(1)),
            "/ui/gates",
        ),
        part("Maintenance", maintenance, maintained, "/ui/executors"),
        part(
            "Jobs",
            mark(unfinished > 0 && alive == 0, false),
            format!("{} unfinished", grouped(unfinished)),
            "/ui/jobs",
        ),
        part(
            "Executors",
            mark(all > 0 && alive == 0, alive < all),
            format!("{alive} of {all} alive"),
            "/ui/executors",
        ),
        part(
            "Dead letters",
            mark(false, letters > 0),
            format!("{} pending", grouped(letters)),
            "/ui/dead-letters",
        ),
        part(
            "Sequencer",
            sequencer,
            format!("{numbered}, at {}", grouped(of(|events| events.last_position))),
            "/ui/events",
        ),
        part(
            "Routes",
            mark(false, lag > LAG_MAX || of(|events| events.route_dead_letters_open) > 0),
            format!("{} events behind", grouped(lag)),
            "/ui/routes",
        ),
        part(
            "Webhooks",
            mark(circuits > 0, seen.late(events.and_then(|events| events.oldest_delivery_at), 600).is_some()),
            format!(
                "{} waiting, {} circuits open",
                grouped(of(|events| events.deliveries_waiting)),
                circuits
            ),
            "/ui/routes",
        ),
        part(
            "Processes",
            if supervision == "bad" { "bad" } else { mark(false, seen.health.processes_held > 0) },
            format!(
                "{} overdue, {} held",
                about(seen.health.processes_overdue),
                about(seen.health.processes_held)
            ),
            "/ui/processes",
        ),
        part(
            "Schedules",
            mark(false, seen.schedules_late > 0),
            format!("{}, {} late", seen.schedules, seen.schedules_late),
            "/ui/schedules",
        ),
        part("Streams", "good", grouped(i64::try_from(seen.streams).unwrap_or(i64::MAX)), "/ui/streams"),
        part(
            "Sessions",
            mark(seen.circuits_open > 0, seen.lag_bytes > 0),
            match seen.lagging {
                0 => grouped(i64::try_from(seen.sessions).unwrap_or(i64::MAX)),
                _ => format!("{}, {} behind", seen.sessions, bytes(seen.lag_bytes)),
            },
            "/ui/sessions",
        ),
        part(
            "Gates",
            mark(false, !gates.is_empty()),
            if gates.is_empty() { "all open".into() } else { format!("{} closed", gates.len()) },
            "/ui/gates",
        ),
    ]
}

fn mark(bad: bool, warn: bool) -> &'static str {
    match (bad, warn) {
        (true, _) => "bad",
        (false, true) => "warn",
        (false, false) => "good",
    }
}

/// A number that was counted up to a bound.
fn about(n: i64) -> String {
    if n > COUNTED_MAX { format!("{}+", grouped(COUNTED_MAX)) } else { grouped(n) }
}

/// A few names, and how many more.
fn listed(names: &[String]) -> String {
    const NAMED: usize = 5;
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T12:00:00Z";

    fn seen() -> Seen {
        let now: Timestamp = NOW.parse().unwrap();
        let health = Health {
            checked_at: now,
            unfolded_since: None,
            unnumbered_since: None,
            processes_held: 0,
            processes_overdue: 0,
            overdue_since: None,
        };
        Seen {
            health,
            answered_in: Duration::from_millis(3),
            closed_gates: vec![],
            executors: 1,
            fresh: 1,
            stale: vec![],
            schedules: 0,
            schedules_late: 0,
            streams: 0,
            sessions: 0,
            lagging: 0,
            lag_bytes: 0,
            circuits_open: 0,
            now,
        }
    }

    fn events() -> EventHealth {
        let answer = json!({
            "last_position": 7, "last_numbered_at": NOW, "kept_from": 1, "slowest_lag": 0,
            "last_route_run_at": null, "deliveries_waiting": 0, "deliveries_leased": 0,
            "oldest_delivery_at": null, "route_dead_letters_open": 0, "circuits_open": 0, "events_24h": 0,
            "broadcast_events_24h": 0, "broadcast_percent_24h": null, "routing_enabled": true,
            "route_worker_enabled": true, "delivery_enabled": true, "subscription_resolution_enabled": true,
            "checked_at": NOW,
        });
        serde_json::from_value(answer).unwrap()
    }

    fn class_of(seen: &Seen, events: &EventHealth, name: &str) -> &'static str {
        parts(None, Some(events), seen).iter().find(|part| part.name == name).unwrap().class
    }

    #[test]
    fn a_quiet_system_needs_nobody() {
        assert!(attention(None, Some(&events()), &seen()).is_empty());
        assert!(parts(None, Some(&events()), &seen()).iter().all(|part| part.class == "good"));
    }

    #[test]
    fn each_part_that_stands_still_is_told() {
        let old = |seen: &Seen| Some(seen.now - 5.minutes());
        let mut one = seen();
        one.health.unfolded_since = old(&one);
        assert_eq!(class_of(&one, &events(), "Maintenance"), "bad");
        one.health.unnumbered_since = old(&one);
        assert_eq!(class_of(&one, &events(), "Sequencer"), "bad");
        one.health.overdue_since = old(&one);
        one.health.processes_overdue = 10_001;
        assert_eq!(class_of(&one, &events(), "Processes"), "bad");
        one.circuits_open = 1;
        assert_eq!(class_of(&one, &events(), "Sessions"), "bad");
        let events = EventHealth { circuits_open: 2, slowest_lag: 20_000, ..events() };
        assert_eq!(class_of(&one, &events, "Webhooks"), "bad");
        assert_eq!(class_of(&one, &events, "Routes"), "warn");
        let told = attention(None, Some(&events), &one);
        assert_eq!(told.iter().filter(|one| one.class == "bad").count(), 5);
        assert!(told.iter().any(|one| one.text.contains("10\u{202f}000+ processes")));
        let order: Vec<_> = told.iter().map(|one| one.class).collect();
        assert!(order.is_sorted_by_key(|class| ["bad", "warn", "info"].iter().position(|one| one == class)));
    }

    #[test]
    fn a_moment_is_not_late() {
        let mut one = seen();
        one.health.unfolded_since = Some(one.now - 2.seconds());
        one.health.unnumbered_since = Some(one.now + 2.seconds());
        assert!(attention(None, Some(&events()), &one).is_empty());
    }

    #[test]
    fn many_names_are_cut() {
        let names: Vec<String> = (0..7).map(|n| format!("e{n}")).collect();
        assert_eq!(listed(&names), "e0, e1, e2, e3, e4 and 2 more");
    }
}
