//! How commands find the server that runs on a data directory, and prove that they may.
//!
//! A server writes `server.json` there: where it listens, and a token made for this run that
//! opens the registry of projects. Only the owner of the directory reads it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use towpath_db::cluster::private_dir;

const FILE: &str = "server.json";

/// What the file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Door {
    /// Where the server listens.
    pub(crate) url: String,
    /// What opens its registry.
    pub(crate) token: String,
}

/// How often a file there is no room for is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// The file, for as long as the server runs.
pub(crate) struct Doorplate {
    path: PathBuf,
    /// Writes it when there is room.
    retry: Option<AbortHandle>,
}

impl Door {
    /// A door with a token of its own.
    pub(crate) fn new(url: &str) -> Door {
        Door { url: url.to_owned(), token: towpath_server::project::random_secret().reveal() }
    }

    /// Writes the file, readable by its owner alone. A full disk does not keep a server from
    /// starting: the file is then written when there is room.
    pub(crate) fn show(&self, data: &Path) -> anyhow::Result<Doorplate> {
        let path = data.join(FILE);
        let retry = match self.write(data) {
            Ok(()) => None,
            Err(error) if is_full(&error) => {
                tracing::error!(
                    "no room on the disk for {}: commands cannot find this server yet",
                    path.display()
                );
                Some(tokio::spawn(self.clone().write_later(data.to_owned())).abort_handle())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
        };
        Ok(Doorplate { path, retry })
    }

    async fn write_later(self, data: PathBuf) {
        loop {
            tokio::time::sleep(RETRY_EVERY).await;
            match self.write(&data) {
                Ok(()) => return tracing::info!("there is room again: commands find this server"),
                Err(error) => tracing::debug!(%error, "still no {FILE}"),
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
            // What an earlier run left behind would send commands to the wrong door.
            let _ = std::fs::remove_file(&unfinished);
            let _ = std::fs::remove_file(data.join(FILE));
        }
        result
    }

    /// The door of the server that runs on `data`, or ran.
    pub(crate) fn find(data: &Path) -> Option<Door> {
        serde_json::from_slice(&std::fs::read(data.join(FILE)).ok()?).ok()
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl Drop for Doorplate {
    fn drop(&mut self) {
        self.retry.iter().for_each(AbortHandle::abort);
        let _ = std::fs::remove_file(&self.path);
    }
}
