//! Enqueue: `sql/functions/job_enqueue.sql` and `job_enqueue_many.sql`.

use jiff::Timestamp;
use serde_json::json;
use towpath_db::Error;
use towpath_db::job::{self, NewJob};
use towpath_testkit::TestDb;
use towpath_testkit::queue::Queue;
use towpath_testkit::race::all_at_once;

/// Q04: every parameter arrives in `job_queue`.
#[tokio::test]
async fn a_job_shows_what_its_producer_said() {
    let queue = Queue::open().await;
    let at: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
    let run_id = uuid::Uuid::now_v7();
    let job = NewJob::new("mail")
        .payload(&json!({"mail_ref": 7}))
        .unwrap()
        .executor("Hermes")
        .event_domain("billing")
        .source_ref("order:1")
        .target_ref("user:2")
        .payload_ref("blob:3")
        .priority(7)
        .scheduled_at(at)
        .max_attempts(2)
        .idempotency_key("mail-7")
        .actor("shop")
        .run_id(run_id);
    let enqueued = queue.producer.enqueue(&job).await.unwrap();
    assert!(!enqueued.duplicate);
    let sql = format!("select to_jsonb(q) from towpath.job_queue q where job_id = '{}'", enqueued.job_id);
    let row = queue.db.json(&sql).await;
    for (column, value) in [
        ("job_kind", json!("mail")),
        ("payload_json", json!({"mail_ref": 7})),
        ("executor", json!("Hermes")),
        ("event_domain", json!("billing")),
        ("source_ref", json!("order:1")),
        ("target_ref", json!("user:2")),
        ("payload_ref", json!("blob:3")),
        ("priority", json!(7)),
        ("max_attempts", json!(2)),
        ("idempotency_key", json!("mail-7")),
        ("actor", json!("shop")),
        ("run_id", json!(run_id)),
        ("state", json!("queued")),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!(row["scheduled_at"].as_str().unwrap().parse::<Timestamp>().unwrap(), at);
}

/// Q04: two hundred concurrent calls with one key make one job; after its end, a new one.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_enqueues_with_one_key_make_one_job() {
    let queue = Queue::open().await;
    let producer = queue.producer.clone();
    let answers = all_at_once(200, |_| {
        let producer = producer.clone();
        async move { producer.enqueue(&NewJob::new("mail").idempotency_key("once")).await.unwrap() }
    })
    .await;
    let first = answers[0].job_id;
    assert!(answers.iter().all(|answer| answer.job_id == first), "one id for all");
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1, "one of them made it");
    assert_eq!(queue.db.text("select count(*) from towpath.job_queue").await, "1");
    queue.claim().await.ack(&queue.worker).await.unwrap();
    let again = queue.producer.enqueue(&NewJob::new("mail").idempotency_key("once")).await.unwrap();
    assert!(!again.duplicate && again.job_id != first, "the key is free after the end");
}

/// Q05: the same rules for every row of a batch, and an answer for every row.
#[tokio::test]
async fn a_batch_answers_per_row() {
    let queue = Queue::open().await;
    let jobs = [
        NewJob::new("mail").idempotency_key("k"),
        NewJob::new(" "),
        NewJob::new("mail").idempotency_key("k"),
        NewJob::new("mail").executor("MOT"),
        NewJob::new("mail").payload(&json!({"deep": [{"PassWord": "x"}]})).unwrap(),
        NewJob::new("mail"),
    ];
    let answers = queue.producer.enqueue_many(&jobs).await.unwrap();
    assert_eq!(answers.len(), 6);
    let first = answers[0].as_ref().unwrap();
    let third = answers[2].as_ref().unwrap();
    assert!(!first.duplicate && third.duplicate && first.job_id == third.job_id);
    for refused in [1, 3, 4] {
        assert!(matches!(answers[refused], Err(Error::Invalid(_))), "{:?}", answers[refused]);
    }
    assert!(!answers[5].as_ref().unwrap().duplicate);
    assert_eq!(queue.db.text("select count(*) from towpath.job_queue").await, "2");
}

