//! Checkpoints: the index on disk, and the list of segments in use.
//!
//! A checkpoint is written while commits go on. It names the position in the log where it was
//! begun. Each stream in it is as it was then or later, and replaying the log from that position
//! brings all of them to the same state, because applying a record twice has no effect. A rename
//! puts it in place of the old one, so there is always a whole one.
//!
//! ```text
//! frame: bytes u32 │ crc32c u32 │ payload        frames: beginning, streams …, end
//! ```

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use towpath_model::stream::state::Accepted;

use super::codec::{Put, Take, length};
use super::disk::{Disk, DiskFile};
use super::feed::{Entry, Feed};
use super::index::{Index, Phase};
use super::maintain::Pace;
use super::pieces::{PACKED, Piece, Pieces};
use super::record::Fork;
use super::segment::Kind;
use super::session::{Session, Sub, View};
use super::shared::{Position, Shared};
use super::stream::{More, Stream};
use crate::Error;

pub(super) const NAME: &str = "checkpoint";
const NEW_NAME: &str = "checkpoint.new";
const VERSION: u32 = 3;
/// The same with the chain of a shared log.
const VERSION_SHARED: u32 = 4;
/// A frame is written when it has this much per stream that is visited at a time: 256 KiB by
/// default.
const FRAME_BYTES_PER_STREAM: usize = 512;

/// What a checkpoint holds besides the streams.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    /// Replay from here.
    pub(super) position: Position,
    pub(super) segments: Vec<Listed>,
}

/// A segment in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) has_index: bool,
}

/// Writes a checkpoint and answers its size.
pub(super) fn write(shared: &Shared, pace: &mut Pace) -> Result<u64, Error> {
    // A session may be written before or after the feeds that it has yet to pull. As long as no
    // feed drops an entry meanwhile, the replay finds it in one of the two.
    shared.index_mut().phase = Phase::Checkpointing;
    let written = write_all(shared, pace);
    shared.index_mut().phase = Phase::Serving;
    written
}

fn write_all(shared: &Shared, pace: &mut Pace) -> Result<u64, Error> {
    let failed = |error: std::io::Error| Error::io("cannot write a checkpoint", &error);
    let mut out = Frames { file: shared.disk.create(NEW_NAME).map_err(failed)?, end: 0 };
    let (position, numbers, about) = {
        let index = shared.index();
        (index.position, [index.next_id, index.next_delivery, index.last_change], index.count)
    };
    let mut frame = Vec::new();
    let is_cache = shared.config.log.is_some();
    frame.put_u32(if is_cache { VERSION_SHARED } else { VERSION });
    frame.put_u32(position.segment);
    frame.put_u64(position.end);
    frame.put_u64(position.commit);
    if is_cache {
        frame.put_u32(position.chain);
    }
    numbers.iter().for_each(|number| frame.put_u64(*number));
    frame.put_u64(about as u64);
    out.put(&mut frame, pace).map_err(failed)?;
    let (mut next, mut count) = (Some(0), 0u64);
    while let Some(from) = next {
        {
            let index = shared.index();
            let (streams, after) = index.visit(from, shared.config.checkpoint_streams);
            for stream in streams {
                put_stream(&mut frame, stream);
                count += 1;
            }
            next = after;
        }
        if frame.len() >= shared.config.checkpoint_streams * FRAME_BYTES_PER_STREAM {
            out.put(&mut frame, pace).map_err(failed)?;
        }
    }
    if !frame.is_empty() {
        out.put(&mut frame, pace).map_err(failed)?;
    }
    put_metas(&mut frame, &shared.index());
    out.put(&mut frame, pace).map_err(failed)?;
    // Listed last: streams above may point into segments that were begun meanwhile.
    put_end(&mut frame, &shared.index(), count);
    out.put(&mut frame, pace).map_err(failed)?;
    out.file.sync().map_err(failed)?;
    if is_cache {
        // Streams above point into the active segment, which no commit has synced. Sealed ones are synced.
        let active = shared.index();
        let active = active.segments.get(&active.position.segment).cloned();
        active.map_or(Ok(()), |segment| segment.file.sync()).map_err(failed)?;
    }
    shared.disk.rename(NEW_NAME, NAME).map_err(failed)?;
    shared.disk.sync_names().map_err(failed)?;
    Ok(out.end)
}

fn put_end(frame: &mut Vec<u8>, index: &Index, count: u64) {
    frame.put_u32(u32::MAX);
    frame.put_u64(count);
    frame.put_u32(length(index.segments.len()));
    for segment in index.segments.values() {
        frame.put_u32(segment.number);
        frame.put_u8(match segment.kind {
            Kind::Log => 0,
            Kind::Gathered { level } => level.max(1),
        });
        frame.put_u8(segment.index.get().is_some().into());
    }
}

