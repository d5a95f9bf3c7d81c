//! JSON mode: splitting and joining preserves the values, compared with serde_json.

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::stream::content_type::Mode;
use crate::stream::json::{Invalid, flatten};
use crate::stream::offset::Offset;
use crate::stream::sse::{self, Form};

/// A byte that determines the page cuts, and a body.
pub fn json(data: &[u8]) {
    let Some((cut, body)) = data.split_first() else { return };
    let read = serde_json::from_slice::<Value>(body).ok();
    let run = match flatten(body) {
        Ok(run) => run,
        Err(Invalid::Empty) => return assert_eq!(read, Some(Value::Array(vec![])), "only [] is empty"),
        Err(Invalid::Syntax) => return assert_eq!(read, None, "a JSON text was refused"),
    };
    assert!(serde_json::from_slice::<IgnoredAny>(body).is_ok(), "what is no JSON text was taken");
    let raw: Vec<&str> = values(&run.data, &run.ends);
    // Each stored value is one JSON text.
    for text in &raw {
        let value: &RawValue = serde_json::from_str(text).expect("a stored value is JSON");
        assert_eq!(value.get(), *text, "there is nothing around a value");
    }
    // Any run of them in brackets is an array, and the pages together hold all of them.
    let at = usize::from(*cut) % (raw.len() + 1);
    let cut = at.checked_sub(1).map_or(0, |before| run.ends[before] as usize);
    let pages = [page(&run.data[..cut]), page(&run.data[cut..])].concat();
    assert_eq!(pages, raw, "pages lost or changed something");
    // The values equal serde_json's. It refuses some that are too large for it.
    if let Some(read) = read {
        let expected = if let Value::Array(all) = read { all } else { vec![read] };
        let found: Vec<Value> =
            raw.iter().map(|text| serde_json::from_str(text).expect("read once")).collect();
        assert_eq!(found, expected);
    }
    events(&run.data, cut, &raw);
}

fn values<'a>(data: &'a [u8], ends: &[u32]) -> Vec<&'a str> {
    let mut from = 0;
    let all = ends.iter().map(|end| {
        let value = data[from..*end as usize].strip_suffix(b",").expect("a value ends with its comma");
        from = *end as usize;
        std::str::from_utf8(value).expect("JSON is UTF-8")
    });
    let all = all.collect();
    assert_eq!(from, data.len(), "the last end is the length");
    all
}

/// A page as a reader parses it.
fn page(stored: &[u8]) -> Vec<String> {
    let run = stored.strip_suffix(b",").unwrap_or(stored);
    let array = [b"[", run, b"]"].concat();
    let values: Vec<&RawValue> = serde_json::from_slice(&array).expect("a page is an array");
    values.iter().map(|value| value.get().to_owned()).collect()
}

/// S02: an event carries the same values however its bytes are cut, and no value ends it early.
fn events(stored: &[u8], cut: usize, raw: &[&str]) {
    let pieces: Vec<&[u8]> =
        [&stored[..cut], &stored[cut..]].into_iter().filter(|piece| !piece.is_empty()).collect();
    let mut out = vec![];
    sse::write_data(&mut out, Form::Batches, Mode::Json, Offset::ZERO, &pieces);
    let text = std::str::from_utf8(&out).expect("JSON is UTF-8");
    let lines = text.strip_prefix("event: data\nid:").and_then(|text| text.strip_suffix("\n\n"));
    let lines = lines.expect("an event begins and ends as one").split('\n').skip(1);
    let data: Vec<&str> = lines.map(|line| line.strip_prefix("data:").expect("only data")).collect();
    let data = data.join("\n");
    let values: Vec<&RawValue> = serde_json::from_str(&data).expect("an event is an array");
    assert_eq!(values.len(), raw.len());
    let plain = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n");
    assert!(values.iter().zip(raw).all(|(value, raw)| value.get() == plain(raw)), "an event changed a value");
}
