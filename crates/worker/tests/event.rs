//! Maintenance of events: partitions ahead, counts folded, the broadcast warning, retention.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::Attribution;
use towpath_db::event::{Letters, NewEvent, RouteSpec, RouteWorkerSpec};
use towpath_model::event::route::Mode;
use towpath_worker::MaintenanceReport;

use crate::place::Place;

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "a test" };
const DAY: Duration = Duration::from_secs(24 * 3600);

/// One round by a node of its own, under the maintainer's own login.
async fn maintain(place: &Place) -> MaintenanceReport {
    place.maintenance().await.run_once().await.unwrap()
}

async fn emit(place: &Place, payload: Value) {
    let event = NewEvent::new("d", "t").payload(&payload).unwrap();
    place.admin.event_emit(&event).await.unwrap();
    place.admin.event_sequence(1000).await.unwrap();
}

async fn route(place: &Place) {
    while place.admin.route_worker_run("default", 1000, None).await.unwrap().more {}
}

/// A live route to this target.
async fn to(place: &Place, target_kind: &str, target: Value) {
    let spec = RouteSpec {
        route_name: "r",
        target_kind,
        target,
        event_domain: None,
        event_type: None,
        event_stream: None,
        recipient_filter: None,
        payload_filter: json!({}),
        ordering: "none",
        retry_seconds: None,
        rate_limit_per_second: None,
        worker_name: "default",
        notes: None,
        actor: "tester",
    };
    place.admin.route_put(&spec).await.unwrap();
    if target_kind == "webhook" {
        place.admin.route_secret_rotate("r", None, 0, "tester").await.unwrap();
    }
    place.admin.route_mode_set("r", Mode::Live, BY).await.unwrap();
}

/// Lets days pass, each with its maintenance.
async fn days(place: &Place, days: u32) {
    for _ in 0..days {
        place.db.advance(DAY).await;
        maintain(place).await;
    }
}

async fn stored(place: &Place) -> String {
    place.db.text("select count(*) from towpath.event_outbox").await
}

/// E01: partitions are there before their day comes, also when maintenance missed some days.
#[tokio::test]
async fn every_day_has_its_partition() {
    let place = Place::open().await;
    days(&place, 2).await;
    emit(&place, json!({})).await;
    place.db.advance(30 * DAY).await;
    maintain(&place).await;
    emit(&place, json!({})).await;
    let in_default = "select count(*) from towpath.event_outbox_default";
    assert_eq!(place.db.text(in_default).await, "0");
    let ahead = "select count(*) from pg_class where relname ~ '^event_outbox_p[0-9]{8}$' \
                 and right(relname, 8)::date > (towpath.fn_now() at time zone 'UTC')::date";
    assert_eq!(place.db.text(ahead).await, "3", "as event.retention.partitions_ahead_days says");
}

/// R03: events are counted by the hour, whether or not they are routed, and the warning comes once,
/// whoever maintains.
#[tokio::test]
async fn broadcasts_are_counted_and_warned_of_once() {
    let place = Place::open().await;
    // The clock stands, or the window could move between two rounds.
    place.db.freeze(jiff::Timestamp::now()).await;
    emit(&place, json!({})).await;
    let many: Vec<_> = (0..149).map(|_| NewEvent::new("nobodys", "t")).collect();
    place.admin.event_emit_many(&many).await.unwrap();
    place.admin.event_sequence(1000).await.unwrap();
    assert!(maintain(&place).await.warned);
    assert_eq!(place.db.text("select sum(broadcasts) from towpath.event_resolution_hour").await, "150");
    assert!(!maintain(&place).await.warned, "once a day");
    place.db.advance(DAY + Duration::from_secs(2 * 3600)).await;
    assert!(!maintain(&place).await.warned, "the window has passed");
    let warnings =
        "select count(*) from towpath.event_outbox where event_type = 'subscription.broadcast_drift'";
    assert_eq!(place.db.text(warnings).await, "1");
}

