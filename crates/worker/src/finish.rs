//! Recording results: gathered while others run, never for long.
//!
//! A result waits until there are enough for a flush, or nothing else runs, or a few
//! milliseconds have passed. While one flush is being written the next one gathers. Results of one
//! lease entry go together if they can: `sql/functions/lease_entry.sql` says why.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use towpath_db::Error;
use towpath_db::job::{Ended, FailedAttempt, Failure, Lease, LeaseEntry, Unfinished};
use towpath_db::retry::Retry;
use towpath_model::id::JobId;

use crate::handler::{Follow, Output, Result};
use crate::held::{Key, lock};
use crate::limits;
use crate::worker::Shared;

/// An attempt that has ended and is not recorded yet.
pub(crate) struct Finished {
    pub(crate) lease: Lease,
    pub(crate) result: Result<Output>,
    /// Its handler has ended it well, in a transaction of its own.
    pub(crate) acked: bool,
}

/// Results on their way to the database. Bounded by what is held: nothing is claimed beyond.
#[derive(Default)]
pub(crate) struct Finisher {
    state: Mutex<State>,
    /// Something is worth looking at: a first result, enough of them, or the last one.
    changed: Notify,
}

#[derive(Default)]
struct State {
    results: Vec<Finished>,
    /// So many of the first results have been held back once already.
    held_back: usize,
    /// Jobs claimed whose result is not here yet.
    expected: usize,
}

impl Finisher {
    /// So many more results will come.
    pub(crate) fn expect(&self, jobs: usize) {
        lock(&self.state).expected += jobs;
    }

    /// So many will not come after all.
    pub(crate) fn expect_less(&self, jobs: usize) {
        lock(&self.state).expected -= jobs;
        self.changed.notify_one();
    }

    pub(crate) fn push(&self, finished: Finished) {
        let mut state = lock(&self.state);
        state.results.push(finished);
        state.expected -= 1;
        let (count, last) = (state.results.len(), state.expected == 0);
        drop(state);
        if count == 1 || count == limits::FLUSH_MIN || last {
            self.changed.notify_one();
        }
    }

    /// Puts back what could not be recorded.
    fn put_back(&self, finished: Vec<Finished>) {
        lock(&self.state).results.extend(finished);
    }

    /// Waits for results that should be recorded now; none if `until` comes first.
    async fn flush(&self, until: Instant) -> Vec<Finished> {
        let mut flush_at = None;
        loop {
            {
                let mut state = lock(&self.state);
                let (count, last) = (state.results.len(), state.expected == 0);
                let due = flush_at.is_some_and(|at| Instant::now() >= at);
                if count > 0 && (count >= limits::FLUSH_MIN || last || due) {
                    return state.take(!last && !due);
                }
                if count > 0 && flush_at.is_none() {
                    flush_at = Some(Instant::now() + limits::FLUSH_WAIT_MAX);
                }
            }
            let wait_until = flush_at.unwrap_or(until).min(until);
            let timed_out =
                tokio::time::timeout_at(wait_until.into(), self.changed.notified()).await.is_err();
            if timed_out && Instant::now() >= until {
                return vec![];
            }
        }
    }
}

impl State {
    /// Takes what to record now. If there is enough without them, results whose lease entry has jobs that
    /// still run are held back, once: acked whole, an entry costs the database less.
    fn take(&mut self, may_hold_back: bool) -> Vec<Finished> {
        let mut taken = std::mem::take(&mut self.results);
        if may_hold_back {
            self.results = hold_back(&mut taken, self.held_back, |one| one.lease.entry());
        }
        self.held_back = self.results.len();
        if taken.len() > limits::FLUSH_MAX {
            self.results.extend(split_between(&mut taken, limits::FLUSH_MAX, |one| one.lease.entry()));
        }
        taken
    }
}

/// Takes out what is more than `max`, between two lease entries if it can.
fn split_between<T>(all: &mut Vec<T>, max: usize, entry_of: impl Fn(&T) -> Option<LeaseEntry>) -> Vec<T> {
    all.sort_by_key(&entry_of);
    let last = entry_of(&all[max]);
    let begin = all.partition_point(|one| entry_of(one) < last);
    all.split_off(if begin > 0 { begin } else { max })
}

