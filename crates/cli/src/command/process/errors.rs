//! `towpath process errors`: errors of tasks, handlers and supervisors.

use clap::Args;
use towpath_db::Database;
use towpath_db::task::{TaskError, TaskErrorFilter, TaskErrorPage};
use towpath_model::id::{JobId, ProcessId};

use crate::command::job::first_line;
use crate::output::{Exit, Output, done, paged, table_or};

#[derive(Args)]
pub(crate) struct Errors {
    /// Only of this process
    #[arg(long, value_name = "PROCESS")]
    process: Option<ProcessId>,
    /// Only of this job
    #[arg(long, value_name = "JOB")]
    job: Option<JobId>,
    /// Only of this kind: validation, operational, provider, refused, supervisor
    #[arg(long)]
    kind: Option<String>,
    /// Only of this task type, as in email
    #[arg(long, value_name = "TYPE")]
    task: Option<String>,
    /// Maximum number to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=1000))]
    limit: i32,
    /// Continue after this one, the last of the previous page
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
}

pub(crate) async fn run(errors: Errors, database: &Database, output: &Output) -> Exit {
    let filter = TaskErrorFilter {
        kind: errors.kind,
        job_id: errors.job,
        process_id: errors.process,
        task_type: errors.task,
        function_name: None,
    };
    let page = database.task_error_list(&filter, errors.limit, errors.after).await?;
    output.show(&page, in_words);
    done()
}

fn in_words(page: &TaskErrorPage) -> String {
    let head = ["WHEN", "KIND", "TASK", "FUNCTION", "PROCESS OR JOB", "ERROR"];
    paged(table_or("no task errors", head, page.task_errors.iter().map(row)), page.cursor)
}

fn row(error: &TaskError) -> [String; 6] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let about = error.process_id.map(|id| id.to_string()).or(error.job_id.map(|id| id.to_string()));
    [
        format!("{:.0}", error.recorded_at),
        error.kind.clone(),
        text(&error.task_type),
        text(&error.function_name),
        about.unwrap_or_default(),
        first_line(&error.message),
    ]
}
