//! Records: what the log is made of, and what a commit consists of.
//!
//! A record carries everything that must become true together. It is whole or it is not there.
//! The committer alone writes records, and none is ever changed. Applying one twice is harmless;
//! each says below what makes it so. A record is dropped with its segment, once a checkpoint
//! covers it and compaction has moved its live blocks. See `README.md` in this directory.
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
    /// Creates a stream. Twice: the id is already there.
    Create(Box<CreateRecord>),
    /// Appends to a stream, closes it, or both. Twice: the tail is not at its start any more.
    Append(AppendRecord),
    /// Deletes streams, on request or by age. Twice: the second finds nothing to delete.
    Delete { ids: Vec<u64>, by_age: bool },
    /// Renews lives: stream and time of use. Twice: a time never goes back.
    Touch { uses: Vec<(u64, u64)> },
    /// Drops the oldest data of streams: stream and new start. Twice: a start never goes back.
    Trim { starts: Vec<(u64, u64)> },
    /// Sets the retention of a stream. Twice: the last one wins, and the replay ends with it.
    Retain { id: u64, retention: Retention },
    /// The tails of streams with an age limit at a time. Twice: an older mark adds nothing.
    Mark { at: u64, tails: Vec<(u64, u64)> },
    /// Starts a subscription, and creates the session if it is new. Twice: its number is known.
    Subscribe(Box<SubscribeRecord>),
    /// Ends a subscription. Twice: its number is known.
    Unsubscribe { change: u64, session: u64, source: u64 },
    /// Delivers a part of a source to its sessions. Twice: the cursor is not at its start any more.
    Advance(Box<AdvanceRecord>),
    /// Sets or removes a small value. Twice: the last one wins, and the replay ends with it.
    Meta { namespace: String, key: String, value: Option<Bytes> },
}

#[derive(Debug, Clone)]
pub(super) struct CreateRecord {
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

/// Where a fork leaves its origin, resolved.
#[derive(Debug, Clone)]
pub(super) struct Fork {
    pub(super) origin: u64,
    /// The oldest offset of the origin at that time: the fork begins there too.
    pub(super) start: u64,
    /// Bytes before it are the origin's, the rest are the fork's own.
    pub(super) position: u64,
    /// As it was asked for.
    pub(super) point: ForkPoint,
}

#[derive(Debug, Clone)]
pub(super) struct AppendRecord {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) start: u64,
    pub(super) close: bool,
    pub(super) producer: Option<Producer>,
    pub(super) stream_seq: Option<String>,
    pub(super) messages: Messages,
}

#[derive(Debug, Clone)]
pub(super) struct SubscribeRecord {
    /// The number of this change of subscriptions.
    pub(super) change: u64,
    pub(super) at: u64,
    pub(super) session: u64,
    /// The session's stream, if it is new.
    pub(super) create: Option<CreateRecord>,
    pub(super) source: u64,
    /// The source's tail: what is appended from there on is delivered.
    pub(super) start: u64,
    /// The stream to view: the source, or its envelope stream, which is created if need be.
    pub(super) feed: u64,
    /// The offset in it to pull next, or `NOT_STARTED`.
    pub(super) next: u64,
    /// The first subscriber moves the source's cursor here.
    pub(super) cursor: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct AdvanceRecord {
    /// The number of the delivery.
    pub(super) delivery: u64,
    pub(super) at: u64,
    pub(super) source: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The cursor passes it without a delivery.
    pub(super) skip: bool,
    /// The same in envelopes, if a subscriber wants them.
    pub(super) wrapped: Option<Wrapped>,
    /// The bytes from `from` to `to`, if they are in memory: for live followers, not written.
    pub(super) payload: Option<Messages>,
}

/// What is appended to the envelope stream of a source.
#[derive(Debug, Clone)]
pub(super) struct Wrapped {
    pub(super) stream: u64,
    pub(super) start: u64,
    pub(super) messages: Messages,
}

/// Bytes before a record's body.
pub(super) const HEAD_BYTES: usize = 17;

mod kind {
    pub(super) const CREATE: u8 = 1;
    pub(super) const APPEND: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const TOUCH: u8 = 4;
    pub(super) const TRIM: u8 = 6;
    pub(super) const RETAIN: u8 = 7;
    pub(super) const META: u8 = 8;
    pub(super) const MARK: u8 = 9;
    pub(super) const SUBSCRIBE: u8 = 16;
    pub(super) const UNSUBSCRIBE: u8 = 17;
    pub(super) const ADVANCE: u8 = 18;
}

/// A record read from the log.
#[derive(Debug)]
pub(super) struct LoggedRecord {
    pub(super) commit: u64,
    pub(super) record: Record,
    /// The position of its block in the record; 0 if it has none.
    pub(super) block: u32,
    /// The length of the whole record.
    pub(super) length: u32,
}

impl Record {
    /// Writes the record and answers the position of its block in it; 0 if it has none.
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
            Record::Create(create) => {
                out.put_u8(kind::CREATE);
                create.put(out);
                put_messages(out, start, &create.messages)
            }
            Record::Append(append) => {
                out.put_u8(kind::APPEND);
                out.put_u64(append.id);
                out.put_u64(append.at);
                out.put_u64(append.start);
                out.put_u8(append.close.into());
                out.put_option(append.producer.as_ref(), Vec::put_producer);
                out.put_option(append.stream_seq.as_deref(), Vec::put_text);
                put_messages(out, start, &append.messages)
            }
            Record::Delete { ids, by_age } => {
                out.put_u8(kind::DELETE);
                out.put_u8((*by_age).into());
                out.put_u32(length(ids.len()));
                ids.iter().for_each(|id| out.put_u64(*id));
                0
            }
            Record::Touch { uses } => {
                out.put_u8(kind::TOUCH);
                put_pairs(out, uses);
                0
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
            Record::Mark { at, tails } => {
                out.put_u8(kind::MARK);
                out.put_u64(*at);
                put_pairs(out, tails);
                0
            }
            Record::Subscribe(subscribe) => {
                out.put_u8(kind::SUBSCRIBE);
                subscribe.put(out);
                0
            }
            Record::Unsubscribe { change, session, source } => {
                out.put_u8(kind::UNSUBSCRIBE);
                [change, session, source].iter().for_each(|number| out.put_u64(**number));
                0
            }
            Record::Advance(advance) => {
                out.put_u8(kind::ADVANCE);
                advance.put(out, start)
            }
            Record::Meta { namespace, key, value } => {
                out.put_u8(kind::META);
                out.put_text(namespace);
                out.put_text(key);
                out.put_option(value.as_ref(), |out, value| out.put_bytes(value));
                0
            }
        }
    }

