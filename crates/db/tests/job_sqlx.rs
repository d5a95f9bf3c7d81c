//! Enqueueing and emitting in a transaction of sqlx: the feature `sqlx`, for library users.

use serde_json::json;
use sqlx::Connection;
use towpath_db::Error;
use towpath_db::event::{self, NewEvent};
use towpath_db::job::NewJob;
use towpath_db::job::sqlx::{Failed, enqueue, enqueue_many};
use towpath_testkit::queue::Queue;

async fn connect(queue: &Queue) -> sqlx::PgConnection {
    // sqlx wants a host before it looks for the socket's directory behind the question mark.
    let url = queue.db.url().replacen("@/", "@localhost/", 1);
    sqlx::PgConnection::connect(&url).await.unwrap()
}

/// Q19, E01: in a transaction of sqlx, commit shows the jobs and the event, rollback leaves nothing.
#[tokio::test]
async fn a_transaction_of_sqlx_carries_jobs_and_events() {
    let queue = Queue::open().await;
    let mut connection = connect(&queue).await;
    let at: jiff::Timestamp = "2020-01-02T03:04:05.678901Z".parse().unwrap();
    let mail = NewJob::new("mail").payload(&json!({"n": 7})).unwrap().scheduled_at(at).priority(200);
    for commits in [false, true] {
        let mut transaction = connection.begin().await.unwrap();
        let first = enqueue(&mut *transaction, &mail).await.unwrap();
        let more = enqueue_many(&mut *transaction, &[NewJob::new("sms"), NewJob::new("sms")]).await.unwrap();
        event::sqlx::emit(&mut *transaction, &NewEvent::new("billing", "paid")).await.unwrap();
        assert!(queue.claim_as("a", 10).await.unwrap().is_empty(), "not before the commit");
        match commits {
            false => transaction.rollback().await.unwrap(),
            true => transaction.commit().await.unwrap(),
        }
        let jobs = queue.claim_as("a", 10).await.unwrap();
        let events = queue.db.text("select count(*) from towpath.event_outbox").await;
        if commits {
            let claimed: Vec<_> = jobs.iter().map(|job| job.lease.job_id()).collect();
            assert_eq!(claimed, [first.job_id, more[0], more[1]]);
            assert_eq!((jobs[0].scheduled_at, events.as_str()), (at, "1"));
        } else {
            assert!(jobs.is_empty() && events == "0", "rolled back");
        }
    }
}

/// Q02, R09: a refusal is told apart from a failed connection, and the transaction goes on.
#[tokio::test]
async fn a_refusal_leaves_the_transaction_usable() {
    let queue = Queue::open().await;
    let mut connection = connect(&queue).await;
    let mut transaction = connection.begin().await.unwrap();
    let refused = enqueue(&mut *transaction, &NewJob::new(" ")).await.unwrap_err();
    assert!(matches!(refused, Failed::Refused(Error::Invalid(_))), "{refused}");
    let bad = [NewJob::new("mail"), NewJob::new("mail").executor("MOT")];
    let refused = enqueue_many(&mut *transaction, &bad).await.unwrap_err();
    assert!(matches!(refused, Failed::Refused(Error::Invalid(_))), "{refused}");
    enqueue(&mut *transaction, &NewJob::new("sms")).await.unwrap();
    transaction.commit().await.unwrap();
}
