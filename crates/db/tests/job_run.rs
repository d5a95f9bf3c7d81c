//! Runs that many jobs share: `sql/functions/job_run.sql` (Q01, Q10, Q20).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use towpath_db::job::{Claim, ClaimedJob, Failure, Lease, LeaseOwner, NewJob};
use towpath_model::job::JobId;
use towpath_testkit::queue::{EXECUTOR, LEASE, Queue, SECOND};

use crate::seed::seed;

async fn claim(queue: &Queue, kind: &str, limit: i32) -> Vec<ClaimedJob> {
    let (owner, kinds) = (LeaseOwner::new("a"), [kind.to_owned()]);
    let claim =
        Claim { executor: EXECUTOR, kinds: Some(&kinds), limit, owner: &owner, lease: Some(LEASE * 20) };
    queue.worker.claim(&claim).await.unwrap()
}

async fn ack(queue: &Queue, jobs: Vec<ClaimedJob>) {
    let leases: Vec<Lease> = jobs.into_iter().map(|job| job.lease).collect();
    let count = leases.len();
    assert_eq!(queue.worker.ack_many(leases).await.unwrap().ended, count);
}

const ROWS: &str = "select count(*) from towpath.job_run";
/// Jobs for which looking one up finds other runs than reading all of them.
const MISREAD: &str = "select count(*) from towpath.job j
      left join (select job_id, count(*) as n from towpath._job_run_each group by job_id) e using (job_id)
     where (select count(*) from towpath._job_runs(j.job_id)) <> coalesce(e.n, 0)";
const RUNS: &str = "select count(distinct job_id) from towpath._job_run_each where attempt = 1";

/// Every job in `state` by pages of `limit`, newest first.
async fn listed(queue: &Queue, state: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (vec![], "null".to_owned());
    loop {
        let call = format!("towpath.fn_job_list('{}', {limit}, {cursor})", json!({ "state": state }));
        let page = queue.db.json(&call).await;
        ids.extend(
            page["jobs"].as_array().unwrap().iter().map(|job| job["job_id"].as_str().unwrap().to_owned()),
        );
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("'{next}'"),
            None => return ids,
        }
    }
}

/// Q01, Q10, Q20: jobs that were claimed and acked together share rows, and every one of them still has its own
/// state, its own history, and its place on the right page. Jobs whose ids lie between theirs have none of it.
#[tokio::test]
async fn jobs_that_share_a_run_are_distinguished() {
    let queue = Queue::open().await;
    // One batch, so that the ids of both kinds alternate.
    let batch: Vec<_> = (0..600).map(|n| NewJob::new(["mail", "report"][n % 2])).collect();
    let made: Vec<JobId> = queue
        .producer
        .enqueue_many(&batch)
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.unwrap().job_id)
        .collect();
    let mails = claim(&queue, "mail", 1_000).await;
    assert!(mails.len() == 300 && mails.iter().all(|job| job.kind == "mail"), "{} claimed", mails.len());
    ack(&queue, mails).await;
    assert_eq!(queue.number(ROWS).await, 2, "240 jobs to a row");
    assert_eq!(queue.number(RUNS).await, 300);
    let states = "select string_agg(left(state, 1), '' order by job_id) from towpath.job_queue";
    assert_eq!(queue.db.text(states).await, "sq".repeat(300));
    let one = made[200];
    let shown = queue.db.json(&format!("towpath.fn_job_show('{one}')")).await;
    assert_eq!(shown["runs"].as_array().unwrap().len(), 1);
    assert_eq!((&shown["runs"][0]["attempt"], &shown["runs"][0]["lease_owner"]), (&json!(1), &json!("a")));
    assert_eq!((&shown["job"]["attempts"], &shown["job"]["progress_percent"]), (&json!(1), &json!(100)));
    let told = queue.db.json(&format!("towpath.fn_job_history('{one}')")).await;
    let events: Vec<_> =
        told["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["enqueued", "claimed", "succeeded"]);
    // Pages end in the middle of a shared row.
    let mut expected: Vec<String> = made.iter().step_by(2).map(ToString::to_string).collect();
    expected.reverse();
    assert_eq!(listed(&queue, "succeeded", 7).await, expected);
    assert_eq!(queue.db.json("towpath.fn_queue_latency(250)").await["n"], 250);
    // The reports were not touched.
    assert_eq!(queue.number(MISREAD).await, 0);
    queue.db.json(&format!("towpath.fn_job_cancel('{}', 'op')", made[201])).await;
    assert_eq!(queue.state(made[201]).await, "cancelled");
    assert_eq!(claim(&queue, "report", 1_000).await.len(), 299);
}

