//! What commands print: data to standard output, as a table for people or JSON for
//! scripts; errors to standard error.
//!
//! Stored text comes from other users, so its control characters never reach a terminal.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;

use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::json;

use crate::paint;

/// Action needed, or warnings.
pub(crate) const EXIT_TO_DO: u8 = 3;
/// Failures found.
pub(crate) const EXIT_FAILURES: u8 = 4;

/// How a command ends: with an exit code, or with an error to print.
pub(crate) type Exit = anyhow::Result<ExitCode>;

/// The command succeeded.
pub(crate) fn done() -> Exit {
    Ok(ExitCode::SUCCESS)
}

/// Where a command's data goes, and in which format.
pub(crate) struct Output {
    json: bool,
    /// What was printed so far, if it is shown only once it is complete.
    collected: Option<Mutex<String>>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { json, collected: None }
    }

    /// Collects what is printed; each JSON value is one line.
    pub(crate) fn collecting(json: bool) -> Output {
        Output { json, collected: Some(Mutex::default()) }
    }

    /// What was collected.
    pub(crate) fn collected(self) -> String {
        self.collected.and_then(|text| text.into_inner().ok()).unwrap_or_default()
    }

    /// Whether data is printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `data` as JSON with `--json`, else as `text` formats it.
    pub(crate) fn show<T: Serialize>(&self, data: &T, text: impl FnOnce(&T) -> String) {
        let text = match (self.json, &self.collected) {
            (true, None) => json(serde_json::to_string_pretty(data)),
            (true, Some(_)) => json(serde_json::to_string(data)),
            (false, _) => text(data),
        };
        self.line(text.trim_end());
    }

    /// Prints one of many events while a command runs; JSON is one line each.
    pub(crate) fn event<T: Serialize>(&self, data: &T, text: impl FnOnce(&T) -> String) {
        match self.json {
            true => self.line(&json(serde_json::to_string(data))),
            false => self.line(&text(data)),
        }
    }

    /// Prints one line or more. A closed pipe is the reader's choice, not an error.
    pub(crate) fn line(&self, text: &str) {
        let text = self.shown(&plain(text));
        if let Some(mut collected) = self.collected.as_ref().and_then(|collected| collected.lock().ok()) {
            *collected += &text;
            *collected += "\n";
            return;
        }
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// For a terminal with colours and times of this place; elsewhere with times in UTC.
    fn shown(&self, text: &str) -> String {
        if self.json {
            return text.to_owned();
        }
        let zone = std::io::stdout().is_terminal().then(TimeZone::system);
        let text = paint::times(text, zone.as_ref());
        if paint::wanted() { paint::coloured(&text) } else { text }
    }

    /// Invalid usage or settings.
    pub(crate) fn refuse(error: &anyhow::Error, as_json: bool) -> ExitCode {
        Output::complain(error, as_json, 2);
        ExitCode::from(2)
    }

    /// The command failed.
    pub(crate) fn fail(error: &anyhow::Error, as_json: bool) -> ExitCode {
        Output::complain(error, as_json, 1);
        ExitCode::FAILURE
    }

    fn complain(error: &anyhow::Error, as_json: bool, exit_code: u8) {
        let error = format!("{error:#}");
        let text = match as_json {
            true => json(serde_json::to_string(&json!({ "error": error, "exit_code": exit_code }))),
            false => format!("towpath: {}", paint::times(&plain(&error), None)),
        };
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Escapes control characters other than line breaks, as in `\u{1b}`, so that stored text cannot control the
/// reader's terminal.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && c != '\n')
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control)
}

fn escaped(text: &str, is_bad: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let spell = |c: char| if is_bad(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(spell).collect())
}

/// JSON allows DEL and the C1 control characters unescaped. They occur only in strings, where an escape means
/// the same.
fn json(text: serde_json::Result<String>) -> String {
    let text = text.expect("our own data types serialise");
    let is_bad = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_bad) {
        return text;
    }
    let spell = |c: char| if is_bad(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(spell).collect()
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(|cell| one_line(&cell).into_owned())).collect();
    let mut widths = head.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(line(head)).chain(rows).collect::<Vec<_>>().join("\n")
}

/// A table, or a note if it has no rows.
pub(crate) fn table_or<const N: usize>(
    note: &str,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() { note.to_owned() } else { table(head, rows) }
}

/// A list, and where the next page begins, if there is one.
pub(crate) fn paged(list: String, cursor: Option<impl std::fmt::Display>) -> String {
    match cursor {
        Some(cursor) => format!("{list}\nmore: --after {cursor}"),
        None => list,
    }
}

#[cfg(test)]
mod tests {
    use super::{json, one_line, plain, table};

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long name".to_owned(), "2".to_owned()]];
        assert_eq!(table(["NAME", "N"], rows), "NAME       N\na          1\nlong name  2");
    }

    /// Q22: stored text cannot draw on a terminal, neither with C0 nor with C1 characters.
    #[test]
    fn control_characters_are_spelled_out() {
        let evil = "a\u{1b}]0;x\u{7}\r\u{9b}31mb\tc";
        assert_eq!(plain(evil), r"a\u{1b}]0;x\u{7}\r\u{9b}31mb\tc");
        assert_eq!((plain("a\nb").as_ref(), one_line("a\nb").as_ref()), ("a\nb", r"a\nb"));
        assert_eq!(table(["NAME"], [["x\n\u{1b}[2J".to_owned()]]), "NAME\nx\\n\\u{1b}[2J");
        let printed = json(serde_json::to_string(&[evil]));
        assert!(!printed.contains(char::is_control), "{printed}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&printed).unwrap(), [evil], "it means the same");
    }
}
