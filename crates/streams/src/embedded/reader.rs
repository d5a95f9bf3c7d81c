//! Reading: finds the blocks that hold the bytes, then reads them.
//!
//! Planning happens under the lock of the index and touches no disk; reading happens without the
//! lock. A plan stays valid, because segments never change and a removed one stays open as long
//! as a plan holds it.

use std::sync::Arc;

use bytes::Bytes;
use towpath_model::stream::offset::Offset;

use super::codec::parse_block;
use super::extents::{self, Extent};
use super::index::Index;
use super::pieces::Piece;
use super::segment::Segment;
use super::session::View;
use super::stream::Stream;
use crate::limits::{READ_GAP_BYTES, READ_SPAN_BYTES};
use crate::{Batch, Error, Messages};

/// The pieces that hold a part of a stream, in order.
pub(super) struct ReadPlan {
    from: u64,
    to: u64,
    stretches: Vec<Stretch>,
}

/// A piece, its segment, and where the next one begins.
#[derive(Clone)]
struct Stretch {
    piece: Piece,
    end: u64,
    segment: Arc<Segment>,
    /// Added, modulo 2^64, to an offset of the stream that the piece belongs to, it gives the
    /// offset in the stream that is read: a session's offsets differ from its sources'.
    shift: u64,
}

/// A part of a stream to read: from an offset up to another, and [`Stretch::shift`].
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    cap: u64,
    shift: u64,
}

impl ReadPlan {
    /// The pieces from `from` to the tail, as many as hold about `bytes_max`.
    pub(super) fn new(
        index: &Index,
        stream: &Stream,
        from: u64,
        bytes_max: usize,
    ) -> Result<ReadPlan, Error> {
        let from = from.clamp(stream.start.min(stream.tail), stream.tail);
        ReadPlan::held(index, stream, from, bytes_max)
    }

    /// The same, of bytes that may be trimmed already and are held for sessions.
    pub(super) fn held(
        index: &Index,
        stream: &Stream,
        from: u64,
        bytes_max: usize,
    ) -> Result<ReadPlan, Error> {
        let mut plan = ReadPlan { from, to: stream.tail, stretches: Vec::new() };
        let window = Window { from, cap: stream.tail, shift: 0 };
        plan.add(index, stream, window, bytes_max as u64)?;
        Ok(plan)
    }

    /// Adds what a stream holds in a window; what a fork did not write is its origin's.
    fn add(&mut self, index: &Index, stream: &Stream, window: Window, bytes_max: u64) -> Result<(), Error> {
        if let Some(session) = stream.session() {
            return self.add_views(index, stream, &session.views, window, bytes_max);
        }
        let Window { from, cap, shift } = window;
        if let Some(fork) = stream.fork().filter(|fork| from < fork.position) {
            let origin = index.get(fork.origin).ok_or_else(|| missing(stream))?;
            self.add(index, origin, Window { cap: fork.position.min(cap), ..window }, bytes_max)?;
        }
        let mut pieces = stream.pieces.from(from).peekable();
        while let Some(piece) = pieces.next() {
            let end = pieces.peek().map_or(stream.tail, |next| next.start).min(cap);
            let enough = piece.start >= from.saturating_add(bytes_max) && !self.stretches.is_empty();
            if piece.start >= cap || enough {
                break;
            }
            if end <= from {
                continue;
            }
            let segment = index.segments.get(&piece.segment).ok_or_else(|| {
                Error::Corrupt(format!("segment {} of stream {} is missing", piece.segment, stream.name))
            })?;
            self.stretches.push(Stretch { piece, end, segment: segment.clone(), shift });
        }
        Ok(())
    }

