//! `towpath process new NAME`: writes a small process, in SQL or another language.

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::output::{Exit, Output, done};

const NAME_BYTES_MAX: usize = 63;
const FUNCTION: &str = include_str!("template/function.sql");
const TASK: &str = include_str!("template/task.sql");
const RUST: &str = include_str!("template/handler.rs");
const PYTHON: &str = include_str!("template/handler.py");
const TYPESCRIPT: &str = include_str!("template/handler.ts");

/// Write a new business process: one function or handler, and its registration
#[derive(Args)]
#[command(group = clap::ArgGroup::new("language").args(["rust", "python", "typescript", "task_kind"]))]
pub(crate) struct New {
    /// Name, such as send_invoice, or with a schema: billing.send_invoice
    #[arg(value_name = "NAME")]
    name: String,
    /// Write a handler in Rust
    #[arg(long)]
    rust: bool,
    /// Write a handler in Python
    #[arg(long)]
    python: bool,
    /// Write a handler in TypeScript
    #[arg(long)]
    typescript: bool,
    /// An attempt is a job of this kind: email and sms send the input, others are run by your own worker
    #[arg(long, value_name = "KIND")]
    task_kind: Option<String>,
    /// Directory for the file
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(new: &New, output: &Output) -> Exit {
    let (schema, name) = new.name.split_once('.').unwrap_or(("business", &new.name));
    check_name(name)?;
    check_schema(schema)?;
    if let Some(kind) = &new.task_kind {
        check_kind(kind)?;
    }
    let (template, extension) = new.template();
    let kind = format!("{schema}.{name}");
    let path = new.dir.join(format!("{name}.{extension}"));
    std::fs::create_dir_all(&new.dir).with_context(|| format!("cannot create {}", new.dir.display()))?;
    write_new(&path, &fill(template, schema, name, new.task_kind.as_deref()))?;
    let path = path.display().to_string();
    let install = match extension {
        "sql" => format!("psql -v ON_ERROR_STOP=1 -f {path}"),
        _ => format!("towpath process kind {kind}, then run {path}"),
    };
    let start = format!("select towpath.start_process('{kind}', 'order:1'{})", new.input());
    output.show(&json!({ "process_kind": kind, "file": path, "install": install, "start": start }), |_| {
        format!("wrote {path}\nnext: {install}, then\n      {start}")
    });
    done()
}

impl New {
    fn template(&self) -> (&'static str, &'static str) {
        match self {
            New { rust: true, .. } => (RUST, "rs"),
            New { python: true, .. } => (PYTHON, "py"),
            New { typescript: true, .. } => (TYPESCRIPT, "ts"),
            New { task_kind: Some(_), .. } => (TASK, "sql"),
            _ => (FUNCTION, "sql"),
        }
    }

    /// The input of an example, for tasks that need one.
    fn input(&self) -> &'static str {
        match self.task_kind.as_deref() {
            Some("email") => {
                r#", input => '{"to": "ann@example.org", "from": "shop@example.com", "subject": "Hello", "text": "It works."}'"#
            }
            Some("sms") => {
                r#", input => '{"to": "+31612345678", "from": "+31687654321", "text": "It works."}'"#
            }
            _ => "",
        }
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if !is_identifier(name) || name.len() > NAME_BYTES_MAX {
        bail!(
            "invalid process name {name:?}: use a lower-case letter, then letters, digits or _, at most \
             {NAME_BYTES_MAX} characters; for example: towpath process new send_invoice"
        );
    }
    // The name of the function stands alone in every language.
    let reserved =
        ["all", "any", "case", "check", "class", "column", "default", "do", "else", "end", "for", "from"];
    let more = [
        "grant", "group", "if", "in", "is", "not", "order", "process", "select", "table", "then", "user",
        "when",
    ];
    if reserved.contains(&name) || more.contains(&name) {
        bail!("the name {name} is reserved; use another one, such as run_{name}");
    }
    Ok(())
}

fn check_schema(schema: &str) -> anyhow::Result<()> {
    if !is_identifier(schema) || schema.len() > 63 {
        bail!("invalid schema name {schema:?}: use a lower-case letter, then letters, digits or _");
    }
    // Reserved words of PostgreSQL.
    let reserved =
        ["all", "any", "check", "column", "default", "end", "grant", "group", "order", "table", "user"];
    if reserved.contains(&schema)
        || ["towpath", "comms", "information_schema", "public"].contains(&schema)
        || schema.starts_with("pg_")
    {
        bail!("schema {schema} is reserved; use your own: towpath process new billing.NAME");
    }
    Ok(())
}

/// The kind is written into SQL text.
fn check_kind(kind: &str) -> anyhow::Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if kind.is_empty() || kind.len() > 200 || !kind.chars().all(fine) {
        bail!("invalid job kind {kind:?}: use letters, digits, _, -, . and :");
    }
    Ok(())
}

/// A name that PostgreSQL accepts without quotes.
fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create_new(path).with_context(|| {
        format!("{} already exists and is not overwritten; choose another name or --dir", path.display())
    })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn fill(template: &str, schema: &str, name: &str, task_kind: Option<&str>) -> String {
    let kind = format!("{schema}.{name}");
    let names = [
        ("{{kind}}", kind.as_str()),
        ("{{schema}}", schema),
        ("{{name}}", name),
        ("{{task_kind}}", task_kind.unwrap_or_default()),
    ];
    names.iter().fold(template.to_owned(), |text, (placeholder, value)| text.replace(placeholder, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_they_reach_sql() {
        for good in ["a", "send_invoice", "x9"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "9a", "_a", "Send", "a-b", "a b", "a;drop", "a\"", "a'", "ä", "table", &long] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for bad in ["towpath", "comms", "public", "pg_temp", "information_schema", "a.b", ""] {
            assert!(check_schema(bad).is_err(), "{bad}");
        }
        for bad in ["", "a'b", "a b", "a\n"] {
            assert!(check_kind(bad).is_err(), "{bad}");
        }
    }

    /// P16: at most 40 lines in every language, and nothing of the template is left.
    #[test]
    fn a_new_process_is_small() {
        for template in [FUNCTION, TASK, RUST, PYTHON, TYPESCRIPT] {
            let text = fill(template, "billing", "send_invoice", Some("email"));
            assert!(!text.contains("{{"), "{text}");
            assert!(text.lines().count() <= 40, "{text}");
        }
    }
}
