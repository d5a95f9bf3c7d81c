//! Webhooks from an event to a receiver and back into the database (E08).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use towpath_route::Config;
use towpath_testkit::TestDb;
use towpath_testkit::receiver::{Arrived, Receiver};

use crate::routing::{emit, hook, start_role, start_role_with};

const OUTCOMES: &str =
    "select string_agg(outcome, ',' order by attempt) from towpath.delivery_attempt where outcome <> 'lost'";
const MODE: &str = "select mode from towpath.outbound_route where route_name = 'hook'";

/// A receiver whose status can be changed while it runs.
async fn moody(status: u16) -> (Receiver, Arc<AtomicU16>) {
    let mood = Arc::new(AtomicU16::new(status));
    let shared = mood.clone();
    let answer = move |_: usize, _: &Arrived| {
        StatusCode::from_u16(shared.load(Ordering::Relaxed)).unwrap().into_response()
    };
    (Receiver::new(answer).await, mood)
}

/// E08: events become webhooks, failures are tried again, and the history tells it.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_tried_again() {
    let db = TestDb::open().await;
    let answer = |number: usize, _: &Arrived| match number {
        0 => (StatusCode::BAD_GATEWAY, "down for a moment").into_response(),
        _ => (StatusCode::OK, "thanks").into_response(),
    };
    let receiver = Receiver::new(answer).await;
    hook(&db, &receiver.url(), ", p_retry_seconds => '{0,0}'").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    db.until(OUTCOMES, "retry,delivered").await;
    assert_eq!(receiver.arrived().len(), 2);
    let told = "select string_agg(concat_ws(' ', status_code, answer), ', ' order by attempt) from towpath.delivery_attempt";
    assert_eq!(db.text(told).await, "502 down for a moment, 200 thanks");
    assert_eq!(db.text("select count(*) from towpath.delivery").await, "0");
    role.stop().await;
}

/// E08: a receiver that asks for a pause gets it, for the whole target.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured() {
    let db = TestDb::open().await;
    let answer = |number: usize, _: &Arrived| match number {
        0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "600")]).into_response(),
        _ => StatusCode::OK.into_response(),
    };
    let receiver = Receiver::new(answer).await;
    hook(&db, &receiver.url(), ", p_retry_seconds => '{0,0}'").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    db.until(OUTCOMES, "retry").await;
    let wait = "select extract(epoch from d.next_at - a.ended_at)::integer \
                from towpath.delivery d join towpath.delivery_attempt a using (delivery_id)";
    assert_eq!(db.text(wait).await, "600");
    let blocked =
        "select (blocked_until > towpath.fn_now() + interval '500 seconds') from towpath.delivery_target";
    assert_eq!(db.text(blocked).await, "true", "the pause is for the target");
    assert_eq!(receiver.arrived().len(), 1, "nothing comes before its time");
    db.advance(Duration::from_secs(601)).await;
    db.until(OUTCOMES, "retry,delivered").await;
    role.stop().await;
}

/// E08: 410 switches the route off, and a warning event says why.
#[tokio::test(flavor = "multi_thread")]
async fn gone_switches_the_route_off() {
    let db = TestDb::open().await;
    let (receiver, _) = moody(410).await;
    hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    db.until(MODE, "off").await;
    let warning = "select payload ->> 'reason' from towpath.event_outbox where event_type = 'route.disabled'";
    assert_eq!(db.text(warning).await, "the receiver responded with 410 Gone");
    assert_eq!(
        db.text("select count(*) from towpath.route_dead_letter where resolved_at is null").await,
        "1"
    );
    role.stop().await;
}

/// E08: what a receiver refuses for good is a dead letter at once, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_is_a_dead_letter_and_replays() {
    let db = TestDb::open().await;
    let (receiver, mood) = moody(422).await;
    hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    db.until(OUTCOMES, "dead").await;
    assert_eq!(receiver.arrived().len(), 1, "trying again cannot help");
    mood.store(200, Ordering::Relaxed);
    let letter = db.text("select dead_letter_id from towpath.route_dead_letter").await;
    db.call(&format!("fn_route_dead_letter_replay('{letter}', 'tester')")).await;
    let arrived = receiver.until_arrived(2).await;
    assert_eq!(
        arrived[0].header("webhook-id"),
        arrived[1].header("webhook-id"),
        "a repetition, for the receiver"
    );
    assert_eq!((arrived[0].header("towpath-replay"), arrived[1].header("towpath-replay")), ("", "1"));
    role.stop().await;
}

/// E08: enough failures open the target's circuit; one probe closes it again.
#[tokio::test(flavor = "multi_thread")]
async fn the_circuit_opens_and_closes() {
    let db = TestDb::open().await;
    db.execute("update towpath.config set value = '3' where key = 'event.circuit.failure_threshold'").await;
    let (receiver, mood) = moody(503).await;
    hook(&db, &receiver.url(), ", p_retry_seconds => '{0,0,0,0,0,0,0,0,0,0}'").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    let circuit = "select circuit from towpath.delivery_target";
    db.until(circuit, "open").await;
    assert_eq!(receiver.arrived().len(), 3, "no more than the threshold");
    db.advance(Duration::from_secs(31)).await;
    receiver.until_arrived(4).await;
    db.until(circuit, "open").await;
    mood.store(200, Ordering::Relaxed);
    // The second opening lasts twice as long.
    db.advance(Duration::from_secs(61)).await;
    db.until(circuit, "closed").await;
    assert_eq!(receiver.arrived().len(), 5, "one probe each time");
    let told = "select string_agg(event_type, ',' order by id) from towpath.event_outbox where event_domain = 'towpath'";
    assert_eq!(db.text(told).await, "route.circuit_opened,route.circuit_closed");
    role.stop().await;
}

