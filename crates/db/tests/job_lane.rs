//! Lanes: `sql/functions/job_lane.sql` (Q23).

use fastrand::Rng;
use serde_json::Value;
use tokio_postgres::Client;
use towpath_testkit::queue::{EXECUTOR, Queue, SECOND};

use crate::seed::seed;

async fn tick(queue: &Queue) -> Value {
    let answer = queue.db.json("towpath.fn_job_lane_tick()").await;
    assert_eq!((&answer["ok"], &answer["busy"]), (&true.into(), &false.into()), "{answer}");
    answer
}

/// Ticks as often as a lane takes from unused to collected, and as there are thousands of them.
async fn collect(queue: &Queue) {
    for _ in 0..30 {
        tick(queue).await;
    }
}

async fn lanes(queue: &Queue) -> usize {
    queue.number("select count(*) from towpath.job_lane").await
}

/// What a claim that finds nothing touches, in pages.
async fn claim_buffers(queue: &Queue) -> u64 {
    queue.db.execute("vacuum analyze towpath.job_lane, towpath.job_floor, towpath.job_ready").await;
    let client = queue.db.client().await;
    let sql = format!(
        "explain (analyze, buffers, timing off, format json) select * from towpath.fn_job_claim_rows('{EXECUTOR}')"
    );
    // The first looks also read the catalogue and plan.
    for _ in 0..2 {
        client.query_one(&sql, &[]).await.unwrap();
    }
    let plan: Value = client.query_one(&sql, &[]).await.unwrap().get(0);
    let of = |key: &str| plan[0]["Plan"][key].as_u64().unwrap();
    of("Shared Hit Blocks") + of("Shared Read Blocks")
}

/// Q23: with 5,000 priorities behind it, a claim touches at most twice what it touches with one lane.
#[tokio::test]
async fn a_claim_does_not_feel_lanes_that_were_used_once() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    queue.db.json("towpath.fn_job_counter_fold()").await;
    queue.db.json("towpath.fn_job_floor_tick()").await;
    let one = claim_buffers(&queue).await;
    queue
        .db
        .execute(
            "insert into towpath.job_lane (job_kind, executor, priority)
             select 'mail', 'PG_worker', n from generate_series(1000, 5999) n",
        )
        .await;
    queue.db.json("towpath.fn_job_floor_tick()").await;
    let open = claim_buffers(&queue).await;
    assert!(open > one * 100, "the control: lanes that are open are looked at ({one} pages, then {open})");
    queue.db.advance(SECOND * 16).await;
    collect(&queue).await;
    assert!(lanes(&queue).await <= 1, "nobody uses them");
    assert_eq!(
        queue.db.text("select count(*) <= 1 from towpath.job_floor").await,
        "true",
        "nor their floors"
    );
    let after = claim_buffers(&queue).await;
    assert!(after <= one * 2, "{one} pages with one lane, {after} with 5,000 behind it");
}

/// Q23: few lanes stay for ten minutes; one that has a job, a lease, a blocked job or a count that is not folded stays.
#[tokio::test]
async fn a_lane_in_use_is_not_collected() {
    let queue = Queue::open().await;
    for kind in ["waits", "leased", "counted"] {
        queue.enqueue(kind).await;
    }
    for job in queue.claim_as("a", 3).await.unwrap() {
        match job.kind.as_str() {
            "waits" => drop(queue.worker.release(vec![job.lease]).await.unwrap()),
            "counted" => job.lease.ack(&queue.worker).await.unwrap(),
            _ => {}
        }
    }
    let graph = r#"{"name": "g", "nodes": [{"node": "a", "job_kind": "waits"}, {"node": "b", "job_kind": "blocked"}],
                    "edges": [{"from": "a", "to": "b"}]}"#;
    let emitted = queue.db.json(&format!("towpath.fn_mot_graph_emit('{graph}')")).await;
    assert_eq!(emitted["ok"], true, "{emitted}");
    assert_eq!(lanes(&queue).await, 4);
    queue.db.advance(SECOND * 590).await;
    collect(&queue).await;
    assert_eq!(lanes(&queue).await, 4, "not before their time");
    queue.db.advance(SECOND * 20).await;
    collect(&queue).await;
    assert_eq!(lanes(&queue).await, 4, "each is in use");
    queue.db.json("towpath.fn_job_counter_fold()").await;
    queue.db.advance(SECOND * 620).await;
    collect(&queue).await;
    assert_eq!(lanes(&queue).await, 3, "what was counted is folded");
    let counted = "select n from towpath.job_counter where job_kind = 'counted'";
    assert_eq!(queue.db.text(counted).await, "1");
}

/// Q23: a producer that found a lane open before it was closed, and commits later, loses no job: the lane stays until it has
/// ended, and opens again.
#[tokio::test]
async fn a_producer_that_commits_late_loses_nothing() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    queue.db.json("towpath.fn_job_counter_fold()").await;
    queue.db.advance(SECOND * 620).await;
    let producer = queue.db.client().await;
    producer.batch_execute("begin; select towpath.fn_job_enqueue('mail')").await.unwrap();
    assert_eq!(tick(&queue).await["closed"], 1, "its job is not to be seen");
    collect(&queue).await;
    assert_eq!(lanes(&queue).await, 1, "somebody may still use it");
    // Another producer finds it closed and opens it.
    assert_eq!(queue.claim_as("a", 5).await.unwrap().len(), 0);
    producer.batch_execute("commit").await.unwrap();
    assert_eq!(tick(&queue).await["opened"], 1);
    assert_eq!(queue.claim_as("a", 5).await.unwrap().len(), 1);
}

