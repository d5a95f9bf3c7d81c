//! Maintenance of events: partitions ahead, counts folded, the broadcast warning, retention.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::Attribution;
use towpath_db::event::{Letters, NewEvent, RouteWorkerSpec};
use towpath_model::event::route::Mode;
use towpath_testkit::event;
use towpath_testkit::queue::Queue;
use towpath_worker::MaintenanceReport;

use crate::worker::maintenance;

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "a test" };
const DAY: Duration = Duration::from_secs(24 * 3600);

/// One round by a node of its own, under the maintainer's own login.
async fn maintain(queue: &Queue) -> MaintenanceReport {
    maintenance(queue).run_once().await.unwrap()
}

async fn emit(queue: &Queue, payload: Value) {
    let event = NewEvent::new("d", "t").payload(&payload).unwrap();
    queue.admin.event_emit(&event).await.unwrap();
    queue.admin.event_sequence(1000).await.unwrap();
}

async fn route(queue: &Queue) {
    while queue.admin.route_worker_run("default", 1000, None).await.unwrap().more {}
}

/// A live route to this target.
async fn to(queue: &Queue, target_kind: &str, target: Value) {
    queue.admin.route_put(&event::route("r", target_kind, target)).await.unwrap();
    if target_kind == "webhook" {
        queue.admin.route_secret_rotate("r", None, 0, "tester").await.unwrap();
    }
    queue.admin.route_mode_set("r", Mode::Live, BY).await.unwrap();
}

/// Lets days pass, each with its maintenance.
async fn days(queue: &Queue, days: u32) {
    for _ in 0..days {
        queue.db.advance(DAY).await;
        maintain(queue).await;
    }
}

async fn stored(queue: &Queue) -> String {
    queue.db.text("select count(*) from towpath.event_outbox").await
}

/// E01: partitions are there before their day comes, also when maintenance missed some days.
#[tokio::test]
async fn every_day_has_its_partition() {
    let queue = Queue::open().await;
    days(&queue, 2).await;
    emit(&queue, json!({})).await;
    queue.db.advance(30 * DAY).await;
    maintain(&queue).await;
    emit(&queue, json!({})).await;
    let in_default = "select count(*) from towpath.event_outbox_default";
    assert_eq!(queue.db.text(in_default).await, "0");
    let ahead = "select count(*) from pg_class where relname ~ '^event_outbox_p[0-9]{8}$' \
                 and right(relname, 8)::date > (towpath.fn_now() at time zone 'UTC')::date";
    assert_eq!(queue.db.text(ahead).await, "3", "as event.retention.partitions_ahead_days says");
}

/// R03: events are counted by the hour, whether or not they are routed, and the warning comes once,
/// whichever node maintains.
#[tokio::test]
async fn broadcasts_are_counted_and_warned_of_once() {
    let queue = Queue::open().await;
    // The clock stands, or the window could move between two rounds.
    queue.db.freeze(jiff::Timestamp::now()).await;
    emit(&queue, json!({})).await;
    let many: Vec<_> = (0..149).map(|_| NewEvent::new("nobodys", "t")).collect();
    queue.admin.event_emit_many(&many).await.unwrap();
    queue.admin.event_sequence(1000).await.unwrap();
    assert!(maintain(&queue).await.warned);
    assert_eq!(queue.db.text("select sum(broadcasts) from towpath.event_resolution_hour").await, "150");
    assert!(!maintain(&queue).await.warned, "once a day");
    queue.db.advance(DAY + Duration::from_secs(2 * 3600)).await;
    assert!(!maintain(&queue).await.warned, "the window has passed");
    let warnings =
        "select count(*) from towpath.event_outbox where event_type = 'subscription.broadcast_drift'";
    assert_eq!(queue.db.text(warnings).await, "1");
}

