//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Connections per process. PostgreSQL allows 100 by default, shared by several processes; two cores are busy with
/// far fewer.
pub(crate) const POOL_CONNECTIONS_MAX: usize = 16;
/// A caller that waits longer than this for a connection gets an error.
pub(crate) const POOL_WAIT_MAX: Duration = Duration::from_secs(10);
/// A server that does not accept a TCP connection in this time counts as unreachable.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// A commit of the stream log that is not answered in this time is put again on another connection: this one may be
/// half open. The first call may still succeed; its row is found then.
pub(crate) const STREAM_PUT_WAIT_MAX: Duration = Duration::from_secs(10);
/// The same for reading commits, of which one call reads some megabytes.
pub(crate) const STREAM_READ_WAIT_MAX: Duration = Duration::from_secs(10);
/// Crash recovery replays WAL; a checkpoint's worth takes well under this even on a
/// busy disk.
pub(crate) const CLUSTER_START_WAIT_MAX: Duration = Duration::from_secs(120);
/// A fast shutdown writes one checkpoint. After this the server is killed without one, which costs only a recovery at
/// the next start.
pub(crate) const CLUSTER_STOP_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long after a kill the children of the old postmaster may take to notice.
pub(crate) const CLUSTER_SETTLE_WAIT_MAX: Duration = Duration::from_secs(15);
/// A metrics read is bounded; one that takes longer is waiting for a lock and is given up.
pub(crate) const SURVEY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Kinds with their own series in metrics; a board shows fewer, and each series costs memory.
pub(crate) const LABELS_MAX: usize = 100;
/// The wait of a loop after its first error; it doubles with each further one.
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(50);
/// And at most: a database that is back is used within this time.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(1);
/// Between looks at what the database refuses: a closed gate, a missing subscription.
pub(crate) const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How often the state of the operating system is polled.
pub(crate) const CLUSTER_POLL: Duration = Duration::from_millis(20);
/// At startup, a larger log of the private PostgreSQL is truncated.
pub(crate) const CLUSTER_LOG_BYTES_MAX: u64 = 16 << 20;
/// A Unix socket's path is at most 107 bytes on Linux; this leaves room for the name.
pub(crate) const SOCKET_DIR_BYTES_MAX: usize = 85;
/// The most names of wake-ups that are kept until somebody asks: with more kinds at once, it does not matter where to look
/// first.
pub(crate) const WAKE_NAMES_MAX: usize = 64;