/// Q23: who enqueues into a closed lane opens it, before and after it is gone.
#[tokio::test]
async fn a_closed_lane_opens_for_its_next_job() {
    let queue = Queue::open().await;
    for ticks in [1, 30] {
        queue.enqueue("mail").await;
        queue.claim().await.ack(&queue.worker).await.unwrap();
        queue.db.json("towpath.fn_job_counter_fold()").await;
        queue.db.advance(SECOND * 620).await;
        for _ in 0..ticks {
            tick(&queue).await;
        }
        assert_eq!(lanes(&queue).await, usize::from(ticks == 1));
        queue.enqueue("mail").await;
        queue.claim().await.ack(&queue.worker).await.unwrap();
        queue.db.json("towpath.fn_job_counter_fold()").await;
    }
}

/// Q23: a transaction with one old snapshot cannot enqueue into a lane that is gone; it is told to try again.
#[tokio::test]
async fn an_old_snapshot_is_told_to_try_again() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    queue.db.json("towpath.fn_job_counter_fold()").await;
    let producer = queue.db.client().await;
    let look = "begin isolation level repeatable read; select count(*) from towpath.config";
    producer.batch_execute(look).await.unwrap();
    queue.db.advance(SECOND * 620).await;
    collect(&queue).await;
    assert_eq!(lanes(&queue).await, 0);
    let error = producer.batch_execute("select towpath.fn_job_enqueue('mail')").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "40001", "{error:?}");
    producer.batch_execute("rollback").await.unwrap();
    producer
        .batch_execute("begin isolation level repeatable read; select towpath.fn_job_enqueue('mail')")
        .await
        .unwrap();
    queue.db.advance(SECOND * 620).await;
    collect(&queue).await;
    producer.batch_execute("commit").await.unwrap();
    assert_eq!(queue.claim_as("a", 5).await.unwrap().len(), 1, "the lane it uses is held");
}

/// Q23: random histories of producers that commit late or not at all, workers, folds and the collector: no job is ever
/// in a lane that does not exist, and in the end every committed job was run.
#[tokio::test]
async fn no_history_loses_a_job_to_the_collector() {
    let mut rng = Rng::with_seed(seed());
    let queue = Queue::open().await;
    let producers = [queue.db.client().await, queue.db.client().await, queue.db.client().await];
    for producer in &producers {
        producer.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    }
    let mut open = [0_usize; 3];
    let (mut committed, mut run) = (0, 0);
    for _ in 0..400 {
        let who = rng.usize(..producers.len());
        match rng.u8(..12) {
            0..=3 => {
                let kept = enqueue(&producers[who], open[who] == 0, &mut rng).await;
                open[who] = if kept { open[who] + 1 } else { 0 };
            }
            4 | 5 if open[who] > 0 => {
                producers[who].batch_execute("commit").await.unwrap();
                committed += std::mem::take(&mut open[who]);
            }
            6 if open[who] > 0 => {
                producers[who].batch_execute("rollback").await.unwrap();
                open[who] = 0;
            }
            7 => run += work(&queue).await,
            8 => drop(queue.db.json("towpath.fn_job_counter_fold()").await),
            9 => queue.db.advance(SECOND * 301).await,
            _ => drop(tick(&queue).await),
        }
        let lost = "select count(*) from towpath._job_now v
                     where not exists (select 1 from towpath.job_lane l where l.lane = v.lane)";
        assert_eq!(queue.db.text(lost).await, "0");
    }
    for (producer, open) in producers.iter().zip(open) {
        if open > 0 {
            producer.batch_execute("commit").await.unwrap();
            committed += open;
        }
    }
    tick(&queue).await;
    run += work(&queue).await;
    assert_eq!(run, committed);
    let folded = "towpath.fn_job_counter_fold()";
    queue.db.json(folded).await;
    assert_eq!(queue.number("select coalesce(sum(n), 0) from towpath.job_counter").await, committed);
}

/// One job into one of five lanes, in the open transaction or a new one; false if that had to be given up.
async fn enqueue(producer: &Client, begin: bool, rng: &mut Rng) -> bool {
    if begin {
        let isolation = ["read committed", "repeatable read"][rng.usize(..2)];
        producer.batch_execute(&format!("begin isolation level {isolation}")).await.unwrap();
    }
    let sql = format!("select towpath.fn_job_enqueue('mail', p_priority => {})", rng.u8(..5));
    match producer.batch_execute(&sql).await {
        Ok(()) => true,
        Err(error) => {
            let code = error.code().unwrap().code();
            assert!(["40001", "55P03"].contains(&code), "{error:?}");
            producer.batch_execute("rollback").await.unwrap();
            false
        }
    }
}

/// Runs what may be claimed; answers how many jobs that were.
async fn work(queue: &Queue) -> usize {
    let leases: Vec<_> = queue.claim_as("a", 1_000).await.unwrap().into_iter().map(|job| job.lease).collect();
    let count = leases.len();
    assert!(queue.worker.ack_many(leases).await.unwrap().lost.is_empty());
    count
}
