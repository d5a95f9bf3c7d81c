//! `towpath routes dlq list | show | replay | resolve`: dead letters of routes.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use towpath_db::Database;
use towpath_db::event::{Letters, LettersReplayed, RouteDeadLetter, RouteDeadLetterPage};
use towpath_model::id::DeadLetterId;

use crate::command::Actor;
use crate::command::config::By;
use crate::command::job::first_line;
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output, done, paged, table_or};
use crate::progress;

/// Dead letters per call of a bulk replay: short transactions.
const REPLAY_BATCH: i32 = 200;

#[derive(Subcommand)]
pub(crate) enum Dlq {
    /// List open dead letters, oldest first
    List {
        /// Only of this route
        #[arg(long)]
        route: Option<String>,
        /// List resolved ones instead
        #[arg(long)]
        resolved: bool,
        /// Maximum number to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
        /// Continue after this one, the last of the previous page
        #[arg(long, value_name = "DEAD_LETTER")]
        after: Option<DeadLetterId>,
    },
    /// Show one dead letter with its event
    Show {
        /// Its id
        letter: DeadLetterId,
    },
    /// Replay dead letters through their current routes: by id, all of a route, or all
    Replay {
        /// Their ids
        #[arg(conflicts_with_all = ["route", "all"], required_unless_present_any = ["route", "all"])]
        letters: Vec<DeadLetterId>,
        /// Every open one of this route
        #[arg(long)]
        route: Option<String>,
        /// Every open one
        #[arg(long, conflicts_with = "route")]
        all: bool,
        /// Replay them; without this a bulk replay only counts and exits with code 3
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        by: Actor,
    },
    /// Resolve a dead letter without sending it
    Resolve {
        /// Its id
        letter: DeadLetterId,
        #[command(flatten)]
        by: By,
    },
}

pub(crate) async fn run(dlq: Dlq, database: &Database, output: &Output) -> Exit {
    match dlq {
        Dlq::List { route, resolved, limit, after } => {
            let which = if resolved { Letters::Resolved } else { Letters::Open };
            let page = database.route_dead_letter_list(route.as_deref(), which, limit, after).await?;
            output.show(&page, list);
        }
        Dlq::Show { letter } => output.show(&database.route_dead_letter_show(letter).await?, show),
        Dlq::Replay { letters, route, yes, by, .. } => {
            let actor = by.name();
            return match (letters.is_empty(), yes) {
                (false, _) => some(&letters, &actor, database, output).await,
                (true, false) => preview(route.as_deref(), database, output).await,
                (true, true) => many(route.as_deref(), &actor, database, output).await,
            };
        }
        Dlq::Resolve { letter, by } => {
            database.route_dead_letter_resolve(letter, by.attribution(&by.actor())).await?;
            output.show(&json!({ "resolved": letter }), |_| format!("resolved dead letter {letter}"));
        }
    }
    done()
}

