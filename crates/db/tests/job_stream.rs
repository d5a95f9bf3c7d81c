//! What the database knows of a job's stream: values that its handler appended, marks, tokens.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::Error;
use towpath_db::job::LeaseOwner;
use towpath_db::job_stream::JobMark;
use towpath_model::job::{Attempt, JobId};
use towpath_testkit::queue::Queue;

const DAY: Duration = Duration::from_secs(86_400);

/// A job that a worker holds.
async fn held(queue: &Queue) -> (LeaseOwner, (JobId, Attempt)) {
    queue.enqueue("mail").await;
    let lease = queue.claim().await;
    (lease.owner().clone(), (lease.job_id(), lease.attempt()))
}

/// Q24, Q08: values are numbered without gaps in each attempt, and only the holder of the lease appends.
#[tokio::test]
async fn only_the_holder_appends() {
    let queue = Queue::open().await;
    let (owner, first) = held(&queue).await;
    assert_eq!(queue.worker.job_append(&owner, first, &json!({"n": 1})).await.unwrap(), "1.0");
    assert_eq!(queue.worker.job_append(&owner, first, &json!("two")).await.unwrap(), "1.1");
    let other = LeaseOwner::new("another");
    let lost = queue.worker.job_append(&other, first, &json!(3)).await.unwrap_err();
    assert!(matches!(lost, Error::LeaseLost(_)), "{lost}");
    let large = queue.worker.job_append(&owner, first, &json!("x y z ".repeat(20_000))).await.unwrap_err();
    assert!(large.to_string().contains("64 KiB"), "{large}");
    queue.db.advance(DAY).await;
    queue.reap().await;
    let lost = queue.worker.job_append(&owner, first, &json!(3)).await.unwrap_err();
    assert!(matches!(lost, Error::LeaseLost(_)), "{lost}");
    queue.db.advance(DAY / 24).await;
    let lease = queue.claim().await;
    let second = (lease.job_id(), lease.attempt());
    assert_eq!(queue.worker.job_append(lease.owner(), second, &json!(null)).await.unwrap(), "2.0");
    let keys = async |after| {
        let chunks = queue.admin.job_chunks(first.0, after).await.unwrap();
        chunks
            .iter()
            .map(|chunk| format!("{}.{} {}", chunk.attempt, chunk.no, chunk.data))
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(None).await, ["1.0 {\"n\": 1}", "1.1 \"two\"", "2.0 null"]);
    assert_eq!(keys(Some((1, 0))).await, ["1.1 \"two\"", "2.0 null"]);
    assert_eq!(keys(Some((2, 0))).await, Vec::<String>::new());
}

/// Q08: two transactions of one holder append one after the other, and a reap waits for them.
#[tokio::test]
async fn appends_wait_for_each_other() {
    let queue = Queue::open().await;
    let (owner, first) = held(&queue).await;
    let client = queue.db.client().await;
    let sql = format!("select towpath.fn_job_append('{}', '{}', 1, '1')", first.0, owner.as_str());
    client.batch_execute(&format!("begin; {sql}")).await.unwrap();
    let worker = queue.worker.clone();
    let waiting = tokio::spawn(async move { worker.job_append(&owner, first, &json!(2)).await });
    let waits = "select count(*) from pg_locks where not granted";
    while queue.db.text(waits).await == "0" && !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "it waits");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "1.1");
}

/// Q24: the mark changes with the state, the progress and what is appended, and with nothing else; the end is told.
#[tokio::test]
async fn a_mark_changes_with_what_a_stream_shows() {
    let queue = Queue::open().await;
    let (owner, first) = held(&queue).await;
    let look = async || -> JobMark { queue.admin.job_watch(&[first.0]).await.unwrap().pop().unwrap() };
    let mut last = look().await;
    assert_eq!(look().await.mark, last.mark);
    for sql in [
        format!("fn_job_start('{}', '{}', 1)", first.0, owner.as_str()),
        format!("fn_job_progress('{}', '{}', 1, 5)", first.0, owner.as_str()),
        format!("fn_job_append('{}', '{}', 1, '7')", first.0, owner.as_str()),
        format!("fn_job_ack('{}', '{}', 1)", first.0, owner.as_str()),
    ] {
        queue.db.ask(&sql).await;
        let now = look().await;
        assert_ne!(now.mark, last.mark, "{sql}");
        last = now;
    }
    assert!(last.ended);
    let gone: JobId = "0190f5a4-5c2e-7bb0-9f33-0123456789ab".parse().unwrap();
    assert!(queue.admin.job_watch(&[gone]).await.unwrap()[0].ended, "a job that is gone has ended");
    let many = vec![gone; 1_001];
    assert!(queue.admin.job_watch(&many).await.unwrap_err().to_string().contains("1000"));
}

