//! The private PostgreSQL, which Towpath installs, starts, supervises and stops.
//!
//! It runs if no `DATABASE_URL` is given, and under every test. It is an ordinary PostgreSQL server of the
//! distribution in its own directory, with a Unix socket that only its user and root can open.
//!
//! Who controls whom:
//!
//! ```text
//!   towpath ──lock file──▶ data directory        one owner at a time, released with the process
//!      │ stdin pipe
//!      ▼
//!   leash (sh) ──▶ postgres                      the pipe closes with towpath: fast shutdown
//! ```
//!
//! After a SIGKILL of any of them, the next start cleans up: it stops an orphaned server, PostgreSQL handles a stale pid
//! file, and an incomplete directory never got its final name.

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

/// The durability of the private PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every commit is synced.
    #[default]
    Safe,
    /// Nothing is synced: for tests, which discard the directory.
    Throwaway,
}

/// Configuration of the private PostgreSQL.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// The directory of `initdb` and `postgres`; searched for if not given.
    pub bin: Option<PathBuf>,
    /// The unprivileged user if towpath is root; `postgres` if not given.
    pub user: Option<String>,
    /// A loopback port to listen on besides the socket.
    pub port: Option<u16>,
    /// Its durability.
    pub durability: Durability,
}

/// A running private PostgreSQL. It stops with this value or this process.
pub struct Cluster {
    url: String,
    stop: CancellationToken,
    watcher: tokio::task::JoinHandle<()>,
    _lock: Lock,
}

impl Cluster {
    /// Locks the directory, initialises it if it is new, starts the server and waits until it responds.
    pub async fn start(config: &Config) -> Result<Cluster, Error> {
        // Checked before the first file is written.
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

    /// The URL of the database `towpath`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server with a fast shutdown and releases the directory.
    pub async fn stop(self) {
        self.stop.cancel();
        // The watcher ends by itself; a panic in it is already logged.
        let _ = self.watcher.await;
    }
}

/// The process that owns the private PostgreSQL of a directory, if one does.
pub fn owner(data: &Path) -> Option<(i32, Option<String>)> {
    Lock::holder(data).map(|Owner { pid, url }| (pid, url))
}

/// Asks the owner of a directory to stop and waits for it, or stops an orphaned server. Returns what was stopped.
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
