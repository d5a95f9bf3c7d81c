//! Lease entries: `sql/functions/lease_entry.sql`, and every way to end one.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_db::job::{Claim, Failure, Lease, LeaseOwner, NewJob};
use towpath_model::job::{Attempt, JobId};
use towpath_testkit::queue::{EXECUTOR, LEASE, Queue, SECOND};
use towpath_testkit::race::all_at_once;

/// Leases of one claim, by job.
async fn claim_all(queue: &Queue, owner: &str) -> HashMap<JobId, Lease> {
    let jobs = queue.claim_as(owner, 1_000).await.unwrap();
    jobs.into_iter().map(|job| (job.lease.job_id(), job.lease)).collect()
}

/// Q08–Q11, Q17: jobs of one claim part ways (acked, failed, cancelled, given back, started,
/// lost) and each ends as if it had been claimed alone.
#[tokio::test]
async fn the_jobs_of_one_claim_part_ways() {
    let queue = Queue::open().await;
    let mut ids = vec![];
    for _ in 0..6 {
        ids.push(queue.enqueue("mail").await);
    }
    let mut leases = claim_all(&queue, "a").await;
    let mut take = |index: usize| leases.remove(&ids[index]).unwrap();
    for id in &ids {
        assert_eq!(queue.state(*id).await, "leased", "a claim shows at once");
    }
    queue.worker.ack_many(vec![take(0)]).await.unwrap();
    take(1).fail(&queue.worker, Failure::retry("no")).await.unwrap();
    queue.db.json(&format!("towpath.fn_job_cancel('{}', 'op')", ids[2])).await;
    assert!(queue.worker.release(vec![take(3)]).await.unwrap().lost.is_empty());
    take(4).start(&queue.worker).await.unwrap();
    let expected = ["succeeded", "retry_waiting", "cancelled", "queued", "in_progress", "leased"];
    for (id, state) in ids.iter().zip(expected) {
        assert_eq!(queue.state(*id).await, state);
    }
    // The holder of the cancelled job is told, and jobs whose lease nobody extends are requeued.
    assert_eq!(queue.worker.ack_many(vec![take(2)]).await.unwrap().lost, [ids[2]]);
    queue.db.advance(LEASE + SECOND).await;
    assert_eq!(queue.reap().await, 2);
    assert_eq!(queue.state(ids[5]).await, "retry_waiting");
    assert_eq!(queue.worker.ack_many(vec![take(5)]).await.unwrap().lost, [ids[5]], "it was requeued");
    let entries = queue.db.text("select count(*) from towpath.lease_entry").await;
    assert_eq!(entries, "0", "the reaper leaves no entry behind");
    let runs = "select string_agg(outcome, ' ' order by outcome) from towpath._job_run_each";
    assert_eq!(queue.db.text(runs).await, "cancelled failed lost lost released succeeded");
}

/// Q08: in a call every job is fenced by its own attempt, not by one that another job has.
#[tokio::test]
async fn attempts_are_not_mixed_up_within_a_call() {
    let queue = Queue::open().await;
    let first = queue.enqueue("mail").await;
    queue
        .claim()
        .await
        .fail(&queue.worker, Failure { retry_after: Some(SECOND / 1_000), ..Failure::retry("no") })
        .await
        .unwrap();
    let second = queue.enqueue("mail").await;
    queue.db.advance(SECOND).await;
    let leases = claim_all(&queue, "a").await;
    assert_eq!(leases[&first].attempt(), Attempt::from(2));
    assert_eq!(leases[&second].attempt(), Attempt::from(1));
    let held = |id, attempt| Lease::held_elsewhere(id, LeaseOwner::new("a"), Attempt::from(attempt));
    let swapped = vec![held(first, 1), held(second, 2)];
    assert_eq!(queue.worker.ack_many(swapped).await.unwrap().ended, 0);
    let ended = queue.worker.ack_many(vec![held(first, 2), held(second, 1)]).await.unwrap();
    assert_eq!((ended.ended, ended.lost), (2, vec![]));
}

