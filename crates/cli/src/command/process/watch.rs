//! `towpath process watch`: prints facts until the process has finished.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::Instant;
use towpath_db::Database;
use towpath_db::process::ProcessFact;
use towpath_model::id::ProcessId;

use super::show::detail;
use crate::output::{EXIT_FAILURES, EXIT_TO_DO, Exit, Output, done};
use crate::progress;

/// Often enough for a person; a few cheap reads a second for the database.
const POLL: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Watch {
    /// Its id
    process: ProcessId,
    /// Stop watching after this many seconds and exit with code 3
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

pub(crate) async fn run(watch: Watch, database: &Database, output: &Output) -> Exit {
    follow(watch.process, watch.timeout, database, output).await
}

/// Exits with 0 if the process succeeded, 4 if it ended otherwise, 3 if it is held or on timeout.
pub(crate) async fn follow(
    process_id: ProcessId,
    timeout_seconds: Option<u64>,
    database: &Database,
    output: &Output,
) -> Exit {
    let deadline = timeout_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let spinner = progress::spinner("watching");
    let mut seen = 0;
    loop {
        let whole = database.process_show(process_id).await?;
        for fact in whole.facts.iter().filter(|fact| fact.fact_no > seen) {
            spinner.suspend(|| report(process_id, fact, output));
        }
        seen = whole.facts.iter().map(|fact| fact.fact_no).max().unwrap_or(seen);
        match whole.process.state.as_str() {
            "succeeded" => return done(),
            "held" => return Ok(ExitCode::from(EXIT_TO_DO)),
            _ if whole.process.is_over() => return Ok(ExitCode::from(EXIT_FAILURES)),
            _ => {}
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(ExitCode::from(EXIT_TO_DO));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn report(process_id: ProcessId, fact: &ProcessFact, output: &Output) {
    let data = json!({ "process_id": process_id, "fact": fact });
    output.event(&data, |_| {
        let attempt = fact.attempt_no.map_or_else(String::new, |no| format!(" (attempt {no})"));
        let detail = detail(&fact.detail);
        let colon = if detail.is_empty() { "" } else { ": " };
        format!("{:.3} {}{attempt}{colon}{detail}", fact.at, fact.fact)
    });
}
