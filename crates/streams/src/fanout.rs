//! Sessions and fan-out, as callers see them.
//!
//! A session is one client's own stream, fed by the streams it subscribed to. It holds no bytes:
//! it is made of views into its sources, so a message is stored once, and a delivery costs the
//! same for one subscriber and for a hundred thousand.

use jiff::Timestamp;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use crate::{Appended, Head};

/// A subscription to make.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// The session's stream.
    pub session: StreamName,
    /// The stream to follow.
    pub source: StreamName,
    /// How long a new session lives without being used.
    pub ttl_seconds: u64,
    /// Deliver `{stream, offset, data}` instead of the bare value; JSON only.
    pub envelope: bool,
}

/// What subscribing answered.
#[derive(Debug, Clone)]
pub struct Subscribed {
    /// Whether the session is new.
    pub is_new_session: bool,
    /// Whether the subscription is new.
    pub is_new: bool,
    /// The session's stream.
    pub head: Head,
    /// The offset of the source from which on messages are delivered.
    pub start: Offset,
}

/// A session.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its stream.
    pub head: Head,
    /// What it follows, in the order of subscribing.
    pub subscriptions: Vec<Subscription>,
}

/// What a session follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The stream.
    pub source: StreamName,
    /// Where it began to follow.
    pub start: Offset,
    /// When.
    pub since: Timestamp,
    /// Whether values come in envelopes.
    pub envelope: bool,
}

/// When a publish delivers at once, and what happens otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOut {
    /// Deliver in the commit of the publish if there are at most so many subscribers.
    pub inline_max: usize,
    /// What to do if there are more.
    pub beyond: Beyond,
}

impl FanOut {
    /// Always deliver in the same commit: for sessions of the same store this costs the same for
    /// any number of them.
    pub const AT_ONCE: FanOut = FanOut { inline_max: usize::MAX, beyond: Beyond::Queue };
    /// Never deliver in the same commit: the message waits behind the source's cursor.
    pub const LATER: FanOut = FanOut { inline_max: 0, beyond: Beyond::Queue };
}

/// What to do with a message that is not delivered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It waits in the source for [`fan_out`](crate::Store::fan_out).
    Queue,
    /// No session gets it.
    Skip,
}

/// What a publish answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The append.
    pub appended: Appended,
    /// Sessions that follow the source.
    pub subscribers: usize,
    /// How it is delivered to them.
    pub mode: FanOutMode,
}

/// How a publish was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanOutMode {
    /// With the publish.
    Inline,
    /// It waits behind the source's cursor.
    Queued,
    /// Not at all: the cursor has passed it.
    Skipped,
}

/// What one step of a fan-out did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FannedOut {
    /// Sessions that follow the source.
    pub subscribers: usize,
    /// Bytes of the source that were delivered.
    pub bytes: u64,
    /// Bytes that still wait.
    pub lag_bytes: u64,
}

/// How far the fan-out of a source has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOutState {
    /// Sessions that follow it.
    pub subscribers: usize,
    /// Everything before it is delivered.
    pub cursor: Offset,
    /// Where the next byte goes.
    pub tail: Offset,
}

impl FanOutState {
    /// Bytes that wait to be delivered.
    pub fn lag_bytes(&self) -> u64 {
        match self.subscribers {
            0 => 0,
            _ => self.tail.bytes() - self.cursor.bytes(),
        }
    }
}

/// Counts of sessions, since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sessions there are now.
    pub sessions: usize,
    /// Created.
    pub created: u64,
    /// Deleted on request.
    pub deleted: u64,
    /// Expired.
    pub expired: u64,
    /// Subscriptions that ended with their session or their source.
    pub subscriptions_removed: u64,
    /// How often a session pulled what was delivered to it: the cost of deliveries per session.
    pub pulls: u64,
}

/// Is notified of every change after it is durable. The committer calls it, so it must not block.
pub trait Watch: Send + Sync + 'static {
    /// A stream was created, grew, was closed or deleted.
    fn changed(&self, name: &StreamName, tail: Offset, closed: bool);

    /// Whether deliveries to the sessions of a project count as changes: each then costs as much
    /// as there are subscribers.
    fn wants_sessions(&self, project: &str) -> bool;
}
