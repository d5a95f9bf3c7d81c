//! Streams in a segment log of their own, on one machine.
//!
//! ```text
//! callers ─▶ queue ─▶ committer ─▶ plan ─▶ one write, one sync ─▶ index ─▶ followers, answers
//!                                            │                      ▲
//!                                          log ── sealed ─▶ maintainer: index files,
//!                                                           gathering, checkpoints
//! ```
//!
//! One thread writes. It takes everything that waits, decides it (`plan`), makes it
//! durable in one go (`log`), and only then lets anybody see it (`index`). A checkpoint
//! is the index on disk and the list of segments that count; opening reads it and replays
//! the log behind it (`recover`). What no checkpoint names is removed.

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
mod moved;
mod pages;
mod pieces;
mod plan;
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

pub use handle::{Embedded, Status};
pub use recover::Recovery;

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
    /// How much log makes a new checkpoint worthwhile.
    pub checkpoint_after_bytes: u64,
    /// Bytes that may wait for the committer; more is refused as busy.
    pub queue_bytes_max: usize,
    /// What compaction may read and write a second.
    pub compaction_bytes_per_second: u64,
    /// How many streams go to a checkpoint at a time, while commits wait.
    pub checkpoint_streams: usize,
    /// Whether segments, expiry and checkpoints are looked after by threads of the store.
    /// Tests switch this off and call [`Embedded::maintain`] and [`Embedded::keep`].
    pub background: bool,
    /// What time it is.
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
            clock: Arc::new(Timestamp::now),
        }
    }
}
