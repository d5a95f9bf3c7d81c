//! Waking up: quickly when notified, and anyway when not (Q15).

use std::time::{Duration, Instant};

use towpath_db::job::NewJob;
use towpath_testkit::count::Count;
use towpath_testkit::queue::Queue;
use towpath_worker::Options;

use crate::worker::{builder, start};

/// Q15: an idle worker begins a job soon after the commit that enqueued it, notified or
/// polling only; and no job is ever stuck, though no other worker looks.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_begins_soon_and_never_misses_a_job() {
    for poll_only in [false, true] {
        let queue = Queue::open().await;
        let done = Count::new();
        let counts = done.clone();
        let mut builder =
            builder(&queue).handle_kind("x", Options::default(), move |_: serde_json::Value, _| {
                counts.add();
                async { Ok(()) }
            });
        if poll_only {
            builder = builder.poll_only();
        }
        let running = start(builder.build().unwrap());
        let mut waits = vec![];
        for round in 1..=40 {
            // Unequal pauses: some jobs meet the worker just as it arms.
            tokio::time::sleep(Duration::from_millis(round as u64 * 7 % 50)).await;
            queue.enqueue_job(&NewJob::new("x")).await;
            let committed = Instant::now();
            done.until(round).await;
            waits.push(committed.elapsed());
        }
        running.stop().await;
        waits.sort();
        let median = waits[waits.len() / 2];
        // A busy machine's worst; on a calm one it is 1 to 2 ms notified.
        let bound = if poll_only { Duration::from_millis(400) } else { Duration::from_millis(100) };
        assert!(median < bound, "poll_only {poll_only}: {median:?} of {waits:?}");
    }
}

/// Q15: with the gate of notifications closed the same worker polls.
#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_polling_finds_every_job() {
    let queue = Queue::open().await;
    queue.db.execute("update towpath.config set value = 'false' where key = 'queue.notify.enabled'").await;
    let done = Count::new();
    let counts = done.clone();
    let worker = builder(&queue).handle_kind("x", Options::default(), move |_: serde_json::Value, _| {
        counts.add();
        async { Ok(()) }
    });
    let running = start(worker.build().unwrap());
    for round in 1..=5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        queue.enqueue_job(&NewJob::new("x")).await;
        done.until(round).await;
    }
    running.stop().await;
}

/// Q15: jobs whose notification was lost, because the listener's connection was cut, run.
#[tokio::test(flavor = "multi_thread")]
async fn a_missed_notification_leaves_no_job_stuck() {
    let queue = Queue::open().await;
    let done = Count::new();
    let counts = done.clone();
    let worker = builder(&queue).handle_kind("x", Options::default(), move |_: serde_json::Value, _| {
        counts.add();
        async { Ok(()) }
    });
    let running = start(worker.build().unwrap());
    let listeners = "select count(*) from pg_stat_activity
                      where datname = current_database() and query = 'listen towpath_job'";
    for round in 1..=3 {
        queue.db.until(listeners, "1").await;
        queue
            .db
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity
                  where datname = current_database() and query = 'listen towpath_job'",
            )
            .await;
        queue.enqueue_job(&NewJob::new("x")).await;
        done.until(round).await;
    }
    running.stop().await;
}

/// A job that becomes due later is begun when it is, not at the next slow poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_later_begins_on_time() {
    let queue = Queue::open().await;
    let done = Count::new();
    let counts = done.clone();
    let worker = builder(&queue).handle_kind("x", Options::default(), move |_: serde_json::Value, _| {
        counts.add();
        async { Ok(()) }
    });
    let running = start(worker.build().unwrap());
    let due = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(700);
    queue.enqueue_job(&NewJob::new("x").scheduled_at(due)).await;
    done.until(1).await;
    assert!(jiff::Timestamp::now() >= due, "not before its time");
    running.stop().await;
}

/// A pool that was full is served as soon as it has room, though another one found nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_does_not_wait_for_the_poll_of_a_dry_one() {
    let queue = Queue::open().await;
    let done = Count::new();
    let counts = done.clone();
    let slow = move |_: serde_json::Value, _: towpath_worker::Context| {
        let counts = counts.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            counts.add();
            Ok(())
        }
    };
    let worker = builder(&queue)
        .handle_kind("one", Options::default().concurrency(1), slow.clone())
        .handle_kind("idle", Options::default(), slow)
        .build()
        .unwrap();
    queue.admin.enqueue_many(&vec![NewJob::new("one"); 8]).await.unwrap();
    let began = Instant::now();
    let running = start(worker);
    done.until(8).await;
    // Eight times 0.3 s one after the other; with a poll of up to 1 s in between it is 5 s or more.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    running.stop().await;
}
