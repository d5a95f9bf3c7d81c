//! All streams, in memory: by name, by id, and by the time they end.
//!
//! [`Index::apply`] is the only way a stream changes, for a new commit and for a replayed one.
//! Applying a record a second time has no effect, so a checkpoint can be written while commits
//! go on.

mod fanout;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::Accepted;

use super::codec::block_length;
use super::pieces::{Piece, Pieces};
use super::record::{AppendRecord, CreateRecord, Record};
use super::segment::Segment;
use super::shared::Position;
use super::stream::{More, Stream};
use crate::{Messages, Retention, SessionCounts};

/// Every stream, and every segment they point into.
#[derive(Default)]
pub(super) struct Index {
    slots: Vec<Vec<Option<Box<Stream>>>>,
    free: Vec<u32>,
    by_name: HashTable<u32>,
    by_id: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Texts that many streams share.
    types: HashMap<Box<str>, ContentType>,
    projects: HashMap<Arc<str>, Project>,
    pub(super) segments: HashMap<u32, Arc<Segment>>,
    /// When to check whether a stream has expired. A renewed life moves its entry at that time.
    pub(super) ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Streams whose data is dropped by age or size.
    pub(super) retained: BTreeSet<u64>,
    pub(super) next_id: u64,
    /// The number of the next delivery; all deliveries of the store are numbered in order.
    pub(super) next_delivery: u64,
    /// The number of the last change of subscriptions; the first one has number 1.
    pub(super) last_change: u64,
    /// Sources with messages behind their cursor that sessions wait for.
    pub(super) lagging: BTreeSet<u64>,
    pub(super) phase: Phase,
    pub(super) sessions: SessionCounts,
    /// Small values by namespace and key.
    pub(super) metas: BTreeMap<(String, String), Bytes>,
    pub(super) count: usize,
    /// The end of the log that the index reflects.
    pub(super) position: Position,
}

/// What the store is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// A checkpoint is being read: names are sorted when all of them are there.
    #[default]
    Loading,
    /// The log is being replayed: a later record may need what nothing needs now.
    Replaying,
    Serving,
    /// A checkpoint is being written: feeds must keep their entries until it is done.
    Checkpointing,
}

/// The streams of a project.
#[derive(Default)]
struct Project {
    streams: usize,
    /// Those of them that the project's clients did not make: the server's own, and those without a name.
    others: usize,
    /// The ids that are found by name, in order.
    ids: BTreeSet<Arc<str>>,
}

/// Where the block of a record was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    pub(super) segment: u32,
    /// The block's position in it.
    pub(super) block: u32,
}

/// Streams in one part of the table, so that growing it moves little.
const SLOTS_PER_PART: usize = 4_096;

