//! Enqueueing with the types of this crate; every driver is in tests/clients/rust.

use towpath::testing::expect_enqueued;
use towpath::{EnqueueOptions, Error, Job, Timestamp};

use crate::{Resize, open};

/// Q04: the derive's defaults and the options of a call arrive, the call's before the type's.
#[tokio::test]
async fn options_and_defaults_arrive() {
    let (db, client) = open().await;
    let row = async |id: towpath::JobId| {
        let sql = "select concat_ws(' ', job_kind, payload_json, max_attempts, priority, idempotency_key, source_ref,
            target_ref, payload_ref, actor, executor, event_domain, run_id, extract(epoch from scheduled_at)::bigint)";
        db.text(&format!("{sql} from towpath.job_queue where job_id = '{id}'")).await
    };
    let run_id = "0198c4a2-0000-7000-8000-000000000001";
    let at: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
    let id = client
        .enqueue(&Resize { image: 7 })
        .key("k")
        .run_at(at)
        .max_attempts(9)
        .source_ref("s")
        .target_ref("t")
        .payload_ref("p")
        .actor("alice")
        .executor("PG_worker")
        .domain("images")
        .run_id(run_id.parse().unwrap())
        .await
        .unwrap();
    let expected =
        format!("resize {{\"image\": 7}} 9 120 k s t p alice PG_worker images {run_id} {}", at.as_second());
    assert_eq!(row(id).await, expected);
    let again = client.enqueue(&Resize { image: 8 }).key("k").await.unwrap();
    assert_eq!(again, id, "while the key is taken, its job is the answer");
    let plain = client.enqueue(&Resize { image: 9 }).options(EnqueueOptions::default()).await.unwrap();
    assert!(row(plain).await.starts_with("resize {\"image\": 9} 5 100 "), "{}", row(plain).await);
}

/// Q05: a batch is enqueued whole or not at all, each job with its own options.
#[tokio::test]
async fn a_batch_is_whole_or_nothing() {
    let (db, client) = open().await;
    let mut connection = db.client().await;
    let transaction = connection.transaction().await.unwrap();
    let batch = |bad: i32| (0..3).map(move |image| (Resize { image }, Resize::defaults().priority(bad)));
    let ids = towpath::enqueue_many(&transaction, batch(7)).await.unwrap();
    assert_eq!(ids.len(), 3);
    let seen: Vec<Resize> = expect_enqueued(&transaction).await;
    assert_eq!(seen.iter().map(|job| job.image).collect::<Vec<_>>(), [0, 1, 2]);
    let refused = towpath::enqueue_many(&transaction, batch(-1)).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert_eq!(
        (refused.word(), refused.refused().unwrap().subject.as_str()),
        ("invalid", "index: 0, field: priority")
    );
    transaction.commit().await.unwrap();
    assert_eq!(db.text("select count(*) from towpath.job_queue").await, "0", "the commit was a rollback");
    drop(client);
}

/// Q21: every word of refusal has its variant, with the gate and the next step.
#[tokio::test]
async fn a_refusal_names_the_cause_and_the_next_step() {
    let (db, client) = open().await;
    db.execute("update towpath.config set value = 'false' where key = 'queue.job_substrate.enabled'").await;
    let refused = client.enqueue(&Resize { image: 7 }).await.unwrap_err();
    assert!(matches!(refused, Error::GateClosed(_)), "{refused:?}");
    assert_eq!(refused.word(), "gate_closed");
    assert_eq!(refused.refused().unwrap().subject, "gate: queue.job_substrate.enabled");
    let hint = refused.hint().unwrap();
    assert!(hint.contains("towpath gate open queue.job_substrate.enabled"), "{hint}");
}

/// E01: an event is emitted in the caller's transaction, once per id.
#[tokio::test]
async fn an_event_commits_with_its_transaction() {
    let (db, client) = open().await;
    let order = serde_json::json!({ "order": 7 });
    let id = client.emit("orders", "placed", &order).subject("orders", "7").ordering_key("7").await.unwrap();
    let same = client.emit("orders", "placed", &order).event_id(id).await.unwrap();
    assert_eq!(same, id);
    let mut connection = db.client().await;
    let transaction = connection.transaction().await.unwrap();
    towpath::emit(&transaction, "orders", "placed", &order).await.unwrap();
    transaction.rollback().await.unwrap();
    let rows = "select string_agg(concat_ws(' ', event_type, subject_table, subject_ref, payload), ', ')
                  from towpath.event_outbox";
    assert_eq!(db.text(rows).await, r#"placed orders 7 {"order": 7}"#);
}
