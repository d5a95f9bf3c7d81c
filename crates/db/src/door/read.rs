//! What a test asks about its own transaction.

use serde::Deserialize;
use serde_json::Value;
use towpath_model::job::JobId;

use super::{Error, Handle, json};

const JOBS_WAITING: &str = "select towpath.fn_job_list($1::text::jsonb, 1000)::text";

/// The unfinished jobs of a kind and their payloads, oldest first, as this handle sees them. At most 1,000.
pub async fn jobs_waiting(handle: impl Handle, kind: &str) -> Result<Vec<(JobId, Value)>, Error> {
    #[derive(Deserialize)]
    struct Page {
        jobs: Vec<Job>,
    }
    #[derive(Deserialize)]
    struct Job {
        job_id: JobId,
        payload_json: Value,
        finished_at: Option<Value>,
    }
    let page = handle.ask(JOBS_WAITING, json(&serde_json::json!({ "job_kind": kind }))).await?;
    let page: Page = serde_json::from_str(&page).map_err(|_| crate::answer::refusal(&page))?;
    let waiting = page.jobs.into_iter().rev().filter(|job| job.finished_at.is_none());
    Ok(waiting.map(|job| (job.job_id, job.payload_json)).collect())
}
