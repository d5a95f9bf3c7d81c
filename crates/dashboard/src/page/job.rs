//! `/ui/jobs/{id}`: one job, its history, and why it is not running.

use askama::Template;
use axum::extract::State;
use towpath_db::job_read::{JobEvent, JobReason, JobWhole};
use towpath_model::id::JobId;

use super::Id;
use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    shell: Shell,
    id: JobId,
    whole: JobWhole,
    events: Vec<JobEvent>,
    reasons: Vec<JobReason>,
    open: bool,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Id(id): Id<JobId>) -> Answer {
    let (whole, events) = tokio::try_join!(app.database.job_show(id), app.database.job_history(id))?;
    let open = whole.job.as_ref().is_some_and(|job| !job.state.is_terminal());
    let reasons = if open { app.database.job_why(id).await?.reasons } else { vec![] };
    let kind = match (&whole.job, &whole.dead_letter) {
        (Some(job), _) => job.job_kind.clone(),
        (None, Some(letter)) => letter.job_kind.clone(),
        (None, None) => id.to_string(),
    };
    let shell = shell.at("/ui/jobs", kind).live("jobs dead-letters");
    shell::render(&Page { shell, id, whole, events, reasons, open })
}

pub(crate) async fn act(State(app): State<App>, Id(id): Id<JobId>, action: Action) -> Answer {
    let target = id.to_string();
    match action.text("do") {
        "cancel" => {
            let work = async |db: towpath_db::Database, who: String, why: String| {
                db.job_cancel(id, by(&who, &why)).await
            };
            action.perform(&app, ("job cancel", &target), work, |_| "cancelled".into()).await
        }
        "retry" => {
            let work = async |db: towpath_db::Database, who: String, _| db.job_retry(id, &who).await;
            let said = |moved: towpath_db::job_read::JobMoved| match moved.job_id == id {
                true => "the job is due now".into(),
                false => format!("replayed as job {}", moved.job_id),
            };
            action.perform(&app, ("job retry", &target), work, said).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a job"))),
    }
}
