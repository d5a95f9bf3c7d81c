//! Messages on their way to readers: the bytes once, the boundaries beside them.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use towpath_model::stream::offset::Offset;

use crate::Messages;

/// Consecutive messages of one stream.
///
/// Shared: every reader that follows a stream gets the same batch, so whatever is made from it
/// is made once ([`Batch::rendered`]).
#[derive(Debug, Default)]
pub struct Batch {
    start: Offset,
    data: Bytes,
    /// Where each message ends in `data`. The last one is the length of `data`.
    ends: Vec<u32>,
    rendered: OnceLock<(u64, Bytes)>,
}

impl Batch {
    /// Messages that begin at `start`; `ends` are the positions in `data` where they end.
    pub fn new(start: Offset, data: Bytes, ends: Vec<u32>) -> Batch {
        debug_assert_eq!(ends.last().copied().unwrap_or(0) as usize, data.len(), "{ends:?}");
        Batch { start, data, ends, rendered: OnceLock::new() }
    }

    /// All of `parts`, which follow each other from `start` on. The bytes of a single part are shared.
    pub(crate) fn join(start: Offset, mut parts: Vec<Messages>) -> Batch {
        if parts.len() <= 1 {
            let only = parts.pop().unwrap_or_default();
            return Batch::new(start, only.data, only.ends);
        }
        let mut data = BytesMut::with_capacity(parts.iter().map(|part| part.data.len()).sum());
        let mut ends = Vec::with_capacity(parts.iter().map(|part| part.ends.len()).sum());
        for part in parts {
            let before = u32::try_from(data.len()).expect("a batch is shorter than 4 GiB");
            ends.extend(part.ends.iter().map(|end| before + end));
            data.extend_from_slice(&part.data);
        }
        Batch::new(start, data.into(), ends)
    }

    /// The offset of the first byte.
    pub fn start(&self) -> Offset {
        self.start
    }

    /// The offset behind the last byte.
    pub fn end(&self) -> Offset {
        self.start.plus(self.data.len() as u64)
    }

    /// All bytes, without boundaries: what a reader of a byte stream gets.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Where each message ends in [`Batch::data`].
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The messages one by one, sharing the batch's memory.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Bytes> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans: Vec<_> = starts.zip(self.ends.iter().copied()).collect();
        spans.into_iter().map(|(from, to)| self.data.slice(from as usize..to as usize))
    }

    /// The part from `from` on, if that is inside; a message that `from` cuts keeps its end.
    pub fn after(&self, from: Offset) -> Batch {
        let skip = from.bytes().saturating_sub(self.start.bytes()).min(self.data.len() as u64);
        // Batches are far below 4 GiB: `ends` could not name their boundaries otherwise.
        let skipped = u32::try_from(skip).expect("a batch is shorter than 4 GiB");
        let ends = self.ends.iter().filter(|end| **end > skipped).map(|end| end - skipped);
        Batch::new(self.start.plus(skip), self.data.slice(skip as usize..), ends.collect())
    }

    /// The part from `from` to `to`, both inside and at the ends of messages.
    pub fn between(&self, from: Offset, to: Offset) -> Batch {
        let rest = self.after(from);
        let room = to.bytes().saturating_sub(rest.start.bytes());
        let ends: Vec<u32> = rest.ends.iter().copied().take_while(|end| u64::from(*end) <= room).collect();
        let bytes = ends.last().copied().unwrap_or(0) as usize;
        Batch::new(rest.start, rest.data.slice(..bytes), ends)
    }

    /// What `render` makes of this batch, made once and shared by everybody who has it. The
    /// number is the caller's: it says which readers the result suits.
    pub fn rendered(&self, render: impl FnOnce(&Batch) -> (u64, Bytes)) -> (u64, Bytes) {
        self.rendered.get_or_init(|| render(self)).clone()
    }
}