/// The frame of small values begins with a one.
fn put_metas(frame: &mut Vec<u8>, index: &Index) {
    frame.put_u32(1);
    frame.put_u32(length(index.metas.len()));
    for ((namespace, key), value) in &index.metas {
        frame.put_text(namespace);
        frame.put_text(key);
        frame.put_bytes(value);
    }
}

struct Frames {
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Frames {
    fn put(&mut self, payload: &mut Vec<u8>, pace: &mut Pace) -> std::io::Result<()> {
        let mut head = Vec::with_capacity(8);
        head.put_u32(length(payload.len()));
        head.put_u32(crc32c::crc32c(payload));
        // Two writes: the payload may have megabytes, and copying them is not worth it.
        self.file.write_at(&head, self.end)?;
        self.file.write_at(payload, self.end + 8)?;
        self.end += 8 + payload.len() as u64;
        pace.spend(8 + payload.len() as u64);
        payload.clear();
        Ok(())
    }
}

/// Reads the checkpoint into an empty index; `None` if there is none yet.
pub(super) fn read(disk: &dyn Disk, names: &[String], index: &mut Index) -> Result<Option<Summary>, Error> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(None);
    }
    let failed = |error: std::io::Error| Error::io("cannot read the checkpoint", &error);
    let file = disk.open(NAME).map_err(failed)?;
    let mut bytes = vec![0; file.len().map_err(failed)? as usize];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    parse(bytes.into(), index).map(Some).ok_or_else(|| {
        Error::Corrupt(
            "the checkpoint of the stream store is damaged; restore the directory from a backup".into(),
        )
    })
}

fn parse(bytes: Bytes, index: &mut Index) -> Option<Summary> {
    let size = bytes.len() as u64;
    let mut file = Take::new(bytes);
    let mut begin = frame(&mut file)?;
    let version = begin.u32()?;
    if version != VERSION && version != VERSION_SHARED {
        return None;
    }
    let (segment, end, commit) = (begin.u32()?, begin.u64()?, begin.u64()?);
    let chain = if version == VERSION_SHARED { begin.u32()? } else { 0 };
    let position = Position { segment, end, commit, chain };
    (index.next_id, index.next_delivery, index.last_change) = (begin.u64()?, begin.u64()?, begin.u64()?);
    // A hint, and bounded by what the file could hold.
    index.reserve(begin.u64()?.min(size / 64) as usize);
    let mut count = 0u64;
    loop {
        let mut frame = frame(&mut file)?;
        let mut look = frame.clone();
        if look.u32()? == u32::MAX {
            let is_complete = look.u64()? == count;
            let segments = look.list(take_listed)?;
            return is_complete.then_some(Summary { position, segments });
        }
        if frame.clone().u32()? == 1 {
            take_metas(&mut frame, index)?;
        }
        while !frame.is_empty() {
            index.insert(take_stream(&mut frame)?);
            count += 1;
        }
    }
}

fn take_metas(frame: &mut Take, index: &mut Index) -> Option<()> {
    frame.u32()?;
    let metas = frame.list(|take| {
        let key = (take.text()?.to_owned(), take.text()?.to_owned());
        Some((key, Bytes::copy_from_slice(&take.sized_bytes()?)))
    })?;
    index.metas.extend(metas);
    Some(())
}

fn frame(file: &mut Take) -> Option<Take> {
    let bytes = file.u32()?;
    let sum = file.u32()?;
    let payload = file.bytes(bytes as usize)?;
    (crc32c::crc32c(&payload) == sum).then(|| Take::new(payload))
}

fn take_listed(take: &mut Take) -> Option<Listed> {
    let number = take.u32()?;
    let kind = match take.u8()? {
        0 => Kind::Log,
        level => Kind::Gathered { level },
    };
    Some(Listed { number, kind, has_index: take.flag()? })
}

/// A stream begins with a zero, the last frame with `u32::MAX`.
pub(super) fn put_stream(out: &mut Vec<u8>, stream: &Stream) {
    out.put_u32(0);
    out.put_u64(stream.id);
    out.put_name(&stream.name);
    out.put_text(stream.content_type.as_str());
    out.put_expiry(stream.expiry);
    out.put_u64(stream.created_at);
    out.put_u64(stream.used_at.load(Ordering::Relaxed));
    out.put_u64(stream.start);
    out.put_u64(stream.tail);
    out.put_u8(stream.closed.into());
    out.put_u8(stream.deleted.into());
    out.put_u32(length(stream.pieces.len()));
    for piece in stream.pieces.iter() {
        out.put_u64(piece.start);
        out.put_u32(piece.segment);
        out.put_u32(piece.at);
        out.put_u32(piece.bytes);
        out.put_u32(piece.listed);
    }
    out.put_option(stream.more.as_deref(), put_more);
}

