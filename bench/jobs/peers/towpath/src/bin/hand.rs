//! Compares the worker with calls that are batched by hand: claim 240, ack them, again. Prints one row of JSON.
//!
//!     DATABASE_URL=… hand [JOBS]
//!
//! Both run four loops' worth of connections on the same jobs, three rounds each, turn by turn; the handler does
//! nothing. The database must be one that `towpath-peer setup` has prepared.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::{Claim, LeaseOwner, NewJob};
use towpath_worker::{Options, Worker};

const EXECUTOR: &str = "bench";
const KIND: &str = "noop";
const LOOPS: usize = 4;
const CLAIM: i32 = 240;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let jobs: usize = std::env::args().nth(1).map_or(Ok(100_000), |jobs| jobs.parse())?;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL names the database")?;
    let database = Database::connect(&url).await?;
    let (mut by_hand, mut by_worker) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        enqueue(&database, jobs).await?;
        let began = Instant::now();
        hand(&database).await?;
        by_hand.push(jobs as f64 / began.elapsed().as_secs_f64());
        enqueue(&database, jobs).await?;
        let began = Instant::now();
        worker(&database, jobs).await?;
        by_worker.push(jobs as f64 / began.elapsed().as_secs_f64());
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2].round()
    };
    let (hand, worker) = (median(&mut by_hand), median(&mut by_worker));
    let ratio = worker / hand;
    println!(
        r#"{{"bench": "hand", "jobs": {jobs}, "hand_per_second": {hand}, "worker_per_second": {worker}, "ratio": {ratio:.2}}}"#
    );
    Ok(())
}

async fn enqueue(database: &Database, jobs: usize) -> Result<()> {
    let batch = vec![NewJob::new(KIND); 1_000.min(jobs)];
    for _ in 0..jobs.div_ceil(1_000) {
        for answer in database.enqueue_many(&batch).await? {
            answer?;
        }
    }
    Ok(())
}

/// Claims and acks until nothing is left.
async fn hand(database: &Database) -> Result<()> {
    let loops = (0..LOOPS).map(|number| {
        let database = database.clone();
        tokio::spawn(async move {
            let owner = LeaseOwner::new(format!("hand-{number}"));
            let claim = Claim {
                executor: EXECUTOR,
                kinds: None,
                limit: CLAIM,
                owner: &owner,
                lease: Some(Duration::from_secs(60)),
            };
            loop {
                let claimed = database.claim(&claim).await?;
                if claimed.is_empty() {
                    return anyhow::Ok(());
                }
                let leases = claimed.into_iter().map(|job| job.lease).collect();
                let ended = database.ack_many(leases).await.map_err(|unfinished| unfinished.error)?;
                anyhow::ensure!(ended.lost.is_empty(), "lost {:?}", ended.lost);
            }
        })
    });
    for each in loops.collect::<Vec<_>>() {
        each.await??;
    }
    Ok(())
}

/// The worker, until it has run and recorded as many.
async fn worker(database: &Database, jobs: usize) -> Result<()> {
    let (shutdown, (ran, mut count)) = (CancellationToken::new(), tokio::sync::watch::channel(0_usize));
    let worker = Worker::builder(database.clone(), EXECUTOR)
        .handle_kind(KIND, Options::default(), move |_: serde_json::Value, _| {
            ran.send_modify(|ran| *ran += 1);
            async { Ok(()) }
        })
        .build()?;
    let running = tokio::spawn(worker.run(shutdown.clone()));
    count.wait_for(|ran| *ran >= jobs).await?;
    // Draining records what has run.
    shutdown.cancel();
    running.await?;
    Ok(())
}
