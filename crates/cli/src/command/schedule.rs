//! `towpath schedule list | add | pause | resume | run | remove`.

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::json;
use towpath_db::job::NewJob;
use towpath_db::schedule::{Schedule as Row, ScheduleSpec};
use towpath_db::{Database, Error};
use towpath_model::cron::Cron;
use towpath_model::nearest::nearest;

use super::job::Template;
use crate::command::Actor;
use crate::output::{Exit, Output, done, table};
use crate::settings::Settings;

/// How many of the next runs are shown.
const RUNS_SHOWN: usize = 3;

#[derive(Subcommand)]
pub(crate) enum Schedule {
    /// List every schedule and its next run
    List,
    /// Add a schedule
    Add(Box<Add>),
    /// Pause a schedule
    Pause(Named),
    /// Resume a schedule from its next tick
    Resume(Named),
    /// Enqueue its job once, now, in addition to its ticks
    Run(Named),
    /// Remove a schedule; jobs it enqueued stay
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Add {
    /// Its name
    name: String,
    /// Cron expression: minute hour day-of-month month day-of-week, optionally with seconds first
    expression: String,
    /// Kind of the jobs it enqueues
    kind: String,
    /// Time zone of the expression
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// What to do with runs missed while maintenance was not running
    #[arg(long, value_name = "POLICY", default_value = "last")]
    catch_up: CatchUp,
    #[command(flatten)]
    template: Template,
    /// Replace an existing schedule
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    by: Actor,
}

#[derive(Args)]
pub(crate) struct Named {
    /// Its name
    name: String,
    #[command(flatten)]
    by: Actor,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum CatchUp {
    /// Skip them
    Skip,
    /// Run only the last one
    Last,
    /// Run all of them
    All,
}

impl CatchUp {
    fn name(self) -> &'static str {
        match self {
            CatchUp::Skip => "skip",
            CatchUp::Last => "last",
            CatchUp::All => "all",
        }
    }
}

pub(crate) async fn run(schedule: Schedule, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| {
        match schedule {
            Schedule::List => output.show(&database.schedule_list().await?, |rows| list(rows)),
            Schedule::Add(add) => put(*add, &database, output).await?,
            Schedule::Pause(named) => {
                let set = database.schedule_pause(&named.name, &named.by.name()).await;
                let set = known(set, &named.name, &database).await?;
                output.show(&set, |set| match set.changed {
                    true => format!("{} is paused", set.name),
                    false => format!("{} is already paused", set.name),
                });
            }
            Schedule::Resume(named) => resume(&named, &database, output).await?,
            Schedule::Run(named) => run_now(&named, &database, output).await?,
            Schedule::Remove { name } => {
                known(database.schedule_delete(&name).await, &name, &database).await?;
                output.show(&json!({ "removed": name }), |_| format!("removed schedule {name}"));
            }
        }
        done()
    })
    .await
}

async fn put(add: Add, database: &Database, output: &Output) -> anyhow::Result<()> {
    let Add { name, expression, kind, zone, catch_up, template, replace, by } = add;
    let cron = Cron::parse(&expression, &zone).map_err(|words| anyhow!(words))?;
    if !replace && database.schedule_list().await?.iter().any(|row| row.name == name) {
        bail!("schedule {name} already exists; change it with --replace");
    }
    let runs = next_runs(&cron, &expression, database).await?;
    let spec = ScheduleSpec {
        name: &name,
        expression: &expression,
        time_zone: &zone,
        catch_up: catch_up.name(),
        job: template.as_json(&kind)?,
        next_at: runs[0],
        actor: &by.name(),
    };
    let put = database.schedule_put(&spec).await?;
    let data =
        json!({ "name": put.name, "created": put.created, "next_runs": runs, "in_words": cron.describe() });
    output.show(&data, |_| {
        let done = if put.created { "created" } else { "changed" };
        format!(
            "{done} schedule {name}: {} ({zone})\nnext runs: {}",
            cron.describe(),
            runs_in_words(&runs, &zone)
        )
    });
    Ok(())
}

