//! `towpath events verify | health`: the W checks, and the progress of sequencing, routing and delivery.

use std::process::ExitCode;

use serde_json::Value;
use towpath_db::Database;
use towpath_db::event::{Check, EventHealth, Extent, Verified};

use crate::output::{EXIT_FAILURES, Exit, Output, done};
use crate::progress;

pub(crate) async fn run(full: bool, database: &Database, output: &Output) -> Exit {
    let extent = if full { Extent::Everything } else { Extent::Newest };
    let verified = progress::patience("checking events", database.event_verify(extent)).await?;
    output.show(&verified, in_words);
    Ok(if verified.passed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}

fn in_words(verified: &Verified) -> String {
    let mut lines = vec![];
    for check in &verified.checks {
        lines.push(format!(
            "{}  {:<14}  {}",
            if check.ok { "ok  " } else { "FAIL" },
            check.check,
            check.text
        ));
        lines.extend(holders(check).into_iter().map(|holder| format!("      {holder}")));
        if !check.ok {
            lines.push(format!("      next: {}", next_step(&check.check)));
        }
    }
    let looked = if verified.full { "every stored event" } else { "the newest events" };
    let verdict = if verified.passed { "no event is lost, duplicated or stuck" } else { "checks failed" };
    lines.push(format!("{verdict} ({looked}, up to position {})", verified.last_position));
    lines.join("\n")
}

/// Which worker lags, and which session holds its lock.
fn holders(check: &Check) -> Vec<String> {
    let held = |holder: &Value| {
        let text = |field: &str| holder[field].as_str().unwrap_or("?").to_owned();
        (!holder.is_null()).then(|| {
            let (pid, since) = (&holder["pid"], text("since"));
            format!(
                "locked by PostgreSQL process {pid} ({}, {}) since {since}",
                text("user"),
                text("application")
            )
        })
    };
    let mut lines = vec![];
    lines.extend(
        check.more.get("sequencer_held_by").and_then(held).map(|by| format!("the sequencer is {by}")),
    );
    for cursor in check.more.get("cursors").and_then(Value::as_array).into_iter().flatten() {
        let lag = cursor["lag"].as_i64().unwrap_or(0);
        if lag > 0 {
            let by = held(&cursor["held_by"]).unwrap_or_else(|| "not locked".into());
            let (worker, slice) = (cursor["worker_name"].as_str().unwrap_or("?"), &cursor["slice"]);
            lines.push(format!("worker {worker} slice {slice} is {lag} events behind, {by}"));
        }
    }
    for target in check.more.get("circuits_open").and_then(Value::as_array).into_iter().flatten() {
        lines.push(format!("the circuit of {} is open", target.as_str().unwrap_or("?")));
    }
    lines
}

fn next_step(check: &str) -> &'static str {
    match check {
        "W2_cursors" => {
            "reset the worker with: towpath routes worker NAME --from POSITION (docs/runbooks/restore-events.md)"
        }
        "W3_gaps" | "W4_duplicates" => "a restore mixed two states; follow docs/runbooks/restore-events.md",
        "W5_unnumbered" => {
            "no sequencer is running: start `towpath route` or `towpath up`; if a session holds its lock, end that session"
        }
        "W6_attempts" => {
            "replay them with: towpath events replay ROUTE --after POSITION (docs/runbooks/replay-events.md)"
        }
        "W7_twice" => {
            "stop the route with: towpath routes disable NAME --why …, then check: towpath events show EVENT"
        }
        "W8_letters" => "list them with: towpath routes dlq list, then replay or resolve each",
        "W9_lag" => {
            "senders stopped: start `towpath route` or `towpath up`; the next claim takes over expired leases"
        }
        _ => "towpath doctor",
    }
}

pub(crate) async fn health(database: &Database, output: &Output) -> Exit {
    output.show(&database.event_health().await?, health_in_words);
    done()
}

fn health_in_words(health: &EventHealth) -> String {
    let closed: Vec<&str> = [
        ("event.routing.enabled", health.routing_enabled),
        ("event.route_worker.enabled", health.route_worker_enabled),
        ("event.delivery.enabled", health.delivery_enabled),
    ]
    .into_iter()
    .filter_map(|(gate, open)| (!open).then_some(gate))
    .collect();
    let percent = health.broadcast_percent_24h.map_or_else(String::new, |percent| format!(" ({percent} %)"));
    let fields = [
        ("events", format!("positions {} to {}", health.kept_from, health.last_position)),
        ("numbered", format!("{:.0}", health.last_numbered_at)),
        ("routed", health.last_route_run_at.map_or_else(|| "never".into(), |at| format!("{at:.0}"))),
        ("lag", format!("{} events on the slowest slice", health.slowest_lag)),
        (
            "deliveries",
            format!("{} waiting, {} in flight", health.deliveries_waiting, health.deliveries_leased),
        ),
        ("dead letters", format!("{} open", health.route_dead_letters_open)),
        ("circuits", format!("{} not closed", health.circuits_open)),
        (
            "broadcasts",
            format!("{} of {} in 24 hours{percent}", health.broadcast_events_24h, health.events_24h),
        ),
        ("gates", if closed.is_empty() { "open".into() } else { format!("closed: {}", closed.join(", ")) }),
    ];
    fields.iter().map(|(name, value)| format!("{name:<12}  {value}")).collect::<Vec<_>>().join("\n")
}