async fn some(letters: &[DeadLetterId], actor: &str, database: &Database, output: &Output) -> Exit {
    let mut done = vec![];
    let bar = progress::bar(letters.len() as u64, "replayed");
    for letter in letters {
        done.push(database.route_dead_letter_replay(*letter, actor).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.show(&done, |done| {
        let line = |one: &towpath_db::event::LetterReplayed| match &one.detail {
            Some(error) => format!("dead letter {} failed again: {error}", one.dead_letter_id),
            None if !one.resolved => {
                format!("dead letter {} stays open: its route is in dry run", one.dead_letter_id)
            }
            None => format!("dead letter {}: {}", one.dead_letter_id, one.decision),
        };
        done.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let all = done.iter().all(|one| one.resolved);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}

/// Counts them without changing any.
async fn preview(route: Option<&str>, database: &Database, output: &Output) -> Exit {
    let count = count(route, database).await?;
    output.show(&json!({ "would_replay": count }), |_| match count {
        0 => "no open dead letters".into(),
        n => format!("{n} dead letters match; replay them with --yes"),
    });
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) })
}

async fn count(route: Option<&str>, database: &Database) -> anyhow::Result<u64> {
    let counted = progress::count("dead letters counted");
    let mut cursor = None;
    loop {
        let page = database.route_dead_letter_list(route, Letters::Open, 1000, cursor).await?;
        counted.inc(page.dead_letters.len() as u64);
        cursor = page.cursor;
        if cursor.is_none() {
            counted.finish_and_clear();
            return Ok(counted.position());
        }
    }
}

/// Replays batch by batch, until a batch resolves nothing more.
async fn many(route: Option<&str>, actor: &str, database: &Database, output: &Output) -> Exit {
    let bar = progress::bar(count(route, database).await?, "replayed");
    let mut done = LettersReplayed::default();
    loop {
        let batch = database.route_dead_letter_replay_many(route, REPLAY_BATCH, actor).await?;
        let went_on = !batch.replayed.is_empty();
        bar.inc(batch.replayed.len() as u64);
        done.replayed.extend(batch.replayed);
        (done.dry_run, done.failed, done.refused) = (batch.dry_run, batch.failed, batch.refused);
        if !went_on {
            break;
        }
    }
    bar.finish_and_clear();
    if let (true, Some(first)) = (done.replayed.is_empty(), done.refused.first()) {
        let detail = first["detail"].as_str().unwrap_or("the route refuses them");
        bail!("no dead letter could be replayed: {detail}");
    }
    output.show(&done, |done| {
        let mut words = format!("{} dead letters replayed", done.replayed.len());
        if let Some(first) = done.failed.first() {
            words += &format!("; {} failed again, see: towpath routes dlq show {first}", done.failed.len());
        }
        if !done.dry_run.is_empty() {
            words += &format!("; {} stay open because their route is in dry run", done.dry_run.len());
        }
        if !done.refused.is_empty() {
            words += &format!("; {} skipped because their route is off", done.refused.len());
        }
        words
    });
    let left = done.dry_run.len() + done.failed.len() + done.refused.len();
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}

fn list(page: &RouteDeadLetterPage) -> String {
    let rows = page.dead_letters.iter().map(|letter| {
        let kind = |field: &str| letter.event_snapshot.as_ref().and_then(|event| event[field].as_str());
        [
            letter.dead_letter_id.to_string(),
            letter.route_name.clone(),
            letter.stage.clone(),
            format!("{}/{}", kind("event_domain").unwrap_or("?"), kind("event_type").unwrap_or("?")),
            format!("{:.0}", letter.created_at),
            letter.resolution.clone().unwrap_or_else(|| first_line(&letter.error)),
        ]
    });
    let head = ["DEAD LETTER", "ROUTE", "STAGE", "EVENT", "CREATED", "ERROR"];
    paged(table_or("no route dead letters", head, rows), page.cursor)
}

fn show(letter: &RouteDeadLetter) -> String {
    let event = letter.event_snapshot.clone().unwrap_or(Value::Null);
    let resolved =
        letter.resolved_at.zip(letter.resolved_by.as_ref()).map(|(at, by)| format!("{at:.0} by {by}"));
    let fields = [
        ("id", Some(letter.dead_letter_id.to_string())),
        ("route", Some(letter.route_name.clone())),
        ("stage", Some(letter.stage.clone())),
        ("event", Some(letter.event_id.to_string())),
        ("position", Some(letter.position.to_string())),
        ("payload", Some(event["payload"].to_string())),
        ("attempts", Some(letter.attempts.to_string())),
        ("replays", Some(letter.replays.to_string())),
        ("created", Some(format!("{:.0}", letter.created_at))),
        ("resolved", resolved),
        ("as", letter.resolution.clone()),
        ("error", Some(letter.error.clone())),
    ];
    let lines = fields.iter().filter_map(|(name, value)| Some(format!("{name:<9} {}", value.as_ref()?)));
    lines.collect::<Vec<_>>().join("\n")
}
