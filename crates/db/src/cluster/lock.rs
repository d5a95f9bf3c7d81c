//! One owner of a data directory at a time.
//!
//! The lock is the kernel's (`flock`), so it ends with its process, however that died. The file's content only tells
//! others the owner and the URL.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::{Error, limits};

const NAME: &str = "towpath.lock";

/// The owner of a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) pid: i32,
    pub(super) url: Option<String>,
}

/// Ownership of a data directory.
pub(super) struct Lock {
    file: Flock<File>,
}

impl Lock {
    /// Creates the directory if needed and locks it.
    pub(super) fn take(data: &Path) -> Result<Lock, Error> {
        let unusable = |error: std::io::Error| {
            Error::Cluster(format!(
                "cannot write to the data directory {}: {error}; choose another with --data",
                data.display()
            ))
        };
        super::private_dir(data).map_err(unusable)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(data.join(NAME))
            .map_err(unusable)?;
        // It may contain the URL with the password.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(unusable)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                let mut lock = Lock { file };
                lock.write(&Owner { pid: std::process::id().cast_signed(), url: None }).map_err(unusable)?;
                Ok(lock)
            }
            Err((file, _)) => {
                let Owner { pid, url } = read(file);
                Err(Error::InUse { data: data.display().to_string(), pid, url })
            }
        }
    }

    /// Publishes the URL.
    pub(super) fn announce(&self, url: &str) -> Result<(), Error> {
        let owner = Owner { pid: std::process::id().cast_signed(), url: Some(url.to_owned()) };
        let mut file = self.file.try_clone().map_err(|error| Error::Cluster(error.to_string()))?;
        write(&mut file, &owner).map_err(|error| Error::Cluster(error.to_string()))
    }

    fn write(&mut self, owner: &Owner) -> std::io::Result<()> {
        write(&mut self.file, owner)
    }

    /// The owner of a directory, if it has one.
    pub(super) fn holder(data: &Path) -> Option<Owner> {
        let file = File::open(data.join(NAME)).ok()?;
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => None,
            Err((file, _)) => Some(read(file)),
        }
    }

    /// Waits until the directory has no owner.
    pub(super) async fn wait_free(data: &Path, at_most: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + at_most;
        while let Some(owner) = Lock::holder(data) {
            if Instant::now() > deadline {
                return Err(Error::Cluster(format!(
                    "towpath process {} still uses {} after {} s; end it with: kill -9 {}",
                    owner.pid,
                    data.display(),
                    at_most.as_secs(),
                    owner.pid
                )));
            }
            tokio::time::sleep(limits::CLUSTER_POLL).await;
        }
        Ok(())
    }
}

fn write(file: &mut File, owner: &Owner) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(owner)?)?;
    file.flush()
}

/// The owner may be between truncating and writing: then its id is not known yet.
fn read(mut file: File) -> Owner {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lock::holder(dir.path()).is_none());
        let lock = Lock::take(dir.path()).unwrap();
        lock.announce("postgresql://somewhere").unwrap();
        match Lock::take(dir.path()) {
            Err(Error::InUse { pid, url, .. }) => {
                assert_eq!(pid, std::process::id().cast_signed());
                assert_eq!(url.as_deref(), Some("postgresql://somewhere"));
            }
            _ => panic!("there are two owners"),
        }
        drop(lock);
        assert!(Lock::holder(dir.path()).is_none());
        Lock::take(dir.path()).unwrap();
    }
}
