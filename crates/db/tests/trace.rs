//! The span that wrote a job or an event stays with it.

use towpath_db::job::{NewJob, enqueue};
use towpath_model::trace::TraceParent;
use towpath_testkit::TestDb;

use crate::job_read::{claim, with_worker};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// O05: a job keeps the span that wanted it, alone, in a batch and in the caller's transaction, and the
/// claim tells it.
#[tokio::test]
async fn a_job_keeps_its_parent() {
    let (db, database) = with_worker(None).await;
    let parent: TraceParent = PARENT.parse().unwrap();
    let job = || NewJob::new("mail").traceparent(parent);
    let single = database.enqueue(&job()).await.unwrap();
    assert!(!single.duplicate);
    assert_eq!(claim(&database).await.traceparent, Some(parent));
    assert_eq!(database.job_show(single.job_id).await.unwrap().job.unwrap().traceparent, Some(parent));
    let many = database.enqueue_many(&[job(), NewJob::new("mail")]).await.unwrap();
    assert_eq!(many.len(), 2);
    let seen = [claim(&database).await.traceparent, claim(&database).await.traceparent];
    assert_eq!(seen, [Some(parent), None], "each job has its own");
    let mut client = db.client().await;
    let own = client.transaction().await.unwrap();
    enqueue(&own, &job()).await.unwrap();
    own.commit().await.unwrap();
    assert_eq!(claim(&database).await.traceparent, Some(parent));
    // A batch with a row that is refused goes row by row.
    let some = database.enqueue_many(&[job(), NewJob::new(" ")]).await.unwrap();
    assert!(some[0].is_ok() && some[1].is_err());
    assert_eq!(claim(&database).await.traceparent, Some(parent));
    database.enqueue(&NewJob::new("mail")).await.unwrap();
    assert_eq!(claim(&database).await.traceparent, None);
}

/// O05: whatever a transaction writes belongs to the trace it named; what is malformed is as good as none.
#[tokio::test]
async fn a_transaction_names_its_trace() {
    let db = TestDb::open().await;
    for (given, kept) in [(PARENT, PARENT), ("00-zz-yy-01", "null"), ("", "null")] {
        db.execute(&format!(
            "begin;
             set local towpath.traceparent = '{given}';
             select towpath.fn_job_enqueue('mail', p_idempotency_key => 'a{given}');
             select towpath.fn_job_enqueue_many('[{{\"job_kind\": \"mail\", \"idempotency_key\": \"b{given}\"}}]');
             select towpath.fn_event_emit('shop', 'order_paid');
             commit"
        ))
        .await;
        for sql in [
            format!("select traceparent from towpath.job where idempotency_key = 'a{given}'"),
            format!("select traceparent from towpath.job where idempotency_key = 'b{given}'"),
            "select traceparent from towpath.event_outbox order by id desc limit 1".to_owned(),
        ] {
            assert_eq!(db.text(&sql).await, kept, "{sql}");
        }
    }
}

/// O05: an event hands its parent on to the jobs that routes make of it, and to who reads it.
#[tokio::test]
async fn an_event_hands_its_parent_on() {
    let db = TestDb::open().await;
    let traced = format!("set local towpath.traceparent = '{PARENT}'");
    for sql in [
        r#"select towpath.fn_route_put('r', 'job', '{"job_kind": "k"}')"#,
        "select towpath.fn_route_mode_set('r', 'live', 'tester', 'a test')",
        &format!("begin; {traced}; select towpath.fn_event_emit('d', 't'); commit"),
        "select towpath.fn_event_emit('d', 't')",
        "select towpath.fn_event_sequence()",
        "select towpath.fn_route_worker_run('default', 1000)",
    ] {
        db.execute(sql).await;
    }
    let jobs =
        db.text("select string_agg(coalesce(traceparent, '-'), ' ' order by job_id) from towpath.job").await;
    assert_eq!(jobs, format!("{PARENT} -"));
    let told = "select string_agg(coalesce(payload_json ->> 'traceparent', '-'), ' ' order by job_id) from towpath.job";
    assert_eq!(db.text(told).await, format!("{PARENT} -"), "the event says it too");
}