/// Retention drops whole days once everybody is past them, and what is kept stays dense.
#[tokio::test]
async fn old_events_are_dropped_by_the_day() {
    let place = Place::open().await;
    emit(&place, json!({})).await;
    route(&place).await;
    days(&place, 14).await;
    assert_eq!(stored(&place).await, "1", "fourteen days are kept");
    emit(&place, json!({})).await;
    route(&place).await;
    days(&place, 2).await;
    assert_eq!(stored(&place).await, "1");
    let health = place.admin.event_health().await.unwrap();
    assert_eq!((health.kept_from, health.last_position), (2, 2));
    let verified = place.admin.event_verify(towpath_db::event::Extent::Everything).await.unwrap();
    assert!(verified.passed, "{verified:?}");
}

/// Retention never passes the lowest cursor: a worker that slept for weeks finds its events.
#[tokio::test]
async fn a_sleeping_cursor_keeps_its_events() {
    let place = Place::open().await;
    to(&place, "job", json!({"job_kind": "k"})).await;
    let sleeper = RouteWorkerSpec {
        worker_name: "sleeper",
        slices: 2,
        from_position: Some(0),
        event_domain: None,
        actor: "tester",
    };
    place.admin.route_worker_put(&sleeper).await.unwrap();
    for n in 0..4 {
        emit(&place, json!({"n": n})).await;
    }
    route(&place).await;
    days(&place, 20).await;
    assert_eq!(stored(&place).await, "4", "the second worker has not seen them");
    for _ in 0..2 {
        while place.admin.route_worker_run("sleeper", 1, None).await.unwrap().more {}
    }
    maintain(&place).await;
    assert_eq!(stored(&place).await, "0");
}

/// Retention never passes an open dead letter, and goes on when it is resolved.
#[tokio::test]
async fn an_open_dead_letter_keeps_its_event() {
    let place = Place::open().await;
    to(&place, "job", json!({"job_kind": "k", "from_payload": {"priority": "prio"}})).await;
    emit(&place, json!({"prio": "abc"})).await;
    emit(&place, json!({})).await;
    route(&place).await;
    days(&place, 20).await;
    assert_eq!(stored(&place).await, "2");
    let letters = place.admin.route_dead_letter_list(None, Letters::Open, 10, None).await.unwrap();
    place.admin.route_dead_letter_resolve(letters.dead_letters[0].dead_letter_id, BY).await.unwrap();
    maintain(&place).await;
    assert_eq!(stored(&place).await, "0");
    let resolved = place.admin.route_dead_letter_list(None, Letters::Resolved, 10, None).await.unwrap();
    assert_eq!(resolved.dead_letters.len(), 1, "the letter itself stays, whole");
}

/// Retention never passes a webhook that still has to be sent, nor an append to a stream.
#[tokio::test]
async fn a_waiting_delivery_keeps_its_event() {
    for (target_kind, target) in
        [("webhook", json!({"url": "https://example.com/in"})), ("stream", json!({"stream": "orders"}))]
    {
        let place = Place::open().await;
        to(&place, target_kind, target).await;
        emit(&place, json!({})).await;
        route(&place).await;
        days(&place, 20).await;
        assert_eq!(stored(&place).await, "1", "{target_kind}");
        place.admin.route_retire("r", BY).await.unwrap();
        maintain(&place).await;
        assert_eq!(stored(&place).await, "0", "{target_kind}");
    }
}

/// Many nodes: whoever comes second says busy and breaks nothing, and nobody waits.
#[tokio::test]
async fn one_node_at_a_time_tidies_events() {
    let place = Place::open().await;
    let other = place.db.rival().await;
    other.run("begin; select pg_advisory_xact_lock(7304, 1), pg_advisory_xact_lock(7304, 2)").await;
    assert_eq!(maintain(&place).await.busy, 3, "partitions, counters, retention");
    other.run("rollback").await;
    assert_eq!(maintain(&place).await.busy, 0);
}
