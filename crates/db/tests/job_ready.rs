//! Ready rows that jobs of one call share: `sql/functions/job_ready.sql` (Q05, Q07, Q17).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use towpath_db::job::{Failure, Lease, Listener, NewJob};
use towpath_model::job::JobId;
use towpath_testkit::queue::{EXECUTOR, Queue, SECOND};
use towpath_testkit::race::all_at_once;

use crate::seed::seed;

const ROWS: &str = "select count(*) from towpath.job_ready";
const READY: &str = "select coalesce(sum(coalesce(cardinality(job_ids), 1)), 0) from towpath.job_ready";
/// Every unfinished job stands in exactly one place: in a bundle that waits, in a bundle that is leased, or in `job_live`.
/// There a job that may be claimed stands in exactly one ready row too, in its lane, at its time and under its attempt.
/// No other job stands in one; a bundle begins with the job it is named after and is in order.
const MISPLACED: &str = "
    with place as (
        select r.lane, r.due_at, r.attempts, r.refunded, r.bundle, unnest(coalesce(r.job_ids, array[r.job_id])) as job_id
          from towpath.job_ready r),
    leased as (
        select e.bundle, unnest(e.job_ids) as job_id from towpath.lease_entry e where e.attempt is not null),
    apart as (
        select v.job_id, v.lane, v.due_at, v.attempts::integer, v.refunded::integer
          from towpath.job_live v
         where v.state in (0, 3) and v.blocked = 0
           and not exists (select 1 from leased l where l.job_id = v.job_id)),
    unfinished as (
        select j.job_id from towpath.job j
         where exists (select 1 from towpath.job_live v where v.job_id = j.job_id)
            or not exists (select 1 from towpath._job_runs(j.job_id))),
    found as (
        select p.job_id from place p where p.bundle
        union all select l.job_id from leased l where l.bundle
        union all select v.job_id from towpath.job_live v)
    select (select count(*) from (select * from apart
                                  except all select job_id, lane, due_at, attempts, refunded from place where not bundle) x)
         + (select count(*) from (select job_id, lane, due_at, attempts, refunded from place where not bundle
                                  except all select * from apart) x)
         + (select count(*) from (select * from unfinished except all select * from found) x)
         + (select count(*) from (select * from found except all select * from unfinished) x)
         + (select count(*) from towpath.job_ready r
             where r.job_ids is not null
               and (r.job_id <> r.job_ids[1] or r.job_ids <> array(select x from unnest(r.job_ids) x order by x)
                    or cardinality(r.job_ids) not between 2 and 16))";

async fn enqueue_many(queue: &Queue, jobs: &[NewJob]) -> Vec<JobId> {
    let made = queue.producer.enqueue_many(jobs).await.unwrap();
    made.into_iter().map(|job| job.unwrap().job_id).collect()
}

async fn claim(queue: &Queue, limit: i32) -> Vec<Lease> {
    queue.claim_as("a", limit).await.unwrap().into_iter().map(|job| job.lease).collect()
}

fn ids(leases: &[Lease]) -> Vec<JobId> {
    leases.iter().map(Lease::job_id).collect()
}

/// Q05, Q07: jobs of one call share ready rows by sixteen, and claims of any size take them in their order.
#[tokio::test]
async fn jobs_of_one_call_share_rows_and_are_claimed_in_order() {
    let queue = Queue::open().await;
    let made = enqueue_many(&queue, &vec![NewJob::new("mail"); 100]).await;
    assert_eq!(queue.number(ROWS).await, 7, "six rows of sixteen and one of four");
    let mut claimed = vec![];
    for limit in [1, 3, 12, 20, 1, 40] {
        let taken = claim(&queue, limit).await;
        assert_eq!(taken.len(), limit as usize);
        claimed.extend(ids(&taken));
        assert_eq!(queue.number(READY).await, 100 - claimed.len());
        assert_eq!(queue.number(MISPLACED).await, 0);
    }
    claimed.extend(ids(&claim(&queue, 1_000).await));
    assert_eq!(claimed, made);
    assert_eq!(queue.number(ROWS).await, 0);
}

