//! Finish: `sql/functions/job_finish.sql`, the reaper, and what is left to read.

use std::time::Duration;

use jiff::Timestamp;
use towpath_db::job::{AfterFailure, FailedAttempt, Failure, NewJob};
use towpath_testkit::queue::{LEASE, Queue, SECOND};

/// Q10: the delays are those of the contract to the second: base * 2^min(attempts - 1, 10).
#[tokio::test]
async fn the_backoff_table_holds_to_the_second() {
    let queue = Queue::open().await;
    let start: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    queue.db.freeze(start).await;
    queue.enqueue_job(&NewJob::new("mail").max_attempts(13)).await;
    let mut now = start;
    for (attempt, seconds) in
        [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_240, 10_240].into_iter().enumerate()
    {
        let lease = queue.claim().await;
        assert_eq!(lease.attempt().number(), attempt as i32 + 1);
        let after = lease.fail(&queue.worker, Failure::retry("again")).await.unwrap();
        now += jiff::SignedDuration::from_secs(seconds);
        assert_eq!(after, AfterFailure::RetryWaiting { scheduled_at: now }, "attempt {}", attempt + 1);
        queue.db.freeze(now - jiff::SignedDuration::from_millis(1)).await;
        assert!(queue.claim_as("a", 1).await.unwrap().is_empty(), "not a moment earlier");
        queue.db.freeze(now).await;
    }
    let last = queue.claim().await.fail(&queue.worker, Failure::retry("the end")).await.unwrap();
    assert_eq!(last, AfterFailure::DeadLetter);
}

/// Q10: a permanent error ends the job at once; a named delay replaces the backoff.
#[tokio::test]
async fn the_holder_may_know_better_than_the_backoff() {
    let queue = Queue::open().await;
    let start: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    queue.db.freeze(start).await;
    let job_id = queue.enqueue("mail").await;
    let soon = Failure { retry_after: Some(Duration::from_secs(3)), ..Failure::retry("busy") };
    let after = queue.claim().await.fail(&queue.worker, soon).await.unwrap();
    let scheduled_at = start + jiff::SignedDuration::from_secs(3);
    assert_eq!(after, AfterFailure::RetryWaiting { scheduled_at });
    assert_eq!(queue.state(job_id).await, "retry_waiting");
    queue.db.freeze(scheduled_at).await;
    let after = queue.claim().await.fail(&queue.worker, Failure::permanent("no such user")).await.unwrap();
    assert_eq!(after, AfterFailure::DeadLetter);
    assert_eq!(queue.state(job_id).await, "dead_letter");
    let letter = queue.db.json("select to_jsonb(d) from towpath.job_dead_letter d").await;
    assert_eq!(
        (letter["final_error"].as_str(), letter["attempts"].as_i64()),
        (Some("no such user"), Some(2))
    );
}

/// Q10: jitter adds a random share to every delay, at most the ratio that was asked for, by call or by config.
#[tokio::test]
async fn jitter_spreads_the_retries_within_its_ratio() {
    let queue = Queue::open().await;
    let start: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    queue.db.freeze(start).await;
    let config = "update towpath.config set value = '0.2' where key = 'queue.retry.jitter_ratio'";
    for (ratio, jitter, setup) in [(0.5, "0.5", ""), (0.2, "null", config), (0.0, "0", config)] {
        queue.db.execute(setup).await;
        queue.enqueue_times("mail", 40).await;
        let ids: Vec<_> =
            queue.claim_as("a", 40).await.unwrap().iter().map(|job| job.lease.job_id()).collect();
        let failures: Vec<_> =
            ids.iter().map(|id| serde_json::json!({ "job_id": id, "attempt": 1, "error": "no" })).collect();
        let failures = serde_json::to_string(&failures).unwrap();
        let ended =
            queue.db.json(&format!("towpath.fn_job_fail_or_retry_many('a', '{failures}', {jitter})")).await;
        assert_eq!(ended["retried"].as_array().unwrap().len(), 40, "{ended}");
        let delays = "select jsonb_agg(extract(epoch from due_at - towpath.fn_now())) from towpath.job_live";
        let delays: Vec<f64> = serde_json::from_value(queue.db.json(delays).await).unwrap();
        let (least, most) = delays.iter().fold((f64::MAX, f64::MIN), |(a, b), d| (a.min(*d), b.max(*d)));
        assert!(least >= 10.0 && most <= 10.0 * (1.0 + ratio), "{least} to {most} for {ratio}");
        // Forty draws that all fall within a tenth of the range: once in 10^38 runs.
        assert!(most - least >= ratio, "{least} to {most} for {ratio}");
        queue.db.execute("delete from towpath.job_live; delete from towpath.job_ready").await;
    }
}

