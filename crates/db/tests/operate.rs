//! What operators see and do beside the queue: routes, health, the chart of events.

use std::time::Duration;

use serde_json::json;
use towpath_db::event::NewEvent;
use towpath_db::{Attribution, Error};
use towpath_testkit::TestDb;

const BY: Attribution<'_> = Attribution { actor: "tester", reason: "a test" };

async fn webhook(db: &TestDb) {
    let put = r#"select towpath.fn_route_put('w', 'webhook', '{"url": "https://example.com/hook"}', 'd', p_actor => 't')"#;
    db.execute(put).await;
}

/// E08, O03: closing a circuit forgets the failures of the target and says who did it.
#[tokio::test]
async fn a_circuit_is_closed_by_hand() {
    let db = TestDb::open().await;
    let database = db.database().await;
    webhook(&db).await;
    db.execute(
        "update towpath.delivery_target set circuit = 'open', failures = 6, opened_times = 2, \
                failing_since = now(), blocked_until = now() + interval '1 hour', last_error = 'down'",
    )
    .await;
    let closed = database.route_circuit_close("w", BY).await.unwrap();
    assert_eq!((closed.old_circuit.as_str(), closed.changed), ("open", true));
    let route = database.route_show("w").await.unwrap();
    assert_eq!((route.circuit.as_deref(), route.blocked_until), (Some("closed"), None));
    let told = "select payload from towpath.event_outbox where event_type = 'route.circuit_closed'";
    assert_eq!(db.json(told).await["by"], "tester");
    assert!(!database.route_circuit_close("w", BY).await.unwrap().changed, "there is nothing to forget now");
    db.execute(r#"select towpath.fn_route_put('j', 'job', '{"job_kind": "k"}', 'd', p_actor => 't')"#).await;
    assert!(matches!(database.route_circuit_close("j", BY).await, Err(Error::Conflict(_))));
    assert!(matches!(database.route_circuit_close("x", BY).await, Err(Error::NotFound(_))));
    let blank = Attribution { actor: "tester", reason: " " };
    assert!(matches!(database.route_circuit_close("w", blank).await, Err(Error::Invalid(_))));
}

/// O03: a route's newest decisions are its own, newest first.
#[tokio::test]
async fn a_route_tells_what_it_decided() {
    let db = TestDb::open().await;
    let database = db.database().await;
    for name in ["a", "b"] {
        db.execute(&format!(
            r#"select towpath.fn_route_put('{name}', 'job', '{{"job_kind": "k"}}', 'd', p_actor => 't')"#
        ))
        .await;
        db.execute(&format!("select towpath.fn_route_mode_set('{name}', 'dry_run', 't', 'try')")).await;
    }
    for _ in 0..3 {
        database.event_emit(&NewEvent::new("d", "t")).await.unwrap();
    }
    database.event_sequence(100).await.unwrap();
    db.execute("select towpath.fn_route_worker_run('default', 1000)").await;
    let attempts = database.route_attempts("a", 2).await.unwrap();
    let positions: Vec<i64> = attempts.decisions.iter().map(|one| one.position).collect();
    assert_eq!((attempts.route_name.as_str(), positions), ("a", vec![3, 2]));
    assert!(attempts.deliveries.is_empty());
    assert!(matches!(database.route_attempts("x", 2).await, Err(Error::NotFound(_))));
}

/// O03: health names what is stuck, and nothing else.
#[tokio::test]
async fn health_names_what_is_stuck() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let quiet = database.health_show().await.unwrap();
    assert_eq!((quiet.unfolded_since, quiet.unnumbered_since, quiet.overdue_since), (None, None, None));
    database.event_emit(&NewEvent::new("d", "t")).await.unwrap();
    db.execute("insert into towpath.job_counter_delta select 1, 'succeeded', 1, 0, 0, towpath.fn_now()")
        .await;
    db.execute(
        "select comms.send_email('{\"to\": \"ann@example.com\", \"subject\": \"Hello\", \"text\": \"Hi\"}')",
    )
    .await;
    db.advance(Duration::from_secs(86_400)).await;
    let late = database.health_show().await.unwrap();
    assert!(late.unfolded_since.is_some() && late.unnumbered_since.is_some(), "{late:?}");
    assert!(late.processes_overdue == 1 && late.overdue_since < Some(late.checked_at), "{late:?}");
    database.event_sequence(100).await.unwrap();
    assert_eq!(database.health_show().await.unwrap().unnumbered_since, None);
}

/// O03: the mark of a topic is another one after something of it changed, and only then.
#[tokio::test]
async fn marks_move_with_their_topic() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let mut known = database.health_marks().await.unwrap();
    assert_eq!(database.health_marks().await.unwrap(), known, "nothing happened");
    let changes = [
        ("jobs", "select towpath.fn_job_enqueue('k', p_actor => 't')"),
        ("jobs", "select towpath.fn_queue_pause('k', 't', 'why')"),
        ("dead-letters", "select towpath.fn_job_move_to_dead_letter(job_id, 'why', 't') from towpath.job"),
        (
            "dead-letters",
            "select towpath.fn_job_dead_letter_triage(dead_letter_id, 'closed', 'why', 't') from towpath.job_dead_letter",
        ),
        ("events", "select towpath.fn_event_emit('d', 't'), towpath.fn_event_sequence()"),
        ("events", "select towpath.fn_event_sequence()"),
        ("gates", "update towpath.config set changed_at = changed_at + interval '1 second'"),
        (
            "processes",
            "select comms.send_email('{\"to\": \"ann@example.com\", \"subject\": \"Hello\", \"text\": \"Hi\"}')",
        ),
    ];
    for (topic, sql) in changes {
        db.execute(sql).await;
        let now = database.health_marks().await.unwrap();
        if sql.contains("fn_event_emit") {
            continue; // It has its position with the next statement.
        }
        assert_ne!(now[topic], known[topic], "{topic}: {sql}");
        known = now;
    }
}

/// O03: the chart of events has as many events as there are.
#[tokio::test]
async fn the_chart_counts_events_by_minute() {
    let db = TestDb::open().await;
    let database = db.database().await;
    assert!(database.event_chart().await.unwrap().is_empty());
    for n in [3, 5] {
        for _ in 0..n {
            database.event_emit(&NewEvent::new("d", "t").payload(&json!({ "n": n })).unwrap()).await.unwrap();
        }
        database.event_sequence(100).await.unwrap();
        db.advance(Duration::from_secs(120)).await;
    }
    let chart = database.event_chart().await.unwrap();
    assert_eq!(chart.iter().map(|minute| minute.n).collect::<Vec<_>>(), [5, 3]);
    let gap = chart[0].minute_at.as_second() - chart[1].minute_at.as_second();
    assert!((60..=180).contains(&gap), "{chart:?}");
}

/// R07: the whitelist that lists offer is the one that the domain checks.
#[tokio::test]
async fn the_whitelist_is_the_one_that_is_checked() {
    let db = TestDb::open().await;
    let kinds = db.database().await.executor_kinds().await.unwrap();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    for kind in &kinds {
        assert_eq!(db.text(&format!("towpath._executor_known('{kind}')")).await, "true");
        assert!(db.text("towpath._executor_unknown('x')").await.contains(kind), "{kind}");
    }
}
