//! When a stream expires: after a sliding time to live, or at a fixed time.

use jiff::Timestamp;
use jiff::civil::Date;

/// The life of a stream. Reading and writing renew a sliding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It exists until it is deleted.
    Never,
    /// `Stream-TTL`: it ends this long after the last read or write.
    Sliding {
        /// The window.
        seconds: u64,
    },
    /// `Stream-Expires-At`: it ends at that time, used or not.
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

/// About 316 years: longer is a mistake, and a time plus it stays in range.
const SECONDS_MAX: u64 = 9_999_999_999;

impl Expiry {
    /// Parses the two headers. `None` means that neither was sent; a fork then takes its origin's
    /// life.
    pub fn parse(ttl: Option<&str>, expires_at: Option<&str>) -> Result<Option<Expiry>, Invalid> {
        match (ttl, expires_at) {
            (Some(_), Some(_)) => Err(Invalid::Both),
            (Some(text), None) => match decimal(text) {
                Some(seconds) if seconds <= SECONDS_MAX => Ok(Some(Expiry::Sliding { seconds })),
                _ => Err(Invalid::Ttl),
            },
            (None, Some(text)) => rfc3339(text).map(|at| Some(Expiry::At(at))).ok_or(Invalid::ExpiresAt),
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

/// Any time of RFC 3339. A time after the last [`Timestamp`], 26 hours before the year 10000, becomes
/// that one; a leap second becomes the next second; digits beyond nanoseconds are cut off.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let two = |at: usize| text.get(at..at + 2).filter(|it| is_digits(it))?.parse::<i64>().ok();
    let is_at = |at: usize, one_of: &str| text.get(at..=at).is_some_and(|it| one_of.contains(it));
    let is_shaped = is_at(4, "-") && is_at(7, "-") && is_at(10, "Tt ") && is_at(13, ":") && is_at(16, ":");
    let year: i16 = text.get(..4).filter(|it| is_digits(it) && is_shaped)?.parse().ok()?;
    let (month, day) = (i8::try_from(two(5)?).ok()?, i8::try_from(two(8)?).ok()?);
    let days = Date::new(year, month, day).ok()?.duration_since(Date::constant(1970, 1, 1)).as_secs();
    let (hour, minute, second) = (two(11)?, two(14)?, two(17)?);
    let rest = text.get(19..)?;
    let (nanoseconds, zone) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let end = rest.find(|it: char| !it.is_ascii_digit()).filter(|end| *end > 0)?;
            let kept = &rest[..end.min(9)];
            (kept.parse::<i32>().ok()? * 10i32.pow(9 - kept.len() as u32), &rest[end..])
        }
    };
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days + hour * 3_600 + minute * 60 + second - offset_seconds(zone)?;
    let last = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Some(Timestamp::new(seconds, nanoseconds).unwrap_or(last))
}

/// `Z`, `+hh:mm` or `-hh:mm`.
fn offset_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let is_fine = |text: &str, max: &str| text.len() == 2 && is_digits(text) && text <= max;
    let is_offset = is_fine(hours, "23") && is_fine(minutes, "59");
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    is_offset.then_some(sign * (hours * 3_600 + minutes * 60))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
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
        for text in [
            "",
            "soon",
            "2026-01-01",
            "1700000000",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00Z",
            "2026-1-1T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.5",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+01:60",
            "2026-01-01T00:00:00Zz",
            "2026-01-01T00:00:00Z[UTC]",
            "+002026-01-01T00:00:00Z",
            "2026-01-01T00:00:0éZ",
            "20é6-01-01T00:00:00Z",
        ] {
            assert_eq!(Expiry::parse(None, Some(text)), Err(Invalid::ExpiresAt), "{text}");
        }
        assert_eq!(Expiry::parse(Some("1"), Some("x")), Err(Invalid::Both));
        assert_eq!(Expiry::parse(None, None), Ok(None));
    }

    #[test]
    fn time_zones_name_the_same_moment() {
        let at = |text| Expiry::parse(None, Some(text)).unwrap_or_else(|_| panic!("{text}")).unwrap();
        assert_eq!(at("2030-01-01T00:00:00Z"), at("2030-01-01T01:00:00+01:00"));
    }

    /// S02: every RFC 3339 time is accepted: lower case, offsets, fractions, leap seconds, all years.
    #[test]
    fn any_rfc_3339_time_is_taken() {
        let at = |text| match Expiry::parse(None, Some(text)) {
            Ok(Some(Expiry::At(at))) => at,
            other => panic!("{text}: {other:?}"),
        };
        let new_year: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        for text in [
            "2030-01-01t00:00:00z",
            "2030-01-01 00:00:00Z",
            "2030-01-01T00:00:00.000Z",
            "2030-01-01T00:00:00.0000000000001Z",
            "2030-01-01T05:30:00+05:30",
            "2029-12-31T16:00:00-08:00",
            "2029-12-31T23:59:60Z",
            "2029-12-31T00:01:00-23:59",
            "2030-01-01T00:00:00-00:00",
        ] {
            assert_eq!(at(text), new_year, "{text}");
        }
        assert_eq!(at("2030-01-01T00:00:00.123456789Z").subsec_nanosecond(), 123_456_789);
        for text in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-23:59", "9999-12-30T22:00:01Z"] {
            assert_eq!(at(text), Timestamp::MAX, "{text}");
        }
        assert_eq!(at("9999-12-30T22:00:00Z").to_string(), "9999-12-30T22:00:00Z");
        assert_eq!(at("0000-01-01T00:00:00Z").to_string(), "0000-01-01T00:00:00Z");
        assert_eq!(at("1969-12-31T23:59:59.5Z").to_string(), "1969-12-31T23:59:59.5Z");
    }

    proptest! {
        /// What the library prints is parsed as the library parses it, and no text makes it panic.
        #[test]
        fn times_are_read_as_the_library_reads_them(second in -62_135_596_800..253_370_764_800i64, nanosecond in 0..1_000_000_000i32) {
            let at = Timestamp::new(second, nanosecond).unwrap();
            prop_assert_eq!(rfc3339(&at.to_string()), Some(at));
        }

        #[test]
        fn any_text_is_survived(text in "[0-9TtZz:.+ é-]{0,40}") {
            let _ = rfc3339(&text);
        }

        #[test]
        fn a_sliding_life_moves_with_its_use(seconds in 0..=SECONDS_MAX, used in 0..4_000_000_000i64) {
            let used = Timestamp::from_second(used).unwrap();
            let parsed = Expiry::parse(Some(&seconds.to_string()), None).unwrap().unwrap();
            let ends = parsed.ends_at(used).unwrap();
            prop_assert_eq!(ends.as_second() - used.as_second(), seconds as i64);
        }
    }
}