/// Q08: the number of another owner's lease entry gives no rights.
#[tokio::test]
async fn an_entry_number_gives_no_rights() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let held = claim_all(&queue, "a").await;
    let stolen = format!(
        "towpath.fn_job_ack_many(array['{job_id}'::uuid], 'b', array[1],
                                 array(select entry_id from towpath.lease_entry))"
    );
    let said = queue.db.json(&stolen).await;
    assert_eq!((&said["acked"], &said["lost"][0]), (&0.into(), &job_id.to_string().into()));
    assert!(queue.worker.ack_many(held.into_values().collect()).await.unwrap().lost.is_empty());
}

/// Q07, Q10: a claim of many entries is acked in any order and any portions, once each, and
/// entries that were acked whole are gone with their jobs.
#[tokio::test]
async fn a_large_claim_is_acked_in_portions() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 1_000).await;
    let mut leases: Vec<Lease> = claim_all(&queue, "a").await.into_values().collect();
    assert_eq!(leases.len(), 1_000);
    let entries = "select count(*) from towpath.lease_entry";
    assert_eq!(queue.db.text(entries).await, "5", "240 jobs to an entry");
    let again: Vec<_> = leases.iter().map(|held| (held.job_id(), held.attempt())).collect();
    while !leases.is_empty() {
        let rest = leases.split_off(leases.len().min(333));
        let ended = queue.worker.ack_many(leases).await.unwrap();
        assert!(ended.lost.is_empty());
        leases = rest;
    }
    assert_eq!(queue.db.text("select count(*) from towpath._job_now").await, "0");
    assert_eq!(queue.db.text("select count(*) from towpath._job_run_each").await, "1000");
    let twice =
        again.into_iter().map(|(id, attempt)| Lease::held_elsewhere(id, LeaseOwner::new("a"), attempt));
    assert_eq!(queue.worker.ack_many(twice.collect()).await.unwrap().ended, 0);
    queue.enqueue_times("mail", 500).await;
    let leases = claim_all(&queue, "b").await.into_values().collect();
    queue.worker.ack_many(leases).await.unwrap();
    assert_eq!(queue.db.text(&format!("{entries} where lease_owner = 'b'")).await, "0");
}

/// R06: leases that only lease entries tell count when a limit is set on what had none.
#[tokio::test]
async fn a_new_limit_counts_what_is_already_leased() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 30).await;
    let first = queue.claim_as("a", 10).await.unwrap();
    queue.subscribe(EXECUTOR, "p_max_parallel => 12, p_enabled => true").await;
    assert_eq!(queue.claim_as("b", 20).await.unwrap().len(), 2);
    queue.worker.ack_many(first.into_iter().map(|job| job.lease).collect()).await.unwrap();
    assert_eq!(queue.claim_as("c", 20).await.unwrap().len(), 10);
}

/// Q01: one claim takes jobs of different kinds, priorities and attempts, and every one of
/// them says the right thing about itself.
#[tokio::test]
async fn a_mixed_claim_is_written_down_right() {
    let queue = Queue::open().await;
    let low = queue.enqueue_job(&NewJob::new("mail").priority(5)).await;
    let high = queue.enqueue_job(&NewJob::new("report").priority(500)).await;
    let owner = LeaseOwner::new("a");
    let claim = Claim { executor: EXECUTOR, kinds: None, limit: 10, owner: &owner, lease: Some(LEASE) };
    let jobs = queue.worker.claim(&claim).await.unwrap();
    let said: Vec<_> = jobs.iter().map(|job| (job.lease.job_id(), job.kind.as_str(), job.priority)).collect();
    assert_eq!(said, [(high, "report", 500), (low, "mail", 5)]);
    let shown =
        "select string_agg(concat_ws(' ', state, lease_owner, attempts), ', ') from towpath.job_queue";
    assert_eq!(queue.db.text(shown).await, "leased a 1, leased a 1");
}

