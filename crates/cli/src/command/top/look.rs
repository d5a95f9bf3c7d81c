//! Reads the snapshots: cheap reads every second, expensive ones less often.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use towpath_db::Database;
use towpath_db::event::Route;
use towpath_db::health::Readings;
use towpath_db::process::{Process, ProcessFilter};
use towpath_db::queue::{Backlog, Latency};
use towpath_model::health::attention;

use super::frame::{Frame, Queue, Streams};
use crate::command::stream::client::Client;

/// Rows of each list: more than any screen shows.
const ROWS_MAX: i32 = 200;
/// Newest jobs to sample for percentiles.
const LATENCY_SAMPLE: i32 = 1_000;
/// Expensive reads take at most this share of the time: one that takes 200 ms runs every 4 s.
const SHARE: u32 = 20;

pub(super) struct Looker {
    database: Database,
    client: Client,
    before: Option<(Instant, Queue)>,
    expensive: Option<(Expensive, Instant)>,
}

/// Reads whose cost grows with the data.
#[derive(Clone)]
struct Expensive {
    latency: Latency,
    backlog: Vec<Backlog>,
    routes: Vec<Route>,
    processes: Vec<Process>,
    streams: Streams,
}

impl Looker {
    pub(super) fn new(database: Database, client: Client) -> Looker {
        Looker { database, client, before: None, expensive: None }
    }

    pub(super) async fn look(&mut self) -> anyhow::Result<Frame> {
        let (db, began) = (&self.database, Instant::now());
        let health = db.health_show().await?;
        let answered_in = began.elapsed();
        let (counted, events, executors, config, schedules) = tokio::try_join!(
            db.queue_health(),
            db.event_health(),
            db.queue_heartbeats(),
            db.config_list(),
            db.schedule_list(),
        )?;
        let Some(counted) = counted.first() else { bail!("v_queue_health is empty; run: towpath doctor") };
        let (now, queue) = (Instant::now(), Queue::from(counted));
        let rates = self.before.map(|(at, before)| queue.since(&before, (now - at).as_secs_f64()));
        self.before = Some((now, queue));
        let expensive = self.expensive().await?;
        let facts = Readings {
            health: &health,
            answered_in,
            queue_health: Some(counted),
            event_health: Some(&events),
            config: &config,
            heartbeats: &executors,
            schedules: &schedules,
            circuits: expensive.streams.circuits_open(),
        }
        .facts();
        Ok(Frame {
            at: Timestamp::now(),
            attention: attention(&facts),
            rates,
            queue,
            latency: expensive.latency,
            backlog: expensive.backlog,
            executors,
            events,
            routes: expensive.routes,
            processes: expensive.processes,
            closed_gates: facts.closed_gates,
            streams: expensive.streams,
        })
    }

    async fn expensive(&mut self) -> anyhow::Result<Expensive> {
        if let Some((expensive, until)) = &self.expensive
            && Instant::now() < *until
        {
            return Ok(expensive.clone());
        }
        let (db, started) = (&self.database, Instant::now());
        let in_state =
            |state: &str| ProcessFilter { state: Some(state.to_owned()), ..ProcessFilter::default() };
        let (held, open) = (in_state("held"), in_state("open"));
        let (latency, backlog, routes, held, open) = tokio::try_join!(
            db.queue_latency(LATENCY_SAMPLE),
            db.queue_backlog(),
            db.route_list(),
            db.process_list(&held, ROWS_MAX, None),
            db.process_list(&open, ROWS_MAX, None),
        )?;
        let expensive = Expensive {
            latency,
            backlog,
            routes,
            processes: [held.processes, open.processes].concat(),
            streams: streams(&self.client).await,
        };
        self.expensive = Some((expensive.clone(), Instant::now() + started.elapsed() * SHARE));
        Ok(expensive)
    }
}

/// A server that does not respond is shown, not an error.
async fn streams(client: &Client) -> Streams {
    match asked(client).await {
        Ok(streams) => streams,
        Err(error) => Streams { missing: Some(format!("{error:#}")), ..Streams::default() },
    }
}

async fn asked(client: &Client) -> anyhow::Result<Streams> {
    let list = async |path: &str, name: &str| -> anyhow::Result<Vec<Value>> {
        let request = client.at(Method::GET, path).timeout(Duration::from_secs(2));
        let mut answer: Value =
            client.send(request).await?.json().await.context("the server's response is not JSON")?;
        Ok(answer[name].as_array_mut().map(std::mem::take).unwrap_or_default())
    };
    Ok(Streams {
        missing: None,
        streams: list(&format!("streams?limit={ROWS_MAX}"), "streams").await?,
        sources: list("sources", "sources").await?,
        sessions: list(&format!("sessions?limit={ROWS_MAX}"), "sessions").await?,
    })
}
