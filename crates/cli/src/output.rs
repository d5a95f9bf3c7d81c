//! What commands print: data to standard output, as a table for people or JSON for
//! scripts; errors to standard error.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;

use serde::Serialize;

/// Something to do, or warnings.
pub(crate) const EXIT_TO_DO: u8 = 3;
/// Failures found.
pub(crate) const EXIT_FAILURES: u8 = 4;

/// Where a command's data goes, and in which form.
pub(crate) struct Output {
    json: bool,
    /// What was printed so far, where it is not to be seen before it is whole.
    collected: Option<Mutex<String>>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { json, collected: None }
    }

    /// Keeps what is printed, JSON on one line each time.
    pub(crate) fn collecting(json: bool) -> Output {
        Output { json, collected: Some(Mutex::default()) }
    }

    /// What was kept.
    pub(crate) fn collected(self) -> String {
        self.collected.and_then(|text| text.into_inner().ok()).unwrap_or_default()
    }

    /// Whether data is printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `data` as JSON if that was asked for, else what `text` makes of it.
    pub(crate) fn show<T: Serialize>(&self, data: &T, text: impl FnOnce(&T) -> String) {
        let text = match (self.json, &self.collected) {
            (true, None) => serde_json::to_string_pretty(data).expect("our own data types serialise"),
            (true, Some(_)) => serde_json::to_string(data).expect("our own data types serialise"),
            (false, _) => text(data),
        };
        self.line(text.trim_end());
    }

    /// Prints one of many things that happen while a command runs: JSON on a line of its own.
    pub(crate) fn event<T: Serialize>(&self, data: &T, text: impl FnOnce(&T) -> String) {
        match self.json {
            true => self.line(&serde_json::to_string(data).expect("our own data types serialise")),
            false => self.line(&text(data)),
        }
    }

    /// Prints one line or more. A closed pipe is the reader's choice, not an error.
    pub(crate) fn line(&self, text: &str) {
        if let Some(mut collected) = self.collected.as_ref().and_then(|collected| collected.lock().ok()) {
            *collected += text;
            *collected += "\n";
            return;
        }
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Bad usage or settings.
    pub(crate) fn refuse(error: &anyhow::Error) -> ExitCode {
        Output::complain(error);
        ExitCode::from(2)
    }

    /// The command failed.
    pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
        Output::complain(error);
        ExitCode::FAILURE
    }

    fn complain(error: &anyhow::Error) {
        let _ = writeln!(std::io::stderr().lock(), "towpath: {error:#}");
    }
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
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

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long name".to_owned(), "2".to_owned()]];
        assert_eq!(table(["NAME", "N"], &rows), "NAME       N\na          1\nlong name  2");
    }
}