pub(super) fn take_stream(take: &mut Take) -> Option<Stream> {
    if take.u32()? != 0 {
        return None;
    }
    let (id, name) = (take.u64()?, take.name()?);
    let content_type = take.content_type()?;
    let expiry = take.expiry()?;
    let (created_at, used_at) = (take.u64()?, take.u64()?);
    Some(Stream {
        id,
        name,
        content_type,
        expiry,
        created_at,
        used_at: AtomicU64::new(used_at),
        saved_at: AtomicU64::new(used_at),
        start: take.u64()?,
        tail: take.u64()?,
        closed: take.flag()?,
        deleted: take.flag()?,
        forks: 0,
        pieces: take_pieces(take)?,
        more: take.option(take_more)?.map(Box::new),
        live: Weak::new(),
    })
}

fn take_pieces(take: &mut Take) -> Option<Pieces> {
    let count = take.u32()?;
    let mut piece = || {
        Some(Piece {
            start: take.u64()?,
            segment: take.u32()?,
            at: take.u32()?,
            bytes: take.u32()?,
            listed: take.u32().filter(|listed| *listed != PACKED)?,
        })
    };
    (0..count).map(|_| piece()).collect()
}

fn put_more(out: &mut Vec<u8>, more: &More) {
    out.put_u32(length(more.producers.len()));
    for (id, accepted) in &more.producers {
        out.put_text(id);
        out.put_u64(accepted.epoch);
        out.put_u64(accepted.seq);
    }
    out.put_option(more.stream_seq.as_deref(), Vec::put_text);
    out.put_option(more.closed_by.as_deref(), Vec::put_producer);
    out.put_option(more.fork.as_deref(), |out, fork| fork.put(out));
    out.put_retention(more.retention);
    put_pairs(out, &more.marks);
    out.put_option(more.feed.as_deref(), put_feed);
    out.put_option(more.session.as_deref(), put_session);
}

fn take_more(take: &mut Take) -> Option<More> {
    let pair = |take: &mut Take| Some((take.u64()?, take.u64()?));
    let producers = take.list(|take| {
        let id = take.text()?.into();
        Some((id, Accepted { epoch: take.u64()?, seq: take.u64()? }))
    })?;
    Some(More {
        producers: producers.into_iter().collect(),
        stream_seq: take.option(|take| take.text().map(Into::into))?,
        closed_by: take.option(Take::producer)?.map(Box::new),
        fork: take.option(Fork::take)?.map(Box::new),
        retention: take.retention()?,
        marks: take.list(pair)?,
        feed: take.option(take_feed)?.map(Box::new),
        session: take.option(take_session)?.map(Box::new),
    })
}

fn put_feed(out: &mut Vec<u8>, feed: &Feed) {
    out.put_u64(feed.cursor);
    out.put_u64(feed.total);
    out.put_option(feed.envelopes, Vec::put_u64);
    out.put_option(feed.envelopes_of, Vec::put_u64);
    out.put_u32(length(feed.entries.len()));
    for Entry { first, last, from, to, before } in &feed.entries {
        [first, last, from, to, before].iter().for_each(|number| out.put_u64(**number));
    }
}

fn take_feed(take: &mut Take) -> Option<Feed> {
    Some(Feed {
        cursor: take.u64()?,
        total: take.u64()?,
        envelopes: take.option(Take::u64)?,
        envelopes_of: take.option(Take::u64)?,
        entries: take
            .list(|take| {
                Some(Entry {
                    first: take.u64()?,
                    last: take.u64()?,
                    from: take.u64()?,
                    to: take.u64()?,
                    before: take.u64()?,
                })
            })?
            .into(),
        ..Feed::default()
    })
}

fn put_session(out: &mut Vec<u8>, session: &Session) {
    out.put_u64(session.changed);
    out.put_u32(length(session.subs.len()));
    for Sub { source, feed, start, since, next } in &session.subs {
        [source, feed, start, since, next].iter().for_each(|number| out.put_u64(**number));
    }
    out.put_u32(length(session.views.len()));
    for View { start, feed, from } in &session.views {
        [start, feed, from].iter().for_each(|number| out.put_u64(**number));
    }
}

fn take_session(take: &mut Take) -> Option<Session> {
    Some(Session {
        changed: take.u64()?,
        subs: take.list(|take| {
            Some(Sub {
                source: take.u64()?,
                feed: take.u64()?,
                start: take.u64()?,
                since: take.u64()?,
                next: take.u64()?,
            })
        })?,
        views: take.list(|take| Some(View { start: take.u64()?, feed: take.u64()?, from: take.u64()? }))?,
        holds: Vec::new(),
    })
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[(u64, u64)]) {
    out.put_u32(length(pairs.len()));
    for (first, second) in pairs {
        out.put_u64(*first);
        out.put_u64(*second);
    }
}
