//! The maintainer: indexes sealed segments, compacts them, and writes checkpoints.
//!
//! One thread does all of it, one thing after the other, so nothing of it runs twice at a time. A
//! segment that was replaced is removed from the disk once a checkpoint does not list it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::checkpoint;
use super::codec::length;
use super::compact;
use super::extents::{self, Extent};
use super::pieces::{Piece, Pieces};
use super::segment::{HEADER_BYTES, Kind, Segment, file_name, index_name};
use super::shared::{Position, Shared};
use super::stream::Stream;
use crate::Error;
use crate::limits::{GATHER_BYTES_MAX, GATHER_SEGMENTS, LOOK_EVERY, MAINTAIN_EVERY, SLOTS_PER_LOCK};

/// The state of the maintainer.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Sealed segments that need no index, because no stream has two blocks in them.
    plain: HashSet<u32>,
    /// Segments to remove once a checkpoint does not list them.
    replaced: Vec<u32>,
    replaced_bytes: u64,
    checkpoint_bytes: u64,
    /// The end of the log when segments were last searched for garbage, and when that was.
    looked: Option<(Position, Instant)>,
}

impl Upkeep {
    /// The search visits every stream: only if something was written, and not too often.
    fn should_look(&self, shared: &Shared) -> bool {
        self.looked
            .is_none_or(|(position, at)| position != shared.index().position && at.elapsed() > LOOK_EVERY)
    }
}

/// Maintains until shut.
pub(super) fn run(shared: &Shared) {
    while shared.wait_for_maintenance(MAINTAIN_EVERY) {
        match run_once(shared) {
            Ok(()) | Err(Error::ShutDown) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot maintain the stream segments, will retry");
                shared.pause(MAINTAIN_EVERY);
            }
        }
    }
}

/// Does what is due now.
pub(super) fn run_once(shared: &Shared) -> Result<(), Error> {
    let mut upkeep = lock(shared);
    if shared.poisoned().is_some() {
        return Ok(());
    }
    let has_sealed = seal(shared, &mut upkeep)?;
    if has_sealed || upkeep.should_look(shared) {
        upkeep.looked = Some((shared.index().position, Instant::now()));
        while let Some((old, level)) = choose(shared, &upkeep)? {
            compact(shared, &mut upkeep, &old, level)?;
        }
    }
    let since = shared.since_checkpoint.load(Ordering::Relaxed);
    let enough = shared.config.checkpoint_after_bytes.max(2 * upkeep.checkpoint_bytes);
    // Best when a segment was just sealed: the next one has few blocks yet, and a checkpoint
    // holds each of them.
    let is_due = since >= enough && (has_sealed || since >= enough + shared.config.segment_bytes);
    if is_due || upkeep.replaced_bytes >= enough {
        write_checkpoint(shared, &mut upkeep, &mut Pace::of(shared))?;
    }
    Ok(())
}

/// Writes a checkpoint now, as fast as the disk takes it.
pub(super) fn checkpoint(shared: &Shared) -> Result<(), Error> {
    write_checkpoint(shared, &mut lock(shared), &mut Pace::new(u64::MAX))
}

/// Writes a checkpoint, then does `work` while no file of the store is replaced or removed.
pub(super) fn after_checkpoint<T>(
    shared: &Shared,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut upkeep = lock(shared);
    write_checkpoint(shared, &mut upkeep, &mut Pace::new(u64::MAX))?;
    work()
}

/// Gathers everything that is sealed, now.
pub(super) fn compact_all(shared: &Shared) -> Result<(), Error> {
    let mut upkeep = lock(shared);
    seal(shared, &mut upkeep)?;
    let mut sealed = sealed(shared);
    sealed.sort_unstable_by_key(|segment| segment.number);
    let numbers: Vec<u32> = sealed.iter().map(|segment| segment.number).collect();
    if !numbers.is_empty() {
        compact(shared, &mut upkeep, &numbers, 1)?;
    }
    write_checkpoint(shared, &mut upkeep, &mut Pace::of(shared))
}

