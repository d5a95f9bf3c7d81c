//! `towpath events replay`: sends stored events through a route.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use tokio::time::Instant;
use towpath_db::Database;
use towpath_db::event::{Replay as What, Replayed, Span};
use towpath_model::id::EventId;

use crate::command::Actor;
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output};
use crate::progress;

/// Events per call: short transactions, and a progress bar that moves.
const BATCH: i32 = 500;

#[derive(Args)]
pub(crate) struct Replay {
    /// Route; must be live or in dry run
    route: String,
    /// Single events, whether or not they match the route
    #[arg(conflicts_with_all = ["after", "to", "yes", "per_second"])]
    events: Vec<EventId>,
    /// Replay matching events after this position; 0 for every stored event
    #[arg(long, value_name = "POSITION", required_unless_present = "events")]
    after: Option<i64>,
    /// Last position to replay (default: the current last position)
    #[arg(long, value_name = "POSITION")]
    to: Option<i64>,
    /// Replay them; without this a replay of positions only counts and exits with code 3
    #[arg(long)]
    yes: bool,
    /// Limit the replay rate to this many events per second
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(1..=1000))]
    per_second: Option<i32>,
    #[command(flatten)]
    by: Actor,
}

pub(crate) async fn run(replay: Replay, database: &Database, output: &Output) -> Exit {
    let actor = replay.by.name();
    if !replay.events.is_empty() {
        return some(&replay, &actor, database, output).await;
    }
    let last = database.event_health().await?.last_position;
    let span = Span { after: replay.after.unwrap_or(0), to: replay.to.unwrap_or(last).min(last) };
    if span.after > span.to {
        bail!("no events after position {} up to {}; the last position is {last}", span.after, span.to);
    }
    let counted = steps(&replay, span, What::Count, &actor, database).await?;
    if !replay.yes {
        output.show(
            &json!({ "route_name": replay.route, "would_replay": counted.matched }),
            |_| match counted.matched {
                0 => format!("no event between these positions matches route {}", replay.route),
                n => format!("{n} events match route {}; replay them with --yes", replay.route),
            },
        );
        return Ok(if counted.matched == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) });
    }
    let done = steps(&replay, span, What::Send, &actor, database).await?;
    output.show(&done, in_words);
    Ok(if done.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}

async fn some(replay: &Replay, actor: &str, database: &Database, output: &Output) -> Exit {
    let mut sent = vec![];
    let bar = progress::bar(replay.events.len() as u64, "events");
    for event in &replay.events {
        sent.push(database.route_send(&replay.route, *event, actor).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.show(&sent, |sent| {
        let line = |one: &towpath_db::event::RouteSent| match &one.detail {
            Some(error) => format!("event {}: {} ({error})", one.event_id, one.decision),
            None => format!("event {}: {}, generation {}", one.event_id, one.decision, one.generation),
        };
        sent.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = sent.iter().any(|one| one.detail.is_some());
    Ok(if failed { ExitCode::from(EXIT_FAILURES) } else { ExitCode::SUCCESS })
}

/// Replays step by step to the end of the range.
async fn steps(
    replay: &Replay,
    mut span: Span,
    what: What,
    actor: &str,
    database: &Database,
) -> anyhow::Result<Replayed> {
    let begin = span.after;
    let verb = if what == What::Send { "positions replayed" } else { "positions counted" };
    let bar = progress::bar((span.to - begin).unsigned_abs(), verb);
    let limit = replay.per_second.filter(|_| what == What::Send).unwrap_or(BATCH);
    let mut done: Option<Replayed> = None;
    loop {
        let started = Instant::now();
        let step = database.route_replay(&replay.route, span, what, limit, actor).await?;
        bar.set_position((step.position - begin).unsigned_abs());
        span.after = step.position;
        let more = step.more;
        let sum = match done.take() {
            None => step,
            Some(sum) => Replayed {
                matched: sum.matched + step.matched,
                sent: sum.sent + step.sent,
                dry_run: sum.dry_run + step.dry_run,
                failed: sum.failed + step.failed,
                ..step
            },
        };
        if !more {
            bar.finish_and_clear();
            return Ok(sum);
        }
        done = Some(sum);
        if what == What::Send && replay.per_second.is_some() {
            tokio::time::sleep_until(started + Duration::from_secs(1)).await;
        }
    }
}

fn in_words(done: &Replayed) -> String {
    let mut words = match (done.sent, done.dry_run) {
        (0, 0) => format!("no events replayed through {}", done.route_name),
        (sent, 0) => format!("replayed {sent} events through {}", done.route_name),
        (0, dry) => format!("recorded {dry} dry-run decisions; {} is in dry run", done.route_name),
        (sent, dry) => {
            format!("replayed {sent} events through {}, recorded {dry} dry-run decisions", done.route_name)
        }
    };
    if done.failed > 0 {
        words +=
            &format!("; {} failed, see: towpath routes dlq list --route {}", done.failed, done.route_name);
    }
    words
}