    /// Adds what a session holds in a window: parts of its sources.
    fn add_views(
        &mut self,
        index: &Index,
        stream: &Stream,
        views: &[View],
        window: Window,
        bytes_max: u64,
    ) -> Result<(), Error> {
        let Window { from, cap, .. } = window;
        let first = views.partition_point(|view| view.start <= from).saturating_sub(1);
        for (position, view) in views.iter().enumerate().skip(first) {
            let end = views.get(position + 1).map_or(stream.tail, |next| next.start).min(cap);
            let enough = view.start >= from.saturating_add(bytes_max) && !self.stretches.is_empty();
            if view.start >= cap || enough {
                break;
            }
            if end <= from {
                continue;
            }
            let source = index.get(view.feed).ok_or_else(|| missing(stream))?;
            let begin = view.start.max(from);
            let window = Window {
                from: view.from + (begin - view.start),
                cap: view.from + (end - view.start),
                shift: view.start.wrapping_sub(view.from),
            };
            self.add(index, source, window, bytes_max.saturating_sub(begin - from).max(1))?;
        }
        Ok(())
    }

    /// Whether all of it is in the segment that is being written, whose pages are in memory.
    pub(super) fn is_recent(&self, active: u32) -> bool {
        self.stretches.iter().all(|stretch| stretch.piece.segment == active)
    }

    /// Reads whole messages, up to `bytes_max` of them and one at least.
    pub(super) fn read(&self, bytes_max: usize) -> Result<Batch, Error> {
        let mut collected = Collected::new(self.from, self.to, bytes_max);
        for stretch in &self.stretches {
            collected.enter(stretch.shift);
            let extents = stretch.extents(collected.next, collected.room())?;
            let mut rest = &extents[..];
            while !rest.is_empty() && !collected.is_full() {
                let (span, after) = split_span(rest);
                let bytes = read_span(&stretch.segment, span)?;
                collected.read_bytes += bytes.len();
                for extent in span {
                    let block = block_of(&stretch.segment, span[0].at, &bytes, extent)?;
                    collected.add(extent.start, stretch.end, &block);
                }
                rest = after;
            }
            if collected.is_full() {
                break;
            }
            if collected.next != stretch.end {
                // No answer is better than one with a hole in it.
                let number = stretch.segment.number;
                return Err(Error::Corrupt(format!(
                    "bytes from {} on are missing in segment {number}",
                    collected.next
                )));
            }
        }
        Ok(collected.into_batch())
    }

    /// The end of the last message that ends at or before `from`.
    pub(super) fn boundary_before(&self) -> Result<u64, Error> {
        let Some(stretch) = self.stretches.first() else { return Ok(self.from) };
        let from = self.from.wrapping_sub(stretch.shift);
        let Some(extent) = stretch.extents(from, 1)?.first().copied() else { return Ok(self.from) };
        let bytes = read_span(&stretch.segment, std::slice::from_ref(&extent))?;
        let block = block_of(&stretch.segment, extent.at, &bytes, &extent)?;
        let ends = block.ends.iter().map(|end| extent.start + u64::from(*end));
        Ok(ends.take_while(|end| *end <= from).last().unwrap_or(extent.start).wrapping_add(stretch.shift))
    }
}

impl Stretch {
    /// The blocks of this piece that hold `from` and the `room` bytes that follow.
    fn extents(&self, from: u64, room: usize) -> Result<Vec<Extent>, Error> {
        let Piece { start, at, bytes, listed, .. } = self.piece;
        if listed == 0 {
            return Ok(vec![Extent { start, at, bytes }]);
        }
        extents::find(&self.segment, at, listed, from, room)
    }
}

/// Blocks that are close together, to be read with one call, and the others.
fn split_span(extents: &[Extent]) -> (&[Extent], &[Extent]) {
    let begin = extents[0].at;
    let mut end = begin.saturating_add(extents[0].bytes);
    let mut count = 1;
    for next in &extents[1..] {
        let near = next.at >= end && next.at - end <= READ_GAP_BYTES;
        if !near || next.at.saturating_add(next.bytes) - begin > READ_SPAN_BYTES {
            break;
        }
        end = next.at + next.bytes;
        count += 1;
    }
    extents.split_at(count)
}

