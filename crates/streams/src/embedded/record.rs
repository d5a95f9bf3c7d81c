//! Records: what the log is made of.
//!
//! A record carries everything that must be true together: payload, producer, sequence,
//! end, and the time that renews a life. It is whole or it is not there.
//!
//! ```text
//! body bytes u32 │ crc32c of the rest u32 │ commit u64 │ kind u8 │ body
//! ```

use bytes::Bytes;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Offset;
use towpath_model::stream::producer::Producer;
use towpath_model::stream::state::ForkPoint;

use super::codec::{Put, Take, length, put_block, take_block};
use crate::{Messages, Retention};

/// One change of the store.
#[derive(Debug, Clone)]
pub(super) enum Record {
    /// A stream begins.
    Create(Box<Birth>),
    /// A stream grows, ends, or both.
    Append(Append),
    /// Streams end, by wish or by age.
    Delete { ids: Vec<u64> },
    /// Lives were renewed by reading: stream and time.
    Touch { uses: Vec<(u64, u64)> },
    /// One payload for many streams: each with the offset it gets there.
    Deliver(Deliver),
    /// Streams lost their beginning: stream and new start.
    Trim { starts: Vec<(u64, u64)> },
    /// A stream's retention was set.
    Retain { id: u64, retention: Retention },
}

#[derive(Debug, Clone)]
pub(super) struct Birth {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) name: StreamName,
    pub(super) content_type: ContentType,
    pub(super) expiry: Expiry,
    pub(super) closed: bool,
    pub(super) retention: Retention,
    pub(super) fork: Option<Fork>,
    pub(super) messages: Messages,
}

/// Where a fork leaves its source, resolved.
#[derive(Debug, Clone)]
pub(super) struct Fork {
    pub(super) source: u64,
    /// The source's oldest offset at that time: the fork begins there too.
    pub(super) start: u64,
    /// Below it the source is read, from it on the fork.
    pub(super) position: u64,
    /// As it was asked for.
    pub(super) point: ForkPoint,
}

#[derive(Debug, Clone)]
pub(super) struct Append {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) start: u64,
    pub(super) close: bool,
    pub(super) producer: Option<Producer>,
    pub(super) stream_seq: Option<String>,
    pub(super) messages: Messages,
}

#[derive(Debug, Clone)]
pub(super) struct Deliver {
    pub(super) source: u64,
    pub(super) source_offset: u64,
    pub(super) at: u64,
    pub(super) messages: Messages,
    pub(super) targets: Vec<(u64, u64)>,
}

/// Bytes before a record's body.
pub(super) const HEAD_BYTES: usize = 17;

mod kind {
    pub(super) const CREATE: u8 = 1;
    pub(super) const APPEND: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const TOUCH: u8 = 4;
    pub(super) const DELIVER: u8 = 5;
    pub(super) const TRIM: u8 = 6;
    pub(super) const RETAIN: u8 = 7;
    // 16 to 23 are kept for fan-out: subscribe, unsubscribe, cursor.
}

/// A record found in the log.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) commit: u64,
    pub(super) record: Record,
    /// Where its block begins, counted from the record's first byte; 0 if it has none.
    pub(super) block: u32,
    /// How long the whole record is.
    pub(super) length: u32,
}