    /// Reads the record that begins `bytes`; `None` if there is no whole one.
    pub(super) fn take(bytes: &Bytes) -> Option<LoggedRecord> {
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
        take.is_empty().then(|| LoggedRecord { commit, record, block, length: length(end) })
    }
}

fn take_body(take: &mut Take, block: &mut u32) -> Option<Record> {
    Some(match take.u8()? {
        kind::CREATE => Record::Create(Box::new(CreateRecord::take(take, block)?)),
        kind::APPEND => Record::Append(AppendRecord {
            id: take.u64()?,
            at: take.u64()?,
            start: take.u64()?,
            close: take.flag()?,
            producer: take.option(Take::producer)?,
            stream_seq: take.option(|take| take.text().map(str::to_owned))?,
            messages: take_messages(take, block)?,
        }),
        kind::DELETE => Record::Delete { by_age: take.flag()?, ids: take.list(Take::u64)? },
        kind::TOUCH => Record::Touch { uses: take_pairs(take)? },
        kind::TRIM => Record::Trim { starts: take_pairs(take)? },
        kind::RETAIN => Record::Retain { id: take.u64()?, retention: take.retention()? },
        kind::MARK => Record::Mark { at: take.u64()?, tails: take_pairs(take)? },
        kind::SUBSCRIBE => Record::Subscribe(Box::new(SubscribeRecord::take(take)?)),
        kind::UNSUBSCRIBE => {
            Record::Unsubscribe { change: take.u64()?, session: take.u64()?, source: take.u64()? }
        }
        kind::ADVANCE => Record::Advance(Box::new(AdvanceRecord::take(take, block)?)),
        kind::META => Record::Meta {
            namespace: take.text()?.to_owned(),
            key: take.text()?.to_owned(),
            value: take.option(Take::sized_bytes)?,
        },
        _ => return None,
    })
}

impl CreateRecord {
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

    fn take(take: &mut Take, block: &mut u32) -> Option<CreateRecord> {
        let head = CreateRecord::take_head(take)?;
        Some(CreateRecord { messages: take_messages(take, block)?, ..head })
    }

    /// Everything but the first messages.
    fn take_head(take: &mut Take) -> Option<CreateRecord> {
        Some(CreateRecord {
            id: take.u64()?,
            at: take.u64()?,
            name: take.name()?,
            content_type: take.content_type()?,
            expiry: take.expiry()?,
            closed: take.flag()?,
            retention: take.retention()?,
            fork: take.option(Fork::take)?,
            messages: Messages::default(),
        })
    }
}

impl SubscribeRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let SubscribeRecord { change, at, session, source, start, feed, next, .. } = self;
        [change, at, session, source, start, feed, next].iter().for_each(|number| out.put_u64(**number));
        out.put_option(self.cursor, Vec::put_u64);
        out.put_option(self.create.as_ref(), |out, create| create.put(out));
    }

    fn take(take: &mut Take) -> Option<SubscribeRecord> {
        Some(SubscribeRecord {
            change: take.u64()?,
            at: take.u64()?,
            session: take.u64()?,
            source: take.u64()?,
            start: take.u64()?,
            feed: take.u64()?,
            next: take.u64()?,
            cursor: take.option(Take::u64)?,
            create: take.option(CreateRecord::take_head)?,
        })
    }
}

