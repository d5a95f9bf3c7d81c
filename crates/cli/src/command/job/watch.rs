//! `towpath job watch`: watches a job until it has finished.
//!
//! Polls the job a few times a second; nothing depends on a notification. Changes go to
//! standard output, one line each; a bar on standard error shows progress.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use tokio::time::Instant;
use towpath_db::Database;
use towpath_db::job_read::Job;
use towpath_model::id::JobId;
use towpath_model::job_state::JobState;

use super::show::progress;
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output, one_line};

/// Often enough for a person; four cheap reads a second for the database.
const POLL: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(crate) struct Watch {
    /// Its id
    job: JobId,
    /// Stop watching after this many seconds and exit with code 3
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

pub(crate) async fn run(watch: Watch, database: &Database, output: &Output) -> Exit {
    follow(watch.job, watch.timeout.map(Duration::from_secs), database, output).await
}

/// Exits with 0 if the job succeeded, 4 if it ended otherwise, 3 on timeout.
pub(crate) async fn follow(
    job_id: JobId,
    timeout: Option<Duration>,
    database: &Database,
    output: &Output,
) -> Exit {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let bar = crate::progress::percent();
    let mut seen = None;
    loop {
        let Some(job) = database.job_show(job_id).await?.job else {
            bail!("retention dropped job {job_id}; see what is left with: towpath job show {job_id}");
        };
        let now = (job.state, job.attempts, job.progress_percent, job.progress_message.clone());
        if seen.as_ref() != Some(&now) {
            bar.suspend(|| report(&job, output));
            bar.set_position(u64::from(job.progress_percent.unwrap_or(0).unsigned_abs()));
            bar.set_message(one_line(&format!("{} {}", job.job_kind, job.state)).into_owned());
            seen = Some(now);
        }
        if job.state.is_terminal() {
            bar.finish_and_clear();
            let good = matches!(job.state, JobState::Succeeded | JobState::Cleaned);
            return Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILURES) });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            bar.finish_and_clear();
            return Ok(ExitCode::from(EXIT_TO_DO));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn report(job: &Job, output: &Output) {
    let data = json!({
        "job_id": job.job_id, "state": job.state, "attempts": job.attempts,
        "progress_percent": job.progress_percent, "progress_message": job.progress_message,
        "scheduled_at": job.scheduled_at, "finished_at": job.finished_at, "last_error": job.last_error,
    });
    output.event(&data, |_| {
        let mut line = format!("{:.0} {}", job.updated_at, job.state);
        if let Some(percent) = job.progress_percent.filter(|_| !job.state.is_terminal()) {
            line += &format!(", {}", progress(percent, job.progress_message.as_deref()));
        }
        if job.attempts > 1 {
            line += &format!(", attempt {} of {}", job.attempts, job.max_attempts);
        }
        if job.state == JobState::RetryWaiting {
            line += &format!(", next attempt at {:.0}", job.scheduled_at);
        }
        match (&job.last_error, job.state) {
            (Some(error), JobState::RetryWaiting | JobState::DeadLetter | JobState::Cancelled) => {
                format!("{line}: {error}")
            }
            _ => line,
        }
    });
}
