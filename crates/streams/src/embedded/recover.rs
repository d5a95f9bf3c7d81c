//! Opening: reads the checkpoint, then replays the log behind it up to the last whole record.
//!
//! A power cut may leave any part of the commit that was being written, and damages nothing else.
//! So the log is truncated at the first incomplete record. If durable commits follow that record,
//! the disk has lost acknowledged data: the rest is then saved in a separate file, and the loss is
//! reported as an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;

use super::Config;
use super::cache::{self, CacheEnd};
use super::checkpoint::{self, Summary};
use super::disk::{Disk, DiskFile};
use super::index::{Index, Location};
use super::log::{self, FileLog};
use super::record::{HEAD_BYTES, Record};
use super::segment::{HEADER_BYTES, Header, Kind, Segment, file_name, index_name, number_of};
use super::shared::Position;
use super::spare::Spares;
use crate::Error;

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records replayed behind the checkpoint.
    pub replayed_records: usize,
    /// Their bytes.
    pub replayed_bytes: u64,
    /// Bytes of an unfinished commit that were cut off. Nothing of it was acknowledged.
    pub torn_bytes: u64,
    /// Acknowledged data that was lost, and where the damaged bytes were put.
    pub damage: Option<String>,
}

/// An opened store, ready for its threads.
pub(super) struct Opened {
    pub(super) index: Index,
    pub(super) log: FileLog,
    pub(super) numbers: Arc<AtomicU32>,
    pub(super) recovery: Recovery,
    pub(super) spares: Arc<Spares>,
}

pub(super) const VERSION_NAME: &str = "VERSION";
const VERSION: &[u8] = b"towpath-streams 3\n";

pub(super) fn open(disk: &Arc<dyn Disk>, config: &Config) -> Result<Opened, Error> {
    match &config.log {
        Some(log) => cache::open(disk, config, &**log),
        None => open_files(disk, config, VERSION, None).map(|(opened, _)| opened),
    }
}

/// Opens what is on the disk. For a cache, answers where it ends.
pub(super) fn open_files(
    disk: &Arc<dyn Disk>,
    config: &Config,
    version: &[u8],
    cache: Option<CacheEnd>,
) -> Result<(Opened, Option<CacheEnd>), Error> {
    let names = disk.names().map_err(|error| Error::io("cannot list the stream store", &error))?;
    check_version(&**disk, &names, version)?;
    let mut index = Index::default();
    let summary = checkpoint::read(&**disk, &names, &mut index)?;
    index.finish_loading();
    let mut headers = log_headers(&**disk, &names)?;
    let highest = names.iter().filter_map(|name| number_of(name)).max().unwrap_or(0);
    let mut recovery = Recovery::default();
    let mut replay = Replay { disk: &**disk, index: &mut index, recovery: &mut recovery, cache };
    let end = replay.run(summary.as_ref(), &mut headers)?;
    let mut cache = replay.cache;
    index.finish_replay();
    let (active, end, commit) = match end {
        Some(end) => end,
        None => (log::first(&**disk, highest + 1, 0, 0)?, HEADER_BYTES, 0),
    };
    index.segments.insert(active.number, active.clone());
    index.position = Position { segment: active.number, end, commit, chain: 0 };
    keep_unreached(&**disk, &names, &index, &mut recovery)?;
    remove_strays(&**disk, &names, &index);
    // The last commit of a cache may be there in part only. It is read from the shared log again.
    if let Some(cache) = &mut cache {
        index.position = cache.position(active.number, end);
    }
    let end = index.position.end;
    let numbers = Arc::new(AtomicU32::new(highest.max(active.number) + 1));
    let spares: Arc<Spares> = Arc::default();
    let sizes = (config.segment_bytes, cache.is_some());
    let log = FileLog::new(disk.clone(), numbers.clone(), spares.clone(), active, end, sizes)?;
    spares.want(config.segment_bytes.min(4 * crate::limits::FIRST_SEGMENT_BYTES));
    report(&recovery, &index, cache.is_some());
    Ok((Opened { index, log, numbers, recovery, spares }, cache))
}

