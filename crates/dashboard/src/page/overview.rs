//! `/ui`: health, what needs attention, throughput and latency.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use jiff::Timestamp;
use towpath_db::health::Readings;
use towpath_db::loop_fault::LoopFault;
use towpath_db::queue::{Backlog, QueueHealth};
use towpath_model::health::{Attention, attention};

use super::health::{Seen, Tile, tiles};
use crate::App;
use crate::chart::{Bars, Lines};
use crate::fault::Answer;
use crate::filters;
use crate::limits::{FAULTS_MAX, LAGGING_MAX};
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    shell: Shell,
    health: Option<QueueHealth>,
    events_24h: i64,
    /// The first count is not finished.
    counting: bool,
    /// The age of the counts, if they are not current.
    counted_ago: Option<String>,
    attention: Vec<Attention>,
    faults: Vec<LoopFault>,
    tiles: Vec<Tile>,
    bars: Bars,
    event_bars: Bars,
    lines: Vec<Lines>,
    sample: i64,
    backlog: Arc<Vec<Backlog>>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>) -> Answer {
    let db = &app.database;
    let began = Instant::now();
    let health = db.health_show().await?;
    let answered_in = began.elapsed();
    let (queue, chart, latency, backlog, config, heartbeats, schedules, events, event_chart, faults) = tokio::try_join!(
        app.queue_health(),
        db.queue_chart(None, None),
        app.latency(),
        app.backlog(),
        db.config_list(),
        db.queue_heartbeats(),
        db.schedule_list(),
        app.event_health(),
        db.event_chart(),
        db.loop_fault_list(None, FAULTS_MAX),
    )?;
    let counted_ago = [queue.age, latency.age, backlog.age, events.age].into_iter().flatten().max();
    // One second counts as current.
    let counted_ago = counted_ago.filter(|age| age.as_secs() > 1);
    let counting = queue.value.is_none() || backlog.value.is_none() || events.value.is_none();
    let now = Timestamp::now();
    let queue = queue.value.as_deref().cloned().flatten();
    let lagging = app.store.lagging(LAGGING_MAX);
    let facts = Readings {
        health: &health,
        answered_in,
        queue_health: queue.as_ref(),
        event_health: events.value.as_deref(),
        config: &config,
        heartbeats: &heartbeats,
        schedules: &schedules,
        circuits: Ok(app.circuits.open_count()),
    }
    .facts();
    let attention = attention(&facts);
    let seen = Seen {
        answered_ms: answered_in.as_millis(),
        closed_gates: facts.closed_gates.len(),
        executors: heartbeats.len(),
        fresh: facts.executors_fresh,
        schedules: schedules.len(),
        streams: app.store.count("default"),
        sessions: app.store.session_counts().sessions,
        lag_bytes: lagging.iter().map(|(_, state)| state.lag_bytes()).sum(),
    };
    let page = Page {
        tiles: tiles(&attention, &health, queue.as_ref(), events.value.as_deref(), &seen),
        attention,
        faults,
        health: queue,
        events_24h: events.value.map_or(0, |events| events.events_24h),
        counting,
        counted_ago: counted_ago.map(|age| filters::span(age.as_secs())),
        bars: Bars::attempts(&chart, now),
        event_bars: Bars::events(&event_chart, now),
        sample: latency.value.as_ref().map_or(0, |latency| latency.n),
        lines: latency.value.map_or_else(Vec::new, |latency| Lines::all(&latency, now)),
        backlog: backlog.value.unwrap_or_default(),
        shell: shell
            .at("/ui", "Overview")
            .live("jobs dead-letters executors gates events processes sessions"),
    };
    shell::render(&page)
}
