//! Times typed by people: `2026-11-15T07:30:00Z`, or a duration such as `2h` or `3d 12h`.

use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// A time, or a duration from now.
pub(crate) fn from_now(text: &str) -> anyhow::Result<Timestamp> {
    read(text, Timestamp::now(), Direction::Ahead)
}

/// A time, or a duration ago.
pub(crate) fn ago(text: &str) -> anyhow::Result<Timestamp> {
    read(text, Timestamp::now(), Direction::Back)
}

#[derive(Clone, Copy)]
enum Direction {
    Ahead,
    Back,
}

fn read(text: &str, now: Timestamp, direction: Direction) -> anyhow::Result<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let Ok(span) = text.parse::<Span>() else {
        bail!("expected a time such as 2026-11-15T07:30:00Z or a duration such as 90s, 2h or 3d");
    };
    if span.is_negative() {
        bail!("a duration has no sign");
    }
    // Days and months have lengths only on a calendar: UTC.
    let now = now.to_zoned(TimeZone::UTC);
    let moment = match direction {
        Direction::Ahead => now.checked_add(span),
        Direction::Back => now.checked_sub(span),
    };
    Ok(moment.context("this duration is too long")?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::{Direction, Timestamp, read};

    #[test]
    fn moments_and_spans_are_read() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a moment");
        let text = |text, direction| read(text, now, direction).map(|moment| moment.to_string());
        assert_eq!(text("2h", Direction::Back).expect("a span"), "2026-11-15T10:00:00Z");
        assert_eq!(text("1d 30m", Direction::Ahead).expect("a span"), "2026-11-16T12:30:00Z");
        assert_eq!(
            text("2026-01-01T00:00:00+02:00", Direction::Back).expect("a moment"),
            "2025-12-31T22:00:00Z"
        );
        for wrong in ["", "yesterday", "-2h", "2026-13-01T00:00:00Z"] {
            assert!(text(wrong, Direction::Ahead).is_err(), "{wrong}");
        }
    }
}