/// Q10: a row is shared by sixteen or more whose ids were made within ten seconds, so that one is found by
/// looking ten seconds ahead.
#[tokio::test]
async fn few_jobs_and_jobs_far_apart_share_nothing() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 15).await;
    ack(&queue, claim(&queue, "mail", 100).await).await;
    assert_eq!(queue.number(ROWS).await, 15);
    for (apart, rows) in [(9, 1), (11, 40)] {
        let before = queue.number(ROWS).await;
        queue.enqueue_times("mail", 20).await;
        queue.db.advance(SECOND * apart).await;
        queue.enqueue_times("mail", 20).await;
        ack(&queue, claim(&queue, "mail", 100).await).await;
        assert_eq!(queue.number(ROWS).await - before, rows, "{apart} seconds apart");
    }
    assert_eq!(queue.number(RUNS).await, 95);
    assert_eq!(queue.number("select count(*) from towpath.job_queue where state = 'succeeded'").await, 95);
}

/// Q16: a row shared across midnight lies in the later day and goes with it; the earlier day's jobs are gone
/// before, the later day's stay as they were.
#[tokio::test]
async fn a_run_shared_across_midnight_lasts_as_long_as_its_jobs() {
    let queue = Queue::open().await;
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    queue.db.freeze(noon).await;
    queue.db.json("towpath.fn_job_partition_tick()").await;
    for at in ["2026-03-02T23:59:58Z", "2026-03-03T00:00:01Z"] {
        queue.db.freeze(at.parse().unwrap()).await;
        queue.enqueue_times("mail", 20).await;
    }
    ack(&queue, claim(&queue, "mail", 100).await).await;
    assert_eq!(queue.number(ROWS).await, 1);
    let states = "select coalesce(string_agg(x, ' ' order by x), '')
                    from (select left(created_at::text, 10) || state || count(*) as x
                            from towpath.job_queue group by left(created_at::text, 10), state) s";
    assert_eq!(queue.db.text(states).await, "2026-03-02succeeded20 2026-03-03succeeded20");
    let keep = "towpath.fn_config_set('queue.retention.clean_after_days', '30', 'op', 'to see what is left')";
    assert_eq!(queue.db.json(keep).await["ok"], true);
    queue.db.freeze(noon + SignedDuration::from_hours(24 * 16)).await;
    let tick = queue.db.json("towpath.fn_job_retention_tick()").await;
    assert_eq!(tick["dropped"], json!(["20260302"]));
    assert_eq!(queue.db.text(states).await, "2026-03-03succeeded20");
    queue.db.freeze(noon + SignedDuration::from_hours(24 * 17)).await;
    queue.db.json("towpath.fn_job_retention_tick()").await;
    assert_eq!((queue.number(ROWS).await, queue.db.text(states).await.as_str()), (0, ""));
}

