//! The same done to many jobs: `job cancel` and `job retry` with a filter instead of a job.
//!
//! Without `--yes` it only counts. A filter that names nothing is refused: "everything" is never a slip.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use towpath_db::job_read::{JobFilter, JobMoved};
use towpath_db::{Database, Error};
use towpath_model::id::JobId;

use super::filter::Filter;
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Output};
use crate::progress;

/// Jobs per page.
const PAGE: i32 = 500;

/// One job by its id, or many by a filter.
#[derive(Args)]
pub(crate) struct Which {
    /// Its id
    #[arg(conflicts_with_all = ["state", "kind", "executor", "domain", "actor", "run_id", "key", "owner",
                                "payload", "error", "since", "before", "yes"])]
    pub(super) job: Option<JobId>,
    #[command(flatten)]
    filter: Filter,
    /// Do it; without this a filter only says how many there are, with code 3
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    done: u64,
    /// Jobs in a state that does not allow it.
    refused: u64,
    /// The last of those, with its reason.
    example: Option<String>,
}

/// Does `act` to every job that was there at the beginning and matches.
pub(super) async fn run(
    which: Which,
    verb: &str,
    database: &Database,
    output: &Output,
    act: impl AsyncFn(JobId) -> Result<JobMoved, Error>,
) -> anyhow::Result<ExitCode> {
    let filter = which.filter.read();
    if filter.is_empty() {
        bail!(
            "a filter that names nothing would {verb} everything; name a job, or narrow with --kind, --state, --error …"
        );
    }
    let now = Timestamp::now();
    let filter = JobFilter { created_before: Some(filter.created_before.unwrap_or(now)), ..filter };
    let count = count(&filter, database).await?;
    if !which.yes {
        output.show(&json!({ "matched": count, "verb": verb }), |_| match count {
            0 => "no job matches".to_owned(),
            n => format!("{n} jobs match; {verb} them with --yes"),
        });
        return Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TO_DO) });
    }
    let bar = progress::bar(count, "jobs");
    let (mut done, mut cursor) = (Done::default(), None);
    loop {
        let page = database.job_list(&filter, PAGE, cursor).await?;
        for job in &page.jobs {
            match act(job.job_id).await {
                Ok(_) => done.done += 1,
                Err(error @ (Error::Conflict(_) | Error::NotFound(_))) => {
                    done.refused += 1;
                    done.example = Some(format!("job {}: {error}", job.job_id));
                }
                Err(error) => return Err(error.into()),
            }
            bar.inc(1);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    output.show(&done, |done| match &done.example {
        None => format!("{} jobs: {verb} done", done.done),
        Some(example) => {
            format!("{} jobs: {verb} done; {} refused, such as {example}", done.done, done.refused)
        }
    });
    Ok(if done.refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) })
}

async fn count(filter: &JobFilter, database: &Database) -> anyhow::Result<u64> {
    let counted = progress::count("jobs counted");
    let mut cursor = None;
    loop {
        let page = database.job_list(filter, 1_000, cursor).await?;
        counted.inc(page.jobs.len() as u64);
        cursor = page.cursor;
        if cursor.is_none() {
            counted.finish_and_clear();
            return Ok(counted.position());
        }
    }
}