/// Q05: ids keep the order of the batch, so that equals run in order.
#[tokio::test]
async fn a_batch_keeps_its_order() {
    let queue = Queue::open().await;
    let jobs: Vec<_> = (0..50).map(|n| NewJob::new("mail").source_ref(format!("{n}"))).collect();
    let ids: Vec<_> = queue
        .producer
        .enqueue_many(&jobs)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.unwrap().job_id)
        .collect();
    assert!(ids.is_sorted());
    let claimed = queue.claim_as("a", 50).await.unwrap();
    let order: Vec<_> = claimed.iter().map(|job| job.source_ref.clone().unwrap()).collect();
    assert_eq!(order, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// Q19: in the caller's own transaction, commit shows the job and rollback leaves nothing.
#[tokio::test]
async fn enqueueing_is_part_of_the_callers_transaction() {
    let queue = Queue::open().await;
    let mut client = queue.db.client().await;
    let count = "select count(*) from towpath.job_queue";

    let transaction = client.transaction().await.unwrap();
    job::enqueue(&transaction, &NewJob::new("mail")).await.unwrap();
    job::enqueue_many(&transaction, &[NewJob::new("mail"), NewJob::new("sms")]).await.unwrap();
    assert!(queue.claim_as("a", 10).await.unwrap().is_empty(), "not before the commit");
    transaction.rollback().await.unwrap();
    assert_eq!(queue.db.text(count).await, "0", "rolled back");

    let transaction = client.transaction().await.unwrap();
    let kept = job::enqueue(&transaction, &NewJob::new("mail")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(queue.claim().await.job_id(), kept.job_id);
}

/// Q06: behind the closed gate nothing is written.
#[tokio::test]
async fn a_closed_gate_enqueues_nothing() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let refused = database.enqueue(&NewJob::new("mail")).await.unwrap_err();
    assert!(matches!(refused, Error::GateClosed { gate } if gate == "queue.job_substrate.enabled"));
    assert!(matches!(database.enqueue_many(&[NewJob::new("mail")]).await, Err(Error::GateClosed { .. })));
    assert_eq!(db.text("select count(*) from towpath.job_queue").await, "0");
}

/// Q04, Q20, E01: an actor is what a producer says of itself; the login is kept beside it where it is another, and
/// where it is not, nothing is stored.
#[tokio::test]
async fn a_claimed_actor_is_shown_with_the_login() {
    let queue = Queue::open().await;
    let (_, login) = queue.db.database_as("towpath_producer").await;
    queue.db.execute(&format!("select towpath.fn_event_grant_put('{login}')")).await;
    let client = queue.db.client_as(&login).await;
    let graph = json!({"name": "g", "actor": "alice", "nodes": [{"node": "a", "job_kind": "mail"}]});
    for (call, claimed) in [
        ("enqueue('mail', actor => 'alice')".to_owned(), true),
        ("enqueue('mail')".into(), false),
        (format!("enqueue('mail', actor => '{login}')"), false),
        (r#"fn_job_enqueue_many('[{"job_kind": "mail", "actor": "alice"}]')"#.into(), true),
        (
            r#"fn_job_enqueue_many('[{"job_kind": "mail", "actor": "alice"}, {"job_kind": " "}]')"#.into(),
            true,
        ),
        (r#"fn_job_enqueue_many('[{"job_kind": "mail"}]')"#.into(), false),
        (format!("fn_mot_graph_emit('{graph}')"), true),
    ] {
        client.batch_execute(&format!("select towpath.{call}")).await.unwrap();
        let newest = "select to_jsonb(q) from towpath.job_queue q order by job_id desc limit 1";
        let row = queue.db.json(newest).await;
        let (actor, beside) = if claimed { ("alice", json!(login)) } else { (login.as_str(), json!(null)) };
        assert_eq!((&row["actor"], &row["login"]), (&json!(actor), &beside), "{call}");
        let job_id = row["job_id"].as_str().unwrap();
        let history = queue.db.json(&format!("towpath.fn_job_history('{job_id}')")).await;
        assert_eq!(
            (&history["events"][0]["actor"], &history["events"][0]["login"]),
            (&json!(actor), &beside)
        );
        let job = queue.db.database().await.job_show(job_id.parse().unwrap()).await.unwrap().job.unwrap();
        let words = format!("alice (claimed by login {login})");
        assert_eq!(job.who(), if claimed { words } else { login.clone() });
    }
    for (call, claimed) in [
        ("emit('d', 't', actor => 'alice')", true),
        ("emit('d', 't')", false),
        (r#"emit_many('[{"domain": "d", "type": "t", "actor": "alice"}]')"#, true),
        (r#"emit_many('[{"domain": "d", "type": "t"}]')"#, false),
    ] {
        client.batch_execute(&format!("select towpath.{call}")).await.unwrap();
        let newest = "select event_id from towpath.event_outbox order by id desc limit 1";
        let shown = queue.db.json(&format!("towpath.fn_event_show(({newest}))")).await;
        let beside = if claimed { json!(login) } else { json!(null) };
        assert_eq!(shown["event"]["login"], beside, "{call}");
    }
    queue
        .db
        .execute(
            r#"select towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{"job_kind": "tick"}', now());
               select towpath.fn_schedule_fire('s', next_at, next_at + interval '1 minute') from towpath.schedule"#,
        )
        .await;
    let own = "select login is null from towpath.job_queue where job_kind = 'tick'";
    assert_eq!(queue.db.text(own).await, "true", "what Towpath makes itself is nobody's claim");
}
