//! What a commit in the making has already changed of a stream.

use std::sync::Arc;

use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{self, Accepted, Standing, Verdict, Wish};

use super::index::Index;
use super::plan::late_starts;
use super::stream::Stream;
use crate::Append;

/// The facts of a stream that this commit has moved.
pub(super) struct Moved {
    pub(super) tail: u64,
    pub(super) closed: bool,
    more: Option<Box<MovedMore>>,
}

/// What few changes move.
#[derive(Default)]
struct MovedMore {
    closed_by: Option<Producer>,
    stream_seq: Option<Arc<str>>,
    producers: Vec<(Arc<str>, Accepted)>,
}

impl Moved {
    pub(super) fn of(stream: &Stream) -> Moved {
        Moved { tail: stream.tail, closed: stream.closed, more: None }
    }

    pub(super) fn accepted(&self, stream: &Stream, producer: &str) -> Option<Accepted> {
        let moved =
            self.more.as_ref().and_then(|more| more.producers.iter().find(|(id, _)| **id == *producer));
        moved.map(|(_, accepted)| *accepted).or_else(|| stream.accepted(producer))
    }

    pub(super) fn judge(&self, stream: &Stream, append: &Append, known: Option<Accepted>) -> Verdict {
        let (here, before) = (self.more.as_deref(), stream.more.as_deref());
        // Who ended it: somebody in this commit, or somebody before.
        let closed_by = match self.closed && !stream.closed {
            true => here.and_then(|more| more.closed_by.as_ref()),
            false => before.and_then(|more| more.closed_by.as_deref()),
        };
        let stream_seq = here.and_then(|more| more.stream_seq.as_deref());
        let standing = Standing {
            content_type: &stream.content_type,
            tail: Offset::new(self.tail),
            closed: self.closed,
            closed_by,
            stream_seq: stream_seq.or_else(|| before.and_then(|more| more.stream_seq.as_deref())),
            producer: known,
        };
        let wish = Wish {
            content_type: append.content_type.as_ref(),
            has_data: !append.messages.is_empty(),
            close: append.close,
            producer: append.producer.as_ref(),
            stream_seq: append.stream_seq.as_deref(),
            expected_tail: append.expected_tail,
        };
        state::append(standing, wish)
    }

    /// Moves the facts as the append will.
    pub(super) fn take(&mut self, append: &Append) {
        self.tail += append.messages.data.len() as u64;
        self.closed |= append.close;
        if append.producer.is_none() && append.stream_seq.is_none() {
            return;
        }
        let more = self.more.get_or_insert_default();
        if let Some(stream_seq) = &append.stream_seq {
            more.stream_seq = Some(stream_seq.clone());
        }
        if let Some(producer) = &append.producer {
            more.producers.retain(|(id, _)| *id != producer.id);
            let accepted = Accepted { epoch: producer.epoch, seq: producer.seq };
            more.producers.push((producer.id.clone(), accepted));
            if append.close {
                more.closed_by = Some(producer.clone());
            }
        }
    }
}

/// How far a commit in the making has moved a source's deliveries.
#[derive(Debug, Clone, Copy)]
pub(super) struct MovedFeed {
    pub(super) cursor: u64,
    /// Subscribers without envelopes.
    pub(super) bare: usize,
    /// Subscribers with envelopes.
    pub(super) wrapped: usize,
    /// The twin and its tail.
    pub(super) twin: Option<(u64, u64)>,
    /// The first place beyond the cursor at which a subscriber with envelopes begins.
    pub(super) late: Option<u64>,
}

impl MovedFeed {
    pub(super) fn of(index: &Index, source: &Stream) -> MovedFeed {
        let (bare, wrapped) = index.subscribers(source);
        let feed = source.feed();
        let twin = feed.and_then(|feed| index.get(feed.twin?));
        MovedFeed {
            cursor: feed.map_or(source.tail, |feed| feed.cursor),
            bare,
            wrapped,
            twin: twin.map(|twin| (twin.id, twin.tail)),
            late: late_starts(index, source).first().copied(),
        }
    }

    pub(super) fn subscribers(&self) -> usize {
        self.bare + self.wrapped
    }
}
