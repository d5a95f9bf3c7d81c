//! How routes share a host, and how long a webhook belongs to its sender (E08).

use std::sync::{Mutex, mpsc};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use towpath_route::Config;
use towpath_testkit::TestDb;
use towpath_testkit::receiver::Receiver;
use towpath_testkit::wait::WAIT_MAX;

use crate::routing::{emit, hook, start_role, start_role_with};

/// E08: a host that takes one webhook at a time, and a route without order that has a long backlog for it. An
/// ordered route to the same host still gets every second turn, and keeps its order.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_route_does_not_starve_behind_another_to_the_same_host() {
    let db = TestDb::open().await;
    let receiver = Receiver::new(|_, _| StatusCode::OK.into_response()).await;
    for (route, ordering) in [("backlog", "none"), ("ordered", "key")] {
        let put = format!(
            "fn_route_put('{route}', 'webhook', '{{\"url\": \"{}\"}}', '{route}', p_ordering => '{ordering}')",
            receiver.url()
        );
        db.call(&put).await;
        db.call(&format!("fn_route_secret_rotate('{route}')")).await;
        db.call(&format!("fn_route_mode_set('{route}', 'live', 'tester', 'a test')")).await;
    }
    for (domain, count) in [("backlog", 200), ("ordered", 10)] {
        let many = format!(
            "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', '{domain}', 'event_type', n::text, \
             'ordering_key', 'one') order by n) from generate_series(1, {count}) n))"
        );
        assert_eq!(db.call(&many).await["emitted"], count);
        db.call("fn_event_sequence()").await;
        db.call("fn_route_worker_run('default', 1000)").await;
    }
    let role = start_role_with(&db, Config { deliveries: 1, ..Config::default() }).await;
    let arrived = receiver.until_arrived(210).await;
    role.stop().await;
    let types: Vec<String> = arrived
        .iter()
        .map(|one| {
            serde_json::from_slice::<serde_json::Value>(&one.body).unwrap()["type"].as_str().unwrap().into()
        })
        .collect();
    let turns: Vec<usize> =
        (1..=10).map(|n| types.iter().position(|seen| *seen == format!("ordered.{n}")).unwrap()).collect();
    assert!(turns.is_sorted(), "in order: {turns:?}");
    assert!(turns[9] < 21, "every second turn is its own: {turns:?}");
}

/// E08: a webhook belongs to its sender for `event.delivery.lease_sec`, which is 15 unless it is changed; the
/// lease is renewed for as long as the receiver takes, so a short one loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_webhook_is_the_configured_one() {
    let db = TestDb::open().await;
    let lease = "select value from towpath.config where key = 'event.delivery.lease_sec'";
    assert_eq!(db.text(lease).await, "15", "as docs/guides/webhooks.md says");
    // The receiver says nothing until the test has looked.
    let (looked, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let receiver = Receiver::new(move |_, _| {
        tokio::task::block_in_place(|| wait.lock().unwrap().recv_timeout(WAIT_MAX)).unwrap();
        StatusCode::OK.into_response()
    })
    .await;
    hook(&db, &receiver.url(), "").await;
    let role = start_role(&db).await;
    for (seconds, look) in [
        // Far longer than a lease of 15 s, and not forever.
        (
            300,
            "select (lease_until - towpath.fn_now() between '200 s' and '300 s')::text from towpath.delivery",
        ),
        // Two renewals at least: the lease ends later than any that a claim gave.
        (1, "select (lease_until > created_at + interval '3 s')::text from towpath.delivery"),
    ] {
        db.call(&format!("fn_config_set('event.delivery.lease_sec', '{seconds}', 'tester', 'a test')")).await;
        emit(&db, 1).await;
        db.until(look, "true").await;
        looked.send(()).unwrap();
        db.until("select count(*) from towpath.delivery", "0").await;
    }
    let ended = "select string_agg(outcome || attempt, ',') from towpath.delivery_attempt";
    assert_eq!(db.text(ended).await, "delivered1,delivered1");
    role.stop().await;
}
