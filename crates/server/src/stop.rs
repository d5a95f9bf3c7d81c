//! Telling connections that the server stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The end of serving, as connections see it. Cheap to clone.
///
/// A connection that is busy asks the flag, which costs nothing; one that rests is woken by
/// the token. The flag goes up first, so that whoever was woken finds it up.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    token: CancellationToken,
}

impl Stop {
    pub(crate) fn now(&self) {
        self.flag.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self) -> WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }
}
