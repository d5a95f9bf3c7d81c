//! Following a stream: new batches from memory, old ones from the store.
//!
//! A followed stream keeps its newest batches in a short ring. Whoever keeps up gets them
//! from there, shared and without a system call; whoever does not reads pages from the
//! store until it has caught up. Nothing waits for a slow follower.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use towpath_model::stream::offset::Offset;

use crate::limits::{FOLLOW_PAGE_BYTES, RECENT_BATCHES_MAX, RECENT_BYTES_MAX, RECENT_BYTES_TOTAL_MAX};
use crate::{Answer, Batch, Error, Page, StreamId};

/// What a follower meets next.
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

/// Somebody who follows a stream.
pub struct Follower {
    id: StreamId,
    offset: Offset,
    pages: Arc<dyn Pages>,
    live: Arc<Live>,
    news: watch::Receiver<News>,
}

/// The store's side of catching up.
pub(crate) trait Pages: Send + Sync {
    /// Reads from one life of a stream.
    fn page(&self, id: StreamId, from: Offset, bytes_max: usize) -> Answer<'_, Page>;
}

impl Follower {
    pub(crate) fn new(id: StreamId, offset: Offset, pages: Arc<dyn Pages>, live: Arc<Live>) -> Follower {
        let news = live.news.subscribe();
        Follower { id, offset, pages, live, news }
    }

    /// Where the next step begins.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The stream's tail as last heard of.
    pub fn tail(&self) -> Offset {
        self.news.borrow().tail
    }

    /// Whether the stream had ended when last heard of.
    pub fn is_closed(&self) -> bool {
        self.news.borrow().closed
    }

    /// Waits for the next step. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> Result<Step, Error> {
        loop {
            let news = *self.news.borrow_and_update();
            if news.gone {
                return Ok(Step::Gone);
            }
            if self.offset < news.tail {
                return self.more(news).await;
            }
            if news.closed {
                return Ok(Step::Closed);
            }
            if self.news.changed().await.is_err() {
                return Ok(Step::Gone);
            }
        }
    }

    async fn more(&mut self, news: News) -> Result<Step, Error> {
        let batch = match self.live.after(self.offset) {
            Some(batch) => batch,
            None => match self.pages.page(self.id, self.offset, FOLLOW_PAGE_BYTES).await {
                Ok(page) => page.batch,
                Err(Error::NotFound(_) | Error::Deleted(_)) => return Ok(Step::Gone),
                Err(error) => return Err(error),
            },
        };
        self.offset = batch.end();
        let up_to_date = self.offset >= news.tail;
        Ok(Step::Data { batch, up_to_date, closed: up_to_date && news.closed })
    }
}

/// What followers are told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) gone: bool,
}

/// One followed stream. It lives as long as somebody follows.
pub(crate) struct Live {
    news: watch::Sender<News>,
    recent: Mutex<Recent>,
    total: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Recent {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl Live {
    /// A followed stream that stands at `news`; `total` is what all of them keep.
    pub(crate) fn new(news: News, total: Arc<AtomicUsize>) -> Live {
        Live { news: watch::Sender::new(news), recent: Mutex::default(), total }
    }

    /// Tells everybody, once. Batches must come in the order of their offsets.
    pub(crate) fn publish(&self, batch: Option<Batch>, news: News) {
        if let Some(batch) = batch {
            self.keep(batch);
        }
        self.news.send_replace(news);
    }

    fn keep(&self, batch: Batch) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let before = recent.bytes;
        recent.bytes += batch.data().len();
        recent.batches.push_back(Arc::new(batch));
        let crowded = self.total.load(Ordering::Relaxed) > RECENT_BYTES_TOTAL_MAX;
        while recent.batches.len() > RECENT_BATCHES_MAX
            || (recent.bytes > RECENT_BYTES_MAX && recent.batches.len() > 1)
            || (crowded && !recent.batches.is_empty())
        {
            let oldest = recent.batches.pop_front().expect("the list is not empty: just checked");
            recent.bytes -= oldest.data().len();
        }
        self.total.fetch_add(recent.bytes, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }

    /// The batch that goes on at `offset`, if it is still here.
    fn after(&self, offset: Offset) -> Option<Arc<Batch>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let position = recent.batches.partition_point(|batch| batch.end() <= offset);
        let batch = recent.batches.get(position)?;
        match batch.start().cmp(&offset) {
            std::cmp::Ordering::Equal => Some(batch.clone()),
            std::cmp::Ordering::Less => Some(Arc::new(batch.after(offset))),
            std::cmp::Ordering::Greater => None,
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let recent = self.recent.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.total.fetch_sub(recent.bytes, Ordering::Relaxed);
    }
}