/// E08: one target that is down slows nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_target_slows_nobody_else() {
    let db = TestDb::open().await;
    let receiver = Receiver::content().await;
    hook(&db, &receiver.url(), "").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = format!(r#"{{"url": "http://127.0.0.1:{port}/"}}"#);
    db.call(&format!("fn_route_put('dead', 'webhook', '{dead}', 'd')")).await;
    db.call("fn_route_secret_rotate('dead')").await;
    db.call("fn_route_mode_set('dead', 'live', 'tester', 'a test')").await;
    let role = start_role_with(&db, Config { deliveries: 4, ..Config::default() }).await;
    emit(&db, 200).await;
    receiver.until_arrived(200).await;
    role.stop().await;
}

/// E08: a rate holds however many senders there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_for_all_senders_together() {
    let db = TestDb::open().await;
    db.freeze("2026-11-15T12:00:00Z".parse().unwrap()).await;
    db.execute("select towpath.fn_event_partition_tick(); select towpath.fn_job_partition_tick()").await;
    let receiver = Receiver::content().await;
    hook(&db, &receiver.url(), ", p_rate_limit_per_second => 5").await;
    let roles = [start_role(&db).await, start_role(&db).await, start_role(&db).await];
    emit(&db, 20).await;
    db.until("select count(*) from towpath.delivery_attempt where outcome = 'delivered'", "5").await;
    // The clock is stopped, so no token comes and none of the three may send.
    let waiting = "select count(*) || ' ' || bool_and(lease_owner is null) from towpath.delivery";
    db.until(waiting, "15 true").await;
    for second in 2..=4 {
        db.advance(Duration::from_secs(1)).await;
        receiver.until_arrived(second * 5).await;
        assert_eq!(receiver.arrived().len(), second * 5);
    }
    for role in roles {
        role.stop().await;
    }
}

/// E08: a target that has failed for too long is switched off, with a warning event.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_fails_for_days_is_switched_off() {
    let db = TestDb::open().await;
    let (receiver, _) = moody(500).await;
    hook(&db, &receiver.url(), ", p_retry_seconds => '{1,604800,604800}'").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    db.until(OUTCOMES, "retry").await;
    db.advance(Duration::from_secs(121 * 3_600)).await;
    db.until(MODE, "off").await;
    let warned = "select count(*) from towpath.event_outbox where event_type = 'route.disabled'";
    assert_eq!(db.text(warned).await, "1");
    role.stop().await;
}

/// E08: with `ordering => 'key'` the webhooks of a key come one at a time and in order, through failures.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_a_key_keep_their_order() {
    let db = TestDb::open().await;
    let answer = |number: usize, _: &Arrived| match number % 5 {
        2 => StatusCode::BAD_GATEWAY.into_response(),
        _ => StatusCode::OK.into_response(),
    };
    let receiver = Receiver::new(answer).await;
    db.execute("update towpath.config set value = '1000' where key = 'event.circuit.failure_threshold'")
        .await;
    hook(&db, &receiver.url(), ", p_ordering => 'key', p_retry_seconds => '{0,0,0,0,0,0,0,0}'").await;
    let roles = [start_role(&db).await, start_role(&db).await];
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'ordering_key', 'k' || n % 3, 'payload', jsonb_build_object('n', n)) order by n) \
                from generate_series(1, 30) n))";
    db.call(many).await;
    db.until("select count(*) from towpath.delivery_attempt where outcome = 'delivered'", "30").await;
    let numbers: Vec<u64> = receiver
        .arrived()
        .iter()
        .map(|one| {
            serde_json::from_slice::<serde_json::Value>(&one.body).unwrap()["data"]["payload"]["n"]
                .as_u64()
                .unwrap()
        })
        .collect();
    for key in 0..3 {
        let mine: Vec<u64> = numbers.iter().copied().filter(|number| number % 3 == key).collect();
        assert!(mine.is_sorted(), "key {key}: {mine:?}");
    }
    let once: BTreeSet<u64> = numbers.into_iter().collect();
    assert_eq!(once.len(), 30);
    for role in roles {
        role.stop().await;
    }
}

/// A stop lets a webhook in flight finish: nothing is sent a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_what_is_in_flight() {
    let db = TestDb::open().await;
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let answer = move |_: usize, _: &Arrived| {
        tokio::task::block_in_place(|| held.lock().unwrap().recv().ok());
        StatusCode::OK.into_response()
    };
    let receiver = Receiver::new(answer).await;
    hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    emit(&db, 1).await;
    receiver.until_arrived(1).await;
    let stopping = tokio::spawn(role.stop());
    hold.send(()).unwrap();
    stopping.await.unwrap();
    assert_eq!(db.text(OUTCOMES).await, "delivered");
    assert_eq!(receiver.arrived().len(), 1);
}

/// O02: a closed gate holds webhooks back, and opening it lets them go.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_gate_holds_webhooks_back() {
    let db = TestDb::open().await;
    db.call("fn_gate_set('event.delivery.enabled', false, 'tester', 'a test')").await;
    let receiver = Receiver::content().await;
    hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    emit(&db, 3).await;
    db.until("select count(*) from towpath.delivery", "3").await;
    assert_eq!(receiver.arrived().len(), 0);
    db.call("fn_gate_set('event.delivery.enabled', true, 'tester', 'a test')").await;
    receiver.until_arrived(3).await;
    role.stop().await;
}
