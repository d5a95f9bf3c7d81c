//! Numbers that a test waits for or looks at.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::wait::within;

/// A count that a test can wait for.
#[derive(Clone)]
pub struct Count(Arc<watch::Sender<usize>>);

impl Count {
    /// Nothing counted yet.
    #[expect(clippy::new_without_default, reason = "a test says that it begins to count")]
    pub fn new() -> Count {
        Count(Arc::new(watch::Sender::new(0)))
    }

    /// Counts one more, and returns how many there are now.
    pub fn add(&self) -> usize {
        self.0.send_modify(|count| *count += 1);
        self.now()
    }

    /// How many there are.
    pub fn now(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until there are so many.
    pub async fn until(&self, wanted: usize) {
        let mut seen = self.0.subscribe();
        let reached = within(format!("{wanted} counted"), seen.wait_for(|count| *count >= wanted)).await;
        assert!(reached.is_ok(), "the counter is gone");
    }
}

/// How many things happen at once, at most.
#[derive(Clone, Default)]
pub struct AtOnce(Arc<(AtomicUsize, Mutex<usize>)>);

impl AtOnce {
    /// One more begins.
    pub fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        let mut most = self.0.1.lock().expect("nothing panics here");
        *most = (*most).max(now);
    }

    /// One ends.
    pub fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// The most there were at a time.
    pub fn most(&self) -> usize {
        *self.0.1.lock().expect("nothing panics here")
    }
}
