//! `towpath process show`: the facts as a timeline.

use serde_json::Value;
use towpath_db::Database;
use towpath_db::process::{ProcessAttempt, ProcessFact, ProcessWhole};
use towpath_model::id::ProcessId;

use crate::output::{Exit, Output, done, table};

pub(crate) async fn run(process: ProcessId, database: &Database, output: &Output) -> Exit {
    output.show(&database.process_show(process).await?, in_words);
    done()
}

fn in_words(whole: &ProcessWhole) -> String {
    let process = &whole.process;
    let begun = whole.attempts.iter().filter(|attempt| attempt.begun_at.is_some()).count();
    let mut fields = vec![
        ("process", process.process_id.to_string()),
        ("kind", process.process_kind.clone()),
        ("ref", process.reference.clone()),
        ("state", process.state.clone()),
        ("attempts", format!("{begun} started, at most {}", process.max_attempts)),
        ("started", format!("{:.0} by {}", process.started_at, process.started_by)),
    ];
    if !process.result.is_null() {
        fields.push(("result", process.result.to_string()));
    }
    match process.finished_at {
        Some(at) => fields.push(("finished", format!("{at:.0}"))),
        None => {
            let next = process.next_check_at.map_or_else(String::new, |at| format!("{at:.0}"));
            fields.push(("next check", next));
            fields.push(("deadline", format!("{:.0}", process.deadline_at)));
        }
    }
    let fields = fields.iter().map(|(name, value)| format!("{name:<11}  {value}")).collect::<Vec<_>>();
    let mut parts = vec![fields.join("\n")];
    let facts = whole.facts.iter().map(row);
    parts.push(table(["WHEN", "FACT", "ATTEMPT", "WHO", "DETAIL"], facts));
    if let Some(open) = whole.attempts.iter().find(|attempt| attempt.outcome.is_none()) {
        parts.push(outstanding(open));
    }
    if process.state == "held" {
        parts.push(format!(
            "next: towpath process resolve {} retry|succeeded|gave-up|cancelled --why …",
            process.process_id
        ));
    }
    parts.join("\n\n")
}

fn outstanding(attempt: &ProcessAttempt) -> String {
    let no = attempt.attempt_no;
    let until = attempt.lease_until.map_or_else(String::new, |until| format!("{until:.0}"));
    match (attempt.begun_at, &attempt.worker, attempt.job_id) {
        (Some(at), Some(worker), _) => {
            format!("attempt {no} was started at {at:.0} by {worker}; it counts as lost at {until}")
        }
        (_, _, Some(job)) => format!("attempt {no} has not started; see: towpath job why {job}"),
        _ => format!("attempt {no} has not started"),
    }
}

fn row(fact: &ProcessFact) -> [String; 5] {
    let attempt = fact.attempt_no.map_or_else(String::new, |attempt| attempt.to_string());
    let who = fact.actor.clone().unwrap_or_default();
    let words = match &fact.name {
        Some(name) if fact.value.is_null() => {
            format!("{name} {}", detail(&fact.detail)).trim_end().to_owned()
        }
        Some(name) => format!("{name} {}", fact.value),
        None => detail(&fact.detail),
    };
    [format!("{:.3}", fact.at), fact.fact.clone(), attempt, who, words]
}

/// A fact's detail on one line: `key value` pairs, without quotes.
pub(crate) fn detail(detail: &Value) -> String {
    let fields = detail.as_object().into_iter().flatten();
    let words = fields.map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    });
    words.collect::<Vec<_>>().join(", ")
}
