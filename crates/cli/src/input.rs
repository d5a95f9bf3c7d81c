//! JSON given to a command: inline, in a file, or on standard input.

use std::io::Read;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// Parses inline JSON, `@FILE`, or `-` for standard input.
pub(crate) fn json(given: &str, what: &str) -> anyhow::Result<Value> {
    let text = match given.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
        None if given == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        }
        None => given.to_owned(),
    };
    serde_json::from_str(&text).with_context(|| format!("the {what} is not JSON"))
}

/// The same, or an empty object if nothing was given.
pub(crate) fn object(given: Option<&str>, what: &str) -> anyhow::Result<Value> {
    match given.map(|given| json(given, what)).transpose()? {
        None => Ok(Value::Object(Map::new())),
        Some(value) if value.is_object() => Ok(value),
        Some(value) => bail!("the {what} must be a JSON object such as {{\"key\": 1}}, not {value}"),
    }
}
