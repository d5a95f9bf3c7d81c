//! `towpath job enqueue | list | show | why | cancel | retry | watch | graph | key`.

mod bulk;
mod enqueue;
mod filter;
mod graph;
mod list;
mod show;
mod watch;

pub(crate) use enqueue::Template;
pub(crate) use list::first_line;

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::json;
use towpath_db::{Database, Error};
use towpath_model::id::JobId;

use super::config::By;
use crate::command::Actor;
use crate::output::{Exit, Output, done};
use crate::settings::Settings;

#[derive(Subcommand)]
pub(crate) enum Job {
    /// Enqueue a job
    Enqueue(enqueue::Enqueue),
    /// List jobs, newest first
    List(list::List),
    /// Show one job with its history
    Show {
        /// Its id
        job: JobId,
    },
    /// Explain why a job is not running
    Why {
        /// Its id
        job: JobId,
    },
    /// Cancel an unfinished job, or many by filter; a worker that runs it learns of it at its next request
    Cancel {
        #[command(flatten)]
        which: Box<bulk::Which>,
        #[command(flatten)]
        by: By,
    },
    /// Retry a job now: a waiting job becomes due, a dead one runs again as a new job linked to it; or many by
    /// filter
    Retry {
        #[command(flatten)]
        which: Box<bulk::Which>,
        #[command(flatten)]
        by: Actor,
    },
    /// Watch a job until it has finished
    Watch(watch::Watch),
    /// Manage graphs: jobs that wait for other jobs
    #[command(subcommand)]
    Graph(graph::Graph),
    /// Manage the key that signs tokens of jobs
    #[command(subcommand)]
    Key(Key),
}

#[derive(Subcommand)]
pub(crate) enum Key {
    /// Replace the key: tokens that were made with it stop working within seconds; audited
    Rotate,
}

pub(crate) async fn run(job: Job, settings: &Settings, output: &Output) -> Exit {
    super::with_database(settings, async |database| match job {
        Job::Enqueue(enqueue) => enqueue::run(enqueue, settings, &database, output).await,
        Job::List(list) => list::run(list, &database, output).await,
        Job::Show { job } => show::show(job, &database, output).await,
        Job::Why { job } => show::why(job, &database, output).await,
        Job::Cancel { which, by } => {
            let actor = by.actor();
            let Some(job) = which.job else {
                let act = async |job| database.job_cancel(job, by.attribution(&actor)).await;
                return bulk::run(*which, "cancel", &database, output, act).await;
            };
            let moved = database.job_cancel(job, by.attribution(&actor)).await?;
            output.show(&moved, |moved| format!("job {} is {}", moved.job_id, moved.state));
            done()
        }
        Job::Retry { which, by } => {
            let actor = by.name();
            match which.job {
                Some(job) => retry(job, &actor, &database, output).await,
                None => {
                    let act = async |job| database.job_retry(job, &actor).await;
                    bulk::run(*which, "retry", &database, output, act).await
                }
            }
        }
        Job::Watch(watch) => watch::run(watch, settings, &database, output).await,
        Job::Graph(graph) => graph::run(graph, &database, output).await,
        Job::Key(Key::Rotate) => {
            let kid = database.job_token_key_rotate(&super::actor()).await?;
            output.show(&json!({ "kid": kid }), |_| {
                format!("Tokens of jobs are now signed with the key {kid}; earlier tokens stop working.")
            });
            done()
        }
    })
    .await
}

async fn retry(job_id: JobId, actor: &str, database: &Database, output: &Output) -> Exit {
    let moved = match database.job_retry(job_id, actor).await {
        Err(Error::Conflict(detail)) => return Err(no_retry(job_id, &detail, database).await?),
        other => other?,
    };
    output.show(&moved, |moved| match moved.job_id == job_id {
        true => format!("job {job_id} is due now"),
        false => format!("enqueued job {} to run it again", moved.job_id),
    });
    done()
}

/// What to do instead depends on the job's state.
async fn no_retry(job_id: JobId, detail: &str, database: &Database) -> anyhow::Result<anyhow::Error> {
    let whole = database.job_show(job_id).await?;
    if let Some(fresh) = whole.dead_letter.and_then(|letter| letter.replayed_job_id) {
        return Ok(anyhow!("job {job_id}: {detail}; see: towpath job show {fresh}"));
    }
    Ok(match whole.job.map(|job| job.state) {
        Some(state) if state.ended() => anyhow!("job {job_id} is {state}; enqueue it again instead"),
        _ => anyhow!("job {job_id}: {detail}; see: towpath job why {job_id}"),
    })
}
