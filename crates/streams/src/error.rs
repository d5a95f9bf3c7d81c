//! Errors of the store, one variant per reaction of a caller.

use std::io;

use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state::Refusal;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no such stream, or it has expired.
    #[error("there is no stream {0}")]
    NotFound(StreamName),
    /// The stream was deleted and its name is kept, because forks read through it.
    #[error("stream {0} was deleted; its name can be reused once its forks are deleted")]
    Deleted(StreamName),
    /// The stream exists and differs from what was asked for.
    #[error("stream {name} exists with another {what}")]
    Conflict {
        /// The stream.
        name: StreamName,
        /// What differs.
        what: &'static str,
    },
    /// A fork cannot begin where it was asked to.
    #[error("stream {origin} cannot be forked there: {why}")]
    ForkPoint {
        /// The stream to fork.
        origin: StreamName,
        /// Why not.
        why: &'static str,
    },
    /// The append was refused.
    #[error("append to {name} refused: {refusal:?}")]
    Refused {
        /// The stream.
        name: StreamName,
        /// Why.
        refusal: Refusal,
        /// The tail at that time.
        tail: Offset,
        /// Whether the stream was closed at that time.
        closed: bool,
    },
    /// The stream belongs to a session: only its subscriptions write to it.
    #[error("stream {0} belongs to a session and cannot be written to; publish to one of its sources")]
    ReadOnly(StreamName),
    /// The session cannot follow that stream.
    #[error("session {session} cannot follow {source_name}: {why}")]
    CannotFollow {
        /// The session's stream.
        session: StreamName,
        /// The stream to follow.
        source_name: StreamName,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// The data was dropped by retention.
    #[error("stream {name} starts at {start}; earlier data was dropped")]
    Trimmed {
        /// The stream.
        name: StreamName,
        /// The oldest offset that is still there.
        start: Offset,
    },
    /// Too much is waiting. Try again later.
    #[error("the stream store is busy: {0}")]
    Busy(&'static str),
    /// Something is larger than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// The disk is full. Reads work; writes resume when there is room.
    #[error("the disk for streams is full; free some space and writes resume")]
    DiskFull,
    /// The disk did not confirm a write, so what it holds is unknown until a restart; or the shared log does not
    /// continue what this node has.
    #[error("the stream store refuses writes until it is restarted: {0}")]
    Poisoned(String),
    /// Stored bytes do not match their checksum.
    #[error("{0}")]
    Corrupt(String),
    /// Another process owns the directory.
    #[error("{0} is in use by another process")]
    InUse(String),
    /// The directory was written by a version this one does not know.
    #[error("{0}")]
    Unsupported(String),
    /// The store is shutting down.
    #[error("the stream store is shut down")]
    ShutDown,
    /// Any other error of the disk.
    #[error("{context}: {message}")]
    Io {
        /// What was being done.
        context: String,
        /// What the system said.
        message: String,
        /// Its kind.
        kind: io::ErrorKind,
    },
}

impl Error {
    /// A failed system call, or a full disk.
    pub(crate) fn io(context: impl Into<String>, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
            kind => Error::Io { context: context.into(), message: error.to_string(), kind },
        }
    }
}