/// Takes those out, behind the first `fixed` ones, that are not all of their lease entry; none if too few would be left.
fn hold_back<T>(all: &mut Vec<T>, fixed: usize, entry_of: impl Fn(&T) -> Option<LeaseEntry>) -> Vec<T> {
    let mut here: HashMap<i64, usize> = HashMap::new();
    for entry in all.iter().filter_map(&entry_of) {
        *here.entry(entry.number).or_default() += 1;
    }
    let is_part = |one: &T| entry_of(one).is_some_and(|entry| here[&entry.number] < entry.jobs);
    let fixed = fixed.min(all.len());
    let parts = all[fixed..].iter().filter(|one| is_part(one)).count();
    if all.len() - parts < limits::FLUSH_MIN / 2 {
        return Vec::new();
    }
    all.extract_if(fixed.., |one| is_part(one)).collect()
}

impl Shared {
    /// Records results until told to stop and nothing is left.
    pub(crate) async fn record(self: Arc<Self>, stop: CancellationToken) {
        let mut retry = Retry::of("recording results");
        loop {
            let stopping = stop.is_cancelled();
            let wait = if stopping { Duration::ZERO } else { limits::RENEW_LOOK_EVERY };
            match self.record_once(Instant::now() + wait).await {
                Ok(0) if stopping => return,
                Ok(_) => retry.succeeded(),
                // The results wait in memory.
                Err(error) => tokio::time::sleep(retry.failed(&error)).await,
            }
            if stopping && self.gave_up() {
                return;
            }
        }
    }

    /// After a drain has ended the results have had their time; leases run out by themselves.
    fn gave_up(&self) -> bool {
        self.abort.is_cancelled() && self.held.len() == 0
    }

    /// Records one flush that is ready before `until`; answers how many results that were.
    pub(crate) async fn record_once(&self, until: Instant) -> std::result::Result<usize, Error> {
        let finished = self.finished(until).await;
        let count = finished.len();
        self.record_all(finished).await.map(|()| count)
    }

    /// Waits for results that should be recorded now; none if `until` comes first.
    pub(crate) async fn finished(&self, until: Instant) -> Vec<Finished> {
        self.finisher.flush(until).await
    }

    /// Records results, and puts back those that the database did not answer for.
    pub(crate) async fn record_all(&self, finished: Vec<Finished>) -> std::result::Result<(), Error> {
        let (mut acks, mut answers, mut failures, mut snoozes) = (vec![], vec![], vec![], vec![]);
        for Finished { lease, result, acked } in finished {
            match result {
                // If that transaction was rolled back, the lease runs out.
                Ok(_) if acked => self.held.forget([(lease.job_id(), lease.attempt())]),
                Ok(output) => match output.into_json() {
                    None => acks.push(lease),
                    Some(result) => answers.push(lease.with_result(result)),
                },
                Err(failure) => match failure.follow {
                    Follow::Retry(after) => {
                        let failure =
                            Failure { error: cut(failure.error), permanent: false, retry_after: after };
                        failures.push(FailedAttempt { lease, failure });
                    }
                    Follow::Permanent => {
                        failures
                            .push(FailedAttempt { lease, failure: Failure::permanent(cut(failure.error)) });
                    }
                    Follow::Snooze(by) => snoozes.push((lease, by)),
                    Follow::Suspended => acks.push(lease),
                },
            }
        }
        // Each is tried, and puts back what it could not do. Without results, lease entries can be acked whole.
        let acked = self.ack(acks).await.and(self.ack(answers).await);
        let mut failed = Ok(());
        while !failures.is_empty() {
            let rest = failures.split_off(failures.len().min(limits::FAIL_MAX));
            failed = failed.and(self.fail(failures).await);
            failures = rest;
        }
        let snoozed = self.snooze(snoozes).await;
        acked.and(failed).and(snoozed)
    }

    async fn ack(&self, leases: Vec<Lease>) -> std::result::Result<(), Error> {
        let finished = |mut lease: Lease| {
            let result = Ok(Output::from_json(lease.take_result()));
            Finished { lease, result, acked: false }
        };
        // A result that the database does not take is the handler's error.
        let refused = |mut lease: Lease, error: &Error| {
            lease.take_result()?;
            let result = Err(crate::Failure::permanent(format!("the result was refused: {error}")));
            Some(Finished { lease, result, acked: false })
        };
        self.end(leases, |lease| lease, finished, refused, |batch| self.database.ack_many(batch)).await
    }

