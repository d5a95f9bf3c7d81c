//! The attention list: what an operator should look at.
//!
//! The dashboard and `towpath top` read the same figures into [`Facts`] and show this list, with these texts and
//! in this order.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::figure::{about, grouped, listed, span};

/// Maintenance, sequencing and supervision run every second; later than this, in seconds, is a problem.
const LATE: u64 = 30;
/// A due job or schedule may wait this many seconds, whatever the load.
const DUE_LATE: u64 = 60;
/// A webhook may wait this many seconds: its target may ask for a delay, and retries back off.
const WEBHOOK_LATE: u64 = 600;
/// Events that a running route worker may be behind.
const LAG_MAX: i64 = 10_000;
/// A database that takes longer for one small query is overloaded.
const ANSWER_SLOW: Duration = Duration::from_millis(250);

/// The figures that are checked.
#[derive(Debug, Clone)]
pub struct Facts {
    /// When the database was read, by its clock.
    pub at: Timestamp,
    /// How long a small query took.
    pub answered_in: Duration,
    /// The queue; none until it has been counted once.
    pub queue: Option<Queue>,
    /// The events; none until they have been counted once.
    pub events: Option<Events>,
    /// Due jobs that no live worker runs, by kind.
    pub unhandled: Vec<Unhandled>,
    /// The oldest count that maintenance has not added up.
    pub unfolded_since: Option<Timestamp>,
    /// The oldest event without a position.
    pub unnumbered_since: Option<Timestamp>,
    /// Items that loops have set aside; 10,001 means more than 10,000.
    pub loop_faults: i64,
    /// Deliveries that wait behind one; 10,001 is more than 10,000.
    pub deliveries_behind: i64,
    /// Since when the longest overdue process is overdue.
    pub overdue_since: Option<Timestamp>,
    /// Overdue processes; 10,001 means more than 10,000.
    pub processes_overdue: i64,
    /// Held processes; 10,001 means more than 10,000.
    pub processes_held: i64,
    /// Executors with a recent heartbeat.
    pub executors_fresh: usize,
    /// Executors without a recent heartbeat.
    pub executors_stale: Vec<String>,
    /// The next tick of every schedule that is not paused.
    pub schedules_next: Vec<Timestamp>,
    /// Gates that are not open.
    pub closed_gates: Vec<String>,
    /// Sources with an open circuit, or why the server could not be asked.
    pub circuits: Result<usize, String>,
}

/// Due jobs of one kind that no live worker runs. E-mails, SMS and attempts of processes are jobs too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unhandled {
    /// Their kind.
    pub job_kind: String,
    /// The executor they are for; none if any may run them.
    pub executor: Option<String>,
    /// How many; at most 1,000 of each priority and domain.
    pub jobs: i64,
    /// Since when the oldest is due.
    pub oldest_due_at: Timestamp,
    /// The cause in one word: a code of `sql/functions/job_why.sql`.
    pub code: String,
    /// The cause in words.
    pub text: String,
}

impl Unhandled {
    /// What waits, and why, as `doctor`, `queue health` and the attention list say it.
    pub fn in_words(&self) -> String {
        let kind = &self.job_kind;
        let (one, more) = (format!("due {kind} job is waiting"), format!("due {kind} jobs are waiting"));
        format!("{}: {}", many(self.jobs, &one, &more), self.text)
    }

    /// The command that fixes it, or shows what is there.
    pub fn command(&self) -> &'static str {
        match self.code.as_str() {
            "no_worker" => "towpath work",
            "no_transport" => "towpath settings",
            _ => "towpath executor list",
        }
    }
}

/// Figures of the queue. They may be older than the rest.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as in v_queue_health")]
pub struct Queue {
    pub waiting: i64,
    pub oldest_due_at: Option<Timestamp>,
    pub leases_expired: i64,
    pub dead_letters_pending: i64,
    pub kinds_paused: i64,
    pub checked_at: Timestamp,
}

/// Figures of the events. They may be older than the rest.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as in v_event_health")]
pub struct Events {
    pub slowest_lag: i64,
    pub circuits_open: i64,
    pub oldest_delivery_at: Option<Timestamp>,
    pub route_dead_letters_open: i64,
    pub checked_at: Timestamp,
}

/// The severity, in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something has stopped.
    Bad,
    /// Something waits for an operator, or is slow.
    Warn,
    /// An operator chose it.
    Note,
}

