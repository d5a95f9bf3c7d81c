//! `towpath job enqueue | list | show | why | cancel | retry | watch | graph`.

mod enqueue;
mod graph;
mod list;
mod show;
mod watch;

pub(crate) use enqueue::Template;
pub(crate) use list::first_line;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use towpath_db::{Database, Error};
use towpath_model::id::JobId;
use towpath_model::job_state::JobState;

use super::config::By;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Job {
    /// Put a job into the queue
    Enqueue(enqueue::Enqueue),
    /// Jobs, newest first
    List(list::List),
    /// One job whole, with its history
    Show {
        /// Its id
        job: JobId,
    },
    /// Say why a job is not running
    Why {
        /// Its id
        job: JobId,
    },
    /// End an unfinished job; a worker that has it is told at its next word
    Cancel {
        /// Its id
        job: JobId,
        #[command(flatten)]
        by: By,
    },
    /// Run a dead-lettered job again, as a fresh job linked to it
    Retry {
        /// Its id
        job: JobId,
        /// Who, for the record; user@host if not given
        #[arg(long, value_name = "ACTOR")]
        by: Option<String>,
    },
    /// Follow a job until it has ended
    Watch(watch::Watch),
    /// Jobs that wait for jobs
    #[command(subcommand)]
    Graph(graph::Graph),
}

pub(crate) async fn run(job: Job, settings: &Settings, output: &Output) -> anyhow::Result<ExitCode> {
    super::with_database(settings, async |database| match job {
        Job::Enqueue(enqueue) => enqueue::run(enqueue, &database, output).await,
        Job::List(list) => list::run(list, &database, output).await,
        Job::Show { job } => show::show(job, &database, output).await,
        Job::Why { job } => show::why(job, &database, output).await,
        Job::Cancel { job, by } => {
            let moved = database.job_cancel(job, by.attribution(&by.actor())).await?;
            output.show(&moved, |moved| format!("job {} is {}", moved.job_id, moved.state));
            Ok(ExitCode::SUCCESS)
        }
        Job::Retry { job, by } => retry(job, &by.unwrap_or_else(super::actor), &database, output).await,
        Job::Watch(watch) => watch::run(watch, &database, output).await,
        Job::Graph(graph) => graph::run(graph, &database, output).await,
    })
    .await
}

/// Only dead letters can be replayed; what else there is to say depends on the state.
async fn retry(job_id: JobId, actor: &str, database: &Database, output: &Output) -> anyhow::Result<ExitCode> {
    let whole = database.job_show(job_id).await?;
    let Some(letter) = whole.dead_letter else {
        let Some(job) = whole.job else { bail!("job {job_id} has no dead letter") };
        match job.state {
            JobState::RetryWaiting => bail!(
                "job {job_id} retries by itself at {:.0}; see: towpath job why {job_id}",
                job.scheduled_at
            ),
            state if !state.is_terminal() => {
                bail!("job {job_id} is {state} and has not failed; see: towpath job why {job_id}")
            }
            state => bail!("job {job_id} is {state}, not dead-lettered; enqueue it again instead"),
        }
    };
    let replayed = match database.dead_letter_replay(letter.dead_letter_id, actor).await {
        Err(Error::Conflict(detail)) if letter.replayed_job_id.is_some() => {
            bail!(
                "job {job_id}: {detail}; see: towpath job show {}",
                letter.replayed_job_id.unwrap_or(job_id)
            )
        }
        other => other?,
    };
    output.show(&replayed, |replayed| format!("job {} runs it again", replayed.job_id));
    Ok(ExitCode::SUCCESS)
}