/// Q05: what differs in lane or due time shares no row, and a job with a key is alone.
#[tokio::test]
async fn only_what_is_alike_shares_a_row() {
    let queue = Queue::open().await;
    let soon = Timestamp::now() + SignedDuration::from_secs(60);
    let mixed: Vec<_> = (0..64)
        .map(|n| match n % 4 {
            0 => NewJob::new("mail"),
            1 => NewJob::new("sms"),
            2 => NewJob::new("mail").priority(7),
            _ => NewJob::new("mail").scheduled_at(soon),
        })
        .collect();
    enqueue_many(&queue, &mixed).await;
    assert_eq!(queue.number(ROWS).await, 4);
    assert_eq!(queue.number(MISPLACED).await, 0);
    let keyed: Vec<_> =
        (0..20).map(|n| NewJob::new("keyed").idempotency_key(format!("k{}", n % 10))).collect();
    let made: HashSet<_> = enqueue_many(&queue, &keyed).await.into_iter().collect();
    assert_eq!((made.len(), queue.number(ROWS).await), (10, 14));
    assert_eq!(queue.number(MISPLACED).await, 0);
    enqueue_many(&queue, &[NewJob::new("alone")]).await;
    assert_eq!(
        queue.number("select count(*) from towpath.job_ready where bundle and job_ids is null").await,
        1
    );
}

/// Q07: jobs scheduled in the past share a row at the floor of their lane and say so when they are claimed.
#[tokio::test]
async fn jobs_moved_to_the_floor_are_claimed_too() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.ack(&queue.worker).await.unwrap();
    queue.maintainer.job_floor_tick().await.unwrap();
    let past = Timestamp::now() - SignedDuration::from_hours(1);
    let made = enqueue_many(&queue, &vec![NewJob::new("mail").scheduled_at(past); 20]).await;
    assert_eq!(queue.number(ROWS).await, 2);
    assert_eq!(ids(&claim(&queue, 5).await), made[..5]);
    assert_eq!(queue.number(MISPLACED).await, 0);
    assert_eq!(ids(&claim(&queue, 50).await), made[5..]);
}

/// Q17: one job is taken out of a shared row, wherever in it it stands, and the others stay as they were.
#[tokio::test]
async fn one_job_of_a_shared_row_is_cancelled_retried_or_buried() {
    let queue = Queue::open().await;
    let soon = Timestamp::now() + SignedDuration::from_secs(3_600);
    for place in [0, 7, 15] {
        let made = enqueue_many(&queue, &vec![NewJob::new("mail").scheduled_at(soon); 48]).await;
        let id = |row: usize| made[row * 16 + place];
        for call in [
            format!("towpath.fn_job_cancel('{}', 'op')", id(0)),
            format!("towpath.fn_job_retry('{}', 'op')", id(1)),
            format!("towpath.fn_job_move_to_dead_letter('{}', 'broken', 'op')", id(2)),
        ] {
            assert_eq!(queue.db.json(&call).await["ok"], true, "{call}");
            assert_eq!(queue.number(MISPLACED).await, 0, "{call}");
        }
        assert_eq!(ids(&claim(&queue, 10).await), [id(1)], "due now, and nothing else");
        assert_eq!(queue.number(READY).await, 45);
        queue.db.execute("delete from towpath.job_ready; delete from towpath.job_live where state = 0").await;
        queue.db.execute("delete from towpath.job j where not exists (select from towpath._job_now v where v.job_id = j.job_id) and not exists (select from towpath._job_runs(j.job_id))").await;
    }
}

/// R06: `max_parallel` counts jobs, not rows.
#[tokio::test]
async fn a_limit_ends_inside_a_shared_row() {
    let queue = Queue::open().await;
    queue.subscribe(EXECUTOR, "p_max_parallel => 10, p_enabled => true").await;
    let made = enqueue_many(&queue, &vec![NewJob::new("mail"); 32]).await;
    let mut claimed = vec![];
    for expected in [10, 10, 10, 2] {
        let held = claim(&queue, 50).await;
        assert_eq!(held.len(), expected);
        assert_eq!(queue.number(MISPLACED).await, 0);
        claimed.extend(ids(&held));
        queue.worker.ack_many(held).await.unwrap();
    }
    assert_eq!(claimed, made);
}

