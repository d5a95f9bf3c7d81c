//! The fetcher: the one place of a process that claims.
//!
//! Few large claims instead of many small ones. Pools with room are served at once; a pool
//! whose lanes are empty is armed and left alone until a notification, the next due job
//! or the poll. The poll is the truth: notifications only make it early.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use towpath_db::Error;
use towpath_db::job::{Claim, ClaimedJob, Listener};
use towpath_db::retry::{Retry, grace_over, jittered};

use crate::handler::take_apart;
use crate::limits;
use crate::pool::{Pool, Work};
use crate::worker::Worker;

/// What a round of claims found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// All that was wanted: there may be more.
    All,
    /// Some, but less than wanted.
    Some,
    /// Nothing, though jobs were wanted.
    Nothing,
    /// Nothing was wanted.
    Full,
}

/// Claims until `shutdown`.
pub(crate) async fn run(worker: &Worker, shutdown: &CancellationToken) {
    let mut listening = Listening::new(worker);
    let mut poll = limits::POLL_MIN;
    let mut retry = Retry::of("claiming jobs");
    while !shutdown.is_cancelled() {
        let named = listening.named();
        // A claim is not dropped half-way: its leases would have to run out. But a database
        // that does not answer at all cannot keep the process from ending.
        let round = tokio::select! {
            found = round(worker, &named) => found,
            () = grace_over(shutdown, limits::LAST_CLAIM_WAIT_MAX) => return,
        };
        let wait = match round {
            Ok(Found::All) => {
                retry.succeeded();
                poll = limits::POLL_MIN;
                continue;
            }
            Ok(Found::Some) => {
                retry.succeeded();
                poll = limits::POLL_MIN;
                Wait::For(jittered(limits::COOL_DOWN))
            }
            Ok(Found::Full) => {
                retry.succeeded();
                Wait::Full
            }
            Ok(Found::Nothing) => {
                retry.succeeded();
                match arm(worker, &mut listening, &mut poll).await {
                    Ok(wait) => wait,
                    Err(error) => Wait::For(retry.failed(&error)),
                }
            }
            Err(error) => Wait::For(retry.failed(&error)),
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = wait.out(worker, &listening) => {}
        }
    }
}

/// Claims once for every pool that wants jobs, first for those of the named kinds: a job that a worker was woken for does not
/// wait for looks at empty lanes.
async fn round(worker: &Worker, named: &HashSet<String>) -> Result<Found, Error> {
    let mut found = Found::Full;
    if !worker.shared.may_claim() {
        return Ok(found);
    }
    let is_named = |pool: &&Pool| pool.kinds.iter().any(|kind| named.contains(kind));
    let (first, then): (Vec<&Pool>, Vec<&Pool>) = worker.shared.pools.iter().partition(is_named);
    for pool in first.into_iter().chain(then) {
        let wanted = pool.wants();
        if wanted == 0 {
            continue;
        }
        let jobs = claim(worker, pool, wanted).await?;
        pool.set_found_less(jobs.len() < wanted);
        found = match (jobs.len(), found) {
            (count, _) if count == wanted => Found::All,
            (_, Found::All) => Found::All,
            (0, Found::Full | Found::Nothing) => Found::Nothing,
            _ => Found::Some,
        };
        worker.shared.begin(pool, jobs);
    }
    Ok(found)
}

/// One claim for one pool, with the leases taken in.
pub(crate) async fn claim(worker: &Worker, pool: &Pool, wanted: usize) -> Result<Vec<Work>, Error> {
    // From before the call: the lease may be as old as that.
    let asked_at = Instant::now();
    let claim = Claim {
        executor: &worker.executor,
        kinds: Some(&pool.kinds),
        limit: i32::try_from(wanted).unwrap_or(i32::MAX),
        owner: &worker.shared.owner,
        lease: Some(worker.lease),
    };
    let jobs: Vec<ClaimedJob> = worker.shared.database.claim(&claim).await?;
    let mut leases = Vec::with_capacity(jobs.len());
    let mut rest = Vec::with_capacity(jobs.len());
    for job in jobs {
        let (lease, payload, about) = take_apart(job);
        leases.push(lease);
        rest.push((payload, about));
    }
    let held = worker.shared.held.take_in(leases, asked_at);
    let work = held.into_iter().zip(rest).map(|(held, (payload, about))| Work {
        held,
        payload,
        about,
        claimed_at: asked_at,
    });
    Ok(work.collect())
}