impl Index {
    /// The stream of that name, ended ones included.
    pub(super) fn named(&self, name: &StreamName) -> Option<&Stream> {
        let hash = self.hasher.hash_one((&*name.project, &*name.id));
        let slot = self.by_name.find(hash, |slot| self.slot(*slot).is_some_and(|it| it.name == *name))?;
        self.slot(*slot)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Stream> {
        self.slot(self.slot_of(id)?)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        let slot = self.slot_of(id)? as usize;
        self.slots[slot / SLOTS_PER_PART][slot % SLOTS_PER_PART].as_deref_mut()
    }

    /// The streams of some slots, and the slot to continue from.
    pub(super) fn visit(&self, from: usize, count: usize) -> (impl Iterator<Item = &Stream>, Option<usize>) {
        let all = self.slots.len() * SLOTS_PER_PART;
        let to = (from + count).min(all);
        let streams = (from..to).filter_map(|slot| self.slot(slot as u32));
        (streams, (to < all).then_some(to))
    }

    fn slot(&self, slot: u32) -> Option<&Stream> {
        self.slots[slot as usize / SLOTS_PER_PART].get(slot as usize % SLOTS_PER_PART)?.as_deref()
    }

    fn slot_of(&self, id: u64) -> Option<u32> {
        let hash = self.hasher.hash_one(id);
        self.by_id.find(hash, |slot| self.slot(*slot).is_some_and(|it| it.id == id)).copied()
    }

    /// Makes room for so many streams.
    pub(super) fn reserve(&mut self, count: usize) {
        assert!(self.count == 0, "only an empty index needs no hashes to grow");
        self.by_name.reserve(count, |_| 0);
        self.by_id.reserve(count, |_| 0);
    }

    /// Adds a stream. Of two with one name the younger is found by it: a checkpoint may hold both
    /// lives, and the replay removes the older.
    pub(super) fn insert(&mut self, mut stream: Stream) {
        self.next_id = self.next_id.max(stream.id + 1);
        self.count += 1;
        self.share_texts(&mut stream);
        if let Some(ends_at) = stream.ends_at() {
            self.ends.push(Reverse((ends_at, stream.id)));
        }
        if stream.retention() != Retention::default() {
            self.retained.insert(stream.id);
        }
        let rival = self.named(&stream.name).map(|rival| rival.id);
        if let Some(rival) = rival.filter(|rival| *rival < stream.id) {
            self.forget_name(rival);
        }
        let found_by_name = !stream.name.id.is_empty() && rival.is_none_or(|rival| rival < stream.id);
        let (by_name, by_id) = (self.hash_name(&stream.name), self.hasher.hash_one(stream.id));
        let name = stream.name.clone();
        let slot = self.place(Box::new(stream));
        let (slots, hasher) = (&self.slots, &self.hasher);
        let at = |slot: u32| -> &Stream {
            let stream = slots[slot as usize / SLOTS_PER_PART][slot as usize % SLOTS_PER_PART].as_deref();
            stream.expect("tables hold occupied slots only")
        };
        if found_by_name {
            if self.phase != Phase::Loading {
                self.projects.entry(name.project).or_default().ids.insert(name.id);
            }
            let rehash = |slot: &u32| hasher.hash_one((&*at(*slot).name.project, &*at(*slot).name.id));
            self.by_name.insert_unique(by_name, slot, rehash);
        }
        self.by_id.insert_unique(by_id, slot, |slot| hasher.hash_one(at(*slot).id));
    }

    fn hash_name(&self, name: &StreamName) -> u64 {
        self.hasher.hash_one((&*name.project, &*name.id))
    }

    fn place(&mut self, stream: Box<Stream>) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize / SLOTS_PER_PART][slot as usize % SLOTS_PER_PART] = Some(stream);
            return slot;
        }
        if self.slots.last().is_none_or(|part| part.len() == SLOTS_PER_PART) {
            self.slots.push(Vec::with_capacity(SLOTS_PER_PART));
        }
        let parts = self.slots.len();
        let part = self.slots.last_mut().expect("a part was just made sure of");
        part.push(Some(stream));
        u32::try_from((parts - 1) * SLOTS_PER_PART + part.len() - 1).expect("fewer than 2^32 streams")
    }

    fn share_texts(&mut self, stream: &mut Stream) {
        let text = stream.content_type.as_str();
        match self.types.get(text) {
            Some(shared) => stream.content_type = shared.clone(),
            None => drop(self.types.insert(text.into(), stream.content_type.clone())),
        }
        match self.projects.get_key_value(&stream.name.project) {
            Some((shared, _)) => stream.name.project = shared.clone(),
            None => drop(self.projects.insert(stream.name.project.clone(), Project::default())),
        }
        let project = self.projects.entry(stream.name.project.clone()).or_default();
        project.streams += 1;
        project.others += usize::from(!is_clients(&stream.name));
    }

    fn forget_name(&mut self, id: u64) {
        let Some(slot) = self.slot_of(id) else { return };
        let Some(name) = self.get(id).map(|stream| stream.name.clone()) else { return };
        let hash = self.hash_name(&name);
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == slot) {
            entry.remove();
            if let Some(project) = self.projects.get_mut(&name.project) {
                project.ids.remove(&name.id);
            }
        }
    }

    /// Makes what a checkpoint does not hold: sorted names, the number of forks, and the links
    /// between sessions and sources.
    pub(super) fn finish_loading(&mut self) {
        self.sort_names();
        self.phase = Phase::Replaying;
        self.count_forks();
        self.link_sessions();
    }

    /// Does what replaying left undone, and begins to serve.
    pub(super) fn finish_replay(&mut self) {
        self.finish_sessions();
        self.remove_hidden();
    }

    /// All names at once: that is faster than one by one.
    fn sort_names(&mut self) {
        let mut ids: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
        for slot in &self.by_name {
            if let Some(stream) = self.slot(*slot) {
                ids.entry(stream.name.project.clone()).or_default().push(stream.name.id.clone());
            }
        }
        for (project, ids) in ids {
            self.projects.entry(project).or_default().ids = ids.into_iter().collect();
        }
    }

    /// The ids of a project that begin with `prefix` and come after `after`, at most `limit`.
    pub(super) fn ids(
        &self,
        project: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<Arc<str>> {
        let Some(project) = self.projects.get(project) else { return Vec::new() };
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let ids = project.ids.range::<str, _>((from, Bound::Unbounded));
        ids.take_while(|id| id.starts_with(prefix)).take(limit).cloned().collect()
    }

    fn remove(&mut self, id: u64) -> Option<Box<Stream>> {
        let slot = self.slot_of(id)?;
        self.forget_name(id);
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(id), |found| *found == slot) {
            entry.remove();
        }
        let stream = self.slots[slot as usize / SLOTS_PER_PART][slot as usize % SLOTS_PER_PART].take()?;
        self.free.push(slot);
        self.count -= 1;
        self.retained.remove(&id);
        if let Some(project) = self.projects.get_mut(&stream.name.project) {
            project.streams -= 1;
            project.others -= usize::from(!is_clients(&stream.name));
            if project.streams == 0 {
                self.projects.remove(&stream.name.project);
            }
        }
        Some(stream)
    }

    /// How many streams a project has, not counting the server's own.
    pub(super) fn count_of(&self, project: &str) -> usize {
        self.projects.get(project).map_or(0, |project| project.streams - project.others)
    }

    /// Makes a record true. `observer` is notified of every stream that changed.
    pub(super) fn apply(&mut self, record: &Record, location: Location, observer: &mut impl Observer) {
        match record {
            Record::Create(create) => {
                self.create(create, location);
                self.get(create.id).into_iter().for_each(|stream| observer.changed(stream, stream.tail));
            }
            Record::Append(append) => self.append(append, location, observer),
            Record::Delete { ids, by_age } => ids.iter().for_each(|id| self.delete(*id, *by_age, observer)),
            Record::Touch { uses } => self.touch(uses),
            Record::Trim { starts } => self.trim(starts),
            Record::Retain { id, retention } => self.retain(*id, *retention),
            Record::Mark { at, tails } => self.mark(*at, tails),
            Record::Subscribe(subscribe) => self.subscribe(subscribe, location),
            Record::Unsubscribe { change, session, source } => self.unsubscribe(*change, *session, *source),
            Record::Advance(advance) => self.advance(advance, location, observer),
            Record::Meta { namespace, key, value } => self.set_meta(namespace, key, value.as_deref()),
        }
    }

    fn create(&mut self, create: &CreateRecord, location: Location) {
        if self.get(create.id).is_some() {
            return;
        }
        let position = create.fork.as_ref().map_or(0, |fork| fork.position);
        let mut stream = Stream {
            id: create.id,
            name: create.name.clone(),
            content_type: create.content_type.clone(),
            expiry: create.expiry,
            created_at: create.at,
            used_at: AtomicU64::new(create.at),
            saved_at: AtomicU64::new(create.at),
            start: create.fork.as_ref().map_or(0, |fork| fork.start),
            tail: position,
            closed: create.closed,
            deleted: false,
            forks: 0,
            pieces: Pieces::default(),
            more: None,
            live: Weak::new(),
        };
        if let Some(fork) = &create.fork {
            stream.more().fork = Some(Box::new(fork.clone()));
            if let Some(origin) = self.get_mut(fork.origin) {
                origin.forks += 1;
            }
        }
        if create.retention != Retention::default() {
            stream.more().retention = create.retention;
        }
        grow(&mut stream, &create.messages, location, create.at);
        self.insert(stream);
    }

    fn append(&mut self, append: &AppendRecord, location: Location, observer: &mut impl Observer) {
        let Some(stream) = self.get_mut(append.id) else { return };
        if append.start != stream.tail {
            if append.start > stream.tail {
                tracing::error!(stream = %stream.name, tail = stream.tail, start = append.start, "part of a stream is missing");
            }
            return;
        }
        grow(stream, &append.messages, location, append.at);
        if let Some(Producer { id, epoch, seq }) = &append.producer {
            stream.more().producers.insert(id.clone(), Accepted { epoch: *epoch, seq: *seq });
        }
        if let Some(stream_seq) = &append.stream_seq {
            stream.more().stream_seq = Some(stream_seq.as_str().into());
        }
        if append.close {
            stream.closed = true;
            if let Some(producer) = &append.producer {
                stream.more().closed_by = Some(Box::new(producer.clone()));
            }
        }
        observer.grew(stream, append.start, &append.messages);
        if stream.feed().is_some() {
            self.note_lag(append.id);
        }
    }

    /// Removes a stream, or hides it while forks read through it; then its origin, if nothing
    /// else reads through that.
    fn delete(&mut self, id: u64, by_age: bool, observer: &mut impl Observer) {
        let Some(stream) = self.get_mut(id) else { return };
        if !stream.deleted {
            stream.deleted = true;
            observer.gone(stream);
            if stream.session().is_some() {
                self.sessions.sessions -= 1;
                *(if by_age { &mut self.sessions.expired } else { &mut self.sessions.deleted }) += 1;
            }
        }
        self.end_fan_out(id);
        self.remove_if_unused(id);
    }

    fn count_forks(&mut self) {
        let origins: Vec<u64> = self.all().filter_map(|stream| Some(stream.fork()?.origin)).collect();
        for origin in origins {
            if let Some(origin) = self.get_mut(origin) {
                origin.forks += 1;
            }
        }
    }

    /// Removes hidden streams whose last reader ended while a checkpoint was being written.
    fn remove_hidden(&mut self) {
        let hidden: Vec<u64> = self.all().filter(|stream| stream.deleted).map(|stream| stream.id).collect();
        hidden.into_iter().for_each(|id| self.remove_if_unused(id));
    }

    fn all(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten().filter_map(Option::as_deref)
    }

    /// Removes a deleted stream that no fork reads through, and so on up the chain of origins. A
    /// stream that sessions still view only loses its name. It needs its origin no longer, because
    /// sessions follow a stream from its tail on.
    pub(super) fn remove_if_unused(&mut self, id: u64) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let Some(stream) = self.get(id).filter(|stream| stream.deleted && stream.forks == 0) else {
                return;
            };
            let is_replaying = self.phase == Phase::Replaying;
            let fork = match stream.is_held() || (is_replaying && stream.feed().is_some()) {
                true => {
                    self.forget_name(id);
                    self.get_mut(id).and_then(|stream| stream.more.as_mut()?.fork.take())
                }
                false => self.remove(id).and_then(|stream| stream.more).and_then(|more| {
                    let holds = more.session.into_iter().flat_map(|session| session.holds);
                    holds.for_each(|(feed, from)| self.release(feed, from));
                    more.fork
                }),
            };
            if let Some(origin) = fork.and_then(|fork| self.get_mut(fork.origin)) {
                origin.forks -= 1;
                next = Some(origin.id);
            }
        }
    }

    fn touch(&mut self, uses: &[(u64, u64)]) {
        for (id, at) in uses {
            if let Some(stream) = self.get(*id) {
                stream.used_at.fetch_max(*at, Ordering::Relaxed);
                stream.saved_at.fetch_max(*at, Ordering::Relaxed);
            }
        }
    }

    fn trim(&mut self, starts: &[(u64, u64)]) {
        let is_replaying = self.phase == Phase::Replaying;
        for (id, start) in starts {
            if let Some(stream) = self.get_mut(*id) {
                stream.start = stream.start.max(*start);
                if !is_replaying || stream.feed().is_none() {
                    stream.drop_trimmed();
                }
                if let Some(more) = &mut stream.more {
                    let start = stream.start;
                    more.marks.retain(|(_, offset)| *offset > start);
                    self.trim_session(*id);
                }
            }
        }
    }

    fn set_meta(&mut self, namespace: &str, key: &str, value: Option<&[u8]>) {
        let key = (namespace.to_owned(), key.to_owned());
        match value {
            // A copy: the value may be a part of a whole segment that is being replayed.
            Some(value) => drop(self.metas.insert(key, Bytes::copy_from_slice(value))),
            None => drop(self.metas.remove(&key)),
        }
    }

    fn mark(&mut self, at: u64, tails: &[(u64, u64)]) {
        for (id, tail) in tails {
            if let Some(stream) = self.get_mut(*id) {
                stream.mark(at, *tail);
            }
        }
    }

    fn retain(&mut self, id: u64, retention: Retention) {
        let Some(stream) = self.get_mut(id) else { return };
        if retention != Retention::default() || stream.more.is_some() {
            let more: &mut More = stream.more();
            more.retention = retention;
        }
        if retention == Retention::default() {
            self.retained.remove(&id);
        } else {
            self.retained.insert(id);
        }
    }
}