fn lock(shared: &Shared) -> MutexGuard<'_, Upkeep> {
    shared.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_checkpoint(shared: &Shared, upkeep: &mut Upkeep, pace: &mut Pace) -> Result<(), Error> {
    let since = shared.since_checkpoint.load(Ordering::Relaxed);
    upkeep.checkpoint_bytes = checkpoint::write(shared, pace)?;
    shared.since_checkpoint.fetch_sub(since, Ordering::Relaxed);
    for number in upkeep.replaced.drain(..) {
        for name in [file_name(number), index_name(number)] {
            if let Err(error) = shared.disk.remove(&name)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, name, "cannot remove a replaced file; the next start will");
            }
        }
    }
    upkeep.replaced_bytes = 0;
    Ok(())
}

/// Everything but the segment that is being written.
fn sealed(shared: &Shared) -> Vec<Arc<Segment>> {
    let index = shared.index();
    let active = index.position.segment;
    index.segments.values().filter(|segment| segment.number != active).cloned().collect()
}

/// Moves the block lists of sealed segments from memory to their index files. True if there
/// were any.
fn seal(shared: &Shared, upkeep: &mut Upkeep) -> Result<bool, Error> {
    let mut has_sealed = false;
    for segment in sealed(shared) {
        let done = segment.index.get().is_some() || upkeep.plain.contains(&segment.number);
        if segment.kind != Kind::Log || done {
            continue;
        }
        has_sealed = true;
        let runs = find_runs(shared, segment.number);
        if runs.list.is_empty() {
            upkeep.plain.insert(segment.number);
            continue;
        }
        write_index(shared, &segment, runs.extents())?;
        for some in runs.list.chunks(SLOTS_PER_LOCK) {
            let mut index = shared.index_mut();
            for (id, end, run) in some {
                if let Some(stream) = index.get_mut(*id) {
                    replace_run(stream, &[segment.number], run.start..*end, &[*run]);
                }
            }
        }
    }
    Ok(has_sealed)
}

/// Writes a segment's index file.
pub(super) fn write_index(
    shared: &Shared,
    segment: &Segment,
    extents: impl Iterator<Item = Extent>,
) -> Result<(), Error> {
    let name = index_name(segment.number);
    let failed = |error: std::io::Error| Error::io(format!("cannot write {name}"), &error);
    let file = shared.disk.create(&name).map_err(failed)?;
    extents::write(&*file, extents).and_then(|()| file.sync()).map_err(failed)?;
    shared.disk.sync_names().map_err(failed)?;
    let _ = segment.index.set(file);
    Ok(())
}

/// Streams with several blocks in one segment, and those blocks.
#[derive(Default)]
struct Runs {
    /// Stream, end of the blocks, and the piece that will stand for them.
    list: Vec<(u64, u64, Piece)>,
    blocks: Vec<Pieces>,
    count: usize,
}

impl Runs {
    fn extents(&self) -> impl Iterator<Item = Extent> {
        let blocks = self.blocks.iter().flat_map(Pieces::iter);
        blocks.map(|Piece { start, at, bytes, .. }| Extent { start, at, bytes })
    }
}

fn find_runs(shared: &Shared, segment: u32) -> Runs {
    let mut runs = Runs::default();
    let mut next = Some(0);
    while let Some(from) = next {
        let index = shared.index();
        let (streams, after) = index.visit(from, SLOTS_PER_LOCK);
        for stream in streams {
            let Some((blocks, end)) = stream.pieces.of_segment(segment).filter(|(run, _)| run.len() >= 2)
            else {
                continue;
            };
            let (at, listed) = (length(runs.count), length(blocks.len()));
            let bytes = blocks.bytes_by_segment().map(|(_, bytes)| bytes).sum();
            let Some(start) = blocks.iter().next().map(|first| first.start) else { continue };
            let piece = Piece { start, segment, at, bytes, listed };
            runs.list.push((stream.id, end.unwrap_or(stream.tail), piece));
            runs.count += blocks.len();
            runs.blocks.push(blocks);
        }
        next = after;
    }
    runs
}

