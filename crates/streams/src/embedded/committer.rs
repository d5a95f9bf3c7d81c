//! The committer: the only thread that writes to the log.
//!
//! It takes all changes that wait, decides them, writes and syncs their records, applies them
//! to the index, and then answers. Changes that arrive meanwhile make the next commit.

mod shared_log;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::index::{Location, Observer};
use super::log::{Failure, FileLog};
use super::plan::Plan;
use super::queue::Change;
use super::record::Record;
use super::shared::{Position, Shared};
use super::stream::Stream;
use crate::follow::{Live, LiveState};
use crate::limits::{
    COMMIT_BYTES_KEPT, COMMIT_BYTES_MAX, COMMIT_CHANGES_GUESS, COMMIT_PATIENCE_MAX, SHARED_LOG_POLL,
};
use crate::{Batch, Error, Messages, Watch};

/// The thread that owns the end of the log.
pub(super) struct Committer {
    shared: Arc<Shared>,
    /// The log, or this node's cache of the shared one.
    log: FileLog,
    commit: u64,
    /// The chain of a shared log up to `commit`.
    chain: u32,
    /// The shared log has a commit that could not be written to the cache yet.
    is_behind: bool,
    /// How long to wait for a fuller commit: a part of what the last commit took.
    patience: Duration,
    /// The buffer of the last commit, to be used again.
    buffer: Vec<u8>,
}

/// What became of a planned commit.
enum Made {
    Yes,
    /// The index was not the newest: decide again.
    Again,
}

impl Committer {
    /// Continues after the commit at `position`.
    pub(super) fn new(shared: Arc<Shared>, log: FileLog, position: Position) -> Committer {
        let Position { commit, chain, .. } = position;
        let (patience, buffer) = (Duration::ZERO, Vec::new());
        Committer { shared, log, commit, chain, is_behind: false, patience, buffer }
    }

    /// Commits until the queue is shut and empty.
    pub(super) fn run(mut self) {
        let mut usual = 0;
        let idle = self.shared.config.log.as_ref().map(|_| SHARED_LOG_POLL);
        while let Some(mut changes) = self.shared.queue.take(usual, self.patience, idle) {
            usual = changes.len();
            if changes.is_empty() {
                self.poll();
            }
            while !changes.is_empty() {
                self.commit(&mut changes);
            }
        }
    }

    /// Makes one commit of the changes that wait, or of a part of them.
    fn commit(&mut self, changes: &mut VecDeque<Change>) {
        let shared = self.shared.clone();
        let mut followers = Vec::new();
        let (answers, failed) = loop {
            let index = shared.index();
            let guess = changes.len().min(COMMIT_CHANGES_GUESS);
            let buffer = std::mem::take(&mut self.buffer);
            let mut plan = Plan::new(&index, shared.now(), self.commit + 1, guess, buffer);
            for change in changes.iter() {
                if !plan.decide(change) || plan.bytes.len() >= COMMIT_BYTES_MAX {
                    break;
                }
            }
            let Plan { mut bytes, records, answers, .. } = plan;
            drop(index);
            let made = match shared.poisoned() {
                Some(why) => Err(Error::Poisoned(why)),
                None => self.make(&bytes, &records, &mut followers),
            };
            bytes.clear();
            bytes.shrink_to(COMMIT_BYTES_KEPT);
            self.buffer = bytes;
            match made {
                Ok(Made::Yes) => break (answers, None),
                Ok(Made::Again) => {}
                Err(error) => break (answers, Some(error)),
            }
        };
        // Callers first: with thousands of followers, they would wait for all of those.
        for (change, answer) in changes.drain(..answers.len()).zip(answers) {
            change.send(answer, failed.as_ref());
        }
        followers.into_iter().for_each(Waker::wake);
    }

    /// Makes the records durable, then applies them. Adds the followers to wake to `followers`.
    fn make(
        &mut self,
        bytes: &[u8],
        records: &[(Record, u32)],
        followers: &mut Vec<Waker>,
    ) -> Result<Made, Error> {
        let shared = self.shared.clone();
        match &shared.config.log {
            Some(log) => self.make_shared(&**log, bytes, records, followers),
            None if bytes.is_empty() => Ok(Made::Yes),
            None => self.write(bytes, records, followers).map(|()| Made::Yes),
        }
    }

    fn write(
        &mut self,
        bytes: &[u8],
        records: &[(Record, u32)],
        followers: &mut Vec<Waker>,
    ) -> Result<(), Error> {
        // A number is never used twice, not even after a commit that failed: bytes that it left
        // behind the end can then never be mistaken for a part of another commit.
        self.commit += 1;
        let started = Instant::now();
        let committed = self.log.commit(bytes);
        self.patience = (started.elapsed() / 4).min(COMMIT_PATIENCE_MAX);
        let begin = self.begin(committed)?;
        self.apply(begin, bytes.len(), records, followers);
        Ok(())
    }

