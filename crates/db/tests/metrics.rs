//! Numbers for monitoring: `sql/functions/metrics.sql`.

use towpath_testkit::TestDb;

use crate::job_read::{claim, enqueue, with_worker};

/// O05: what happens to a job is seen, state by state.
#[tokio::test]
async fn a_job_is_counted_where_it_is() {
    let (db, database) = with_worker(None).await;
    enqueue(&database, "mail").await;
    enqueue(&database, "mail").await;
    db.advance(std::time::Duration::from_secs(7)).await;
    let lease = claim(&database).await.lease;
    let (survey, postgres) = database.survey(&[]).await.unwrap();
    let depth =
        |state: &str| survey.jobs_depth.iter().find(|d| d.state == state).map(|d| (d.kind.as_str(), d.n));
    assert_eq!((depth("queued"), depth("leased")), (Some(("mail", 1.0)), Some(("mail", 1.0))));
    assert_eq!(survey.kinds, ["mail"]);
    assert!((7.0..60.0).contains(&survey.oldest_ready[0].seconds), "{survey:?}");
    assert!(postgres.connections_max > 0.0 && postgres.connections["active"] >= 1.0);
    lease.ack(&database).await.unwrap();
    database.job_counter_fold(1000).await.unwrap();
    let (survey, _) = database.survey(&survey.kinds).await.unwrap();
    let done = &survey.jobs_finished[0];
    assert_eq!((done.kind.as_str(), done.outcome.as_str(), done.n), ("mail", "succeeded", 1));
    assert_eq!(survey.jobs_depth.len(), 1, "{survey:?}");
}

/// O05: due jobs that no live worker handles are counted by kind and cause, until a worker says that it handles them.
#[tokio::test]
async fn unhandled_jobs_are_counted_by_cause() {
    let (db, database) = with_worker(None).await;
    enqueue(&database, "mail").await;
    enqueue(&database, "mail").await;
    let unhandled = async || {
        let (survey, _) = database.survey(&[]).await.unwrap();
        survey.jobs_unhandled.iter().map(|it| (it.kind.clone(), it.cause.clone(), it.n)).collect::<Vec<_>>()
    };
    assert_eq!(unhandled().await, [("mail".to_owned(), "no_worker".to_owned(), 2.0)]);
    let tick = "select towpath.fn_queue_heartbeat_tick('w', null, p_lease_owner => 'w-1', p_kinds => ";
    db.execute(&format!("{tick} '{{sms}}')")).await;
    assert_eq!(unhandled().await, [("mail".to_owned(), "no_handler".to_owned(), 2.0)]);
    let other = db.json("select towpath.fn_metrics_read('{}', 0)").await["jobs_unhandled"].clone();
    assert_eq!(other, serde_json::json!([{"kind": "other", "cause": "no_handler", "n": 2}]));
    db.execute(&format!("{tick} '{{mail}}')")).await;
    assert_eq!(unhandled().await, []);
}

/// O05: a kind that was named keeps its name when busier ones come; an event without a position and a
/// cursor that lags are seen.
#[tokio::test]
async fn names_stay_and_lags_are_seen() {
    let db = TestDb::open().await;
    db.execute(
        "insert into towpath.job_lane (job_kind, executor, priority) values ('old', 'PG_worker', 1), ('new', 'PG_worker', 1);
         insert into towpath.job_counter (job_kind, outcome, n) values ('old', 'succeeded', 1), ('new', 'succeeded', 100)",
    )
    .await;
    let one = db.json("select towpath.fn_metrics_read('{old}', 1)").await;
    assert_eq!(one["kinds"], serde_json::json!(["old"]));
    let busiest = db.json("select towpath.fn_metrics_read('{}', 1)").await;
    assert_eq!(busiest["kinds"], serde_json::json!(["new"]));
    let before = db.json("select towpath.fn_metrics_read()").await;
    assert_eq!(before["outbox_horizon_lag_seconds"], 0);
    db.execute("select towpath.fn_event_emit('shop', 'order_paid', p_payload => '{}')").await;
    db.advance(std::time::Duration::from_secs(9)).await;
    let waiting = db.json("select towpath.fn_metrics_read()").await;
    assert!(waiting["outbox_horizon_lag_seconds"].as_f64().unwrap() >= 9.0, "{waiting}");
    db.execute("select towpath.fn_event_sequence()").await;
    let numbered = db.json("select towpath.fn_metrics_read()").await;
    assert_eq!(numbered["outbox_horizon_lag_seconds"], 0, "{numbered}");
    assert_eq!(numbered["events_numbered"], 1);
}

/// O05: of many unfinished jobs a part is read, and the number is still about right.
#[tokio::test]
async fn many_unfinished_jobs_are_estimated() {
    let db = TestDb::open().await;
    db.execute(
        "insert into towpath.job_lane (job_kind, executor, priority) values ('mail', 'PG_worker', 1);
         insert into towpath.job_live (job_id, due_at, lane, max_attempts)
         select towpath._uuid7(1700000000000000 + i), towpath.fn_now(), 1, 1 from generate_series(1, 150000) i",
    )
    .await;
    let pages: i64 = db.text("select pg_relation_size('towpath.job_live') / 8192").await.parse().unwrap();
    assert!(pages > 1_200, "{pages} pages are no reason to sample");
    let database = db.database().await;
    let (survey, _) = database.survey(&[]).await.unwrap();
    let n = survey.jobs_depth[0].n;
    assert!((120_000.0..180_000.0).contains(&n), "{n}");
}

/// The numbers are for operators: an observer reads them, a producer does not.
#[tokio::test]
async fn only_operators_read_the_numbers() {
    let db = TestDb::new().await;
    let sql = "select towpath.fn_metrics_read(), towpath.fn_metrics_postgres()";
    db.client_as("towpath_observer").await.batch_execute(sql).await.unwrap();
    for role in ["towpath_producer", "worker_service_user"] {
        let refused = db.client_as(role).await.batch_execute(sql).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{role}");
    }
}
