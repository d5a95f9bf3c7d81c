//! How commands find the server that runs on a data directory, and prove that they may.
//!
//! A server writes `server.json` there: where it listens, and a token made for this run that
//! opens the registry of projects. Only the owner of the directory reads it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

const FILE: &str = "server.json";

/// What the file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Door {
    /// Where the server listens.
    pub(crate) url: String,
    /// What opens its registry.
    pub(crate) token: String,
}

/// The file, for as long as the server runs.
pub(crate) struct Doorplate(PathBuf);

impl Door {
    /// A door with a token of its own.
    pub(crate) fn new(url: &str) -> Door {
        Door { url: url.to_owned(), token: towpath_server::project::random_secret().reveal() }
    }

    /// Writes the file, readable by its owner alone.
    pub(crate) fn show(&self, data: &Path) -> anyhow::Result<Doorplate> {
        let path = data.join(FILE);
        let unfinished = data.join(format!("{FILE}.new"));
        let written = || -> std::io::Result<()> {
            std::fs::create_dir_all(data)?;
            let _ = std::fs::remove_file(&unfinished);
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(serde_json::to_string(self)?.as_bytes())?;
            std::fs::rename(&unfinished, &path)
        };
        written().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Doorplate(path))
    }

    /// The door of the server that runs on `data`, or ran.
    pub(crate) fn find(data: &Path) -> Option<Door> {
        serde_json::from_slice(&std::fs::read(data.join(FILE)).ok()?).ok()
    }
}

impl Drop for Doorplate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
