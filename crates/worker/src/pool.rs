//! Pools: jobs waiting in memory, and how many of them may run at once.
//!
//! Kinds without a number of their own share one pool; a kind with one has its own. A pool
//! decides how many jobs it wants: as many as its slots can start within the horizon, by
//! how long jobs have taken lately. Short jobs are claimed far ahead, long ones not at all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::handler::About;
use crate::held::{HeldJob, lock};
use crate::limits;

/// One job in memory.
pub(crate) struct Work {
    pub(crate) held: Arc<HeldJob>,
    pub(crate) payload: Box<RawValue>,
    pub(crate) about: Arc<About>,
    pub(crate) claimed_at: Instant,
}

/// Jobs of some kinds, waiting and running.
pub(crate) struct Pool {
    pub(crate) kinds: Vec<String>,
    concurrency: usize,
    state: Mutex<State>,
    /// The last claim found less than it wanted: a free slot is no reason to look again.
    found_less: AtomicBool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    running: usize,
    /// How long a job takes, lately. None before the first has ended.
    seconds_per_job: Option<f64>,
}

/// The answer to a slot that asks for its next job.
pub(crate) enum Next {
    /// Run this.
    Work(Work),
    /// Nothing waits: the slot ends.
    Nothing,
}

impl Pool {
    pub(crate) fn new(kinds: Vec<String>, concurrency: usize) -> Pool {
        Pool { kinds, concurrency, state: Mutex::default(), found_less: AtomicBool::new(false) }
    }

    /// Takes jobs in and says how many new slots to start for them.
    pub(crate) fn put(&self, jobs: impl IntoIterator<Item = Work>) -> usize {
        let mut state = lock(&self.state);
        state.waiting.extend(jobs);
        let slots = (self.concurrency - state.running).min(state.waiting.len());
        state.running += slots;
        slots
    }

    /// Notes whether a claim found less than it wanted.
    pub(crate) fn set_found_less(&self, less: bool) {
        self.found_less.store(less, Ordering::Relaxed);
    }

    /// The next job for a slot; `last` is how long its last one took. The flag says that the pool has
    /// room and that there may be more jobs.
    pub(crate) fn take(&self, last: Option<Duration>) -> (Next, bool) {
        let mut state = lock(&self.state);
        if let Some(last) = last {
            state.learn(last);
        }
        let next = match state.waiting.pop_front() {
            Some(work) => Next::Work(work),
            None => {
                state.running -= 1;
                Next::Nothing
            }
        };
        (next, !self.found_less.load(Ordering::Relaxed) && state.wants(self.concurrency) > 0)
    }

    /// How many jobs to claim now; 0 until a claim is worth it.
    pub(crate) fn wants(&self) -> usize {
        lock(&self.state).wants(self.concurrency)
    }

    /// Takes out everything that waits, if the first has waited too long: jobs have become
    /// slower than they were, and others may be idle. What it learned from that keeps the
    /// pool from claiming as far ahead again.
    pub(crate) fn take_overdue(&self, patience: Duration) -> Vec<Work> {
        let mut state = lock(&self.state);
        let waited = state.waiting.front().map_or(Duration::ZERO, |work| work.claimed_at.elapsed());
        if waited < patience {
            return vec![];
        }
        state.seconds_per_job = Some(state.seconds_per_job.unwrap_or(0.0).max(waited.as_secs_f64()));
        state.waiting.drain(..).collect()
    }

    /// Takes out what has not begun.
    pub(crate) fn empty(&self) -> Vec<Work> {
        lock(&self.state).waiting.drain(..).collect()
    }
}

impl State {
    fn learn(&mut self, last: Duration) {
        const SHARE: f64 = 1.0 / 16.0;
        let last = last.as_secs_f64();
        self.seconds_per_job =
            Some(self.seconds_per_job.map_or(last, |before| before + (last - before) * SHARE));
    }

    fn wants(&self, concurrency: usize) -> usize {
        let ahead = ahead(concurrency, self.seconds_per_job);
        let (room, has) = (concurrency + ahead, self.running + self.waiting.len());
        let wants = room.saturating_sub(has);
        let idle_slots = self.waiting.is_empty() && self.running < concurrency;
        if idle_slots || wants > ahead / 2 { wants } else { 0 }
    }
}

/// How many jobs to hold beyond those that run.
fn ahead(concurrency: usize, seconds_per_job: Option<f64>) -> usize {
    let Some(seconds) = seconds_per_job else { return 0 };
    let within_horizon = concurrency as f64 * limits::PREFETCH_HORIZON.as_secs_f64() / seconds.max(1e-9);
    // Saturates: a float that is too large becomes the largest integer.
    (within_horizon as usize).min(limits::PREFETCH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_claimed_far_ahead_and_long_ones_not_at_all() {
        assert_eq!(ahead(64, None), 0, "nothing is known yet");
        assert_eq!(ahead(64, Some(0.000_001)), limits::PREFETCH_MAX);
        assert_eq!(ahead(10, Some(0.1)), 20, "two rounds fit the horizon");
        assert_eq!(ahead(10, Some(60.0)), 0);
    }

    #[test]
    fn a_pool_with_idle_slots_wants_jobs_and_a_full_one_does_not() {
        let mut state = State { running: 10, seconds_per_job: Some(60.0), ..State::default() };
        assert_eq!(state.wants(10), 0);
        state.running = 9;
        assert_eq!(state.wants(10), 1);
        // With work ahead, a claim waits until it is worth one.
        state.seconds_per_job = Some(0.001);
        state.running = 10;
        assert_eq!(state.wants(10), 2_000);
    }

    #[test]
    fn the_time_of_a_job_is_learned_slowly() {
        let mut state = State::default();
        state.learn(Duration::from_millis(16));
        state.learn(Duration::ZERO);
        assert!((state.seconds_per_job.expect("two have ended") - 0.015).abs() < 1e-9);
    }
}
