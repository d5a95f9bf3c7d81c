//! The model of the store: every stream a list of messages, every rule written plainly.

use std::collections::BTreeMap;

use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{self, Accepted, AppendFacts, Refusal, StreamFacts, Verdict};
use towpath_streams::{Append, Create, Error, Messages};

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    NotFound,
    Deleted,
    Conflict,
    ForkPoint,
    ReadOnly,
    CannotFollow,
    Refused(Refusal),
}

impl Wrong {
    pub(crate) fn of(error: &Error) -> Wrong {
        match error {
            Error::NotFound(_) => Wrong::NotFound,
            Error::Deleted(_) => Wrong::Deleted,
            Error::Conflict { .. } => Wrong::Conflict,
            Error::ForkPoint { .. } => Wrong::ForkPoint,
            Error::ReadOnly(_) => Wrong::ReadOnly,
            Error::CannotFollow { .. } => Wrong::CannotFollow,
            Error::Refused { refusal, .. } => Wrong::Refused(*refusal),
            other => panic!("the store answered {other:?}"),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) content_type: ContentType,
    pub(crate) expiry: Expiry,
    /// The first bytes that a fork has of its origin are here too.
    pub(crate) messages: Vec<Vec<u8>>,
    /// The offset of the first message.
    pub(crate) start: u64,
    pub(crate) closed: bool,
    pub(crate) used_at: i64,
    /// When it was last written to; a crash does not lose that.
    pub(crate) written_at: i64,
    closed_by: Option<Producer>,
    stream_seq: Option<String>,
    producers: BTreeMap<String, Accepted>,
    /// Which creation of this name it was.
    pub(super) life: u64,
    /// What a session follows; `None` if it is no session.
    pub(super) subs: Option<Vec<Sub>>,
    /// Messages to be delivered: the offset after each, and its bytes.
    pub(super) due: Vec<(u64, Vec<u8>)>,
    origin: Option<String>,
    pub(super) deleted: bool,
    shape: state::Shape,
}

/// What a session follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sub {
    pub(crate) source: String,
    pub(crate) life: u64,
    pub(crate) start: u64,
    pub(crate) envelope: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) streams: BTreeMap<String, Stream>,
    pub(crate) metas: BTreeMap<String, Vec<u8>>,
    pub(crate) now: i64,
    pub(super) lives: u64,
}

impl Stream {
    pub(crate) fn tail(&self) -> u64 {
        self.start + self.messages.iter().map(|message| message.len() as u64).sum::<u64>()
    }

    pub(super) fn has_expired(&self, now: i64) -> bool {
        match self.expiry {
            Expiry::Never => false,
            Expiry::Sliding { seconds } => self.used_at + seconds as i64 * 1000 <= now,
            Expiry::At(at) => at.as_millisecond() <= now,
        }
    }

    pub(super) fn push(&mut self, messages: &Messages, now: i64) {
        let mut from = 0;
        for end in &messages.ends {
            self.messages.push(messages.data[from..*end as usize].to_vec());
            from = *end as usize;
        }
        self.used_at = now;
        self.written_at = now;
    }
}

impl Model {
    pub(crate) fn usable(&self, id: &str) -> Result<&Stream, Wrong> {
        let stream = self.streams.get(id).ok_or(Wrong::NotFound)?;
        let expired = stream.has_expired(self.now);
        match stream.deleted || (expired && self.forks(id) > 0) {
            true => Err(Wrong::Deleted),
            false if expired => Err(Wrong::NotFound),
            false => Ok(stream),
        }
    }

    pub(crate) fn usable_mut(&mut self, id: &str) -> Result<&mut Stream, Wrong> {
        self.usable(id)?;
        Ok(self.streams.get_mut(id).unwrap())
    }

    pub(super) fn forks(&self, id: &str) -> usize {
        self.streams.values().filter(|stream| stream.origin.as_deref() == Some(id)).count()
    }

