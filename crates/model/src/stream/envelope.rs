//! Envelopes: a value with its stream and offset, for sessions that follow several sources.
//!
//! ```text
//! {"stream":"room:7","offset":"0000000000000000_0000000000000042","data":{"text":"hi"}}
//! ```
//!
//! `offset` is the one after the value: reading the source from there gives the next value.

use super::json::Run;
use super::offset::Offset;

/// What an envelope adds to a value at most, apart from the name of the stream.
pub const OVERHEAD_BYTES: usize = 64;

/// Puts stored values (see `json`) of a source into envelopes, stored the same way. `start` is the
/// source's offset of the first value, `ends` are the positions in `data` where values end.
pub fn wrap(stream: &str, start: Offset, data: &[u8], ends: &[u32]) -> Run {
    let name = serde_json::Value::from(stream).to_string();
    let room = data.len() + ends.len() * (name.len() + OVERHEAD_BYTES);
    let mut run = Run { data: Vec::with_capacity(room), ends: Vec::with_capacity(ends.len()) };
    let mut begin = 0;
    for end in ends.iter().map(|end| *end as usize) {
        let value = &data[begin..end];
        let value = value.strip_suffix(b",").unwrap_or(value);
        let offset = start.plus(end as u64);
        run.data
            .extend_from_slice(format!("{{\"stream\":{name},\"offset\":\"{offset}\",\"data\":").as_bytes());
        run.data.extend_from_slice(value);
        run.data.extend_from_slice(b"},");
        run.ends.push(u32::try_from(run.data.len()).expect("callers wrap far less than 4 GiB at once"));
        begin = end;
    }
    run
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::json::flatten;
    use super::*;

    proptest! {
        /// F01: whatever the value and the name, the envelope holds both and is JSON.
        #[test]
        fn envelopes_hold_what_was_put_in(
            stream in ".{1,12}",
            start in 0..1_000_000u64,
            texts in prop::collection::vec(".{0,9}", 1..5),
        ) {
            let values: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
            let stored = flatten(Value::from(values.clone()).to_string().as_bytes()).unwrap();
            let run = wrap(&stream, Offset::new(start), &stored.data, &stored.ends);
            prop_assert!(run.data.len() <= stored.data.len() + stored.ends.len() * (6 * stream.len() + 2 + OVERHEAD_BYTES));
            let mut begin = 0;
            for (number, end) in run.ends.iter().enumerate() {
                let text = run.data[begin..*end as usize].strip_suffix(b",").unwrap();
                let envelope: Value = serde_json::from_slice(text).unwrap();
                let offset = Offset::new(start + u64::from(stored.ends[number])).to_string();
                prop_assert_eq!(envelope, json!({ "stream": &stream, "offset": offset, "data": &values[number] }));
                begin = *end as usize;
            }
            prop_assert_eq!(begin, run.data.len());
        }
    }
}
