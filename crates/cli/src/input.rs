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

/// A reason to record, which says something.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("must not be empty; it is recorded with the change".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A whole number, with an example in the refusal.
pub(crate) fn number(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| "expected a whole number, such as 100".to_owned())
}

/// A part of a payload: JSON, or KEY=VALUE for one key.
pub(crate) fn part(text: &str) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty() && !key.contains('{'))
        .ok_or("expected JSON such as {\"order\": 7}, or KEY=VALUE such as order=7")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(Value::Object(Map::from_iter([(key.trim().to_owned(), value)])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::part;

    #[test]
    fn a_part_of_a_payload_is_json_or_a_pair() {
        assert_eq!(part(r#"{"order": 7}"#), Ok(json!({"order": 7})));
        assert_eq!(part("order=7"), Ok(json!({"order": 7})));
        assert_eq!(part("name=Ann"), Ok(json!({"name": "Ann"})));
        assert!(part("order").is_err() && part("{order=7").is_err());
    }
}
