//! All streams, in memory: by name, by id, and by the time they end.
//!
//! [`Index::apply`] is the only way a stream changes, for a new commit and for one that is
//! replayed; applying a record that is already in has no effect, so that a checkpoint may
//! be taken while commits go on.

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
use super::record::{Append, Birth, Record};
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
    /// When to look whether a stream has expired. A renewed life moves its entry then.
    pub(super) ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Streams whose data is dropped by age or size.
    pub(super) retained: BTreeSet<u64>,
    pub(super) next_id: u64,
    /// The next delivery's place in the order of all.
    pub(super) next_order: u64,
    /// The number of the last change of subscriptions; the first one has number 1.
    pub(super) last_change: u64,
    /// Sources whose subscribers wait for something.
    pub(super) behind: BTreeSet<u64>,
    /// Feeds must not forget anything: a checkpoint is being written.
    pub(super) keeps_feeds: bool,
    /// A checkpoint is being read: names are sorted when all are there.
    pub(super) is_loading: bool,
    /// The log is being replayed: what nobody needs now, somebody may yet.
    pub(super) is_replaying: bool,
    pub(super) sessions: SessionCounts,
    /// Small values by namespace and key.
    pub(super) metas: BTreeMap<(String, String), Bytes>,
    pub(super) count: usize,
    /// How far the log has come with all this.
    pub(super) position: Position,
}

/// What a tenant has.
#[derive(Default)]
struct Project {
    streams: usize,
    /// Those of them that are not the tenant's: what a server keeps for itself, and what has no name.
    others: usize,
    /// The ids that are found by name, in order.
    ids: BTreeSet<Arc<str>>,
}

