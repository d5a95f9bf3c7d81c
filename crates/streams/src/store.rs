//! The one interface to durable streams.
//!
//! Every change is durable before it is answered, and decided inside the commit that makes it
//! (`towpath_model::stream::state`). Readers see only what is durable.
//!
//! To *append* is to write messages to one stream. To *publish* is to append to a source and let
//! the sessions that follow it have the messages.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use jiff::Timestamp;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::{Offset, Start};
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{Accepted, Shape};

use crate::{
    Batch, Error, FanOut, FanOutMode, FanOutState, FannedOut, Follower, IntakeBatch, Noted, Published,
    Session, SessionCounts, Subscribe, Subscribed, Subscription, Watch,
};

/// The answer of a store, in the future.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Durable streams.
pub trait Store: Send + Sync + 'static {
    /// Creates a stream, or finds one that was created the same way.
    fn create(&self, name: StreamName, create: Create) -> Answer<'_, Created>;

    /// Appends, closes, or both. Sessions that follow the stream get it with the next
    /// [`Store::fan_out`].
    fn append(&self, name: StreamName, append: Append) -> Answer<'_, Appended>;

    /// Appends to many streams in one commit. Each is decided on its own, in order.
    fn append_all(&self, appends: Vec<(StreamName, Append)>) -> Answer<'_, Vec<Result<Appended, Error>>>;

    /// Deletes a stream, and in the same commit every subscription of it or to it. What the
    /// subscribers of a source wait for is delivered first. While forks read through the stream,
    /// its name answers [`Error::Deleted`].
    fn delete(&self, name: StreamName) -> Answer<'_, ()>;

    /// Drops the oldest data of a stream up to `before`, rounded down to a message.
    fn trim(&self, name: StreamName, before: Offset) -> Answer<'_, Offset>;

    /// Changes how long a stream's data is kept, and answers how long that is now.
    fn retain(&self, name: StreamName, change: RetentionChange) -> Answer<'_, Retention>;

    /// What is known of a stream. Does not renew a sliding life.
    fn head(&self, name: &StreamName) -> Result<Head, Error>;

    /// The idempotent producers of a stream by id, at most `limit`, each with its newest accepted
    /// request. Does not renew a sliding life.
    fn producers(&self, name: &StreamName, limit: usize) -> Result<Vec<(Arc<str>, Accepted)>, Error>;

    /// Renews a sliding life, and answers what is known of the stream.
    fn touch(&self, name: &StreamName) -> Result<Head, Error>;

    /// Reads whole messages, up to about `bytes_max`, and at least one if there is one. Renews a
    /// sliding life.
    fn read(&self, name: &StreamName, from: Start, bytes_max: usize) -> Answer<'_, Page>;

    /// Follows a stream from an offset on. Renews a sliding life.
    fn follow(&self, name: &StreamName, from: Start) -> Result<Follower, Error>;

    /// Streams of a project in the order of their ids.
    fn list(&self, list: List) -> Answer<'_, Vec<(StreamName, Head)>>;

    /// About how many streams a project has, for limits. The server's own do not count.
    fn count(&self, project: &str) -> usize;

    /// Subscribes a session to a source from its tail on. The same commit creates the session's
    /// stream or renews its life. Subscribing again changes nothing.
    fn subscribe(&self, subscribe: Subscribe) -> Answer<'_, Subscribed>;

    /// Ends a subscription, after everything that was appended to the source before is delivered.
    /// What was delivered stays. False if there was none.
    fn unsubscribe(&self, session: StreamName, source: StreamName) -> Answer<'_, bool>;

    /// Ends a subscription without delivering what waits: for callers that deliver to another
    /// server and have done so.
    fn leave(&self, session: StreamName, source: StreamName) -> Answer<'_, bool>;

    /// A session and what it follows. Does not renew its life.
    fn session(&self, session: &StreamName) -> Result<Session, Error>;

    /// Appends to a source and delivers to the sessions that follow it: in the same commit, or
    /// later, as `fan_out` says. The append is never refused because of the delivery.
    fn publish(&self, source: StreamName, append: Append, fan_out: FanOut) -> Answer<'_, Published>;

    /// Delivers a part of what the subscribers of a source wait for. Repeating it, even after a
    /// crash, delivers nothing twice. There is more while `lag_bytes` is not 0.
    fn fan_out(&self, source: StreamName) -> Answer<'_, FannedOut>;

    /// The same, never beyond `until`: for callers that deliver to another server up to there.
    fn fan_out_until(&self, source: StreamName, until: Offset) -> Answer<'_, FannedOut>;

    /// How far the fan-out of a source has come.
    fn fan_out_state(&self, source: &StreamName) -> Result<FanOutState, Error>;

    /// Sources whose sessions wait for something, at most `limit`.
    fn lagging(&self, limit: usize) -> Vec<(StreamName, FanOutState)>;

    /// Followed streams of a project in the order of their ids, after `after`.
    fn sources(&self, project: &str, after: Option<&str>, limit: usize) -> Vec<(StreamName, FanOutState)>;

    /// The sessions that follow a source in the order of their names, after `after`.
    fn subscribers(
        &self,
        source: &StreamName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(StreamName, Subscription)>, Error>;

    /// Counts of sessions, since the store was opened.
    fn session_counts(&self) -> SessionCounts;

    /// Sets a small durable value, or removes it.
    fn put_meta(&self, namespace: &str, key: &str, value: Option<Bytes>) -> Answer<'_, ()>;

    /// All values of a namespace in the order of their keys.
    fn list_meta(&self, namespace: &str) -> Vec<(String, Bytes)>;

    /// Takes messages of SQL transactions in, in order, all of them in one commit. Each is decided on its own. The
    /// commit notes which ones it appended; see [`IntakeBatch::before`].
    fn take_in(&self, batch: IntakeBatch) -> Answer<'_, Vec<Result<FanOutMode, Error>>>;

    /// The last batch that was taken in.
    fn noted(&self) -> Noted;

    /// What anybody was told before this call is visible after it. Ready at once on a store that is not shared.
    fn fresh(&self) -> Answer<'_, ()>;

    /// Notifies `watcher` of every change from now on, as long as it lives. Only the first call
    /// counts.
    fn watch(&self, watcher: Weak<dyn Watch>);
}