/// A part of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Part {
    Database,
    Maintenance,
    Jobs,
    Executors,
    DeadLetters,
    Sequencer,
    Routes,
    Webhooks,
    Processes,
    Schedules,
    Streams,
    Sessions,
    Gates,
}

/// Something an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attention {
    /// Its severity.
    pub level: Level,
    /// The part of the system.
    pub part: Part,
    /// The problem.
    pub text: String,
    /// The command that fixes it or shows more.
    pub command: &'static str,
    /// The page that shows more.
    pub page: &'static str,
}

/// The attention list, worst first: stopped, then waiting for an operator, then chosen by one.
pub fn attention(facts: &Facts) -> Vec<Attention> {
    let mut found: Vec<_> =
        [of_queue(facts), standing(facts), of_events(facts), waiting(facts)].into_iter().flatten().collect();
    found.sort_by_key(|one| one.level);
    found
}

/// The worst level found about a part, if any.
pub fn worst(found: &[Attention], part: Part) -> Option<Level> {
    found.iter().filter(|one| one.part == part).map(|one| one.level).min()
}

/// The roles that run every second.
fn standing(facts: &Facts) -> Vec<Attention> {
    let late = |since| late(facts.at, since, LATE);
    let mut found = vec![];
    if let Some(late) = late(facts.unfolded_since) {
        let text = format!("maintenance is not running: last pass {} ago", span(late));
        found.push(bad(Part::Maintenance, text, "towpath maintain", "/ui/gates"));
    }
    if let Some(late) = late(facts.unnumbered_since) {
        let text = format!("events have had no position for {}: no route role is running", span(late));
        found.push(bad(Part::Sequencer, text, "towpath route", "/ui/events"));
    }
    if let Some(late) = late(facts.overdue_since) {
        let overdue = about_many(facts.processes_overdue, "process is overdue", "processes are overdue");
        let text = format!("{overdue}, the longest by {}", span(late));
        found.push(bad(Part::Processes, text, "towpath maintain", "/ui/processes?state=open"));
    }
    found
}

fn of_queue(facts: &Facts) -> Vec<Attention> {
    let unhandled = facts.unhandled.iter();
    let mut found: Vec<_> = unhandled
        .map(|one| bad(Part::Jobs, one.in_words(), one.command(), "/ui/jobs?state=queued"))
        .collect();
    let Some(queue) = facts.queue else { return found };
    // The list above says it better.
    if queue.waiting > 0 && facts.executors_fresh == 0 && found.is_empty() {
        let text =
            format!("{} but no executor is alive", many(queue.waiting, "job is waiting", "jobs are waiting"));
        found.push(bad(Part::Jobs, text, "towpath work", "/ui/executors"));
    }
    if let Some(late) = late(queue.checked_at, queue.oldest_due_at, DUE_LATE) {
        let text = format!("the oldest due job has been waiting for {}", span(late));
        found.push(bad(Part::Jobs, text, "towpath queue backlog", "/ui/jobs?state=queued"));
    }
    if queue.leases_expired > 0 {
        let (one, more) = ("expired lease has", "expired leases have");
        let text = format!("{} not been reaped yet", many(queue.leases_expired, one, more));
        found.push(warn(Part::Maintenance, text, "towpath maintain", "/ui/jobs?state=in_progress"));
    }
    if queue.dead_letters_pending > 0 {
        let letters = many(queue.dead_letters_pending, "dead letter needs", "dead letters need");
        let text = format!("{letters} triage");
        found.push(warn(Part::DeadLetters, text, "towpath dlq list", "/ui/dead-letters?status=pending"));
    }
    if queue.kinds_paused > 0 {
        let text = many(queue.kinds_paused, "job kind is paused", "job kinds are paused");
        found.push(note(Part::Jobs, text, "towpath queue backlog", "/ui/executors#paused"));
    }
    found
}

fn of_events(facts: &Facts) -> Vec<Attention> {
    let Some(events) = facts.events else { return vec![] };
    let mut found = vec![];
    if events.circuits_open > 0 {
        let targets = many(events.circuits_open, "webhook target keeps", "webhook targets keep");
        let text = format!("{targets} failing: circuit open");
        found.push(bad(Part::Webhooks, text, "towpath routes list", "/ui/routes"));
    }
    if let Some(late) = late(events.checked_at, events.oldest_delivery_at, WEBHOOK_LATE) {
        let text = format!("the oldest webhook has been waiting for {}", span(late));
        found.push(warn(Part::Webhooks, text, "towpath routes list", "/ui/routes"));
    }
    if events.slowest_lag > LAG_MAX {
        let text = format!("the slowest route worker is {} events behind", grouped(events.slowest_lag));
        found.push(warn(Part::Routes, text, "towpath events health", "/ui/routes"));
    }
    if events.route_dead_letters_open > 0 {
        let letters = many(events.route_dead_letters_open, "event", "events");
        let text = format!("{letters} could not be delivered");
        found.push(warn(Part::Routes, text, "towpath routes dlq list", "/ui/routes#dead-letters"));
    }
    found
}

