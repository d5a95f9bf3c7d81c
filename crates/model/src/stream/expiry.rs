//! When a stream ends by itself: a sliding time to live, or a moment.

use jiff::Timestamp;

/// A stream's life. Reading and writing renew a sliding one; a moment stays what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It stays until it is deleted.
    Never,
    /// `Stream-TTL`: it ends this long after the last read or write.
    Sliding {
        /// The window.
        seconds: u64,
    },
    /// `Stream-Expires-At`: it ends then, used or not.
    At(Timestamp),
}

/// Why expiry headers were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Both headers at once.
    Both,
    /// `Stream-TTL` is not a plain number of seconds.
    Ttl,
    /// `Stream-Expires-At` is not an RFC 3339 time.
    ExpiresAt,
}

/// About 316 years: longer is a mistake, and sums of it with a time stay in range.
const SECONDS_MAX: u64 = 9_999_999_999;

impl Expiry {
    /// Reads the two headers. `None` means that neither was sent, which a fork reads as
    /// "like the source".
    pub fn parse(ttl: Option<&str>, expires_at: Option<&str>) -> Result<Option<Expiry>, Invalid> {
        match (ttl, expires_at) {
            (Some(_), Some(_)) => Err(Invalid::Both),
            (Some(text), None) => match decimal(text) {
                Some(seconds) if seconds <= SECONDS_MAX => Ok(Some(Expiry::Sliding { seconds })),
                _ => Err(Invalid::Ttl),
            },
            (None, Some(text)) => match text.parse() {
                Ok(at) => Ok(Some(Expiry::At(at))),
                Err(_) => Err(Invalid::ExpiresAt),
            },
            (None, None) => Ok(None),
        }
    }

    /// When the stream ends if nobody touches it after `last_used`.
    pub fn ends_at(self, last_used: Timestamp) -> Option<Timestamp> {
        match self {
            Expiry::Never => None,
            Expiry::At(at) => Some(at),
            Expiry::Sliding { seconds } => {
                let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
                let ends = last_used.checked_add(jiff::SignedDuration::from_secs(seconds));
                Some(ends.unwrap_or(Timestamp::MAX))
            }
        }
    }
}

/// Digits without sign, leading zero, point or exponent.
pub fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_syntax_is_strict() {
        for text in ["", "+60", "-1", "00060", "60.5", "1e3", " 60", "99999999999", "0x10"] {
            assert_eq!(Expiry::parse(Some(text), None), Err(Invalid::Ttl), "{text}");
        }
        for text in ["", "soon", "2026-01-01", "1700000000"] {
            assert_eq!(Expiry::parse(None, Some(text)), Err(Invalid::ExpiresAt), "{text}");
        }
        assert_eq!(Expiry::parse(Some("1"), Some("x")), Err(Invalid::Both));
        assert_eq!(Expiry::parse(None, None), Ok(None));
    }

    #[test]
    fn time_zones_name_the_same_moment() {
        let at = |text| Expiry::parse(None, Some(text)).unwrap();
        assert_eq!(at("2030-01-01T00:00:00Z"), at("2030-01-01T01:00:00+01:00"));
    }

    proptest! {
        #[test]
        fn a_sliding_life_moves_with_its_use(seconds in 0..=SECONDS_MAX, used in 0..4_000_000_000i64) {
            let used = Timestamp::from_second(used).unwrap();
            let parsed = Expiry::parse(Some(&seconds.to_string()), None).unwrap().unwrap();
            let ends = parsed.ends_at(used).unwrap();
            prop_assert_eq!(ends.as_second() - used.as_second(), seconds as i64);
        }
    }
}
