//! The route role: configuration, loops and shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job::LeaseOwner;
use towpath_db::retry::grace_over;
use towpath_model::metrics::Register;

use crate::numbers::Numbers;
use crate::route_worker::RouteWorker;
use crate::sequencer::Sequencer;
use crate::stream::{StreamSender, Streams};
use crate::wake::Wake;
use crate::webhook_sender::WebhookSender;
use crate::{limits, webhook};

/// Configuration of the role. The defaults work.
#[derive(Debug, Clone)]
pub struct Config {
    /// The route workers to run; none means all registered ones.
    pub workers: Option<Vec<String>>,
    /// Passes in parallel; more than there are slices is of no use.
    pub passes: usize,
    /// Webhooks in flight at once.
    pub deliveries: usize,
    /// Poll interval for events without a position.
    pub poll: Duration,
    /// Whether to listen for notifications; otherwise it only polls.
    pub listen: bool,
    /// How long webhooks in flight may take after a stop.
    pub drain: Duration,
    /// Which addresses webhooks may reach.
    pub reach: webhook::Reach,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            workers: None,
            passes: limits::PASSES_DEFAULT,
            deliveries: limits::DELIVERIES_DEFAULT,
            poll: limits::POLL_DEFAULT,
            listen: true,
            drain: limits::DRAIN_DEFAULT,
            reach: webhook::Reach::default(),
        }
    }
}

/// Sequences and routes events, and delivers webhooks.
pub struct Role {
    database: Database,
    config: Config,
    wake: Arc<Wake>,
    webhooks: Arc<WebhookSender>,
    streams: Option<Arc<dyn Streams>>,
    numbers: Numbers,
}

impl Role {
    /// The role on this database.
    pub fn new(database: Database, config: Config) -> Result<Role, webhook::Error> {
        let client = webhook::Client::new(config.reach.clone())?;
        Ok(Role::with_client(database, config, client))
    }

    /// The role with another HTTP client for webhooks.
    pub fn with_client(database: Database, config: Config, client: webhook::Client) -> Role {
        let wake = Arc::new(Wake::new());
        let numbers = Numbers::default();
        let host = nix::unistd::gethostname().unwrap_or_default();
        // Unique per start, so that a restarted owner is not mistaken for its predecessor.
        let owner = format!("route@{}#{}", host.to_string_lossy(), uuid::Uuid::now_v7().simple());
        let webhooks = Arc::new(WebhookSender {
            database: database.clone(),
            wake: wake.clone(),
            client,
            owner: LeaseOwner::new(owner),
            room: Arc::new(Semaphore::new(config.deliveries.max(1))),
            numbers: numbers.clone(),
        });
        Role { database, config, wake, webhooks, streams: None, numbers }
    }

    /// Also delivers to streams. Without it, stream deliveries wait.
    pub fn streams(mut self, streams: Arc<dyn Streams>) -> Role {
        self.streams = Some(streams);
        self
    }

    /// Registers its metrics, for `/metrics`.
    pub fn register(&self, registry: &mut Register<'_>) {
        self.numbers.register(registry);
    }

    /// Runs until `shutdown`, then finishes its passes and the webhooks in flight.
    pub async fn run(self, shutdown: CancellationToken) {
        tracing::info!(passes = self.config.passes, deliveries = self.config.deliveries, "routing started");
        let sequencer = Sequencer { database: &self.database, wake: &self.wake, poll: self.config.poll };
        let worker = || RouteWorker {
            database: &self.database,
            wake: &self.wake,
            only: self.config.workers.as_deref(),
            numbers: &self.numbers,
        };
        let workers: Vec<RouteWorker<'_>> = (0..self.config.passes.max(1)).map(|_| worker()).collect();
        let listening = async {
            if self.config.listen {
                self.wake.listen(&self.database, &shutdown).await;
            }
        };
        let passes = async {
            tokio::join!(
                sequencer.run(&shutdown),
                join_all(workers.iter().map(|worker| worker.run(&shutdown))),
                listening,
            );
        };
        // A running pass may finish; a database that does not respond must not block the shutdown.
        let passes = async {
            tokio::select! {
                () = passes => {}
                () = grace_over(&shutdown, limits::LAST_PASS_WAIT_MAX) => {}
            }
        };
        let appends = async {
            if let Some(streams) = self.streams.clone() {
                let (database, wake, numbers) = (&self.database, &*self.wake, &self.numbers);
                let owner = &self.webhooks.owner;
                StreamSender { database, wake, owner, streams, numbers }.run(&shutdown).await;
            }
        };
        let appends = async {
            tokio::select! {
                () = appends => {}
                () = grace_over(&shutdown, limits::LAST_PASS_WAIT_MAX) => {}
            }
        };
        let deliveries = self.webhooks.clone().run(&shutdown, self.config.drain);
        tokio::join!(passes, appends, deliveries);
        tracing::info!("routing stopped");
    }
}