/// Q17: `why` counts the jobs ahead, not the rows.
#[tokio::test]
async fn jobs_ahead_are_counted_one_by_one() {
    let queue = Queue::open().await;
    // Without a live worker, that would be the reason.
    queue.db.call(&format!("fn_queue_heartbeat_tick('{EXECUTOR}', 'PG_worker')")).await;
    let made = enqueue_many(&queue, &vec![NewJob::new("mail"); 40]).await;
    for place in [0, 1, 15, 16, 17, 39] {
        let why = queue.db.json(&format!("towpath.fn_job_why('{}')", made[place])).await;
        assert_eq!(
            (&why["reasons"][0]["code"], &why["reasons"][0]["ahead"]),
            (&"ready".into(), &place.into())
        );
    }
}

/// Q15: who found a shared row held by somebody who takes only a part of it is woken when the rest is free.
#[tokio::test]
async fn a_sleeper_is_woken_for_the_rest_of_a_row() {
    let queue = Queue::open().await;
    let rival = queue.db.rival().await;
    for (kind, left) in [("claimed", 12), ("cancelled", 15)] {
        let made = enqueue_many(&queue, &vec![NewJob::new(kind); 16]).await;
        let listener = Listener::open(&queue.worker).await.unwrap();
        queue.worker.arm(EXECUTOR, None).await.unwrap();
        rival
            .run(&match kind {
                "claimed" => {
                    format!("begin; select count(*) from towpath.fn_job_claim_rows('{EXECUTOR}', null, 4)")
                }
                _ => format!("begin; select towpath.fn_job_cancel('{}', 'op')", made[15]),
            })
            .await;
        assert!(claim(&queue, 50).await.is_empty(), "{kind}: the row is held");
        rival.run("commit").await;
        tokio::time::timeout(SECOND * 10, listener.woken()).await.expect(kind);
        assert_eq!(claim(&queue, 50).await.len(), left, "{kind}");
    }
}

/// Q17: who wants a job whose row somebody else is taking apart waits, and finds it wherever it is then.
#[tokio::test]
async fn a_job_is_found_after_its_row_was_taken_apart() {
    let queue = Queue::open().await;
    let (one, other) = (queue.db.rival().await, queue.db.rival().await);
    let cancel = |id: JobId| format!("select towpath.fn_job_cancel('{id}', 'op')");
    let claim_five = format!("select count(*) from towpath.fn_job_claim_rows('{EXECUTOR}', null, 5)");
    // The first cancels a job or claims five; the second wants one that was claimed, or one that was not.
    for (cancelled, wanted, left) in [(Some(9), 4, 14), (None, 0, 11), (None, 15, 10)] {
        let made = enqueue_many(&queue, &vec![NewJob::new("mail"); 16]).await;
        let first = cancelled.map_or(claim_five.clone(), |place: usize| cancel(made[place]));
        one.run(&format!("begin; {first}")).await;
        let pending = other.send(&cancel(made[wanted]));
        queue.db.until_blocked(&pending).await;
        one.run("commit").await;
        assert!(pending.value().await.unwrap().unwrap().contains("cancelled"), "{first}");
        assert_eq!(queue.number(MISPLACED).await, 0, "{first}");
        assert_eq!(claim(&queue, 50).await.len(), left, "{first}");
    }
}

/// Q05, Q07: rows of two calls that are due at the same moment, with ids that lie between one another, lose nothing when a
/// claim ends inside of both.
#[tokio::test]
async fn rows_whose_jobs_lie_between_one_another_lose_nothing() {
    let queue = Queue::open().await;
    queue.db.freeze("2026-03-01T12:00:00Z".parse().unwrap()).await;
    // A second lane, empty or not, lets claims sort what several lanes give them.
    for kinds in [["mail", "mail"], ["mail", "sms"], ["mail", "mail"]] {
        queue.enqueue(kinds[1]).await;
        for kind in ["mail", kinds[1], "mail"] {
            enqueue_many(&queue, &vec![NewJob::new(kind); 20]).await;
        }
        for limit in [5, 20, 7, 1, 100] {
            let waiting = queue.number(READY).await;
            let taken: HashSet<_> = ids(&claim(&queue, limit).await).into_iter().collect();
            assert_eq!(taken.len(), waiting.min(limit as usize));
            assert_eq!(queue.number(READY).await, waiting - taken.len());
            assert_eq!(queue.number(MISPLACED).await, 0, "{limit} of {kinds:?}");
        }
    }
}