/// Q01, Q08, Q10, Q20: in any history of claims, acks in any portions, failures, cancels and time going by, every
/// job's state, attempts and list say what happened to it, whether its run is shared or not.
#[tokio::test]
async fn any_history_reads_the_same_with_shared_runs() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let queue = Queue::open().await;
    // What each job is expected to be: its state and the attempts that counted.
    let mut expected: BTreeMap<JobId, (&str, i32)> = BTreeMap::new();
    let mut held: Vec<Lease> = vec![];
    for _ in 0..40 {
        match random.u32(0..10) {
            0..3 => {
                let batch: Vec<_> = (0..random.usize(1..200))
                    .map(|_| NewJob::new(*random.choice(["mail", "mail", "mail", "report"].iter()).unwrap()))
                    .collect();
                for job in queue.producer.enqueue_many(&batch).await.unwrap() {
                    expected.insert(job.unwrap().job_id, ("queued", 0));
                }
            }
            3..5 => {
                let kind = *random.choice(["mail", "report"].iter()).unwrap();
                for job in claim(&queue, kind, random.i32(1..400)).await {
                    expected.insert(job.lease.job_id(), ("leased", job.lease.attempt().number()));
                    held.push(job.lease);
                }
            }
            5..8 => {
                // Whole claims mostly; sometimes any portion of what is held.
                if random.bool() {
                    random.shuffle(&mut held);
                }
                let count = if random.u32(0..4) > 0 { held.len() } else { random.usize(0..=held.len()) };
                let acked: Vec<Lease> = held.drain(..count).collect();
                for lease in &acked {
                    expected.get_mut(&lease.job_id()).unwrap().0 = "succeeded";
                }
                assert!(queue.worker.ack_many(acked).await.unwrap().lost.is_empty(), "seed {seed}");
            }
            8 => {
                for _ in 0..held.len().min(2) {
                    let lease = held.swap_remove(random.usize(0..held.len()));
                    expected.get_mut(&lease.job_id()).unwrap().0 = "retry_waiting";
                    let soon = Failure { retry_after: Some(SECOND / 1_000), ..Failure::retry("no") };
                    lease.fail(&queue.worker, soon).await.unwrap();
                }
                if let Some((id, now)) = expected.iter_mut().find(|(_, now)| now.0 == "queued") {
                    now.0 = "cancelled";
                    queue.db.json(&format!("towpath.fn_job_cancel('{id}', 'op')")).await;
                }
            }
            _ => queue.db.advance(SECOND * random.u32(0..8)).await,
        }
    }
    let client = queue.db.client().await;
    let sql = "select job_id, state, attempts from towpath.job_queue order by job_id";
    let found: Vec<_> = client.query(sql, &[]).await.unwrap();
    assert_eq!(found.len(), expected.len(), "seed {seed}");
    for (row, (id, (state, attempts))) in found.iter().zip(&expected) {
        let (found, tried): (&str, i32) = (row.get(1), row.get(2));
        assert_eq!(JobId::from(row.get::<_, uuid::Uuid>(0)), *id);
        assert_eq!((found, tried), (*state, *attempts), "job {id}, seed {seed}");
    }
    for state in ["succeeded", "cancelled", "leased"] {
        let mut ids: Vec<String> =
            expected.iter().filter(|(_, now)| now.0 == state).map(|(id, _)| id.to_string()).collect();
        ids.reverse();
        assert_eq!(listed(&queue, state, 13).await, ids, "{state}, seed {seed}");
    }
    assert_eq!(queue.number(MISREAD).await, 0, "seed {seed}");
    let twice = "select count(*) from (select from towpath._job_run_each group by job_id, attempt having count(*) > 1) x";
    assert_eq!(queue.number(twice).await, 0, "seed {seed}");
}

/// Q01: a login that may read `job_queue` may, though not the tables and private functions behind it.
#[tokio::test]
async fn an_observer_reads_the_states_of_jobs_that_share_a_run() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 20).await;
    ack(&queue, claim(&queue, "mail", 100).await).await;
    for role in ["towpath_observer", "workflow_admin"] {
        let client = queue.db.client().await;
        client.batch_execute(&format!("set role {role}")).await.unwrap();
        let row =
            client.query_one("select count(*) from towpath.job_queue where state = 'succeeded'", &[]).await;
        assert_eq!(row.unwrap().get::<_, i64>(0), 20, "{role}");
    }
}
