//! What a commit in the making has already changed of a stream.

use std::sync::Arc;

use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::{self, Accepted, Standing, Verdict, Wish};

use super::stream::Stream;
use crate::Append;

/// The facts of a stream that this commit has moved. Small: a delivery moves thousands.
pub(super) struct Moved {
    pub(super) tail: u64,
    pub(super) closed: bool,
    /// The source and offset of the newest delivery.
    seen: Option<(u64, u64)>,
    more: Option<Box<MovedMore>>,
}

/// What few changes move.
#[derive(Default)]
struct MovedMore {
    closed_by: Option<Producer>,
    stream_seq: Option<Arc<str>>,
    producers: Vec<(Arc<str>, Accepted)>,
    /// Deliveries of other sources than the newest.
    seen: Vec<(u64, u64)>,
}

impl Moved {
    pub(super) fn of(stream: &Stream) -> Moved {
        Moved { tail: stream.tail, closed: stream.closed, seen: None, more: None }
    }

    pub(super) fn accepted(&self, stream: &Stream, producer: &str) -> Option<Accepted> {
        let moved =
            self.more.as_ref().and_then(|more| more.producers.iter().find(|(id, _)| **id == *producer));
        moved.map(|(_, accepted)| *accepted).or_else(|| stream.accepted(producer))
    }

    pub(super) fn seen(&self, stream: &Stream, source: u64) -> Option<Offset> {
        let older = self.more.iter().flat_map(|more| &more.seen);
        let moved = self.seen.iter().chain(older).find(|(of, _)| *of == source).map(|(_, offset)| *offset);
        moved.or_else(|| stream.seen(source)).map(Offset::new)
    }

    pub(super) fn see(&mut self, source: u64, offset: u64) {
        if let Some(older) = self.seen.replace((source, offset)).filter(|(of, _)| *of != source) {
            let seen = &mut self.more.get_or_insert_default().seen;
            seen.retain(|(of, _)| *of != older.0 && *of != source);
            seen.push(older);
        }
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