impl Record {
    /// Writes the record and answers where its block begins, counted from the record's
    /// first byte; 0 if it has none.
    pub(super) fn put(&self, out: &mut Vec<u8>, commit: u64) -> u32 {
        let start = out.len();
        out.put_u32(0);
        out.put_u32(0);
        out.put_u64(commit);
        let block = self.put_body(out, start);
        let body = length(out.len() - start - HEAD_BYTES);
        out[start..start + 4].copy_from_slice(&body.to_le_bytes());
        let sum = crc32c::crc32c(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    fn put_body(&self, out: &mut Vec<u8>, start: usize) -> u32 {
        match self {
            Record::Create(birth) => {
                out.put_u8(kind::CREATE);
                birth.put(out);
                put_messages(out, start, &birth.messages, false)
            }
            Record::Append(append) => {
                out.put_u8(kind::APPEND);
                out.put_u64(append.id);
                out.put_u64(append.at);
                out.put_u64(append.start);
                out.put_u8(append.close.into());
                out.put_option(append.producer.as_ref(), Vec::put_producer);
                out.put_option(append.stream_seq.as_deref(), Vec::put_text);
                put_messages(out, start, &append.messages, false)
            }
            Record::Delete { ids } => {
                out.put_u8(kind::DELETE);
                out.put_u32(length(ids.len()));
                ids.iter().for_each(|id| out.put_u64(*id));
                0
            }
            Record::Touch { uses } => {
                out.put_u8(kind::TOUCH);
                put_pairs(out, uses);
                0
            }
            Record::Deliver(deliver) => {
                out.put_u8(kind::DELIVER);
                out.put_u64(deliver.source);
                out.put_u64(deliver.source_offset);
                out.put_u64(deliver.at);
                let block = put_messages(out, start, &deliver.messages, deliver.targets.len() > 1);
                put_pairs(out, &deliver.targets);
                block
            }
            Record::Trim { starts } => {
                out.put_u8(kind::TRIM);
                put_pairs(out, starts);
                0
            }
            Record::Retain { id, retention } => {
                out.put_u8(kind::RETAIN);
                out.put_u64(*id);
                out.put_retention(*retention);
                0
            }
        }
    }

    /// Reads the record that begins `bytes`; `None` if there is no whole one.
    pub(super) fn take(bytes: &Bytes) -> Option<Found> {
        let body = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let sum = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let end = HEAD_BYTES.checked_add(body)?;
        if crc32c::crc32c(bytes.get(8..end)?) != sum {
            return None;
        }
        let mut take = Take::new(bytes.slice(..end));
        take.bytes(8)?;
        let commit = take.u64()?;
        let mut block = 0;
        let record = take_body(&mut take, &mut block)?;
        take.is_empty().then(|| Found { commit, record, block, length: length(end) })
    }
}

fn take_body(take: &mut Take, block: &mut u32) -> Option<Record> {
    Some(match take.u8()? {
        kind::CREATE => Record::Create(Box::new(Birth::take(take, block)?)),
        kind::APPEND => Record::Append(Append {
            id: take.u64()?,
            at: take.u64()?,
            start: take.u64()?,
            close: take.flag()?,
            producer: take.option(Take::producer)?,
            stream_seq: take.option(|take| take.text().map(str::to_owned))?,
            messages: take_messages(take, block)?,
        }),
        kind::DELETE => Record::Delete { ids: take.list(Take::u64)? },
        kind::TOUCH => Record::Touch { uses: take_pairs(take)? },
        kind::DELIVER => Record::Deliver(Deliver {
            source: take.u64()?,
            source_offset: take.u64()?,
            at: take.u64()?,
            messages: take_messages(take, block)?,
            targets: take_pairs(take)?,
        }),
        kind::TRIM => Record::Trim { starts: take_pairs(take)? },
        kind::RETAIN => Record::Retain { id: take.u64()?, retention: take.retention()? },
        _ => return None,
    })
}

impl Birth {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id);
        out.put_u64(self.at);
        out.put_name(&self.name);
        out.put_text(self.content_type.as_str());
        out.put_expiry(self.expiry);
        out.put_u8(self.closed.into());
        out.put_retention(self.retention);
        out.put_option(self.fork.as_ref(), |out, fork| fork.put(out));
    }

    fn take(take: &mut Take, block: &mut u32) -> Option<Birth> {
        Some(Birth {
            id: take.u64()?,
            at: take.u64()?,
            name: take.name()?,
            content_type: ContentType::parse(take.text()?)?,
            expiry: take.expiry()?,
            closed: take.flag()?,
            retention: take.retention()?,
            fork: take.option(Fork::take)?,
            messages: take_messages(take, block)?,
        })
    }
}

impl Fork {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.source);
        out.put_u64(self.start);
        out.put_u64(self.position);
        out.put_name(&self.point.source);
        out.put_option(self.point.offset, |out, offset| out.put_u64(offset.bytes()));
        out.put_u64(self.point.sub_offset);
    }

    pub(super) fn take(take: &mut Take) -> Option<Fork> {
        Some(Fork {
            source: take.u64()?,
            start: take.u64()?,
            position: take.u64()?,
            point: ForkPoint {
                source: take.name()?,
                offset: take
                    .option(|take| take.u64().filter(|it| *it <= Offset::MAX.bytes()))?
                    .map(Offset::new),
                sub_offset: take.u64()?,
            },
        })
    }
}

