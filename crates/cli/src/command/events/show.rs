//! `towpath events show`.

use serde_json::Value;
use towpath_db::Database;
use towpath_db::event::{DeliveryHistory, Event, EventWhole, RouteAttempt};
use towpath_model::event::route::Decision;
use towpath_model::id::EventId;

use super::explain::recipients_in_words;
use crate::output::{Exit, Output, done, table};

pub(crate) async fn run(event: EventId, database: &Database, output: &Output) -> Exit {
    output.show(&database.event_show(event).await?, in_words);
    done()
}

fn in_words(whole: &EventWhole) -> String {
    let mut parts = vec![event_in_words(&whole.event), recipients_in_words(&whole.recipients)];
    parts.push(match whole.attempts.is_empty() {
        true => "no route worker has processed it yet; check: towpath events health".into(),
        false => attempts(&whole.attempts),
    });
    parts.extend(deliveries(&whole.deliveries));
    for letter in &whole.dead_letters {
        parts.push(match &letter.resolution {
            Some(resolution) => format!("dead letter {} ({resolution})", letter.dead_letter_id),
            None => format!(
                "dead letter {}: {}\n  next: towpath routes dlq replay {0}",
                letter.dead_letter_id, letter.error
            ),
        });
    }
    parts.join("\n\n")
}

fn event_in_words(event: &Event) -> String {
    let position = event.position.map_or_else(|| "none yet".into(), |position| position.to_string());
    let mut fields = vec![
        ("event", event.event_id.to_string()),
        ("position", position),
        ("domain", event.event_domain.clone()),
        ("type", event.event_type.clone()),
    ];
    let optional = [
        ("stream", &event.event_stream),
        ("table", &event.subject_table),
        ("row", &event.subject_ref),
        ("key", &event.ordering_key),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    fields.push(("emitted", format!("{:.3} by {}", event.created_at, event.who())));
    fields.push(("payload", event.payload.to_string()));
    fields.iter().map(|(name, value)| format!("{name:<9} {value}")).collect::<Vec<_>>().join("\n")
}

fn attempts(attempts: &[RouteAttempt]) -> String {
    let rows = attempts.iter().map(|attempt| {
        let detail = match (&attempt.error, &attempt.reason, attempt.result_id) {
            (Some(error), ..) => error.clone(),
            (_, _, Some(id)) if attempt.decision == Decision::Sent => format!("as {id}"),
            (_, reason, _) => reason.clone().unwrap_or_default(),
        };
        [
            format!("{:.3}", attempt.attempted_at),
            attempt.route_name.clone().unwrap_or_else(|| "-".into()),
            attempt.mode.to_string(),
            attempt.generation.to_string(),
            attempt.decision.to_string(),
            detail,
        ]
    });
    table(["WHEN", "ROUTE", "MODE", "GENERATION", "DECISION", "DETAIL"], rows)
}

/// Sent and waiting deliveries, in two tables.
fn deliveries(history: &DeliveryHistory) -> Vec<String> {
    let text = |row: &Value, field: &str| match &row[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut parts = vec![];
    if !history.attempts.is_empty() {
        let columns = ["ended_at", "route_name", "attempt", "outcome", "status_code", "error"];
        let rows: Vec<_> =
            history.attempts.iter().map(|row| columns.map(|column| text(row, column))).collect();
        parts.push(table(["SENT", "ROUTE", "ATTEMPT", "OUTCOME", "STATUS", "ERROR"], rows));
    }
    if !history.waiting.is_empty() {
        let columns = ["delivery_id", "route_name", "attempts", "next_at", "behind", "last_error"];
        let rows: Vec<_> =
            history.waiting.iter().map(|row| columns.map(|column| text(row, column))).collect();
        parts.push(table(["WAITS", "ROUTE", "ATTEMPTS", "NEXT", "BEHIND", "LAST ERROR"], rows));
    }
    parts
}
