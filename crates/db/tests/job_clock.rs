//! A clock that goes back: floors, due times and leases follow it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use towpath_db::job::{Failure, NewJob};
use towpath_testkit::queue::{LEASE, Queue, SECOND};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

async fn tick(queue: &Queue) {
    let answer = queue.db.json("towpath.fn_job_floor_tick()").await;
    assert_eq!(answer["ok"], true, "{answer}");
}

/// Q07: after the clock went back an hour, jobs that waited are claimed at once, as are new ones; what was scheduled for
/// later waits for its time, and a lost lease comes back when it would have.
#[tokio::test]
async fn a_clock_that_goes_back_delays_no_waiting_job() {
    let queue = Queue::open().await;
    let start: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    queue.db.freeze(start).await;
    let leased = queue.enqueue("mail").await;
    assert_eq!(queue.claim_as("lost", 1).await.unwrap().len(), 1);
    let retried = queue.enqueue("mail").await;
    let soon = Failure { retry_after: Some(Duration::ZERO), ..Failure::retry("again") };
    queue.claim().await.fail(&queue.worker, soon).await.unwrap();
    queue.producer.enqueue_many(&vec![NewJob::new("mail"); 3]).await.unwrap();
    let later = queue.enqueue_job(&NewJob::new("mail").scheduled_at(start + HOUR)).await;
    tick(&queue).await;

    let back = start - HOUR;
    queue.db.freeze(back).await;
    // Its producer still sees the floor of before.
    let raised = queue.enqueue("mail").await;
    tick(&queue).await;
    let new = queue.enqueue("mail").await;
    let claimed = queue.claim_as("a", 10).await.unwrap();
    let ids: Vec<_> = claimed.iter().map(|job| job.lease.job_id()).collect();
    assert_eq!(ids.len(), 6, "{ids:?}");
    assert!([retried, raised, new].iter().all(|id| ids.contains(id)) && !ids.contains(&later));

    assert_eq!(queue.reap().await, 0);
    queue.db.freeze(back + SignedDuration::try_from(LEASE + SECOND).unwrap()).await;
    assert_eq!(queue.reap().await, 7, "{leased} and what was claimed since");
    queue.db.freeze(start + HOUR + SignedDuration::from_secs(1)).await;
    assert!(queue.claim_as("a", 10).await.unwrap().iter().any(|job| job.lease.job_id() == later));
}

/// Q07: a producer that had read the floor of before, and commits after the tick saw the clock go back, is not late either.
#[tokio::test]
async fn a_job_raised_to_an_old_floor_is_found() {
    let queue = Queue::open().await;
    let start: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    queue.db.freeze(start).await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    tick(&queue).await;
    queue.db.freeze(start - HOUR).await;
    let producer = queue.db.client().await;
    producer.batch_execute("begin; select towpath.fn_job_enqueue('mail')").await.unwrap();
    tick(&queue).await;
    producer.batch_execute("commit").await.unwrap();
    assert!(queue.claim_as("a", 1).await.unwrap().is_empty(), "the control: it was raised to the old floor");
    queue.db.freeze(start - HOUR + SignedDuration::from_secs(1)).await;
    tick(&queue).await;
    assert_eq!(queue.claim_as("a", 1).await.unwrap().len(), 1);
}
