//! One commit in the making: decides every change that waits, in order, against the streams as
//! they are and as this commit will leave them.
//!
//! The plan remembers what earlier changes of the same commit did (`planned`). A change that
//! would need a stream which this commit creates or ends goes to the next commit instead. That
//! is rare, and it keeps this small.

mod fanout;
mod intake;

pub(super) use fanout::{TOO_FAR_BEHIND, envelope_starts};

use std::any::Any;
use std::collections::{HashMap, HashSet};

use hashbrown::DefaultHashBuilder;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state;

use super::index::Index;
use super::planned::{PlannedFeed, PlannedStream};
use super::queue::Change;
use super::record::{AppendRecord, CreateRecord, Fork, Record};
use super::stream::{Stream, time};
use crate::{
    Append, Appended, Create, Created, Error, FanOut, FanOutMode, Head, Messages, Published, Retention,
    RetentionChange, StreamId,
};

/// A commit that is being put together.
pub(super) struct Plan<'a> {
    index: &'a Index,
    now: u64,
    commit: u64,
    next_id: u64,
    next_delivery: u64,
    last_change: u64,
    /// The bytes to write.
    pub(super) bytes: Vec<u8>,
    /// The records in them, each with the position of its block in `bytes`.
    pub(super) records: Vec<(Record, u32)>,
    /// The answers to send once the commit is durable, or has failed.
    pub(super) answers: Vec<Answer>,
    /// Streams that this commit appends to.
    streams: HashMap<u64, PlannedStream, DefaultHashBuilder>,
    /// Sources whose cursor or subscribers this commit changes.
    feeds: HashMap<u64, PlannedFeed>,
    /// Names of streams that this commit creates or ends.
    names: HashSet<StreamName>,
    /// Streams that this commit ends, or whose forks it changes: no other change may touch them.
    locked: HashSet<u64>,
    /// Sessions whose subscriptions this commit changes.
    changed: HashSet<u64>,
    /// Retentions that this commit sets.
    retained: HashMap<u64, Retention>,
    /// Keys of small values that this commit adds.
    new_metas: HashSet<(String, String)>,
    /// This commit has taken a batch of messages in.
    has_taken_in: bool,
}

/// The answer to a change, of the type that its caller waits for.
pub(super) enum Answer {
    /// To an append or a publish: by far the most frequent, so it needs no allocation.
    Append(Result<Published, Error>),
    Other(Box<dyn Any + Send>),
}

/// Why a change is not part of this commit.
enum NotMade {
    Refused(Error),
    NextCommit,
}

impl From<Error> for NotMade {
    fn from(error: Error) -> NotMade {
        NotMade::Refused(error)
    }
}

type Decided<T> = Result<T, NotMade>;

/// The answer to a caller; `None` if the next commit decides.
fn answer_of<T>(decided: Decided<T>) -> Option<Result<T, Error>> {
    match decided {
        Ok(answer) => Some(Ok(answer)),
        Err(NotMade::Refused(error)) => Some(Err(error)),
        Err(NotMade::NextCommit) => None,
    }
}

