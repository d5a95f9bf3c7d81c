//! Numbers and texts as bytes: little-endian, lengths first.
//!
//! Reading never trusts a length: what does not fit is `None`, which means the end of the log or
//! a corrupt file to the caller.

use bytes::Bytes;
use jiff::Timestamp;
use towpath_model::stream::content_type::ContentType;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::producer::Producer;

use crate::{Messages, Retention};

/// Appends values to a buffer.
pub(super) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_text(&mut self, text: &str);
    fn put_bytes(&mut self, bytes: &[u8]);
    fn put_name(&mut self, name: &StreamName);
    fn put_expiry(&mut self, expiry: Expiry);
    fn put_retention(&mut self, retention: Retention);
    fn put_producer(&mut self, producer: &Producer);
    fn put_option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T));
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(length(bytes.len()));
        self.extend_from_slice(bytes);
    }

    fn put_name(&mut self, name: &StreamName) {
        self.put_text(&name.project);
        self.put_text(&name.id);
    }

    fn put_expiry(&mut self, expiry: Expiry) {
        match expiry {
            Expiry::Never => self.put_u8(0),
            Expiry::Sliding { seconds } => {
                self.put_u8(1);
                self.put_u64(seconds);
            }
            Expiry::At(at) => {
                self.put_u8(2);
                self.extend_from_slice(&at.as_second().to_le_bytes());
                self.extend_from_slice(&at.subsec_nanosecond().to_le_bytes());
            }
        }
    }

    fn put_retention(&mut self, retention: Retention) {
        self.put_option(retention.age_seconds, Vec::put_u64);
        self.put_option(retention.bytes, Vec::put_u64);
    }

    fn put_producer(&mut self, producer: &Producer) {
        self.put_text(&producer.id);
        self.put_u64(producer.epoch);
        self.put_u64(producer.seq);
    }

    fn put_option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.put_u8(value.is_some().into());
        if let Some(value) = value {
            put(self, value);
        }
    }
}

/// A length, which limits.rs keeps below 4 GiB.
pub(super) fn length(length: usize) -> u32 {
    u32::try_from(length).expect("lengths are bounded far below 4 GiB (limits.rs)")
}

/// Takes values from bytes.
#[derive(Clone)]
pub(super) struct Take {
    bytes: Bytes,
    position: usize,
}

impl Take {
    pub(super) fn new(bytes: Bytes) -> Take {
        Take { bytes, position: 0 }
    }

    /// How much has been taken.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<Bytes> {
        let end = self.position.checked_add(count).filter(|end| *end <= self.bytes.len())?;
        let taken = self.bytes.slice(self.position..end);
        self.position = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let end = self.position.checked_add(N)?;
        let taken = self.bytes.get(self.position..end)?.try_into().ok()?;
        self.position = end;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn text(&mut self) -> Option<&str> {
        let count = self.u32()? as usize;
        let start = self.position;
        self.position = start.checked_add(count)?;
        std::str::from_utf8(self.bytes.get(start..self.position)?).ok()
    }

    pub(super) fn sized_bytes(&mut self) -> Option<Bytes> {
        let count = self.u32()? as usize;
        self.bytes(count)
    }

    pub(super) fn name(&mut self) -> Option<StreamName> {
        Some(StreamName { project: self.text()?.into(), id: self.text()?.into() })
    }

    /// Only the exact text that was put is valid.
    pub(super) fn content_type(&mut self) -> Option<ContentType> {
        let text = self.text()?;
        ContentType::parse(text).filter(|parsed| parsed.as_str() == text)
    }

    pub(super) fn expiry(&mut self) -> Option<Expiry> {
        match self.u8()? {
            0 => Some(Expiry::Never),
            1 => Some(Expiry::Sliding { seconds: self.u64()? }),
            2 => {
                let second = self.array().map(i64::from_le_bytes)?;
                let nanosecond = self.array().map(i32::from_le_bytes)?;
                // A time has one form here; the library would accept others too.
                let at = Timestamp::new(second, nanosecond).ok()?;
                let is_same = (at.as_second(), at.subsec_nanosecond()) == (second, nanosecond);
                is_same.then_some(Expiry::At(at))
            }
            _ => None,
        }
    }

    pub(super) fn retention(&mut self) -> Option<Retention> {
        Some(Retention { age_seconds: self.option(Take::u64)?, bytes: self.option(Take::u64)? })
    }

    pub(super) fn producer(&mut self) -> Option<Producer> {
        Some(Producer { id: self.text()?.into(), epoch: self.u64()?, seq: self.u64()? })
    }

    pub(super) fn option<T>(&mut self, take: impl FnOnce(&mut Take) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { take(self).map(Some) } else { Some(None) }
    }

    /// A list. Its count is checked against what is left, so that a wrong one reserves no memory.
    pub(super) fn list<T>(&mut self, take: impl Fn(&mut Take) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()? as usize;
        if count > self.bytes.len() - self.position {
            return None;
        }
        (0..count).map(|_| take(self)).collect()
    }
}

/// A block: messages with a checksum of their own, so that they can be read alone.
///
/// ```text
/// crc32c u32 │ count u32 │ bytes u32 │ ends u32 × count │ bytes
/// ```
pub(super) fn put_block(out: &mut Vec<u8>, messages: &Messages) {
    let start = out.len();
    out.put_u32(0);
    out.put_u32(length(messages.ends.len()));
    out.put_u32(length(messages.data.len()));
    for end in &messages.ends {
        out.put_u32(*end);
    }
    out.extend_from_slice(&messages.data);
    let sum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

/// How long a block of these messages is.
pub(super) fn block_length(messages: &Messages) -> u32 {
    length(12 + 4 * messages.ends.len() + messages.data.len())
}

/// Reads a block whose record was checked already.
pub(super) fn take_block(take: &mut Take) -> Option<Messages> {
    let _sum = take.u32()?;
    let count = take.u32()? as usize;
    let bytes = take.u32()?;
    let raw = take.bytes(count.checked_mul(4)?)?;
    let ends: Vec<u32> = raw
        .chunks_exact(4)
        .map(|end| u32::from_le_bytes(end.try_into().expect("chunks of four have four bytes")))
        .collect();
    let rises = ends.is_sorted() && ends.last().copied().unwrap_or(0) == bytes;
    let data = take.bytes(bytes as usize)?;
    rises.then_some(Messages { data, ends })
}

/// Reads and checks a block that fills `bytes`.
pub(super) fn parse_block(bytes: &Bytes) -> Option<Messages> {
    let sum = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    if crc32c::crc32c(&bytes[4..]) != sum {
        return None;
    }
    let mut take = Take::new(bytes.clone());
    let messages = take_block(&mut take)?;
    take.is_empty().then_some(messages)
}
