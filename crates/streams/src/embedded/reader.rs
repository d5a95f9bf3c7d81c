//! Reading: which blocks hold the bytes, and the bytes.
//!
//! Planning happens under the index's lock and touches no disk; fetching happens without
//! the lock. What was planned stays readable, because segments are never changed and a
//! removed one stays open as long as a plan holds it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_model::stream::offset::Offset;

use super::codec::{length, parse_block};
use super::extents::{self, Extent};
use super::index::Index;
use super::pieces::Piece;
use super::segment::Segment;
use super::session::View;
use super::stream::Stream;
use crate::limits::{READ_GAP_BYTES, READ_SPAN_BYTES};
use crate::{Batch, Error, Messages};

/// Pieces that hold a part of a stream, in order.
pub(super) struct Route {
    from: u64,
    to: u64,
    legs: Vec<Leg>,
}

/// A piece, the segment it lies in, and where the next one begins.
#[derive(Clone)]
struct Leg {
    piece: Piece,
    end: u64,
    segment: Arc<Segment>,
    /// What to add to an offset of the stream that the piece belongs to, modulo 2^64, for an
    /// offset of the stream that is read: a session's offsets are not its sources'.
    shift: u64,
}

/// A part of a stream to read: from an offset up to another, and [`Leg::shift`].
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    cap: u64,
    shift: u64,
}

impl Route {
    /// The pieces from `from` to the tail, as many as hold about `bytes_max`.
    pub(super) fn plan(index: &Index, stream: &Stream, from: u64, bytes_max: usize) -> Result<Route, Error> {
        let from = from.clamp(stream.start.min(stream.tail), stream.tail);
        Route::plan_held(index, stream, from, bytes_max)
    }

    /// The same for somebody who needs what may be trimmed and is still held.
    pub(super) fn plan_held(
        index: &Index,
        stream: &Stream,
        from: u64,
        bytes_max: usize,
    ) -> Result<Route, Error> {
        let mut route = Route { from, to: stream.tail, legs: Vec::new() };
        let window = Window { from, cap: stream.tail, shift: 0 };
        route.add(index, stream, window, bytes_max as u64)?;
        Ok(route)
    }

    /// Adds what a stream holds in a window; what a fork did not write is its source's.
    fn add(&mut self, index: &Index, stream: &Stream, window: Window, bytes_max: u64) -> Result<(), Error> {
        if let Some(session) = stream.session() {
            return self.add_views(index, stream, &session.views, window, bytes_max);
        }
        let Window { from, cap, shift } = window;
        if let Some(fork) = stream.fork().filter(|fork| from < fork.position) {
            let source = index.get(fork.source).ok_or_else(|| missing_source(stream))?;
            self.add(index, source, Window { cap: fork.position.min(cap), ..window }, bytes_max)?;
        }
        let mut pieces = stream.pieces.from(from).peekable();
        while let Some(piece) = pieces.next() {
            let end = pieces.peek().map_or(stream.tail, |next| next.start).min(cap);
            let enough = piece.start >= from.saturating_add(bytes_max) && !self.legs.is_empty();
            if piece.start >= cap || enough {
                break;
            }
            if end <= from {
                continue;
            }
            let segment = index.segments.get(&piece.segment).ok_or_else(|| {
                Error::Corrupt(format!("segment {} of stream {} is missing", piece.segment, stream.name))
            })?;
            self.legs.push(Leg { piece, end, segment: segment.clone(), shift });
        }
        Ok(())
    }

    /// Adds what a session has in a window: parts of its sources.
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
            let enough = view.start >= from.saturating_add(bytes_max) && !self.legs.is_empty();
            if view.start >= cap || enough {
                break;
            }
            if end <= from {
                continue;
            }
            let source = index.get(view.feed).ok_or_else(|| missing_source(stream))?;
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

    /// Whether everything lies in the segment that was written last, whose pages are in
    /// memory.
    pub(super) fn is_recent(&self, active: u32) -> bool {
        self.legs.iter().all(|leg| leg.piece.segment == active)
    }

