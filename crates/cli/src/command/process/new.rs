//! `towpath process new NAME`: writes the SQL of a new business process and its test.

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use towpath_db::migrate::{PROCESS, Template};

use crate::output::{Exit, Output, done};

/// The longest name whose functions fit an identifier of PostgreSQL: count_NAME_task_scheduled.
const NAME_BYTES_MAX: usize = 40;
const TEST: &str = include_str!("template/test.sql");

/// Write the SQL of a new business process: tables, facts, handlers, supervisor, kickoff, grants
#[derive(Args)]
pub(crate) struct New {
    /// Name, such as send_invoice, or with a schema: billing.send_invoice
    #[arg(value_name = "NAME")]
    name: String,
    /// Job kind of an attempt: db_function runs SQL; email, sms or a kind of your own worker runs with handlers
    /// around it
    #[arg(long, default_value = "db_function", value_name = "KIND")]
    task_kind: String,
    /// Directory for NAME.sql and NAME.test.sql
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(new: &New, output: &Output) -> Exit {
    let (schema, name) = new.name.split_once('.').unwrap_or(("business", &new.name));
    check_name(name)?;
    check_schema(schema)?;
    check_kind(&new.task_kind)?;
    std::fs::create_dir_all(&new.dir).with_context(|| format!("cannot create {}", new.dir.display()))?;
    let files = [(format!("{name}.sql"), PROCESS), (format!("{name}.test.sql"), TEST)];
    let paths: Vec<PathBuf> = files.iter().map(|(file, _)| new.dir.join(file)).collect();
    for (path, (_, template)) in paths.iter().zip(&files) {
        write_new(path, &fill(template, schema, name, &new.task_kind))?;
    }
    let [sql, test] = [0, 1].map(|at| paths[at].display().to_string());
    output.show(&json!({ "process_kind": format!("{schema}.{name}"), "sql": sql, "test": test }), |_| {
        format!(
            "wrote {sql} and {test}\nnext: psql -v ON_ERROR_STOP=1 -f {sql}, the same with {test}, then\n      \
             select {schema}.kickoff_{name}_task(({schema}.create_{name}({})->>'{name}_id')::bigint)",
            example(&new.task_kind)
        )
    });
    done()
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if !is_identifier(name) || name.len() > NAME_BYTES_MAX {
        bail!(
            "invalid process name {name:?}: use a lower-case letter, then letters, digits or _, at most \
             {NAME_BYTES_MAX} characters; for example: towpath process new send_invoice"
        );
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

/// A name that PostgreSQL accepts without quotes. Reserved words are not checked: the template never uses a
/// process's name alone.
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

/// A template filled in for your own process.
fn fill(template: &str, schema: &str, name: &str, task_kind: &str) -> String {
    let variant = if ["db_function", "email", "sms"].contains(&task_kind) { task_kind } else { "other" };
    let filled = Template { schema, name, handler: name, task_kind, variant }.fill(template);
    let create_types = if ["email", "sms"].contains(&task_kind) { "(text, text)" } else { "(text)" };
    filled.replace("{{create_types}}", create_types).replace("{{example}}", example(task_kind))
}

/// Arguments that create a base record.
fn example(task_kind: &str) -> &'static str {
    match task_kind {
        "email" => "'order:1', 'ann@example.org'",
        "sms" => "'order:1', '+31612345678'",
        _ => "'order:1'",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_they_reach_sql() {
        for good in ["a", "send_invoice", "x9"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "a".repeat(41);
        for bad in ["", "9a", "_a", "Send", "a-b", "a b", "a;drop", "a\"", "a'", "ä", &long] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for bad in ["towpath", "comms", "public", "pg_temp", "information_schema", "a.b", ""] {
            assert!(check_schema(bad).is_err(), "{bad}");
        }
        for bad in ["", "a'b", "a b", "a\n"] {
            assert!(check_kind(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_of_the_template_is_left() {
        for kind in ["db_function", "email", "sms", "mine"] {
            for template in [PROCESS, TEST] {
                let text = fill(template, "billing", "send_invoice", kind);
                assert!(!text.contains("{{") && !text.contains("-- ["), "{kind}");
                assert_eq!(
                    text.contains("run_send_invoice"),
                    kind == "db_function" && template == PROCESS,
                    "{kind}"
                );
            }
        }
    }
}
