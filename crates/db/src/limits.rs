//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Connections a process keeps. PostgreSQL allows 100 by default and several processes
/// share them; two cores are busy with far fewer.
pub(crate) const POOL_CONNECTIONS_MAX: usize = 16;
/// A caller that waits longer than this for a connection is told so instead of hanging.
pub(crate) const POOL_WAIT_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer a TCP connect in this time counts as unreachable.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Crash recovery replays WAL; a checkpoint's worth takes well under this even on a
/// busy disk.
pub(crate) const CLUSTER_START_WAIT_MAX: Duration = Duration::from_secs(120);
/// A fast shutdown writes one checkpoint. Past this the server is ended without one,
/// which costs a recovery at the next start and nothing else.
pub(crate) const CLUSTER_STOP_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long after a kill the children of the old postmaster may take to notice.
pub(crate) const CLUSTER_SETTLE_WAIT_MAX: Duration = Duration::from_secs(15);
/// A look at everything for monitoring reads within bounds; longer than this means that it waits
/// for a lock, and the next one will do.
pub(crate) const SURVEY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Kinds that have a series of their own in metrics; a board shows fewer, and a series costs memory
/// wherever it is kept.
pub(crate) const LABELS_MAX: usize = 100;
/// The wait of a loop after its first error; it doubles with each further one.
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(50);
/// And at most: a database that is back is used within this time.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(1);
/// Between looks at what the database refuses: a closed gate, a missing subscription.
pub(crate) const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How often a state of the operating system is looked at while waiting for it.
pub(crate) const CLUSTER_POLL: Duration = Duration::from_millis(20);
/// The log of the private PostgreSQL starts over at a start that finds it larger.
pub(crate) const CLUSTER_LOG_BYTES_MAX: u64 = 16 << 20;
/// A Unix socket's path is at most 107 bytes on Linux; this leaves room for the name.
pub(crate) const SOCKET_DIR_BYTES_MAX: usize = 85;
