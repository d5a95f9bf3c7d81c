//! `server.json`: how commands find the server that runs on a data directory.
//!
//! The server writes its address, a token for the registry of projects, new at each start, and which addresses its
//! webhooks may reach. Only the owner of the directory can read the file.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use towpath_db::cluster::private_dir;
use towpath_route::webhook::Reach;

use crate::settings::Settings;

const FILE: &str = "server.json";

/// The content of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerFile {
    /// Where the server listens.
    pub(crate) url: String,
    /// Token for its registry of projects.
    pub(crate) token: String,
    /// Whether it sends webhooks to this machine.
    #[serde(default)]
    pub(crate) webhook_local: bool,
    /// The private networks that it sends webhooks to.
    #[serde(default)]
    pub(crate) webhook_networks: Vec<String>,
}

/// How often writing is retried while the disk is full.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Removes the file when the server stops.
pub(crate) struct ServerFileGuard {
    path: PathBuf,
    /// The task that writes the file once the disk has room.
    retry: Option<AbortHandle>,
}

impl ServerFile {
    /// With a new random token.
    pub(crate) fn new(url: &str, settings: &Settings) -> ServerFile {
        let Reach { local, networks } = crate::route::reach(settings);
        ServerFile {
            url: url.to_owned(),
            token: towpath_server::project::random_secret().reveal(),
            webhook_local: local,
            webhook_networks: networks.iter().map(ToString::to_string).collect(),
        }
    }

    /// Writes the file, readable only by its owner. A full disk does not prevent a start: the file is then
    /// written later.
    pub(crate) fn write_to(&self, data: &Path) -> anyhow::Result<ServerFileGuard> {
        let path = data.join(FILE);
        let retry = match self.write(data) {
            Ok(()) => None,
            Err(error) if is_full(&error) => {
                tracing::error!(
                    "the disk is full, cannot write {}: commands cannot find this server yet",
                    path.display()
                );
                Some(tokio::spawn(self.clone().write_later(data.to_owned())).abort_handle())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
        };
        Ok(ServerFileGuard { path, retry })
    }

    async fn write_later(self, data: PathBuf) {
        loop {
            tokio::time::sleep(RETRY_EVERY).await;
            match self.write(&data) {
                Ok(()) => return tracing::info!("wrote {FILE}: commands can find this server"),
                Err(error) => tracing::debug!(%error, "cannot write {FILE} yet"),
            }
        }
    }

    fn write(&self, data: &Path) -> std::io::Result<()> {
        private_dir(data)?;
        let unfinished = data.join(format!("{FILE}.new"));
        let _ = std::fs::remove_file(&unfinished);
        let written = || {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(serde_json::to_string(self)?.as_bytes())?;
            std::fs::rename(&unfinished, data.join(FILE))
        };
        let result = written();
        if result.is_err() {
            // A file left by an earlier run would send commands to the wrong server.
            let _ = std::fs::remove_file(&unfinished);
            let _ = std::fs::remove_file(data.join(FILE));
        }
        result
    }

    /// The file of the server that runs, or ran, on `data`.
    pub(crate) fn find(data: &Path) -> Option<ServerFile> {
        serde_json::from_slice(&std::fs::read(data.join(FILE)).ok()?).ok()
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl Drop for ServerFileGuard {
    fn drop(&mut self) {
        self.retry.iter().for_each(AbortHandle::abort);
        let _ = std::fs::remove_file(&self.path);
    }
}
