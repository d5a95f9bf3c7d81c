//! How a config value is parsed: the same rules as `sql/functions/config.sql`.
//!
//! Written here again so that a property test can compare them with the SQL.

/// Whether a gate with this value is open. Fail-closed: only exactly `true` opens it (Q06).
pub fn gate_is_open(value: Option<&str>) -> bool {
    value == Some("true")
}

/// The number of a config key: its value if it is plain digits within the bounds, else the default.
pub fn number_or_default(value: &str, default: u64, bounds: std::ops::RangeInclusive<u64>) -> u64 {
    let plain = (1..=15).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(number) if plain && bounds.contains(&number) => number,
        _ => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q06: false, missing and unparsable are closed.
    #[test]
    fn only_exactly_true_opens_a_gate() {
        assert!(gate_is_open(Some("true")));
        for closed in [None, Some("false"), Some("TRUE"), Some(" true"), Some("1"), Some("yes"), Some("")] {
            assert!(!gate_is_open(closed), "{closed:?}");
        }
    }

    #[test]
    fn an_unreadable_number_is_its_default() {
        assert_eq!(number_or_default("42", 5, 1..=100), 42);
        for unreadable in ["", "-1", "0", "101", "4x", "1e1", " 7", "9999999999999999"] {
            assert_eq!(number_or_default(unreadable, 5, 1..=100), 5, "{unreadable:?}");
        }
    }
}