impl AdvanceRecord {
    fn put(&self, out: &mut Vec<u8>, start: usize) -> u32 {
        let AdvanceRecord { delivery, at, source, from, to, .. } = self;
        [delivery, at, source, from, to].iter().for_each(|number| out.put_u64(**number));
        out.put_u8(self.skip.into());
        out.put_u8(self.wrapped.is_some().into());
        let Some(Wrapped { stream, start: begin, messages }) = &self.wrapped else { return 0 };
        out.put_u64(*stream);
        out.put_u64(*begin);
        put_messages(out, start, messages)
    }

    fn take(take: &mut Take, block: &mut u32) -> Option<AdvanceRecord> {
        Some(AdvanceRecord {
            delivery: take.u64()?,
            at: take.u64()?,
            source: take.u64()?,
            from: take.u64()?,
            to: take.u64()?,
            skip: take.flag()?,
            wrapped: take.option(|take| {
                Some(Wrapped {
                    stream: take.u64()?,
                    start: take.u64()?,
                    messages: take_messages(take, block)?,
                })
            })?,
            payload: None,
        })
    }
}

impl Fork {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.origin);
        out.put_u64(self.start);
        out.put_u64(self.position);
        out.put_name(&self.point.origin);
        out.put_option(self.point.offset, |out, offset| out.put_u64(offset.bytes()));
        out.put_u64(self.point.sub_offset);
    }

    pub(super) fn take(take: &mut Take) -> Option<Fork> {
        Some(Fork {
            origin: take.u64()?,
            start: take.u64()?,
            position: take.u64()?,
            point: ForkPoint {
                origin: take.name()?,
                offset: take
                    .option(|take| take.u64().filter(|it| *it <= Offset::MAX.bytes()))?
                    .map(Offset::new),
                sub_offset: take.u64()?,
            },
        })
    }
}

fn put_messages(out: &mut Vec<u8>, start: usize, messages: &Messages) -> u32 {
    out.put_u8(u8::from(!messages.is_empty()));
    if messages.is_empty() {
        return 0;
    }
    let block = length(out.len() - start);
    put_block(out, messages);
    block
}

fn take_messages(take: &mut Take, block: &mut u32) -> Option<Messages> {
    if !take.flag()? {
        return Some(Messages::default());
    }
    *block = length(take.position());
    take_block(take).filter(|messages| !messages.is_empty())
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
        let numbers = || prop::array::uniform5(any::<u64>());
        let wrapped = prop::option::of((any::<(u64, u64)>(), messages()));
        let create = prop::option::of((any::<(u64, u64)>(), "[a-z]{1,9}", 0..99u64));
        prop_oneof![
            append.prop_map(|((id, at, start, close), producer, stream_seq, messages)| {
                Record::Append(AppendRecord { id, at, start, close, producer, stream_seq, messages })
            }),
            (numbers(), any::<bool>(), wrapped).prop_map(
                |([delivery, at, source, from, to], skip, wrapped)| {
                    let wrapped =
                        wrapped.map(|((stream, start), messages)| Wrapped { stream, start, messages });
                    let payload = None;
                    Record::Advance(Box::new(AdvanceRecord {
                        delivery,
                        at,
                        source,
                        from,
                        to,
                        skip,
                        wrapped,
                        payload,
                    }))
                }
            ),
            (numbers(), any::<(u64, u64, Option<u64>)>(), create).prop_map(
                |([change, at, session, source, start], (feed, next, cursor), create)| {
                    let create = create.map(|((id, at), id_text, seconds)| CreateRecord {
                        id,
                        at,
                        name: StreamName::session("p", &id_text).unwrap(),
                        content_type: ContentType::default(),
                        expiry: Expiry::Sliding { seconds },
                        closed: false,
                        retention: Retention::default(),
                        fork: None,
                        messages: Messages::default(),
                    });
                    Record::Subscribe(Box::new(SubscribeRecord {
                        change,
                        at,
                        session,
                        create,
                        source,
                        start,
                        feed,
                        next,
                        cursor,
                    }))
                }
            ),
            any::<(u64, u64, u64)>().prop_map(|(change, session, source)| Record::Unsubscribe {
                change,
                session,
                source
            }),
            (".{0,9}", ".{0,9}", prop::option::of(prop::collection::vec(any::<u8>(), 0..30))).prop_map(
                |(namespace, key, value)| Record::Meta { namespace, key, value: value.map(Bytes::from) }
            ),
            pairs.clone().prop_map(|uses| Record::Touch { uses }),
            pairs.clone().prop_map(|starts| Record::Trim { starts }),
            (any::<u64>(), pairs).prop_map(|(at, tails)| Record::Mark { at, tails }),
            (prop::collection::vec(any::<u64>(), 0..9), any::<bool>())
                .prop_map(|(ids, by_age)| Record::Delete { ids, by_age }),
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
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..20u8) {
            drop(Record::take(&Bytes::from(bytes.clone())));
            drop(super::super::codec::parse_block(&Bytes::from(bytes.clone())));
            drop(take_body(&mut Take::new([&[kind], &bytes[..]].concat().into()), &mut 0));
        }
    }
}