    /// Creates a stream, and answers whether it is new. The store gives the id.
    pub(crate) fn create(&mut self, id: &str, create: &Create) -> Result<bool, Wrong> {
        let fork = match &create.shape.fork {
            Some(point) => {
                let origin = self.usable(&point.origin.id).map_err(|wrong| match wrong {
                    Wrong::Deleted => Wrong::Conflict,
                    wrong => wrong,
                })?;
                if origin.subs.is_some() {
                    return Err(Wrong::ForkPoint);
                }
                Some(cut(origin, point.offset.map(Offset::bytes), point.sub_offset).ok_or(Wrong::ForkPoint)?)
            }
            None => None,
        };
        if let Ok(there) = self.usable(id) {
            let there = state::Shape { closed: there.closed, ..there.shape.clone() };
            return if state::same_creation(&there, &create.shape) {
                Ok(false)
            } else {
                Err(Wrong::Conflict)
            };
        }
        if matches!(self.usable(id), Err(Wrong::Deleted)) {
            return Err(Wrong::Conflict);
        }
        let origin = create.shape.fork.as_ref().map(|point| point.origin.id.to_string());
        let origin_stream = origin.as_ref().map(|origin| self.streams[origin].clone());
        let content_type = match (&create.shape.content_type, &origin_stream) {
            (Some(asked), Some(origin)) if *asked != origin.content_type => return Err(Wrong::Conflict),
            (Some(asked), _) => asked.clone(),
            (None, Some(origin)) => origin.content_type.clone(),
            (None, None) => ContentType::default(),
        };
        let inherited = origin_stream.as_ref().map_or(Expiry::Never, |origin| origin.expiry);
        let expiry = create.shape.expiry.unwrap_or(inherited);
        let mut shape = create.shape.clone();
        shape.content_type = Some(content_type.clone());
        shape.expiry = Some(expiry);
        if let (Some(point), Some(origin)) = (&mut shape.fork, &origin_stream) {
            point.offset = Some(point.offset.unwrap_or(Offset::new(origin.tail())));
        }
        self.remove(id);
        self.lives += 1;
        let mut stream = Stream {
            id: 0,
            life: self.lives,
            subs: None,
            due: Vec::new(),
            content_type,
            expiry,
            messages: fork.unwrap_or_default(),
            start: origin_stream.map_or(0, |origin| origin.start),
            closed: create.shape.closed,
            used_at: self.now,
            written_at: self.now,
            closed_by: None,
            stream_seq: None,
            producers: BTreeMap::new(),
            origin,
            deleted: false,
            shape,
        };
        stream.push(&create.messages, self.now);
        self.streams.insert(id.to_owned(), stream);
        Ok(true)
    }

    pub(crate) fn append(&mut self, id: &str, append: &Append) -> Result<(u64, bool), Wrong> {
        let now = self.now;
        let has_subscribers = self.usable(id).is_ok_and(|source| !self.subscribers(source.life).is_empty());
        let stream = self.usable_mut(id)?;
        if stream.subs.is_some() {
            return Err(Wrong::ReadOnly);
        }
        let producer = append.producer.as_ref();
        let facts = StreamFacts {
            content_type: &stream.content_type,
            tail: Offset::new(stream.tail()),
            closed: stream.closed,
            closed_by: stream.closed_by.as_ref(),
            stream_seq: stream.stream_seq.as_deref(),
            producer: producer.and_then(|producer| stream.producers.get(&*producer.id).copied()),
        };
        let append_facts = AppendFacts {
            content_type: append.content_type.as_ref(),
            has_data: !append.messages.is_empty(),
            close: append.close,
            producer,
            stream_seq: append.stream_seq.as_deref(),
            expected_tail: append.expected_tail,
        };
        match state::append(facts, append_facts) {
            Verdict::Refuse(refusal) => Err(Wrong::Refused(refusal)),
            Verdict::Duplicate(_) | Verdict::AlreadyClosed => Ok((stream.tail(), true)),
            Verdict::Write => {
                let (tail, count) = (stream.tail(), stream.messages.len());
                stream.push(&append.messages, now);
                if has_subscribers {
                    let ends = append.messages.ends.iter().map(|end| tail + u64::from(*end));
                    stream.due.extend(ends.zip(stream.messages[count..].iter().cloned()));
                }
                if let Some(Producer { id, epoch, seq }) = producer {
                    stream.producers.insert(id.to_string(), Accepted { epoch: *epoch, seq: *seq });
                }
                if let Some(stream_seq) = &append.stream_seq {
                    stream.stream_seq = Some(stream_seq.to_string());
                }
                if append.close {
                    stream.closed = true;
                    stream.closed_by = producer.cloned();
                }
                Ok((stream.tail(), false))
            }
        }
    }