    /// Reads whole messages, up to `bytes_max` of them and one at least.
    pub(super) fn fetch(&self, bytes_max: usize) -> Result<Batch, Error> {
        let mut gathered = Gathered::new(self.from, self.to, bytes_max);
        for leg in &self.legs {
            gathered.enter(leg.shift);
            let extents = leg.extents(gathered.next, gathered.room())?;
            let mut rest = &extents[..];
            while !rest.is_empty() && !gathered.is_full() {
                let (span, after) = split_span(rest);
                let bytes = read_span(&leg.segment, span)?;
                for extent in span {
                    let block = block_of(&leg.segment, span[0].at, &bytes, extent)?;
                    gathered.add(extent.start, leg.end, &block);
                }
                rest = after;
            }
            if gathered.is_full() {
                break;
            }
            if gathered.next != leg.end {
                // Better no answer than one with a hole in it.
                let number = leg.segment.number;
                return Err(Error::Corrupt(format!(
                    "bytes from {} on are missing in segment {number}",
                    gathered.next
                )));
            }
        }
        Ok(gathered.into_batch())
    }

    /// The messages around `from`, up to its block's end: to find boundaries.
    pub(super) fn boundary_before(&self) -> Result<u64, Error> {
        let Some(leg) = self.legs.first() else { return Ok(self.from) };
        let from = self.from.wrapping_sub(leg.shift);
        let Some(extent) = leg.extents(from, 1)?.first().copied() else { return Ok(self.from) };
        let bytes = read_span(&leg.segment, std::slice::from_ref(&extent))?;
        let block = block_of(&leg.segment, extent.at, &bytes, &extent)?;
        let ends = block.ends.iter().map(|end| extent.start + u64::from(*end));
        Ok(ends.take_while(|end| *end <= from).last().unwrap_or(extent.start).wrapping_add(leg.shift))
    }
}

impl Leg {
    /// The blocks of this piece that hold `from` and the `room` bytes that follow.
    fn extents(&self, from: u64, room: usize) -> Result<Vec<Extent>, Error> {
        let Piece { start, at, bytes, listed, .. } = self.piece;
        if listed == 0 {
            return Ok(vec![Extent { start, at, bytes }]);
        }
        extents::find(&self.segment, at, listed, from, room)
    }
}

/// Blocks that lie close together, to be read at once, and the others.
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
        Error::Corrupt(format!("segment {number} is damaged at byte {}: restore it from a backup", extent.at))
    })
}

fn missing_source(stream: &Stream) -> Error {
    Error::Corrupt(format!("stream {} reads through a source that is missing", stream.name))
}

/// Messages that are being put together for a reader. `to` and `next` are offsets of the
/// stream whose pieces are being read.
struct Gathered {
    from: u64,
    to: u64,
    next: u64,
    shift: u64,
    bytes_max: usize,
    parts: Vec<Messages>,
    bytes: usize,
}

impl Gathered {
    fn new(from: u64, to: u64, bytes_max: usize) -> Gathered {
        Gathered { from, to, next: from, shift: 0, bytes_max, parts: Vec::new(), bytes: 0 }
    }

    /// Goes on in offsets with another shift.
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

    /// Adds what a block has between the place reached and `cap`.
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
            // A cut inside a message happens in byte streams only: at the reader's offset,
            // or where a fork left its source.
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
        let start = Offset::new(self.from);
        if self.parts.len() <= 1 {
            let only = self.parts.pop().unwrap_or_default();
            return Batch::new(start, only.data, only.ends);
        }
        let mut data = BytesMut::with_capacity(self.bytes);
        let mut ends = Vec::with_capacity(self.parts.iter().map(|part| part.ends.len()).sum());
        for part in self.parts {
            let before = length(data.len());
            ends.extend(part.ends.iter().map(|end| before + end));
            data.extend_from_slice(&part.data);
        }
        Batch::new(start, data.into(), ends)
    }
}

fn offset_in(offset: u64, base: u64) -> u32 {
    u32::try_from(offset - base).expect("a block is shorter than 4 GiB")
}