impl<'a> Plan<'a> {
    /// Puts together commit number `commit`, of about `changes` changes, in `bytes`.
    pub(super) fn new(index: &'a Index, now: u64, commit: u64, changes: usize, bytes: Vec<u8>) -> Plan<'a> {
        Plan {
            index,
            now,
            commit,
            next_id: index.next_id,
            next_delivery: index.next_delivery,
            last_change: index.last_change,
            bytes,
            records: Vec::with_capacity(changes),
            answers: Vec::with_capacity(changes),
            streams: HashMap::default(),
            feeds: HashMap::new(),
            names: HashSet::new(),
            locked: HashSet::new(),
            changed: HashSet::new(),
            retained: HashMap::new(),
            new_metas: HashSet::new(),
            has_taken_in: false,
        }
    }

    /// Decides one change, and keeps the answer for its caller. False if the next commit must decide it.
    ///
    /// The change stays as it is: if another node takes this commit's number, it is decided again.
    pub(super) fn decide(&mut self, change: &Change) -> bool {
        match change {
            Change::Append { name, append, fan_out, .. } => {
                let Some(answer) = answer_of(self.append(name, append, *fan_out)) else { return false };
                self.answers.push(Answer::Append(answer));
                true
            }
            Change::AppendAll { appends, .. } => {
                let decided = self.append_all(appends);
                self.answer(decided)
            }
            Change::Create { name, create, fork, .. } => {
                let decided = self.create(name, create, fork.as_deref());
                self.answer(decided)
            }
            Change::Delete { name, .. } => {
                let decided = self.delete(name);
                self.answer(decided)
            }
            Change::Expire { ids, .. } => {
                let expired = self.expire(ids);
                self.answer(Ok(expired))
            }
            Change::Touch { uses, .. } => {
                self.write(Record::Touch { uses: uses.clone() });
                self.answer(Ok(()))
            }
            Change::Trim { id, name, start, .. } => {
                let decided = self.trim(*id, name, *start);
                self.answer(decided)
            }
            Change::Mark { ids, .. } => {
                self.mark(ids);
                self.answer(Ok(()))
            }
            Change::Retain { name, change, .. } => {
                let decided = self.retain(name, *change);
                self.answer(decided)
            }
            Change::Subscribe { subscribe, .. } => {
                let decided = self.subscribe(subscribe);
                self.answer(decided)
            }
            Change::Unsubscribe { session, source, deliver, .. } => {
                let decided = self.unsubscribe(session, source, *deliver);
                self.answer(decided)
            }
            Change::Deliver { name, delivery, .. } => {
                let decided = self.deliver_step(name, delivery);
                self.answer(decided)
            }
            Change::Meta { value, .. } => {
                let decided = self.set_meta(value).map_err(NotMade::from);
                self.answer(decided)
            }
            Change::TakeIn { batch, .. } => {
                let decided = self.take_in(batch);
                self.answer(decided)
            }
            Change::Refresh { .. } => self.answer(Ok(())),
        }
    }

    /// Keeps an answer. False if the next commit decides.
    fn answer<T: Send + 'static>(&mut self, decided: Decided<T>) -> bool {
        let answer = answer_of(decided);
        let is_decided = answer.is_some();
        self.answers.extend(answer.map(|answer: Result<T, Error>| Answer::Other(Box::new(answer))));
        is_decided
    }

    fn write(&mut self, record: Record) {
        let start = self.bytes.len();
        let block = record.put(&mut self.bytes, self.commit);
        self.records.push((record, u32::try_from(start).expect("commits stay far below 4 GiB") + block));
    }

