//! Places where a test kills the process.
//!
//! `TOWPATH_TEST_FAIL_POINT=name` or `name:3` (the third time) ends this process there like `kill -9`. Only in debug
//! builds.

/// Dies here if a test asked for it.
#[cfg(debug_assertions)]
pub(crate) fn hit(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static HITS: AtomicU32 = AtomicU32::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("TOWPATH_TEST_FAIL_POINT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), count.parse().unwrap_or(1)))
    });
    if let Some((wanted, count)) = wanted
        && wanted == name
        && HITS.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Nothing, in a release.
#[cfg(not(debug_assertions))]
pub(crate) fn hit(_name: &str) {}
