//! Retention: `sql/functions/job_retention.sql` (Q16).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use towpath_db::job::{Failure, NewJob};
use towpath_testkit::queue::Queue;

const START: &str = "2026-03-01T12:00:00Z";

/// A queue on a stopped clock, with the partitions of the days ahead.
async fn at_start() -> (Queue, Timestamp) {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(start).await;
    tick(&queue, "fn_job_partition_tick").await;
    // Today's is never made; from tomorrow on every day has one.
    queue.db.freeze(day(start, 1)).await;
    (queue, start)
}

fn day(start: Timestamp, days: i64) -> Timestamp {
    start + SignedDuration::from_hours(24 * days)
}

async fn tick(queue: &Queue, function: &str) -> Value {
    let answer = queue.db.json(&format!("towpath.{function}()")).await;
    assert_eq!((&answer["ok"], &answer["busy"]), (&true.into(), &false.into()), "{answer}");
    answer
}

/// Runs the tick until it has nothing more to do; answers the days it dropped, and how many rows it
/// deleted one by one.
async fn retain(queue: &Queue) -> (Vec<String>, u64) {
    let (mut dropped, mut deleted) = (vec![], 0);
    loop {
        let answer = tick(queue, "fn_job_retention_tick").await;
        dropped.extend(answer["dropped"].as_array().unwrap().iter().map(|d| d.as_str().unwrap().to_owned()));
        deleted += answer["deleted"].as_u64().unwrap();
        if answer["more"] == false {
            return (dropped, deleted);
        }
    }
}

/// One day, and no row by itself.
fn only(day: &str) -> (Vec<String>, u64) {
    (vec![day.to_owned()], 0)
}

async fn count(queue: &Queue, from: &str) -> String {
    queue.db.text(&format!("select count(*) from towpath.{from}")).await
}

/// Q16: finished jobs become `cleaned` by moving one mark, and go with their day's partition; no row of
/// theirs is deleted by itself. Dead letters stay.
#[tokio::test]
async fn finished_jobs_are_cleaned_then_dropped_by_the_day() {
    let (queue, start) = at_start().await;
    queue.enqueue_times("mail", 300).await;
    let jobs = queue.claim_as("a", 300).await.unwrap();
    queue.worker.ack_many(jobs.into_iter().map(|job| job.lease).collect()).await.unwrap();
    let dead = queue.enqueue("broken").await;
    queue.claim().await.fail(&queue.worker, Failure::permanent("no")).await.unwrap();
    let partition = "job_p20260302";
    assert_eq!(count(&queue, partition).await, "301", "the jobs of the day are in its partition");

    queue.db.freeze(day(start, 7)).await;
    assert_eq!(retain(&queue).await, (vec![], 0));
    assert_eq!(count(&queue, "job_queue where state = 'cleaned'").await, "0", "not before its time");
    queue.db.freeze(day(start, 9)).await;
    assert_eq!(retain(&queue).await, (vec![], 0));
    assert_eq!(count(&queue, "job_queue where state = 'cleaned'").await, "301");
    assert_eq!(count(&queue, partition).await, "301", "by a mark, not by rewriting them");

    queue.db.freeze(day(start, 16)).await;
    assert_eq!(retain(&queue).await, only("20260302"));
    assert_eq!(count(&queue, "job_queue").await, "0");
    assert_eq!(count(&queue, "job_run").await, "0");
    let gone = format!("to_regclass('towpath.{partition}')");
    assert_eq!(queue.db.text(&gone).await, "null");
    let letter = format!("job_dead_letter where job_id = '{dead}' and final_error = 'no'");
    assert_eq!(count(&queue, &letter).await, "1", "a dead letter outlives its job");
}

/// Q16: a job that has not finished when its day goes is kept, with its history, and can still be run.
#[tokio::test]
async fn an_unfinished_job_outlives_its_day() {
    let (queue, start) = at_start().await;
    let waits = queue.enqueue_job(&NewJob::new("slow").scheduled_at(day(start, 30))).await;
    let tried = queue.enqueue("mail").await;
    let later = Failure { retry_after: Some(std::time::Duration::ZERO), ..Failure::retry("again") };
    queue.claim().await.fail(&queue.worker, later).await.unwrap();
    queue.db.freeze(day(start, 16)).await;
    assert_eq!(retain(&queue).await, only("20260302"));
    assert_eq!(queue.state(waits).await, "queued");
    assert_eq!(queue.state(tried).await, "retry_waiting");
    assert_eq!(count(&queue, &format!("job_run where job_id = '{tried}'")).await, "1", "its history is kept");
    let lease = queue.claim().await;
    assert_eq!((lease.job_id(), lease.attempt().number()), (tried, 2));
    lease.ack(&queue.worker).await.unwrap();
    queue.db.freeze(day(start, 30)).await;
    assert_eq!(queue.claim().await.job_id(), waits);
}

/// Q16: jobs of a day without a partition, because nobody maintained, are deleted in bounded steps.
#[tokio::test]
async fn strays_are_deleted_in_steps() {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(start).await;
    queue.enqueue_times("mail", 25).await;
    // So few at once that each has a run row of its own.
    for _ in 0..2 {
        let jobs = queue.claim_as("a", 13).await.unwrap();
        queue.worker.ack_many(jobs.into_iter().map(|job| job.lease).collect()).await.unwrap();
    }
    assert_eq!(count(&queue, "job_default").await, "25");
    queue.db.freeze(day(start, 16)).await;
    let first = queue.db.json("towpath.fn_job_retention_tick(10)").await;
    assert_eq!((&first["deleted"], &first["more"]), (&20.into(), &true.into()), "ten of each table");
    assert_eq!(count(&queue, "job_default").await, "15");
    assert_eq!(retain(&queue).await, (vec![], 30));
    assert_eq!(count(&queue, "job_queue").await, "0");
}

/// Q16: somebody who reads for long (pg_dump) makes retention wait for its next tick, and nobody else.
#[tokio::test]
async fn a_long_reader_defers_retention() {
    let (queue, start) = at_start().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    queue.db.freeze(day(start, 16)).await;
    let mut reader = queue.db.client().await;
    let reading = reader.transaction().await.unwrap();
    reading.query("select count(*) from towpath.job", &[]).await.unwrap();
    let deferred = tick(&queue, "fn_job_retention_tick").await;
    assert_eq!((&deferred["deferred"], &deferred["dropped"]), (&true.into(), &serde_json::json!([])));
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    reading.commit().await.unwrap();
    assert_eq!(retain(&queue).await, only("20260302"));
}

/// Q16: partitions made later are kept like the first ones: as few statistics, and room for shared runs in a page.
#[tokio::test]
async fn new_partitions_are_set_up_like_the_old_ones() {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(day(start, 365)).await;
    tick(&queue, "fn_job_partition_tick").await;
    let unlike = "select count(*) from pg_inherits i
                    join pg_attribute p on p.attrelid = i.inhparent and p.attnum > 0 and not p.attisdropped
                    join pg_attribute c on c.attrelid = i.inhrelid and c.attname = p.attname
                   where i.inhparent in ('towpath.job'::regclass, 'towpath.job_run'::regclass)
                     and (c.attstattarget is distinct from p.attstattarget or p.attstattarget not in (0, 10))";
    assert_eq!(queue.db.text(unlike).await, "0");
    let narrow = "select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
                   where i.inhparent = 'towpath.job_run'::regclass
                     and not coalesce(c.reloptions @> array['toast_tuple_target=8160'], false)";
    assert_eq!(queue.db.text(narrow).await, "0");
}
