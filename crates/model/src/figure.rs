//! How numbers are formatted for people, on pages and terminals.

/// A number with thin spaces between thousands.
pub fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if n < 0 { format!("-{text}") } else { text }
}

/// A number that the database counts up to 10,000.
pub fn about(n: i64) -> String {
    const COUNTED_MAX: i64 = 10_000;
    if n > COUNTED_MAX { format!("{}+", grouped(COUNTED_MAX)) } else { grouped(n) }
}

/// Seconds in the two largest units.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A few names, and how many more.
pub fn listed(names: &[String]) -> String {
    const NAMED: usize = 5;
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans_are_short() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(-12), "-12");
        assert_eq!((about(10_000), about(10_001)), ("10\u{202f}000".into(), "10\u{202f}000+".into()));
        assert_eq!((span(59), span(60)), ("59 s".into(), "1 min".into()));
        assert_eq!(span(90_061), "1 d 1 h");
    }

    #[test]
    fn many_names_are_cut() {
        let names: Vec<String> = (0..7).map(|n| format!("e{n}")).collect();
        assert_eq!(listed(&names[..5]), "e0, e1, e2, e3, e4");
        assert_eq!(listed(&names), "e0, e1, e2, e3, e4 and 2 more");
    }
}
