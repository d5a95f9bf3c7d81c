//! What waits for the committer.
//!
//! Everything that waits when the committer comes is one commit. The queue is bounded by
//! number and by bytes; beyond that the caller hears that the store is busy.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::record::Fork;
use crate::limits::QUEUE_CHANGES_MAX;
use crate::{
    Append, Appended, Create, Created, Error, FanOut, FannedOut, Messages, Published, Retention,
    RetentionChange, Subscribe, Subscribed,
};

/// Sleeping less than this costs more than it brings: the kernel's timers are coarser.
const PATIENCE_MIN: Duration = Duration::from_micros(50);

/// How a waiting caller hears.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A change that somebody wants.
pub(super) enum Wanted {
    Create { name: StreamName, create: Box<Create>, fork: Option<Box<Fork>>, reply: Reply<Created> },
    Append { name: StreamName, append: Box<Append>, reply: Reply<Appended> },
    AppendAll { appends: Vec<(StreamName, Append)>, reply: Reply<Vec<Result<Appended, Error>>> },
    Delete { name: StreamName, reply: Reply<()> },
    Expire { ids: Vec<u64>, reply: Reply<usize> },
    Touch { uses: Vec<(u64, u64)>, reply: Reply<()> },
    Trim { id: u64, name: StreamName, start: u64, reply: Reply<Offset> },
    Retain { name: StreamName, change: RetentionChange, reply: Reply<Retention> },
    Mark { ids: Vec<u64>, reply: Reply<()> },
    Subscribe { subscribe: Box<Subscribe>, reply: Reply<Subscribed> },
    Unsubscribe { session: StreamName, source: StreamName, deliver: bool, reply: Reply<bool> },
    Publish { name: StreamName, append: Box<Append>, fan_out: FanOut, reply: Reply<Published> },
    Advance { name: StreamName, step: Box<Step>, reply: Reply<FannedOut> },
    Meta { change: Box<MetaChange>, reply: Reply<()> },
}

/// Deliveries of a source to move on with.
pub(super) struct Step {
    /// Which life of the source.
    pub(super) id: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The same in envelopes, if somebody wanted them when it was read.
    pub(super) wrapped: Option<Messages>,
}

/// A small value to set.
pub(super) struct MetaChange {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) value: Option<Bytes>,
}

impl Wanted {
    fn bytes(&self) -> usize {
        let body = match self {
            Wanted::Create { create, .. } => create.messages.data.len(),
            Wanted::Append { append, .. } => append.messages.data.len(),
            Wanted::AppendAll { appends, .. } => appends.iter().map(|(_, it)| it.messages.data.len()).sum(),
            Wanted::Publish { append, .. } => append.messages.data.len(),
            Wanted::Advance { step, .. } => step.wrapped.as_ref().map_or(0, |it| it.data.len()),
            Wanted::Meta { change, .. } => change.value.as_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        body + size_of::<Wanted>()
    }
}

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    wanted: VecDeque<Wanted>,
    bytes: usize,
    /// The committer sleeps until so many changes wait; 0 if it does not sleep.
    wake_at: usize,
    shut: bool,
}

impl Queue {
    /// An empty queue in which so many bytes may wait.
    pub(super) fn new(bytes_max: usize) -> Queue {
        Queue { waiting: Mutex::default(), arrived: Condvar::new(), bytes_max }
    }

    /// Adds a change, or says why not.
    pub(super) fn push(&self, wanted: Wanted) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.shut {
            return Err(Error::ShutDown);
        }
        if waiting.wanted.len() >= QUEUE_CHANGES_MAX || waiting.bytes >= self.bytes_max {
            return Err(Error::Busy("too many changes wait for the disk; try again later"));
        }
        waiting.bytes += wanted.bytes();
        waiting.wanted.push_back(wanted);
        if waiting.wake_at > 0 && waiting.wanted.len() >= waiting.wake_at {
            waiting.wake_at = 0;
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for changes and takes all of them; `None` once shut and empty.
    ///
    /// Whoever was just answered often comes back at once. So if fewer wait than `usual`,
    /// the committer gives them `patience`: fuller commits, fewer syncs.
    pub(super) fn take(&self, usual: usize, patience: Duration) -> Option<VecDeque<Wanted>> {
        let mut waiting = self.lock();
        while waiting.wanted.is_empty() {
            if waiting.shut {
                return None;
            }
            waiting.wake_at = 1;
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.wanted.len() < usual && patience >= PATIENCE_MIN {
            waiting.wake_at = usual;
            let few = |waiting: &mut Waiting| waiting.wake_at > 0 && !waiting.shut;
            let waited = self.arrived.wait_timeout_while(waiting, patience, few);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.wake_at = 0;
        waiting.bytes = 0;
        Some(std::mem::take(&mut waiting.wanted))
    }

    /// Takes no more changes; those that wait are still made.
    pub(super) fn shut(&self) {
        self.lock().shut = true;
        self.arrived.notify_all();
    }

    /// Takes no more changes and forgets those that wait, whose callers then hear so.
    pub(super) fn abandon(&self) {
        self.shut();
        self.lock().wanted.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