fn put_messages(out: &mut Vec<u8>, start: usize, messages: &Messages, is_shared: bool) -> u32 {
    out.put_u8(u8::from(!messages.is_empty()));
    if messages.is_empty() {
        return 0;
    }
    let block = length(out.len() - start);
    put_block(out, messages, is_shared);
    block
}

fn take_messages(take: &mut Take, block: &mut u32) -> Option<Messages> {
    if !take.flag()? {
        return Some(Messages::default());
    }
    *block = length(take.position());
    take_block(take)
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[(u64, u64)]) {
    out.put_u32(length(pairs.len()));
    out.reserve(pairs.len() * 16);
    for (first, second) in pairs {
        out.put_u64(*first);
        out.put_u64(*second);
    }
}

fn take_pairs(take: &mut Take) -> Option<Vec<(u64, u64)>> {
    take.list(|take| Some((take.u64()?, take.u64()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Messages> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..5).prop_map(|all| {
            let ends = all.iter().scan(0, |end, message| {
                *end += length(message.len());
                Some(*end)
            });
            Messages { ends: ends.collect(), data: all.concat().into() }
        })
    }

    fn record() -> impl Strategy<Value = Record> {
        let producer = (".{1,9}", any::<u64>(), any::<u64>());
        let producer = producer.prop_map(|(id, epoch, seq)| Producer { id: id.into(), epoch, seq });
        let pairs = prop::collection::vec(any::<(u64, u64)>(), 0..9);
        let append = (
            any::<(u64, u64, u64, bool)>(),
            prop::option::of(producer),
            prop::option::of(".{0,9}"),
            messages(),
        );
        prop_oneof![
            append.prop_map(|((id, at, start, close), producer, stream_seq, messages)| {
                Record::Append(Append { id, at, start, close, producer, stream_seq, messages })
            }),
            (any::<(u64, u64, u64)>(), messages(), pairs.clone()).prop_map(
                |((source, source_offset, at), messages, targets)| {
                    Record::Deliver(Deliver { source, source_offset, at, messages, targets })
                }
            ),
            pairs.clone().prop_map(|uses| Record::Touch { uses }),
            pairs.prop_map(|starts| Record::Trim { starts }),
            prop::collection::vec(any::<u64>(), 0..9).prop_map(|ids| Record::Delete { ids }),
            (any::<(u64, Option<u64>, Option<u64>)>()).prop_map(|(id, age_seconds, bytes)| {
                Record::Retain { id, retention: Retention { age_seconds, bytes } }
            }),
        ]
    }

    proptest! {
        /// What is read back is what was written, and its block can be read alone.
        #[test]
        fn records_come_back(record in record(), commit: u64) {
            let mut bytes = Vec::new();
            let block = record.put(&mut bytes, commit);
            let found = Record::take(&Bytes::from(bytes.clone())).unwrap();
            prop_assert_eq!((found.commit, found.block, found.length as usize), (commit, block, bytes.len()));
            prop_assert_eq!(format!("{:?}", found.record), format!("{:?}", record));
        }

        /// A record with any byte changed, or cut anywhere, is no record.
        #[test]
        fn broken_records_are_none(record in record(), commit: u64, at: prop::sample::Index, bit in 0..8u8) {
            let mut bytes = Vec::new();
            record.put(&mut bytes, commit);
            let at = at.index(bytes.len());
            prop_assert!(Record::take(&Bytes::copy_from_slice(&bytes[..at])).is_none());
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::take(&Bytes::from(bytes)).is_none());
        }

        /// Whatever the bytes are, reading them neither panics nor takes memory.
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..9u8) {
            drop(Record::take(&Bytes::from(bytes.clone())));
            drop(super::super::codec::parse_block(&Bytes::from(bytes.clone())));
            drop(take_body(&mut Take::new([&[kind], &bytes[..]].concat().into()), &mut 0));
        }
    }
}