/// Slow parts, items that wait for an operator, and deliberate changes.
fn waiting(facts: &Facts) -> Vec<Attention> {
    let mut found = vec![];
    if facts.answered_in > ANSWER_SLOW {
        let text = format!("the database is slow: a small query took {} ms", facts.answered_in.as_millis());
        found.push(warn(Part::Database, text, "towpath doctor", "/ui/gates"));
    }
    let is_late = |next: &&Timestamp| late(facts.at, Some(**next), DUE_LATE).is_some();
    let missed = facts.schedules_next.iter().filter(is_late).count();
    if missed > 0 {
        let schedules = many(count(missed), "schedule", "schedules");
        let text = format!("{schedules} missed a tick");
        found.push(warn(Part::Schedules, text, "towpath schedule list", "/ui/schedules"));
    }
    if facts.loop_faults > 0 {
        let items = about_many(facts.loop_faults, "item", "items");
        let behind = match facts.deliveries_behind {
            0 => String::new(),
            n => format!("; {} behind them", about_many(n, "delivery is waiting", "deliveries are waiting")),
        };
        let text = format!("loops have set aside {items} that they cannot process{behind}");
        found.push(warn(Part::Maintenance, text, "towpath fault list", "/ui#faults"));
    }
    if facts.processes_held > 0 {
        let processes =
            about_many(facts.processes_held, "process is held and needs", "processes are held and need");
        let text = format!("{processes} a decision");
        let command = "towpath process list --state held";
        found.push(warn(Part::Processes, text, command, "/ui/processes?state=held"));
    }
    if !facts.executors_stale.is_empty() {
        let text = format!("no heartbeat from {}", listed(&facts.executors_stale));
        found.push(warn(Part::Executors, text, "towpath executor list", "/ui/executors"));
    }
    match &facts.circuits {
        Ok(0) => {}
        Ok(open) => {
            let streams = many(count(*open), "stream", "streams");
            let text = format!("deliveries to sessions keep failing for {streams}");
            found.push(bad(Part::Sessions, text, "towpath sessions sources", "/ui/sessions#sources"));
        }
        Err(why) => found.push(note(Part::Streams, why.clone(), "towpath up", "/ui/streams")),
    }
    if !facts.closed_gates.is_empty() {
        let text = format!("closed gates: {}", listed(&facts.closed_gates));
        found.push(note(Part::Gates, text, "towpath gate list", "/ui/gates"));
    }
    found
}

/// Whole seconds since a time, if more than allowed.
fn late(now: Timestamp, since: Option<Timestamp>, allowed: u64) -> Option<u64> {
    let seconds = u64::try_from(now.as_second() - since?.as_second()).ok()?;
    (seconds > allowed).then_some(seconds)
}

fn bad(part: Part, text: String, command: &'static str, page: &'static str) -> Attention {
    Attention { level: Level::Bad, part, text, command, page }
}

fn warn(part: Part, text: String, command: &'static str, page: &'static str) -> Attention {
    Attention { level: Level::Warn, part, text, command, page }
}

fn note(part: Part, text: String, command: &'static str, page: &'static str) -> Attention {
    Attention { level: Level::Note, part, text, command, page }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn many(n: i64, one: &str, more: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { more })
}

