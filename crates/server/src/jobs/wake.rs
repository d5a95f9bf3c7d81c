//! One LISTEN connection for all calls that wait for jobs, and one for those that wait for events.
//!
//! Opened when the first call waits, so that an unused server has none. A notification is a hint
//! for all waiting calls; polling finds what it misses.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::Listener;

use crate::limits;

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Jobs,
    Events,
}

#[derive(Clone)]
pub(crate) struct Wake {
    what: For,
    database: Database,
    shutdown: CancellationToken,
    woken: Arc<OnceLock<watch::Sender<u64>>>,
}

impl Wake {
    pub(crate) fn new(what: For, database: Database, shutdown: CancellationToken) -> Wake {
        Wake { what, database, shutdown, woken: Arc::default() }
    }

    /// Changes with every notification from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        let woken = self.woken.get_or_init(|| {
            let woken = watch::Sender::new(0);
            tokio::spawn(listen(self.what, self.database.clone(), woken.clone(), self.shutdown.clone()));
            woken
        });
        woken.subscribe()
    }
}

async fn listen(what: For, database: Database, woken: watch::Sender<u64>, shutdown: CancellationToken) {
    let listening = async {
        loop {
            let listener = match what {
                For::Jobs => Listener::open(&database).await,
                For::Events => Listener::open_for_routing(&database).await,
            };
            match listener {
                Ok(listener) => {
                    while !listener.is_broken() {
                        listener.woken().await;
                        woken.send_modify(|count| *count += 1);
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot listen for notifications, polling instead"),
            }
            tokio::time::sleep(limits::LISTEN_REST).await;
        }
    };
    tokio::select! {
        () = listening => {}
        () = shutdown.cancelled() => {}
    }
}
