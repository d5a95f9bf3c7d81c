//! The keeper: ends streams that have expired, writes renewed lives to the log, and applies
//! retention.

use std::cmp::Reverse;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::sync::oneshot;
use towpath_model::stream::name::StreamName;

use super::queue::{Change, Reply};
use super::reader::ReadPlan;
use super::shared::Shared;
use super::stream::Stream;
use crate::limits::{KEEPER_EVERY, REAP_STREAMS, SLOTS_PER_LOCK};
use crate::{Error, Head, List};

/// Keeps until shut.
pub(super) fn run(shared: &Shared) {
    while shared.pause(KEEPER_EVERY) {
        match run_once(shared) {
            Ok(_) | Err(Error::ShutDown | Error::Poisoned(_) | Error::Busy(_) | Error::DiskFull) => {}
            Err(error) => tracing::warn!(%error, "cannot expire streams, will retry"),
        }
    }
}

/// Does what is due now, and answers how many streams it ended.
pub(super) fn run_once(shared: &Shared) -> Result<usize, Error> {
    save_uses(shared);
    trim(shared)?;
    let mut ended = 0;
    loop {
        let (mut due, is_last) = due(shared);
        if due.is_empty() && is_last {
            return Ok(ended);
        }
        if due.is_empty() {
            continue;
        }
        // In the order of their ids: the order decides what comes first in a session's stream.
        due.sort_unstable();
        let expired = submit(shared, |reply| Change::Expire { ids: due.clone(), reply });
        // Whatever could not be ended now is checked again soon.
        again(shared, &due);
        ended += expired?;
    }
}

/// Expired streams, at most as many as one change ends, and whether these are all. Renewed ones
/// are put back. The number of streams checked is bounded, because the lock must be short.
fn due(shared: &Shared) -> (Vec<u64>, bool) {
    let now = shared.now();
    let mut index = shared.index_mut();
    let mut due = Vec::new();
    for _ in 0..4 * REAP_STREAMS {
        let next = index.ends.peek().copied().filter(|Reverse((at, _))| *at <= now);
        let Some(Reverse((_, id))) = next else { return (due, true) };
        if due.len() == REAP_STREAMS {
            break;
        }
        index.ends.pop();
        match index.get(id).filter(|stream| !stream.deleted).and_then(Stream::ends_at) {
            Some(ends_at) if ends_at > now => index.ends.push(Reverse((ends_at, id))),
            Some(_) => due.push(id),
            None => {}
        }
    }
    (due, false)
}

fn again(shared: &Shared, ids: &[u64]) {
    let soon = shared.now() + 1_000;
    let mut index = shared.index_mut();
    for id in ids {
        if let Some(ends_at) = index.get(*id).filter(|stream| !stream.deleted).and_then(Stream::ends_at) {
            index.ends.push(Reverse((ends_at.max(soon), *id)));
        }
    }
}

/// Writes lives that reading has renewed to the log.
pub(super) fn save_uses(shared: &Shared) {
    let ids = std::mem::take(&mut *shared.used.lock().unwrap_or_else(PoisonError::into_inner));
    let uses: Vec<(u64, u64)> = {
        let index = shared.index();
        let used = |id| Some((id, index.get(id)?.used_at.load(std::sync::atomic::Ordering::Relaxed)));
        ids.into_iter().filter_map(used).collect()
    };
    if !uses.is_empty()
        && let Err(error) = submit(shared, |reply| Change::Touch { uses, reply })
    {
        tracing::debug!(%error, "cannot write renewed lives of streams");
    }
}

/// Drops data beyond the retention of its stream.
fn trim(shared: &Shared) -> Result<(), Error> {
    let ids: Vec<u64> = shared.index().retained.iter().copied().collect();
    mark(shared, &ids)?;
    for id in ids {
        let Some((name, plan)) = trim_point(shared, id)? else { continue };
        let start = plan.boundary_before()?;
        match submit(shared, |reply| Change::Trim { id, name, start, reply }) {
            Ok(_) | Err(Error::NotFound(_) | Error::Deleted(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Marks streams without new appends, so that their last data ages too.
fn mark(shared: &Shared, ids: &[u64]) -> Result<(), Error> {
    let now = shared.now();
    for some in ids.chunks(SLOTS_PER_LOCK) {
        let index = shared.index();
        let due = |id: &u64| index.get(*id).is_some_and(|stream| !stream.deleted && stream.wants_mark(now));
        let ids: Vec<u64> = some.iter().copied().filter(due).collect();
        drop(index);
        if !ids.is_empty() {
            submit(shared, |reply| Change::Mark { ids, reply })?;
        }
    }
    Ok(())
}

/// Where a stream should begin, if that is after its start.
fn trim_point(shared: &Shared, id: u64) -> Result<Option<(StreamName, ReadPlan)>, Error> {
    let now = shared.now();
    shared.pull(id);
    let index = shared.index();
    let Some(stream) = index.get(id).filter(|stream| !stream.deleted) else { return Ok(None) };
    let retention = stream.retention();
    let by_size = retention.bytes.map_or(0, |bytes| stream.tail.saturating_sub(bytes));
    let by_age = match (retention.age_seconds, &stream.more) {
        (Some(age), Some(more)) => {
            let cutoff = now.saturating_sub(age.saturating_mul(1000));
            let old = more.marks.iter().take_while(|(at, _)| *at <= cutoff);
            old.last().map_or(0, |(_, offset)| *offset)
        }
        _ => 0,
    };
    let before = by_size.max(by_age);
    // A sixteenth of slack, so that a stream at its limit is not trimmed message by message.
    let slack = retention.bytes.unwrap_or(0) / 16;
    if before <= stream.start || (before == by_size && before - stream.start < slack) {
        return Ok(None);
    }
    Ok(Some((stream.name.clone(), ReadPlan::new(&index, stream, before, 1)?)))
}

/// Streams of a project in the order of their ids, a few per lock.
pub(super) fn list(shared: &Shared, list: &List) -> Vec<(StreamName, Head)> {
    let now = shared.now();
    let mut found: Vec<(StreamName, Head)> = Vec::new();
    let mut after: Option<Arc<str>> = list.after.as_deref().map(Into::into);
    loop {
        let index = shared.index();
        let count = (list.limit - found.len()).min(SLOTS_PER_LOCK);
        let ids = index.ids(&list.project, &list.prefix, after.as_deref(), count);
        for id in &ids {
            let name = StreamName { project: list.project.clone(), id: id.clone() };
            let stream = index.named(&name).filter(|stream| !stream.deleted && !stream.has_expired(now));
            found.extend(stream.map(|stream| (stream.name.clone(), index.head(stream))));
        }
        after = ids.last().cloned();
        if ids.len() < count || found.len() == list.limit {
            return found;
        }
    }
}

/// Hands a change to the committer and blocks until it is answered.
pub(super) fn submit<T>(shared: &Shared, change: impl FnOnce(Reply<T>) -> Change) -> Result<T, Error> {
    let (reply, answer) = oneshot::channel();
    shared.push(change(reply))?;
    wait(answer)
}

/// tokio's blocking receive panics inside a runtime, where the last handle may be dropped.
fn wait<T>(answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // Outside a task, tokio's budget of polls would never be renewed.
    let mut answer = pin!(tokio::task::unconstrained(answer));
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answered) => return answered.unwrap_or(Err(Error::ShutDown)),
            Poll::Pending => thread::park(),
        }
    }
}
