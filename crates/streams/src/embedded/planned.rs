//! Streams and feeds as a commit in the making leaves them: only what a decision needs.

use std::sync::Arc;

use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{self, Accepted, AppendFacts, StreamFacts, Verdict};

use super::index::Index;
use super::plan::envelope_starts;
use super::stream::Stream;
use crate::{Append, Appended, Error};

/// A stream that this commit appends to.
pub(super) struct PlannedStream {
    pub(super) tail: u64,
    pub(super) closed: bool,
    more: Option<Box<PlannedMore>>,
}

/// What few appends change.
#[derive(Default)]
struct PlannedMore {
    closed_by: Option<Producer>,
    stream_seq: Option<Arc<str>>,
    producers: Vec<(Arc<str>, Accepted)>,
}

impl PlannedStream {
    pub(super) fn of(stream: &Stream) -> PlannedStream {
        PlannedStream { tail: stream.tail, closed: stream.closed, more: None }
    }

    /// Decides an append, and changes the facts as it will.
    pub(super) fn append(&mut self, stream: &Stream, append: &Append) -> Result<Appended, Error> {
        let known = append.producer.as_ref().and_then(|producer| self.accepted(stream, &producer.id));
        let (producer, is_duplicate) = match self.judge(stream, append, known) {
            Verdict::Refuse(refusal) => {
                let (name, tail, closed) = (stream.name.clone(), Offset::new(self.tail), self.closed);
                return Err(Error::Refused { name, refusal, tail, closed });
            }
            Verdict::Duplicate(accepted) => (Some(accepted), true),
            Verdict::AlreadyClosed => (known, true),
            Verdict::Write => (self.write(append), false),
        };
        Ok(Appended { tail: Offset::new(self.tail), closed: self.closed, is_duplicate, producer })
    }

    /// The newest request of a producer, of this commit or of an earlier one.
    fn accepted(&self, stream: &Stream, producer: &str) -> Option<Accepted> {
        let mut here = self.more.iter().flat_map(|more| &more.producers);
        let here = here.find(|(id, _)| **id == *producer).map(|(_, accepted)| *accepted);
        here.or_else(|| stream.accepted(producer))
    }

    fn judge(&self, stream: &Stream, append: &Append, known: Option<Accepted>) -> Verdict {
        let (here, before) = (self.more.as_deref(), stream.more.as_deref());
        // The stream was closed by this commit, or by an earlier one.
        let closed_by = match self.closed && !stream.closed {
            true => here.and_then(|more| more.closed_by.as_ref()),
            false => before.and_then(|more| more.closed_by.as_deref()),
        };
        let stream_seq = here.and_then(|more| more.stream_seq.as_deref());
        let stream = StreamFacts {
            content_type: &stream.content_type,
            tail: Offset::new(self.tail),
            closed: self.closed,
            closed_by,
            stream_seq: stream_seq.or_else(|| before.and_then(|more| more.stream_seq.as_deref())),
            producer: known,
        };
        let append = AppendFacts {
            content_type: append.content_type.as_ref(),
            has_data: !append.messages.is_empty(),
            close: append.close,
            producer: append.producer.as_ref(),
            stream_seq: append.stream_seq.as_deref(),
            expected_tail: append.expected_tail,
        };
        state::append(stream, append)
    }

    /// Changes the facts, and answers the request of the producer that is the newest now.
    fn write(&mut self, append: &Append) -> Option<Accepted> {
        self.tail += append.messages.data.len() as u64;
        self.closed |= append.close;
        if append.producer.is_none() && append.stream_seq.is_none() {
            return None;
        }
        let more = self.more.get_or_insert_default();
        if let Some(stream_seq) = &append.stream_seq {
            more.stream_seq = Some(stream_seq.clone());
        }
        let producer = append.producer.as_ref()?;
        more.producers.retain(|(id, _)| *id != producer.id);
        let accepted = Accepted { epoch: producer.epoch, seq: producer.seq };
        more.producers.push((producer.id.clone(), accepted));
        if append.close {
            more.closed_by = Some(producer.clone());
        }
        Some(accepted)
    }
}

/// The fan-out of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedFeed {
    pub(super) cursor: u64,
    /// Subscribers without envelopes.
    pub(super) bare: usize,
    /// Subscribers with envelopes.
    pub(super) wrapped: usize,
    /// The source's envelope stream and its tail.
    pub(super) envelopes: Option<(u64, u64)>,
    /// The first start of a subscriber with envelopes that the cursor has not reached.
    pub(super) next_start: Option<u64>,
}

impl PlannedFeed {
    pub(super) fn of(index: &Index, source: &Stream) -> PlannedFeed {
        let (bare, wrapped) = index.subscribers(source);
        let feed = source.feed();
        let envelopes = feed.and_then(|feed| index.get(feed.envelopes?));
        PlannedFeed {
            cursor: feed.map_or(source.tail, |feed| feed.cursor),
            bare,
            wrapped,
            envelopes: envelopes.map(|stream| (stream.id, stream.tail)),
            next_start: envelope_starts(index, source).first().copied(),
        }
    }

    pub(super) fn subscribers(&self) -> usize {
        self.bare + self.wrapped
    }
}
