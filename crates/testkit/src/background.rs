//! A role that runs in the test's own process until it is stopped.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wait::within;

/// A task that is asked to stop when the value is dropped.
pub struct Background {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Background {
    /// Starts the future that `run` returns: `Background::start(|shutdown| worker.run(shutdown))`.
    pub fn start<F>(run: impl FnOnce(CancellationToken) -> F) -> Background
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        Background { task: tokio::spawn(run(shutdown.clone())), shutdown }
    }

    /// Asks it to stop and does not wait, so that a test can watch it drain.
    pub fn begin_stop(&self) {
        self.shutdown.cancel();
    }

    /// Stops it and waits until it has drained.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        within("its end", &mut self.task).await.expect("it ends without a panic");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
