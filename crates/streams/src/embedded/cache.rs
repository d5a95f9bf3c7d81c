//! This node's cache of a shared log: opening it, and dropping it if it is not a part of that log.
//!
//! A cache is not synced with every commit, so its end may be damaged; what is missing is read from the log again. The
//! last commit of the files may be there in part. It is verified like all others, and then written once more, to the
//! same place.

use std::sync::Arc;

use super::Config;
use super::disk::Disk;
use super::recover::{Opened, open_files};
use super::segment::number_of;
use super::shared::Position;
use crate::Error;
use crate::commit_log::CommitLog;

/// Begins the file VERSION of a cache; the id of the log follows.
const VERSION: &str = "towpath-streams-cache 3 ";
const VERSION_NAME: &str = "VERSION";

/// Where the commits of a cache end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CacheEnd {
    /// The last commit that is whole, and the chain up to it.
    commit: u64,
    chain: u32,
    /// The commit after it, of which the files have some bytes or all.
    last: u64,
    last_chain: u32,
    last_bytes: usize,
    /// The segment and the position where that one begins.
    last_at: Option<(u32, u64)>,
}

impl CacheEnd {
    /// A cache that ends with a checkpoint.
    pub(super) fn at(position: Position) -> CacheEnd {
        let Position { commit, chain, .. } = position;
        CacheEnd { commit, chain, last: commit, last_chain: chain, last_bytes: 0, last_at: None }
    }

    /// A record of the log follows.
    pub(super) fn add(&mut self, commit: u64, record: &[u8], at: (u32, u64)) {
        if commit != self.last || self.last_at.is_none() {
            (self.commit, self.chain) = (self.last, self.last_chain);
            (self.last, self.last_bytes, self.last_at) = (commit, 0, Some(at));
        }
        self.last_chain = crc32c::crc32c_append(self.last_chain, record);
        self.last_bytes += record.len();
    }

    /// Where to continue: behind the last whole commit.
    pub(super) fn position(&mut self, active: u32, end: u64) -> Position {
        // A segment is begun after the commit before it was written: that one is whole.
        if self.last_at.is_some_and(|(segment, _)| segment != active) {
            (self.commit, self.chain, self.last_at) = (self.last, self.last_chain, None);
        }
        let (segment, end) = self.last_at.unwrap_or((active, end));
        Position { segment, end, commit: self.commit, chain: self.chain }
    }

    /// Whether all of it is in the log.
    fn is_in(&self, log: &dyn CommitLog) -> Result<bool, Error> {
        let commit = |number: u64| {
            let found = log.after(number - 1, 1).map_err(|error| Error::Io {
                context: "cannot read the shared log".into(),
                message: error.0,
                kind: std::io::ErrorKind::ConnectionRefused,
            })?;
            Ok::<_, Error>(found.into_iter().next().filter(|commit| commit.number == number))
        };
        if self.commit > 0 && commit(self.commit)?.is_none_or(|found| found.chain != self.chain) {
            return Ok(false);
        }
        if self.last_at.is_none() {
            return Ok(true);
        }
        let found = commit(self.last)?.filter(|_| self.last == self.commit + 1);
        let part = found.as_ref().and_then(|found| found.body.get(..self.last_bytes));
        Ok(part.is_some_and(|part| crc32c::crc32c_append(self.chain, part) == self.last_chain))
    }
}

/// Opens the cache, or an empty one in its place.
pub(super) fn open(disk: &Arc<dyn Disk>, config: &Config, log: &dyn CommitLog) -> Result<Opened, Error> {
    let version = format!("{VERSION}{}\n", log.id());
    refuse_a_store(&**disk)?;
    match open_files(disk, config, version.as_bytes(), Some(CacheEnd::default())) {
        Ok((opened, Some(end))) if opened.recovery.damage.is_none() && end.is_in(log)? => return Ok(opened),
        Ok(_) => {
            tracing::error!("the cache of streams is not a part of the shared log; all of it is read again");
        }
        Err(error @ (Error::Unsupported(_) | Error::Corrupt(_) | Error::Io { .. })) => {
            tracing::warn!(%error, "the cache of streams cannot be used; all of it is read again");
        }
        Err(error) => return Err(error),
    }
    clear(&**disk).map_err(|error| Error::io("cannot clear the cache of streams", &error))?;
    open_files(disk, config, version.as_bytes(), Some(CacheEnd::default())).map(|(opened, _)| opened)
}

/// A directory with an embedded store holds the only copy of its streams.
fn refuse_a_store(disk: &dyn Disk) -> Result<(), Error> {
    let Ok(file) = disk.open(VERSION_NAME) else { return Ok(()) };
    let mut text = vec![0; file.len().map_or(0, |length| length.min(64)) as usize];
    let is_read = file.read_at(&mut text, 0).is_ok();
    if is_read && text.starts_with(b"towpath-streams ") {
        let why = "the directory holds an embedded store, which is no cache of a shared log; use another one";
        return Err(Error::Unsupported(why.into()));
    }
    Ok(())
}

fn clear(disk: &dyn Disk) -> std::io::Result<()> {
    let is_ours = |name: &String| {
        number_of(name).is_some()
            || name.starts_with("damaged-")
            || ["checkpoint", "checkpoint.new", VERSION_NAME].contains(&name.as_str())
    };
    for name in disk.names()?.iter().filter(|name| is_ours(name)) {
        disk.remove(name)?;
    }
    disk.sync_names()
}
