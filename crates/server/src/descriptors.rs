//! File descriptors: connections, files and database connections share one limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits;

/// Raises the soft limit of this process to the hard limit, and answers the limit.
/// Otherwise a server started from a login shell has 1,024.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the kernel refuses, the limit stays as it was; it is read again below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// The number of connections the limit allows, at most `wanted`: some descriptors are reserved for everything else.
pub(crate) fn connections_max(wanted: usize) -> usize {
    let allowed = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    let fitting = allowed.map_or(wanted, |allowed| wanted.min(beside_files(allowed)));
    if fitting < wanted {
        tracing::warn!(
            "connections_max is {wanted}, but this process may open only {} file descriptors: accepting {fitting} \
             connections; raise the limit (ulimit -n, LimitNOFILE)",
            allowed.unwrap_or_default()
        );
    }
    fitting
}

/// What is left for connections of so many descriptors; at least half.
fn beside_files(allowed: usize) -> usize {
    allowed.saturating_sub(limits::FILES_KEPT).max(allowed / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S06: connections never use the descriptors that files and the database need.
    #[test]
    fn some_descriptors_are_reserved() {
        assert_eq!(beside_files(1 << 20), (1 << 20) - limits::FILES_KEPT);
        assert_eq!(beside_files(1_024), 1_024 - limits::FILES_KEPT);
        assert_eq!(beside_files(256), 128);
        assert!(connections_max(usize::MAX) < usize::MAX || getrlimit(Resource::Nofile).current.is_none());
        assert_eq!(connections_max(1), 1);
    }
}
