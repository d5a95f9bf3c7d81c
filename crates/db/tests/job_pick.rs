//! What a claim takes, compared with the plain query that stands beside it in `sql/functions/job_claim.sql`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use towpath_db::job::{Claim, Failure, Lease, LeaseOwner, NewJob};
use towpath_model::job::JobId;
use towpath_testkit::queue::{EXECUTOR, LEASE, Queue};
use uuid::Uuid;

use crate::seed::seed;

/// The query of the comment, with the parameters of a claim.
fn plain_claim() -> String {
    let source = include_str!("../../../sql/functions/job_claim.sql");
    let query = source.lines().skip_while(|line| *line != "--   select v.job_id");
    let query: Vec<_> = query.map_while(|line| line.strip_prefix("--   ")).collect();
    query
        .join("\n")
        .replace("p_executor", "$1::text")
        .replace("p_kinds", "$2::text[]")
        .replace("p_limit", "$3::integer")
}

/// Q07, R06: whatever waits in whatever lanes, under whatever subscriptions, pauses and limits, a claim takes the jobs
/// that the plain query names, in its order.
#[tokio::test]
async fn any_claim_takes_what_the_plain_query_names() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let queue = Queue::open().await;
    let client = queue.db.client().await;
    let plain = client.prepare(&plain_claim()).await.unwrap();
    let kinds = ["mail", "sms", "report"];
    let mut now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    let mut held: Vec<Lease> = vec![];
    let mut claimed = 0;
    for step in 0..80 {
        // Two calls never share a microsecond: then jobs are due one after the other.
        now += SignedDuration::from_micros(random.i64(30_000..900_000));
        queue.db.freeze(now).await;
        let kind = *random.choice(kinds.iter()).unwrap();
        match random.u32(0..16) {
            0..5 => {
                let due =
                    now + SignedDuration::from_micros(*random.choice([0, 0, 0, 1_234_567].iter()).unwrap());
                let mut job = NewJob::new(kind).priority(*random.choice([50, 100, 100, 200].iter()).unwrap());
                if random.bool() {
                    job = job.event_domain("shop");
                }
                let count = *random.choice([1, 1, 5, 40, 90].iter()).unwrap();
                queue.producer.enqueue_many(&vec![job.scheduled_at(due); count]).await.unwrap();
            }
            5 => {
                // The whole executor, a kind of it, or a kind and a domain; counted or not.
                let what = *random
                    .choice(
                        ["p_notes => null", "p_job_kind => 'mail'", "'mail', 'shop'", "p_job_kind => 'sms'"]
                            .iter(),
                    )
                    .unwrap();
                let (floor, enabled) = (*random.choice([0, 0, 100].iter()).unwrap(), random.u32(0..5) > 0);
                let cap = *random.choice(["null", "null", "3", "20", "70"].iter()).unwrap();
                let more = format!(
                    "{what}, p_priority_floor => {floor}, p_max_parallel => {cap}, p_enabled => {enabled}"
                );
                assert_eq!(queue.subscribe(EXECUTOR, &more).await["ok"], true);
            }
            6 => {
                let call = match random.bool() {
                    true => format!("towpath.fn_queue_pause('{kind}', 'op', 'to test')"),
                    false => format!("towpath.fn_queue_resume('{kind}', 'op')"),
                };
                queue.db.json(&call).await;
            }
            7 => {
                queue.maintainer.job_floor_tick().await.unwrap();
            }
            8 | 9 => {
                random.shuffle(&mut held);
                let some = held.drain(..random.usize(0..=held.len())).collect();
                queue.worker.ack_many(some).await.unwrap();
            }
            10 => {
                for lease in held.drain(..held.len().min(4)) {
                    let after = Duration::from_micros(random.u64(1..2_000_000));
                    let soon = Failure { retry_after: Some(after), ..Failure::retry("no") };
                    lease.fail(&queue.worker, soon).await.unwrap();
                }
            }
            _ => {
                let some = [kind.to_owned()];
                let kinds = random.bool().then_some(&some[..]);
                let (owner, limit) = (LeaseOwner::new("a"), random.i32(1..100));
                let rows = client.query(&plain, &[&EXECUTOR, &kinds, &limit]).await.unwrap();
                let expected: Vec<JobId> =
                    rows.iter().map(|row| JobId::from(row.get::<_, Uuid>(0))).collect();
                let lease = Some(LEASE * 100);
                let claim = Claim { executor: EXECUTOR, kinds, limit, owner: &owner, lease };
                let Ok(jobs) = queue.worker.claim(&claim).await else {
                    assert!(expected.is_empty(), "no subscription is enabled: step {step}, seed {seed}");
                    continue;
                };
                let taken: Vec<JobId> = jobs.iter().map(|job| job.lease.job_id()).collect();
                assert_eq!(taken, expected, "step {step}, seed {seed}");
                claimed += taken.len();
                held.extend(jobs.into_iter().map(|job| job.lease));
            }
        }
    }
    // The plain query sees a job that is missing: the test compares something.
    queue.db.execute("delete from towpath.job_subscription").await;
    queue.db.execute("delete from towpath.job_pause").await;
    queue.subscribe(EXECUTOR, "p_max_parallel => null, p_enabled => true").await;
    let fresh = queue.enqueue("mail").await;
    let rows = client.query(&plain, &[&EXECUTOR, &None::<Vec<String>>, &1_000_000]).await.unwrap();
    assert!(rows.iter().any(|row| JobId::from(row.get::<_, Uuid>(0)) == fresh), "seed {seed}");
    assert!(claimed > 0 || rows.len() == 1, "seed {seed}");
}
