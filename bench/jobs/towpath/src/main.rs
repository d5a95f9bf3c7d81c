//! Measures Towpath's jobs on the server that `DATABASE_URL` names, in a database of its own
//! that is dropped afterwards. One JSON object a line, the shape of the other programs here.
//!
//! `BENCH_JOBS` is how many jobs are processed (50,000), `BENCH_ONLY` picks one measurement.

#![expect(clippy::print_stdout, reason = "the measurements are the output")]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use server::{Server, own_cpu_seconds};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::NewJob;
use towpath_db::migrate::{self, Mode};
use towpath_worker::{Maintenance, Options, Worker};

const KIND: &str = "bench";
const EXECUTOR: &str = "bench";
/// Connections that enqueue single jobs at the same time.
const PRODUCERS: usize = 8;
const BATCH: usize = 1_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url =
        std::env::var("DATABASE_URL").context("name a server with DATABASE_URL; it may be put under load")?;
    let jobs: usize = std::env::var("BENCH_JOBS").map_or(Ok(50_000), |text| text.parse())?;
    let only = std::env::var("BENCH_ONLY").ok();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.split(',').any(|one| one == name));
    let place = Place::create(&url).await?;
    let database = Database::connect(&place.url).await?;
    let stop = CancellationToken::new();
    let maintenance = tokio::spawn(Maintenance::new(database.clone()).run(stop.clone()));
    let server = Server::connect(&place.url).await?;
    warm_up(&database).await?;
    if wanted("single") {
        enqueue_single(&server, &place.url, jobs.min(20_000)).await?;
    }
    if wanted("batch") {
        enqueue_batch(&server, &database, jobs).await?;
    }
    process_all(&database, &server, None).await?;
    if wanted("process") {
        for _ in 0..3 {
            enqueue(&database, jobs).await?;
            process_all(&database, &server, Some(jobs)).await?;
        }
    }
    if wanted("pickup") {
        pickup(&database, 300).await?;
    }
    stop.cancel();
    maintenance.await?;
    database.close();
    drop(server);
    place.remove().await
}

/// Plans are made and caches filled before anything is measured.
async fn warm_up(database: &Database) -> anyhow::Result<()> {
    for _ in 0..20 {
        database.enqueue(&job()?).await?;
    }
    enqueue(database, BATCH).await
}

