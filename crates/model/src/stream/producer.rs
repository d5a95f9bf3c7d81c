//! Idempotent producers: three headers that make a retry harmless.

use std::sync::Arc;

/// A request of an idempotent producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// The producer.
    pub id: Arc<str>,
    /// Its epoch; an older one is fenced.
    pub epoch: u64,
    /// The number of the request in that epoch, from zero.
    pub seq: u64,
}

/// Why producer headers were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Some of the three headers are missing.
    Incomplete,
    /// An empty or overlong id.
    Id,
    /// Not a whole number below 2^53.
    Epoch,
    /// Not a whole number below 2^53.
    Seq,
}

/// The largest number that JavaScript represents exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// An id is stored with each stream it writes to.
const ID_LENGTH_MAX: usize = 256;

impl Producer {
    /// Reads the three headers: all of them or none.
    pub fn parse(
        id: Option<&str>,
        epoch: Option<&str>,
        seq: Option<&str>,
    ) -> Result<Option<Producer>, Invalid> {
        let (id, epoch, seq) = match (id, epoch, seq) {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
            _ => return Err(Invalid::Incomplete),
        };
        let epoch = number(epoch).ok_or(Invalid::Epoch)?;
        let seq = number(seq).ok_or(Invalid::Seq)?;
        Producer::new(id, epoch, seq).map(Some)
    }

    /// The same from numbers.
    pub fn new(id: &str, epoch: u64, seq: u64) -> Result<Producer, Invalid> {
        match () {
            () if id.is_empty() || id.len() > ID_LENGTH_MAX => Err(Invalid::Id),
            () if epoch > NUMBER_MAX => Err(Invalid::Epoch),
            () if seq > NUMBER_MAX => Err(Invalid::Seq),
            () => Ok(Producer { id: id.into(), epoch, seq }),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_three_or_none() {
        assert_eq!(Producer::parse(None, None, None), Ok(None));
        assert_eq!(Producer::parse(Some("p"), None, Some("0")), Err(Invalid::Incomplete));
        assert_eq!(Producer::parse(Some(""), Some("0"), Some("0")), Err(Invalid::Id));
        assert_eq!(Producer::new(&"x".repeat(257), 0, 0), Err(Invalid::Id));
        assert_eq!(Producer::new("x", NUMBER_MAX + 1, 0), Err(Invalid::Epoch));
        for text in ["", "-1", "1abc", "1e3", "1.0", "9007199254740992"] {
            assert_eq!(Producer::parse(Some("p"), Some(text), Some("0")), Err(Invalid::Epoch), "{text}");
            assert_eq!(Producer::parse(Some("p"), Some("0"), Some(text)), Err(Invalid::Seq), "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_through(epoch in 0..=NUMBER_MAX, seq in 0..=NUMBER_MAX) {
            let parsed = Producer::parse(Some("p"), Some(&epoch.to_string()), Some(&seq.to_string()));
            prop_assert_eq!(parsed, Ok(Some(Producer { id: "p".into(), epoch, seq })));
        }
    }
}
