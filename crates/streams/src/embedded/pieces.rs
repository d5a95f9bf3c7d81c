//! Where the bytes of a stream are, in order, in little memory.
//!
//! A segment that is being written has no index file yet, so every block in it is listed here. A
//! piece takes 24 bytes, and a segment of small appends has hundreds of thousands of blocks. So
//! several of them are packed: a block is stored as its distance from the one before and its
//! length, in three to eight bytes. After a few hundred such bytes comes a block in full, so that
//! finding an offset reads little.
//!
//! [`Pieces`] hides the packing: it takes and gives single pieces.

use std::ops::Range;

use super::codec::length;
use super::extents::Extent;

/// Where some bytes of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The stream's offset of its first byte.
    pub(super) start: u64,
    pub(super) segment: u32,
    /// One block: its position in the segment. Many: their position in the segment's index file.
    pub(super) at: u32,
    /// The blocks' bytes.
    pub(super) bytes: u32,
    /// How many blocks the index lists; 0 if this is one block.
    pub(super) listed: u32,
}

/// The pieces of a stream, in the order of their starts; each ends where the next begins, the
/// last at the tail.
#[derive(Clone, Default)]
pub(super) struct Pieces {
    /// A piece that is [`PACKED`] stands for all blocks of a pack: it begins where they begin
    /// and has their bytes.
    list: Vec<Piece>,
    packs: Option<Box<Packs>>,
}

/// Packs of different segments: the one that is being written, and those before it until they
/// have their index.
#[derive(Clone, Default)]
struct Packs(Vec<Pack>);

/// What a piece lists if its blocks are in the pack of its segment.
pub(super) const PACKED: u32 = u32::MAX;
/// Fewer blocks than this take less memory without a pack.
const PACK_MIN: usize = 8;
/// The size of a part of a pack. Finding a block reads one part.
const CODE_BYTES_MAX: usize = 512;
/// The most that one block takes: a number of 64 bits and two of 32, seven bits a byte.
const CODE_BYTES_PER_BLOCK_MAX: usize = 10 + 5 + 5;

