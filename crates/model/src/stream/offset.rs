//! Offsets: positions in a stream.
//!
//! An offset is the number of stored bytes before it. On the wire it is two zero-padded
//! 16-digit decimals joined by an underscore, the form the protocol's own servers use: it
//! sorts byte by byte like the numbers it holds. The first number is always zero; it is
//! there so that a stream could one day start a new numbering without breaking readers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in a stream: the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Offset(u64);

/// Where a reader wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// `-1`: the first byte there is.
    Beginning,
    /// `now`: after everything there is.
    Now,
    /// From an offset on.
    At(Offset),
}

/// Digits of each half.
const HALF: usize = 16;
/// The largest number that 16 digits hold.
const MAX: u64 = 9_999_999_999_999_999;

impl Offset {
    /// The beginning of every stream.
    pub const ZERO: Offset = Offset(0);
    /// The largest offset that can be written.
    pub const MAX: Offset = Offset(MAX);

    /// The offset after `bytes` bytes.
    ///
    /// # Panics
    /// Above ten petabytes, which no stream reaches.
    pub fn new(bytes: u64) -> Offset {
        assert!(bytes <= MAX, "an offset of {bytes} does not fit its 16 digits");
        Offset(bytes)
    }

    /// The bytes before this offset.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// The offset `bytes` further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Offset {
        Offset::new(self.0 + bytes)
    }

    /// The text of this offset, without an allocation: every answer carries one.
    pub fn to_text(self) -> [u8; 2 * HALF + 1] {
        let mut text = [b'0'; 2 * HALF + 1];
        text[HALF] = b'_';
        let mut rest = self.0;
        for digit in text[HALF + 1..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        text
    }

    /// Parses the one form in which offsets are written.
    pub fn parse(text: &str) -> Option<Offset> {
        let (generation, position) = text.split_once('_')?;
        match (half(generation)?, half(position)?) {
            (0, position) => Some(Offset(position)),
            _ => None,
        }
    }
}

impl Start {
    /// Parses the query parameter `offset`: `-1`, `now` or an offset.
    pub fn parse(text: &str) -> Option<Start> {
        match text {
            "-1" => Some(Start::Beginning),
            "now" => Some(Start::Now),
            _ => Offset::parse(text).map(Start::At),
        }
    }
}

fn half(text: &str) -> Option<u64> {
    let digits = text.len() == HALF && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl From<Offset> for String {
    fn from(offset: Offset) -> String {
        offset.to_string()
    }
}

impl TryFrom<String> for Offset {
    type Error = String;

    fn try_from(text: String) -> Result<Offset, String> {
        Offset::parse(&text).ok_or_else(|| format!("{text} is not an offset"))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000000000000000_{:016}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_and_number_are_the_same_thing(bytes in 0..=MAX) {
            let offset = Offset::new(bytes);
            prop_assert_eq!(Offset::parse(&offset.to_string()), Some(offset));
            let text = offset.to_string();
            prop_assert!(offset.to_text() == *text.as_bytes());
        }

        /// S05: clients compare offsets as text.
        #[test]
        fn text_sorts_like_the_number(a in 0..=MAX, b in 0..=MAX) {
            let text = |n| Offset::new(n).to_string();
            prop_assert_eq!(text(a).cmp(&text(b)), a.cmp(&b));
        }

        #[test]
        fn what_is_read_is_written_the_same(text in ".{0,40}") {
            if let Some(offset) = Offset::parse(&text) {
                prop_assert_eq!(offset.to_string(), text);
            }
        }
    }

    #[test]
    fn only_one_form_is_an_offset() {
        for text in ["", "0", "0_0", "-1", "now", "+000000000000000_0000000000000001"] {
            assert_eq!(Offset::parse(text), None, "{text}");
        }
        assert_eq!(Offset::parse("9999999999999999_9999999999999999"), None);
        assert_eq!(Start::parse("-1"), Some(Start::Beginning));
        assert_eq!(Start::parse("now"), Some(Start::Now));
        assert_eq!(Start::parse("-2"), None);
    }
}