    pub(crate) fn delete(&mut self, id: &str) -> Result<(), Wrong> {
        self.usable(id)?;
        self.remove(id);
        Ok(())
    }

    pub(crate) fn trim(&mut self, id: &str, before: u64) -> Result<u64, Wrong> {
        let stream = self.usable_mut(id)?;
        while stream.messages.first().is_some_and(|first| stream.start + first.len() as u64 <= before) {
            stream.start += stream.messages.remove(0).len() as u64;
        }
        Ok(stream.start)
    }

    /// Ends what has expired, and answers how many.
    pub(crate) fn keep(&mut self) -> usize {
        let due = self.streams.iter().filter(|(_, it)| !it.deleted && it.has_expired(self.now));
        let mut ended: Vec<(u64, String)> = due.map(|(id, stream)| (stream.id, id.clone())).collect();
        ended.sort_unstable();
        // All of them end together, after each has delivered what waits.
        ended.iter().for_each(|(_, id)| self.deliver_due(id));
        for (_, id) in &ended {
            self.streams.get_mut(id).unwrap().deleted = true;
        }
        self.remove_unused();
        ended.len()
    }

    /// A stream ends, after it has delivered what its subscribers wait for.
    pub(super) fn remove(&mut self, id: &str) {
        self.deliver_due(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.deleted = true;
            self.remove_unused();
        }
    }

    fn remove_unused(&mut self) {
        // Streams that ended have no subscribers and no subscriptions.
        let ended: Vec<u64> =
            self.streams.values().filter(|stream| stream.deleted).map(|stream| stream.life).collect();
        for stream in self.streams.values_mut() {
            if let Some(subs) = &mut stream.subs {
                subs.retain(|sub| !stream.deleted && !ended.contains(&sub.life));
            }
        }
        self.forget_due();
        while let Some(id) = self
            .streams
            .iter()
            .find_map(|(id, stream)| (stream.deleted && self.forks(id) == 0).then(|| id.clone()))
        {
            self.streams.remove(&id);
        }
    }
}

/// What a fork inherits; `None` if it cannot begin there.
fn cut(origin: &Stream, offset: Option<u64>, sub_offset: u64) -> Option<Vec<Vec<u8>>> {
    let is_json = origin.content_type.mode() == Mode::Json;
    let offset = offset.unwrap_or(origin.tail());
    if offset > origin.tail() || offset < origin.start {
        return None;
    }
    let (mut position, mut kept, mut rest) = (origin.start, Vec::new(), Vec::new());
    for message in &origin.messages {
        let end = position + message.len() as u64;
        if end <= offset {
            kept.push(message.clone());
        } else if position >= offset {
            rest.push(message.clone());
        } else if is_json {
            return None;
        } else {
            let (before, after) = message.split_at((offset - position) as usize);
            kept.push(before.to_vec());
            rest.push(after.to_vec());
        }
        position = end;
    }
    match (sub_offset as usize, is_json) {
        (0, _) => {}
        (count, true) => kept.extend_from_slice(rest.get(..count)?),
        (bytes, false) => {
            let more = rest.first()?.get(..bytes)?;
            // Bytes after a cut belong to the message that was cut.
            let is_cut = kept.iter().map(|message| message.len() as u64).sum::<u64>()
                == offset - origin.start
                && origin.messages.get(kept.len().wrapping_sub(1)) != kept.last();
            match kept.last_mut().filter(|_| is_cut) {
                Some(last) => last.extend_from_slice(more),
                None => kept.push(more.to_vec()),
            }
        }
    }
    Some(kept)
}
