//! Cron expressions in a time zone.
//!
//! Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or a nickname
//! such as `@daily`. When clocks go forward, a tick in the missing hour runs right after it; when they go
//! back, a fixed time runs once.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::nearest::nearest;

/// A parsed expression and its time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    cron: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Parses both, or explains what is wrong.
    pub fn parse(expression: &str, time_zone: &str) -> Result<Cron, String> {
        let zone = TimeZone::get(time_zone).map_err(|_| unknown_zone(time_zone))?;
        // The library would search centuries for a match of an empty list item.
        let has_gap = expression.split_whitespace().any(|field| field.split(',').any(str::is_empty));
        let cron = match croner::Cron::from_str(expression) {
            Ok(_) if has_gap => return Err(wrong(expression, "a list has an empty item")),
            Ok(cron) => cron,
            Err(error) => return Err(wrong(expression, &in_words(&error))),
        };
        Ok(Cron { cron, zone })
    }

    /// The first tick after a time; none if it never ticks, as on 30 February.
    pub fn next_after(&self, moment: Timestamp) -> Option<Timestamp> {
        let from = moment.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&from, false).ok().map(|next| next.timestamp())
    }

    /// The ticks after a time.
    pub fn ticks_after(&self, moment: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        std::iter::successors(self.next_after(moment), |tick| self.next_after(*tick))
    }

    /// The expression in words, as in "at 07:30, Monday through Friday".
    pub fn describe(&self) -> String {
        self.cron.describe().trim_end_matches('.').to_owned()
    }
}

fn wrong(expression: &str, why: &str) -> String {
    format!(
        "invalid cron expression {expression:?}: {why}; expected five fields \
         (minute hour day-of-month month day-of-week), as in \"30 7 * * mon-fri\""
    )
}

fn unknown_zone(name: &str) -> String {
    let zones: Vec<String> = jiff::tz::db().available().map(|zone| zone.as_str().to_owned()).collect();
    match nearest(name, zones.iter().map(String::as_str)) {
        Some(near) => format!("there is no time zone {name}; did you mean {near}?"),
        None => format!("there is no time zone {name}; use a name such as Europe/Berlin or UTC"),
    }
}

/// The library's message without its type names.
fn in_words(error: &croner::errors::CronError) -> String {
    use croner::errors::CronError;
    let words = match error {
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidPattern(words)
        | CronError::IllegalCharacters(words)
        | CronError::ComponentError(words) => words.clone(),
        other => other.to_string(),
    };
    words.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Cron, Timestamp};

    fn ticks(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let after: Timestamp = after.parse().expect("a moment");
        let cron = Cron::parse(expression, zone).expect("an expression");
        cron.ticks_after(after).take(count).map(|tick| tick.to_string()).collect()
    }

    /// Q17: an expression follows its zone through both clock changes of the year.
    #[test]
    fn ticks_follow_the_zone() {
        assert_eq!(ticks("30 7 * * *", "UTC", "2026-01-01T07:30:00Z", 1), ["2026-01-02T07:30:00Z"]);
        let berlin = ticks("30 7 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2);
        assert_eq!(berlin, ["2026-03-28T06:30:00Z", "2026-03-29T05:30:00Z"], "summer begins");
        // 02:30 does not exist on 29 March and exists twice on 25 October.
        let missing = ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
        assert_eq!(missing, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let double = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(double, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn seconds_and_nicknames_are_read() {
        assert_eq!(ticks("*/20 * * * * *", "UTC", "2026-01-01T00:00:05Z", 1), ["2026-01-01T00:00:20Z"]);
        assert_eq!(ticks("@daily", "UTC", "2026-01-01T00:00:05Z", 1), ["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn mistakes_are_named() {
        let zone = Cron::parse("* * * * *", "Europe/Berlim").expect_err("no such zone");
        assert!(zone.contains("did you mean Europe/Berlin?"), "{zone}");
        for wrong in
            ["", "nonsense", "61 * * * *", "* * *", "* * * * * * * *", ", * 0 * * * *", "1,,2 * * * *"]
        {
            let error = Cron::parse(wrong, "UTC").expect_err(wrong);
            assert!(error.contains("five fields"), "{error}");
        }
        let never = Cron::parse("0 0 30 2 *", "UTC").expect("well-formed");
        assert_eq!(never.next_after(Timestamp::UNIX_EPOCH), None, "30 February does not exist");
    }
}
