//! Reads a body, with limits on size, time and depth.

use axum::body::{Body, Bytes};
use http_body_util::LengthLimitError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::limits;
use crate::upload::Late;

/// The body as `T`. Unknown fields are refused: they are mistakes.
pub(crate) async fn read<T: DeserializeOwned>(body: Body, bytes_max: usize) -> Result<T, Error> {
    parse(&bytes(body, bytes_max).await?)
}

/// The bytes of a body as `T`.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    // Payloads are passed on unparsed, so the parser's own depth limit does not apply to them.
    if depth(bytes) > limits::JSON_DEPTH_MAX {
        return Err(Error::Malformed(format!(
            "the body is nested deeper than {} levels",
            limits::JSON_DEPTH_MAX
        )));
    }
    serde_json::from_slice(bytes).map_err(|error| Error::Malformed(format!("invalid body: {error}")))
}

/// The raw body.
pub(crate) async fn bytes(body: Body, bytes_max: usize) -> Result<Bytes, Error> {
    axum::body::to_bytes(body, bytes_max).await.map_err(|error| match error {
        error if is_because_of::<LengthLimitError>(&error) => Error::TooLarge(bytes_max),
        error if is_because_of::<Late>(&error) => Error::TooSlow,
        error => Error::Malformed(format!("the body ended early: {error}")),
    })
}

fn is_because_of<E: std::error::Error + 'static>(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The nesting depth of brackets outside of strings. Exact for JSON; the parser refuses
/// anything else.
fn depth(bytes: &[u8]) -> usize {
    let (mut now, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                now += 1;
                most = most.max(now);
            }
            (false, b'}' | b']') => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        assert_eq!(depth(br#"{"a": [1, {"b": []}], "c": []}"#), 4);
        assert_eq!(depth(br#"{"a": "[[[[\"[[[[\\"}"#), 1);
        assert_eq!(depth("[".repeat(500).as_bytes()), 500);
        assert_eq!(depth(b"]]]]"), 0);
    }
}
