//! The private PostgreSQL: found, prepared, started, watched and stopped by us.
//!
//! Runs when no `DATABASE_URL` is given, and under every test. It is an ordinary server
//! of the distribution on a directory of our own, reachable by a Unix socket that only
//! its user and root can open.
//!
//! Who holds whom:
//!
//! ```text
//!   towpath ──lock file──▶ data directory        one owner at a time, gone with the process
//!      │ stdin pipe
//!      ▼
//!   leash (sh) ──▶ postgres                      the pipe closes, however we died: fast shutdown
//! ```
//!
//! What is left after a SIGKILL of any of them is cleaned up by the next start: an orphan
//! that still holds the directory is stopped, a stale pid file is PostgreSQL's own
//! business, a half-made directory was never given its name.

mod binaries;
mod home;
mod lock;
mod login;
mod private;
mod server;

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::connect::connect_once;
use crate::{Error, limits};
pub use binaries::Binaries;
use home::Home;
use lock::{Lock, Owner};
pub use login::Login;
pub use private::private_dir;
use server::Server;

/// What the private PostgreSQL may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: every commit is synced.
    #[default]
    Safe,
    /// Everything: for tests, which throw the directory away.
    Throwaway,
}

/// Where and how the private PostgreSQL runs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The directory that holds everything.
    pub data: PathBuf,
    /// Where `initdb` and `postgres` are; searched for when not given.
    pub bin: Option<PathBuf>,
    /// The unprivileged user to run as when we are root; `postgres` when not given.
    pub user: Option<String>,
    /// A loopback port to listen on besides the socket.
    pub port: Option<u16>,
    /// What it may lose.
    pub durability: Durability,
}

/// A running private PostgreSQL that ends with this value, or with this process.
pub struct Cluster {
    url: String,
    stop: CancellationToken,
    watcher: tokio::task::JoinHandle<()>,
    _lock: Lock,
}

impl Cluster {
    /// Takes the directory, prepares it when it is new, starts the server and waits until
    /// it answers.
    pub async fn start(config: &Config) -> Result<Cluster, Error> {
        // Before the first file is written: without programs there is nothing to prepare.
        let binaries = Binaries::find(config.bin.as_deref(), home::major(&config.data.join("postgres")))?;
        let lock = Lock::take(&config.data)?;
        let home = Home::find(config)?;
        home.stop_orphan().await?;
        home.prepare(&binaries).await?;
        let url = home.url();
        let postgres_url = home.socket_url("postgres");
        let server = Server::start(home, &binaries, config).await?;
        create_database(&postgres_url).await?;
        lock.announce(&url)?;
        let stop = CancellationToken::new();
        let watcher = tokio::spawn(server.watch(stop.clone()));
        Ok(Cluster { url, stop, watcher, _lock: lock })
    }

    /// How to reach the database `towpath` on it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server by a fast shutdown and gives the directory up.
    pub async fn stop(self) {
        self.stop.cancel();
        // The watcher ends by itself within its own bounds; a panic in it is already logged.
        let _ = self.watcher.await;
    }
}

/// The process that owns the private PostgreSQL of a directory, if one does.
pub fn owner(data: &Path) -> Option<(i32, Option<String>)> {
    Lock::holder(data).map(|Owner { pid, url }| (pid, url))
}

/// Asks the owner of a directory to stop and waits until it has, or stops an orphaned
/// server that nobody owns. Answers what was stopped.
pub async fn stop(config: &Config) -> Result<Option<String>, Error> {
    match Lock::take(&config.data) {
        Ok(_lock) => {
            Ok(Home::find(config)?.stop_orphan().await?.map(|pid| format!("postgres process {pid}")))
        }
        Err(Error::InUse { pid, .. }) if pid > 0 => {
            server::signal(pid, nix::sys::signal::Signal::SIGTERM);
            Lock::wait_free(&config.data, limits::CLUSTER_STOP_WAIT_MAX * 2).await?;
            Ok(Some(format!("towpath process {pid} and its PostgreSQL")))
        }
        Err(error) => Err(error),
    }
}

async fn create_database(url: &str) -> Result<(), Error> {
    let client = connect_once(url).await?;
    let exists = client.query_opt("select 1 from pg_database where datname = 'towpath'", &[]).await?;
    if exists.is_none() {
        client.batch_execute("create database towpath").await?;
    }
    Ok(())
}
