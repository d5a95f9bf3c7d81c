//! The W-checks are shown bad states: each finds its own, and only what is wrong (E10).

use std::time::Duration;

use towpath_testkit::TestDb;

/// A database with a live route to jobs and one to a webhook, and two events that went through both.
async fn working() -> TestDb {
    let db = TestDb::open().await;
    for put in [
        r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#,
        r#"fn_route_put('h', 'webhook', '{"url": "https://example.com"}')"#,
        "fn_route_secret_rotate('h')",
        "fn_route_mode_set('r', 'live', 'tester', 'a test')",
        "fn_route_mode_set('h', 'live', 'tester', 'a test')",
        "fn_event_emit('d', 't')",
        "fn_event_emit('d', 't')",
        "fn_event_sequence()",
        "fn_route_worker_run('default')",
    ] {
        db.call(put).await;
    }
    db
}

/// The checks that fail.
async fn failing(db: &TestDb) -> Vec<String> {
    let verified = db.ask("fn_event_verify(true)").await;
    let checks = verified["checks"].as_array().unwrap();
    let failing = checks.iter().filter(|check| check["ok"] == false);
    failing.map(|check| check["check"].as_str().unwrap()[..2].to_owned()).collect()
}

/// Triggers and keys are what keeps these states away, so each is made without them.
async fn broken(sql: &str) -> Vec<String> {
    let db = working().await;
    assert!(failing(&db).await.is_empty());
    db.execute(sql).await;
    failing(&db).await
}

#[tokio::test]
async fn a_cursor_beyond_the_end_is_found() {
    assert!(broken("update towpath.route_cursor_mark set position = 9").await.contains(&"W2".to_owned()));
    let missing = "update towpath.route_worker set slices = 2";
    assert!(broken(missing).await.contains(&"W2".to_owned()));
}

#[tokio::test]
async fn gaps_and_duplicates_are_found() {
    let gap = "update towpath.event_tick set last_position = 3";
    assert_eq!(broken(gap).await, ["W3"]);
    let twice = "update towpath.event_tick set last_position = 3; \
                 insert into towpath.event_position (position, event_id, key_hash) \
                 select 3, event_id, key_hash from towpath.event_position where position = 1";
    assert_eq!(broken(twice).await, ["W4"]);
}

#[tokio::test]
async fn an_event_nobody_numbers_is_found() {
    let db = working().await;
    db.call("fn_event_emit('d', 't')").await;
    assert!(failing(&db).await.is_empty(), "not yet");
    db.advance(Duration::from_secs(61)).await;
    assert_eq!(failing(&db).await, ["W5"]);
    db.call("fn_event_sequence()").await;
    assert!(failing(&db).await.is_empty());
}

#[tokio::test]
async fn an_event_without_a_decision_is_found() {
    let db = working().await;
    db.call("fn_event_emit('d', 't')").await;
    db.call("fn_event_sequence()").await;
    assert!(failing(&db).await.is_empty(), "a lag is not a loss");
    db.execute("update towpath.route_cursor_mark set position = 3").await;
    assert_eq!(failing(&db).await, ["W6"]);
}

#[tokio::test]
async fn a_double_delivery_is_found() {
    let twice = "insert into towpath.route_attempt select (jsonb_populate_record(a, '{\"position\": 2, \"worker_no\": 9}')).* \
                 from towpath.route_attempt a where a.position = 1 and a.decision = 'sent'";
    assert_eq!(broken(twice).await, ["W7"]);
}

#[tokio::test]
async fn a_stuck_letter_and_a_dead_sender_are_found() {
    let db = working().await;
    assert_eq!(db.ask("fn_delivery_claim('sender', 1, 60)").await["deliveries"].as_array().unwrap().len(), 1);
    db.advance(Duration::from_secs(100)).await;
    assert!(failing(&db).await.is_empty(), "its lease has only just ended");
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(failing(&db).await, ["W9"]);
    let dead = "insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, \
                generation, position, event_id, event_snapshot, error, attempts, idempotency_key, created_at) \
                select gen_random_uuid(), 'routing', 1, 1, 'r', 'live', 0, 1, gen_random_uuid(), '{}', 'e', 1, 'k', \
                towpath.fn_now() - interval '25 hours'";
    db.execute(dead).await;
    assert_eq!(failing(&db).await, ["W8", "W9"]);
}

/// E08, E10, R10: what waits for a stream is counted wherever deliveries are, and a lease that its sender
/// let run out is found.
#[tokio::test]
async fn deliveries_to_streams_are_counted_and_a_dead_sender_of_them_is_found() {
    let db = working().await;
    for put in [
        r#"fn_route_put('s', 'stream', '{"stream": "orders"}')"#,
        "fn_route_mode_set('s', 'live', 'tester', 'a test')",
        "fn_event_emit('d', 't')",
        "fn_event_sequence()",
        "fn_route_worker_run('default')",
    ] {
        db.call(put).await;
    }
    // Three webhooks from the route `h`, one append from `s`.
    let waiting = "select (select deliveries_waiting from towpath.v_event_health) || ' ' || \
                   (select deliveries_waiting from towpath.v_queue_health) || ' ' || \
                   (select deliveries_waiting from towpath.v_route_health where route_name = 's')";
    assert_eq!(db.text(waiting).await, "4 4 1");
    let event = db.text("select event_id from towpath.event_position order by position desc limit 1").await;
    let shown = db.ask(&format!("fn_event_show('{event}')")).await;
    let routes: Vec<&str> = shown["deliveries"]["waiting"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["route_name"].as_str().unwrap())
        .collect();
    assert_eq!(routes.len(), 2, "{shown}");
    assert!(routes.contains(&"s") && routes.contains(&"h"), "{routes:?}");
    let text = async || {
        let verified = db.ask("fn_event_verify()").await;
        let checks = verified["checks"].as_array().unwrap();
        let lag = checks.iter().find(|check| check["check"] == "W9_lag").unwrap();
        lag["text"].as_str().unwrap().to_owned()
    };
    assert!(text().await.contains("4 deliveries are waiting"), "{}", text().await);
    assert_eq!(db.ask("fn_stream_delivery_claim('sender')").await["streams"].as_array().unwrap().len(), 1);
    let leased = "select deliveries_waiting || ' ' || deliveries_leased from towpath.v_event_health";
    assert_eq!(db.text(leased).await, "3 1");
    db.advance(Duration::from_secs(60)).await;
    assert!(failing(&db).await.is_empty(), "its lease has only just ended");
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(failing(&db).await, ["W9"]);
    assert!(text().await.contains("1 with a lease that expired"), "{}", text().await);
    let again = db.ask("fn_stream_delivery_claim('another')").await;
    let number = &again["streams"][0]["route_stream_no"];
    let end = format!("fn_stream_delivery_end({number}, 'another', 2, 1)");
    assert_eq!(db.ask(&end).await["appended"], 1);
    assert!(failing(&db).await.is_empty());
    assert_eq!(db.text(waiting).await, "3 3 0");
}
