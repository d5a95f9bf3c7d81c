//! One stream as it is kept in memory.
//!
//! Rare parts are boxed, because there may be millions of streams, and most of them have one
//! message and no producer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{Accepted, Shape};

use super::feed::Feed;
use super::pieces::Pieces;
use super::record::Fork;
use super::session::Session;
use crate::follow::Live;
use crate::limits::{AGE_MARKS, RENEWAL_FRACTION, RENEWAL_MILLIS_MAX};
use crate::{Head, Retention, StreamId};

/// A stream: its state, and where its bytes are.
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) name: StreamName,
    pub(super) content_type: ContentType,
    pub(super) expiry: Expiry,
    pub(super) created_at: u64,
    /// When it was last read or written; readers update it.
    pub(super) used_at: AtomicU64,
    /// The `used_at` that is in the log.
    pub(super) saved_at: AtomicU64,
    pub(super) start: u64,
    pub(super) tail: u64,
    pub(super) closed: bool,
    /// Deleted, and kept for forks that read through it or sessions that view it.
    pub(super) deleted: bool,
    /// Forks that read through it.
    pub(super) forks: u32,
    pub(super) pieces: Pieces,
    pub(super) more: Option<Box<More>>,
    pub(super) live: Weak<Live>,
}

/// What most streams do not have.
#[derive(Default)]
pub(super) struct More {
    pub(super) producers: BTreeMap<Arc<str>, Accepted>,
    pub(super) stream_seq: Option<Arc<str>>,
    pub(super) closed_by: Option<Box<Producer>>,
    pub(super) fork: Option<Box<Fork>>,
    pub(super) retention: Retention,
    /// Times, and the tail at each time, for an age limit.
    pub(super) marks: Vec<(u64, u64)>,
    /// Its deliveries, if sessions follow it or have followed it.
    pub(super) feed: Option<Box<Feed>>,
    /// What makes it a session's.
    pub(super) session: Option<Box<Session>>,
}

impl Stream {
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn fork(&self) -> Option<&Fork> {
        self.more.as_ref()?.fork.as_deref()
    }

    pub(super) fn retention(&self) -> Retention {
        self.more.as_ref().map(|more| more.retention).unwrap_or_default()
    }

    /// Whether it is time for a mark, so that an age limit is precise enough.
    pub(super) fn wants_mark(&self, at: u64) -> bool {
        let Some(more) = &self.more else { return false };
        let Some(age) = more.retention.age_seconds else { return false };
        let (last, marked) = more.marks.last().copied().unwrap_or((0, self.start));
        self.tail > marked && last.saturating_add(age.saturating_mul(1000) / AGE_MARKS) < at
    }

    /// Remembers the tail at a time. A mark that is replayed after a later one, or after a trim,
    /// adds nothing.
    pub(super) fn mark(&mut self, at: u64, tail: u64) {
        let (start, end) = (self.start, self.tail);
        let Some(more) = &mut self.more else { return };
        let marked = more.marks.last().map_or(start, |(_, offset)| *offset);
        if tail > marked && tail <= end {
            more.marks.push((at, tail));
        }
    }

    pub(super) fn accepted(&self, producer: &str) -> Option<Accepted> {
        self.more.as_ref()?.producers.get(producer).copied()
    }

    pub(super) fn feed(&self) -> Option<&Feed> {
        self.more.as_ref()?.feed.as_deref()
    }

    pub(super) fn feed_mut(&mut self) -> Option<&mut Feed> {
        self.more.as_mut()?.feed.as_deref_mut()
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.more.as_ref()?.session.as_deref()
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        self.more.as_mut()?.session.as_deref_mut()
    }

    /// Whether sessions, or its source, need it.
    pub(super) fn is_held(&self) -> bool {
        self.feed().is_some_and(|feed| feed.held_from().is_some() || feed.envelopes_of.is_some())
    }

    /// The offset from which on its bytes are needed.
    pub(super) fn needed_from(&self) -> u64 {
        let held = self.feed().and_then(Feed::held_from);
        match (self.forks, self.deleted) {
            (0, true) => held.unwrap_or(self.tail),
            (0, false) => held.unwrap_or(self.start).min(self.start),
            _ => 0,
        }
    }

    /// When it expires, in milliseconds, if it is not used.
    pub(super) fn ends_at(&self) -> Option<u64> {
        match self.expiry {
            Expiry::Never => None,
            Expiry::At(at) => Some(millis(at)),
            Expiry::Sliding { seconds } => {
                Some(self.used_at.load(Ordering::Relaxed).saturating_add(seconds.saturating_mul(1000)))
            }
        }
    }

    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.ends_at().is_some_and(|ends_at| ends_at <= now)
    }

    /// Renews a sliding life. True if the renewal should go to the log.
    pub(super) fn touch(&self, now: u64) -> bool {
        let Expiry::Sliding { seconds } = self.expiry else { return false };
        self.used_at.fetch_max(now, Ordering::Relaxed);
        let step = (seconds.saturating_mul(1000) / RENEWAL_FRACTION).min(RENEWAL_MILLIS_MAX);
        let saved = self.saved_at.load(Ordering::Relaxed);
        let due = now > saved.saturating_add(step);
        // Only one of many readers reports it.
        due && self.saved_at.compare_exchange(saved, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// What makes creating it again the same creation.
    pub(super) fn shape(&self) -> Shape {
        Shape {
            content_type: Some(self.content_type.clone()),
            expiry: Some(self.expiry),
            closed: self.closed,
            fork: self.fork().map(|fork| fork.point.clone()),
        }
    }

    pub(super) fn head(&self) -> Head {
        let used = time(self.used_at.load(Ordering::Relaxed));
        Head {
            id: StreamId(self.id),
            content_type: self.content_type.clone(),
            start: Offset::new(self.start),
            tail: Offset::new(self.tail),
            closed: self.closed,
            expiry: self.expiry,
            ends_at: self.expiry.ends_at(used),
            created_at: time(self.created_at),
            retention: self.retention(),
        }
    }

    /// Drops pieces that end before the first needed byte.
    pub(super) fn drop_trimmed(&mut self) {
        if self.forks > 0 || self.pieces.is_empty() {
            return;
        }
        match self.needed_from() {
            start if start >= self.tail => self.pieces.clear(),
            start => self.pieces.drop_before(start),
        }
    }
}

/// A time as the log keeps it.
pub(super) fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

/// A time of the log as a timestamp.
pub(super) fn time(millis: u64) -> Timestamp {
    i64::try_from(millis).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or(Timestamp::MAX)
}