/// Puts `new` in place of the pieces of `old` segments that begin in `range`. A trim may
/// have taken some of them meanwhile: then the first new piece begins before the stream
/// does, which readers allow. If it has taken all of them, nothing is put in their place.
pub(super) fn replace_run(stream: &mut Stream, old: &[u32], range: Range<u64>, new: &[Piece]) {
    if stream.pieces.replace(old, &range, new) {
        stream.drop_trimmed();
    }
}

/// Chooses segments to gather, and the level of the result.
fn choose(shared: &Shared, upkeep: &Upkeep) -> Result<Option<(Vec<u32>, u8)>, Error> {
    let live = live_bytes(shared);
    let mut by_level: HashMap<u8, Vec<(u32, u64)>> = HashMap::new();
    for segment in sealed(shared) {
        let size = segment.file.len().map_err(|error| Error::io("cannot measure a segment", &error))?;
        let level = match segment.kind {
            Kind::Log if segment.index.get().is_none() && !upkeep.plain.contains(&segment.number) => continue,
            Kind::Log => 0,
            Kind::Gathered { level } => level,
        };
        let live = live.get(&segment.number).copied().unwrap_or(0);
        // A segment that was just gathered is all live but for its header: choosing it again
        // would never end.
        if live < size.saturating_sub(HEADER_BYTES) / 2 || (live == 0 && size > 0) {
            return Ok(Some((vec![segment.number], level.max(1))));
        }
        if size < GATHER_BYTES_MAX {
            by_level.entry(level).or_default().push((segment.number, size));
        }
    }
    for (level, mut segments) in by_level {
        if segments.len() >= GATHER_SEGMENTS {
            segments.sort_unstable();
            let mut room = 2 * GATHER_BYTES_MAX;
            let fits = |(_, size): &&(u32, u64)| {
                room = room.saturating_sub(*size);
                room > 0
            };
            let chosen: Vec<u32> =
                segments.iter().take(GATHER_SEGMENTS).take_while(fits).map(|(number, _)| *number).collect();
            return Ok(Some((chosen, level.saturating_add(1))));
        }
    }
    Ok(None)
}

/// Bytes that streams point to, per segment. Sessions point to none; their sources do.
fn live_bytes(shared: &Shared) -> HashMap<u32, u64> {
    let mut live = HashMap::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let index = shared.index();
        let (streams, after) = index.visit(from, SLOTS_PER_LOCK);
        for (segment, bytes) in streams.flat_map(|stream| stream.pieces.bytes_by_segment()) {
            *live.entry(segment).or_default() += u64::from(bytes);
        }
        next = after;
    }
    live
}

fn compact(shared: &Shared, upkeep: &mut Upkeep, old: &[u32], level: u8) -> Result<(), Error> {
    let bytes = compact::gather(shared, old, level, &mut Pace::of(shared))?;
    upkeep.replaced.extend_from_slice(old);
    upkeep.replaced_bytes += bytes;
    upkeep.plain.retain(|number| !old.contains(number));
    Ok(())
}

/// Limits background work to so many bytes a second.
pub(super) struct Pace {
    per_second: u64,
    since: Instant,
    spent: u64,
}

impl Pace {
    fn of(shared: &Shared) -> Pace {
        Pace::new(shared.config.compaction_bytes_per_second)
    }

    fn new(per_second: u64) -> Pace {
        Pace { per_second: per_second.max(1), since: Instant::now(), spent: 0 }
    }

    /// Counts bytes, and waits if they came too fast.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.spent += bytes;
        let due = Duration::from_secs_f64(self.spent as f64 / self.per_second as f64);
        if let Some(early) = due.checked_sub(self.since.elapsed()).filter(|it| *it > Duration::from_millis(5))
        {
            thread::sleep(early);
        }
    }
}
