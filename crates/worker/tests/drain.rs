//! Stopping: nothing is lost, nothing is done twice, and nothing waits forever.

use std::time::Duration;

use towpath_db::job::NewJob;
use towpath_testkit::count::Count;
use towpath_testkit::queue::Queue;
use towpath_worker::{Failure, Options};

use crate::worker::{builder, start};

/// A stop gives back what has not begun, and lets what runs finish.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_releases_what_waits_and_finishes_what_runs() {
    let queue = Queue::open().await;
    let (begun, go) = (Count::new(), Count::new());
    let (begins, waits) = (begun.clone(), go.clone());
    let worker = builder(&queue)
        .handle_kind("fast", Options::default().concurrency(1), move |_: serde_json::Value, _| {
            let (begins, waits) = (begins.clone(), waits.clone());
            async move {
                // The first hundred are quick, so that more are claimed ahead.
                if begins.add() > 100 {
                    waits.until(1).await;
                }
                Ok(())
            }
        })
        .build()
        .unwrap();
    queue.admin.enqueue_many(&vec![NewJob::new("fast"); 1_000]).await.unwrap();
    let running = start(worker);
    begun.until(101).await;
    running.begin_stop();
    queue.until_states("leased 1, queued 899, succeeded 100").await;
    go.add();
    running.stop().await;
    assert_eq!(queue.states().await, "queued 899, succeeded 101");
    let again = "select count(*) from towpath._job_now where attempts - refunded <> 0";
    assert_eq!(queue.db.text(again).await, "0", "no attempt of theirs counts");
}

/// A handler that does not end in time is asked to; its failure then costs the job nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_too_long_is_asked_to_end() {
    let queue = Queue::open().await;
    let begun = Count::new();
    let begins = begun.clone();
    let worker = builder(&queue)
        .drain(Duration::from_millis(50))
        .handle_kind("long", Options::default(), move |_: serde_json::Value, context| {
            begins.add();
            async move {
                context.lost().cancelled().await;
                Err::<(), _>(Failure::retry("had to stop"))
            }
        })
        .build()
        .unwrap();
    let job_id = queue.enqueue_job(&NewJob::new("long").max_attempts(1)).await;
    let running = start(worker);
    begun.until(1).await;
    running.stop().await;
    assert_eq!(queue.state(job_id).await, "queued", "it was the only attempt, and it was given back");
}

/// A handler that does not listen either is dropped where it waits, and its job given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_handler_is_dropped() {
    let queue = Queue::open().await;
    let begun = Count::new();
    let begins = begun.clone();
    let worker = builder(&queue)
        .drain(Duration::from_millis(10))
        .handle_kind("deaf", Options::default(), move |_: serde_json::Value, _| {
            begins.add();
            std::future::pending::<towpath_worker::Result>()
        })
        .build()
        .unwrap();
    let job_id = queue.enqueue_job(&NewJob::new("deaf").max_attempts(1)).await;
    let running = start(worker);
    begun.until(1).await;
    running.stop().await;
    assert_eq!(queue.state(job_id).await, "queued");
}
