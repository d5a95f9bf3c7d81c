//! Many claimers at once: nothing twice, and never more than allowed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use towpath_db::job::{Claim, LeaseOwner, NewJob};
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_testkit::race::all_at_once;

/// Q07: eight claimers on 100,000 jobs get every one of them, and none twice.
#[tokio::test(flavor = "multi_thread")]
async fn eight_claimers_on_a_hundred_thousand_jobs_get_none_twice() {
    const JOBS: usize = 100_000;
    let queue = Queue::open().await;
    for _ in 0..JOBS / 10_000 {
        queue.producer.enqueue_many(&vec![NewJob::new("mail"); 10_000]).await.unwrap();
    }
    let worker = queue.worker.clone();
    let claimed = all_at_once(8, |claimer| {
        let worker = worker.clone();
        async move {
            let owner = LeaseOwner::new(format!("claimer {claimer}"));
            let claim = Claim { executor: EXECUTOR, kinds: None, limit: 700, owner: &owner, lease: None };
            let mut ids = vec![];
            loop {
                // An empty claim may only mean that others hold locks on what is left.
                let jobs = worker.claim(&claim).await.unwrap();
                if jobs.is_empty() && !worker_has_more(&worker, &claim, &mut ids).await {
                    return ids;
                }
                ids.extend(jobs.iter().map(|job| job.lease.job_id()));
            }
        }
    })
    .await;
    let all: Vec<_> = claimed.iter().flatten().copied().collect();
    let distinct: HashSet<_> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "a job was claimed twice");
    assert_eq!(distinct.len(), JOBS, "every job was claimed");
    assert!(claimed.iter().filter(|ids| !ids.is_empty()).count() > 1, "they did race");
}

/// Looks once more after a moment.
async fn worker_has_more(
    worker: &towpath_db::Database,
    claim: &Claim<'_>,
    ids: &mut Vec<towpath_model::job::JobId>,
) -> bool {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let jobs = worker.claim(claim).await.unwrap();
    ids.extend(jobs.iter().map(|job| job.lease.job_id()));
    !jobs.is_empty()
}

/// R06: `max_parallel` 120, eight claimers asking for 50: never more than 120 live, at any
/// moment that is looked at, while leases come and go.
#[tokio::test(flavor = "multi_thread")]
async fn max_parallel_is_never_exceeded_however_many_claim() {
    const MAX: i64 = 120;
    let queue = Queue::open().await;
    queue.subscribe(EXECUTOR, &format!("p_max_parallel => {MAX}, p_enabled => true")).await;
    queue.enqueue_times("mail", 3_000).await;
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let sampler = tokio::spawn(sample(queue.db.client().await, over.clone(), MAX));
    let worker = queue.worker.clone();
    all_at_once(8, |claimer| {
        let (worker, done) = (worker.clone(), done.clone());
        async move {
            let owner = LeaseOwner::new(format!("claimer {claimer}"));
            let claim = Claim { executor: EXECUTOR, kinds: None, limit: 50, owner: &owner, lease: None };
            while done.load(Ordering::Relaxed) < 3_000 {
                let jobs = worker.claim(&claim).await.unwrap();
                // Some are kept a while, so that the limit is met again and again.
                tokio::time::sleep(Duration::from_millis(claimer as u64 % 4)).await;
                let ended = worker.ack_many(jobs.into_iter().map(|job| job.lease).collect()).await.unwrap();
                assert!(ended.lost.is_empty());
                done.fetch_add(ended.ended, Ordering::Relaxed);
            }
        }
    })
    .await;
    over.store(true, Ordering::Relaxed);
    let (samples, most) = sampler.await.unwrap();
    assert!(samples > 20, "only {samples} samples");
    assert!(most > MAX / 2, "the limit was never near: at most {most} of {samples} samples");
    assert_eq!(
        queue.maintainer.job_parallel_recount().await.unwrap().did["repaired"].as_array().unwrap().len(),
        0
    );
}

/// Looks at the leases that are held until told to stop; answers how often and how many at most.
async fn sample(client: tokio_postgres::Client, stop: Arc<AtomicBool>, max: i64) -> (usize, i64) {
    let sql = "select count(*) from towpath._job_now where state in (1, 2)";
    let (mut samples, mut most) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let live: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        assert!(live <= max, "{live} leases are held, {max} are allowed");
        (samples, most) = (samples + 1, most.max(live));
    }
    (samples, most)
}