/// Q24: retention deletes what was appended more than a day ago.
#[tokio::test]
async fn old_values_go() {
    let queue = Queue::open().await;
    let (owner, first) = held(&queue).await;
    queue.worker.job_append(&owner, first, &json!(1)).await.unwrap();
    queue.db.ask("fn_job_retention_tick()").await;
    assert_eq!(queue.admin.job_chunks(first.0, None).await.unwrap().len(), 1);
    queue.db.advance(DAY + DAY / 24).await;
    queue.db.ask("fn_job_retention_tick()").await;
    assert_eq!(queue.admin.job_chunks(first.0, None).await.unwrap().len(), 0);
}

/// R09: who may enqueue a job makes tokens for it, for at most a week; the server's key verifies them.
#[tokio::test]
async fn a_producer_makes_tokens_of_its_jobs() {
    let queue = Queue::open().await;
    let (db, id) = (&queue.db, queue.enqueue("mail").await.to_string());
    let token = queue.producer.job_token(id.parse().unwrap(), Duration::from_secs(60)).await.unwrap();
    let key = queue.admin.job_token_key().await.unwrap();
    let material = towpath_model::token::Secret::parse(&key.secret)
        .and_then(towpath_model::token::Material::hs256)
        .unwrap();
    let key = towpath_model::token::Key { kid: key.kid, material, created_at: jiff::Timestamp::now() };
    let ring = towpath_model::token::Keyring::new(&[key]);
    let now = db.text("select extract(epoch from towpath.fn_now())::bigint").await;
    let now = jiff::Timestamp::from_second(now.parse().unwrap()).unwrap();
    let grant = ring.verify(&token, "jobs", now).unwrap();
    assert_eq!(grant.job.as_deref(), Some(id.as_str()));
    assert!(ring.verify(&token, "jobs", now + Duration::from_secs(61)).is_err(), "it expires");
    for seconds in [0, 604_801] {
        let refused: Value = db.json(&format!("towpath.fn_job_token('{id}', {seconds})")).await;
        assert_eq!(refused["error"], "invalid", "{refused}");
    }
    let gone = db.json("towpath.fn_job_token('0190f5a4-5c2e-7bb0-9f33-0123456789ab')").await;
    assert_eq!(gone["error"], "not_found");
    let stranger = db.client_as("towpath_producer").await;
    let error = stranger.batch_execute(&format!("select towpath.job_token('{id}')")).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "TP005", "{error:?}");
}

/// R09: the key that signs tokens of jobs is a secret: no role reads its table, and only an administrator's login, which the
/// server has, gets it. A new key makes the tokens of the old one worthless.
#[tokio::test]
async fn the_key_of_tokens_is_kept_from_everybody_and_replaced() {
    let queue = Queue::open().await;
    for role in [
        "towpath_observer",
        "towpath_producer",
        "worker_service_user",
        "towpath_maintainer",
        "workflow_admin",
    ] {
        let client = queue.db.client_as(role).await;
        let table = client.query("select * from towpath.job_token_key", &[]).await.unwrap_err();
        assert_eq!(table.code().unwrap().code(), "42501", "{role} reads the table");
        for call in ["fn_job_token_key()", "fn_job_token_key_rotate()"] {
            let answer = client.query(&format!("select towpath.{call}"), &[]).await;
            assert_eq!(answer.is_ok(), role == "workflow_admin", "{role} {call}");
        }
    }
    let before = queue.admin.job_token_key().await.unwrap();
    assert!(!format!("{before:?}").contains(&before.secret), "a log does not have it");
    let kid = queue.admin.job_token_key_rotate("ann").await.unwrap();
    let after = queue.admin.job_token_key().await.unwrap();
    assert!(after.kid == kid && after.kid != before.kid && after.secret != before.secret, "{after:?}");
    let audited = &queue.admin.audit_list(1, None).await.unwrap()[0];
    assert_eq!((audited.actor.as_str(), audited.action.as_str()), ("ann", "job key rotate"));
    assert!(!format!("{audited:?}").contains(&after.secret));
    assert!(matches!(queue.admin.job_token_key_rotate(" ").await, Err(Error::Invalid(_))));
}