impl Pieces {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len() + self.packs().iter().map(|pack| pack.count - 1).sum::<usize>()
    }

    /// Adds a piece after the last.
    pub(super) fn push(&mut self, piece: Piece) {
        if let Some(last) = self.list.last_mut()
            && (last.listed, last.segment, piece.listed) == (PACKED, piece.segment, 0)
        {
            last.bytes = last.bytes.saturating_add(piece.bytes);
            pack_of(&mut self.packs, piece.segment).push(extent_of(piece));
            return;
        }
        // Most streams have one piece: reserve no more.
        if self.list.is_empty() {
            self.list.reserve_exact(1);
        }
        self.list.push(piece);
        self.pack();
    }

    /// Packs the last pieces, if they are enough blocks of one segment.
    fn pack(&mut self) {
        let Some(first) = self.list.len().checked_sub(PACK_MIN) else { return };
        let segment = self.list[first].segment;
        let is_block = |piece: &Piece| (piece.segment, piece.listed) == (segment, 0);
        if !self.list[first..].iter().all(is_block) || self.packs().iter().any(|it| it.segment == segment) {
            return;
        }
        let mut all = Piece { listed: PACKED, ..self.list[first] };
        let mut pack = Pack::new(segment, extent_of(all));
        for block in self.list.drain(first..).skip(1) {
            all.bytes = all.bytes.saturating_add(block.bytes);
            pack.push(extent_of(block));
        }
        self.list.push(all);
        self.list.shrink_to_fit();
        self.packs.get_or_insert_default().0.push(pack);
    }

    /// All pieces.
    pub(super) fn iter(&self) -> impl Iterator<Item = Piece> {
        self.list.iter().flat_map(|piece| self.unpacked(piece, None))
    }

    /// The piece that holds an offset and those after it, perhaps with some before it.
    pub(super) fn from(&self, offset: u64) -> impl Iterator<Item = Piece> {
        let first = self.list.partition_point(|piece| piece.start <= offset).saturating_sub(1);
        self.list[first..].iter().flat_map(move |piece| self.unpacked(piece, Some(offset)))
    }

    fn unpacked(&self, piece: &Piece, from: Option<u64>) -> Unpacked<'_> {
        if piece.listed != PACKED {
            return Unpacked::One(Some(*piece));
        }
        let pack = self.packs().iter().find(|pack| pack.segment == piece.segment);
        let pack = pack.expect("a packed piece has a pack");
        let first = from.map_or(0, |offset| pack.part_with(offset));
        Unpacked::Many(pack.segment, Blocks::of(&pack.parts[first..]))
    }

    /// The bytes of blocks in each segment; a segment may appear more than once.
    pub(super) fn bytes_by_segment(&self) -> impl Iterator<Item = (u32, u32)> {
        self.list.iter().map(|piece| (piece.segment, piece.bytes))
    }

    /// A copy of the pieces in a segment, and the start of the piece after them.
    pub(super) fn of_segment(&self, segment: u32) -> Option<(Pieces, Option<u64>)> {
        let first = self.list.iter().position(|piece| piece.segment == segment)?;
        let behind = &self.list[first..];
        let count = behind.iter().take_while(|piece| piece.segment == segment).count();
        let packs: Vec<Pack> = self.packs().iter().filter(|it| it.segment == segment).cloned().collect();
        let packs = (!packs.is_empty()).then(|| Box::new(Packs(packs)));
        let end = behind.get(count).map(|next| next.start);
        Some((Pieces { list: behind[..count].to_vec(), packs }, end))
    }

    /// Puts `new` in place of the pieces of `old` segments that begin in `range`; false if there
    /// are none.
    pub(super) fn replace(&mut self, old: &[u32], range: &Range<u64>, new: &[Piece]) -> bool {
        let is_old = |piece: &Piece| range.contains(&piece.start) && old.contains(&piece.segment);
        let Some(first) = self.list.iter().position(is_old) else { return false };
        let count = self.list[first..].iter().take_while(|piece| is_old(piece)).count();
        self.list.splice(first..first + count, new.iter().copied());
        self.list.shrink_to_fit();
        self.drop_packs();
        true
    }

    /// Drops everything before the piece that holds an offset.
    pub(super) fn drop_before(&mut self, offset: u64) {
        let first = self.list.partition_point(|piece| piece.start <= offset).saturating_sub(1);
        self.list.drain(..first);
        self.drop_packs();
        if let Some(piece) = self.list.first_mut().filter(|piece| piece.listed == PACKED) {
            let pack = pack_of(&mut self.packs, piece.segment);
            piece.bytes = piece.bytes.saturating_sub(pack.drop_before(offset));
            let Extent { start, at, .. } = pack.parts[0].first;
            (piece.start, piece.at) = (start, at);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Pieces::default();
    }

    fn packs(&self) -> &[Pack] {
        self.packs.as_ref().map_or(&[], |packs| &packs.0)
    }

    /// Drops the packs that no piece stands for.
    fn drop_packs(&mut self) {
        let Some(packs) = &mut self.packs else { return };
        let stands_for = |piece: &Piece, pack: &Pack| (piece.listed, piece.segment) == (PACKED, pack.segment);
        packs.0.retain(|pack| self.list.iter().any(|piece| stands_for(piece, pack)));
        if packs.0.is_empty() {
            self.packs = None;
        }
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<T: IntoIterator<Item = Piece>>(pieces: T) -> Pieces {
        let mut all = Pieces::default();
        pieces.into_iter().for_each(|piece| all.push(piece));
        all
    }
}

fn pack_of(packs: &mut Option<Box<Packs>>, segment: u32) -> &mut Pack {
    let packs = packs.as_mut().map_or(&mut [][..], |packs| &mut packs.0);
    packs.iter_mut().find(|pack| pack.segment == segment).expect("a packed piece has a pack")
}

fn extent_of(block: Piece) -> Extent {
    Extent { start: block.start, at: block.at, bytes: block.bytes }
}

/// Blocks of one segment.
#[derive(Clone)]
struct Pack {
    segment: u32,
    count: usize,
    last: Extent,
    /// Never empty, once there is a block.
    parts: Vec<Part>,
}

/// Some blocks that follow each other: the first, and the others as code.
#[derive(Clone)]
struct Part {
    first: Extent,
    code: Vec<u8>,
}

impl Pack {
    fn new(segment: u32, first: Extent) -> Pack {
        Pack { segment, count: 1, last: first, parts: vec![Part { first, code: Vec::new() }] }
    }

    fn push(&mut self, block: Extent) {
        let last = std::mem::replace(&mut self.last, block);
        self.count += 1;
        // After a disk has lost the end of a log, a block may lie before the last one: a distance
        // cannot be negative.
        match (self.parts.last_mut(), Gap::between(last, block)) {
            (Some(part), Some(gap)) if part.code.len() + CODE_BYTES_PER_BLOCK_MAX <= CODE_BYTES_MAX => {
                gap.put(&mut part.code);
            }
            _ => self.parts.push(Part { first: block, code: Vec::new() }),
        }
    }

    /// The part whose blocks hold an offset.
    fn part_with(&self, offset: u64) -> usize {
        self.parts.partition_point(|part| part.first.start <= offset).saturating_sub(1)
    }

    /// Drops the blocks before the one that holds an offset, and answers their bytes.
    fn drop_before(&mut self, offset: u64) -> u32 {
        let first = self.part_with(offset);
        let mut dropped: Vec<u32> = Blocks::of(&self.parts[..first]).map(|block| block.bytes).collect();
        self.parts.drain(..first);
        let part = &mut self.parts[0];
        let mut code = &part.code[..];
        while !code.is_empty() {
            let mut rest = code;
            let next = Gap::take(&mut rest).behind(part.first);
            if next.start > offset {
                break;
            }
            dropped.push(part.first.bytes);
            (part.first, code) = (next, rest);
        }
        part.code.drain(..part.code.len() - code.len());
        self.count -= dropped.len();
        dropped.into_iter().fold(0, u32::saturating_add)
    }
}

/// A packed block: its distance from the one before, and its length.
struct Gap {
    start: u64,
    at: u32,
    bytes: u32,
}

impl Gap {
    fn between(last: Extent, next: Extent) -> Option<Gap> {
        let end = last.at.checked_add(last.bytes)?;
        let start = next.start.checked_sub(last.start)?;
        Some(Gap { start, at: next.at.checked_sub(end)?, bytes: next.bytes })
    }

    fn behind(self, last: Extent) -> Extent {
        Extent { start: last.start + self.start, at: last.at + last.bytes + self.at, bytes: self.bytes }
    }

    fn put(self, code: &mut Vec<u8>) {
        put_number(code, self.start);
        put_number(code, self.at.into());
        put_number(code, self.bytes.into());
    }

    fn take(code: &mut &[u8]) -> Gap {
        let start = take_number(code);
        let mut small = || length(take_number(code) as usize);
        Gap { start, at: small(), bytes: small() }
    }
}

/// Seven bits a byte, the lowest first; the last byte is below 128.
fn put_number(code: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        code.push(number as u8 | 128);
        number >>= 7;
    }
    code.push(number as u8);
}

