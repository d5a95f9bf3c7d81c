//! Fan-out: what sessions are to callers.
//!
//! A session is one client's own stream, fed by the streams it subscribed to. Its stream
//! holds no bytes: it is made of views into its sources, so that a payload is stored once
//! and delivering it costs the same for one subscriber and for a hundred thousand.

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
    /// Whether the session began with it.
    pub is_new_session: bool,
    /// False if it was subscribed before.
    pub is_new: bool,
    /// The session's stream.
    pub head: Head,
    /// The source's offset from which on messages are delivered.
    pub start: Offset,
}

/// A session.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its stream.
    pub head: Head,
    /// What it follows, in the order it subscribed.
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

/// When a publish delivers at once, and what happens beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOut {
    /// Deliver with the publish if there are at most so many subscribers.
    pub inline_max: usize,
    /// What to do if there are more.
    pub beyond: Beyond,
}

/// What to do with what is not delivered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It waits in the source for [`fan_out`](crate::Store::fan_out).
    Queue,
    /// Nobody gets it.
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
    /// Not at all.
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

/// How far a source's deliveries have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOutState {
    /// Sessions that follow it.
    pub subscribers: usize,
    /// Everything before is delivered.
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

/// What became of sessions since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sessions there are.
    pub sessions: usize,
    /// Begun.
    pub created: u64,
    /// Ended by somebody.
    pub deleted: u64,
    /// Ended by time.
    pub expired: u64,
    /// Subscriptions that ended with their session or their source.
    pub subscriptions_removed: u64,
    /// Times that a session took in what was delivered to it: what deliveries cost each session.
    pub settled: u64,
}

/// Somebody who hears of every change, after it is durable. Called by the one thread that
/// writes, so it must not block.
pub trait Watch: Send + Sync + 'static {
    /// A stream began, grew, ended or went.
    fn changed(&self, name: &StreamName, tail: Offset, closed: bool);

    /// Whether sessions of a project are of interest. If not, deliveries to them are not
    /// told: telling costs as much as there are subscribers.
    fn hears_sessions(&self, project: &str) -> bool;
}