/// Where a record was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) segment: u32,
    /// The block's place in it.
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

    /// The streams of some slots, and the slot to go on from.
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

    /// Makes room for so many streams more.
    pub(super) fn reserve(&mut self, count: usize) {
        assert!(self.count == 0, "only an empty index needs no hashes to grow");
        self.by_name.reserve(count, |_| 0);
        self.by_id.reserve(count, |_| 0);
    }

    /// Takes a stream in. Of two with one name the younger is found by it: a checkpoint
    /// may hold both lives, and the replay removes the older.
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
            if !self.is_loading {
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
        project.others += usize::from(!is_tenants(&stream.name));
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

    /// Sorts the names of a checkpoint's streams, all at once: that is faster than one by one.
    pub(super) fn sort_names(&mut self) {
        self.is_loading = false;
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

    /// The ids of a project that begin with `prefix` and come behind `after`, so many at most.
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
            project.others -= usize::from(!is_tenants(&stream.name));
            if project.streams == 0 {
                self.projects.remove(&stream.name.project);
            }
        }
        Some(stream)
    }

    /// How many streams a project has, of those that its tenant made.
    pub(super) fn count_of(&self, project: &str) -> usize {
        self.projects.get(project).map_or(0, |project| project.streams - project.others)
    }

    /// Makes a record true. `heard` learns of every stream that changed.
    pub(super) fn apply(&mut self, record: &Record, place: Place, heard: &mut impl Hear) {
        match record {
            Record::Create(birth) => {
                self.create(birth, place);
                self.get(birth.id).into_iter().for_each(|stream| heard.announce(stream, stream.tail));
            }
            Record::Append(append) => self.append(append, place, heard),
            Record::Delete { ids, by_age } => ids.iter().for_each(|id| self.delete(*id, *by_age, heard)),
            Record::Touch { uses } => self.touch(uses),
            Record::Trim { starts } => self.trim(starts),
            Record::Retain { id, retention } => self.retain(*id, *retention),
            Record::Mark { at, tails } => self.mark(*at, tails),
            Record::Subscribe(subscribe) => self.subscribe(subscribe, place),
            Record::Unsubscribe { change, session, source } => self.unsubscribe(*change, *session, *source),
            Record::Advance(advance) => self.advance(advance, place, heard),
            Record::Meta { namespace, key, value } => self.set_meta(namespace, key, value.as_deref()),
        }
    }

    fn create(&mut self, birth: &Birth, place: Place) {
        if self.get(birth.id).is_some() {
            return;
        }
        let position = birth.fork.as_ref().map_or(0, |fork| fork.position);
        let mut stream = Stream {
            id: birth.id,
            name: birth.name.clone(),
            content_type: birth.content_type.clone(),
            expiry: birth.expiry,
            created_at: birth.at,
            used_at: AtomicU64::new(birth.at),
            saved_at: AtomicU64::new(birth.at),
            start: birth.fork.as_ref().map_or(0, |fork| fork.start),
            tail: position,
            closed: birth.closed,
            deleted: false,
            forks: 0,
            pieces: Pieces::default(),
            more: None,
            live: Weak::new(),
        };
        if let Some(fork) = &birth.fork {
            stream.more().fork = Some(Box::new(fork.clone()));
            if let Some(source) = self.get_mut(fork.source) {
                source.forks += 1;
            }
        }
        if birth.retention != Retention::default() {
            stream.more().retention = birth.retention;
        }
        grow(&mut stream, &birth.messages, place, birth.at);
        self.insert(stream);
    }

    fn append(&mut self, append: &Append, place: Place, heard: &mut impl Hear) {
        let Some(stream) = self.get_mut(append.id) else { return };
        if append.start != stream.tail {
            if append.start > stream.tail {
                tracing::error!(stream = %stream.name, tail = stream.tail, start = append.start, "a part of a stream is missing");
            }
            return;
        }
        grow(stream, &append.messages, place, append.at);
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
        heard.changed(stream, append.start, &append.messages);
        if stream.feed().is_some() {
            self.note_lag(append.id);
        }
    }

    /// Removes a stream, or hides it while forks read through it; then its source, if that
    /// was waiting for it.
    fn delete(&mut self, id: u64, by_age: bool, heard: &mut impl Hear) {
        let Some(stream) = self.get_mut(id) else { return };
        if !stream.deleted {
            stream.deleted = true;
            heard.gone(stream);
            if stream.session().is_some() {
                self.sessions.sessions -= 1;
                *(if by_age { &mut self.sessions.expired } else { &mut self.sessions.deleted }) += 1;
            }
        }
        self.end_fan_out(id);
        self.remove_if_unused(id);
    }

    /// Counts who reads through whom, once a checkpoint is read.
    pub(super) fn count_forks(&mut self) {
        let sources: Vec<u64> = self.all().filter_map(|stream| Some(stream.fork()?.source)).collect();
        for source in sources {
            if let Some(source) = self.get_mut(source) {
                source.forks += 1;
            }
        }
    }

    /// Removes hidden streams whose last reader ended while a checkpoint was being written.
    pub(super) fn remove_zombies(&mut self) {
        let hidden: Vec<u64> = self.all().filter(|stream| stream.deleted).map(|stream| stream.id).collect();
        hidden.into_iter().for_each(|id| self.remove_if_unused(id));
    }

    fn all(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten().filter_map(Option::as_deref)
    }

    /// Removes what is deleted and not read through, up the chain of sources. What only
    /// sessions read loses its name, and needs its own source no more: they begin behind it.
    pub(super) fn remove_if_unused(&mut self, id: u64) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let Some(stream) = self.get(id).filter(|stream| stream.deleted && stream.forks == 0) else {
                return;
            };
            let fork = match stream.is_held() || (self.is_replaying && stream.feed().is_some()) {
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
            if let Some(source) = fork.and_then(|fork| self.get_mut(fork.source)) {
                source.forks -= 1;
                next = Some(source.id);
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
        let is_replaying = self.is_replaying;
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

/// Whether a stream is one that a tenant made. The server's own and the twins of sources are not.
fn is_tenants(name: &StreamName) -> bool {
    !name.id.is_empty() && !name.is_reserved()
}

/// Adds messages to a stream's end.
fn grow(stream: &mut Stream, messages: &Messages, place: Place, at: u64) {
    stream.used_at.fetch_max(at, Ordering::Relaxed);
    stream.saved_at.fetch_max(at, Ordering::Relaxed);
    if messages.is_empty() {
        return;
    }
    let start = stream.tail;
    if stream.wants_mark(at) {
        stream.mark(at, start);
    }
    let Place { segment, block } = place;
    stream.pieces.push(Piece { start, segment, at: block, bytes: block_length(messages), listed: 0 });
    stream.tail += messages.data.len() as u64;
}

/// Somebody who is told what a record changed.
pub(super) trait Hear {
    /// The stream grew by `messages` at `start`, or ended.
    fn changed(&mut self, stream: &Stream, start: u64, messages: &Messages);
    /// The stream is no more.
    fn gone(&mut self, stream: &Stream);
    /// A session's stream grew at `start`, by `messages` if they are at hand.
    fn delivered(&mut self, stream: &Stream, start: u64, messages: Option<&Messages>);
    /// Whether [`Hear::announce`] is wanted for a project's sessions.
    fn hears_sessions(&self, project: &str) -> bool;
    /// A stream has come to `tail`, for a watcher.
    fn announce(&mut self, stream: &Stream, tail: u64);
}

/// Nobody: nothing is followed while a log is replayed.
pub(super) struct Nobody;

impl Hear for Nobody {
    fn changed(&mut self, _: &Stream, _: u64, _: &Messages) {}
    fn gone(&mut self, _: &Stream) {}
    fn delivered(&mut self, _: &Stream, _: u64, _: Option<&Messages>) {}
    fn hears_sessions(&self, _: &str) -> bool {
        false
    }
    fn announce(&mut self, _: &Stream, _: u64) {}
}