    async fn fail(&self, failed: Vec<FailedAttempt>) -> std::result::Result<(), Error> {
        let finished = |FailedAttempt { lease, failure }| {
            let follow = match failure.permanent {
                true => Follow::Permanent,
                false => Follow::Retry(failure.retry_after),
            };
            Finished { lease, result: Err(crate::Failure { error: failure.error, follow }), acked: false }
        };
        self.end(failed, |one| &one.lease, finished, |_, _| None, |batch| self.database.fail_many(batch))
            .await
    }

    async fn end<T, F>(
        &self,
        attempts: Vec<T>,
        lease_of: impl Fn(&T) -> &Lease,
        finished: impl Fn(T) -> Finished,
        refused_as: impl Fn(T, &Error) -> Option<Finished>,
        record: impl Fn(Vec<T>) -> F,
    ) -> std::result::Result<(), Error>
    where
        F: Future<Output = std::result::Result<Ended, Unfinished<T>>>,
    {
        let key_of = |one: &T| (lease_of(one).job_id(), lease_of(one).attempt());
        let mut over: HashSet<Key> = attempts.iter().map(key_of).collect();
        let Recorded { lost, refused, unfinished } = record_or_halve(attempts, record).await;
        for job_id in lost {
            // Cancelled, reaped, or recorded by an earlier call whose answer got lost.
            tracing::debug!(%job_id, "the result came too late: the attempt had ended");
        }
        for (one, error) in refused {
            let (key, job_id) = (key_of(&one), lease_of(&one).job_id());
            match refused_as(one, &error) {
                Some(other) => {
                    over.remove(&key);
                    self.finisher.put_back(vec![other]);
                }
                None => {
                    tracing::error!(%job_id, "the database refused the result; its lease will expire: {error}");
                }
            }
        }
        let done = match unfinished {
            None => Ok(()),
            Some(Unfinished { error, attempts }) => {
                for key in attempts.iter().map(key_of) {
                    over.remove(&key);
                }
                self.finisher.put_back(attempts.into_iter().map(finished).collect());
                Err(error)
            }
        };
        self.held.forget(over);
        done
    }

