//! The committer: the only writer.
//!
//! It takes everything that waits, decides it, writes it, syncs it, makes it visible, and
//! then answers. Whatever came meanwhile is the next commit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;

use super::index::{Hear, Place};
use super::log::{Failure, Log};
use super::plan::Plan;
use super::queue::Wanted;
use super::shared::{Position, Shared};
use super::stream::Stream;
use crate::follow::{Live, News};
use crate::limits::{COMMIT_BYTES_KEPT, COMMIT_BYTES_MAX, COMMIT_CHANGES_GUESS, COMMIT_PATIENCE_MAX};
use crate::{Batch, Error, Messages, Watch};

/// The thread that owns the end of the log.
pub(super) struct Committer {
    shared: Arc<Shared>,
    log: Log,
    commit: u64,
    /// How long it is worth waiting for a fuller commit: a part of what a commit takes.
    patience: Duration,
    /// The last commit's buffer.
    buffer: Vec<u8>,
}

impl Committer {
    /// Goes on behind commit number `commit`.
    pub(super) fn new(shared: Arc<Shared>, log: Log, commit: u64) -> Committer {
        Committer { shared, log, commit, patience: Duration::ZERO, buffer: Vec::new() }
    }

    /// Commits until the queue is shut and empty.
    pub(super) fn run(mut self) {
        let mut usual = 0;
        while let Some(mut wanted) = self.shared.queue.take(usual, self.patience) {
            usual = wanted.len();
            while !wanted.is_empty() {
                self.commit(&mut wanted);
            }
        }
    }

    /// Makes one commit of what waits, or of a part of it.
    fn commit(&mut self, wanted: &mut VecDeque<Wanted>) {
        let shared = self.shared.clone();
        let index = shared.index();
        let changes = wanted.len().min(COMMIT_CHANGES_GUESS);
        let buffer = std::mem::take(&mut self.buffer);
        let mut plan = Plan::new(&index, shared.now(), self.commit + 1, changes, buffer);
        while let Some(next) = wanted.pop_front() {
            if let Some(later) = plan.take(next) {
                wanted.push_front(later);
                break;
            }
            if plan.bytes.len() >= COMMIT_BYTES_MAX {
                break;
            }
        }
        let Plan { mut bytes, records, answers, .. } = plan;
        drop(index);
        let mut followers = Vec::new();
        let failed = match shared.poisoned() {
            Some(why) => Some(Error::Poisoned(why)),
            None if bytes.is_empty() => None,
            None => self.write(&bytes, &records, &mut followers).err(),
        };
        // Whoever appended comes first: with thousands of followers it would wait for all of them.
        for answer in answers {
            answer.tell(failed.as_ref());
        }
        followers.into_iter().for_each(Waker::wake);
        bytes.clear();
        bytes.shrink_to(COMMIT_BYTES_KEPT);
        self.buffer = bytes;
    }

    /// Writes, syncs and shows what was decided. `followers` get those who wait for it.
    fn write(
        &mut self,
        bytes: &[u8],
        records: &[(super::record::Record, u32)],
        followers: &mut Vec<Waker>,
    ) -> Result<(), Error> {
        // A number is never used twice, not even by a commit that failed: what it left
        // behind the end can then never be taken for a part of another.
        self.commit += 1;
        let started = Instant::now();
        let committed = self.log.commit(bytes);
        self.patience = (started.elapsed() / 4).min(COMMIT_PATIENCE_MAX);
        let begin = match committed {
            Ok(begin) => u32::try_from(begin).expect("segments stay below 4 GiB"),
            Err(Failure::Refused(error)) => {
                self.shared.full(matches!(error, Error::DiskFull));
                return Err(error);
            }
            Err(Failure::Unknown(why)) => {
                tracing::error!(%why, "a sync failed: the stream store takes no more writes until it is restarted");
                self.shared.poison(&why);
                return Err(Error::Poisoned(why));
            }
        };
        self.shared.full(false);
        let mut heard = Heard::new(self.shared.watch.get().and_then(Weak::upgrade));
        let mut index = self.shared.index_mut();
        let segment = self.log.active();
        let is_new = index.segments.insert(segment.number, segment.clone()).is_none();
        for (record, block) in records {
            index.apply(record, Place { segment: segment.number, block: begin + block }, &mut heard);
        }
        index.position = Position { segment: segment.number, end: self.log.end(), commit: self.commit };
        drop(index);
        heard.tell(followers);
        self.shared.written(bytes.len() as u64, is_new);
        Ok(())
    }
}

