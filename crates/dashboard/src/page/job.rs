//! `/ui/jobs/{id}`: one job, its history, and why it is not running.

use askama::Template;
use axum::extract::State;
use serde_json::Value;
use towpath_db::job_read::{JobEvent, JobReason, JobWhole};
use towpath_model::id::JobId;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;

use super::Id;
use super::stream::text;
use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters::{self, percent};
use crate::limits::STREAM_PAGE_BYTES;
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
    result: Option<Value>,
    stream: Option<JobStream>,
}

/// What the stream of the job has so far. The browser follows it; without one it asks again every second.
struct JobStream {
    /// What the handler appended.
    chunks: Vec<String>,
    /// Where the browser continues live, unless the stream is closed.
    follow: Option<String>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Id(id): Id<JobId>) -> Answer {
    let (whole, events) = tokio::try_join!(app.database.job_show(id), app.database.job_history(id))?;
    let open = whole.job.as_ref().is_some_and(|job| !job.state.ended());
    let reasons = if open { app.database.job_why(id).await?.reasons } else { vec![] };
    let kind = match (&whole.job, &whole.dead_letter) {
        (Some(job), _) => job.job_kind.clone(),
        (None, Some(letter)) => letter.job_kind.clone(),
        (None, None) => id.to_string(),
    };
    let result = match open {
        true => None,
        false => app.database.job_status(id).await.ok().and_then(|status| status.result),
    };
    let shell = shell.at("/ui/jobs", kind).live("jobs dead-letters");
    let stream = stream(&app, id).await?;
    shell::render(&Page { shell, id, whole, events, reasons, open, result, stream })
}

/// The stream `job/{id}`, the one that pages with a token of the job read; none before somebody follows the job.
async fn stream(app: &App, id: JobId) -> Result<Option<JobStream>, Fault> {
    let name = StreamName::new("jobs", &format!("job/{id}")).expect("a uuid is a stream's id");
    let page = match app.store.read(&name, Start::Beginning, STREAM_PAGE_BYTES).await {
        Err(towpath_streams::Error::NotFound(_) | towpath_streams::Error::Deleted(_)) => return Ok(None),
        page => page?,
    };
    let messages = page.batch.messages().map(|message| text(&message, &page.head));
    let chunks = messages.filter_map(|message| {
        let message: Value = serde_json::from_str(&message).ok()?;
        (message["type"] == "chunk").then(|| message["value"].to_string())
    });
    let ended = page.head.closed && page.is_up_to_date();
    let follow =
        format!("/ui/stream/follow?project=jobs&id={}&offset={}", percent(&name.id), page.batch.end());
    Ok(Some(JobStream { chunks: chunks.collect(), follow: (!ended).then_some(follow) }))
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
