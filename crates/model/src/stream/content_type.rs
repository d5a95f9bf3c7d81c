//! Content types: one per stream, compared without parameters and case.

use std::fmt;
use std::sync::Arc;

/// A stream's content type, kept as it was given.
#[derive(Debug, Clone)]
pub struct ContentType(Arc<str>);

/// How a stream's bytes are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `application/json`: values with boundaries, read as an array.
    Json,
    /// `text/*`: bytes that may be sent as text.
    Text,
    /// Anything else: bytes.
    Bytes,
}

/// No real content type is longer.
const LENGTH_MAX: usize = 256;
const DEFAULT: &str = "application/octet-stream";

impl ContentType {
    /// Parses a header value: `type/subtype`; parameters after a semicolon are kept.
    pub fn parse(text: &str) -> Option<ContentType> {
        let text = text.trim();
        let (kind, subtype) = essence(text).split_once('/')?;
        let ok = is_token(kind) && is_token(subtype) && text.len() <= LENGTH_MAX;
        (ok && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))).then(|| ContentType(text.into()))
    }

    /// The text as given, parameters included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How bytes of this type are treated.
    pub fn mode(&self) -> Mode {
        let essence = essence(&self.0);
        match essence.get(..5) {
            _ if essence.eq_ignore_ascii_case("application/json") => Mode::Json,
            Some(kind) if kind.eq_ignore_ascii_case("text/") => Mode::Text,
            _ => Mode::Bytes,
        }
    }
}

/// Streams created without a type hold bytes.
impl Default for ContentType {
    fn default() -> ContentType {
        ContentType(DEFAULT.into())
    }
}

/// Parameters such as `charset`, and case, make no difference.
impl PartialEq for ContentType {
    fn eq(&self, other: &ContentType) -> bool {
        essence(&self.0).eq_ignore_ascii_case(essence(&other.0))
    }
}

impl Eq for ContentType {}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or(text).trim_end()
}

fn is_token(text: &str) -> bool {
    let symbol = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || symbol(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_and_case_make_no_difference() {
        let parse = |text| ContentType::parse(text).unwrap();
        assert_eq!(parse("application/json"), parse("Application/JSON; charset=utf-8"));
        assert_ne!(parse("application/json"), parse("application/jsonl"));
        assert_eq!(parse("TEXT/html").mode(), Mode::Text);
        assert_eq!(parse("application/json ;x=y").mode(), Mode::Json);
        assert_eq!(ContentType::default().mode(), Mode::Bytes);
        assert_eq!(parse("text/plain;charset=utf-8").as_str(), "text/plain;charset=utf-8");
    }

    #[test]
    fn nonsense_is_no_content_type() {
        for text in ["", "text", "/", "a/", "/b", "a b/c", "text/plain; x=\u{e9}", "a/b\r\nx: y"] {
            assert!(ContentType::parse(text).is_none(), "{text:?}");
        }
    }

    proptest! {
        /// An accepted content type can be written into a header again.
        #[test]
        fn accepted_types_are_header_values(text in ".{0,60}") {
            if let Some(accepted) = ContentType::parse(&text) {
                prop_assert!(accepted.as_str().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
        }
    }
}
