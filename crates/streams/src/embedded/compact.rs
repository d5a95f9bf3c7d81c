//! Compaction: gathers the live bytes of some segments in a new one, sorted by stream.
//!
//! Small blocks of a stream are joined to large ones. Sessions have no bytes of their own: what
//! they view is gathered with its source. The new segment is durable before any stream points to
//! it, and the old ones stay until a checkpoint does not list them, so a crash at any time leaves
//! one or the other.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::codec::{length, parse_block, put_block};
use super::disk::DiskFile;
use super::extents::{self, Extent};
use super::maintain::{Pace, replace_run, write_index};
use super::pieces::Piece;
use super::segment::{HEADER_BYTES, Header, Kind, Segment, file_name};
use super::shared::Shared;
use super::stream::Stream;
use crate::limits::{BLOCK_BYTES, SLOTS_PER_LOCK};
use crate::{Error, Messages};

/// Bytes are written to the disk in steps of this.
const WRITE_BYTES: usize = 1 << 20;

/// Gathers the segments `old` into one, and answers how many bytes they held.
pub(super) fn gather(shared: &Shared, old: &[u32], level: u8, pace: &mut Pace) -> Result<u64, Error> {
    let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
    let gathered = Gatherer::new(shared, old, number, level, pace)?.run();
    let (segment, runs) = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            // Nothing points to it yet.
            let _ = shared.disk.remove(&file_name(number));
            return Err(error);
        }
    };
    match segment {
        Some(segment) => drop(shared.index_mut().segments.insert(number, segment)),
        // Nothing in them was live.
        None => drop(shared.disk.remove(&file_name(number))),
    }
    for some in runs.chunks(SLOTS_PER_LOCK) {
        let mut index = shared.index_mut();
        for run in some {
            if let Some(stream) = index.get_mut(run.id) {
                replace_run(stream, old, run.range.clone(), &run.pieces);
            }
        }
    }
    let mut index = shared.index_mut();
    let removed: Vec<_> = old.iter().filter_map(|number| index.segments.remove(number)).collect();
    drop(index);
    Ok(removed.iter().filter_map(|segment| segment.file.len().ok()).sum())
}

/// The new pieces of a stream, in place of its old ones in a range.
struct Run {
    id: u64,
    range: Range<u64>,
    pieces: Vec<Piece>,
}

/// Pieces of one stream in the old segments that follow each other.
struct Input {
    id: u64,
    range: Range<u64>,
    /// Bytes before it were trimmed.
    needed_from: u64,
    pieces: Vec<(Piece, Arc<Segment>)>,
}

struct Gatherer<'a> {
    shared: &'a Shared,
    old: &'a [u32],
    number: u32,
    level: u8,
    pace: &'a mut Pace,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// The position of the buffer's first byte.
    written: u64,
    extents: Vec<Extent>,
}