    /// Rare, so one at a time. A snooze that could not be recorded is a lease that runs out.
    async fn snooze(&self, leases: Vec<(Lease, Duration)>) -> std::result::Result<(), Error> {
        for (lease, by) in leases {
            let key = (lease.job_id(), lease.attempt());
            let snoozed = lease.snooze(&self.database, by, "").await;
            self.held.forget([key]);
            match snoozed {
                Ok(_) | Err(Error::LeaseLost(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What became of attempts that were to be recorded.
struct Recorded<T> {
    /// Ended by another worker, the reaper or an operator.
    lost: Vec<JobId>,
    /// Refused for good.
    refused: Vec<(T, Error)>,
    /// Not recorded, because the database did not answer.
    unfinished: Option<Unfinished<T>>,
}

/// Records attempts together. If the database refuses some, halves them until the refused one is alone.
async fn record_or_halve<T, F>(attempts: Vec<T>, record: impl Fn(Vec<T>) -> F) -> Recorded<T>
where
    F: Future<Output = std::result::Result<Ended, Unfinished<T>>>,
{
    let mut recorded = Recorded { lost: vec![], refused: vec![], unfinished: None };
    let mut batches = vec![attempts];
    while let Some(batch) = batches.pop() {
        match record(batch).await {
            Ok(ended) => recorded.lost.extend(ended.lost),
            Err(Unfinished { error, mut attempts }) if is_refusal(&error) => match attempts.len() {
                1 => recorded.refused.extend(attempts.pop().map(|one| (one, error))),
                count => {
                    let half = attempts.split_off(count / 2);
                    batches.extend([half, attempts]);
                }
            },
            Err(Unfinished { error, mut attempts }) => {
                attempts.extend(batches.into_iter().flatten());
                recorded.unfinished = Some(Unfinished { error, attempts });
                break;
            }
        }
    }
    recorded
}

/// Whether the database understood and said no for good, rather than not answering.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Invalid(_) | Error::Unreadable(_) => true,
        // Class 57 is a server that is stopping or starting, 40 and 55 are conflicts that pass.
        Error::Postgres(error) => error.code().is_some_and(|code| {
            !["57", "40", "55", "53", "08"].iter().any(|class| code.code().starts_with(class))
        }),
        _ => false,
    }
}

fn cut(mut error: String) -> String {
    if error.len() > limits::ERROR_BYTES_MAX {
        error.truncate(error.floor_char_boundary(limits::ERROR_BYTES_MAX));
    }
    // PostgreSQL has no text with a zero byte in it.
    error.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_of(number: i64, jobs: usize, here: usize) -> Vec<LeaseEntry> {
        vec![LeaseEntry { number, jobs }; here]
    }

    #[tokio::test]
    async fn a_refused_result_does_not_keep_the_others_from_being_recorded() {
        let done = Mutex::new(vec![]);
        let record = |batch: Vec<u32>| async {
            if batch.contains(&5) {
                return Err(Unfinished { error: Error::Invalid("five".to_owned()), attempts: batch });
            }
            lock(&done).extend(batch);
            Ok(Ended::default())
        };
        let recorded = record_or_halve((0..9).collect(), record).await;
        assert_eq!(lock(&done).as_slice(), [0, 1, 2, 3, 4, 6, 7, 8]);
        assert!(matches!(recorded.refused.as_slice(), [(5, Error::Invalid(_))]));
        assert!(recorded.unfinished.is_none());
    }

    #[tokio::test]
    async fn results_are_kept_when_the_database_stops_answering_between_two_halves() {
        let calls = Mutex::new(0);
        let record = |attempts: Vec<u32>| async {
            *lock(&calls) += 1;
            Err(match *lock(&calls) {
                1 => Unfinished { error: Error::Invalid("one of them".to_owned()), attempts },
                _ => Unfinished { error: Error::Unreachable("no server".to_owned()), attempts },
            })
        };
        let recorded = record_or_halve(vec![1, 2, 3, 4], record).await;
        let left = recorded.unfinished.map(|left| (left.attempts, left.error.is_passing()));
        assert_eq!(left, Some((vec![1, 2, 3, 4], true)));
    }

    #[test]
    fn parts_of_a_lease_entry_are_held_back_once() {
        let whole = some_of(1, limits::FLUSH_MIN, limits::FLUSH_MIN);
        let part = some_of(2, 240, 100);
        let mut all = [whole.clone(), part.clone()].concat();
        let held = hold_back(&mut all, 0, |one| Some(*one));
        assert_eq!((all, held), (whole.clone(), part.clone()));
        // The next time they go, complete or not; what came after them may wait.
        let newer = some_of(3, 240, 7);
        let mut all = [part.clone(), whole.clone(), newer.clone()].concat();
        let held = hold_back(&mut all, part.len(), |one| Some(*one));
        assert_eq!((all, held), ([part, whole].concat(), newer));
    }

    #[test]
    fn too_many_are_cut_between_lease_entries() {
        let mut all = [some_of(2, 240, 240), some_of(1, 240, 200)].concat();
        let rest = split_between(&mut all, 300, |one| Some(*one));
        assert_eq!((all, rest), (some_of(1, 240, 200), some_of(2, 240, 240)));
        let mut all = some_of(1, 400, 400);
        assert_eq!(split_between(&mut all, 300, |one| Some(*one)).len(), 100);
        let mut all = vec![(); 400];
        assert_eq!(split_between(&mut all, 300, |()| None).len(), 100);
    }

    #[test]
    fn nothing_is_held_back_when_little_would_be_left() {
        let mut all = [some_of(1, 240, 240), some_of(2, 600, 599)].concat();
        assert!(hold_back(&mut all, 0, |one| Some(*one)).is_empty());
        assert_eq!(all.len(), 839);
        // Leases from elsewhere have no entry and are not held back.
        let mut all = vec![(); 900];
        assert!(hold_back(&mut all, 0, |()| None).is_empty());
    }
}
