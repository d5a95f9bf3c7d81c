//! Bulk `job cancel` and `job retry`: a filter instead of one job.
//!
//! Without `--yes` it only counts. An empty filter is refused, so that nobody acts on every job by mistake.

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
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output};
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
    /// Act on every match; without this a filter only counts and exits with code 3
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    done: u64,
    /// Jobs whose state does not allow it.
    refused: u64,
    /// The last of those, with the reason.
    example: Option<String>,
}

/// Applies `act` to every matching job that existed at the start.
pub(super) async fn run(
    which: Which,
    verb: &str,
    database: &Database,
    output: &Output,
    act: impl AsyncFn(JobId) -> Result<JobMoved, Error>,
) -> Exit {
    let filter = which.filter.read();
    if filter.is_empty() {
        bail!(
            "an empty filter would {verb} every job; give a job id, or filter with --kind, --state, --error …"
        );
    }
    let now = Timestamp::now();
    let filter = JobFilter { created_before: Some(filter.created_before.unwrap_or(now)), ..filter };
    let count = count(&filter, database).await?;
    if !which.yes {
        output.show(&json!({ "matched": count, "verb": verb }), |_| match count {
            0 => "no job matches".to_owned(),
            1 => format!("1 job matches; {verb} it with --yes"),
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
    output.show(&done, |done| {
        let did = if verb == "cancel" { "cancelled" } else { "retried" };
        let jobs = if done.done == 1 { "job" } else { "jobs" };
        let acted = format!("{did} {} {jobs}", done.done);
        match &done.example {
            None => acted,
            Some(example) => format!("{acted}; {} refused, such as {example}", done.refused),
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