/// Nothing is there: arms, looks once more, and says how long to sleep.
async fn arm(worker: &Worker, listening: &mut Listening, poll: &mut Duration) -> Result<Wait, Error> {
    let is_open = listening.open(worker).await;
    let mut next_due = None;
    if is_open {
        for pool in worker.shared.pools.iter().filter(|pool| pool.wants() > 0) {
            let armed = worker.shared.database.arm(&worker.executor, Some(&pool.kinds)).await?;
            next_due = [next_due, armed.next_due_at].into_iter().flatten().min();
        }
        // A job that came between the last look and the flag did not notify.
        match round(worker, &listening.named()).await? {
            Found::Nothing => {}
            Found::Full => return Ok(Wait::Full),
            Found::Some | Found::All => {
                *poll = limits::POLL_MIN;
                return Ok(Wait::For(jittered(limits::COOL_DOWN)));
            }
        }
    }
    let wait = jittered(*poll);
    let slowest = if is_open { limits::POLL_LISTENING_MAX } else { limits::POLL_ALONE_MAX };
    *poll = (*poll * 2).min(slowest);
    let due = next_due.map(until).unwrap_or(wait);
    Ok(Wait::Idle(wait.min(due)))
}

/// Why the fetcher sleeps, and so what wakes it.
enum Wait {
    For(Duration),
    Full,
    Idle(Duration),
}

impl Wait {
    async fn out(self, worker: &Worker, listening: &Listening) {
        match self {
            Wait::For(time) => tokio::time::sleep(time).await,
            // The renewer may have stopped claims, and does not notify when they may go on.
            Wait::Full => {
                let _ =
                    tokio::time::timeout(limits::RENEW_LOOK_EVERY, worker.shared.has_room.notified()).await;
            }
            // One pool may have found nothing while another was only full.
            Wait::Idle(time) => tokio::select! {
                () = listening.woken() => {}
                () = worker.shared.has_room.notified() => {}
                () = tokio::time::sleep(time) => {}
            },
        }
    }
}

/// The connection that listens, opened when first needed and again when it breaks.
struct Listening {
    listener: Option<Listener>,
    wanted: bool,
    try_again_at: Instant,
}

impl Listening {
    fn new(worker: &Worker) -> Listening {
        Listening { listener: None, wanted: worker.listen, try_again_at: Instant::now() }
    }

    /// Opens the connection if it has to; returns whether it is open.
    async fn open(&mut self, worker: &Worker) -> bool {
        if self.listener.as_ref().is_some_and(Listener::is_broken) {
            self.listener = None;
        }
        if self.wanted && self.listener.is_none() && Instant::now() >= self.try_again_at {
            match Listener::open(&worker.shared.database).await {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => {
                    tracing::warn!("cannot listen for new jobs, polling instead: {error}");
                    self.try_again_at = Instant::now() + limits::HEARTBEAT_EVERY;
                }
            }
        }
        self.listener.is_some()
    }

    /// The kinds that the worker was woken for.
    fn named(&self) -> HashSet<String> {
        self.listener.as_ref().map(Listener::take_named).unwrap_or_default()
    }

    async fn woken(&self) {
        match &self.listener {
            Some(listener) => listener.woken().await,
            None => std::future::pending().await,
        }
    }
}

fn until(due: Timestamp) -> Duration {
    due.duration_since(Timestamp::now()).try_into().unwrap_or(Duration::ZERO).max(Duration::from_millis(1))
}
