//! A shared log in memory, with faults: errors before and after a commit, lost commits, and the broken variants that
//! a simulation must catch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use towpath_streams::{Commit, CommitLog, Put, Unreachable};

/// The log that all nodes of a simulation share.
#[derive(Clone, Default)]
pub(crate) struct MemoryLog {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    commits: Vec<Commit>,
    /// Which node put each of them: two nodes may plan the same bytes.
    writers: Vec<u64>,
    nodes: u64,
    /// What the next calls do, before they go on as usual.
    faults: VecDeque<Fault>,
    broken: Option<Broken>,
    puts: u64,
    taken: u64,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call does nothing, and fails.
    Before,
    /// The call does everything, and fails.
    After,
}

/// A log that does not do what it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It answers before the commit exists.
    AcknowledgesFirst,
    /// It does not compare chains.
    HasNoChain,
    /// It takes every commit of the node that believes to be the owner: a lease as a fence.
    TrustsItsOwner,
    /// It does not show what others have put: no barrier.
    ShowsNothing,
}

/// One node's view of the log.
struct Node {
    log: MemoryLog,
    writer: u64,
    /// Its last commit came too late.
    was_late: AtomicBool,
}

impl MemoryLog {
    pub(crate) fn broken(broken: Broken) -> MemoryLog {
        let log = MemoryLog::default();
        log.state.lock().unwrap().broken = Some(broken);
        log
    }

    pub(crate) fn node(&self) -> Arc<dyn CommitLog> {
        let mut state = self.state.lock().unwrap();
        state.nodes += 1;
        Arc::new(Node { log: self.clone(), writer: state.nodes, was_late: AtomicBool::new(false) })
    }

    pub(crate) fn fail_next(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push_back(fault);
    }

    pub(crate) fn repair(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    pub(crate) fn commits(&self) -> Vec<Commit> {
        self.state.lock().unwrap().commits.clone()
    }

    /// Puts, and how many of them were too late.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        (state.puts, state.taken)
    }

    /// Forgets the last commits, as a failover without a synchronous standby does.
    pub(crate) fn lose(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        let kept = state.commits.len().saturating_sub(count);
        state.commits.truncate(kept);
        state.writers.truncate(kept);
    }
}

impl State {
    fn put(&mut self, writer: u64, commit: &Commit) -> Put {
        self.puts += 1;
        let position = usize::try_from(commit.number).unwrap() - 1;
        if let Some(there) = self.commits.get(position) {
            if there == commit && self.writers[position] == writer {
                return Put::Done;
            }
            self.taken += 1;
            if self.broken == Some(Broken::TrustsItsOwner) {
                (self.commits[position], self.writers[position]) = (commit.clone(), writer);
                return Put::Done;
            }
            return Put::Taken;
        }
        let before = position.checked_sub(1).map_or(Some(0), |at| self.commits.get(at).map(|it| it.chain));
        let is_next = before == Some(commit.before) || self.broken == Some(Broken::HasNoChain);
        if !is_next {
            return Put::Diverged;
        }
        while self.commits.len() < position {
            let (number, chain) = (self.commits.len() as u64 + 1, 0);
            self.commits.push(Commit { number, chain, before: 0, body: Bytes::new() });
            self.writers.push(0);
        }
        if self.broken == Some(Broken::AcknowledgesFirst) && self.puts.is_multiple_of(5) {
            return Put::Done;
        }
        self.commits.push(commit.clone());
        self.writers.push(writer);
        Put::Done
    }
}

impl CommitLog for Node {
    fn id(&self) -> String {
        "memory".into()
    }

    fn put(&self, commit: &Commit) -> Result<Put, Unreachable> {
        let mut state = self.log.state.lock().unwrap();
        match state.faults.pop_front() {
            Some(Fault::Before) => Err(Unreachable("before".into())),
            Some(Fault::After) => {
                state.put(self.writer, commit);
                Err(Unreachable("after".into()))
            }
            None => {
                let put = state.put(self.writer, commit);
                self.was_late.store(put == Put::Taken, Ordering::Relaxed);
                Ok(put)
            }
        }
    }

    fn after(&self, number: u64, bytes_max: usize) -> Result<Vec<Commit>, Unreachable> {
        let mut state = self.log.state.lock().unwrap();
        if state.faults.pop_front().is_some() {
            return Err(Unreachable("read".into()));
        }
        if state.broken == Some(Broken::ShowsNothing) && !self.was_late.swap(false, Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for commit in state.commits.iter().skip(usize::try_from(number).unwrap()) {
            found.push(commit.clone());
            bytes += commit.body.len();
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(found)
    }
}