/// Q10: many at once, with mixed attempt numbers and mixed ends.
#[tokio::test]
async fn many_attempts_end_in_one_call() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 10).await;
    let mut jobs = queue.claim_as("a", 10).await.unwrap();
    let failed: Vec<_> = jobs
        .drain(..4)
        .enumerate()
        .map(|(n, job)| FailedAttempt {
            lease: job.lease,
            failure: Failure { retry_after: Some(Duration::ZERO), permanent: n < 2, error: "x".into() },
        })
        .collect();
    let ended = queue.worker.fail_many(failed).await.unwrap();
    assert_eq!((ended.ended, ended.lost.len()), (4, 0));
    jobs.extend(queue.claim_as("a", 10).await.unwrap());
    assert_eq!(jobs.len(), 8, "two came back with a second attempt");
    let ended = queue.worker.ack_many(jobs.into_iter().map(|job| job.lease).collect()).await.unwrap();
    assert_eq!((ended.ended, ended.lost.len()), (8, 0));
    let states = "select string_agg(state || ' ' || n, ', ' order by state)
                    from (select state, count(*) n from towpath.job_queue group by state) s";
    assert_eq!(queue.db.text(states).await, "dead_letter 2, succeeded 8");
}

/// Q11: the reaper requeues what was lost, counts the attempt, and makes a dead letter after the last.
#[tokio::test]
async fn the_reaper_takes_lost_jobs_back_and_buries_the_hopeless() {
    let queue = Queue::open().await;
    let hopeful = queue.enqueue_job(&NewJob::new("mail").max_attempts(2)).await;
    let hopeless = queue.enqueue_job(&NewJob::new("mail").max_attempts(1)).await;
    let leases = queue.claim_as("a", 2).await.unwrap();
    leases[1].lease.start(&queue.worker).await.unwrap();
    assert_eq!(queue.reap().await, 0, "not before the lease has run out");
    queue.db.advance(LEASE + SECOND).await;
    let reaped = queue.maintainer.job_reap(10).await.unwrap();
    assert_eq!((reaped.retried, reaped.dead_letter), (1, 1), "leased and in_progress alike");
    assert_eq!(queue.state(hopeful).await, "retry_waiting");
    assert_eq!(queue.state(hopeless).await, "dead_letter");
    assert_eq!(queue.reap().await, 0);
    queue.db.advance(Duration::from_secs(11)).await;
    queue.claim().await;
    queue.db.advance(LEASE + SECOND).await;
    assert_eq!(queue.maintainer.job_reap(10).await.unwrap().dead_letter, 1, "the lost attempts counted");
}

/// Q20: each claim, retry, error, reap and replay can be read afterwards, with who and when.
#[tokio::test]
async fn a_jobs_history_can_be_read_afterwards() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue_job(&NewJob::new("mail").max_attempts(3).actor("shop")).await;
    queue.claim().await.fail(&queue.worker, Failure::retry("first error")).await.unwrap();
    queue.db.advance(Duration::from_secs(11)).await;
    queue.claim_as("b", 1).await.unwrap();
    queue.db.advance(LEASE + SECOND).await;
    queue.reap().await;
    queue.db.advance(Duration::from_secs(21)).await;
    let lease = queue.claim_as("c", 1).await.unwrap().pop().unwrap().lease;
    lease.fail(&queue.worker, Failure::retry("last error")).await.unwrap();
    let replay =
        "towpath.fn_job_dead_letter_replay((select dead_letter_id from towpath.job_dead_letter), 'boss')";
    assert_eq!(queue.db.json(replay).await["ok"], true);

    let history = queue.db.json(&format!("towpath.fn_job_history('{job_id}')")).await;
    let events = history["events"].as_array().unwrap();
    let told = serde_json::to_string(events).unwrap();
    for word in [
        "shop",
        "first error",
        "the lease expired",
        "reaper",
        "last error",
        "boss",
        "\"a\"",
        "\"b\"",
        "\"c\"",
    ] {
        assert!(told.contains(word), "{word} is missing in {told}");
    }
    let times: Vec<Timestamp> = events.iter().map(|e| e["at"].as_str().unwrap().parse().unwrap()).collect();
    assert!(times.is_sorted(), "oldest first: {told}");
}
