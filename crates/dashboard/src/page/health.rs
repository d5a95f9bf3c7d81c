//! One tile per part of the system: its worst level and its most important figure.

use towpath_db::event::EventHealth;
use towpath_db::health::Health;
use towpath_db::queue::QueueHealth;
use towpath_model::figure::about;
use towpath_model::health::{Attention, Level, Part, worst};

use crate::filters::{bytes, grouped};

/// What the tiles show besides the figures of queue, events and processes.
pub(crate) struct Seen {
    pub(crate) answered_ms: u128,
    pub(crate) closed_gates: usize,
    pub(crate) executors: usize,
    pub(crate) fresh: usize,
    pub(crate) schedules: usize,
    pub(crate) streams: usize,
    pub(crate) sessions: usize,
    /// Bytes waiting to be delivered to sessions.
    pub(crate) lag_bytes: u64,
}

pub(crate) struct Tile {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) link: &'static str,
}

/// The CSS class.
pub(crate) fn class(level: Option<Level>) -> &'static str {
    match level {
        None => "good",
        Some(Level::Note) => "info",
        Some(Level::Warn) => "warn",
        Some(Level::Bad) => "bad",
    }
}

/// Every part, in the order in which work passes through them.
pub(crate) fn tiles(
    found: &[Attention],
    health: &Health,
    queue: Option<&QueueHealth>,
    events: Option<&EventHealth>,
    seen: &Seen,
) -> Vec<Tile> {
    let tile = |part, name, text, link| Tile { name, class: class(worst(found, part)), text, link };
    let of = |number: fn(&EventHealth) -> i64| grouped(events.map_or(0, number));
    let of_queue = |number: fn(&QueueHealth) -> i64| grouped(queue.map_or(0, number));
    let keeps_up = |part| if worst(found, part).is_none() { "up to date" } else { "behind" };
    let unfinished = of_queue(|queue| {
        queue.jobs_queued + queue.jobs_leased + queue.jobs_in_progress + queue.jobs_retry_waiting
    });
    let counted = |n: usize| grouped(i64::try_from(n).unwrap_or(i64::MAX));
    let sessions = match seen.lag_bytes {
        0 => counted(seen.sessions),
        lag => format!("{}, {} behind", counted(seen.sessions), bytes(lag)),
    };
    let gates = match seen.closed_gates {
        0 => "all open".into(),
        closed => format!("{closed} closed"),
    };
    vec![
        tile(Part::Database, "Database", format!("responds in {} ms", seen.answered_ms.max(1)), "/ui/gates"),
        tile(Part::Maintenance, "Maintenance", keeps_up(Part::Maintenance).into(), "/ui/executors"),
        tile(Part::Jobs, "Jobs", format!("{unfinished} unfinished"), "/ui/jobs"),
        tile(
            Part::Executors,
            "Executors",
            format!("{} of {} alive", seen.fresh, seen.executors),
            "/ui/executors",
        ),
        tile(
            Part::DeadLetters,
            "Dead letters",
            format!("{} pending", of_queue(|queue| queue.dead_letters_pending)),
            "/ui/dead-letters",
        ),
        tile(
            Part::Sequencer,
            "Sequencer",
            format!("{}, position {}", keeps_up(Part::Sequencer), of(|events| events.last_position)),
            "/ui/events",
        ),
        tile(
            Part::Routes,
            "Routes",
            format!("{} events behind", of(|events| events.slowest_lag)),
            "/ui/routes",
        ),
        tile(
            Part::Webhooks,
            "Webhooks",
            format!(
                "{} waiting, {} circuits open",
                of(|events| events.deliveries_waiting),
                of(|events| events.circuits_open)
            ),
            "/ui/routes",
        ),
        tile(
            Part::Processes,
            "Processes",
            format!("{} overdue, {} held", about(health.processes_overdue), about(health.processes_held)),
            "/ui/processes",
        ),
        tile(Part::Schedules, "Schedules", counted(seen.schedules), "/ui/schedules"),
        tile(Part::Streams, "Streams", counted(seen.streams), "/ui/streams"),
        tile(Part::Sessions, "Sessions", sessions, "/ui/sessions"),
        tile(Part::Gates, "Gates", gates, "/ui/gates"),
    ]
}