/// A committer that panics must not leave callers waiting for ever.
impl Drop for Committer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison("the committer has panicked");
            self.shared.queue.abandon();
        }
    }
}

/// What followers and a watcher will be told, gathered so that each hears once per commit.
struct Heard {
    by_stream: HashMap<u64, usize>,
    told: Vec<Told>,
    watch: Option<Arc<dyn Watch>>,
    announced: Vec<(StreamName, Offset, bool)>,
}

struct Told {
    live: Arc<Live>,
    start: u64,
    messages: Vec<Messages>,
    /// Something in between is not at hand: followers read from the disk.
    has_gap: bool,
    news: News,
}

impl Heard {
    fn new(watch: Option<Arc<dyn Watch>>) -> Heard {
        Heard { by_stream: HashMap::new(), told: Vec::new(), watch, announced: Vec::new() }
    }

    fn entry(&mut self, stream: &Stream, start: u64) -> Option<&mut Told> {
        let live = stream.live.upgrade()?;
        let news = News { tail: Offset::new(stream.tail), closed: stream.closed, gone: stream.deleted };
        let position = *self.by_stream.entry(stream.id).or_insert(self.told.len());
        if position == self.told.len() {
            self.told.push(Told { live, start, messages: Vec::new(), has_gap: false, news });
        }
        let told = &mut self.told[position];
        told.news = news;
        Some(told)
    }

    fn tell(self, followers: &mut Vec<Waker>) {
        for Told { live, start, messages, has_gap, news } in self.told {
            let batch = if has_gap { None } else { join(start, messages) };
            live.publish(batch, news, followers);
        }
        if let Some(watch) = self.watch {
            for (name, tail, closed) in &self.announced {
                watch.changed(name, *tail, *closed);
            }
        }
    }
}

impl Hear for Heard {
    fn changed(&mut self, stream: &Stream, start: u64, messages: &Messages) {
        self.announce(stream, stream.tail);
        if let Some(told) = self.entry(stream, start).filter(|_| !messages.is_empty()) {
            told.messages.push(messages.clone());
        }
    }

    fn gone(&mut self, stream: &Stream) {
        self.announce(stream, stream.tail);
        self.entry(stream, stream.tail);
    }

    fn delivered(&mut self, stream: &Stream, start: u64, messages: Option<&Messages>) {
        let Some(told) = self.entry(stream, start) else { return };
        match messages {
            Some(messages) => told.messages.push(messages.clone()),
            None => told.has_gap = true,
        }
    }

    fn hears_sessions(&self, project: &str) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.hears_sessions(project))
    }

    fn announce(&mut self, stream: &Stream, tail: u64) {
        if self.watch.is_some() {
            self.announced.push((stream.name.clone(), Offset::new(tail), stream.closed));
        }
    }
}

/// One batch of all messages; the bytes are shared if they came in one piece.
fn join(start: u64, mut messages: Vec<Messages>) -> Option<Batch> {
    let start = Offset::new(start);
    if messages.len() <= 1 {
        return messages.pop().map(|only| Batch::new(start, only.data, only.ends));
    }
    let mut data = BytesMut::with_capacity(messages.iter().map(|it| it.data.len()).sum());
    let mut ends = Vec::with_capacity(messages.iter().map(|it| it.ends.len()).sum());
    for part in messages {
        let before = super::codec::length(data.len());
        ends.extend(part.ends.iter().map(|end| before + end));
        data.extend_from_slice(&part.data);
    }
    Some(Batch::new(start, Bytes::from(data), ends))
}