/// The next runs by the database's clock, which decides; never empty.
async fn next_runs(cron: &Cron, expression: &str, database: &Database) -> anyhow::Result<Vec<Timestamp>> {
    let now = database.schedule_due(1).await?.now;
    let runs: Vec<Timestamp> = cron.ticks_after(now).take(RUNS_SHOWN).collect();
    if runs.is_empty() {
        bail!("{expression:?} never runs: the calendar has no such day");
    }
    Ok(runs)
}

async fn resume(named: &Named, database: &Database, output: &Output) -> anyhow::Result<()> {
    let row = find(&named.name, database).await?;
    let cron = Cron::parse(&row.expression, &row.time_zone).map_err(|words| anyhow!(words))?;
    let runs = next_runs(&cron, &row.expression, database).await?;
    // A schedule that was not paused keeps its next tick.
    let next_at = if row.paused { runs[0] } else { row.next_at };
    let set = database.schedule_resume(&named.name, next_at, &named.by.name()).await?;
    output.show(&json!({ "name": set.name, "changed": set.changed, "next_runs": runs }), |_| {
        match set.changed {
            true => format!("{} is resumed; next runs: {}", set.name, runs_in_words(&runs, &row.time_zone)),
            false => format!("{} was not paused", set.name),
        }
    });
    Ok(())
}

async fn run_now(named: &Named, database: &Database, output: &Output) -> anyhow::Result<()> {
    let row = find(&named.name, database).await?;
    let mut job =
        NewJob::new(row.job_kind).priority(row.priority).payload(&row.payload_json)?.actor(named.by.name());
    let texts = [
        (row.executor, NewJob::executor as fn(NewJob, String) -> NewJob),
        (row.event_domain, NewJob::event_domain),
        (row.source_ref, NewJob::source_ref),
        (row.target_ref, NewJob::target_ref),
        (row.payload_ref, NewJob::payload_ref),
    ];
    for (text, set) in texts {
        if let Some(text) = text {
            job = set(job, text);
        }
    }
    if let Some(attempts) = row.max_attempts {
        job = job.max_attempts(attempts);
    }
    let job_id = database.enqueue(&job).await?.job_id;
    output.show(&json!({ "name": row.name, "job_id": job_id }), |_| format!("enqueued job {job_id}"));
    Ok(())
}

async fn find(name: &str, database: &Database) -> anyhow::Result<Row> {
    let rows = database.schedule_list().await?;
    match rows.iter().position(|row| row.name == name) {
        Some(at) => Ok(rows[at].clone()),
        None => Err(unknown(name, &rows)),
    }
}

/// Adds a similar name to a "not found" error.
async fn known<T>(answer: Result<T, Error>, name: &str, database: &Database) -> anyhow::Result<T> {
    match answer {
        Err(Error::NotFound(_)) => Err(unknown(name, &database.schedule_list().await?)),
        other => Ok(other?),
    }
}

fn unknown(name: &str, rows: &[Row]) -> anyhow::Error {
    match nearest(name, rows.iter().map(|row| row.name.as_str())) {
        Some(near) => anyhow!("there is no schedule {name}; did you mean {near}?"),
        None => anyhow!("there is no schedule {name}; list them with: towpath schedule list"),
    }
}

/// Times in the schedule's own zone.
fn runs_in_words(runs: &[Timestamp], zone: &str) -> String {
    let words = runs.iter().map(|run| match run.in_tz(zone) {
        Ok(zoned) => zoned.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => run.to_string(),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn list(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no schedules; add one with: towpath schedule add NAME \"0 7 * * *\" KIND".into();
    }
    let rows = rows.iter().map(|row| {
        let next = match row.paused {
            true => "paused".to_owned(),
            false => runs_in_words(&[row.next_at], &row.time_zone),
        };
        [
            row.name.clone(),
            row.expression.clone(),
            row.time_zone.clone(),
            row.job_kind.clone(),
            row.catch_up.clone(),
            next,
            row.last_tick_at.map_or_else(|| "never".into(), |at| format!("{at:.0}")),
        ]
    });
    table(["SCHEDULE", "EXPRESSION", "ZONE", "KIND", "CATCH UP", "NEXT RUN", "LAST RUN"], rows)
}
