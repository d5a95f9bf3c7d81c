//! Wake-ups between the loops of this process, and from other processes.
//!
//! They are hints: a loop that misses one finds the work by polling.

use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::Listener;

use crate::limits;

/// The hints.
pub(crate) struct Wake {
    /// Changes when there may be events to route.
    events: watch::Sender<u64>,
    /// There may be a webhook to send.
    deliveries: Notify,
    /// Changes when there may be something for a stream.
    streams: watch::Sender<u64>,
}

impl Wake {
    pub(crate) fn new() -> Wake {
        Wake { events: watch::Sender::new(0), deliveries: Notify::new(), streams: watch::Sender::new(0) }
    }

    /// Events got positions.
    pub(crate) fn events(&self) {
        self.events.send_modify(|count| *count += 1);
    }

    /// Deliveries were created.
    pub(crate) fn deliveries(&self) {
        self.room();
        self.streams.send_modify(|count| *count += 1);
    }

    /// Another webhook can be sent.
    pub(crate) fn room(&self) {
        self.deliveries.notify_one();
    }

    /// Is notified of deliveries to streams from now on.
    pub(crate) fn watch_streams(&self) -> watch::Receiver<u64> {
        self.streams.subscribe()
    }

    /// Is notified of events from now on.
    pub(crate) fn watch_events(&self) -> watch::Receiver<u64> {
        self.events.subscribe()
    }

    /// Waits for a delivery, or for a timeout.
    pub(crate) async fn delivery_within(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.deliveries.notified()).await;
    }

    /// Forwards notifications of other processes until `shutdown`.
    pub(crate) async fn listen(&self, database: &Database, shutdown: &CancellationToken) {
        let listening = async {
            loop {
                match Listener::open_for_routing(database).await {
                    Ok(listener) => {
                        while !listener.is_broken() {
                            listener.woken().await;
                            self.events();
                            self.deliveries();
                        }
                    }
                    Err(error) => tracing::debug!(%error, "cannot listen for events, polling instead"),
                }
                tokio::time::sleep(limits::LISTEN_REST).await;
            }
        };
        tokio::select! {
            () = listening => {}
            () = shutdown.cancelled() => {}
        }
    }
}
