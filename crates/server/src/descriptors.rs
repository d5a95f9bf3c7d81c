//! File descriptors: every connection is one, and so is every file, every connection to the database.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits;

/// Raises the soft limit of this process to the hard one, and answers how many descriptors it may have.
/// Without it a login shell's 1,024 is all a server gets.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A kernel that refuses leaves the limit as it was, which is what counts below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// How many connections there may be, of so many that are wanted: some descriptors are kept for everything else.
pub(crate) fn connections_max(wanted: usize) -> usize {
    let allowed = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    let fitting = allowed.map_or(wanted, |allowed| wanted.min(beside_files(allowed)));
    if fitting < wanted {
        tracing::warn!(
            "connections_max is {wanted} and this process may have {} file descriptors, so {fitting} connections \
             are let in; raise the limit (ulimit -n, LimitNOFILE)",
            allowed.unwrap_or_default()
        );
    }
    fitting
}

/// What is left for connections of so many descriptors; of very few, half.
fn beside_files(allowed: usize) -> usize {
    allowed.saturating_sub(limits::FILES_KEPT).max(allowed / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S06: connections never take the descriptors that files and the database need.
    #[test]
    fn some_descriptors_are_kept() {
        assert_eq!(beside_files(1 << 20), (1 << 20) - limits::FILES_KEPT);
        assert_eq!(beside_files(1_024), 1_024 - limits::FILES_KEPT);
        assert_eq!(beside_files(256), 128);
        assert!(connections_max(usize::MAX) < usize::MAX || getrlimit(Resource::Nofile).current.is_none());
        assert_eq!(connections_max(1), 1);
    }
}