    /// The stream of a name, if it can be used.
    fn usable(&self, name: &StreamName) -> Result<&'a Stream, Error> {
        usable(self.index, name, self.now)
    }

    /// Leaves a change to the next commit if this one creates, ends or locks the stream.
    fn check_free(&self, name: &StreamName) -> Decided<()> {
        let is_locked = |stream: &Stream| self.locked.contains(&stream.id);
        // Most commits create and end nothing: then there is nothing to look up.
        let is_taken = (!self.names.is_empty() && self.names.contains(name))
            || (!self.locked.is_empty() && self.index.named(name).is_some_and(is_locked));
        if is_taken { Err(NotMade::NextCommit) } else { Ok(()) }
    }

    /// Appends, and delivers to the sessions that follow the stream as far as `fan_out` says.
    fn append(&mut self, name: &StreamName, append: &Append, fan_out: FanOut) -> Decided<Published> {
        self.check_free(name)?;
        let stream = self.usable(name)?;
        if stream.session().is_some() {
            return Err(Error::ReadOnly(name.clone()).into());
        }
        let planned = self.streams.entry(stream.id).or_insert_with(|| PlannedStream::of(stream));
        let start = planned.tail;
        let appended = planned.append(stream, append)?;
        if !appended.is_duplicate {
            self.write(Record::Append(AppendRecord {
                id: stream.id,
                at: self.now,
                start,
                close: append.close,
                producer: append.producer.clone(),
                stream_seq: append.stream_seq.as_deref().map(str::to_owned),
                messages: append.messages.clone(),
            }));
        }
        if stream.feed().is_none() && !self.feeds.contains_key(&stream.id) {
            return Ok(Published { appended, subscribers: 0, mode: FanOutMode::Inline });
        }
        let nothing = Messages::default();
        let written = if appended.is_duplicate { &nothing } else { &append.messages };
        let (subscribers, mode) = self.deliver(stream, written, fan_out);
        Ok(Published { appended, subscribers, mode })
    }

    /// Each append is decided on its own; all of them are in one commit.
    fn append_all(&mut self, appends: &[(StreamName, Append)]) -> Decided<Vec<Result<Appended, Error>>> {
        appends.iter().try_for_each(|(name, _)| self.check_free(name))?;
        let answers = appends.iter().map(|(name, append)| {
            let answer = answer_of(self.append(name, append, FanOut::LATER));
            answer.expect("appends lock nothing, and all names were free").map(|published| published.appended)
        });
        Ok(answers.collect())
    }

    fn create(&mut self, name: &StreamName, create: &Create, fork: Option<&Fork>) -> Decided<Created> {
        self.check_free(name)?;
        let existing = self.index.named(name);
        if let Some(existing) = existing.filter(|existing| self.is_usable(existing)) {
            if self.streams.contains_key(&existing.id) {
                return Err(NotMade::NextCommit);
            }
            if !state::same_creation(&existing.shape(), &create.shape) {
                return Err(Error::Conflict { name: name.clone(), what: "configuration" }.into());
            }
            return Ok(Created { is_new: false, head: self.index.head(existing) });
        }
        let (content_type, expiry) = self.inherit(name, create, fork)?;
        if let Some(existing) = existing {
            self.end_expired(existing)?;
        }
        if let Some(fork) = fork {
            self.locked.insert(fork.origin);
        }
        let record = CreateRecord {
            id: self.new_id(),
            at: self.now,
            name: name.clone(),
            content_type,
            expiry,
            closed: create.shape.closed,
            retention: create.retention,
            fork: fork.cloned(),
            messages: create.messages.clone(),
        };
        self.names.insert(name.clone());
        let head = head_of(&record);
        self.write(Record::Create(Box::new(record)));
        Ok(Created { is_new: true, head })
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The type and life of a new stream; a fork may take both from its origin.
    fn inherit(
        &self,
        name: &StreamName,
        create: &Create,
        fork: Option<&Fork>,
    ) -> Decided<(ContentType, Expiry)> {
        let shape = &create.shape;
        let Some(fork) = fork else {
            let content_type = shape.content_type.clone().unwrap_or_default();
            return Ok((content_type, shape.expiry.unwrap_or(Expiry::Never)));
        };
        if self.locked.contains(&fork.origin) {
            return Err(NotMade::NextCommit);
        }
        let origin = self.index.get(fork.origin).filter(|origin| self.is_usable(origin));
        let origin = origin.ok_or_else(|| Error::NotFound(fork.point.origin.clone()))?;
        if shape.content_type.as_ref().is_some_and(|asked| *asked != origin.content_type) {
            return Err(Error::Conflict { name: name.clone(), what: "content type than its origin" }.into());
        }
        let content_type = shape.content_type.clone().unwrap_or_else(|| origin.content_type.clone());
        Ok((content_type, shape.expiry.unwrap_or(origin.expiry)))
    }

    fn is_usable(&self, stream: &Stream) -> bool {
        !stream.deleted && !stream.has_expired(self.now)
    }

    /// Ends a stream that has expired and was not removed yet, because its name is needed.
    fn end_expired(&mut self, stream: &'a Stream) -> Decided<()> {
        if stream.deleted || stream.forks > 0 {
            let what = "life: it was deleted and its forks need it";
            return Err(Error::Conflict { name: stream.name.clone(), what }.into());
        }
        self.end(stream)?;
        self.write(Record::Delete { ids: vec![stream.id], by_age: true });
        Ok(())
    }

    fn delete(&mut self, name: &StreamName) -> Decided<()> {
        self.check_free(name)?;
        let stream = self.usable(name)?;
        self.end(stream)?;
        self.names.insert(name.clone());
        self.write(Record::Delete { ids: vec![stream.id], by_age: false });
        Ok(())
    }

    /// Everything that comes before the record that deletes a stream.
    fn end(&mut self, stream: &'a Stream) -> Decided<()> {
        self.deliver_rest(stream)?;
        let chain = self.free_chain(stream).ok_or(NotMade::NextCommit)?;
        self.locked.extend(chain);
        self.unfollow_all(stream);
        Ok(())
    }

    /// Ends streams together, in one record, so their chains may share origins. A stream whose
    /// subscribers still wait for something is left for another time.
    fn expire(&mut self, ids: &[u64]) -> usize {
        let (mut ended, mut locked) = (Vec::new(), Vec::new());
        for stream in ids.iter().filter_map(|id| self.index.get(*id)) {
            let due = !stream.deleted && stream.has_expired(self.now) && !self.names.contains(&stream.name);
            if !due || self.deliver_rest(stream).is_err() {
                continue;
            }
            if let Some(chain) = self.free_chain(stream) {
                locked.extend(chain);
                self.names.insert(stream.name.clone());
                self.unfollow_all(stream);
                ended.push(stream.id);
            }
        }
        self.locked.extend(locked);
        let count = ended.len();
        if count > 0 {
            self.write(Record::Delete { ids: ended, by_age: true });
        }
        count
    }

    /// A stream and the origins that its end may remove; `None` if this commit has changed one
    /// of them already.
    fn free_chain(&self, stream: &Stream) -> Option<Vec<u64>> {
        let mut chain = vec![stream.id];
        let mut fork = stream.fork();
        while let Some(origin) = fork.and_then(|fork| self.index.get(fork.origin)) {
            chain.push(origin.id);
            fork = origin.fork();
        }
        let is_taken =
            |id: &u64| self.streams.contains_key(id) || self.changed.contains(id) || self.locked.contains(id);
        (!chain.iter().any(is_taken)).then_some(chain)
    }

    fn trim(&mut self, id: u64, name: &StreamName, start: u64) -> Decided<Offset> {
        self.check_free(name)?;
        let stream = self.usable(name)?;
        if stream.id != id {
            return Err(Error::NotFound(name.clone()).into());
        }
        let start = start.clamp(stream.start, stream.tail);
        if start > stream.start {
            self.write(Record::Trim { starts: vec![(id, start)] });
        }
        Ok(Offset::new(start))
    }

    fn retain(&mut self, name: &StreamName, change: RetentionChange) -> Decided<Retention> {
        self.check_free(name)?;
        let stream = self.usable(name)?;
        let id = stream.id;
        let retention = self.retained.get(&id).copied().unwrap_or(stream.retention()).with(change);
        self.retained.insert(id, retention);
        self.write(Record::Retain { id, retention });
        // What is there already is at least as old as this moment.
        if retention.age_seconds.is_some() {
            self.mark(&[id]);
        }
        Ok(retention)
    }

    /// Writes the tails that streams have now. What this commit appends is younger.
    fn mark(&mut self, ids: &[u64]) {
        let tail = |id: &u64| Some((*id, self.index.get(*id)?.tail));
        let tails = ids.iter().filter_map(tail).collect();
        self.write(Record::Mark { at: self.now, tails });
    }
}

/// The stream of a name, if it can be used.
pub(super) fn usable<'a>(index: &'a Index, name: &StreamName, now: u64) -> Result<&'a Stream, Error> {
    let stream = index.named(name).ok_or_else(|| Error::NotFound(name.clone()))?;
    let expired = stream.has_expired(now);
    match stream.deleted || (expired && stream.forks > 0) {
        true => Err(Error::Deleted(name.clone())),
        false if expired => Err(Error::NotFound(name.clone())),
        false => Ok(stream),
    }
}

fn head_of(record: &CreateRecord) -> Head {
    let position = record.fork.as_ref().map_or(0, |fork| fork.position);
    let tail = position + record.messages.data.len() as u64;
    Head {
        id: StreamId(record.id),
        content_type: record.content_type.clone(),
        start: Offset::new(record.fork.as_ref().map_or(0, |fork| fork.start)),
        tail: Offset::new(tail),
        closed: record.closed,
        expiry: record.expiry,
        ends_at: record.expiry.ends_at(time(record.at)),
        created_at: time(record.at),
        retention: record.retention,
    }
}
