//! One commit in the making: what waits is decided, in order, against the streams as they
//! are and as this commit will leave them.
//!
//! The plan keeps the facts that earlier changes of the same commit have moved. Changes
//! that would have to look through a birth or a death in the same commit are put off to
//! the next one instead: that is rare, and it keeps this small.

mod fanout;

pub(super) use fanout::{BEHIND, late_starts};

use std::collections::{HashMap, HashSet};

use hashbrown::DefaultHashBuilder;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::state::{self, Accepted, Refusal, Verdict};

use super::index::Index;
use super::moved::{Moved, MovedFeed};
use super::queue::{Reply, Wanted};
use super::record::{self, Birth, Fork, Record};
use super::stream::{Stream, time};
use crate::{Append, Appended, Create, Created, Error, Head, Retention, RetentionChange, StreamId};

/// A commit that is being put together.
pub(super) struct Plan<'a> {
    index: &'a Index,
    now: u64,
    commit: u64,
    next_id: u64,
    next_order: u64,
    last_change: u64,
    /// The bytes to write.
    pub(super) bytes: Vec<u8>,
    /// The records in them, each with the place of its block in `bytes`.
    pub(super) records: Vec<(Record, u32)>,
    /// What to tell whom when it is durable, or that it is not.
    pub(super) answers: Vec<Answer>,
    moved: HashMap<u64, Moved, DefaultHashBuilder>,
    /// Names that begin or end with this commit.
    names: HashSet<StreamName>,
    /// Streams that end, or gain or lose a fork, with this commit.
    fixed: HashSet<u64>,
    /// Deliveries of sources that this commit has moved.
    feeds: HashMap<u64, MovedFeed>,
    /// Sessions whose subscriptions change with this commit.
    changed: HashSet<u64>,
    /// Retentions that this commit changes.
    retained: HashMap<u64, Retention>,
    /// Keys of small values that this commit adds.
    new_metas: HashSet<(String, String)>,
}

/// Tells a caller how it went, or why all of it failed.
pub(super) enum Answer {
    /// By far the most, and so without an allocation.
    Append(Reply<Appended>, Result<Appended, Error>),
    Other(Tell),
}

type Tell = Box<dyn FnOnce(Option<&Error>) + Send>;

impl Answer {
    pub(super) fn tell(self, failed: Option<&Error>) {
        match self {
            // The caller may have gone away; the change stands all the same.
            Answer::Append(reply, answer) => drop(reply.send(match failed {
                Some(error) => Err(error.clone()),
                None => answer,
            })),
            Answer::Other(tell) => tell(failed),
        }
    }
}

/// A decision, or that it must wait for the next commit.
enum Decided<T> {
    Now(Result<T, Error>),
    Later,
}

/// Leaves a decision early.
macro_rules! now {
    ($error:expr) => {
        return Decided::Now(Err($error))
    };
}

