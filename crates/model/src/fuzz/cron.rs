//! Cron expressions: ticks are in order, in every zone.

use jiff::{SignedDuration, Timestamp};

use crate::cron::Cron;

/// Two bytes for a time, then an expression.
pub fn cron(data: &[u8]) {
    let Some((moment, expression)) = data.split_at_checked(2) else { return };
    let Ok(expression) = std::str::from_utf8(expression) else { return };
    let hours = i64::from(u16::from_le_bytes([moment[0], moment[1]]));
    let moment = Timestamp::from_second(1_500_000_000 + 3600 * hours).expect("a time in range");
    for zone in ["UTC", "Europe/Berlin"] {
        let cron = match Cron::parse(expression, zone) {
            Ok(cron) => cron,
            Err(error) => return assert!(error.contains("five fields"), "no help in: {error}"),
        };
        assert!(!cron.describe().is_empty());
        let mut before = moment;
        for tick in cron.ticks_after(moment).take(3) {
            assert!(tick > before, "{tick} does not come after {before}");
            assert_eq!(tick.subsec_nanosecond(), 0, "{tick} is not a whole second");
            before = tick;
        }
        // In a zone without clock changes, the next tick from just before a tick is that tick.
        if zone == "UTC" && before > moment {
            let right_before = before.checked_sub(SignedDuration::from_secs(1)).expect("a time in range");
            assert_eq!(cron.next_after(right_before), Some(before), "{before} is a tick or it is not");
        }
    }
}