fn report(recovery: &Recovery, index: &Index, is_cache: bool) {
    let Recovery { replayed_records, replayed_bytes, torn_bytes, damage } = recovery;
    if let Some(damage) = damage.as_ref().filter(|_| is_cache) {
        tracing::warn!(%damage, "the cache of streams is damaged");
    } else if let Some(damage) = damage {
        tracing::error!(%damage, "ACKNOWLEDGED STREAM DATA IS LOST: the disk lost data that it had confirmed");
    }
    if *torn_bytes > 0 {
        tracing::warn!(torn_bytes, "discarded an incomplete commit that had not been acknowledged");
    }
    tracing::info!(streams = index.count, replayed_records, replayed_bytes, "opened the stream store");
}

fn check_version(disk: &dyn Disk, names: &[String], version: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io("cannot read the store's version", &error);
    if names.iter().any(|name| name == VERSION_NAME) {
        let file = disk.open(VERSION_NAME).map_err(failed)?;
        let mut text = vec![0; file.len().map_err(failed)?.min(64) as usize];
        file.read_at(&mut text, 0).map_err(failed)?;
        let unfinished = !names.iter().any(|name| number_of(name).is_some());
        if text == version {
            return Ok(());
        }
        if !unfinished {
            let text = String::from_utf8_lossy(&text);
            return Err(Error::Unsupported(format!(
                "the stream store has format {:?}, but this version reads {:?}; use the version that wrote it",
                text.trim(),
                String::from_utf8_lossy(version).trim()
            )));
        }
    }
    let file = disk.create(VERSION_NAME).map_err(failed)?;
    file.write_at(version, 0).and_then(|()| file.sync()).map_err(failed)?;
    disk.sync_names().map_err(failed)
}

/// The headers of the log segments. A segment without a whole header was never part of a commit.
fn log_headers(disk: &dyn Disk, names: &[String]) -> Result<BTreeMap<u32, Header>, Error> {
    let mut headers = BTreeMap::new();
    for name in names.iter().filter(|name| name.ends_with(".log")) {
        let Some(number) = number_of(name) else { continue };
        let file = disk.open(name).map_err(|error| Error::io(format!("cannot open {name}"), &error))?;
        let mut bytes = vec![0; HEADER_BYTES as usize];
        if file.read_at(&mut bytes, 0).is_ok()
            && let Some(header) = Header::decode(&bytes)
            && header.number == number
            && header.kind == Kind::Log
        {
            headers.insert(number, header);
        }
    }
    Ok(headers)
}

struct Replay<'a> {
    disk: &'a dyn Disk,
    index: &'a mut Index,
    recovery: &'a mut Recovery,
    /// Where the commits of a cache end.
    cache: Option<CacheEnd>,
}

/// The last segment, where its records end, and the last commit.
type End = (Arc<Segment>, u64, u64);

