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
use super::segment::Segment;
use super::stream::{Piece, Stream};
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
}

impl Route {
    /// The pieces from `from` to the tail, as many as hold about `bytes_max`.
    pub(super) fn plan(index: &Index, stream: &Stream, from: u64, bytes_max: usize) -> Result<Route, Error> {
        let from = from.clamp(stream.start.min(stream.tail), stream.tail);
        let mut route = Route { from, to: stream.tail, legs: Vec::new() };
        route.add(index, stream, stream.tail, bytes_max as u64)?;
        Ok(route)
    }

    /// Adds what a stream holds below `cap`; what a fork did not write is its source's.
    fn add(&mut self, index: &Index, stream: &Stream, cap: u64, bytes_max: u64) -> Result<(), Error> {
        if let Some(fork) = stream.fork().filter(|fork| self.from < fork.position) {
            let source = index.get(fork.source).ok_or_else(|| {
                Error::Corrupt(format!("stream {} reads through a source that is missing", stream.name))
            })?;
            self.add(index, source, fork.position.min(cap), bytes_max)?;
        }
        let pieces = &stream.pieces;
        let first = pieces.partition_point(|piece| piece.start <= self.from).saturating_sub(1);
        for (position, piece) in pieces.iter().enumerate().skip(first) {
            let end = pieces.get(position + 1).map_or(stream.tail, |next| next.start).min(cap);
            let enough = piece.start >= self.from.saturating_add(bytes_max) && !self.legs.is_empty();
            if piece.start >= cap || enough {
                break;
            }
            if end <= self.from {
                continue;
            }
            let segment = index.segments.get(&piece.segment).ok_or_else(|| {
                Error::Corrupt(format!("segment {} of stream {} is missing", piece.segment, stream.name))
            })?;
            self.legs.push(Leg { piece: *piece, end, segment: segment.clone() });
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
        let Some(extent) = leg.extents(self.from, 1)?.first().copied() else { return Ok(self.from) };
        let bytes = read_span(&leg.segment, std::slice::from_ref(&extent))?;
        let block = block_of(&leg.segment, extent.at, &bytes, &extent)?;
        let ends = block.ends.iter().map(|end| extent.start + u64::from(*end));
        Ok(ends.take_while(|end| *end <= self.from).last().unwrap_or(extent.start))
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

/// Messages that are being put together for a reader.
struct Gathered {
    from: u64,
    to: u64,
    next: u64,
    bytes_max: usize,
    parts: Vec<Messages>,
    bytes: usize,
}

impl Gathered {
    fn new(from: u64, to: u64, bytes_max: usize) -> Gathered {
        Gathered { from, to, next: from, bytes_max, parts: Vec::new(), bytes: 0 }
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
