//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// A catch-up page when a follower has fallen behind: large enough to read at disk speed,
/// small enough that a thousand slow readers fit into memory.
pub const FOLLOW_PAGE_BYTES: usize = 64 << 10;
/// Recent batches kept for each followed stream. Readers that lag more read from the disk,
/// which costs a system call, not an error.
pub const RECENT_BYTES_MAX: usize = 256 << 10;
/// Entries of the same, so that many tiny batches do not grow the list.
pub const RECENT_BATCHES_MAX: usize = 64;
/// Recent batches of all followed streams together. Beyond it followers read from the disk.
pub const RECENT_BYTES_TOTAL_MAX: usize = 128 << 20;

/// One append or one first body. The server's own limit lies below; this one keeps a
/// record inside the 32-bit lengths of the log.
pub const APPEND_BYTES_MAX: usize = 256 << 20;
/// Changes waiting for the committer. A commit takes a few thousand; more than this means
/// the disk has stopped.
pub const QUEUE_CHANGES_MAX: usize = 100_000;
/// Bytes waiting for the committer, for the same reason.
pub const QUEUE_BYTES_MAX: usize = 512 << 20;
/// One commit's write. More waits for the next one, so that the first are not kept waiting
/// for the sum.
pub const COMMIT_BYTES_MAX: usize = 8 << 20;

/// What the committer keeps of a commit's buffer for the next one.
pub const COMMIT_BYTES_KEPT: usize = 256 << 10;
/// Changes that a commit makes room for before it looks at them.
pub const COMMIT_CHANGES_GUESS: usize = 1_024;

/// How long a commit is put off, at most, for those who were just answered to come back. It
/// is a quarter of the last commit's time if that is less.
pub const COMMIT_PATIENCE_MAX: Duration = Duration::from_micros(500);

/// Files of the store that are open at a time: a quarter of what a process may have by
/// default. Others are opened when they are read.
pub const OPEN_FILES_MAX: usize = 256;
/// The first segment is small, so that an idle store is small.
pub const FIRST_SEGMENT_BYTES: u64 = 4 << 20;
/// Later segments: large enough that sealing them is rare, small enough to zero ahead and
/// to replay.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Log written since the last checkpoint that makes a new one worthwhile: about a second
/// of replay.
pub const CHECKPOINT_AFTER_BYTES: u64 = 256 << 20;
/// Sealed segments of one level that are gathered into one of the next. Eight rewrites a
/// byte about log8 times and keeps a stream's pieces to a few dozen.
pub const GATHER_SEGMENTS: usize = 8;
/// Segments that have grown past this are gathered again only for their garbage.
pub const GATHER_BYTES_MAX: u64 = 1 << 30;
/// Blocks that gathering joins messages to: one read's worth.
pub const BLOCK_BYTES: usize = 128 << 10;
/// What compaction may read and write a second, so that appends keep their disk.
pub const COMPACTION_BYTES_PER_SECOND: u64 = 64 << 20;

/// Two reads this close together are cheaper as one.
pub const READ_GAP_BYTES: u32 = 4 << 10;
/// The largest single read: a few megabytes are as fast as any.
pub const READ_SPAN_BYTES: u32 = 1 << 20;

/// Pages that were read lately, in memory: what many readers of the same streams share.
pub const CACHED_PAGES_BYTES_MAX: usize = 32 << 20;
/// A smaller page is read as quickly as it is found.
pub const CACHED_PAGE_BYTES_MIN: usize = 1 << 10;

/// Streams visited under one lock by work that visits them all.
pub const SLOTS_PER_LOCK: usize = 512;
/// Expired streams removed by one change.
pub const REAP_STREAMS: usize = 1_024;
/// How often expired streams and renewed lives are looked after.
pub const KEEPER_EVERY: Duration = Duration::from_millis(200);
/// How often segments are looked after when nothing calls.
pub const MAINTAIN_EVERY: Duration = Duration::from_secs(5);
/// How often segments are searched for garbage when none was sealed: it visits all streams.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A renewed life is written down when it has moved by this part of itself ...
pub const RENEWAL_FRACTION: u64 = 8;
/// ... or by this much.
pub const RENEWAL_MILLIS_MAX: u64 = 60_000;
/// Marks of time kept by a stream with an age limit: its precision is a 16th of the age.
pub const AGE_MARKS: u64 = 16;

/// Deliveries a source remembers before its sessions take them in: an eighth of the number
/// of sessions, so that taking in costs a publish eight sessions' worth, within these bounds.
pub const FEED_ENTRIES_MIN: usize = 16;
/// Forty bytes each.
pub const FEED_ENTRIES_MAX: usize = 4_096;
/// What one step of a fan-out reads of its source to put it into envelopes.
pub const FAN_OUT_BYTES: usize = 256 << 10;
/// How often a change waits for deliveries that are too much for one commit, before its caller
/// hears that the store is busy: publishers may be faster than envelopes.
pub const DELIVER_TRIES_MAX: usize = 16;
/// Envelopes made inside a commit; more is left to the fan-out that follows.
pub const ENVELOPE_BYTES_MAX: usize = 1 << 20;
/// Streams a session may follow. Taking in deliveries looks at all of them.
pub const SUBSCRIPTIONS_MAX: usize = 1_024;
/// A small durable value, which is also kept in memory ...
pub const META_BYTES_MAX: usize = 64 << 10;
/// ... with its key.
pub const META_KEY_BYTES_MAX: usize = 512;
/// How many of them there may be: they are checkpointed whole.
pub const META_ENTRIES_MAX: usize = 100_000;