/// Retention drops whole days once everybody is past them, and what is kept stays dense.
#[tokio::test]
async fn old_events_are_dropped_by_the_day() {
    let queue = Queue::open().await;
    emit(&queue, json!({})).await;
    route(&queue).await;
    days(&queue, 14).await;
    assert_eq!(stored(&queue).await, "1", "fourteen days are kept");
    emit(&queue, json!({})).await;
    route(&queue).await;
    days(&queue, 2).await;
    assert_eq!(stored(&queue).await, "1");
    let health = queue.admin.event_health().await.unwrap();
    assert_eq!((health.kept_from, health.last_position), (2, 2));
    let verified = queue.admin.event_verify(towpath_db::event::Extent::Everything).await.unwrap();
    assert!(verified.passed, "{verified:?}");
}

/// Retention never passes the lowest cursor: a worker that slept for weeks finds its events.
#[tokio::test]
async fn a_sleeping_cursor_keeps_its_events() {
    let queue = Queue::open().await;
    to(&queue, "job", json!({"job_kind": "k"})).await;
    let sleeper = RouteWorkerSpec {
        worker_name: "sleeper",
        slices: 2,
        from_position: Some(0),
        event_domain: None,
        actor: "tester",
    };
    queue.admin.route_worker_put(&sleeper).await.unwrap();
    for n in 0..4 {
        emit(&queue, json!({"n": n})).await;
    }
    route(&queue).await;
    days(&queue, 20).await;
    assert_eq!(stored(&queue).await, "4", "the second worker has not seen them");
    for _ in 0..2 {
        while queue.admin.route_worker_run("sleeper", 1, None).await.unwrap().more {}
    }
    maintain(&queue).await;
    assert_eq!(stored(&queue).await, "0");
}

/// Retention never passes an open dead letter, and goes on when it is resolved.
#[tokio::test]
async fn an_open_dead_letter_keeps_its_event() {
    let queue = Queue::open().await;
    to(&queue, "job", json!({"job_kind": "k", "from_payload": {"priority": "prio"}})).await;
    emit(&queue, json!({"prio": "abc"})).await;
    emit(&queue, json!({})).await;
    route(&queue).await;
    days(&queue, 20).await;
    assert_eq!(stored(&queue).await, "2");
    let letters = queue.admin.route_dead_letter_list(None, Letters::Open, 10, None).await.unwrap();
    queue.admin.route_dead_letter_resolve(letters.dead_letters[0].dead_letter_id, BY).await.unwrap();
    maintain(&queue).await;
    assert_eq!(stored(&queue).await, "0");
    let resolved = queue.admin.route_dead_letter_list(None, Letters::Resolved, 10, None).await.unwrap();
    assert_eq!(resolved.dead_letters.len(), 1, "the letter itself stays, whole");
}

/// Retention never passes a webhook that still has to be sent, nor an append to a stream.
#[tokio::test]
async fn a_waiting_delivery_keeps_its_event() {
    for (target_kind, target) in
        [("webhook", json!({"url": "https://example.com/in"})), ("stream", json!({"stream": "orders"}))]
    {
        let queue = Queue::open().await;
        to(&queue, target_kind, target).await;
        emit(&queue, json!({})).await;
        route(&queue).await;
        days(&queue, 20).await;
        assert_eq!(stored(&queue).await, "1", "{target_kind}");
        queue.admin.route_retire("r", BY).await.unwrap();
        maintain(&queue).await;
        assert_eq!(stored(&queue).await, "0", "{target_kind}");
    }
}

/// Many nodes: the second one reports busy and breaks nothing, and none waits.
#[tokio::test]
async fn one_node_at_a_time_tidies_events() {
    let queue = Queue::open().await;
    let other = queue.db.rival().await;
    other.run("begin; select pg_advisory_xact_lock(7304, 1), pg_advisory_xact_lock(7304, 2)").await;
    assert_eq!(maintain(&queue).await.busy, 3, "partitions, counters, retention");
    other.run("rollback").await;
    assert_eq!(maintain(&queue).await.busy, 0);
}