    /// Where a commit begins in the active segment, if it is there.
    fn begin(&self, committed: Result<u64, Failure>) -> Result<u32, Error> {
        match committed {
            Ok(begin) => {
                self.shared.full(false);
                Ok(u32::try_from(begin).expect("segments stay below 4 GiB"))
            }
            Err(Failure::Refused(error)) => {
                self.shared.full(matches!(error, Error::DiskFull));
                Err(error)
            }
            Err(Failure::Unknown(why)) => {
                tracing::error!(%why, "fsync failed: the stream store refuses writes until it is restarted");
                let why = format!("fsync failed: {why}; check the disk");
                self.shared.poison(&why);
                Err(Error::Poisoned(why))
            }
        }
    }

    fn apply(&self, begin: u32, bytes: usize, records: &[(Record, u32)], followers: &mut Vec<Waker>) {
        let mut notices = Notices::new(self.shared.watch.get().and_then(Weak::upgrade));
        let mut index = self.shared.index_mut();
        let segment = self.log.active();
        let is_new = index.segments.insert(segment.number, segment.clone()).is_none();
        for (record, block) in records {
            index.apply(record, Location { segment: segment.number, block: begin + block }, &mut notices);
        }
        let (end, commit, chain) = (self.log.end(), self.commit, self.chain);
        index.position = Position { segment: segment.number, end, commit, chain };
        drop(index);
        notices.send(followers);
        self.shared.written(bytes as u64, is_new);
    }
}

/// A committer that panics must not leave callers waiting forever.
impl Drop for Committer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison("the committer panicked");
            self.shared.queue.abandon();
        }
    }
}

/// What one commit has for followers and for the watcher: one notice per followed stream.
struct Notices {
    by_stream: HashMap<u64, usize>,
    notices: Vec<Notice>,
    watch: Option<Arc<dyn Watch>>,
    changes: Vec<(StreamName, Offset, bool)>,
}

struct Notice {
    live: Arc<Live>,
    start: u64,
    messages: Vec<Messages>,
    /// Some of the bytes are not in memory: followers read from the disk.
    has_gap: bool,
    state: LiveState,
}

impl Notices {
    fn new(watch: Option<Arc<dyn Watch>>) -> Notices {
        Notices { by_stream: HashMap::new(), notices: Vec::new(), watch, changes: Vec::new() }
    }

    /// The notice for a stream, if anybody follows it.
    fn notice(&mut self, stream: &Stream, start: u64) -> Option<&mut Notice> {
        let live = stream.live.upgrade()?;
        let state = LiveState { tail: Offset::new(stream.tail), closed: stream.closed, gone: stream.deleted };
        let position = *self.by_stream.entry(stream.id).or_insert(self.notices.len());
        if position == self.notices.len() {
            self.notices.push(Notice { live, start, messages: Vec::new(), has_gap: false, state });
        }
        let notice = &mut self.notices[position];
        notice.state = state;
        Some(notice)
    }

    fn send(self, followers: &mut Vec<Waker>) {
        for Notice { live, start, messages, has_gap, state } in self.notices {
            let is_whole = !has_gap && !messages.is_empty();
            let batch = is_whole.then(|| Batch::join(Offset::new(start), messages));
            live.update(batch, state, followers);
        }
        if let Some(watch) = self.watch {
            for (name, tail, closed) in &self.changes {
                watch.changed(name, *tail, *closed);
            }
        }
    }
}

impl Observer for Notices {
    fn grew(&mut self, stream: &Stream, start: u64, messages: &Messages) {
        self.changed(stream, stream.tail);
        if let Some(notice) = self.notice(stream, start).filter(|_| !messages.is_empty()) {
            notice.messages.push(messages.clone());
        }
    }

    fn gone(&mut self, stream: &Stream) {
        self.changed(stream, stream.tail);
        self.notice(stream, stream.tail);
    }

    fn delivered(&mut self, session: &Stream, start: u64, messages: Option<&Messages>) {
        let Some(notice) = self.notice(session, start) else { return };
        match messages {
            Some(messages) => notice.messages.push(messages.clone()),
            None => notice.has_gap = true,
        }
    }

    fn wants_sessions(&self, project: &str) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.wants_sessions(project))
    }

    fn changed(&mut self, stream: &Stream, tail: u64) {
        if self.watch.is_some() {
            self.changes.push((stream.name.clone(), Offset::new(tail), stream.closed));
        }
    }
}