async fn enqueue_single(server: &Server, url: &str, jobs: usize) -> anyhow::Result<()> {
    let mut producers = vec![];
    for _ in 0..PRODUCERS {
        producers.push(Database::connect(url).await?);
    }
    for producer in &producers {
        producer.enqueue(&job()?).await?;
    }
    let (before, began) = (server.spent().await?, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for producer in producers.clone() {
        tasks.spawn(async move {
            for _ in 0..jobs / PRODUCERS {
                producer.enqueue(&job()?).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    report(server, "enqueue_single", jobs, began.elapsed(), &before).await
}

async fn enqueue_batch(server: &Server, database: &Database, jobs: usize) -> anyhow::Result<()> {
    let (before, began) = (server.spent().await?, Instant::now());
    enqueue(database, jobs).await?;
    report(server, "enqueue_batch", jobs, began.elapsed(), &before).await
}

async fn enqueue(database: &Database, jobs: usize) -> anyhow::Result<()> {
    let batch = vec![job()?; BATCH];
    for _ in 0..jobs.div_ceil(BATCH) {
        for enqueued in database.enqueue_many(&batch).await? {
            enqueued?;
        }
    }
    Ok(())
}

fn job() -> anyhow::Result<NewJob> {
    Ok(NewJob::new(KIND).payload(&json!({ "n": 1 }))?)
}

/// Processes everything there is with one worker and its defaults. `jobs` is how many that
/// are, if it is to be reported.
async fn process_all(database: &Database, server: &Server, jobs: Option<usize>) -> anyhow::Result<()> {
    let ran = Arc::new(AtomicUsize::new(0));
    let counts = ran.clone();
    let worker = Worker::builder(database.clone(), EXECUTOR)
        .handle_kind(KIND, Options::default(), move |_: serde_json::Value, _| {
            counts.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        })
        .build()?;
    let left = "select count(*) from towpath.job_live";
    let stop = CancellationToken::new();
    let (before, began, cpu) = (server.spent().await?, Instant::now(), own_cpu_seconds());
    let running = tokio::spawn(worker.run(stop.clone()));
    // Counting costs the server; the handlers know better when to start doing so.
    while jobs.is_some_and(|jobs| ran.load(Ordering::Relaxed) < jobs) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while server.number(left).await? > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed();
    if let Some(jobs) = jobs {
        let own = (own_cpu_seconds() - cpu) * 1e6 / jobs as f64;
        println!("{}", json!({ "what": "worker_cpu", "microseconds_per_job": round(own) }));
        report(server, "process", jobs, took, &before).await?;
    }
    stop.cancel();
    running.await?;
    Ok(())
}

/// From the commit of an enqueue to the begin of the handler, on an idle worker.
async fn pickup(database: &Database, rounds: usize) -> anyhow::Result<()> {
    let begun = Arc::new((Mutex::new(None), Notify::new()));
    let seen = begun.clone();
    let worker = Worker::builder(database.clone(), EXECUTOR)
        .handle_kind(KIND, Options::default(), move |_: serde_json::Value, _| {
            let (seen, now) = (seen.clone(), Instant::now());
            async move {
                *seen.0.lock().await = Some(now);
                seen.1.notify_one();
                Ok(())
            }
        })
        .build()?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut waits = vec![];
    for round in 0..rounds {
        let job = job()?;
        let asked = Instant::now();
        database.enqueue(&job).await?;
        let committed = Instant::now();
        tokio::time::timeout(Duration::from_secs(10), begun.1.notified()).await.context("not picked up")?;
        let at = begun.0.lock().await.take().context("a handler began")?;
        waits.push((at.saturating_duration_since(committed), at - asked));
        tokio::time::sleep(Duration::from_millis(25 + (round % 7) as u64 * 5)).await;
    }
    stop.cancel();
    running.await?;
    let at = |share: f64, of: fn(&(Duration, Duration)) -> Duration| {
        let mut all: Vec<Duration> = waits.iter().map(of).collect();
        all.sort();
        round(all[((all.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0)
    };
    println!(
        "{}",
        json!({ "what": "pickup", "rounds": rounds,
                "p50_ms": at(0.5, |w| w.0), "p99_ms": at(0.99, |w| w.0),
                "from_call_p50_ms": at(0.5, |w| w.1), "from_call_p99_ms": at(0.99, |w| w.1) })
    );
    Ok(())
}

async fn report(
    server: &Server,
    what: &str,
    jobs: usize,
    took: Duration,
    before: &server::Spent,
) -> anyhow::Result<()> {
    let (cpu, wal) = server.per_job(before, jobs).await?;
    let rate = (jobs as f64 / took.as_secs_f64()).round();
    println!(
        "{}",
        json!({ "what": what, "jobs": jobs, "jobs_per_second": rate,
                "server_cpu_microseconds_per_job": round(cpu), "wal_bytes_per_job": wal.round() })
    );
    Ok(())
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// A database of our own.
struct Place {
    server: Server,
    name: String,
    url: String,
}

impl Place {
    async fn create(url: &str) -> anyhow::Result<Place> {
        let name = format!("towpath_bench_{}", std::process::id());
        let server = Server::connect(url).await?;
        server.execute(&format!("drop database if exists {name}")).await?;
        server.execute(&format!("create database {name}")).await?;
        let (before, query) = url.split_once('?').unwrap_or((url, ""));
        let (host, _) = before.rsplit_once('/').context("DATABASE_URL names no database")?;
        let place = Place { url: format!("{host}/{name}?{query}"), server, name };
        migrate::run(&place.url, Mode::Apply).await?;
        let inside = Server::connect(&place.url).await?;
        inside.execute("update towpath.config set value = 'true' where kind = 'gate'").await?;
        let subscribe = format!(
            "select towpath.fn_job_subscription_put('{EXECUTOR}', 'PG_worker', '{KIND}', \
             p_max_parallel => null, p_enabled => true)"
        );
        inside.execute(&subscribe).await?;
        Ok(place)
    }

    async fn remove(self) -> anyhow::Result<()> {
        self.server.execute(&format!("drop database {} with (force)", self.name)).await
    }
}
