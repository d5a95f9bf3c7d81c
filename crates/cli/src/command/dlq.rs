//! `towpath dlq list | show | triage | replay`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::json;
use towpath_db::Database;
use towpath_db::dead_letter::{DeadLetter, DeadLetterFilter, DeadLetterPage, ReplayedMany};
use towpath_model::id::DeadLetterId;
use uuid::Uuid;

use super::config::By;
use super::job::first_line;
use crate::command::Actor;
use crate::moment;
use crate::output::{EXIT_TO_DO, Exit, Output, done, paged, table, table_or};
use crate::progress;
use crate::settings::Settings;

/// Dead letters per call of a bulk replay: short transactions, and a progress bar that moves.
const REPLAY_BATCH: i32 = 200;

#[derive(Subcommand)]
pub(crate) enum Dlq {
    /// List dead letters, oldest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Maximum number to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
        limit: i32,
        /// Continue after this one, the last of the previous page
        #[arg(long, value_name = "DEAD_LETTER")]
        after: Option<DeadLetterId>,
    },
    /// Show one dead letter in full
    Show {
        /// Its id, or the id of its job
        letter: DeadLetterId,
    },
    /// Set the triage status of a dead letter
    Triage {
        /// Its id, or the id of its job
        letter: DeadLetterId,
        /// The new status
        status: Status,
        #[command(flatten)]
        by: By,
    },
    /// Replay dead letters as new jobs linked to them: by id, or many by filter
    Replay {
        /// Their ids, or the ids of their jobs
        #[arg(conflicts_with_all = ["kind", "executor", "domain", "status", "run_id", "error", "since", "before"])]
        letters: Vec<DeadLetterId>,
        #[command(flatten)]
        filter: Filter,
        /// Replay them; without this a replay by filter only counts and exits with code 3
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        by: Actor,
    },
}

#[derive(Args)]
pub(crate) struct Filter {
    /// Only this job kind
    #[arg(long)]
    kind: Option<String>,
    /// Only for this executor kind
    #[arg(long)]
    executor: Option<String>,
    /// Only of this event domain
    #[arg(long)]
    domain: Option<String>,
    /// Only with this triage status
    #[arg(long)]
    status: Option<Status>,
    /// Only of this run
    #[arg(long, value_name = "UUID")]
    run_id: Option<Uuid>,
    /// Only with this text in the final error
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only moved here after this time, or within this duration
    #[arg(long, value_name = "WHEN", value_parser = moment::ago)]
    since: Option<Timestamp>,
    /// Only moved here before this time, or longer ago than this duration
    #[arg(long, value_name = "WHEN", value_parser = moment::ago)]
    before: Option<Timestamp>,
}

/// The five triage states.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Status {
    Pending,
    Acknowledged,
    ManualReplay,
    Escalated,
    Closed,
}

impl Status {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub(crate) async fn run(dlq: Dlq, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match dlq {
            Dlq::List { filter, limit, after } => {
                output.show(&database.dead_letter_list(&filter.read(), limit, after).await?, list);
            }
            Dlq::Show { letter } => output.show(&database.dead_letter_show(letter).await?, show),
            Dlq::Triage { letter, status, by } => {
                let letter = database.dead_letter_show(letter).await?.dead_letter_id;
                database.dead_letter_triage(letter, &status.name(), by.attribution(&by.actor())).await?;
                let answer = json!({ "dead_letter_id": letter, "triage_status": status.name() });
                output.show(&answer, |_| format!("dead letter {letter} is {}", status.name()));
            }
            Dlq::Replay { letters, filter, yes, by } => {
                let actor = by.name();
                let filter = filter.read();
                return match (letters.is_empty(), filter.is_empty(), yes) {
                    (false, ..) => replay_some(&letters, &actor, &database, output).await,
                    (true, true, _) => bail!(
                        "an empty filter would replay every dead letter; \
                         give ids, or filter with --kind, --error, --since …"
                    ),
                    (true, false, false) => preview(&filter, &database, output).await,
                    (true, false, true) => replay_many(filter, &actor, &database, output).await,
                };
            }
        }
        done()
    })
    .await
}

impl Filter {
    fn read(self) -> DeadLetterFilter {
        DeadLetterFilter {
            job_kind: self.kind,
            executor: self.executor,
            event_domain: self.domain,
            triage_status: self.status.map(Status::name),
            run_id: self.run_id,
            error_contains: self.error,
            moved_after: self.since,
            moved_before: self.before,
            replayed: None,
        }
    }
}

