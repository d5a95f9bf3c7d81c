//! The leases this process holds, from the claim until their end is recorded.
//!
//! One place knows all of them, so that renewing does not depend on what a job is doing:
//! waiting for a slot, running, or waiting for its result to be written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use towpath_db::job::Lease;
use towpath_model::job::{Attempt, JobId};

pub(crate) type Key = (JobId, Attempt);

/// One attempt in hand.
pub(crate) struct HeldJob {
    pub(crate) key: Key,
    /// What the attempt still does will not count.
    pub(crate) lost: CancellationToken,
    /// The attempt ends with a transaction of its handler, which holds locks: it is not renewed.
    pub(crate) acked: AtomicBool,
    /// Taken by what ends the attempt: the slot that ran it, or a drain that gave up.
    lease: Mutex<Option<Lease>>,
    times: Mutex<Times>,
    pub(crate) shown_started: AtomicBool,
    /// The worker stops and asked the handler to end: a failure now is not the job's fault.
    pub(crate) interrupted: AtomicBool,
}

struct Times {
    renewed_at: Instant,
    began_at: Option<Instant>,
}

impl HeldJob {
    fn new(lease: Lease, claimed_at: Instant) -> HeldJob {
        HeldJob {
            key: (lease.job_id(), lease.attempt()),
            lost: CancellationToken::new(),
            acked: AtomicBool::new(false),
            lease: Mutex::new(Some(lease)),
            times: Mutex::new(Times { renewed_at: claimed_at, began_at: None }),
            shown_started: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
        }
    }

    /// The lease, for the first caller.
    pub(crate) fn take_lease(&self) -> Option<Lease> {
        lock(&self.lease).take()
    }

    /// The handler begins now.
    pub(crate) fn begin(&self, now: Instant) {
        lock(&self.times).began_at = Some(now);
    }

    /// Asks the handler to end because the worker does.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.lost.cancel();
    }

    /// Whether its end is in a transaction of its handler.
    pub(crate) fn is_acked(&self) -> bool {
        self.acked.load(Ordering::Relaxed)
    }

    fn runs_longer_than(&self, time: Duration) -> bool {
        lock(&self.times).began_at.is_some_and(|began| began.elapsed() >= time)
    }
}

/// All attempts in hand.
#[derive(Default)]
pub(crate) struct Held {
    jobs: Mutex<HashMap<Key, Arc<HeldJob>>>,
}

impl Held {
    /// Takes leases in, in the order of the claim.
    pub(crate) fn take_in(&self, leases: Vec<Lease>, claimed_at: Instant) -> Vec<Arc<HeldJob>> {
        let mut jobs = lock(&self.jobs);
        let take = |lease| {
            let job = Arc::new(HeldJob::new(lease, claimed_at));
            jobs.insert(job.key, job.clone());
            job
        };
        leases.into_iter().map(take).collect()
    }

    /// Forgets attempts that have ended.
    pub(crate) fn forget(&self, keys: impl IntoIterator<Item = Key>) {
        let mut jobs = lock(&self.jobs);
        for key in keys {
            jobs.remove(&key);
        }
    }

    /// Drops attempts that another worker has now, and cancels their handlers.
    pub(crate) fn lose(&self, asked: &[Key], lost: &[JobId]) {
        let mut jobs = lock(&self.jobs);
        for key in asked.iter().filter(|(job_id, _)| lost.contains(job_id)) {
            if let Some(job) = jobs.remove(key) {
                job.lost.cancel();
            }
        }
    }

    /// Attempts whose lease was taken or renewed longer ago than this.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<Key> {
        let old = |job: &&Arc<HeldJob>| !job.is_acked() && lock(&job.times).renewed_at.elapsed() >= age;
        lock(&self.jobs).values().filter(old).map(|job| job.key).collect()
    }

    /// Notes a renewal that was asked for at this moment.
    pub(crate) fn renewed(&self, keys: &[Key], at: Instant) {
        let jobs = lock(&self.jobs);
        for job in keys.iter().filter_map(|key| jobs.get(key)) {
            lock(&job.times).renewed_at = at;
        }
    }

    /// Attempts that run longer than this and are not shown as in progress yet.
    pub(crate) fn to_show_started(&self, after: Duration) -> Vec<Key> {
        let unseen = |job: &&Arc<HeldJob>| {
            !job.shown_started.load(Ordering::Relaxed) && !job.is_acked() && job.runs_longer_than(after)
        };
        lock(&self.jobs).values().filter(unseen).map(|job| job.key).collect()
    }

    /// Notes that they are shown now.
    pub(crate) fn shown_started(&self, keys: &[Key]) {
        let jobs = lock(&self.jobs);
        for job in keys.iter().filter_map(|key| jobs.get(key)) {
            job.shown_started.store(true, Ordering::Relaxed);
        }
    }

    /// Everything in hand.
    pub(crate) fn all(&self) -> Vec<Arc<HeldJob>> {
        lock(&self.jobs).values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.jobs).len()
    }
}

/// Nothing here panics while it holds a lock, and a poisoned one is no worse for it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
