//! Cursors: the number that keeps a cache from answering a live reader with an old answer.
//!
//! A live answer carries the number of the current 20-second interval, and the reader
//! sends it back. Readers of one interval ask for the same URL, so that a cache can
//! answer them together; the next interval has a new URL, so no answer is used forever.

use jiff::Timestamp;

/// The start of counting, 2024-10-09T00:00:00Z, given by the protocol.
const EPOCH_SECOND: i64 = 1_728_432_000;
/// Seconds in an interval, given by the protocol.
const INTERVAL: i64 = 20;
/// How far a cursor may jump ahead, in seconds, given by the protocol.
const JITTER_SECONDS_MAX: u64 = 3600;

/// The cursor to answer with, always greater than the one the reader sent.
///
/// A reader at or beyond the current interval (two requests within 20 seconds) jumps ahead by
/// `random` up to an hour: after a small step it would soon be in the same situation.
pub fn next(now: Timestamp, sent: Option<&str>, random: u64) -> u64 {
    let current = ((now.as_second() - EPOCH_SECOND) / INTERVAL).max(0) as u64;
    let sent = sent.and_then(|text| text.parse::<u64>().ok());
    match sent {
        Some(sent) if sent >= current => {
            let seconds = 1 + random % JITTER_SECONDS_MAX;
            sent.saturating_add(seconds.div_ceil(INTERVAL as u64))
        }
        _ => current,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_never_comes_back(second in 0..4_000_000_000i64, sent in 0..u64::MAX / 2, random: u64) {
            let now = Timestamp::from_second(second).unwrap();
            let answer = next(now, Some(&sent.to_string()), random);
            prop_assert!(answer > sent);
            prop_assert!(answer >= next(now, None, random));
            if sent >= next(now, None, 0) {
                prop_assert!(answer - sent <= 180);
            }
        }
    }

    #[test]
    fn nonsense_counts_as_no_cursor() {
        let now = Timestamp::from_second(EPOCH_SECOND + 41).unwrap();
        assert_eq!(next(now, None, 7), 2);
        assert_eq!(next(now, Some("x"), 7), 2);
        assert_eq!(next(now, Some("1"), 7), 2);
        assert_eq!(next(now, Some("2"), 0), 3);
    }
}
