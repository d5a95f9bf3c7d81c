//! The parent of a span, as W3C Trace Context writes it: `00-<trace>-<span>-<flags>`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A parent span: its trace, its id, and whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

/// The text is not a `traceparent`. Callers continue without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid;

impl TraceParent {
    /// The span with these ids; none if one of them is zero, which is invalid.
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Option<TraceParent> {
        (trace_id != 0 && span_id != 0).then_some(TraceParent { trace_id, span_id, sampled })
    }

    /// The trace.
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// The span in it.
    pub fn span_id(self) -> u64 {
        self.span_id
    }

    /// Whether its spans are recorded.
    pub fn is_sampled(self) -> bool {
        self.sampled
    }

    /// The trace id in hexadecimal, as tracing tools show it.
    pub fn trace(self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

impl FromStr for TraceParent {
    type Err = Invalid;

    /// Reads version 00 exactly, and of later ones the part they have in common.
    fn from_str(text: &str) -> Result<TraceParent, Invalid> {
        let hex = |part: &str, length: usize| {
            let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.len() == length && part.bytes().all(plain)
        };
        let mut parts = text.splitn(5, '-');
        let mut next = |length| parts.next().filter(|part| hex(part, length)).ok_or(Invalid);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(Invalid);
        }
        let trace_id = u128::from_str_radix(trace, 16).map_err(|_| Invalid)?;
        let span_id = u64::from_str_radix(span, 16).map_err(|_| Invalid)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| Invalid)?;
        TraceParent::new(trace_id, span_id, flags & 1 == 1).ok_or(Invalid)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TraceParent, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|Invalid| {
            serde::de::Error::custom("invalid traceparent; expected 00-<32 hex>-<16 hex>-01")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_reads_as_it_was_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        assert_eq!(parent.trace(), "0af7651916cd43dd8448eb211c80319c");
        assert!(parent.is_sampled());
        assert!(!text.replace("-01", "-00").parse::<TraceParent>().unwrap().is_sampled());
        let later = text.replacen("00", "cc", 1) + "-what-comes-next";
        assert_eq!(later.parse(), Ok(parent), "a later version is read as far as it is known");
    }

    #[test]
    fn what_is_no_parent_is_refused() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(Invalid), "{text}");
        }
    }
}
