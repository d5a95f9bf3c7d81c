//! Listening for wake-ups, on one connection outside the pool.
//!
//! A wake-up is a hint and never the truth: it may come for nothing and it may be missed.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Address, whom};
use crate::{Database, Error};

/// Is notified of new work until it is dropped or its connection breaks.
pub struct Listener {
    woken: Arc<Notify>,
    connection: JoinHandle<()>,
    // Closing the client would end the connection.
    _client: Client,
}

impl Listener {
    /// Opens a connection and listens for jobs.
    pub async fn open(database: &Database) -> Result<Listener, Error> {
        Listener::listen(database, "listen towpath_job").await
    }

    /// Opens a connection and listens for numbered events and for deliveries.
    pub async fn open_for_routing(database: &Database) -> Result<Listener, Error> {
        Listener::listen(database, "listen towpath_event; listen towpath_delivery").await
    }

    /// Opens a connection and listens for messages that are left for streams.
    pub async fn open_for_intake(database: &Database) -> Result<Listener, Error> {
        Listener::listen(database, "listen towpath_stream_intake").await
    }

    async fn listen(database: &Database, command: &str) -> Result<Listener, Error> {
        let Address { config, tls } = database.address()?;
        let (client, mut connection) =
            config.connect(tls.clone()).await.map_err(|error| Error::unreachable(&error, &whom(config)))?;
        let woken = Arc::new(Notify::new());
        let wakes = woken.clone();
        let connection = tokio::spawn(async move {
            // However many come, they are one wake-up: `Notify` keeps a single permit.
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(_) = message {
                    wakes.notify_one();
                }
            }
            wakes.notify_one();
        });
        client.batch_execute(command).await?;
        Ok(Listener { woken, connection, _client: client })
    }

    /// Waits for the next wake-up, or for the connection to break.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Whether the connection is gone: open another one, and poll in the meantime.
    pub fn is_broken(&self) -> bool {
        self.connection.is_finished()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
