//! A worker registers its executor and the kinds it runs, if it may: producers then need not say who runs a job.

use tokio_util::sync::CancellationToken;
use towpath_db::Error;
use towpath_db::retry::Retry;

use crate::worker::Worker;

impl Worker {
    /// Registers, again and again while the database does not answer. False if `shutdown` came first.
    pub(crate) async fn until_registered(&self, shutdown: &CancellationToken) -> bool {
        let mut retry = Retry::of("registering the executor");
        while let Err(error) = self.register_executor().await {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(retry.failed(&error)) => {}
            }
        }
        true
    }

    /// Registers once, if this worker does so. A login that may not register uses what an administrator registered.
    pub(crate) async fn register_executor(&self) -> Result<(), Error> {
        if !self.registers {
            return Ok(());
        }
        match self.shared.database.executor_register(&self.executor, &self.kinds()).await {
            Ok(added) if added.is_empty() => Ok(()),
            Ok(added) => {
                let (executor, kinds) = (&self.executor, added.join(", "));
                tracing::info!(executor, kinds, "subscribed to new kinds");
                Ok(())
            }
            Err(Error::NotAuthorised(why)) => {
                tracing::info!(executor = self.executor, "not registered by this worker: {why}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
