//! `towpath demo`: a small shop that produces sample traffic for every part of the system.
//!
//! If no server runs on the data directory, it is `towpath up --dev` with traffic; otherwise it sends traffic
//! to the running server. Everything it creates is named `demo.…`, belongs to the actor `demo`, and is
//! bounded by the rate, by the retention of its streams, and by a maximum number of open dead letters.

mod ground;
mod receiver;
mod tally;
mod traffic;
mod work;

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::job_read::JobFilter;
use towpath_db::process::ProcessFilter;
use towpath_message::Transports;

use super::stream::client::Client;
use super::up::{self, Up};
use crate::output::{Exit, Output, done};
use crate::server_file::ServerFile;
use crate::settings::{Origins, Settings};
use crate::shutdown;
use receiver::Receiver;
pub(crate) use tally::Tally;

/// The actor of everything here, and the executor of its jobs.
const DEMO: &str = "demo";

#[derive(Args, Debug, Clone)]
pub(crate) struct Demo {
    /// Orders per second; each is an event, some jobs, an append, and sometimes a message
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=200))]
    rate: u16,
    /// Stop after this many seconds (default: when interrupted)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,
    /// Run on a database with other data; opens no gates and sends no messages
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(demo: Demo, settings: &Settings, origins: &Origins, output: &Output) -> Exit {
    match running(settings).await {
        Some(url) => demo.visit(url, settings, output).await,
        None => {
            let mut settings = settings.clone();
            settings.stream.allow_webhook_local();
            up::run(Up::with_traffic(demo), &settings, origins, output).await
        }
    }
}

/// The address of the running server, if there is one.
async fn running(settings: &Settings) -> Option<String> {
    let url = settings
        .url
        .clone()
        .or_else(|| ServerFile::find(&settings.data).map(|server_file| server_file.url))?;
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().ok()?;
    http.get(format!("{url}/health")).send().await.ok().map(|_| url)
}

impl Demo {
    /// Whether it may open gates and create the default subscription: not beside other data.
    pub(super) fn opens_gates(&self) -> bool {
        !self.yes
    }

    /// Its messages go to the log only, and beside other data there are none.
    pub(super) fn transports(&self, settings: &Settings) -> anyhow::Result<Transports> {
        match self.yes {
            true => Ok(Transports::default()),
            false => settings.message.log_alone(),
        }
    }

    /// Refuses a database with other data before changing anything.
    pub(super) async fn refuse_foreign(&self, database: &Database) -> anyhow::Result<()> {
        if self.yes || !database.subscription_list(Some(DEMO)).await?.is_empty() {
            return Ok(());
        }
        let holds = if !database.job_list(&JobFilter::default(), 1, None).await?.jobs.is_empty() {
            "jobs"
        } else if database.event_health().await?.last_position > 0 {
            "events"
        } else if !database.process_list(&ProcessFilter::default(), 1, None).await?.processes.is_empty() {
            "processes"
        } else if !database.schedule_list().await?.is_empty() {
            "schedules"
        } else if !database.route_list().await?.is_empty() {
            "routes"
        } else {
            return Ok(());
        };
        bail!(
            "this database contains {holds} that the demo did not create; choose another directory with --data \
             or another database, or add the demo's traffic anyway with --yes"
        )
    }

    /// Sends traffic to a running server.
    async fn visit(self, url: String, settings: &Settings, output: &Output) -> Exit {
        let shutdown = shutdown::on_signal()?;
        super::with_database(settings, async |database| {
            self.refuse_foreign(&database).await?;
            if self.opens_gates() {
                up::open_gates(&database, "towpath demo").await?;
            }
            output.line(&format!("sending demo traffic to {url}; open {url}/ui"));
            let place = Place { url, webhooks: settings.stream.webhook_local() };
            let tally = self.clone().run(database, place, settings, shutdown).await?;
            output.show(&tally, Tally::in_words);
            done()
        })
        .await
    }

    /// Sends traffic until the time is up or `shutdown`, which it cancels at its end.
    pub(super) async fn run(
        self,
        database: Database,
        place: Place,
        settings: &Settings,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Tally> {
        let _ended = shutdown.clone().drop_guard();
        require_gates(&database).await?;
        let settings = Settings { url: Some(place.url.clone()), ..settings.clone() };
        let client = Client::new(&settings, "default".into())?;
        let receiver = match place.webhooks {
            true => Some(Receiver::open().await?),
            false => {
                tracing::warn!(
                    "the demo sends no webhooks; if the server was started with --webhook-local, add the flag here too"
                );
                None
            }
        };
        ground::lay(&database, &client, receiver.as_ref().map(Receiver::url)).await?;
        let worker = tokio::spawn(work::worker(database.clone())?.run(shutdown.clone()));
        let received = receiver.map(|receiver| receiver.run(shutdown.clone()));
        let traffic = traffic::Traffic::new(self.yes, database.clone(), client);
        let over = shutdown.child_token();
        let _clock = self.seconds.map(|seconds| end_after(seconds, over.clone()).drop_guard());
        let mut tally = traffic.run(self.rate, over).await;
        shutdown.cancel();
        if let Some(received) = received {
            tally.webhooks_received = received.await?;
        }
        worker.await?;
        ground::clear(&database).await?;
        Ok(tally)
    }
}

/// Cancels `over` after `seconds`, unless the returned token is cancelled first.
fn end_after(seconds: u64, over: CancellationToken) -> CancellationToken {
    let unneeded = CancellationToken::new();
    let clock = unneeded.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => over.cancel(),
            () = clock.cancelled() => {}
        }
    });
    unneeded
}

/// The server that gets the traffic.
pub(super) struct Place {
    /// Where it listens.
    pub(super) url: String,
    /// Whether it may send webhooks to this machine.
    pub(super) webhooks: bool,
}

/// With a closed gate the demo would look broken.
async fn require_gates(database: &Database) -> anyhow::Result<()> {
    let closed = up::closed_gates(database).await?;
    if !closed.is_empty() {
        bail!("closed gates: {}; open each with: towpath gate open NAME --why …", closed.join(", "));
    }
    Ok(())
}
