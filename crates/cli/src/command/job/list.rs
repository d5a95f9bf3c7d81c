//! `towpath job list`.

use clap::Args;
use towpath_db::Database;
use towpath_db::job_read::{Job, JobPage};
use towpath_model::id::JobId;

use super::filter::Filter;
use crate::output::{Exit, Output, done, paged, table_or};

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Maximum number to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
    limit: i32,
    /// Continue after this one, the last of the previous page
    #[arg(long, value_name = "JOB")]
    after: Option<JobId>,
}

pub(crate) async fn run(list: List, database: &Database, output: &Output) -> Exit {
    let (limit, mut cursor) = (list.limit, list.after);
    let filter = list.filter.read();
    let mut page = JobPage { jobs: vec![], cursor: None };
    // The database reads a bounded number of jobs per call: a page may end early, or empty.
    loop {
        let room = limit - i32::try_from(page.jobs.len()).unwrap_or(limit);
        let next = database.job_list(&filter, room, cursor).await?;
        page.jobs.extend(next.jobs);
        page.cursor = next.cursor;
        cursor = next.cursor;
        if cursor.is_none() || page.jobs.len() >= limit as usize {
            break;
        }
    }
    output.show(&page, in_words);
    done()
}

fn in_words(page: &JobPage) -> String {
    let rows = page.jobs.iter().map(row);
    let head = ["JOB", "KIND", "STATE", "ATTEMPTS", "PRIORITY", "DUE OR ENDED", "NOTE"];
    paged(table_or("no jobs", head, rows), page.cursor)
}

fn row(job: &Job) -> [String; 7] {
    let note = match (&job.lease_owner, &job.last_error) {
        (Some(owner), _) => match job.progress_percent {
            Some(percent) => format!("{percent} % by {owner}"),
            None => format!("leased by {owner}"),
        },
        (None, Some(error)) => first_line(error),
        (None, None) if job.blocked_by.is_some() => "waiting for other jobs".into(),
        (None, None) => String::new(),
    };
    [
        job.job_id.to_string(),
        job.job_kind.clone(),
        job.state.to_string(),
        format!("{}/{}", job.attempts, job.max_attempts),
        job.priority.to_string(),
        format!("{:.0}", job.finished_at.unwrap_or(job.scheduled_at)),
        note,
    ]
}

/// The start of an error, for a table.
pub(crate) fn first_line(text: &str) -> String {
    const WIDTH: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