impl Replay<'_> {
    fn run(
        &mut self,
        summary: Option<&Summary>,
        headers: &mut BTreeMap<u32, Header>,
    ) -> Result<Option<End>, Error> {
        let (mut number, mut from, mut commit) = match summary {
            Some(summary) => {
                self.open_listed(summary)?;
                self.cache = self.cache.map(|_| CacheEnd::at(summary.position));
                (summary.position.segment, summary.position.end, summary.position.commit)
            }
            None => match headers.values().find(|header| header.before == 0) {
                Some(first) => (first.number, HEADER_BYTES, 0),
                None => return Ok(None),
            },
        };
        loop {
            let segment = self.segment(number, Kind::Log)?;
            let next = headers.values().find(|header| header.before == number).copied();
            let limit = next.map(|next| next.before_end);
            let stop = self.replay(&segment, from, limit, &mut commit)?;
            match next {
                Some(next) if stop.whole => (number, from) = (next.number, HEADER_BYTES),
                _ => {
                    self.cut(&segment, &stop, next.is_some(), headers)?;
                    return Ok(Some((segment, stop.at, commit)));
                }
            }
        }
    }

    fn open_listed(&mut self, summary: &Summary) -> Result<(), Error> {
        for listed in &summary.segments {
            let segment = self.segment(listed.number, listed.kind)?;
            if listed.has_index {
                let name = index_name(listed.number);
                let file = self.disk.open(&name);
                let file = file.map_err(|error| Error::io(format!("cannot open {name}"), &error))?;
                let _ = segment.index.set(file);
            }
        }
        Ok(())
    }

    fn segment(&mut self, number: u32, kind: Kind) -> Result<Arc<Segment>, Error> {
        if let Some(segment) = self.index.segments.get(&number) {
            return Ok(segment.clone());
        }
        let name = file_name(number);
        let file = self.disk.open(&name);
        let file =
            file.map_err(|error| Error::io(format!("cannot open {name}, which streams need"), &error))?;
        let segment = Arc::new(Segment::new(number, kind, file));
        self.index.segments.insert(number, segment.clone());
        Ok(segment)
    }

    /// Applies whole records up to `limit`, or to the first that is not whole.
    fn replay(
        &mut self,
        segment: &Segment,
        from: u64,
        limit: Option<u64>,
        commit: &mut u64,
    ) -> Result<Stop, Error> {
        let failed =
            |error: std::io::Error| Error::io(format!("cannot read segment {}", segment.number), &error);
        let length = segment.file.len().map_err(failed)?;
        let end = limit.unwrap_or(length).min(length).max(from);
        let mut bytes = vec![0; (end - from) as usize];
        segment.file.read_at(&mut bytes, from).map_err(failed)?;
        let bytes = Bytes::from(bytes);
        let mut at = 0;
        while at < bytes.len() {
            let Some(found) = Record::take(&bytes.slice(at..)) else { break };
            if found.commit < *commit {
                break;
            }
            *commit = found.commit;
            if let Some(cache) = &mut self.cache {
                let record = &bytes[at..at + found.length as usize];
                cache.add(found.commit, record, (segment.number, from + at as u64));
            }
            let block = u32::try_from(from).expect("segments stay below 4 GiB") + at as u32 + found.block;
            self.index.apply(&found.record, Location { segment: segment.number, block }, &mut ());
            at += found.length as usize;
            self.recovery.replayed_records += 1;
            self.recovery.replayed_bytes += u64::from(found.length);
        }
        let whole = limit.is_some_and(|limit| from + at as u64 == limit);
        Ok(Stop { at: from + at as u64, whole, rest: bytes.slice(at..), commit: *commit })
    }

    /// Ends the log where its whole records end.
    fn cut(
        &mut self,
        segment: &Segment,
        stop: &Stop,
        has_next: bool,
        headers: &BTreeMap<u32, Header>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::io("cannot truncate the log", &error);
        let torn = stop.rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if torn == 0 && !has_next {
            return Ok(());
        }
        if has_next || stop.is_damage(torn) {
            let aside = format!("damaged-{}-{}", file_name(segment.number), stop.at);
            let copy = self.disk.create(&aside).map_err(failed)?;
            copy.write_at(&stop.rest, 0).and_then(|()| copy.sync()).map_err(failed)?;
            for header in headers.values().filter(|header| header.number > segment.number) {
                let name = file_name(header.number);
                self.disk.rename(&name, &format!("damaged-{name}")).map_err(failed)?;
            }
            let lost = format!(
                "segment {} at byte {}; the data after it is saved in {aside}",
                segment.number, stop.at
            );
            self.recovery.damage = Some(lost);
        } else {
            self.recovery.torn_bytes = torn as u64;
        }
        // Zeros after the end: old bytes must not look like a part of a new commit.
        write_zeros(&*segment.file, stop.at, torn as u64).map_err(failed)?;
        segment.file.sync().and_then(|()| self.disk.sync_names()).map_err(failed)
    }
}

/// Where the whole records end.
struct Stop {
    at: u64,
    /// All records of the segment are there.
    whole: bool,
    rest: Bytes,
    /// The commit of the last whole record.
    commit: u64,
}

