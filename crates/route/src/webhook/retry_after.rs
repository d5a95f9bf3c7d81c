//! `Retry-After`: seconds, or a date.

use std::time::Duration;

use jiff::Timestamp;

use crate::limits;

/// The delay that a receiver requests, at most a day. An invalid value is ignored.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => {
            Duration::from_secs_f64(seconds.min(limits::RETRY_AFTER_MAX.as_secs_f64()))
        }
        Ok(_) => return None,
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
        }
    };
    Some(wait.min(limits::RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let seconds = |text| parse(text, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("1e300"), Some(86_400));
        assert_eq!(seconds("Sun, 15 Nov 2026 12:00:30 GMT"), Some(30));
        assert_eq!(seconds("Sun, 15 Nov 2026 11:00:00 GMT"), Some(0), "in the past means now");
        assert_eq!(seconds("Mon, 15 Nov 2027 12:00:00 GMT"), Some(86_400), "a day at most");
        for nothing in ["", "soon", "-5", "NaN", "inf"] {
            assert_eq!(seconds(nothing), None, "{nothing}");
        }
    }
}