impl<'a> Plan<'a> {
    /// Puts together commit number `commit`, of about `changes` changes, in `bytes`.
    pub(super) fn new(index: &'a Index, now: u64, commit: u64, changes: usize, bytes: Vec<u8>) -> Plan<'a> {
        Plan {
            index,
            now,
            commit,
            next_id: index.next_id,
            next_order: index.next_order,
            last_change: index.last_change,
            bytes,
            records: Vec::with_capacity(changes),
            answers: Vec::with_capacity(changes),
            moved: HashMap::default(),
            names: HashSet::new(),
            fixed: HashSet::new(),
            feeds: HashMap::new(),
            changed: HashSet::new(),
            retained: HashMap::new(),
            new_metas: HashSet::new(),
        }
    }

    /// Decides one change. Gives it back if it must wait for the next commit.
    pub(super) fn take(&mut self, wanted: Wanted) -> Option<Wanted> {
        match wanted {
            Wanted::Append { name, append, reply } => match self.append(&name, &append) {
                Decided::Now(answer) => self.answers.push(Answer::Append(reply, answer)),
                Decided::Later => return Some(Wanted::Append { name, append, reply }),
            },
            Wanted::AppendAll { appends, reply } => {
                if appends.iter().any(|(name, _)| self.must_wait(name)) {
                    return Some(Wanted::AppendAll { appends, reply });
                }
                let answers = appends.iter().map(|(name, append)| match self.append(name, append) {
                    Decided::Now(answer) => answer,
                    Decided::Later => unreachable!("appends fix nothing, and all were looked at before"),
                });
                let answers = answers.collect();
                self.answer(reply, Ok(answers));
            }
            Wanted::Create { name, create, fork, reply } => {
                match self.create(&name, &create, fork.as_deref()) {
                    Decided::Now(answer) => self.answer(reply, answer),
                    Decided::Later => return Some(Wanted::Create { name, create, fork, reply }),
                }
            }
            Wanted::Delete { name, reply } => match self.delete(&name) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Delete { name, reply }),
            },
            Wanted::Expire { ids, reply } => {
                let expired = self.expire(&ids);
                self.answer(reply, Ok(expired));
            }
            Wanted::Touch { uses, reply } => {
                self.write(Record::Touch { uses });
                self.answer(reply, Ok(()));
            }
            Wanted::Trim { id, name, start, reply } => match self.trim(id, &name, start) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Trim { id, name, start, reply }),
            },
            Wanted::Mark { ids, reply } => {
                self.mark(&ids);
                self.answer(reply, Ok(()));
            }
            Wanted::Retain { name, change, reply } => match self.retain(&name, change) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Retain { name, change, reply }),
            },
            Wanted::Publish { name, append, fan_out, reply } => match self.publish(&name, &append, fan_out) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Publish { name, append, fan_out, reply }),
            },
            Wanted::Subscribe { subscribe, reply } => match self.subscribe(&subscribe) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Subscribe { subscribe, reply }),
            },
            Wanted::Unsubscribe { session, source, deliver, reply } => {
                match self.unsubscribe(&session, &source, deliver) {
                    Decided::Now(answer) => self.answer(reply, answer),
                    Decided::Later => return Some(Wanted::Unsubscribe { session, source, deliver, reply }),
                }
            }
            Wanted::Advance { name, step, reply } => match self.advance(&name, &step) {
                Decided::Now(answer) => self.answer(reply, answer),
                Decided::Later => return Some(Wanted::Advance { name, step, reply }),
            },
            Wanted::Meta { change, reply } => {
                let answer = self.set_meta(*change);
                self.answer(reply, answer);
            }
        }
        None
    }

    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, Error>) {
        self.answers.push(Answer::Other(Box::new(move |failed| {
            let _ = reply.send(match failed {
                Some(error) => Err(error.clone()),
                None => answer,
            });
        })));
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

    fn must_wait(&self, name: &StreamName) -> bool {
        let fixed = |stream: &Stream| self.fixed.contains(&stream.id);
        // Most commits bring no birth and no death: nothing to look up then.
        (!self.names.is_empty() && self.names.contains(name))
            || (!self.fixed.is_empty() && self.index.named(name).is_some_and(fixed))
    }

    fn moved(&mut self, stream: &Stream) -> &mut Moved {
        self.moved.entry(stream.id).or_insert_with(|| Moved::of(stream))
    }

    fn append(&mut self, name: &StreamName, append: &Append) -> Decided<Appended> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        match self.usable(name) {
            Ok(stream) => Decided::Now(self.append_to(stream, append)),
            Err(error) => Decided::Now(Err(error)),
        }
    }

    fn append_to(&mut self, stream: &'a Stream, append: &Append) -> Result<Appended, Error> {
        let name = &stream.name;
        if stream.session().is_some() {
            return Err(Error::ReadOnly(name.clone()));
        }
        let at = self.now;
        let moved = self.moved(stream);
        let known = append.producer.as_ref().and_then(|producer| moved.accepted(stream, &producer.id));
        let verdict = moved.judge(stream, append, known);
        let (accepted, is_duplicate) = match verdict {
            Verdict::Refuse(refusal) => return Err(refused(name, refusal, moved)),
            Verdict::Duplicate(accepted) => (Some(accepted), true),
            Verdict::AlreadyClosed => (known, true),
            Verdict::Write => {
                let start = moved.tail;
                moved.take(append);
                self.write(Record::Append(record::Append {
                    id: stream.id,
                    at,
                    start,
                    close: append.close,
                    producer: append.producer.clone(),
                    stream_seq: append.stream_seq.as_deref().map(str::to_owned),
                    messages: append.messages.clone(),
                }));
                let accepted = append.producer.as_ref();
                (accepted.map(|producer| Accepted { epoch: producer.epoch, seq: producer.seq }), false)
            }
        };
        let moved = self.moved(stream);
        let tail = Offset::new(moved.tail);
        Ok(Appended { tail, closed: moved.closed, is_duplicate, producer: accepted })
    }

    fn create(&mut self, name: &StreamName, create: &Create, fork: Option<&Fork>) -> Decided<Created> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        let there = self.index.named(name);
        if let Some(there) = there.filter(|there| self.is_usable(there)) {
            if self.moved.contains_key(&there.id) {
                return Decided::Later;
            }
            if !state::same_creation(&there.shape(), &create.shape) {
                now!(Error::Conflict { name: name.clone(), what: "configuration" });
            }
            return Decided::Now(Ok(Created { is_new: false, head: self.index.head(there) }));
        }
        // What is in the way has expired, or was deleted and is kept for its forks.
        if there.is_some_and(|there| there.deleted || there.forks > 0) {
            now!(Error::Conflict { name: name.clone(), what: "life: it was deleted and its forks need it" });
        }
        let (content_type, expiry) = match self.inherit(name, create, fork) {
            Decided::Now(Ok(inherited)) => inherited,
            Decided::Now(Err(error)) => now!(error),
            Decided::Later => return Decided::Later,
        };
        if let Some(there) = there {
            match self.deliver_rest(there) {
                Decided::Now(Ok(())) => {}
                Decided::Now(Err(error)) => now!(error),
                Decided::Later => return Decided::Later,
            }
            if !self.fix_chain(there) {
                return Decided::Later;
            }
            self.leave_all(there);
            self.write(Record::Delete { ids: vec![there.id], by_age: true });
        }
        if let Some(fork) = fork {
            self.fixed.insert(fork.source);
        }
        let birth = Birth {
            id: self.next_id,
            at: self.now,
            name: name.clone(),
            content_type,
            expiry,
            closed: create.shape.closed,
            retention: create.retention,
            fork: fork.cloned(),
            messages: create.messages.clone(),
        };
        self.next_id += 1;
        self.names.insert(name.clone());
        let head = head_of(&birth);
        self.write(Record::Create(Box::new(birth)));
        Decided::Now(Ok(Created { is_new: true, head }))
    }

    /// What a new stream is, and what it takes from its source.
    fn inherit(
        &self,
        name: &StreamName,
        create: &Create,
        fork: Option<&Fork>,
    ) -> Decided<(towpath_model::stream::content_type::ContentType, Expiry)> {
        let shape = &create.shape;
        let Some(fork) = fork else {
            let content_type = shape.content_type.clone().unwrap_or_default();
            return Decided::Now(Ok((content_type, shape.expiry.unwrap_or(Expiry::Never))));
        };
        if self.fixed.contains(&fork.source) {
            return Decided::Later;
        }
        let Some(source) = self.index.get(fork.source).filter(|source| self.is_usable(source)) else {
            now!(Error::NotFound(fork.point.source.clone()));
        };
        if shape.content_type.as_ref().is_some_and(|asked| *asked != source.content_type) {
            now!(Error::Conflict { name: name.clone(), what: "content type than its source" });
        }
        let content_type = shape.content_type.clone().unwrap_or_else(|| source.content_type.clone());
        Decided::Now(Ok((content_type, shape.expiry.unwrap_or(source.expiry))))
    }

    fn is_usable(&self, stream: &Stream) -> bool {
        !stream.deleted && !stream.has_expired(self.now)
    }

    fn delete(&mut self, name: &StreamName) -> Decided<()> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        let stream = match self.usable(name) {
            Ok(stream) => stream,
            Err(error) => now!(error),
        };
        match self.deliver_rest(stream) {
            Decided::Now(Ok(())) => {}
            Decided::Now(Err(error)) => now!(error),
            Decided::Later => return Decided::Later,
        }
        if !self.fix_chain(stream) {
            return Decided::Later;
        }
        self.names.insert(name.clone());
        self.leave_all(stream);
        self.write(Record::Delete { ids: vec![stream.id], by_age: false });
        Decided::Now(Ok(()))
    }

    /// Ends streams together. Their ends may share sources: the record is applied in one go.
    /// What still has to be delivered first is left for another time.
    fn expire(&mut self, ids: &[u64]) -> usize {
        let (mut ended, mut fixed) = (Vec::new(), Vec::new());
        for stream in ids.iter().filter_map(|id| self.index.get(*id)) {
            let due = !stream.deleted && stream.has_expired(self.now) && !self.names.contains(&stream.name);
            if !due || !matches!(self.deliver_rest(stream), Decided::Now(Ok(()))) {
                continue;
            }
            if let Some(chain) = self.chain(stream) {
                fixed.extend(chain);
                self.names.insert(stream.name.clone());
                self.leave_all(stream);
                ended.push(stream.id);
            }
        }
        self.fixed.extend(fixed);
        let count = ended.len();
        if count > 0 {
            self.write(Record::Delete { ids: ended, by_age: true });
        }
        count
    }

    /// Fixes a stream that ends and every source its end may remove. False if this commit
    /// has touched one of them already.
    fn fix_chain(&mut self, stream: &Stream) -> bool {
        let chain = self.chain(stream);
        let is_free = chain.is_some();
        self.fixed.extend(chain.into_iter().flatten());
        is_free
    }

    /// A stream and its sources, if this commit has touched none of them yet.
    fn chain(&self, stream: &Stream) -> Option<Vec<u64>> {
        let mut chain = vec![stream.id];
        let mut fork = stream.fork();
        while let Some(source) = fork.and_then(|fork| self.index.get(fork.source)) {
            chain.push(source.id);
            fork = source.fork();
        }
        let is_moved = |id: &u64| self.moved.contains_key(id) || self.changed.contains(id);
        let is_taken = |id: &u64| is_moved(id) || self.fixed.contains(id);
        (!chain.iter().any(is_taken)).then_some(chain)
    }

    fn trim(&mut self, id: u64, name: &StreamName, start: u64) -> Decided<Offset> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        let stream = match self.usable(name) {
            Ok(stream) if stream.id == id => stream,
            Ok(_) => now!(Error::NotFound(name.clone())),
            Err(error) => now!(error),
        };
        let start = start.clamp(stream.start, stream.tail);
        if start > stream.start {
            self.write(Record::Trim { starts: vec![(id, start)] });
        }
        Decided::Now(Ok(Offset::new(start)))
    }

    fn retain(&mut self, name: &StreamName, change: RetentionChange) -> Decided<Retention> {
        if self.must_wait(name) {
            return Decided::Later;
        }
        let (id, before) = match self.usable(name) {
            Ok(stream) => (stream.id, stream.retention()),
            Err(error) => now!(error),
        };
        let retention = self.retained.get(&id).copied().unwrap_or(before).with(change);
        self.retained.insert(id, retention);
        self.write(Record::Retain { id, retention });
        // What is there already is at least as old as this moment.
        if retention.age_seconds.is_some() {
            self.mark(&[id]);
        }
        Decided::Now(Ok(retention))
    }

    /// Writes down how far streams have come by now. What this commit adds is younger.
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

fn refused(name: &StreamName, refusal: Refusal, moved: &Moved) -> Error {
    Error::Refused { name: name.clone(), refusal, tail: Offset::new(moved.tail), closed: moved.closed }
}

fn head_of(birth: &Birth) -> Head {
    let position = birth.fork.as_ref().map_or(0, |fork| fork.position);
    let tail = position + birth.messages.data.len() as u64;
    Head {
        id: StreamId(birth.id),
        content_type: birth.content_type.clone(),
        start: Offset::new(birth.fork.as_ref().map_or(0, |fork| fork.start)),
        tail: Offset::new(tail),
        closed: birth.closed,
        expiry: birth.expiry,
        ends_at: birth.expiry.ends_at(time(birth.at)),
        created_at: time(birth.at),
        retention: birth.retention,
    }
}