/// What a job that waits is sorted by: the most urgent first, then the oldest due.
type Place = (Reverse<i32>, Timestamp, JobId);

/// Q05, Q07, Q17, R06: in any history of batches, claims, retries, cancels and time going by, a claim takes exactly
/// as many jobs as it may, none before one that is more urgent or due earlier, and every job that waits has exactly one place.
#[tokio::test]
async fn any_history_takes_the_first_jobs_in_order() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let queue = Queue::open().await;
    let mut now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    let (mut waiting, mut held): (BTreeSet<Place>, Vec<(i32, Lease)>) = Default::default();
    let mut limit = usize::MAX;
    for step in 0..60 {
        // Often no time goes by, and the ids of two calls lie between one another.
        now += SignedDuration::from_millis(if random.bool() { 0 } else { random.i64(20..2_000) });
        queue.db.freeze(now).await;
        let pick = |random: &mut fastrand::Rng, waiting: &BTreeSet<Place>| {
            waiting.iter().nth(random.usize(0..waiting.len().max(1))).copied()
        };
        match random.u32(0..12) {
            0..4 => {
                // Most batches are of one lane and one due time.
                let odd = if random.u32(0..4) == 0 { 4 } else { 0 };
                let jobs: Vec<_> = (0..random.usize(1..80))
                    .map(|_| {
                        let mut other = || random.u32(0..16) < odd;
                        let (kind, priority) =
                            (if other() { "sms" } else { "mail" }, if other() { 200 } else { 100 });
                        let due = if other() { now + SECOND * 3 } else { now };
                        (NewJob::new(kind).priority(priority).scheduled_at(due), priority, due)
                    })
                    .collect();
                let batch: Vec<_> = jobs.iter().map(|(job, ..)| job.clone()).collect();
                let made = enqueue_many(&queue, &batch).await;
                waiting.extend(
                    made.iter().zip(&jobs).map(|(id, (_, priority, due))| (Reverse(*priority), *due, *id)),
                );
            }
            4..8 => {
                let asked = random.usize(1..120);
                let room = limit.saturating_sub(held.len());
                let due = waiting.iter().filter(|place| place.1 <= now);
                let first: Vec<_> = due.take(asked.min(room)).map(|place| (place.0, place.1)).collect();
                let taken = claim(&queue, i32::try_from(asked).unwrap()).await;
                let places: Vec<Place> = taken
                    .iter()
                    .map(|lease| {
                        *waiting.iter().find(|place| place.2 == lease.job_id()).expect("a job that waits")
                    })
                    .collect();
                let found: Vec<_> = places.iter().map(|place| (place.0, place.1)).collect();
                assert_eq!(found, first, "step {step}, seed {seed}");
                waiting.retain(|place| !places.contains(place));
                held.extend(places.iter().map(|place| place.0.0).zip(taken));
            }
            8 => {
                let acked: Vec<_> =
                    held.drain(..random.usize(0..=held.len())).map(|(_, lease)| lease).collect();
                queue.worker.ack_many(acked).await.unwrap();
            }
            9 => {
                if let Some(place) = pick(&mut random, &waiting) {
                    waiting.remove(&place);
                    queue.db.json(&format!("towpath.fn_job_cancel('{}', 'op')", place.2)).await;
                }
                if let Some(place) = pick(&mut random, &waiting) {
                    waiting.remove(&place);
                    waiting.insert((place.0, place.1.min(now), place.2));
                    queue.db.json(&format!("towpath.fn_job_retry('{}', 'op')", place.2)).await;
                }
            }
            10 => {
                for (priority, lease) in held.drain(..held.len().min(3)) {
                    waiting.insert((Reverse(priority), now + SECOND, lease.job_id()));
                    let soon = Failure { retry_after: Some(SECOND), ..Failure::retry("no") };
                    lease.fail(&queue.worker, soon).await.unwrap();
                }
            }
            _ => {
                limit = if random.bool() { held.len() + random.usize(1..60) } else { usize::MAX };
                let most = if limit == usize::MAX { "null".to_owned() } else { limit.to_string() };
                queue.subscribe(EXECUTOR, &format!("p_max_parallel => {most}, p_enabled => true")).await;
            }
        }
        assert_eq!(queue.number(READY).await, waiting.len(), "step {step}, seed {seed}");
        assert_eq!(queue.number(MISPLACED).await, 0, "step {step}, seed {seed}");
    }
    // The checker sees a place that is missing, one too many, and one at a wrong time.
    enqueue_many(&queue, &vec![NewJob::new("mail"); 32]).await;
    enqueue_many(&queue, &[NewJob::new("mail").idempotency_key("alone")]).await;
    for broken in [
        "delete from towpath.job_ready where ctid in (select ctid from towpath.job_ready limit 1)",
        "insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
         select lane, due_at, job_ids[2], 0, 0, true from towpath.job_ready where job_ids is not null limit 1",
        "insert into towpath.job_live (job_id, lane, due_at, max_attempts)
         select job_ids[2], lane, due_at, 1 from towpath.job_ready where job_ids is not null limit 1",
        "update towpath.job_ready set due_at = due_at + interval '1 s' where not bundle",
        "update towpath.job_ready set job_ids = job_ids || job_ids where job_ids is not null",
    ] {
        let rival = queue.db.rival().await;
        rival.run(&format!("begin; {broken}")).await;
        let misplaced = rival.send(MISPLACED).value().await.unwrap().unwrap();
        assert_ne!(misplaced, "0", "{broken}");
    }
}

