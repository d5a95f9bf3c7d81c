//! The log in files, and its end: one write and one sync per commit, and a new segment when one is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::disk::Disk;
use super::segment::{HEADER_BYTES, Header, Kind, Segment, file_name};
use super::spare::Spares;
use crate::Error;
use crate::limits::FIRST_SEGMENT_BYTES;

/// The segment that is being written.
pub(super) struct FileLog {
    disk: Arc<dyn Disk>,
    numbers: Arc<AtomicU32>,
    spares: Arc<Spares>,
    active: Arc<Segment>,
    /// The first bytes of `active`, while they wait to be written with its first commit.
    header: Option<Vec<u8>>,
    end: u64,
    size: u64,
    size_max: u64,
    /// The log of record is elsewhere: nothing here is synced before it is sealed or a checkpoint needs it.
    is_cache: bool,
}

/// How a commit failed.
pub(super) enum Failure {
    /// Nothing has happened; the next commit may succeed.
    Refused(Error),
    /// It is unknown what the disk holds: no more writes are allowed.
    Unknown(String),
}

impl FileLog {
    /// Continues at `end` of `active`.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        numbers: Arc<AtomicU32>,
        spares: Arc<Spares>,
        active: Arc<Segment>,
        end: u64,
        (size_max, is_cache): (u64, bool),
    ) -> Result<FileLog, Error> {
        let length = active.file.len().map_err(|error| Error::io("cannot measure a segment", &error))?;
        let size = length.max(FIRST_SEGMENT_BYTES.min(size_max));
        Ok(FileLog { disk, numbers, spares, active, header: None, end, size, size_max, is_cache })
    }

    pub(super) fn active(&self) -> &Arc<Segment> {
        &self.active
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Makes `bytes` durable, unless this is a cache, and answers where they begin in the active segment.
    pub(super) fn commit(&mut self, bytes: &[u8]) -> Result<u64, Failure> {
        if self.end + bytes.len() as u64 > self.size {
            self.rotate(bytes.len() as u64).map_err(Failure::Refused)?;
        }
        let written = match &self.header {
            Some(header) => self.active.file.write_at(&[header, bytes].concat(), 0),
            None => self.active.file.write_at(bytes, self.end),
        };
        written.map_err(|error| Failure::Refused(Error::io("cannot write streams", &error)))?;
        if !self.is_cache {
            self.active.file.sync().map_err(|error| Failure::Unknown(error.to_string()))?;
        }
        self.header = None;
        let begin = self.end;
        self.end += bytes.len() as u64;
        Ok(begin)
    }

    /// Begins a new segment with room for `bytes`.
    fn rotate(&mut self, bytes: u64) -> Result<(), Error> {
        if self.header.is_some() && self.end == HEADER_BYTES {
            // An empty segment that is too small just grows.
            self.size = HEADER_BYTES + bytes;
            return Ok(());
        }
        if self.is_cache {
            self.active.file.sync().map_err(|error| Error::io("cannot seal a segment", &error))?;
        }
        let needed = HEADER_BYTES + bytes;
        let next_size = (self.size * 4).min(self.size_max);
        let (number, file, size) = match self.spares.take(needed, (next_size * 4).min(self.size_max)) {
            Some(spare) => (spare.number, spare.file, spare.size),
            None => self.create(needed.max(next_size))?,
        };
        let header = Header { number, kind: Kind::Log, before: self.active.number, before_end: self.end };
        self.active = Arc::new(Segment::new(number, Kind::Log, file));
        self.header = Some(header.encode());
        self.end = HEADER_BYTES;
        self.size = size;
        Ok(())
    }

    fn create(&self, size: u64) -> Result<(u32, Arc<dyn super::disk::DiskFile>, u64), Error> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let failed = |error: std::io::Error| Error::io("cannot create a segment", &error);
        let file = self.disk.create(&file_name(number)).map_err(failed)?;
        self.disk.sync_names().map_err(failed)?;
        Ok((number, file, size))
    }
}

/// Makes the first segment of an empty store.
pub(super) fn first(
    disk: &dyn Disk,
    number: u32,
    before: u32,
    before_end: u64,
) -> Result<Arc<Segment>, Error> {
    let failed = |error: std::io::Error| Error::io("cannot create a segment", &error);
    let file = disk.create(&file_name(number)).map_err(failed)?;
    let header = Header { number, kind: Kind::Log, before, before_end };
    file.write_at(&header.encode(), 0).map_err(failed)?;
    file.sync().map_err(failed)?;
    disk.sync_names().map_err(failed)?;
    Ok(Arc::new(Segment::new(number, Kind::Log, file)))
}