/// A stream to create.
#[derive(Debug, Clone)]
pub struct Create {
    /// Creating a stream again with the same shape finds it.
    pub shape: Shape,
    /// Its first messages.
    pub messages: Messages,
    /// How long its data is kept.
    pub retention: Retention,
}

/// What creating answered.
#[derive(Debug, Clone)]
pub struct Created {
    /// False if it existed already.
    pub is_new: bool,
    /// What is known of it.
    pub head: Head,
}

/// Messages to write: the bytes, and where each message ends in them.
///
/// A byte stream's append is one message; a JSON append is one per value.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    /// All bytes, one message after the other.
    pub data: Bytes,
    /// Where each message ends in `data`. The last one is its length.
    pub ends: Vec<u32>,
}

impl Messages {
    /// One message, or none if there are no bytes.
    pub fn one(data: impl Into<Bytes>) -> Messages {
        let data: Bytes = data.into();
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Messages { ends: if data.is_empty() { Vec::new() } else { vec![length] }, data }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// An append.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// The messages; may be empty if `close` is set.
    pub messages: Messages,
    /// The type of the messages, which must be the stream's. `None` is not compared.
    pub content_type: Option<ContentType>,
    /// Closes the stream after it.
    pub close: bool,
    /// Makes a retry harmless.
    pub producer: Option<Producer>,
    /// Must be larger than any before.
    pub stream_seq: Option<Arc<str>>,
    /// `If-Match`: the tail must be here.
    pub expected_tail: Option<Offset>,
}

/// What appending answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The tail after it, or the present tail if nothing was written.
    pub tail: Offset,
    /// Whether the stream is closed.
    pub closed: bool,
    /// Nothing was written, because it had been written before.
    pub is_duplicate: bool,
    /// The newest accepted request of the producer.
    pub producer: Option<Accepted>,
}

/// One life of a stream: a deleted and re-created stream has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// How long data is kept. Data beyond a limit is dropped, a little later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Drop what is older.
    pub age_seconds: Option<u64>,
    /// Drop the oldest data beyond so many bytes.
    pub bytes: Option<u64>,
}

impl Retention {
    /// The same with a change made to it.
    pub fn with(self, change: RetentionChange) -> Retention {
        Retention {
            age_seconds: change.age_seconds.unwrap_or(self.age_seconds),
            bytes: change.bytes.unwrap_or(self.bytes),
        }
    }
}

/// A change of a [`Retention`]: `None` keeps a limit as it is, `Some(None)` removes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionChange {
    /// Drop what is older.
    pub age_seconds: Option<Option<u64>>,
    /// Drop the oldest data beyond so many bytes.
    pub bytes: Option<Option<u64>>,
}

impl From<Retention> for RetentionChange {
    /// Both limits as they are here.
    fn from(retention: Retention) -> RetentionChange {
        RetentionChange { age_seconds: Some(retention.age_seconds), bytes: Some(retention.bytes) }
    }
}

/// What is known of a stream.
#[derive(Debug, Clone)]
pub struct Head {
    /// Which life of this name; part of an entity tag.
    pub id: StreamId,
    /// Its type, as it was given.
    pub content_type: ContentType,
    /// The oldest offset there is.
    pub start: Offset,
    /// Where the next byte goes.
    pub tail: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its life.
    pub expiry: Expiry,
    /// When it expires if it is not used.
    pub ends_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// How long its data is kept.
    pub retention: Retention,
}

impl Head {
    /// How many bytes follow `start`.
    pub fn bytes_behind(&self, start: Start) -> usize {
        let from = match start {
            Start::Beginning => self.start,
            Start::Now => self.tail,
            Start::At(offset) => offset,
        };
        usize::try_from(self.tail.bytes().saturating_sub(from.bytes())).unwrap_or(usize::MAX)
    }
}

/// A page of a stream.
#[derive(Debug)]
pub struct Page {
    /// The stream at the time of the read.
    pub head: Head,
    /// The messages. They begin where the reader asked, or at the tail if that is lower.
    pub batch: Arc<Batch>,
}

impl Page {
    /// Whether there was nothing more to read.
    pub fn is_up_to_date(&self) -> bool {
        self.batch.end() >= self.head.tail
    }

    /// Whether the reader has everything there will ever be.
    pub fn is_the_end(&self) -> bool {
        self.head.closed && self.is_up_to_date()
    }
}

/// Which streams to list.
#[derive(Debug, Clone)]
pub struct List {
    /// The tenant.
    pub project: Arc<str>,
    /// The prefix of the ids.
    pub prefix: String,
    /// List ids after this one.
    pub after: Option<String>,
    /// At most this many.
    pub limit: usize,
}
