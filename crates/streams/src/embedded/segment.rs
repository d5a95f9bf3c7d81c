//! Segments: the files of the log.
//!
//! A log segment is written from start to end and never changed afterwards. A gathered segment is
//! the output of compaction: only blocks, sorted by stream, never replayed. The header says which
//! it is, and where the log segment before it ended, so that a truncated one is noticed.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::codec::{Put, Take};
use super::disk::DiskFile;

/// Bytes before the first record.
pub(super) const HEADER_BYTES: u64 = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"TPSG");
const VERSION: u32 = 1;

/// A file of the log.
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) file: Arc<dyn DiskFile>,
    /// The index file that streams with many blocks point into, once it is written.
    pub(super) index: OnceLock<Arc<dyn DiskFile>>,
}

/// The kind of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records in the order they were committed.
    Log,
    /// Blocks, gathered by compaction `level` times.
    Gathered { level: u8 },
}

/// A segment's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u32,
    pub(super) kind: Kind,
    /// The log segment before this one, and where its records end; 0 for the first.
    pub(super) before: u32,
    pub(super) before_end: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize);
        out.put_u32(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.number);
        out.put_u8(match self.kind {
            Kind::Log => 0,
            Kind::Gathered { level } => level.max(1),
        });
        out.put_u32(self.before);
        out.put_u64(self.before_end);
        let sum = crc32c::crc32c(&out);
        out.resize(HEADER_BYTES as usize - 4, 0);
        out.put_u32(sum);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES as usize] = bytes.try_into().ok()?;
        let mut take = Take::new(Bytes::copy_from_slice(bytes));
        if (take.u32()?, take.u32()?) != (MAGIC, VERSION) {
            return None;
        }
        let number = take.u32()?;
        let kind = match take.u8()? {
            0 => Kind::Log,
            level => Kind::Gathered { level },
        };
        let header = Header { number, kind, before: take.u32()?, before_end: take.u64()? };
        (header.encode() == bytes).then_some(header)
    }
}

impl Segment {
    pub(super) fn new(number: u32, kind: Kind, file: Arc<dyn DiskFile>) -> Segment {
        Segment { number, kind, file, index: OnceLock::new() }
    }
}

/// The file of a segment.
pub(super) fn file_name(number: u32) -> String {
    format!("{number:010}.log")
}

/// The file of a segment's index.
pub(super) fn index_name(number: u32) -> String {
    format!("{number:010}.index")
}

/// The number in a segment's or an index's file name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log").or_else(|| name.strip_suffix(".index"))?;
    digits.parse().ok().filter(|number| file_name(*number).strip_suffix(".log") == Some(digits))
}
