//! Commits in a log that other nodes write too. This node's segments are a cache of it.
//!
//! An answer is true only if the index it was decided on was the newest. A commit that was put under the next number
//! proves that; a plan without records, such as one that refuses everything, reads the log to prove it.

use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Committer, Made};
use crate::Error;
use crate::commit_log::{Commit, CommitLog, Put, Unreachable};
use crate::embedded::record::Record;
use crate::limits::{COMMIT_PATIENCE_MAX, SHARED_LOG_READ_BYTES, SHARED_LOG_RETRY_MAX, SHARED_LOG_RETRY_MIN};

/// What a log counts for a commit besides its body.
const COMMIT_OVERHEAD_BYTES: usize = 100;

impl Committer {
    /// Puts the planned commit under the next number.
    pub(super) fn make_shared(
        &mut self,
        log: &dyn CommitLog,
        bytes: &[u8],
        records: &[(Record, u32)],
        followers: &mut Vec<Waker>,
    ) -> Result<Made, Error> {
        if self.is_behind || bytes.is_empty() {
            let is_newest = self.catch_up(log, followers)? == 0;
            return Ok(if is_newest { Made::Yes } else { Made::Again });
        }
        let commit = Commit::after(self.chain, self.commit + 1, Bytes::copy_from_slice(bytes));
        let started = Instant::now();
        let put = self.put(log, &commit)?;
        self.patience = (started.elapsed() / 4).min(COMMIT_PATIENCE_MAX);
        match put {
            Put::Done => {
                // It is made, whatever becomes of the cache.
                self.is_behind = self.cache(&commit, records, followers).is_err();
                Ok(Made::Yes)
            }
            Put::Taken => self.catch_up(log, followers).map(|_| Made::Again),
            Put::Diverged => Err(self.diverged()),
        }
    }

    /// Applies what other nodes have committed, while nothing waits.
    pub(super) fn poll(&mut self) {
        let shared = self.shared.clone();
        let Some(log) = shared.config.log.as_ref().filter(|_| shared.poisoned().is_none()) else { return };
        let mut followers = Vec::new();
        if let Err(error) = self.catch_up(&**log, &mut followers) {
            tracing::debug!(%error, "cannot follow the shared log, will retry");
        }
        followers.into_iter().for_each(Waker::wake);
    }

    /// Puts a commit until there is an answer: an error says nothing about what happened.
    fn put(&self, log: &dyn CommitLog, commit: &Commit) -> Result<Put, Error> {
        let mut wait = SHARED_LOG_RETRY_MIN;
        loop {
            match log.put(commit) {
                Ok(put) => {
                    self.shared.reached();
                    return Ok(put);
                }
                Err(error) => self.wait_after(&error, &mut wait)?,
            }
        }
    }

    /// Applies the commits after the last one, and answers how many there were.
    fn catch_up(&mut self, log: &dyn CommitLog, followers: &mut Vec<Waker>) -> Result<usize, Error> {
        let mut count = 0;
        loop {
            let commits = self.after(log)?;
            let bytes: usize = commits.iter().map(|commit| commit.body.len() + COMMIT_OVERHEAD_BYTES).sum();
            for commit in commits {
                let expected = Commit::after(self.chain, self.commit + 1, commit.body.clone());
                if (expected.number, expected.chain) != (commit.number, commit.chain) {
                    return Err(self.diverged());
                }
                let Some(records) = records(&commit.body) else {
                    let why = format!("commit {} was written by a newer version; upgrade", commit.number);
                    return Err(self.stop(why));
                };
                self.cache(&commit, &records, followers)?;
                count += 1;
            }
            if bytes < SHARED_LOG_READ_BYTES {
                self.is_behind = false;
                return Ok(count);
            }
        }
    }

    fn after(&self, log: &dyn CommitLog) -> Result<Vec<Commit>, Error> {
        let mut wait = SHARED_LOG_RETRY_MIN;
        loop {
            match log.after(self.commit, SHARED_LOG_READ_BYTES) {
                Ok(commits) => {
                    self.shared.reached();
                    return Ok(commits);
                }
                Err(error) => {
                    self.wait_after(&error, &mut wait)?;
                    self.shared.check_reached()?;
                }
            }
        }
    }

    fn wait_after(&self, error: &Unreachable, wait: &mut Duration) -> Result<(), Error> {
        self.shared.unreached(&error.0);
        if !self.shared.pause(*wait) {
            return Err(Error::ShutDown);
        }
        *wait = (*wait * 2).min(SHARED_LOG_RETRY_MAX);
        Ok(())
    }

    /// Writes a commit of the log to this node's segments, and applies it.
    fn cache(
        &mut self,
        commit: &Commit,
        records: &[(Record, u32)],
        followers: &mut Vec<Waker>,
    ) -> Result<(), Error> {
        let committed = self.log.commit(&commit.body);
        let begin = self.begin(committed)?;
        (self.commit, self.chain) = (commit.number, commit.chain);
        self.apply(begin, commit.body.len(), records, followers);
        Ok(())
    }

    fn diverged(&self) -> Error {
        let next = self.commit + 1;
        self.stop(format!(
            "the shared log does not continue what this node has up to commit {}: commit {next} follows another one; \
             the database lost commits or was restored, and a restart reads all of it again",
            self.commit
        ))
    }

    fn stop(&self, why: String) -> Error {
        tracing::error!("the stream store stopped: {why}");
        self.shared.poison(&why);
        Error::Poisoned(why)
    }
}

/// The records of a commit, each with the position of its block; `None` if one cannot be read.
fn records(body: &Bytes) -> Option<Vec<(Record, u32)>> {
    let (mut records, mut at) = (Vec::new(), 0);
    while at < body.len() {
        let found = Record::take(&body.slice(at..))?;
        records.push((found.record, u32::try_from(at).ok()? + found.block));
        at += found.length as usize;
    }
    Some(records)
}
