//! Following a stream: new batches from memory, old ones from the store.
//!
//! A followed stream keeps its newest batches in a short list. A follower that keeps up gets
//! them from there, shared and without a system call; a slow one reads pages from the store
//! until it has caught up. Nothing waits for a slow follower.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use towpath_model::stream::offset::Offset;

use crate::limits::{FOLLOW_PAGE_BYTES, RECENT_BATCHES_MAX, RECENT_BYTES_MAX, RECENT_BYTES_TOTAL_MAX};
use crate::{Answer, Batch, Error, Page, StreamId};

/// What a follower gets next.
#[derive(Debug, Clone)]
pub enum Step {
    /// More messages.
    Data {
        /// The messages, shared with everybody who follows.
        batch: Arc<Batch>,
        /// Whether this was all there is.
        up_to_date: bool,
        /// Whether this was all there will ever be.
        closed: bool,
    },
    /// The stream has ended, and the follower has everything.
    Closed,
    /// The stream was deleted or has expired.
    Gone,
}

/// One reader that follows a stream.
pub struct Follower {
    id: StreamId,
    offset: Offset,
    pages: Arc<dyn Pages>,
    live: Arc<Live>,
    /// Its slot in the list of waiting followers.
    slot: usize,
    /// A page that is being read from the store.
    reading: Option<Answer<'static, Page>>,
}

/// The store's side of catching up.
pub(crate) trait Pages: Send + Sync {
    /// Reads from one life of a stream.
    fn page(&self, id: StreamId, from: Offset, bytes_max: usize) -> Answer<'static, Page>;
}

impl Follower {
    pub(crate) fn new(id: StreamId, offset: Offset, pages: Arc<dyn Pages>, live: Arc<Live>) -> Follower {
        let slot = live.lock().slots.take();
        Follower { id, offset, pages, live, slot, reading: None }
    }

    /// Where the next step begins.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The tail of the stream after the last commit.
    pub fn tail(&self) -> Offset {
        self.live.lock().state.tail
    }

    /// Whether the stream was closed after the last commit.
    pub fn is_closed(&self) -> bool {
        self.live.lock().state.closed
    }

    /// Waits for the next step. Nothing is lost if the wait is cancelled.
    pub async fn next(&mut self) -> Result<Step, Error> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next step, if there is one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Error>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                let state = self.live.lock().state;
                return Poll::Ready(match read {
                    Ok(page) => Ok(self.step(page.batch, state)),
                    Err(Error::NotFound(_) | Error::Deleted(_)) => Ok(Step::Gone),
                    Err(error) => Err(error),
                });
            }
            // Under one lock: either there is something to read, or the next commit knows
            // whom to wake.
            let mut live = self.live.lock();
            let state = live.state;
            if state.gone {
                return Poll::Ready(Ok(Step::Gone));
            }
            if self.offset < state.tail {
                let recent = live.recent.after(self.offset);
                drop(live);
                match recent {
                    Some(batch) => return Poll::Ready(Ok(self.step(batch, state))),
                    None => self.reading = Some(self.pages.page(self.id, self.offset, FOLLOW_PAGE_BYTES)),
                }
                continue;
            }
            if state.closed {
                return Poll::Ready(Ok(Step::Closed));
            }
            live.slots.wait(self.slot, cx.waker());
            return Poll::Pending;
        }
    }

    fn step(&mut self, batch: Arc<Batch>, state: LiveState) -> Step {
        self.offset = batch.end();
        let up_to_date = self.offset >= state.tail;
        Step::Data { batch, up_to_date, closed: up_to_date && state.closed }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.live.lock().slots.leave(self.slot);
    }
}

/// The state of a followed stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveState {
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) gone: bool,
}

/// One followed stream, kept while it has followers.
pub(crate) struct Live {
    inner: Mutex<LiveInner>,
    total: Arc<AtomicUsize>,
}

struct LiveInner {
    state: LiveState,
    recent: Recent,
    slots: Slots,
}

/// Followers that wait. Each takes a slot once and puts its waker there when there is nothing
/// to read: with thousands of followers, waiting must cost no more than that.
#[derive(Default)]
struct Slots {
    waiting: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Slots {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() - 1
        })
    }

    fn wait(&mut self, slot: usize, waker: &Waker) {
        match &mut self.waiting[slot] {
            Some(known) => known.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }

    fn leave(&mut self, slot: usize) {
        self.waiting[slot] = None;
        self.free.push(slot);
    }

    fn empty(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.waiting.iter_mut().filter_map(Option::take));
    }
}

#[derive(Default)]
struct Recent {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl Live {
    /// A followed stream in `state`; `total` counts the bytes that all of them keep.
    pub(crate) fn new(state: LiveState, total: Arc<AtomicUsize>) -> Live {
        let inner = LiveInner { state, recent: Recent::default(), slots: Slots::default() };
        Live { inner: Mutex::new(inner), total }
    }

    fn lock(&self) -> MutexGuard<'_, LiveInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows followers what a commit added. The caller wakes `waiting`. Batches must come in the
    /// order of their offsets.
    pub(crate) fn update(&self, batch: Option<Batch>, state: LiveState, waiting: &mut Vec<Waker>) {
        let mut live = self.lock();
        if let Some(batch) = batch {
            live.recent.keep(batch, &self.total);
        }
        live.state = state;
        live.slots.empty(waiting);
    }
}

impl Recent {
    fn keep(&mut self, batch: Batch, total: &AtomicUsize) {
        let before = self.bytes;
        self.bytes += batch.data().len();
        self.batches.push_back(Arc::new(batch));
        let over_total = total.load(Ordering::Relaxed) > RECENT_BYTES_TOTAL_MAX;
        while self.batches.len() > RECENT_BATCHES_MAX
            || (self.bytes > RECENT_BYTES_MAX && self.batches.len() > 1)
            || (over_total && !self.batches.is_empty())
        {
            let oldest = self.batches.pop_front().expect("the list is not empty: just checked");
            self.bytes -= oldest.data().len();
        }
        total.fetch_add(self.bytes, Ordering::Relaxed);
        total.fetch_sub(before, Ordering::Relaxed);
    }

    /// The batch that continues at `offset`, if it is still here.
    fn after(&self, offset: Offset) -> Option<Arc<Batch>> {
        let position = self.batches.partition_point(|batch| batch.end() <= offset);
        let batch = self.batches.get(position)?;
        match batch.start().cmp(&offset) {
            std::cmp::Ordering::Equal => Some(batch.clone()),
            std::cmp::Ordering::Less => Some(Arc::new(batch.after(offset))),
            std::cmp::Ordering::Greater => None,
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let live = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.total.fetch_sub(live.recent.bytes, Ordering::Relaxed);
    }
}