async fn replay_some(letters: &[DeadLetterId], actor: &str, database: &Database, output: &Output) -> Exit {
    let mut replayed = ReplayedMany::default();
    let bar = progress::bar(letters.len() as u64, "replayed");
    for letter in letters {
        let letter = database.dead_letter_show(*letter).await?.dead_letter_id;
        replayed.replayed.push(database.dead_letter_replay(letter, actor).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.show(&replayed, |replayed| {
        let lines = replayed
            .replayed
            .iter()
            .map(|one| format!("job {} replays dead letter {}", one.job_id, one.dead_letter_id));
        lines.collect::<Vec<_>>().join("\n")
    });
    done()
}

/// Counts them by kind without changing any.
async fn preview(filter: &DeadLetterFilter, database: &Database, output: &Output) -> Exit {
    let kinds = count(filter, database).await?;
    let total: u64 = kinds.values().sum();
    output.show(&json!({ "would_replay": total, "kinds": kinds }), |_| {
        if total == 0 {
            return "no dead letters to replay: none match, or all matches were replayed".into();
        }
        let rows = kinds.iter().map(|(kind, n)| [kind.clone(), n.to_string()]);
        format!(
            "{}\n{total} dead letters match; replay them with --yes",
            table(["KIND", "DEAD LETTERS"], rows)
        )
    });
    Ok(if total == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) })
}

async fn count(filter: &DeadLetterFilter, database: &Database) -> anyhow::Result<BTreeMap<String, u64>> {
    let open = DeadLetterFilter { replayed: Some(false), ..filter.clone() };
    Ok(progress::patience("counting", database.dead_letter_count(&open)).await?.kinds)
}

/// Replays batch by batch, skipping conflicts. Jobs that die again meanwhile are newer than the start and are
/// left out.
async fn replay_many(filter: DeadLetterFilter, actor: &str, database: &Database, output: &Output) -> Exit {
    let until = database.schedule_due(1).await?.now;
    let before = filter.moved_before.map_or(until, |before| before.min(until));
    let filter = DeadLetterFilter { moved_before: Some(before), ..filter };
    let total = count(&filter, database).await?.values().sum();
    let bar = progress::bar(total, "replayed");
    let mut done = ReplayedMany::default();
    loop {
        let batch = database.dead_letter_replay_many(&filter, actor, REPLAY_BATCH, done.cursor).await?;
        bar.inc(batch.replayed.len() as u64);
        done.replayed.extend(batch.replayed);
        done.conflicts.extend(batch.conflicts);
        done.cursor = batch.cursor;
        if done.cursor.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    output.show(&done, |done| {
        let mut words = format!("{} dead letters replayed", done.replayed.len());
        if !done.conflicts.is_empty() {
            words += &format!(
                "; {} skipped because an unfinished job has the same key, such as {}",
                done.conflicts.len(),
                done.conflicts[0]
            );
        }
        words
    });
    Ok(if done.conflicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) })
}

fn list(page: &DeadLetterPage) -> String {
    let rows = page.dead_letters.iter().map(|letter| {
        [
            letter.dead_letter_id.to_string(),
            letter.job_kind.clone(),
            letter.triage_status.clone(),
            letter.attempts.to_string(),
            format!("{:.0}", letter.moved_at),
            first_line(&letter.final_error),
        ]
    });
    let head = ["DEAD LETTER", "KIND", "STATUS", "ATTEMPTS", "MOVED", "ERROR"];
    paged(table_or("no dead letters", head, rows), page.cursor)
}

fn show(letter: &DeadLetter) -> String {
    let who = |at: Option<Timestamp>, by: &Option<String>| {
        at.zip(by.as_ref()).map(|(at, by)| format!("{at:.0} by {by}"))
    };
    let fields = [
        ("id", Some(letter.dead_letter_id.to_string())),
        ("job", Some(letter.job_id.to_string())),
        ("kind", Some(letter.job_kind.clone())),
        ("executor", Some(letter.executor.clone())),
        ("payload", Some(letter.payload_json.to_string())),
        ("attempts", Some(format!("{} of {}", letter.attempts, letter.max_attempts))),
        ("created", Some(format!("{:.0} by {}", letter.created_at, letter.actor))),
        ("moved", Some(format!("{:.0} by {}", letter.moved_at, letter.moved_by))),
        ("status", Some(letter.triage_status.clone())),
        ("triaged", who(letter.triaged_at, &letter.triaged_by)),
        ("note", letter.triage_note.clone()),
        ("replayed", who(letter.replayed_at, &letter.replayed_by)),
        ("as job", letter.replayed_job_id.map(|job| job.to_string())),
        ("error", Some(letter.final_error.clone())),
    ];
    let lines = fields.iter().filter_map(|(name, value)| Some(format!("{name:<9} {}", value.as_ref()?)));
    lines.collect::<Vec<_>>().join("\n")
}
