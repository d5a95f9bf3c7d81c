//! The traffic: orders at a steady rate, and regularly something larger.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::dead_letter::DeadLetterFilter;
use towpath_db::event::NewEvent;
use towpath_db::job::NewJob;
use towpath_db::message::{Channel, SendOptions};
use uuid::Uuid;

use super::ground::{NEWS, SENSORS};
use super::{DEMO, Tally};
use crate::command::stream::client::Client;

/// Between two larger items: a graph, a report, a permanent failure, a change of sessions.
const LARGE_EVERY: Duration = Duration::from_secs(20);
/// Between two lines in the log.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Concurrent sessions: enough to show a fan-out.
const SESSIONS: usize = 6;
/// With this many open dead letters the demo produces no more failures.
const LETTERS_MAX: u64 = 12;

pub(super) struct Traffic {
    database: Database,
    client: Client,
    /// Send no messages, because the database has other data.
    silent: bool,
    tally: Tally,
    orders: u64,
    /// Producer epoch of the sensors: greater than in every earlier run.
    epoch: i64,
    readings: [u64; SENSORS.len()],
    sessions: VecDeque<Uuid>,
}

impl Traffic {
    pub(super) fn new(silent: bool, database: Database, client: Client) -> Traffic {
        Traffic {
            database,
            client,
            silent,
            tally: Tally::default(),
            orders: 0,
            epoch: Timestamp::now().as_second(),
            readings: [0; SENSORS.len()],
            sessions: VecDeque::new(),
        }
    }

