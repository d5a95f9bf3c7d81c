//! `/ui`: is everything well, what needs attention first, how fast is it.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use towpath_db::queue::{Backlog, QueueHealth};

use crate::App;
use crate::access::Viewer;
use crate::chart::{Bars, Lines};
use crate::fault::Fault;
use crate::filters::{self, grouped, span};
use crate::limits::LATENCY_SAMPLE;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    shell: Shell,
    health: Option<QueueHealth>,
    attention: Vec<Attention>,
    parts: Vec<Part>,
    bars: Bars,
    lines: Vec<Lines>,
    sample: i64,
    backlog: Vec<Backlog>,
}

/// Something a person should look at, worst first.
struct Attention {
    class: &'static str,
    text: String,
    link: &'static str,
    /// The command that does something about it.
    command: String,
}

/// One part of the whole and how it is.
struct Part {
    name: &'static str,
    class: &'static str,
    text: String,
    link: &'static str,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let db = &app.database;
    let (health, chart, latency, backlog, config, beats) = tokio::try_join!(
        db.queue_health(),
        db.queue_chart(None, None),
        db.queue_latency(LATENCY_SAMPLE),
        db.queue_backlog(),
        db.config_list(),
        db.queue_heartbeats(),
    )?;
    let now = Timestamp::now();
    let queue = health.into_iter().next();
    let closed: Vec<&str> = config
        .iter()
        .filter(|entry| entry.is_gate() && !entry.is_open())
        .map(|entry| entry.key.as_str())
        .collect();
    let stale: Vec<&str> = beats
        .iter()
        .filter(|beat| beat.freshness == "stale")
        .map(|beat| beat.executor_name.as_str())
        .collect();
    let fresh = beats.iter().filter(|beat| beat.freshness == "fresh").count();
    let page = Page {
        attention: attention(queue.as_ref(), &closed, &stale, fresh, now),
        parts: parts(queue.as_ref(), &closed, fresh, beats.len(), app.store.count("default")),
        health: queue,
        bars: Bars::new(&chart, now),
        lines: Lines::all(&latency, now),
        sample: latency.n,
        backlog,
        shell: Shell::new("/ui", "Overview", viewer, &headers).live("jobs dead-letters executors gates"),
    };
    shell::render(&page)
}

/// What is wrong, worst first. A queue that waits without anybody to work is worse than one letter.
fn attention(
    queue: Option<&QueueHealth>,
    closed: &[&str],
    stale: &[&str],
    fresh: usize,
    now: Timestamp,
) -> Vec<Attention> {
    let mut found = vec![];
    let Some(queue) = queue else { return found };
    let mut add =
        |class, text: String, link, command: String| found.push(Attention { class, text, link, command });
    let waiting = queue.jobs_queued + queue.jobs_retry_waiting;
    if waiting > 0 && fresh == 0 {
        let text = format!("{} jobs wait and no executor is alive", grouped(waiting));
        add("bad", text, "/ui/executors", "towpath work".into());
    }
    if let Some(due) = queue.oldest_due_at.filter(|due| now.as_second() - due.as_second() > 60) {
        let late = span((now.as_second() - due.as_second()).unsigned_abs());
        add(
            "bad",
            format!("the oldest due job has waited {late}"),
            "/ui/jobs?state=queued",
            "towpath queue health".into(),
        );
    }
    if queue.leases_expired > 0 {
        let text =
            format!("{} leases have run out and were not taken back yet", grouped(queue.leases_expired));
        add("warn", text, "/ui/jobs?state=in_progress", "towpath maintain".into());
    }
    if queue.dead_letters_pending > 0 {
        let text = format!("{} dead letters wait for a decision", grouped(queue.dead_letters_pending));
        add("warn", text, "/ui/dead-letters?status=pending", "towpath dlq list".into());
    }
    if !stale.is_empty() {
        let text = format!("not heard of: {}", stale.join(", "));
        add("warn", text, "/ui/executors", "towpath executor list".into());
    }
    if queue.kinds_paused > 0 {
        let text = format!("{} kinds of job are paused", queue.kinds_paused);
        add("info", text, "/ui/executors#paused", "towpath queue health".into());
    }
    if !closed.is_empty() {
        let text = format!("closed gates: {}", closed.join(", "));
        add("info", text, "/ui/gates", "towpath gate list".into());
    }
    found
}

fn parts(
    queue: Option<&QueueHealth>,
    closed: &[&str],
    fresh: usize,
    beats: usize,
    streams: usize,
) -> Vec<Part> {
    let letters = queue.map_or(0, |queue| queue.dead_letters_pending);
    let unfinished = queue.map_or(0, |queue| {
        queue.jobs_queued + queue.jobs_leased + queue.jobs_in_progress + queue.jobs_retry_waiting
    });
    let class = |bad: bool, warn: bool| {
        if bad {
            "bad"
        } else if warn {
            "warn"
        } else {
            "good"
        }
    };
    let part = |name, class, text, link| Part { name, class, text, link };
    vec![
        part("Database", "good", "answers".into(), "/ui/gates"),
        part(
            "Jobs",
            class(unfinished > 0 && fresh == 0, false),
            format!("{} unfinished", grouped(unfinished)),
            "/ui/jobs",
        ),
        part(
            "Executors",
            class(beats > 0 && fresh == 0, fresh < beats),
            format!("{fresh} of {beats} alive"),
            "/ui/executors",
        ),
        part(
            "Dead letters",
            class(false, letters > 0),
            format!("{} pending", grouped(letters)),
            "/ui/dead-letters",
        ),
        part("Streams", "good", grouped(i64::try_from(streams).unwrap_or(i64::MAX)), "/ui/streams"),
        part(
            "Gates",
            class(false, !closed.is_empty()),
            if closed.is_empty() { "all open".into() } else { format!("{} closed", closed.len()) },
            "/ui/gates",
        ),
    ]
}
