//! Numbers that take longer to count the more there is, such as the backlog by kind.
//!
//! A page waits for them a moment. If they are not there by then, it shows the last ones with
//! their age and the counting goes on behind it, once for all pages, and rests ten times as
//! long as it took: looking at a large queue must not be what slows it down.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towpath_db::Error;

use crate::limits::{COUNT_REST, COUNT_WAIT};

/// One kind of number, shared by all pages. Cheap to clone.
pub(crate) struct Counted<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    last: Option<(Arc<T>, Instant)>,
    running: bool,
    /// Not counted again before this.
    rests_until: Option<Instant>,
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Counted<T> {
        Counted(self.0.clone())
    }
}

impl<T> Default for Counted<T> {
    fn default() -> Counted<T> {
        Counted(Arc::new(Mutex::new(State { last: None, running: false, rests_until: None })))
    }
}

/// What a page has to show.
pub(crate) struct Seen<T> {
    /// None while the very first counting is under way.
    pub(crate) value: Option<Arc<T>>,
    /// How old it is, if it is not of now.
    pub(crate) age: Option<Duration>,
}

impl<T: Send + Sync + 'static> Counted<T> {
    /// The number of now if it is there in a moment, otherwise the last one.
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
        let rests = state.rests_until.is_some_and(|until| Instant::now() < until);
        let may = !state.running && !rests;
        state.running |= may;
        may
    }

    fn end(&self, took: Duration, result: Result<T, Error>) -> Result<Arc<T>, Error> {
        let mut state = self.state();
        state.running = false;
        // What is quick is counted whenever somebody asks.
        state.rests_until = (took > COUNT_WAIT / 2).then(|| Instant::now() + took * COUNT_REST);
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
        assert!(counted.get(|| slow(1)).await.unwrap().value.is_none(), "nothing is known yet");
        assert!(counted.get(|| slow(2)).await.unwrap().value.is_none(), "and nobody counts twice");
        tokio::time::sleep(COUNT_WAIT * 4).await;
        let seen = counted.get(|| slow(3)).await.unwrap();
        assert_eq!(seen.value.as_deref(), Some(&1), "the second was not begun");
    }
}