/// Q10: an ack that names only its jobs, as executors over HTTP do, does not read the entries of earlier
/// claims that a held snapshot keeps from being cleaned away.
#[tokio::test]
async fn an_ack_by_ids_does_not_read_dead_entries() {
    let queue = Queue::open().await;
    let mut holder = queue.db.client().await;
    let held = holder.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let held = held.start().await.unwrap();
    held.query("select 1", &[]).await.unwrap();
    let dead = "insert into towpath.lease_entry (lease_until, job_ids, lease_owner, attempt, picked_at, subscription_no)
                select now(), array(select gen_random_uuid() from generate_series(1, 240)), 'a', 1, now(), 0
                  from generate_series(1, 1000);
                delete from towpath.lease_entry;";
    queue.db.execute(dead).await;
    queue.enqueue_times("mail", 100).await;
    let ids: Vec<_> = queue.claim_as("a", 100).await.unwrap().iter().map(|job| job.lease.job_id()).collect();
    let array = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let client = queue.db.client().await;
    let sql = format!(
        "explain (analyze, buffers, timing off, format json) select towpath._lease_entries('{{{array}}}', 'a')"
    );
    // The first look reads the catalogue.
    client.query_one(&sql, &[]).await.unwrap();
    let plan: serde_json::Value = client.query_one(&sql, &[]).await.unwrap().get(0);
    let blocks = plan[0]["Plan"]["Shared Hit Blocks"].as_u64().unwrap();
    assert!(blocks < 100, "{blocks} pages for one entry behind 1,000 dead ones");
    let call = format!("towpath.fn_job_ack_many('{{{array}}}', 'a', array_fill(1, array[100]))");
    assert_eq!(queue.db.json(&call).await["acked"], 100);
    held.commit().await.unwrap();
}

/// Q10, Q17: jobs that left their entry keep it from being acked whole, and nobody else from being acked.
#[tokio::test]
async fn an_entry_that_is_no_longer_whole_is_acked_job_by_job() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 600).await;
    let leases = claim_all(&queue, "a").await;
    let mut ids: Vec<JobId> = leases.keys().copied().collect();
    ids.sort_unstable();
    // One of the first entry has started, one of the second was cancelled, the third is whole.
    leases[&ids[7]].start(&queue.worker).await.unwrap();
    queue.db.json(&format!("towpath.fn_job_cancel('{}', 'op')", ids[300])).await;
    let ended = queue.worker.ack_many(leases.into_values().collect()).await.unwrap();
    assert_eq!((ended.ended, ended.lost), (599, vec![ids[300]]));
    assert_eq!(queue.db.text("select count(*) from towpath._job_now").await, "0");
    let runs = "select string_agg(outcome || n, ' ' order by outcome)
                  from (select outcome, count(*) as n from towpath._job_run_each group by outcome) r";
    assert_eq!(queue.db.text(runs).await, "cancelled1 succeeded599");
    let attempts =
        "select count(distinct job_id) from towpath._job_run_each where attempt = 1 and refunded = 0";
    assert_eq!(queue.db.text(attempts).await, "600");
}

/// Q12: entries acked whole count their jobs, and how long these waited and ran, as jobs acked one by one do.
#[tokio::test]
async fn whole_entries_count_what_single_jobs_count() {
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 300).await;
    queue.db.advance(SECOND * 3).await;
    queue.enqueue_times("mail", 300).await;
    queue.db.advance(SECOND * 2).await;
    let leases = claim_all(&queue, "a").await;
    queue.db.advance(SECOND).await;
    queue.worker.ack_many(leases.into_values().collect()).await.unwrap();
    let counted = "select sum(n) || ' ' || round(sum(wait_ms)) || ' ' || round(sum(run_ms))
                     from towpath.job_counter_delta where outcome = 'succeeded'";
    let told = "select count(*) || ' ' || round(sum(extract(epoch from r.picked_at - j.scheduled_at)) * 1000)
                       || ' ' || round(sum(extract(epoch from r.finished_at - r.picked_at)) * 1000)
                  from towpath._job_run_each r join towpath.job j using (job_id)";
    let (counted, told) = (queue.db.text(counted).await, queue.db.text(told).await);
    let numbers = |text: &str| text.split(' ').map(|one| one.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let (counted, told) = (numbers(&counted), numbers(&told));
    assert!(counted.iter().zip(&told).all(|(a, b)| (a - b).abs() < 600.0), "{counted:?} {told:?}");
    // 300 waited five seconds at least and 300 two, and all ran for one.
    assert!(told[0] == 600.0 && told[1] >= 2_100_000.0 && told[2] >= 600_000.0, "{told:?}");
}

