//! Tells connections that the server stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Whether the server stops. Cheap to clone.
///
/// A busy connection reads the flag, which costs nothing; an idle one is woken by the token.
/// The flag is set first, so that a connection that was woken finds it set.
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
