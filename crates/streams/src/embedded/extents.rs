//! Index files: where the blocks of a sealed segment are, sorted by stream.
//!
//! A stream with many blocks in one segment has one piece in memory, which points to a range of
//! this list. Each page of the list has its own checksum, so a reader checks only what it reads.
//!
//! ```text
//! page: 255 × (start u64 │ at u32 │ bytes u32) │ crc32c u32 │ 12 zero bytes
//! ```

use std::io;

use bytes::Bytes;

use super::codec::{Put, Take};
use super::disk::DiskFile;
use super::segment::Segment;
use crate::Error;

/// A block and the stream's offset of its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) at: u32,
    pub(super) bytes: u32,
}

const PER_PAGE: u32 = 255;
const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 16;
const PAGES_PER_WRITE: usize = 64;

/// Writes a list as an index file, some pages at a time: a list may have millions of entries, and
/// a second copy in memory would be too much.
pub(super) fn write(file: &dyn DiskFile, mut extents: impl Iterator<Item = Extent>) -> io::Result<()> {
    let mut position = 0;
    let mut pages = Vec::with_capacity(PAGES_PER_WRITE * PAGE_BYTES);
    while put_page(&mut pages, &mut extents) {
        if pages.len() == PAGES_PER_WRITE * PAGE_BYTES {
            file.write_at(&pages, position)?;
            position += pages.len() as u64;
            pages.clear();
        }
    }
    if pages.is_empty() { Ok(()) } else { file.write_at(&pages, position) }
}

/// Adds the next page of a list; false if nothing is left.
fn put_page(out: &mut Vec<u8>, extents: &mut impl Iterator<Item = Extent>) -> bool {
    let begin = out.len();
    for Extent { start, at, bytes } in extents.take(PER_PAGE as usize) {
        out.put_u64(start);
        out.put_u32(at);
        out.put_u32(bytes);
    }
    if out.len() == begin {
        return false;
    }
    out.resize(begin + PER_PAGE as usize * ENTRY_BYTES, 0);
    let sum = crc32c::crc32c(&out[begin..]);
    out.put_u32(sum);
    out.resize(begin + PAGE_BYTES, 0);
    true
}

/// The blocks of a range that hold `from` and the `room` bytes that follow.
pub(super) fn find(
    segment: &Segment,
    first: u32,
    count: u32,
    from: u64,
    room: usize,
) -> Result<Vec<Extent>, Error> {
    // The last page of the range whose first block begins at or before `from`.
    let (mut low, mut high) = (first / PER_PAGE, (first + count - 1) / PER_PAGE);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let begins = page(segment, middle)?[0].start;
        if begins <= from { low = middle } else { high = middle - 1 }
    }
    let mut found: Vec<Extent> = Vec::new();
    for number in low..=(first + count - 1) / PER_PAGE {
        let all = page(segment, number)?;
        let begin = first.saturating_sub(number * PER_PAGE).min(PER_PAGE) as usize;
        let end = (first + count - number * PER_PAGE).min(PER_PAGE) as usize;
        let all = &all[begin..end];
        let skipped = match found.is_empty() {
            true => all.partition_point(|extent| extent.start <= from).saturating_sub(1),
            false => 0,
        };
        let needed = all[skipped..].iter().take_while(|it| it.start < from.saturating_add(room as u64));
        let before = found.len();
        found.extend(needed);
        if found.len() - before < all.len() - skipped {
            break;
        }
    }
    Ok(found)
}

/// All blocks of a range.
pub(super) fn all(segment: &Segment, first: u32, count: u32) -> Result<Vec<Extent>, Error> {
    let mut found = Vec::with_capacity(count as usize);
    for number in first / PER_PAGE..=(first + count - 1) / PER_PAGE {
        let begin = first.saturating_sub(number * PER_PAGE).min(PER_PAGE) as usize;
        let end = (first + count - number * PER_PAGE).min(PER_PAGE) as usize;
        found.extend_from_slice(&page(segment, number)?[begin..end]);
    }
    Ok(found)
}

fn page(segment: &Segment, number: u32) -> Result<Vec<Extent>, Error> {
    let damaged = || {
        Error::Corrupt(format!(
            "the index of segment {} is missing or damaged at page {number}; restore it from a backup",
            segment.number
        ))
    };
    let file = segment.index.get().ok_or_else(damaged)?;
    let mut bytes = vec![0; PAGE_BYTES];
    let position = u64::from(number) * PAGE_BYTES as u64;
    file.read_at(&mut bytes, position)
        .map_err(|error| Error::io(format!("cannot read the index of segment {}", segment.number), &error))?;
    let body = PER_PAGE as usize * ENTRY_BYTES;
    let mut take = Take::new(Bytes::from(bytes));
    let entries = take.bytes(body).ok_or_else(damaged)?;
    if take.u32() != Some(crc32c::crc32c(&entries)) {
        return Err(damaged());
    }
    let mut take = Take::new(entries);
    let extents =
        (0..PER_PAGE).map(|_| Some(Extent { start: take.u64()?, at: take.u32()?, bytes: take.u32()? }));
    extents.collect::<Option<_>>().ok_or_else(damaged)
}