/// Whether a client made the stream. The server's own and envelope streams do not count.
fn is_clients(name: &StreamName) -> bool {
    !name.id.is_empty() && !name.is_reserved()
}

/// Adds messages to a stream's end.
fn grow(stream: &mut Stream, messages: &Messages, location: Location, at: u64) {
    stream.used_at.fetch_max(at, Ordering::Relaxed);
    stream.saved_at.fetch_max(at, Ordering::Relaxed);
    if messages.is_empty() {
        return;
    }
    let start = stream.tail;
    if stream.wants_mark(at) {
        stream.mark(at, start);
    }
    let Location { segment, block } = location;
    stream.pieces.push(Piece { start, segment, at: block, bytes: block_length(messages), listed: 0 });
    stream.tail += messages.data.len() as u64;
}

/// Is notified of what a record changed.
pub(super) trait Observer {
    /// The stream grew by `messages` at `start`, or was closed.
    fn grew(&mut self, stream: &Stream, start: u64, messages: &Messages);
    /// The stream was deleted.
    fn gone(&mut self, stream: &Stream);
    /// The stream of a session grew at `start`, by `messages` if they are in memory.
    fn delivered(&mut self, session: &Stream, start: u64, messages: Option<&Messages>);
    /// Whether [`Observer::changed`] is wanted for the sessions of a project.
    fn wants_sessions(&self, project: &str) -> bool;
    /// The tail of a stream is now `tail`: for the watcher of the store.
    fn changed(&mut self, stream: &Stream, tail: u64);
}

/// Nothing is followed while the log is replayed.
impl Observer for () {
    fn grew(&mut self, _: &Stream, _: u64, _: &Messages) {}
    fn gone(&mut self, _: &Stream) {}
    fn delivered(&mut self, _: &Stream, _: u64, _: Option<&Messages>) {}
    fn wants_sessions(&self, _: &str) -> bool {
        false
    }
    fn changed(&mut self, _: &Stream, _: u64) {}
}
