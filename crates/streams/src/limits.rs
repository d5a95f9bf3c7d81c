//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// A catch-up page when a follower has fallen behind: large enough to read at disk speed,
/// small enough that a thousand slow readers fit into memory.
pub const FOLLOW_PAGE_BYTES: usize = 64 << 10;
/// Recent batches kept for each followed stream. Readers that lag more read from the disk,
/// which costs a system call, not an error.
pub const RECENT_BYTES_MAX: usize = 256 << 10;
/// The number of them, so that many tiny batches do not grow the list.
pub const RECENT_BATCHES_MAX: usize = 64;
/// Recent batches of all followed streams together. Beyond this, followers read from the disk.
pub const RECENT_BYTES_TOTAL_MAX: usize = 128 << 20;

/// One append, or the first messages of a stream. The server's own limit is lower; this one keeps
/// a record within the 32-bit lengths of the log.
pub const APPEND_BYTES_MAX: usize = 256 << 20;
/// Changes that wait for the committer. A commit takes a few thousand; more than this means that
/// the disk has stopped.
pub const QUEUE_CHANGES_MAX: usize = 100_000;
/// Bytes that wait for the committer, for the same reason.
pub const QUEUE_BYTES_MAX: usize = 512 << 20;
/// The bytes of one commit. The rest goes into the next one, so that the first callers do not wait
/// for all of it.
pub const COMMIT_BYTES_MAX: usize = 8 << 20;

/// The capacity of a commit's buffer that is kept for the next one.
pub const COMMIT_BYTES_KEPT: usize = 256 << 10;
/// Changes that a commit reserves room for.
pub const COMMIT_CHANGES_GUESS: usize = 1_024;

/// How long a commit waits, at most, for callers that were just answered to ask again. A quarter of
/// the last commit's time if that is less.
pub const COMMIT_PATIENCE_MAX: Duration = Duration::from_micros(500);

/// How often a node reads a shared log when nothing asks it to: what other nodes commit is then seen this late by those
/// who follow it live here.
pub const SHARED_LOG_POLL: Duration = Duration::from_millis(100);
/// Commits that are read at a time from a shared log: a few round trips a second for a node that reads all of it.
pub const SHARED_LOG_READ_BYTES: usize = 8 << 20;
/// The wait before a shared log that did not answer is asked again. It doubles ...
pub const SHARED_LOG_RETRY_MIN: Duration = Duration::from_millis(2);
/// ... up to this: a database that is back is used within this time.
pub const SHARED_LOG_RETRY_MAX: Duration = Duration::from_millis(200);
/// How long callers wait for a shared log that does not answer, before they are told to try again later.
pub const SHARED_LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Open files of the store: a quarter of the usual limit of a process. Others are opened when they
/// are read.
pub const OPEN_FILES_MAX: usize = 256;
/// The first segment is small, so that an idle store is small.
pub const FIRST_SEGMENT_BYTES: u64 = 4 << 20;
/// Later segments: large enough that sealing is rare, small enough to be zeroed in advance and to
/// be replayed quickly.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Log written since the last checkpoint that makes a new one worthwhile: about a second
/// of replay.
pub const CHECKPOINT_AFTER_BYTES: u64 = 256 << 20;
/// Sealed segments of one level that are gathered into one of the next. With eight, a byte is
/// rewritten about log8(segments) times, and a stream has a few dozen pieces.
pub const GATHER_SEGMENTS: usize = 8;
/// Segments that have grown past this are gathered again only for their garbage.
pub const GATHER_BYTES_MAX: u64 = 1 << 30;
/// The blocks that gathering makes: what one read takes.
pub const BLOCK_BYTES: usize = 128 << 10;
/// What compaction may read and write a second, so that appends have the rest of the disk.
pub const COMPACTION_BYTES_PER_SECOND: u64 = 64 << 20;

/// Two reads this close together are cheaper as one.
pub const READ_GAP_BYTES: u32 = 4 << 10;
/// The largest single read: a few megabytes are as fast as any.
pub const READ_SPAN_BYTES: u32 = 1 << 20;

/// Recently read pages in memory, which readers of the same streams share.
pub const CACHED_PAGES_BYTES_MAX: usize = 32 << 20;
/// A smaller page is read as fast as it is found.
pub const CACHED_PAGE_BYTES_MIN: usize = 1 << 10;

/// Streams visited per lock by work that visits all of them.
pub const SLOTS_PER_LOCK: usize = 512;
/// Expired streams removed by one change.
pub const REAP_STREAMS: usize = 1_024;
/// How often streams are expired and renewed lives are written.
pub const KEEPER_EVERY: Duration = Duration::from_millis(200);
/// How often segments are maintained when nothing wakes the maintainer.
pub const MAINTAIN_EVERY: Duration = Duration::from_secs(5);
/// How often segments are searched for garbage when none was sealed: the search visits all streams.
pub const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A renewed life is written to the log when it has moved by this fraction of itself ...
pub const RENEWAL_FRACTION: u64 = 8;
/// ... or by this much.
pub const RENEWAL_MILLIS_MAX: u64 = 60_000;
/// Marks that a stream with an age limit keeps: its precision is a sixteenth of the age.
pub const AGE_MARKS: u64 = 16;

/// Entries in the feed of a source before all its sessions pull: an eighth of the number of
/// sessions, so that a publish pays for eight sessions at most, within these bounds.
pub const FEED_ENTRIES_MIN: usize = 16;
/// Forty bytes each.
pub const FEED_ENTRIES_MAX: usize = 4_096;
/// What one step of a fan-out reads of its source to make envelopes of it.
pub const FAN_OUT_BYTES: usize = 256 << 10;
/// How often a change waits for deliveries that do not fit into one commit, before its caller gets
/// the error that the store is busy: publishers may be faster than envelopes are made.
pub const DELIVER_TRIES_MAX: usize = 16;
/// Envelopes that one commit makes; more is left to the fan-out worker.
pub const ENVELOPE_BYTES_MAX: usize = 1 << 20;
/// Streams that a session may follow. A pull looks at all of them.
pub const SUBSCRIPTIONS_MAX: usize = 1_024;
/// A small durable value, which is also kept in memory ...
pub const META_BYTES_MAX: usize = 64 << 10;
/// ... with its key.
pub const META_KEY_BYTES_MAX: usize = 512;
/// How many of them there may be: every checkpoint holds all of them.
pub const META_ENTRIES_MAX: usize = 100_000;