fn read_span(segment: &Segment, span: &[Extent]) -> Result<Bytes, Error> {
    let (first, last) = (&span[0], &span[span.len() - 1]);
    let mut buffer = vec![0; (last.at + last.bytes - first.at) as usize];
    let read = segment.file.read_at(&mut buffer, first.at.into());
    read.map_err(|error| Error::io(format!("cannot read segment {}", segment.number), &error))?;
    Ok(buffer.into())
}

fn block_of(segment: &Segment, begin: u32, bytes: &Bytes, extent: &Extent) -> Result<Messages, Error> {
    let from = (extent.at - begin) as usize;
    parse_block(&bytes.slice(from..from + extent.bytes as usize)).ok_or_else(|| {
        let Segment { number, .. } = segment;
        tracing::error!(segment = number, at = extent.at, "stored bytes do not match their checksum");
        Error::Corrupt(format!("segment {number} is damaged at byte {}; restore it from a backup", extent.at))
    })
}

fn missing(stream: &Stream) -> Error {
    Error::Corrupt(format!("stream {} reads through a stream that is missing", stream.name))
}

/// Messages that are being collected for a reader. `to` and `next` are offsets of the stream
/// whose pieces are being read.
struct Collected {
    from: u64,
    to: u64,
    next: u64,
    shift: u64,
    bytes_max: usize,
    parts: Vec<Messages>,
    bytes: usize,
    /// How much was read from the segments: the parts are slices of that.
    read_bytes: usize,
}

impl Collected {
    fn new(from: u64, to: u64, bytes_max: usize) -> Collected {
        Collected { from, to, next: from, shift: 0, bytes_max, parts: Vec::new(), bytes: 0, read_bytes: 0 }
    }

    /// Continues in offsets with another shift.
    fn enter(&mut self, shift: u64) {
        let moved = self.shift.wrapping_sub(shift);
        self.next = self.next.wrapping_add(moved);
        self.to = self.to.wrapping_add(moved);
        self.shift = shift;
    }

    fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes).max(1)
    }

    fn is_full(&self) -> bool {
        self.next >= self.to || (self.bytes >= self.bytes_max && self.bytes > 0)
    }

    /// Adds what a block holds between `next` and `cap`.
    fn add(&mut self, start: u64, cap: u64, block: &Messages) {
        let base = start;
        let mut begin = 0u32;
        let (mut first, mut last, mut ends) = (None, 0u32, Vec::new());
        for end in &block.ends {
            let (message_start, message_end) = (base + u64::from(begin), base + u64::from(*end));
            begin = *end;
            if message_end <= self.next {
                continue;
            }
            if message_start >= cap || self.is_full() {
                break;
            }
            // A message of a byte stream can be cut: at the reader's offset, or where a fork
            // left its origin.
            let (cut_start, cut_end) = (message_start.max(self.next), message_end.min(cap));
            let size = (cut_end - cut_start) as usize;
            if self.bytes > 0 && self.bytes + size > self.bytes_max {
                self.bytes_max = self.bytes;
                break;
            }
            first.get_or_insert(offset_in(cut_start, base));
            last = offset_in(cut_end, base);
            ends.push(last);
            self.bytes += size;
            self.next = cut_end;
        }
        if let Some(first) = first {
            ends.iter_mut().for_each(|end| *end -= first);
            self.parts.push(Messages { data: block.data.slice(first as usize..last as usize), ends });
        }
    }

    fn into_batch(mut self) -> Batch {
        // A slice keeps all that was read in memory: if that is much more than the batch, the batch is copied.
        if let [only] = &mut self.parts[..]
            && self.read_bytes > self.bytes + self.bytes / 8 + 1_024
        {
            only.data = Bytes::copy_from_slice(&only.data);
        }
        Batch::join(Offset::new(self.from), self.parts)
    }
}

fn offset_in(offset: u64, base: u64) -> u32 {
    u32::try_from(offset - base).expect("a block is shorter than 4 GiB")
}
