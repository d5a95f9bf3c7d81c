//! Functions called by name, and the errors of tasks: `sql/functions/run_function.sql` and
//! `task_error.sql`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use towpath_model::function_result::FunctionResult;
use towpath_model::id::{JobId, ProcessId};

use crate::answer::{given, read, read_field};
use crate::{Database, Error};

/// An error to report.
#[derive(Debug, Clone)]
pub struct NewTaskError<'a> {
    /// `validation`, `operational`, `provider`, `refused` or `supervisor`.
    pub kind: &'a str,
    /// What happened.
    pub message: &'a str,
    /// The job, and which attempt of it.
    pub job: Option<(JobId, i32)>,
    /// `db_function`, `email`, `sms`, or another job kind.
    pub task_type: Option<&'a str>,
    /// The function that was called.
    pub function_name: Option<&'a str>,
    /// References for further investigation.
    pub context: &'a Value,
}

/// One reported error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns of task_error; 0005_process.sql says what each holds")]
pub struct TaskError {
    pub task_error_id: i64,
    pub recorded_at: Timestamp,
    pub kind: String,
    pub message: String,
    pub job_id: Option<JobId>,
    pub job_attempt: Option<i32>,
    pub task_type: Option<String>,
    pub function_name: Option<String>,
    pub process_id: Option<ProcessId>,
    pub attempt_no: Option<i32>,
    pub context: Value,
    pub db_user: String,
}

/// A filter of errors; absent fields match everything.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the columns of the same name")]
pub struct TaskErrorFilter {
    pub kind: Option<String>,
    pub job_id: Option<JobId>,
    pub process_id: Option<ProcessId>,
    pub task_type: Option<String>,
    pub function_name: Option<String>,
}

/// A page of errors, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskErrorPage {
    /// The errors.
    pub task_errors: Vec<TaskError>,
    /// Where to continue.
    pub cursor: Option<i64>,
}

impl Database {
    /// Calls a function by name, with the caller's own rights (P02). An `Err` means that the database did not respond; the
    /// function's result is in the envelope.
    pub async fn run_function(&self, name: &str, payload: &Value) -> Result<FunctionResult, Error> {
        let answer = self.call("select towpath.run_function($1, $2)", &[&name, payload]).await?;
        Ok(FunctionResult::read(answer))
    }

    /// Reports an error of a task (P05).
    pub async fn task_error_record(&self, error: &NewTaskError<'_>) -> Result<i64, Error> {
        let sql = "select towpath.fn_task_error_record($1, $2, $3, $4, $5, $6, $7)";
        let job_id = error.job.map(|(job_id, _)| job_id.uuid());
        let attempt = error.job.map(|(_, attempt)| attempt);
        let NewTaskError { kind, message, task_type, function_name, context, .. } = error;
        let params: [&(dyn ToSql + Sync); 7] =
            [kind, message, &job_id, &attempt, task_type, function_name, *context];
        read_field(self.call(sql, &params).await?, "task_error_id")
    }

    /// A page of reported errors, newest first.
    pub async fn task_error_list(
        &self,
        filter: &TaskErrorFilter,
        limit: i32,
        cursor: Option<i64>,
    ) -> Result<TaskErrorPage, Error> {
        let filter = given(filter);
        read(self.call("select towpath.fn_task_error_list($1, $2, $3)", &[&filter, &limit, &cursor]).await?)
    }
}
