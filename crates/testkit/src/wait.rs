//! Polling with one time limit, for conditions that send no signal.

use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

/// Longer than anything takes on a slow, busy machine. A test that waits longer has found a bug.
pub const WAIT_MAX: Duration = Duration::from_secs(120);
/// The poll interval: short against what tests wait for, long against the cost of a query.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Polls until the value is right, and returns it. Panics with the last value after `WAIT_MAX`.
pub async fn until<T: Debug>(
    what: impl Display,
    mut look: impl AsyncFnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let value = look().await;
        if is_right(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen within {WAIT_MAX:?}; last seen: {value:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Polls until the condition holds.
pub async fn until_true(what: impl Display, look: impl AsyncFnMut() -> bool) {
    until(what, look, |is_so| *is_so).await;
}

/// Polls until there is a value, and returns it.
pub async fn until_some<T>(what: impl Display, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut found = None;
    let is_there = async || {
        found = look().await;
        found.is_some()
    };
    until_true(what, is_there).await;
    found.expect("it was looked for until it was there")
}

/// Awaits a future. Panics after `WAIT_MAX`.
pub async fn within<F: Future>(what: impl Display, future: F) -> F::Output {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen within {WAIT_MAX:?}"),
    }
}