impl<'a> Gatherer<'a> {
    fn new(
        shared: &'a Shared,
        old: &'a [u32],
        number: u32,
        level: u8,
        pace: &'a mut Pace,
    ) -> Result<Gatherer<'a>, Error> {
        let file = shared.disk.create(&file_name(number)).map_err(|error| failed(&error))?;
        let header = Header { number, kind: Kind::Gathered { level }, before: 0, before_end: 0 };
        let buffer = header.encode();
        debug_assert_eq!(buffer.len() as u64, HEADER_BYTES);
        let (written, extents) = (0, Vec::new());
        Ok(Gatherer { shared, old, number, level, pace, file, buffer, written, extents })
    }

    /// The new segment, if anything was live, and the new pieces of each stream.
    fn run(mut self) -> Result<(Option<Arc<Segment>>, Vec<Run>), Error> {
        let mut runs = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let (inputs, after) = self.inputs(from)?;
            for input in inputs {
                runs.push(self.copy(&input)?);
            }
            if self.shared.is_shut() {
                return Err(Error::ShutDown);
            }
            next = after;
        }
        self.flush()?;
        if self.written == HEADER_BYTES {
            return Ok((None, runs));
        }
        self.file.sync().map_err(|error| failed(&error))?;
        let segment = Segment::new(self.number, Kind::Gathered { level: self.level }, self.file);
        if !self.extents.is_empty() {
            write_index(self.shared, &segment, self.extents.iter().copied())?;
        }
        self.shared.disk.sync_names().map_err(|error| failed(&error))?;
        Ok((Some(Arc::new(segment)), runs))
    }

    /// The runs of old pieces of some streams.
    fn inputs(&self, from: usize) -> Result<(Vec<Input>, Option<usize>), Error> {
        let index = self.shared.index();
        let (streams, after) = index.visit(from, SLOTS_PER_LOCK);
        let mut inputs: Vec<Input> = Vec::new();
        for stream in streams {
            let mut in_run = false;
            let mut pieces = stream.pieces.iter().peekable();
            while let Some(piece) = pieces.next() {
                if !self.old.contains(&piece.segment) {
                    in_run = false;
                    continue;
                }
                let segment = index.segments.get(&piece.segment).ok_or_else(|| missing(stream, &piece))?;
                if !in_run {
                    let needed_from = stream.needed_from();
                    let range = piece.start..piece.start;
                    inputs.push(Input { id: stream.id, range, needed_from, pieces: Vec::new() });
                    in_run = true;
                }
                let input = inputs.last_mut().expect("a run was just begun");
                input.range.end = pieces.peek().map_or(stream.tail, |next| next.start);
                input.pieces.push((piece, segment.clone()));
            }
        }
        Ok((inputs, after))
    }

    /// Copies one run and answers its new pieces: one block, or one list of blocks.
    fn copy(&mut self, input: &Input) -> Result<Run, Error> {
        let mut blocks: Vec<Extent> = Vec::new();
        let mut joined = Joined::default();
        for (piece, segment) in &input.pieces {
            let extents = match piece.listed {
                0 => vec![Extent { start: piece.start, at: piece.at, bytes: piece.bytes }],
                listed => extents::all(segment, piece.at, listed)?,
            };
            for (position, extent) in extents.iter().enumerate() {
                let dead = extents.get(position + 1).is_some_and(|next| next.start <= input.needed_from);
                if !dead {
                    self.copy_block(segment, extent, input.needed_from, &mut joined, &mut blocks)?;
                }
            }
        }
        self.close(&mut joined, &mut blocks)?;
        let bytes = blocks.iter().map(|block| block.bytes).fold(0, u32::saturating_add);
        let pieces = match blocks[..] {
            [] => Vec::new(),
            [only] => vec![Piece { start: only.start, segment: self.number, at: only.at, bytes, listed: 0 }],
            [first, ..] => {
                let at = length(self.extents.len());
                self.extents.extend_from_slice(&blocks);
                let listed = length(blocks.len());
                vec![Piece { start: first.start, segment: self.number, at, bytes, listed }]
            }
        };
        Ok(Run { id: input.id, range: input.range.clone(), pieces })
    }

    fn copy_block(
        &mut self,
        segment: &Segment,
        extent: &Extent,
        needed_from: u64,
        joined: &mut Joined,
        blocks: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        let mut raw = vec![0; extent.bytes as usize];
        segment.file.read_at(&mut raw, extent.at.into()).map_err(|error| failed(&error))?;
        self.pace.spend(raw.len() as u64);
        let raw = Bytes::from(raw);
        let messages = parse_block(&raw).ok_or_else(|| {
            Error::Corrupt(format!("segment {} is damaged at byte {}; it is kept", segment.number, extent.at))
        })?;
        let (start, messages) = without_trimmed(extent.start, messages, needed_from);
        if joined.data.len() + messages.data.len() > BLOCK_BYTES {
            self.close(joined, blocks)?;
        }
        joined.add(start, &messages);
        Ok(())
    }

    /// Writes what has been joined as one block.
    fn close(&mut self, joined: &mut Joined, blocks: &mut Vec<Extent>) -> Result<(), Error> {
        let Joined { start, data, ends } = std::mem::take(joined);
        if data.is_empty() {
            return Ok(());
        }
        let messages = Messages { data: data.into(), ends };
        let at = self.put(&messages)?;
        blocks.push(Extent { start, at, bytes: super::codec::block_length(&messages) });
        Ok(())
    }

    fn put(&mut self, messages: &Messages) -> Result<u32, Error> {
        let at = self.written + self.buffer.len() as u64;
        put_block(&mut self.buffer, messages);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        u32::try_from(at).map_err(|_| Error::TooLarge("a compacted segment exceeds 4 GiB".into()))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.write_at(&self.buffer, self.written).map_err(|error| failed(&error))?;
        self.written += self.buffer.len() as u64;
        self.pace.spend(self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }
}

/// Messages that will be one block.
#[derive(Default)]
struct Joined {
    start: u64,
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl Joined {
    fn add(&mut self, start: u64, messages: &Messages) {
        if self.data.is_empty() {
            self.start = start;
        }
        let before = length(self.data.len());
        self.ends.extend(messages.ends.iter().map(|end| before + end));
        self.data.extend_from_slice(&messages.data);
    }
}

/// Drops whole messages before the first needed one.
fn without_trimmed(start: u64, messages: Messages, needed_from: u64) -> (u64, Messages) {
    let is_dead = |end: &&u32| start + u64::from(**end) <= needed_from;
    let Some(dead) = messages.ends.iter().take_while(is_dead).last().copied() else {
        return (start, messages);
    };
    let data = messages.data.slice(dead as usize..);
    let ends = messages.ends.iter().filter(|end| **end > dead).map(|end| end - dead).collect();
    (start + u64::from(dead), Messages { data, ends })
}

fn failed(error: &std::io::Error) -> Error {
    Error::io("cannot compact segments", error)
}

fn missing(stream: &Stream, piece: &Piece) -> Error {
    Error::Corrupt(format!("segment {} of stream {} is missing", piece.segment, stream.name))
}