/// Q07, Q17: claimers of few and of many and operators who cancel, all at once on shared rows: every job is claimed or
/// cancelled exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn claimers_and_operators_race_for_shared_rows() {
    const JOBS: usize = 3_000;
    let queue = Arc::new(Queue::open().await);
    let mut made = vec![];
    for _ in 0..3 {
        made.extend(enqueue_many(&queue, &vec![NewJob::new("mail"); JOBS / 3]).await);
    }
    let (made, ended) = (Arc::new(made), Arc::new(AtomicUsize::new(0)));
    let taken = all_at_once(8, |rival| {
        let (queue, made, ended) = (queue.clone(), made.clone(), ended.clone());
        async move {
            let mut taken = vec![];
            let mut random = fastrand::Rng::with_seed(rival as u64);
            while ended.load(Ordering::Relaxed) < JOBS {
                let got = if rival < 5 {
                    let limit = [1, 5, 16, 33, 100][rival];
                    let jobs = queue.claim_as("a", limit).await.unwrap();
                    let leases: Vec<_> = jobs.into_iter().map(|job| job.lease).collect();
                    let got = ids(&leases);
                    let lost = queue.worker.ack_many(leases).await.unwrap().lost;
                    // Cancelled under its lease, which counts there.
                    got.into_iter().filter(|id| !lost.contains(id)).collect()
                } else {
                    let id = made[random.usize(0..JOBS)];
                    let answer = queue.db.json(&format!("towpath.fn_job_cancel('{id}', 'op')")).await;
                    if answer["ok"] == true { vec![id] } else { vec![] }
                };
                ended.fetch_add(got.len(), Ordering::Relaxed);
                taken.extend(got);
            }
            taken
        }
    })
    .await;
    let all: Vec<_> = taken.iter().flatten().copied().collect();
    let distinct: HashSet<_> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (JOBS, JOBS));
    assert!(taken.iter().filter(|ids| !ids.is_empty()).count() > 4, "they did race");
    assert_eq!((queue.number(READY).await, queue.number(MISPLACED).await), (0, 0));
    assert_eq!(queue.number("select count(*) from towpath.job_live").await, 0);
}