fn take_number(code: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let [byte, rest @ ..] = *code {
        *code = rest;
        number |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            break;
        }
        shift += 7;
    }
    number
}

/// The blocks of some parts, one after the other.
struct Blocks<'a> {
    parts: std::slice::Iter<'a, Part>,
    /// The last block, and the code of those after it.
    last: Option<(Extent, &'a [u8])>,
}

impl Blocks<'_> {
    fn of(parts: &[Part]) -> Blocks<'_> {
        Blocks { parts: parts.iter(), last: None }
    }
}

impl Iterator for Blocks<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let (block, code) = match self.last.take() {
            Some((last, mut code)) if !code.is_empty() => (Gap::take(&mut code).behind(last), code),
            _ => self.parts.next().map(|part| (part.first, &part.code[..]))?,
        };
        self.last = Some((block, code));
        Some(block)
    }
}

/// One piece, or the blocks of a segment's pack.
enum Unpacked<'a> {
    One(Option<Piece>),
    Many(u32, Blocks<'a>),
}

impl Iterator for Unpacked<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        match self {
            Unpacked::One(piece) => piece.take(),
            Unpacked::Many(segment, blocks) => {
                let Extent { start, at, bytes } = blocks.next()?;
                Some(Piece { start, segment: *segment, at, bytes, listed: 0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to a stream's pieces.
    #[derive(Debug, Clone)]
    enum Event {
        /// Some appends: the length of each, and its distance from the last one in the log.
        Grow(Vec<(u32, u32)>),
        /// The log continues in a new segment.
        Rotate,
        /// The log continues before its end, as after a loss.
        StepBack(u32),
        /// A part of it is dropped.
        Trim(prop::sample::Index),
        /// One of the segments before the last gets an index, or is gathered.
        Seal(prop::sample::Index),
        /// It is read back from a checkpoint.
        Reload,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let size = prop_oneof![4 => 1..300u32, 1 => 1..300_000u32];
        let gap = prop_oneof![3 => 20..60u32, 1 => 0..2_000_000u32];
        let event = prop_oneof![
            8 => prop::collection::vec((size, gap), 1..400).prop_map(Event::Grow),
            2 => Just(Event::Rotate),
            1 => (1..1_000u32).prop_map(Event::StepBack),
            2 => any::<prop::sample::Index>().prop_map(Event::Trim),
            2 => any::<prop::sample::Index>().prop_map(Event::Seal),
            1 => Just(Event::Reload),
        ];
        prop::collection::vec(event, 1..24)
    }

    /// The packed form and the plain list it stands for.
    #[derive(Default)]
    struct Both {
        packed: Pieces,
        plain: Vec<Piece>,
        segment: u32,
        at: u32,
        tail: u64,
    }

    impl Both {
        fn live(&mut self, event: &Event) {
            match event {
                Event::Grow(appends) => appends.iter().for_each(|(bytes, gap)| self.grow(*bytes, *gap)),
                Event::Rotate => (self.segment, self.at) = (self.segment + 1, 64),
                Event::StepBack(bytes) => self.at = self.at.saturating_sub(*bytes),
                Event::Trim(at) => {
                    let offset = at.index(self.tail as usize + 1) as u64;
                    let kept = self.plain.partition_point(|piece| piece.start <= offset);
                    self.plain.drain(..kept.saturating_sub(1));
                    self.packed.drop_before(offset);
                }
                Event::Seal(which) if self.segment > 0 => {
                    self.seal(which.index(self.segment as usize) as u32);
                }
                Event::Seal(_) => {}
                Event::Reload => self.packed = self.packed.iter().collect(),
            }
        }

        fn grow(&mut self, bytes: u32, gap: u32) {
            let at = self.at.saturating_add(gap);
            self.at = at.saturating_add(bytes);
            let piece = Piece { start: self.tail, segment: self.segment, at, bytes, listed: 0 };
            self.tail += u64::from(bytes);
            self.plain.push(piece);
            self.packed.push(piece);
        }

        fn seal(&mut self, segment: u32) {
            let is_old = |piece: &Piece| piece.segment == segment;
            let Some((run, end)) = self.packed.of_segment(segment) else {
                assert!(!self.plain.iter().any(is_old));
                return;
            };
            let old: Vec<Piece> = self.plain.iter().copied().filter(is_old).collect();
            assert_eq!(run.iter().collect::<Vec<_>>(), old, "the copy of a segment's pieces");
            let first = self.plain.iter().position(is_old).unwrap();
            assert_eq!(end, self.plain.get(first + old.len()).map(|next| next.start));
            let listed = Piece { at: 7, bytes: 9, listed: length(old.len()), ..old[0] };
            self.plain.splice(first..first + old.len(), [listed]);
            assert!(self.packed.replace(&[segment], &(old[0].start..end.unwrap_or(self.tail)), &[listed]));
        }

        fn check(&self) {
            assert!(self.packed.iter().eq(self.plain.iter().copied()), "all pieces");
            assert_eq!(
                (self.packed.len(), self.packed.is_empty()),
                (self.plain.len(), self.plain.is_empty())
            );
            for offset in [0, self.tail / 3, self.tail / 2, self.tail.saturating_sub(1), self.tail] {
                let first = self.plain.partition_point(|piece| piece.start <= offset).saturating_sub(1);
                let found: Vec<Piece> = self.packed.from(offset).collect();
                let early = found.len().checked_sub(self.plain.len() - first);
                assert!(early.is_some_and(|early| found[early..] == self.plain[first..]), "from {offset}");
                assert!(early.is_some_and(|early| early <= CODE_BYTES_MAX / 3), "{early:?} too early");
            }
            let bytes = |segment| {
                let all = self.packed.bytes_by_segment().filter(move |(it, _)| *it == segment);
                all.map(|(_, bytes)| u64::from(bytes)).sum::<u64>()
            };
            for segment in 0..=self.segment {
                let plain = self.plain.iter().filter(|piece| piece.segment == segment);
                assert_eq!(bytes(segment), plain.map(|piece| u64::from(piece.bytes)).sum::<u64>());
            }
        }
    }

    proptest! {
        /// S02: whatever happens to a stream, the packed form gives back the same pieces.
        #[test]
        fn packed_pieces_are_the_pieces(events in events()) {
            let mut both = Both::default();
            for event in &events {
                both.live(event);
                both.check();
            }
        }
    }

    /// S06: a small append to a segment that is being written takes a few bytes of memory.
    #[test]
    fn a_block_takes_a_few_bytes() {
        let bytes_per_block = |streams: u32| {
            let mut both = Both { at: 64, ..Both::default() };
            for _ in 0..10_000 {
                both.grow(116, 44 + 160 * (streams - 1));
            }
            let pack = &both.packed.packs()[0];
            let code: usize = pack.parts.iter().map(|part| part.code.capacity() + 16).sum();
            (code + pack.parts.capacity() * size_of::<Part>()) / 10_000
        };
        assert!(bytes_per_block(1) <= 4, "{}", bytes_per_block(1));
        assert!(bytes_per_block(1_000) <= 6, "{}", bytes_per_block(1_000));
    }
}
