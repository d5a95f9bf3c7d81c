//! Parses appends and queries for the targets in `http1::fuzz`.

use bytes::Bytes;
use towpath_model::stream::content_type::{ContentType, Mode};
use towpath_model::stream::name::encode;
use towpath_streams::Append;

use super::append::read;
use super::request::{Fields, query};
use crate::limits::SEQ_BYTES_MAX;

/// The append in these headers and this body, or its refusal.
pub(crate) fn append(fields: &impl Fields, body: &[u8]) -> String {
    let append = read(fields, Bytes::copy_from_slice(body));
    if let Ok(append) = &append {
        holds(append, body);
    }
    format!("{append:?}")
}

/// S06: an accepted append is within its limits and has every byte that was sent.
fn holds(append: &Append, body: &[u8]) {
    assert!(append.close || !append.messages.is_empty(), "an append of nothing");
    assert!(append.stream_seq.as_ref().is_none_or(|seq| seq.len() <= SEQ_BYTES_MAX));
    match append.content_type.as_ref().map(ContentType::mode) {
        None => assert!(body.is_empty()),
        Some(Mode::Json) => assert!(append.messages.ends.is_sorted_by(|one, next| one < next)),
        Some(Mode::Text | Mode::Bytes) => assert_eq!(&append.messages.data[..], body),
    }
    assert_eq!(append.messages.ends.last().copied().unwrap_or(0) as usize, append.messages.data.len());
}

/// Other parameters do not change the value of one.
pub(crate) fn parameters(line: &str) {
    let find = |text: &str| query(Some(text), "offset").map_err(|refusal| refusal.detail);
    let found = find(line);
    assert_eq!(find(&format!("live=sse&{line}&offsets=1")), found, "others made a difference");
    if let Ok(Some(value)) = found {
        assert_eq!(
            find(&format!("offset={}", encode(&value))),
            Ok(Some(value)),
            "every value has a spelling"
        );
    }
}
