//! What needs a person, worst first, each with the command that does something about it.

use jiff::Timestamp;
use serde::Serialize;

use super::frame::Frame;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Attention {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) command: String,
}

/// How much it matters. The order is the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Bad,
    Warn,
    Note,
}

/// A due job that waits longer than this is late, whatever the load.
const LATE_SECONDS: i64 = 60;
/// Events that wait to be routed: more than this is no longer a moment's work.
const LAG_MAX: i64 = 10_000;

pub(super) fn of(frame: &Frame) -> Vec<Attention> {
    let mut found = vec![];
    let mut add = |level, text: String, command: &str| {
        found.push(Attention { level, text, command: command.to_owned() });
    };
    let queue = &frame.queue;
    let alive = frame.executors.iter().filter(|beat| beat.freshness == "fresh").count();
    if queue.waiting() > 0 && alive == 0 {
        add(Level::Bad, format!("{} jobs wait and no executor is alive", queue.waiting()), "towpath work");
    }
    let now = frame.at;
    let late = |since: Timestamp| now.as_second() - since.as_second();
    if let Some(seconds) = queue.oldest_due_at.map(late).filter(|seconds| *seconds > LATE_SECONDS) {
        add(Level::Bad, format!("the oldest due job has waited {seconds} s"), "towpath queue backlog");
    }
    let open: Vec<&str> = frame
        .routes
        .iter()
        .filter(|route| route.circuit.as_deref() == Some("open"))
        .map(|route| route.route_name.as_str())
        .collect();
    if !open.is_empty() {
        add(Level::Bad, format!("open circuits: {}", open.join(", ")), "towpath routes list");
    }
    if frame.events.slowest_lag > LAG_MAX {
        add(
            Level::Bad,
            format!("{} events wait to be routed", frame.events.slowest_lag),
            "towpath events verify",
        );
    }
    let held = frame.processes.iter().filter(|process| process.state == "held").count();
    if held > 0 {
        add(Level::Warn, format!("{held} processes wait for a person"), "towpath process list --state held");
    }
    if queue.leases_expired > 0 {
        add(Level::Warn, format!("{} leases have run out", queue.leases_expired), "towpath maintain");
    }
    if queue.dead_letters_pending > 0 {
        let text = format!("{} dead letters of jobs are pending", queue.dead_letters_pending);
        add(Level::Warn, text, "towpath dlq list");
    }
    if frame.events.route_dead_letters_open > 0 {
        let text = format!("{} dead letters of routes are open", frame.events.route_dead_letters_open);
        add(Level::Warn, text, "towpath routes dlq list");
    }
    let silent: Vec<&str> = frame
        .executors
        .iter()
        .filter(|beat| beat.freshness == "stale")
        .map(|beat| beat.executor_name.as_str())
        .collect();
    if !silent.is_empty() {
        add(Level::Warn, format!("not heard of: {}", silent.join(", ")), "towpath executor list");
    }
    let stuck = frame
        .streams
        .sources
        .iter()
        .filter(|source| source["circuit"].as_str().is_some_and(|state| state != "closed"))
        .count();
    if stuck > 0 {
        add(Level::Warn, format!("{stuck} streams deliver to no session"), "towpath sessions sources");
    }
    if let Some(missing) = &frame.streams.missing {
        add(Level::Note, missing.clone(), "towpath up");
    }
    if queue.kinds_paused > 0 {
        add(Level::Note, format!("{} kinds of job are paused", queue.kinds_paused), "towpath queue backlog");
    }
    if !frame.closed_gates.is_empty() {
        add(Level::Note, format!("closed gates: {}", frame.closed_gates.join(", ")), "towpath gate list");
    }
    found.sort_by_key(|attention| attention.level);
    found
}