fn about_many(n: i64, one: &str, more: &str) -> String {
    format!("{} {}", about(n), if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Option<Timestamp> {
        Some(now() - seconds.seconds())
    }

    /// One live executor, nothing to do.
    fn quiet() -> Facts {
        Facts {
            at: now(),
            answered_in: Duration::from_millis(250),
            queue: Some(Queue {
                waiting: 0,
                oldest_due_at: None,
                leases_expired: 0,
                dead_letters_pending: 0,
                kinds_paused: 0,
                checked_at: now(),
            }),
            events: Some(Events {
                slowest_lag: 0,
                circuits_open: 0,
                oldest_delivery_at: None,
                route_dead_letters_open: 0,
                checked_at: now(),
            }),
            unhandled: vec![],
            unfolded_since: None,
            unnumbered_since: None,
            loop_faults: 0,
            deliveries_behind: 0,
            overdue_since: None,
            processes_overdue: 0,
            processes_held: 0,
            executors_fresh: 1,
            executors_stale: vec![],
            schedules_next: vec![],
            closed_gates: vec![],
            circuits: Ok(0),
        }
    }

    fn with(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = quiet();
        change(&mut facts);
        facts
    }

    fn with_queue(change: impl FnOnce(&mut Queue)) -> Facts {
        with(|facts| change(facts.queue.as_mut().unwrap()))
    }

    fn with_events(change: impl FnOnce(&mut Events)) -> Facts {
        with(|facts| change(facts.events.as_mut().unwrap()))
    }

    /// The only item about these facts, if there is one.
    fn only(facts: &Facts) -> Option<(Level, Part, String)> {
        let mut found = attention(facts);
        assert!(found.len() < 2, "{found:?}");
        found.pop().map(|one| (one.level, one.part, one.text))
    }

    /// The last figures without an item, the first with one, and its text.
    fn edge(fine: &Facts, wrong: &Facts, level: Level, part: Part, text: &str) {
        assert_eq!(only(fine), None);
        assert_eq!(only(wrong), Some((level, part, text.to_owned())));
    }

    /// O02: due jobs that nobody runs are listed with the cause, once.
    #[test]
    fn jobs_that_no_worker_runs_are_listed_with_the_cause() {
        let unhandled = |jobs| Unhandled {
            job_kind: "greet".into(),
            executor: Some("PG_worker".into()),
            jobs,
            oldest_due_at: now(),
            code: "no_worker".into(),
            text: "no worker of towpath is running".into(),
        };
        let facts = |jobs| {
            with(|facts| {
                facts.unhandled = vec![unhandled(jobs)];
                facts.executors_fresh = 0;
                facts.queue.as_mut().unwrap().waiting = jobs;
            })
        };
        let text = "1 due greet job is waiting: no worker of towpath is running";
        assert_eq!(only(&facts(1)), Some((Level::Bad, Part::Jobs, text.into())));
        let text = "2 due greet jobs are waiting: no worker of towpath is running";
        assert_eq!(only(&facts(2)), Some((Level::Bad, Part::Jobs, text.into())));
    }

    #[test]
    fn a_stopped_role_is_listed_after_half_a_minute() {
        let text = "maintenance is not running: last pass 31 s ago";
        let since = |seconds| with(|facts| facts.unfolded_since = ago(seconds));
        edge(&since(30), &since(31), Level::Bad, Part::Maintenance, text);
        let text = "events have had no position for 31 s: no route role is running";
        let since = |seconds| with(|facts| facts.unnumbered_since = ago(seconds));
        edge(&since(30), &since(31), Level::Bad, Part::Sequencer, text);
        let overdue =
            |n, seconds| with(|facts| (facts.processes_overdue, facts.overdue_since) = (n, ago(seconds)));
        let text = "1 process is overdue, the longest by 31 s";
        edge(&overdue(1, 30), &overdue(1, 31), Level::Bad, Part::Processes, text);
        let text = "10\u{202f}000+ processes are overdue, the longest by 5 min";
        assert_eq!(only(&overdue(10_001, 300)).unwrap().2, text);
        // Clocks differ a little: a time in the future is not late.
        assert_eq!(only(&since(-2)), None);
    }

    #[test]
    fn waiting_jobs_need_a_live_executor() {
        let waiting = |executors_fresh| {
            let facts = with_queue(|queue| queue.waiting = 1_200);
            Facts { executors_fresh, ..facts }
        };
        let text = "1\u{202f}200 jobs are waiting but no executor is alive";
        edge(&waiting(1), &waiting(0), Level::Bad, Part::Jobs, text);
        assert_eq!(only(&with(|facts| facts.executors_fresh = 0)), None, "no job is waiting");
    }

    #[test]
    fn the_queue_is_checked_at_the_time_of_its_count() {
        let due = |seconds| with_queue(|queue| queue.oldest_due_at = ago(seconds));
        edge(&due(60), &due(61), Level::Bad, Part::Jobs, "the oldest due job has been waiting for 1 min");
        let counted_before = with_queue(|queue| {
            (queue.oldest_due_at, queue.checked_at) = (ago(100), now() - 50.seconds());
        });
        assert_eq!(only(&counted_before), None);
    }

    #[test]
    fn every_figure_of_the_queue_and_the_events_is_listed() {
        let cases = [
            (
                with_queue(|queue| queue.leases_expired = 1),
                Level::Warn,
                Part::Maintenance,
                "1 expired lease has not been reaped yet",
            ),
            (
                with_queue(|queue| queue.dead_letters_pending = 2),
                Level::Warn,
                Part::DeadLetters,
                "2 dead letters need triage",
            ),
            (with_queue(|queue| queue.kinds_paused = 1), Level::Note, Part::Jobs, "1 job kind is paused"),
            (
                with_events(|events| events.circuits_open = 1),
                Level::Bad,
                Part::Webhooks,
                "1 webhook target keeps failing: circuit open",
            ),
            (
                with_events(|events| events.route_dead_letters_open = 3),
                Level::Warn,
                Part::Routes,
                "3 events could not be delivered",
            ),
        ];
        for (facts, level, part, text) in cases {
            edge(&quiet(), &facts, level, part, text);
        }
        let lag = |slowest_lag| with_events(|events| events.slowest_lag = slowest_lag);
        let text = "the slowest route worker is 10\u{202f}001 events behind";
        edge(&lag(10_000), &lag(10_001), Level::Warn, Part::Routes, text);
        let webhook = |seconds| with_events(|events| events.oldest_delivery_at = ago(seconds));
        let text = "the oldest webhook has been waiting for 10 min";
        edge(&webhook(600), &webhook(601), Level::Warn, Part::Webhooks, text);
    }

    #[test]
    fn the_rest_is_listed() {
        let answered = |ms| with(|facts| facts.answered_in = Duration::from_millis(ms));
        let text = "the database is slow: a small query took 251 ms";
        edge(&answered(250), &answered(251), Level::Warn, Part::Database, text);
        let next = |seconds| with(|facts| facts.schedules_next = ago(seconds).into_iter().collect());
        edge(&next(60), &next(61), Level::Warn, Part::Schedules, "1 schedule missed a tick");
        let cases = [
            (
                with(|facts| facts.processes_held = 10_001),
                Level::Warn,
                Part::Processes,
                "10\u{202f}000+ processes are held and need a decision",
            ),
            (
                with(|facts| facts.loop_faults = 1),
                Level::Warn,
                Part::Maintenance,
                "loops have set aside 1 item that they cannot process",
            ),
            (
                with(|facts| (facts.loop_faults, facts.deliveries_behind) = (2, 3)),
                Level::Warn,
                Part::Maintenance,
                "loops have set aside 2 items that they cannot process; 3 deliveries are waiting behind them",
            ),
            (
                with(|facts| facts.executors_stale = vec!["a".into(), "b".into()]),
                Level::Warn,
                Part::Executors,
                "no heartbeat from a, b",
            ),
            (
                with(|facts| facts.circuits = Ok(1)),
                Level::Bad,
                Part::Sessions,
                "deliveries to sessions keep failing for 1 stream",
            ),
            (with(|facts| facts.circuits = Err("down".into())), Level::Note, Part::Streams, "down"),
            (
                with(|facts| facts.closed_gates = vec!["queue.worker.enabled".into()]),
                Level::Note,
                Part::Gates,
                "closed gates: queue.worker.enabled",
            ),
        ];
        for (facts, level, part, text) in cases {
            edge(&quiet(), &facts, level, part, text);
        }
    }

    #[test]
    fn figures_that_were_not_counted_yet_are_not_checked() {
        assert_eq!(only(&with(|facts| (facts.queue, facts.events) = (None, None))), None);
    }

    #[test]
    fn the_worst_comes_first_and_is_the_state_of_its_part() {
        let facts = with(|facts| {
            facts.closed_gates = vec!["a".into()];
            facts.circuits = Ok(1);
            facts.processes_held = 1;
            facts.overdue_since = ago(300);
        });
        let found = attention(&facts);
        let levels: Vec<_> = found.iter().map(|one| one.level).collect();
        assert_eq!(levels, [Level::Bad, Level::Bad, Level::Warn, Level::Note]);
        assert_eq!(worst(&found, Part::Processes), Some(Level::Bad));
        assert_eq!(worst(&found, Part::Gates), Some(Level::Note));
        assert_eq!(worst(&found, Part::Jobs), None);
    }
}