/// Q07: a job whose due time was moved says when it became due, alone and among others that were not.
#[tokio::test]
async fn a_moved_job_says_when_it_became_due() {
    let queue = Queue::open().await;
    let later = jiff::Timestamp::now() + SECOND * 3_600;
    let moved = queue.enqueue_job(&NewJob::new("mail").scheduled_at(later)).await;
    let other = queue.enqueue("mail").await;
    queue.db.json(&format!("towpath.fn_job_retry('{moved}', 'op')")).await;
    let jobs = queue.claim_as("a", 10).await.unwrap();
    let order: Vec<_> = jobs.iter().map(|job| job.lease.job_id()).collect();
    assert_eq!(order, [other, moved]);
    assert!(jobs[1].scheduled_at < later && jobs[1].scheduled_at >= jobs[0].scheduled_at);
}

/// Q10, Q11: one call acks all of a claim while another cancels jobs of it; every job ends once.
#[tokio::test]
async fn whole_acks_and_cancels_race() {
    let queue = Queue::open().await;
    for _ in 0..8 {
        queue.enqueue_times("mail", 480).await;
        let leases: Vec<Lease> = claim_all(&queue, "a").await.into_values().collect();
        let doomed: Vec<JobId> = leases.iter().step_by(97).map(Lease::job_id).collect();
        let cancels = async {
            let mut cancelled = 0;
            for id in &doomed {
                let said = queue.db.json(&format!("towpath.fn_job_cancel('{id}', 'op')")).await;
                cancelled += usize::from(said["ok"] == true);
            }
            cancelled
        };
        let (ended, cancelled) = tokio::join!(queue.worker.ack_many(leases), cancels);
        let ended = ended.unwrap();
        assert_eq!(ended.ended + cancelled, 480);
        assert_eq!(ended.lost.len(), cancelled);
    }
    assert_eq!(queue.db.text("select count(*) from towpath._job_now").await, "0");
    let ends = "select count(*) || ' ' || count(distinct job_id) from towpath._job_run_each";
    assert_eq!(queue.db.text(ends).await, "3840 3840");
}

/// Q10, Q11: acks of all of a claim, the same acks again, acks of parts of it and the reaper all at once: nobody ends in a
/// deadlock, and every attempt ends once.
#[tokio::test(flavor = "multi_thread")]
async fn whole_acks_and_part_acks_race_with_the_reaper() {
    const JOBS: usize = 600;
    let queue = Arc::new(Queue::open().await);
    for round in 0..6 {
        queue.enqueue_times("mail", JOBS).await;
        let claimed = Arc::new(queue.claim_as("a", 1_000).await.unwrap());
        assert_eq!(claimed.len(), JOBS, "round {round}");
        queue.db.advance(LEASE + SECOND).await;
        let ended = all_at_once(5, |rival| {
            let (queue, claimed) = (queue.clone(), claimed.clone());
            async move {
                let ids: Vec<_> = claimed.iter().map(|job| job.lease.job_id().to_string()).collect();
                let some = match rival {
                    0 | 1 => &ids[..],
                    2 => &ids[100..300],
                    3 => &ids[231..250],
                    _ => return queue.reap().await,
                };
                // As a worker that knows the lease entries, or as an executor that does not.
                let entries =
                    if rival == 1 { "null" } else { "array(select entry_id from towpath.lease_entry)" };
                let call = format!(
                    "towpath.fn_job_ack_many('{{{}}}', 'a', array_fill(1, array[{}]), {entries})",
                    some.join(","),
                    some.len()
                );
                queue.db.json(&call).await["acked"].as_i64().unwrap()
            }
        })
        .await;
        assert_eq!(ended.iter().sum::<i64>(), JOBS as i64, "round {round}: {ended:?}");
        let runs =
            "select count(*) || ' ' || count(distinct job_id) from towpath._job_run_each where attempt = 1";
        let all = JOBS * (round + 1);
        assert_eq!(queue.db.text(runs).await, format!("{all} {all}"), "round {round}");
        queue.db.execute("delete from towpath.job_ready; delete from towpath.job_live; delete from towpath.lease_entry").await;
    }
}
