//! Lease: `sql/functions/job_lease.sql`, and the fence around everything a holder does.

use std::time::Duration;

use serde_json::json;
use towpath_db::Error;
use towpath_db::job::{FailedAttempt, Failure, Lease, LeaseOwner, NewJob, Progress};
use towpath_model::job::{Attempt, JobId};
use towpath_testkit::queue::{LEASE, Queue, SECOND};

/// Q08: a worker that sleeps past its lease cannot finish a job that has a new owner.
#[tokio::test]
async fn stalled_worker_cannot_ack() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let stalled = queue.claim().await;
    queue.db.advance(LEASE + SECOND).await;
    assert_eq!(queue.reap().await, 1);
    queue.db.advance(Duration::from_secs(10)).await;
    let current = queue.claim().await;
    assert!(
        matches!(stalled.ack(&queue.worker).await, Err(Error::LeaseLost(id)) if id == job_id.to_string())
    );
    current.ack(&queue.worker).await.unwrap();
}

/// Q08: every word of somebody who is not the holder is refused and changes nothing.
#[tokio::test]
async fn only_the_holder_of_the_attempt_is_accepted() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let held = queue.claim().await;
    let row = async || queue.db.text("select (to_jsonb(v) - 'due_at')::text from towpath._job_now v").await;
    let before = row().await;
    let unheld = JobId::from(uuid::Uuid::now_v7());
    for (id, owner, attempt) in [(job_id, "b", 1), (job_id, "a", 2), (job_id, "a", 0), (unheld, "a", 1)] {
        let stranger = || Lease::held_elsewhere(id, LeaseOwner::new(owner), Attempt::from(attempt));
        let database = &queue.worker;
        let refusals = [
            stranger().start(database).await,
            stranger().extend(database, LEASE).await,
            stranger().progress(database, Progress { percent: Some(1), message: None }).await,
            stranger().snooze(database, SECOND, "").await.map(drop),
            stranger().fail(database, Failure::retry("no")).await.map(drop),
            stranger().fail(database, Failure::permanent("no")).await.map(drop),
            stranger().ack(database).await,
        ];
        for refused in refusals {
            assert!(
                matches!(&refused, Err(Error::LeaseLost(lost)) if *lost == id.to_string()),
                "{refused:?}"
            );
        }
        assert_eq!(database.ack_many(vec![stranger()]).await.unwrap().lost, [id]);
        assert_eq!(database.release(vec![stranger()]).await.unwrap().lost, [id]);
        let failed = FailedAttempt { lease: stranger(), failure: Failure::retry("no") };
        assert_eq!(database.fail_many(vec![failed]).await.unwrap().lost, [id]);
        let owner = LeaseOwner::new(owner);
        let asked = [(id, Attempt::from(attempt))];
        assert_eq!(database.start_many(&owner, &asked).await.unwrap(), [id]);
        assert_eq!(database.extend_many(&owner, &asked, LEASE).await.unwrap().lost, [id]);
        assert_eq!(row().await, before, "nothing has changed");
    }
    held.ack(&queue.worker).await.unwrap();
}

/// Q08: a lease that has run out but was not taken away still counts.
#[tokio::test]
async fn slow_work_is_not_thrown_away_for_nothing() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let slow = queue.claim().await;
    queue.db.advance(LEASE * 2).await;
    slow.ack(&queue.worker).await.unwrap();
    assert_eq!(queue.state(job_id).await, "succeeded");
}

/// Q09: start, extend and progress, as `job_queue` shows them.
#[tokio::test]
async fn a_holder_starts_extends_and_reports() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let mut lease = queue.claim().await;
    assert_eq!(queue.state(job_id).await, "leased");
    lease.start(&queue.worker).await.unwrap();
    lease.start(&queue.worker).await.unwrap();
    assert_eq!(queue.state(job_id).await, "in_progress");
    lease.progress(&queue.worker, Progress { percent: Some(40), message: Some("reading") }).await.unwrap();
    lease.progress(&queue.worker, Progress { percent: Some(50), message: None }).await.unwrap();
    let shown = queue.db.json("select to_jsonb(q) from towpath.job_queue q").await;
    assert_eq!((&shown["progress_percent"], &shown["progress_message"]), (&json!(50), &json!("reading")));
    let before = lease.expires_at();
    lease.extend(&queue.worker, LEASE * 3).await.unwrap();
    assert!(lease.expires_at() > before);
    queue.db.advance(LEASE * 2).await;
    assert_eq!(queue.reap().await, 0, "it was extended");
    queue.db.advance(LEASE * 2).await;
    assert_eq!(queue.reap().await, 1);
    for percent in [-1, 101] {
        let progress = Progress { percent: Some(percent), message: None };
        assert!(lease.progress(&queue.worker, progress).await.is_err());
    }
}

/// Released and snoozed attempts do not count.
#[tokio::test]
async fn a_job_given_back_is_as_if_never_claimed() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue_job(&NewJob::new("mail").max_attempts(1)).await;
    for _ in 0..3 {
        let lease = queue.claim().await;
        assert_eq!(queue.worker.release(vec![lease]).await.unwrap().ended, 1);
        assert_eq!(queue.state(job_id).await, "queued");
    }
    queue.claim().await.snooze(&queue.worker, LEASE, "not yet").await.unwrap();
    assert!(queue.claim_as("a", 1).await.unwrap().is_empty(), "snoozed");
    queue.db.advance(LEASE + SECOND).await;
    let lease = queue.claim().await;
    lease.start(&queue.worker).await.unwrap();
    let started = Lease::held_elsewhere(job_id, lease.owner().clone(), lease.attempt());
    assert_eq!(queue.worker.release(vec![started]).await.unwrap().lost, [job_id], "work has begun");
    lease.ack(&queue.worker).await.unwrap();
    assert_eq!(queue.state(job_id).await, "succeeded");
}

/// Q17: cancelling a running job takes its lease away.
#[tokio::test]
async fn the_worker_of_a_cancelled_job_is_told() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let lease = queue.claim().await;
    let cancel = format!("towpath.fn_job_cancel('{job_id}', 'me', 'not needed')");
    assert_eq!(queue.db.json(&cancel).await["state"], "cancelled");
    assert!(matches!(lease.ack(&queue.worker).await, Err(Error::LeaseLost(_))));
    assert_eq!(queue.state(job_id).await, "cancelled");
}
