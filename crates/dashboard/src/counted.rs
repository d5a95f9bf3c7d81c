//! Counts whose cost grows with the data, such as the backlog by kind.
//!
//! A page waits for them briefly. If they are not ready, it shows the previous ones with their age, and counting
//! continues in the background, once for all pages. It then pauses for ten times as long as it took, so that the
//! dashboard does not slow down a large queue.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towpath_db::Error;

use crate::limits::{COUNT_PAUSE, COUNT_WAIT};

/// One count, shared by all pages. Cheap to clone.
pub(crate) struct Counted<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    last: Option<(Arc<T>, Instant)>,
    running: bool,
    /// Not counted again before this.
    pauses_until: Option<Instant>,
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Counted<T> {
        Counted(self.0.clone())
    }
}

impl<T> Default for Counted<T> {
    fn default() -> Counted<T> {
        Counted(Arc::new(Mutex::new(State { last: None, running: false, pauses_until: None })))
    }
}

/// What a page can show.
pub(crate) struct Seen<T> {
    /// None until the first count is finished.
    pub(crate) value: Option<Arc<T>>,
    /// Its age, if it is not current.
    pub(crate) age: Option<Duration>,
}

impl<T: Send + Sync + 'static> Counted<T> {
    /// The current value if it is ready soon, else the previous one.
    pub(crate) async fn get<F>(&self, count: impl FnOnce() -> F) -> Result<Seen<T>, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        if self.begin() {
            let (this, counting) = (self.clone(), count());
            let began = Instant::now();
            let task = tokio::spawn(async move {
                let result = counting.await;
                this.end(began.elapsed(), result)
            });
            if let Ok(Ok(result)) = tokio::time::timeout(COUNT_WAIT, task).await {
                let value = Some(result?);
                return Ok(Seen { value, age: None });
            }
        }
        let state = self.state();
        let (value, age) = state.last.as_ref().map(|(value, at)| (value.clone(), at.elapsed())).unzip();
        Ok(Seen { value, age })
    }

    /// Whether the caller is the one to count.
    fn begin(&self) -> bool {
        let mut state = self.state();
        let pausing = state.pauses_until.is_some_and(|until| Instant::now() < until);
        let may = !state.running && !pausing;
        state.running |= may;
        may
    }

    fn end(&self, took: Duration, result: Result<T, Error>) -> Result<Arc<T>, Error> {
        let mut state = self.state();
        state.running = false;
        // A quick count needs no pause.
        state.pauses_until = (took > COUNT_WAIT / 2).then(|| Instant::now() + took * COUNT_PAUSE);
        let value = Arc::new(result?);
        state.last = Some((value.clone(), Instant::now()));
        Ok(value)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_quick_is_always_of_now() {
        let counted = Counted::default();
        for n in 0..3 {
            let seen = counted.get(|| async move { Ok(n) }).await.unwrap();
            assert_eq!((seen.value.as_deref(), seen.age), (Some(&n), None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_slow_is_shown_as_it_was_and_counted_once() {
        let counted = Counted::default();
        let slow = |n: i32| async move {
            tokio::time::sleep(COUNT_WAIT * 3).await;
            Ok(n)
        };
        assert!(counted.get(|| slow(1)).await.unwrap().value.is_none(), "no value yet");
        assert!(counted.get(|| slow(2)).await.unwrap().value.is_none(), "it is not counted twice");
        tokio::time::sleep(COUNT_WAIT * 4).await;
        let seen = counted.get(|| slow(3)).await.unwrap();
        assert_eq!(seen.value.as_deref(), Some(&1), "the second count was not started");
    }
}
