//! Sets up what the traffic needs, and stops it afterwards.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use towpath_db::event::{EventSubscriptionSpec, RouteSpec};
use towpath_db::schedule::ScheduleSpec;
use towpath_db::subscription::SubscriptionSpec;
use towpath_db::{Attribution, Database};
use towpath_model::cron::Cron;
use towpath_model::event::route::Mode;

use super::{DEMO, work};
use crate::command::stream::client::Client;

/// The JSON streams: one per sensor, one written by a route, one followed by sessions.
pub(super) const SENSORS: [&str; 3] = ["demo.sensor-1", "demo.sensor-2", "demo.sensor-3"];
pub(super) const NEWS: &str = "demo.news";
const ORDERS: &str = "demo.orders";
/// Hours of history in little space.
const RETAIN_BYTES: u64 = 4 << 20;

const SCHEDULE: &str = "demo.cleanup";
const EVERY_15_SECONDS: &str = "*/15 * * * * *";
/// Short delays, so that a viewer sees the retries.
const RETRY_SECONDS: [i32; 4] = [1, 3, 10, 60];
const WEBHOOKS: [&str; 2] = ["demo.ship", "demo.refund"];

/// Creates subscriptions, streams, routes and the schedule. Idempotent.
pub(super) async fn lay(database: &Database, client: &Client, receiver: Option<&str>) -> anyhow::Result<()> {
    let notes = Some("created by towpath demo");
    database.consumer_put(DEMO, "PG_worker", None, notes, DEMO).await?;
    for kind in work::KINDS {
        let spec = SubscriptionSpec {
            executor_id: DEMO,
            executor_kind: "PG_worker",
            job_kind: Some(kind),
            enabled: true,
            notes,
            actor: DEMO,
            ..SubscriptionSpec::default()
        };
        database.subscription_put(&spec).await?;
    }
    for stream in SENSORS.iter().chain(&[NEWS, ORDERS]) {
        let request = client.request(Method::PUT, stream).header("content-type", "application/json");
        client.send(request.header("stream-retain-bytes", RETAIN_BYTES)).await?;
    }
    route(database, "demo.confirm", "order.placed", "job", json!({ "job_kind": "demo.confirm" })).await?;
    route(database, "demo.orders", "order.placed", "stream", json!({ "stream": ORDERS })).await?;
    if let Some(url) = receiver {
        for (name, event, place) in
            [(WEBHOOKS[0], "order.shipped", "ship"), (WEBHOOKS[1], "order.refunded", "refund")]
        {
            route(database, name, event, "webhook", json!({ "url": format!("{url}/{place}") })).await?;
        }
    }
    for (recipient, event_type) in [("role:warehouse", None), ("user:ann", Some("order.placed"))] {
        subscribe(database, recipient, event_type).await?;
    }
    schedule(database).await
}

/// Stops the routes and the schedule, whose jobs and webhooks only the demo handles.
pub(super) async fn clear(database: &Database) -> anyhow::Result<()> {
    let by = Attribution { actor: DEMO, reason: "the demo ended" };
    for row in database.route_list().await?.iter().filter(|row| WEBHOOKS.contains(&row.route_name.as_str())) {
        database.route_mode_set(&row.route_name, Mode::Off, by).await?;
    }
    database.schedule_pause(SCHEDULE, DEMO).await?;
    Ok(())
}

async fn route(
    database: &Database,
    name: &str,
    event_type: &str,
    target_kind: &str,
    target: Value,
) -> anyhow::Result<()> {
    let is_webhook = target_kind == "webhook";
    // The route that always fails gives up soon.
    let retry_seconds = if event_type == "order.refunded" { &RETRY_SECONDS[..1] } else { &RETRY_SECONDS };
    let spec = RouteSpec {
        route_name: name,
        target_kind,
        target,
        event_domain: Some("shop"),
        event_type: Some(event_type),
        event_stream: None,
        recipient_filter: None,
        payload_filter: json!({}),
        ordering: "none",
        retry_seconds: is_webhook.then_some(retry_seconds),
        rate_limit_per_second: None,
        worker_name: "default",
        notes: Some("created by towpath demo"),
        actor: DEMO,
    };
    let put = database.route_put(&spec).await?;
    if put.created && is_webhook {
        database.route_secret_rotate(name, None, 0, DEMO).await?;
    }
    let by = Attribution { actor: DEMO, reason: "the demo runs" };
    database.route_mode_set(name, Mode::Live, by).await?;
    Ok(())
}

async fn subscribe(database: &Database, recipient_ref: &str, event_type: Option<&str>) -> anyhow::Result<()> {
    let spec = EventSubscriptionSpec {
        recipient_ref,
        event_domain: "shop",
        event_type,
        event_stream: None,
        scope_subject_table: None,
        scope_filter: json!({}),
        mute: false,
        notes: Some("created by towpath demo"),
        actor: DEMO,
    };
    database.event_subscription_put(&spec).await?;
    Ok(())
}

async fn schedule(database: &Database) -> anyhow::Result<()> {
    let cron = Cron::parse(EVERY_15_SECONDS, "UTC").map_err(|words| anyhow::anyhow!(words))?;
    let Some(next_at) = cron.next_after(Timestamp::now()) else { anyhow::bail!("no tick follows now") };
    let spec = ScheduleSpec {
        name: SCHEDULE,
        expression: EVERY_15_SECONDS,
        time_zone: "UTC",
        catch_up: "skip",
        job: json!({ "job_kind": "demo.cleanup", "payload_json": { "older_than_days": 30 } }),
        next_at,
        actor: DEMO,
    };
    database.schedule_put(&spec).await?;
    database.schedule_resume(SCHEDULE, next_at, DEMO).await?;
    Ok(())
}