    /// Runs until `shutdown` and finishes the current step first.
    pub(super) async fn run(mut self, rate: u16, shutdown: CancellationToken) -> Tally {
        let mut order = steady(Duration::from_secs(1) / u32::from(rate));
        let mut large = steady(LARGE_EVERY);
        let mut log = steady(LOG_EVERY);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return self.tally,
                _ = large.tick() => self.large().await,
                _ = log.tick() => tracing::info!("{}", self.tally.in_words()),
                _ = order.tick() => self.order().await,
            }
        }
    }

    /// One order: placed, charged, sometimes shipped, and published.
    async fn order(&mut self) {
        self.orders += 1;
        let number = self.orders;
        let cents = fastrand::u32(500..50_000);
        let country = fastrand::choice(["DE", "FR", "NL", "PL", "SE"]).unwrap_or("DE");
        let payload = json!({ "order": number, "amount_cents": cents, "country": country });
        self.emit("order.placed", number, &payload).await;
        self.enqueue(NewJob::new("demo.charge").target_ref(format!("order:{number}")), &payload).await;
        if number.is_multiple_of(3) {
            self.emit("order.shipped", number, &json!({ "order": number, "carrier": "towboat" })).await;
        }
        self.reading(fastrand::usize(..SENSORS.len())).await;
        if number.is_multiple_of(4) {
            self.publish(&json!({ "news": format!("order {number} went to {country}") })).await;
        }
        if number.is_multiple_of(5) {
            self.message(number).await;
        }
    }

    /// Something larger, and failures for the operator to see.
    async fn large(&mut self) {
        self.graph().await;
        let month = fastrand::choice(["January", "April", "July", "October"]).unwrap_or("January");
        self.enqueue(NewJob::new("demo.report").priority(50), &json!({ "month": month })).await;
        let later = Timestamp::now() + SignedDuration::from_hours(1);
        let archive = NewJob::new("demo.archive").idempotency_key("demo.archive").scheduled_at(later);
        self.enqueue(archive, &json!({ "year": 2025 })).await;
        self.failures().await;
        self.change_sessions().await;
    }

    async fn failures(&mut self) {
        let open = DeadLetterFilter { replayed: Some(false), ..DeadLetterFilter::default() };
        let count = self.database.dead_letter_count(&open).await;
        let letters = self.tally.took("count of dead letters", count).map(|count| count.kinds.values().sum());
        if letters.is_some_and(|letters: u64| letters < LETTERS_MAX) {
            self.enqueue(NewJob::new("demo.import"), &json!({ "row": fastrand::u32(1..9_999) })).await;
            let declined = json!({ "order": self.orders + 1, "declined": true });
            self.enqueue(NewJob::new("demo.charge").max_attempts(3), &declined).await;
        }
        let health = self.database.event_health().await;
        let open = self.tally.took("event health", health).map(|health| health.route_dead_letters_open);
        if open.is_some_and(|open| open < i64::try_from(LETTERS_MAX).unwrap_or(i64::MAX)) {
            self.emit("order.refunded", self.orders, &json!({ "order": self.orders })).await;
        }
    }

    async fn graph(&mut self) {
        let node = |node: &str, kind: &str| json!({ "node": node, "job_kind": kind, "actor": DEMO });
        let edge = |from: &str, to: &str| json!({ "from": from, "to": to });
        let graph = json!({
            "name": "demo.nightly",
            "actor": DEMO,
            "nodes": [
                node("extract", "demo.extract"), node("orders", "demo.transform"),
                node("customers", "demo.transform"), node("load", "demo.load"),
            ],
            "edges": [
                edge("extract", "orders"), edge("extract", "customers"),
                edge("orders", "load"), edge("customers", "load"),
            ],
        });
        let emitted = self.database.graph_emit(&graph).await;
        self.tally.graphs += u64::from(self.tally.took("graph", emitted).is_some());
    }

    async fn enqueue(&mut self, job: NewJob, payload: &Value) {
        let Some(job) = self.tally.took("job", job.actor(DEMO).payload(payload)) else { return };
        let enqueued = self.database.enqueue(&job).await;
        self.tally.jobs += u64::from(self.tally.took("job", enqueued).is_some_and(|job| !job.duplicate));
    }

    async fn emit(&mut self, event_type: &str, order: u64, payload: &Value) {
        let event = NewEvent::new("shop", event_type).actor(DEMO).subject("orders", order.to_string());
        let Some(event) = self.tally.took("event", event.payload(payload)) else { return };
        let emitted = self.database.event_emit(&event).await;
        self.tally.events += u64::from(self.tally.took("event", emitted).is_some());
    }

    /// To an address that no transport can reach.
    async fn message(&mut self, order: u64) {
        if self.silent {
            return;
        }
        let message = json!({
            "to": format!("customer-{order}@demo.invalid"), "from": "shop@demo.invalid",
            "subject": format!("Your order {order}"), "text": "It is on its way. Follow it at any time.",
        });
        let options = SendOptions { actor: Some(DEMO), ..SendOptions::default() };
        let sent = self.database.message_send(Channel::Email, &message, options).await;
        self.tally.messages += u64::from(self.tally.took("message", sent).is_some());
    }

    /// An idempotent producer: it numbers its appends, so that none is stored twice.
    async fn reading(&mut self, sensor: usize) {
        let (stream, number) = (SENSORS[sensor], self.readings[sensor]);
        let celsius = 20.0 + f64::from(fastrand::i8(-40..40)) / 10.0;
        let request = self
            .client
            .request(Method::POST, stream)
            .header("producer-id", format!("{DEMO}-{sensor}"))
            .header("producer-epoch", self.epoch)
            .header("producer-seq", number)
            .json(&json!({ "celsius": celsius, "at": Timestamp::now() }));
        let sent = self.client.send(request).await;
        if self.tally.took("append", sent).is_some() {
            self.readings[sensor] += 1;
            self.tally.appends += 1;
        }
    }

    async fn publish(&mut self, news: &Value) {
        let sent =
            self.client.send(self.client.at(Method::POST, &format!("publish/{NEWS}")).json(news)).await;
        self.tally.publishes += u64::from(self.tally.took("publish", sent).is_some());
    }

    /// Deletes the oldest session and creates new ones up to the limit.
    async fn change_sessions(&mut self) {
        if self.sessions.len() >= SESSIONS
            && let Some(oldest) = self.sessions.pop_front()
        {
            let gone = self.client.send(self.client.at(Method::DELETE, &format!("session/{oldest}"))).await;
            self.tally.took("session end", gone);
        }
        while self.sessions.len() < SESSIONS {
            let session = Uuid::now_v7();
            let body = json!({ "sessionId": session, "streamId": NEWS });
            let begun = self.client.send(self.client.at(Method::POST, "subscribe").json(&body)).await;
            if self.tally.took("session", begun).is_none() {
                return;
            }
            self.sessions.push_back(session);
            self.tally.sessions += 1;
        }
    }
}

/// Never catches up: after a pause the rate is unchanged.
fn steady(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
