//! `towpath message show`.

use serde_json::Value;
use towpath_db::Database;
use towpath_db::message::MessageWhole;

use crate::command::process::detail;
use crate::output::{Exit, Output, done};

pub(crate) async fn run(message: i64, database: &Database, output: &Output) -> Exit {
    output.show(&database.message_show(message).await?, in_words);
    done()
}

fn in_words(whole: &MessageWhole) -> String {
    let said = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) if list.is_empty() => None,
        Value::Object(fields) if fields.is_empty() => None,
        Value::Array(list) => {
            let words =
                list.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            Some(words.collect::<Vec<_>>().join(", "))
        }
        other => Some(other.to_string()),
    };
    let texts = ["text_body", "html_body"];
    let fields = whole.message.iter().filter(|(name, _)| !texts.contains(&name.as_str()));
    let mut lines: Vec<String> =
        fields.filter_map(|(name, value)| Some(format!("{name:<15}  {}", said(value)?))).collect();
    for task in &whole.tasks {
        lines.push(format!("{:<15}  {}", "send", detail(&Value::Object(task.clone()))));
    }
    for name in texts {
        if let Some(text) = whole.message.get(name).and_then(Value::as_str) {
            lines.push(format!("\n{text}"));
        }
    }
    lines.join("\n")
}
