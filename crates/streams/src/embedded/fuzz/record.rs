//! Records and streams of a checkpoint: what is read is written back as the same bytes.

use bytes::Bytes;

use crate::embedded::checkpoint::{put_stream, take_stream};
use crate::embedded::codec::{Take, parse_block};
use crate::embedded::record::{HEAD_BYTES, Record};

/// Any bytes: as a record's kind and body, as a whole record, as a stream of a checkpoint.
pub fn record(data: &[u8]) {
    let whole = with_head(data);
    if let Some(record) = Record::take(&whole) {
        assert_eq!(record.length as usize, whole.len());
        same(&whole, &record.record, record.block);
    }
    if let Some(found) = Record::take(&Bytes::copy_from_slice(data)) {
        same(&Bytes::copy_from_slice(&data[..found.length as usize]), &found.record, found.block);
    }
    stream(data);
}

/// A record with a head that fits.
fn with_head(data: &[u8]) -> Bytes {
    let body = u32::try_from(data.len().saturating_sub(1)).expect("inputs are short");
    let rest = [&7u64.to_le_bytes(), data].concat();
    [&body.to_le_bytes()[..], &crc32c::crc32c(&rest).to_le_bytes(), &rest].concat().into()
}

fn same(bytes: &Bytes, record: &Record, block: u32) {
    let commit = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let mut again = Vec::new();
    assert_eq!(record.put(&mut again, commit), block);
    // The checksum of a block is only checked when the block is read alone.
    let sum = if block > 0 { block as usize..block as usize + 4 } else { HEAD_BYTES..HEAD_BYTES };
    assert_eq!(again.len(), bytes.len(), "{record:?} is written shorter or longer");
    assert_eq!(again[8..sum.start.max(8)], bytes[8..sum.start.max(8)], "{record:?} is written otherwise");
    assert_eq!(again[sum.end..], bytes[sum.end..], "{record:?} is written otherwise");
    let again = Bytes::from(again);
    let back = Record::take(&again).expect("what was written is read");
    assert_eq!(format!("{:?}", back.record), format!("{record:?}"));
    if block > 0 {
        assert!(parse_block(&again.slice(block as usize..)).is_some(), "a block is read alone");
    }
    for cut in 1..again.len().min(40) {
        assert!(Record::take(&again.slice(..again.len() - cut)).is_none(), "a part of a record is one");
    }
}

fn stream(data: &[u8]) {
    let mut take = Take::new(Bytes::copy_from_slice(data));
    let Some(stream) = take_stream(&mut take) else { return };
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    put_stream(&mut once, &stream);
    let mut take = Take::new(once.clone().into());
    let back = take_stream(&mut take).expect("what was written is read");
    assert!(take.is_empty(), "something is left");
    put_stream(&mut twice, &back);
    assert_eq!(once, twice);
}
