//! Works on JOBS jobs and ends: with the worker of the crate, or with calls that are batched by hand.
//!
//!     DATABASE_URL=… client-workers worker|hand KIND JOBS

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use towpath::{CancellationToken, Client, Job};
use towpath_db::Database;
use towpath_db::job::{Claim, LeaseOwner};

/// Jobs in one claim, and handlers at once.
const CLAIM: i32 = 100;
/// The executor, which the worker registers with its kind.
const EXECUTOR: &str = "rust";

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "rust")]
struct Noop {
    r#ref: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let [how, kind, jobs] = std::env::args().skip(1).collect::<Vec<_>>().try_into().ok().context("worker|hand KIND JOBS")?;
    anyhow::ensure!(kind == Noop::KIND, "the kind is {}", Noop::KIND);
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL names the database")?;
    match how.as_str() {
        "worker" => worker(&url, jobs.parse()?).await,
        "hand" => hand(&url, jobs.parse()?).await,
        _ => bail!("worker or hand"),
    }
}

/// The worker, until it has run and recorded as many.
async fn worker(url: &str, jobs: usize) -> Result<()> {
    let client = Client::connect(url).await?;
    let (ran, mut count) = tokio::sync::watch::channel(0_usize);
    let worker = client
        .worker(EXECUTOR)
        .concurrency(CLAIM as usize)
        .handle(move |_: Noop, _| {
            ran.send_modify(|ran| *ran += 1);
            async { Ok(()) }
        })
        .build()?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(worker.run(shutdown.clone()));
    count.wait_for(|ran| *ran >= jobs).await?;
    // Draining records what has run.
    shutdown.cancel();
    running.await?;
    Ok(())
}

/// Claims 100 jobs and acks them in one call, again and again.
async fn hand(url: &str, jobs: usize) -> Result<()> {
    let database = Database::connect(url).await?;
    database.executor_register(EXECUTOR, &[Noop::KIND.to_owned()]).await?;
    let owner = LeaseOwner::new("by-hand");
    let lease = Some(Duration::from_secs(60));
    let claim = Claim { executor: EXECUTOR, kinds: None, limit: CLAIM, owner: &owner, lease };
    let mut done = 0;
    while done < jobs {
        let leases: Vec<_> = database.claim(&claim).await?.into_iter().map(|job| job.lease).collect();
        if !leases.is_empty() {
            done += database.ack_many(leases).await.map_err(|unfinished| unfinished.error)?.ended;
        }
    }
    Ok(())
}
