//! The disk as the store uses it: one flat directory of files.
//!
//! Every access to the disk goes through these two traits, so that tests can use a disk that runs
//! full, fails to sync, or loses power.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::Files;
use crate::Error;
use crate::limits::OPEN_FILES_MAX;

/// Streams hold private data, and the keys that sign tokens.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// A directory.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file, replacing an existing one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes names durable: creations, removals, renames.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file.
pub trait DiskFile: Send + Sync {
    /// How long it is.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer` from `position`, or fails.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `position`; if it fails, it may have written some.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes everything written durable.
    fn sync(&self) -> io::Result<()>;
    /// Whether it is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A directory of the file system, owned by this process while this value lives.
pub struct Directory {
    path: PathBuf,
    files: Arc<Files>,
    /// Closing it releases the directory.
    _lock: File,
}

impl Directory {
    /// Creates the directory if need be, and locks it for this process.
    pub fn take(path: impl Into<PathBuf>) -> Result<Directory, Error> {
        Directory::take_with(path, OPEN_FILES_MAX)
    }

    /// The same with another limit of open files.
    pub(super) fn take_with(path: impl Into<PathBuf>, open_max: usize) -> Result<Directory, Error> {
        let path = path.into();
        let shown = path.display().to_string();
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&path);
        made.map_err(|error| Error::io(format!("cannot create {shown}"), &error))?;
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true).mode(PRIVATE_FILE);
        let lock = lock.open(path.join("LOCK"));
        let lock = lock.map_err(|error| Error::io(format!("cannot open {shown}/LOCK"), &error))?;
        match lock.try_lock() {
            Ok(()) => {
                close_to_others(&path)?;
                Ok(Directory { path, files: Files::new(open_max), _lock: lock })
            }
            Err(TryLockError::WouldBlock) => Err(Error::InUse(shown)),
            Err(TryLockError::Error(error)) => Err(Error::io(format!("cannot lock {shown}"), &error)),
        }
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        // Truncating would take the contents from readers of the old file.
        self.files.pin(name).or_else(ignore_missing)?;
        fs::remove_file(&path).or_else(ignore_missing)?;
        let file = File::options().read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(&path)?;
        Ok(self.files.add(name, path, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.files.held(name) {
            return Ok(file);
        }
        let path = self.path.join(name);
        let file = File::options().read(true).write(true).open(&path)?;
        Ok(self.files.add(name, path, file))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.pin(name).or_else(ignore_missing)?;
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.pin(from)?;
        self.files.pin(to).or_else(ignore_missing)?;
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Removes the access of other users to a directory and its files.
fn close_to_others(directory: &Path) -> Result<(), Error> {
    let refused = |error: io::Error| {
        let shown = directory.display();
        Error::io(
            format!("cannot restrict {shown} to its owner; change its owner to the user who runs towpath"),
            &error,
        )
    };
    let mut closed = 0;
    closed += usize::from(narrow(directory, PRIVATE_DIRECTORY).map_err(refused)?);
    for entry in fs::read_dir(directory).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        if entry.file_type().map_err(refused)?.is_file() {
            closed += usize::from(narrow(&entry.path(), PRIVATE_FILE).map_err(refused)?);
        }
    }
    if closed > 0 {
        let shown = directory.display();
        tracing::warn!(
            closed,
            "the stream store in {shown} was readable by other users; restricted it to its owner"
        );
    }
    Ok(())
}

/// Removes what a mode allows beyond `wanted`; false if there was nothing.
fn narrow(path: &Path, wanted: u32) -> io::Result<bool> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & !wanted == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & wanted)).map(|()| true)
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
