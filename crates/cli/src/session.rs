//! The database of one command: the one in `DATABASE_URL`, the private one if it runs already, or the
//! private one started for the duration of the command.

use std::time::{Duration, Instant};

use towpath_db::cluster::{self, Cluster};
use towpath_db::{Database, Error};

use crate::progress;
use crate::settings::Settings;

/// How long a command waits for a private PostgreSQL that another process is starting.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(30);

/// A database connection for one command.
pub(crate) struct Session {
    pub(crate) url: String,
    cluster: Option<Cluster>,
}

impl Session {
    /// Finds or starts the database.
    pub(crate) async fn open(settings: &Settings) -> Result<Session, Error> {
        if let Some(url) = &settings.database_url {
            return Ok(Session { url: url.clone(), cluster: None });
        }
        progress::patience("starting PostgreSQL", Session::start(settings)).await
    }

    /// The private one: started here, or already running in another process.
    async fn start(settings: &Settings) -> Result<Session, Error> {
        let deadline = Instant::now() + OWNER_WAIT_MAX;
        loop {
            match Cluster::start(&cluster_config(settings)).await {
                Ok(cluster) => return Ok(Session { url: cluster.url().to_owned(), cluster: Some(cluster) }),
                Err(Error::InUse { url: Some(url), .. }) => return Ok(Session { url, cluster: None }),
                Err(Error::InUse { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A connected database.
    pub(crate) async fn database(&self) -> Result<Database, Error> {
        progress::patience("connecting", Database::connect(&self.url)).await
    }

    /// Stops the PostgreSQL that was started for this command, if any.
    pub(crate) async fn close(self) {
        if let Some(cluster) = self.cluster {
            progress::patience("stopping PostgreSQL", cluster.stop()).await;
        }
    }
}

/// The private PostgreSQL as the settings describe it.
pub(crate) fn cluster_config(settings: &Settings) -> cluster::Config {
    cluster::Config {
        data: settings.data.clone(),
        bin: settings.postgres_bin.clone(),
        user: settings.postgres_user.clone(),
        port: settings.postgres_port,
        durability: cluster::Durability::Safe,
    }
}
