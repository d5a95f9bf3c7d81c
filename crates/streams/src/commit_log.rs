//! A log of commits that several nodes share.
//!
//! The engine decides changes against its index and writes them as one commit. With a shared log, a commit exists once
//! it has been put under its number, and every node that applies the same commits in order is the same store. The
//! number is the fence: of two nodes that put commit n, one is told that it is taken, applies the other's commit and
//! decides again. What a node has on its disk is then a cache.
//!
//! The chain is a checksum over all commits up to one. A commit names the chain before it, so that none is put or
//! applied behind a commit that this node does not have.

use bytes::Bytes;

/// Commits, in order, without a hole. The committer calls it, so the methods block.
///
/// An error says nothing about what happened: the call is repeated until there is an answer.
pub trait CommitLog: Send + Sync + 'static {
    /// Which log it is. A cache of another log is dropped.
    fn id(&self) -> String;

    /// Makes a commit durable. Repeated with the same commit, it finds the commit that it made. Another node's commit
    /// is not its own, even with the same bytes.
    fn put(&self, commit: &Commit) -> Result<Put, Unreachable>;

    /// The commits after a number, about `bytes_max` bytes of them, and at least one if there is one: everything that
    /// anybody was told before the call.
    fn after(&self, number: u64, bytes_max: usize) -> Result<Vec<Commit>, Unreachable>;
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its number; the first is 1.
    pub number: u64,
    /// The chain up to it.
    pub chain: u32,
    /// The chain before it.
    pub before: u32,
    /// Its records.
    pub body: Bytes,
}

impl Commit {
    /// The commit that follows another, whose chain is `before`.
    pub fn after(before: u32, number: u64, body: Bytes) -> Commit {
        Commit { number, chain: crc32c::crc32c_append(before, &body), before, body }
    }
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is durable.
    Done,
    /// Another node has put a commit under this number.
    Taken,
    /// The commit before is not the one that this node has: the log lost commits, or is another one.
    Diverged,
}

/// The log did not answer. Whether the call did something is unknown.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);
