//! `towpath routes list | show | attempts`.

use towpath_db::event::{Route, RouteAttempts};
use towpath_model::event::route::Mode;

use crate::output::{table, table_or};

pub(crate) fn table_of(routes: &[Route]) -> String {
    let rows = routes.iter().map(|route| {
        [
            route.route_name.clone(),
            route.mode.to_string(),
            takes(route),
            target(route),
            route.deliveries_waiting.to_string(),
            route.dead_letters_open.to_string(),
            trouble(route),
        ]
    });
    let head = ["ROUTE", "MODE", "EVENTS", "TO", "WAITING", "DEAD", ""];
    table_or("no routes; add one with: towpath routes add NAME --to-job KIND", head, rows)
}

/// The events it matches, on one line.
fn takes(route: &Route) -> String {
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "*".into());
    let mut words = format!("{}/{}", any(&route.event_domain), any(&route.event_type));
    if let Some(stream) = &route.event_stream {
        words += &format!(" in {stream}");
    }
    if let Some(recipient) = &route.recipient_filter {
        words += &format!(" for {recipient}");
    }
    if route.payload_filter != serde_json::json!({}) {
        words += &format!(" with {}", route.payload_filter);
    }
    words
}

/// Its target, on one line.
fn target(route: &Route) -> String {
    let field = match route.target_kind.as_str() {
        "job" => "job_kind",
        "webhook" => "url",
        _ => "stream",
    };
    format!("{} {}", route.target_kind, route.target[field].as_str().unwrap_or("?"))
}

fn trouble(route: &Route) -> String {
    match (route.circuit.as_deref(), route.blocked_until) {
        (Some(circuit), _) if circuit != "closed" => format!("circuit {circuit}"),
        (_, Some(until)) => format!("paused until {until:.0}"),
        _ if route.target_kind == "webhook" && !route.signed => "no signing key".into(),
        _ => String::new(),
    }
}

pub(crate) fn in_words(route: &Route) -> String {
    let retry = route.retry_seconds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let signing = match (route.signed, route.previous_key_until) {
        (false, _) => "no key".to_owned(),
        (true, None) => "one key".to_owned(),
        (true, Some(until)) => format!("a new key, and the previous one until {until:.0}"),
    };
    let mut fields = vec![
        ("route", route.route_name.clone()),
        ("mode", format!("{} ({})", route.mode, route.mode_reason)),
        ("events", takes(route)),
        ("to", target(route)),
        ("target", route.target.to_string()),
        ("worker", route.worker_name.clone()),
        ("order", if route.ordering == "key" { "by key, one at a time" } else { "none" }.to_owned()),
        ("changed", format!("{:.0} by {}", route.changed_at, route.changed_by)),
        ("dead", format!("{} open", route.dead_letters_open)),
    ];
    if route.target_kind == "webhook" {
        fields.push(("signing", signing));
        fields.push(("retries", format!("after {retry} seconds")));
        fields.push(("circuit", route.circuit.clone().unwrap_or_else(|| "closed".into())));
    }
    if route.target_kind != "job" {
        fields.push(("waiting", route.deliveries_waiting.to_string()));
    }
    let optional = [
        ("rate limit", route.rate_limit_per_second.map(|rate| format!("{rate} per second"))),
        ("last error", route.last_error.clone()),
        ("paused", route.blocked_until.map(|until| format!("until {until:.0}"))),
        ("notes", route.notes.clone()),
        ("retired", route.retired_at.map(|at| format!("{at:.0}"))),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let lines: Vec<_> = fields.iter().map(|(name, value)| format!("{name:<10} {value}")).collect();
    let next = match route.mode {
        _ if route.retired_at.is_some() => return lines.join("\n"),
        Mode::Off => {
            format!("try it without delivering: towpath routes dry-run {} --why …", route.route_name)
        }
        Mode::DryRun => format!("start delivering: towpath routes enable {} --why …", route.route_name),
        Mode::Live => return lines.join("\n"),
    };
    format!("{}\nnext: {next}", lines.join("\n"))
}

pub(crate) fn attempts_in_words(attempts: &RouteAttempts) -> String {
    let none = || "-".to_owned();
    let decisions = attempts.decisions.iter().map(|one| {
        [
            format!("{:.0}", one.attempted_at),
            one.position.to_string(),
            one.event_id.to_string(),
            one.decision.to_string(),
            one.error.clone().or_else(|| one.reason.clone()).unwrap_or_else(none),
        ]
    });
    let decided = table(["DECIDED", "POSITION", "EVENT", "DECISION", "WHY"], decisions);
    if attempts.deliveries.is_empty() {
        return decided;
    }
    let sent = attempts.deliveries.iter().map(|one| {
        [
            format!("{:.0}", one.ended_at),
            one.event_id.to_string(),
            one.attempt.to_string(),
            one.outcome.clone(),
            one.status_code.map_or_else(none, |code| code.to_string()),
            one.duration_ms.map_or_else(none, |ms| format!("{ms} ms")),
            one.error.clone().unwrap_or_else(none),
        ]
    });
    format!(
        "{decided}\n\n{}",
        table(["SENT", "EVENT", "ATTEMPT", "OUTCOME", "STATUS", "TOOK", "ERROR"], sent)
    )
}