impl Stop {
    /// Whether a later commit than the broken one follows. A commit is written after the one before
    /// was synced, so the broken one had been acknowledged.
    fn is_damage(&self, torn: usize) -> bool {
        let broken =
            self.rest.get(8..16).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        let broken = broken.filter(|commit| *commit == self.commit).unwrap_or(self.commit + 1);
        commits_behind(&self.rest.slice(..torn), self.commit).any(|commit| commit > broken)
    }
}

/// The commits of complete records anywhere in `bytes`, if they can follow `commit`.
fn commits_behind(bytes: &Bytes, commit: u64) -> impl Iterator<Item = u64> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() > HEAD_BYTES) {
            let found = u64::from_le_bytes(rest[8..16].try_into().expect("eight bytes"));
            // A cheap check that hardly anything but a record passes.
            let is_plausible = found >= commit.max(1) && found - commit < 1 << 32;
            match is_plausible.then(|| Record::take(&bytes.slice(at..))).flatten() {
                Some(record) => {
                    at += record.length as usize;
                    return Some(record.commit);
                }
                None => at += 1,
            }
        }
        None
    })
}

/// Checks log files that the replay did not reach. A commit that was never synced may leave a
/// segment with a broken header; so may a disk that lost what it had confirmed, and then the
/// segments after it are out of reach too. None is removed as long as it holds a record of a later
/// commit than the last one found. File numbers say nothing about the order here: a spare may be
/// older than the segment before it.
fn keep_unreached(
    disk: &dyn Disk,
    names: &[String],
    index: &Index,
    recovery: &mut Recovery,
) -> Result<(), Error> {
    let Position { segment: active, commit, .. } = index.position;
    let is_reached = |number| index.segments.contains_key(&number);
    let mut lost = BTreeSet::new();
    let mut kept = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".log")) {
        let Some(number) = number_of(name).filter(|number| !is_reached(*number)) else { continue };
        let failed = |error: std::io::Error| Error::io(format!("cannot read {name}"), &error);
        // Renamed already.
        let Ok(file) = disk.open(name) else { continue };
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        let bytes = Bytes::from(bytes);
        let has_header = bytes.get(..HEADER_BYTES as usize).and_then(Header::decode).is_some();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let behind: Vec<u64> =
            commits_behind(&bytes.slice(..end), commit).filter(|found| *found > commit).collect();
        if !has_header && (number > active || !behind.is_empty()) {
            recovery.torn_bytes += end as u64;
        }
        if !behind.is_empty() {
            let aside = format!("damaged-{name}");
            disk.rename(name, &aside).and_then(|()| disk.sync_names()).map_err(failed)?;
            lost.extend(behind);
            kept.push(aside);
        }
    }
    // One commit may never have been synced. Of two, the first was synced before the second.
    if lost.len() > 1 {
        let kept = kept.join(", ");
        recovery.damage.get_or_insert(format!("the data after commit {commit}; it is saved in {kept}"));
    }
    Ok(())
}

fn write_zeros(file: &dyn DiskFile, mut at: u64, mut bytes: u64) -> std::io::Result<()> {
    let zeros = vec![0; bytes.min(1 << 20) as usize];
    while bytes > 0 {
        let step = bytes.min(zeros.len() as u64);
        file.write_at(&zeros[..step as usize], at)?;
        at += step;
        bytes -= step;
    }
    Ok(())
}

/// Removes files that nothing points to: spares, half-written files, inputs of compaction.
fn remove_strays(disk: &dyn Disk, names: &[String], index: &Index) {
    for name in names {
        let stray = match number_of(name).map(|number| index.segments.get(&number)) {
            Some(Some(segment)) => name.ends_with(".index") && segment.index.get().is_none(),
            Some(None) => true,
            None => name.ends_with(".new"),
        };
        if stray && let Err(error) = disk.remove(name) {
            tracing::debug!(%error, name, "cannot remove an unreferenced file");
        }
    }
}
