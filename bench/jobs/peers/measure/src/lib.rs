//! The five commands of a peer, written once: what is timed, from where to where.
//!
//! A peer says how its queue enqueues and works (`Queue`); everything that could make two
//! peers differ by accident is here. `../measure.mjs` says the same for Node.js, line by
//! line; change both.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections that enqueue single jobs at the same time.
pub const SINGLE_CONNECTIONS: u32 = 8;
/// Connections that enqueue batches at the same time.
pub const BATCH_CONNECTIONS: u32 = 4;
/// Jobs per batch call.
pub const BATCH_JOBS: u64 = 1_000;
/// A peer that has not drained its queue by then is reported as failed.
const PROCESS_WAIT_MAX: Duration = Duration::from_secs(120);
/// A single job that was not picked up by then ends the measure.
const PICKUP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Handler calls so far.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// Where `pickup` waits for the handler.
static PICKED_UP: OnceLock<mpsc::UnboundedSender<Instant>> = OnceLock::new();

/// One queue on one database.
pub trait Queue: Clone + Send + Sync + Sized + 'static {
    /// A running worker process' worth of workers.
    type Worker: Send;
    /// Installs the schema into an empty database.
    fn setup(url: &str) -> impl Future<Output = Result<()>>;
    /// A client with a pool of at most this size.
    fn connect(url: &str, connections: u32) -> impl Future<Output = Result<Self>> + Send;
    /// Enqueues one job and waits until it is durable.
    fn enqueue_one(&self, number: u64) -> impl Future<Output = Result<()>> + Send;
    /// Enqueues a batch in one call.
    fn enqueue_many(&self, numbers: std::ops::Range<u64>) -> impl Future<Output = Result<()>> + Send;
    /// Starts workers whose handler does nothing but call `started`.
    fn work(url: &str) -> impl Future<Output = Result<Self::Worker>> + Send;
    /// Whether the database itself says that these jobs, which are all there are, are finished.
    fn all_finished(&self, jobs: u64) -> impl Future<Output = Result<bool>> + Send;
    /// Stops the workers.
    fn stop(worker: Self::Worker) -> impl Future<Output = Result<()>> + Send;
}

/// The whole work of every handler.
pub fn started() {
    STARTED.fetch_add(1, Ordering::Relaxed);
    if let Some(waiting) = PICKED_UP.get() {
        let _ = waiting.send(Instant::now());
    }
}

/// What every job carries besides its number.
pub const NOTE: &str = "thirty-two bytes of nothing much";

/// `COMMAND [AMOUNT]` with the database in `DATABASE_URL`; prints one JSON object.
pub async fn run<Q: Queue>() -> Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments.first().map_or("", String::as_str);
    let amount = arguments.get(1).map_or(Ok(0), |text| text.parse::<u64>())?;
    let answer = match command {
        "setup" => {
            Q::setup(&url).await?;
            "{}".to_owned()
        }
        "single" => single(Q::connect(&url, SINGLE_CONNECTIONS).await?, amount).await?,
        "batch" => batch(Q::connect(&url, BATCH_CONNECTIONS).await?, amount).await?,
        "process" => process::<Q>(&url, amount).await?,
        "pickup" => pickup::<Q>(&url, amount).await?,
        _ => bail!("usage: setup | single SECONDS | batch JOBS | process JOBS | pickup SAMPLES"),
    };
    println!("{answer}");
    // Some peers keep tasks and connections that nobody can stop.
    std::process::exit(0)
}

/// Single enqueues for some seconds, one at a time on each connection.
async fn single<Q: Queue>(queue: Q, seconds: u64) -> Result<String> {
    let (clock, until) = (Instant::now(), Duration::from_secs(seconds));
    let mut tasks = JoinSet::new();
    for connection in 0..u64::from(SINGLE_CONNECTIONS) {
        let queue = queue.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while clock.elapsed() < until {
                queue.enqueue_one(connection << 32 | done).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut jobs = 0;
    while let Some(task) = tasks.join_next().await {
        jobs += task??;
    }
    Ok(timed(jobs, clock))
}

/// Batches until `jobs` are enqueued, one at a time on each connection.
async fn batch<Q: Queue>(queue: Q, jobs: u64) -> Result<String> {
    ensure!(jobs % BATCH_JOBS == 0, "the number of jobs must be a multiple of {BATCH_JOBS}");
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let clock = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..BATCH_CONNECTIONS {
        let queue = queue.clone();
        tasks.spawn(async move {
            loop {
                let first = NEXT.fetch_add(BATCH_JOBS, Ordering::Relaxed);
                if first >= jobs {
                    return anyhow::Ok(());
                }
                queue.enqueue_many(first..first + BATCH_JOBS).await?;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(timed(jobs, clock))
}

/// From the start of the worker until the database says that all jobs are finished.
async fn process<Q: Queue>(url: &str, jobs: u64) -> Result<String> {
    let observer = Q::connect(url, 1).await?;
    let clock = Instant::now();
    let worker = Q::work(url).await?;
    // Asking the database is work for it, so it is asked only when every handler was called.
    while STARTED.load(Ordering::Relaxed) < jobs || !observer.all_finished(jobs).await? {
        let done = STARTED.load(Ordering::Relaxed);
        ensure!(clock.elapsed() < PROCESS_WAIT_MAX, "only {done} of {jobs} jobs ran in time");
        sleep(Duration::from_millis(2)).await;
    }
    let answer = timed(jobs, clock);
    let ran = STARTED.load(Ordering::Relaxed);
    ensure!(ran == jobs, "{ran} handler calls for {jobs} jobs");
    // The result stands; a slow stop must not hold up the next peer.
    let _ = timeout(PICKUP_WAIT_MAX, Q::stop(worker)).await;
    Ok(answer)
}

/// One job at a time on an idle worker: from before the enqueue until the handler starts.
async fn pickup<Q: Queue>(url: &str, samples: u64) -> Result<String> {
    let (sender, mut picked_up) = mpsc::unbounded_channel();
    PICKED_UP.set(sender).expect("set only here");
    let queue = Q::connect(url, 1).await?;
    let worker = Q::work(url).await?;
    let mut millis = Vec::new();
    // The first ones pay for connections and plans.
    for number in 0..samples + 20 {
        // Uneven pauses, so that nobody's timer falls into step with ours.
        sleep(Duration::from_millis(8 + number * 7 % 11)).await;
        let clock = Instant::now();
        queue.enqueue_one(number).await?;
        let at = timeout(PICKUP_WAIT_MAX, picked_up.recv()).await.context("a job was not picked up")?;
        millis.push(at.expect("the sender is never dropped").duration_since(clock).as_secs_f64() * 1e3);
    }
    let _ = timeout(PICKUP_WAIT_MAX, Q::stop(worker)).await;
    let mut millis = millis.split_off(20);
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis[((millis.len() - 1) as f64 * share).round() as usize];
    Ok(format!(r#"{{"jobs": {samples}, "p50_ms": {:.3}, "p99_ms": {:.3}}}"#, at(0.5), at(0.99)))
}

fn timed(jobs: u64, clock: Instant) -> String {
    format!(r#"{{"jobs": {jobs}, "seconds": {:.4}}}"#, clock.elapsed().as_secs_f64())
}
