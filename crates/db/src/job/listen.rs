//! Listening for wake-ups, on one connection outside the pool.
//!
//! A wake-up is a hint and never the truth: it may come for nothing and it may be missed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Address, whom};
use crate::{Database, Error, limits};

/// Is notified of new work until it is dropped or its connection breaks.
pub struct Listener {
    woken: Arc<Notify>,
    named: Arc<Mutex<HashSet<String>>>,
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
        let named = Arc::new(Mutex::new(HashSet::new()));
        let (wakes, names) = (woken.clone(), named.clone());
        let connection = tokio::spawn(async move {
            // However many come, they are one wake-up: `Notify` keeps a single permit.
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    keep(&names, notification.payload());
                    wakes.notify_one();
                }
            }
            wakes.notify_one();
        });
        client.batch_execute(command).await?;
        Ok(Listener { woken, named, connection, _client: client })
    }

    /// Waits for the next wake-up, or for the connection to break.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// What the wake-ups since the last call were about, as far as they say: of jobs, their kinds. Where to look first.
    pub fn take_named(&self) -> HashSet<String> {
        std::mem::take(&mut *self.named.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the connection is gone: open another one, and poll in the meantime.
    pub fn is_broken(&self) -> bool {
        self.connection.is_finished()
    }
}

/// Keeps a name, unless nobody has asked for the last ones for long.
fn keep(named: &Mutex<HashSet<String>>, name: &str) {
    let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
    if named.len() < limits::WAKE_NAMES_MAX {
        named.insert(name.to_owned());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
