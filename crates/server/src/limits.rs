//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Open connections. Each costs about 11 kB; this many fit beside everything else.
pub(crate) const CONNECTIONS_MAX: usize = 20_000;
/// A client must send its request's head in this time, or it is a slow attack.
pub(crate) const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Requests in flight get this long after a stop; the next signal ends them at once.
pub(crate) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long accepting rests when the process has no file descriptors left.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(50);
/// `/ready` answers in this time even when the database does not.
pub(crate) const READY_WAIT_MAX: Duration = Duration::from_secs(3);
