//! Streams in a log of segment files, on one machine. `README.md` in this directory explains the
//! engine: commits, records, sources and sessions, recovery, compaction.
//!
//! One thread writes. It takes every change that waits (`queue`), decides it (`plan`), makes the
//! records durable with one write and one sync (`log`), and only then applies them (`index`).

mod backup;
mod cache;
mod checkpoint;
mod codec;
mod committer;
mod compact;
pub mod disk;
mod extents;
mod feed;
mod files;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handle;
mod index;
mod keeper;
mod log;
mod maintain;
mod pages;
mod pieces;
mod plan;
mod planned;
mod queue;
mod reader;
mod record;
mod recover;
mod segment;
mod session;
mod shared;
mod spare;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

pub use backup::{Backup, restore};
pub use handle::{Embedded, Status};
pub use recover::Recovery;

use crate::CommitLog;
use crate::limits::{
    CHECKPOINT_AFTER_BYTES, COMPACTION_BYTES_PER_SECOND, QUEUE_BYTES_MAX, SEGMENT_BYTES, SLOTS_PER_LOCK,
};

/// How the store works. Every value has a default that works.
#[derive(Clone)]
pub struct Config {
    /// Where the files are.
    pub directory: PathBuf,
    /// How large a segment grows.
    pub segment_bytes: u64,
    /// How much log is written before a new checkpoint.
    pub checkpoint_after_bytes: u64,
    /// Bytes that may wait for the committer; more is refused as busy.
    pub queue_bytes_max: usize,
    /// What compaction may read and write a second.
    pub compaction_bytes_per_second: u64,
    /// How many streams are added to a checkpoint per lock, while commits wait.
    pub checkpoint_streams: usize,
    /// Whether the store has threads for segments, checkpoints and expiry. Tests switch them off
    /// and call [`Embedded::maintain`] and [`Embedded::keep`].
    pub background: bool,
    /// The log that this node shares with others; its own files are then a cache. Without one, they are the log.
    pub log: Option<Arc<dyn CommitLog>>,
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Config {
    /// The defaults, in a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Config {
        Config {
            directory: directory.into(),
            segment_bytes: SEGMENT_BYTES,
            checkpoint_after_bytes: CHECKPOINT_AFTER_BYTES,
            queue_bytes_max: QUEUE_BYTES_MAX,
            compaction_bytes_per_second: COMPACTION_BYTES_PER_SECOND,
            checkpoint_streams: SLOTS_PER_LOCK,
            background: true,
            log: None,
            clock: Arc::new(Timestamp::now),
        }
    }
}
