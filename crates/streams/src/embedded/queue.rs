//! Changes that wait for the committer.
//!
//! Everything that waits when the committer comes is one commit. The queue is bounded by
//! number and by bytes; beyond that a caller gets the error that the store is busy.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::plan::Answer;
use super::record::Fork;
use crate::limits::QUEUE_CHANGES_MAX;
use crate::{
    Append, Appended, Create, Created, Error, FanOut, FanOutMode, FannedOut, IntakeBatch, Messages,
    Published, Retention, RetentionChange, Subscribe, Subscribed,
};

/// Sleeping for less costs more than it gains: the kernel's timers are coarser.
const PATIENCE_MIN: Duration = Duration::from_micros(50);

/// Where the answer to a waiting caller goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A change that a caller asks for.
pub(super) enum Change {
    Create {
        name: StreamName,
        create: Box<Create>,
        fork: Option<Box<Fork>>,
        reply: Reply<Created>,
    },
    Append {
        name: StreamName,
        append: Box<Append>,
        fan_out: FanOut,
        reply: Reply<Published>,
    },
    AppendAll {
        appends: Vec<(StreamName, Append)>,
        reply: Reply<Vec<Result<Appended, Error>>>,
    },
    Delete {
        name: StreamName,
        reply: Reply<()>,
    },
    Expire {
        ids: Vec<u64>,
        reply: Reply<usize>,
    },
    Touch {
        uses: Vec<(u64, u64)>,
        reply: Reply<()>,
    },
    Trim {
        id: u64,
        name: StreamName,
        start: u64,
        reply: Reply<Offset>,
    },
    Retain {
        name: StreamName,
        change: RetentionChange,
        reply: Reply<Retention>,
    },
    Mark {
        ids: Vec<u64>,
        reply: Reply<()>,
    },
    Subscribe {
        subscribe: Box<Subscribe>,
        reply: Reply<Subscribed>,
    },
    Unsubscribe {
        session: StreamName,
        source: StreamName,
        deliver: bool,
        reply: Reply<bool>,
    },
    Deliver {
        name: StreamName,
        delivery: Box<Delivery>,
        reply: Reply<FannedOut>,
    },
    Meta {
        value: Box<MetaValue>,
        reply: Reply<()>,
    },
    TakeIn {
        batch: Box<IntakeBatch>,
        reply: Reply<Vec<Result<FanOutMode, Error>>>,
    },
    /// Changes nothing: its answer says that everything before it is in the index.
    Refresh {
        reply: Reply<()>,
    },
}

/// A part of a source to deliver.
pub(super) struct Delivery {
    /// Which life of the source.
    pub(super) id: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The same in envelopes, if a subscriber wanted them when it was read.
    pub(super) wrapped: Option<Messages>,
}

/// A small value to set, or to remove.
#[derive(Clone)]
pub(super) struct MetaValue {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) value: Option<Bytes>,
}

impl Change {
    fn bytes(&self) -> usize {
        let body = match self {
            Change::Create { create, .. } => create.messages.data.len(),
            Change::Append { append, .. } => append.messages.data.len(),
            Change::AppendAll { appends, .. } => appends.iter().map(|(_, it)| it.messages.data.len()).sum(),
            Change::Deliver { delivery, .. } => delivery.wrapped.as_ref().map_or(0, |it| it.data.len()),
            Change::Meta { value, .. } => value.value.as_ref().map_or(0, Bytes::len),
            Change::TakeIn { batch, .. } => {
                batch.messages.iter().map(|message| message.append.messages.data.len()).sum()
            }
            _ => 0,
        };
        body + size_of::<Change>()
    }

    /// Answers the caller, or sends the error that the whole commit failed with. The caller may have stopped waiting;
    /// the change is made anyway.
    pub(super) fn send(self, answer: Answer, failed: Option<&Error>) {
        match self {
            Change::Append { reply, .. } => {
                let Answer::Append(answer) = answer else { unreachable!("an append is answered as one") };
                drop(reply.send(failed.map_or(answer, |error| Err(error.clone()))));
            }
            Change::Create { reply, .. } => send(reply, answer, failed),
            Change::AppendAll { reply, .. } => send(reply, answer, failed),
            Change::Expire { reply, .. } => send(reply, answer, failed),
            Change::Trim { reply, .. } => send(reply, answer, failed),
            Change::Retain { reply, .. } => send(reply, answer, failed),
            Change::Subscribe { reply, .. } => send(reply, answer, failed),
            Change::Unsubscribe { reply, .. } => send(reply, answer, failed),
            Change::Deliver { reply, .. } => send(reply, answer, failed),
            Change::TakeIn { reply, .. } => send(reply, answer, failed),
            Change::Delete { reply, .. }
            | Change::Touch { reply, .. }
            | Change::Mark { reply, .. }
            | Change::Meta { reply, .. }
            | Change::Refresh { reply } => send(reply, answer, failed),
        }
    }
}

fn send<T: 'static>(reply: Reply<T>, answer: Answer, failed: Option<&Error>) {
    let Answer::Other(answer) = answer else { unreachable!("only an append is answered as one") };
    let answer = answer.downcast::<Result<T, Error>>().expect("an answer has the type of its change");
    let _ = reply.send(failed.map_or(*answer, |error| Err(error.clone())));
}

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<Change>,
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
    pub(super) fn push(&self, change: Change) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.shut {
            return Err(Error::ShutDown);
        }
        if waiting.changes.len() >= QUEUE_CHANGES_MAX || waiting.bytes >= self.bytes_max {
            return Err(Error::Busy("too many changes are waiting for the disk; try again later"));
        }
        waiting.bytes += change.bytes();
        waiting.changes.push_back(change);
        if waiting.wake_at > 0 && waiting.changes.len() >= waiting.wake_at {
            waiting.wake_at = 0;
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for changes and takes all of them; `None` once shut and empty.
    ///
    /// A caller that was just answered often asks again at once. So if fewer changes wait than
    /// `usual`, the committer waits up to `patience` for more: fuller commits, fewer syncs.
    ///
    /// With `idle` it returns after that time at the latest, with or without changes.
    pub(super) fn take(
        &self,
        usual: usize,
        patience: Duration,
        idle: Option<Duration>,
    ) -> Option<VecDeque<Change>> {
        let mut waiting = self.lock();
        while waiting.changes.is_empty() {
            if waiting.shut {
                return None;
            }
            waiting.wake_at = 1;
            let Some(idle) = idle else {
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (woken, waited) =
                self.arrived.wait_timeout(waiting, idle).unwrap_or_else(PoisonError::into_inner);
            waiting = woken;
            if waited.timed_out() && waiting.changes.is_empty() && !waiting.shut {
                waiting.wake_at = 0;
                return Some(VecDeque::new());
            }
        }
        if waiting.changes.len() < usual && patience >= PATIENCE_MIN {
            waiting.wake_at = usual;
            let few = |waiting: &mut Waiting| waiting.wake_at > 0 && !waiting.shut;
            let waited = self.arrived.wait_timeout_while(waiting, patience, few);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.wake_at = 0;
        waiting.bytes = 0;
        Some(std::mem::take(&mut waiting.changes))
    }

    /// Takes no more changes; those that wait are still made.
    pub(super) fn shut(&self) {
        self.lock().shut = true;
        self.arrived.notify_all();
    }

    /// Takes no more changes and drops those that wait; their callers get an error.
    pub(super) fn abandon(&self) {
        self.shut();
        self.lock().changes.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
