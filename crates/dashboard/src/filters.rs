//! How values are formatted on a page.

#![expect(unreachable_pub, reason = "askama makes public items of filters")]

use std::fmt::Write;

use jiff::Timestamp;
pub(crate) use towpath_model::figure::{grouped, span};

/// A relative time, past or future.
#[askama::filter_fn]
pub(crate) fn ago(at: &Timestamp, _: &dyn askama::Values) -> askama::Result<String> {
    let seconds = Timestamp::now().as_second() - at.as_second();
    let words = span(seconds.unsigned_abs());
    Ok(match seconds {
        0 => "now".into(),
        1.. => format!("{words} ago"),
        _ => format!("in {words}"),
    })
}

/// A time in UTC, to the second.
#[askama::filter_fn]
pub(crate) fn moment(at: &Timestamp, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// A number with thin spaces between thousands.
#[askama::filter_fn]
pub(crate) fn thousands(n: &i64, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(grouped(*n))
}

/// A state for people: `retry waiting`.
#[askama::filter_fn]
pub(crate) fn plain(word: impl std::fmt::Display, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(word.to_string().replace('_', " "))
}

/// The first eight and last four characters of an id.
#[askama::filter_fn]
pub(crate) fn brief(id: impl std::fmt::Display, _: &dyn askama::Values) -> askama::Result<String> {
    let text = id.to_string();
    if text.len() <= 14 {
        return Ok(text);
    }
    Ok(format!("{}…{}", &text[..8], &text[text.len() - 4..]))
}

/// JSON over several lines.
#[askama::filter_fn]
pub(crate) fn pretty(value: &serde_json::Value, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(serde_json::to_string_pretty(value).unwrap_or_default())
}

/// An amount of data.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

pub(crate) fn short(ms: f64) -> String {
    match ms {
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 1_000.0 => format!("{ms:.0} ms"),
        _ if ms < 60_000.0 => format!("{:.1} s", ms / 1_000.0),
        _ => span((ms / 1_000.0) as u64),
    }
}

/// Percent-encoding for a cookie or a query.
pub(crate) fn percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The reverse; invalid sequences stay unchanged.
pub(crate) fn unpercent(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_comes_back() {
        for text in ["", "plain", "a b;c=d\n", "größe <b>%41</b>", "100 %"] {
            assert_eq!(unpercent(&percent(text)), text);
        }
        assert_eq!(unpercent("%zz%4"), "%zz%4");
    }

    #[test]
    fn times_and_amounts_are_short() {
        assert_eq!(short(1.26), "1.3 ms");
        assert_eq!(short(90_000.0), "1 min");
        assert_eq!((bytes(7), bytes(1_500)), ("7 B".into(), "1.5 kB".into()));
    }
}
