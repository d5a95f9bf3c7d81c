//! Text for a terminal: colours for states and findings, and times of this place. Elsewhere text is as commands made
//! it, with times as in RFC 3339.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const GOOD: &str = "32";
const WAITING: &str = "33";
const BAD: &str = "31";
const QUIET: &str = "2";

/// Whether standard output shows colours: a terminal, and nobody set `NO_COLOR`.
pub(crate) fn wanted() -> bool {
    use std::io::IsTerminal;
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn colour(word: &str) -> Option<&'static str> {
    Some(match word {
        "ok" | "open" | "succeeded" | "fresh" | "live" | "enabled" | "sent" | "delivered" => GOOD,
        "WARN" | "warning" | "warn" | "leased" | "in_progress" | "retry_waiting" | "held" | "pending"
        | "paused" | "shadow" | "dry_run" | "half_open" => WAITING,
        "FAIL" | "dead_letter" | "stale" | "failed" | "gave_up" | "error" | "lost" => BAD,
        "queued" | "cancelled" | "closed" | "off" | "note" | "disabled" | "unhandled" => QUIET,
        _ => return None,
    })
}

/// Colours every cell that is a state or the level of a finding. A cell stands between two spaces, or at an end of its
/// line.
pub(crate) fn coloured(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn line(text: &str) -> String {
    let cells = text.split("  ").map(|cell| match colour(cell.trim()) {
        Some(code) => cell.replacen(cell.trim(), &format!("\x1b[{code}m{}\x1b[0m", cell.trim()), 1),
        None => cell.to_owned(),
    });
    cells.collect::<Vec<_>>().join("  ")
}

/// Times in one form: of the zone given, or in UTC as RFC 3339. Those in quotes are data, and those of a next page are
/// to be typed again.
pub(crate) fn times(text: &str, zone: Option<&TimeZone>) -> String {
    let mut done = String::with_capacity(text.len());
    for (n, line) in text.split('\n').enumerate() {
        if n > 0 {
            done.push('\n');
        }
        match line.starts_with("more:") {
            true => done.push_str(line),
            false => times_of_line(line, zone, &mut done),
        }
    }
    done
}

fn times_of_line(line: &str, zone: Option<&TimeZone>, done: &mut String) {
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let length = match before {
            '"' | '\'' => 0,
            before if before.is_alphanumeric() => 0,
            _ => length(rest),
        };
        let parsed = (length > 0).then(|| rest[..length].replacen(' ', "T", 1)).and_then(|text| read(&text));
        if let Some(at) = parsed {
            let shown = match zone {
                Some(zone) => at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
                None => at.to_string(),
            };
            // A cell of a table stays as wide as it was.
            let width = if rest[length..].starts_with("  ") { length } else { 0 };
            done.push_str(&format!("{shown:width$}"));
            rest = &rest[length..];
            before = '0';
            continue;
        }
        done.push(first);
        before = first;
        rest = &rest[first.len_utf8()..];
    }
}

/// PostgreSQL writes +00 where RFC 3339 has +00:00.
fn read(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| format!("{text}:00").parse().ok())
}

/// How long the time at the start of a text is; 0 if there is none.
fn length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let form = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(form, byte): (&u8, &u8)| match form {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b' '),
        other => other == byte,
    };
    if bytes.len() <= form.len() || !form.iter().zip(bytes).all(fits) {
        return 0;
    }
    let mut at = form.len();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if bytes[at] == b'.' {
        at += 1 + digits(at + 1);
    }
    match bytes.get(at) {
        Some(b'Z') => at + 1,
        Some(b'+' | b'-') if digits(at + 1) == 2 => match bytes.get(at + 3) {
            Some(b':') if digits(at + 4) == 2 => at + 6,
            _ => at + 3,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::{TimeZone, offset};

    use super::{coloured, times};

    /// O03: states and findings have a colour, wherever a command prints them as a cell.
    #[test]
    fn states_and_findings_are_coloured() {
        let text = "ID  STATE\n1   succeeded\n2   dead_letter  the job failed";
        let shown = coloured(text);
        assert_eq!(
            shown,
            "ID  STATE\n1   \x1b[32msucceeded\x1b[0m\n2   \x1b[31mdead_letter\x1b[0m  the job failed"
        );
        assert_eq!(coloured("FAIL  roles  x"), "\x1b[31mFAIL\x1b[0m  roles  x");
    }

    /// O03: one form of time; local on a terminal, RFC 3339 elsewhere; data and cursors stay as they are.
    #[test]
    fn times_have_one_form() {
        let text = "a 2026-11-16 19:19:22.470478+00 b\n2026-11-16T19:19:22Z  c\nmore: --after 2026-11-16T19:19:22.5Z";
        let utc =
            "a 2026-11-16T19:19:22.470478Z b\n2026-11-16T19:19:22Z  c\nmore: --after 2026-11-16T19:19:22.5Z";
        assert_eq!(times(text, None), utc);
        let zone = TimeZone::fixed(offset(1));
        let local = "a 2026-11-16 20:19:22 b\n2026-11-16 20:19:22   c\nmore: --after 2026-11-16T19:19:22.5Z";
        assert_eq!(times(text, Some(&zone)), local);
        let data = r#"{"at": "2026-11-16T19:19:22Z"} 12026-11-16T19:19:22Z 2026-11-16T19:19:22"#;
        assert_eq!(times(data, Some(&zone)), data);
        let odd = "2026-11-16T19:19:22+05:30 2026-13-16T19:19:22Z é2026";
        assert_eq!(times(odd, None), "2026-11-16T13:49:22Z 2026-13-16T19:19:22Z é2026");
    }
}
