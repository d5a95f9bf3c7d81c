//! `/ui/processes/{id}`: one process, its facts as a timeline, and its next check.

use askama::Template;
use axum::extract::State;
use towpath_db::Database;
use towpath_db::process::{ProcessFact, ProcessMoved, ProcessWhole};
use towpath_model::id::ProcessId;

use super::Id;
use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "process.html")]
struct Page {
    shell: Shell,
    id: ProcessId,
    whole: ProcessWhole,
}

impl Page {
    /// Whether a fact has details.
    fn has_detail(&self, fact: &ProcessFact) -> bool {
        match &fact.detail {
            serde_json::Value::Null => false,
            serde_json::Value::Object(detail) => !detail.is_empty(),
            _ => true,
        }
    }
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Id(id): Id<ProcessId>) -> Answer {
    let whole = app.database.process_show(id).await?;
    let title = whole.process.process_kind.clone();
    let shell = shell.at("/ui/processes", title).live("processes");
    shell::render(&Page { shell, id, whole })
}

pub(crate) async fn act(State(app): State<App>, Id(id): Id<ProcessId>, action: Action) -> Answer {
    let target = id.to_string();
    match action.text("do") {
        "cancel" => {
            let work =
                async |db: Database, who: String, why: String| db.process_cancel(id, by(&who, &why)).await;
            let said = |moved: ProcessMoved| format!("the process is now {}", moved.state);
            action.perform(&app, ("process cancel", &target), work, said).await
        }
        resolution @ ("retry" | "succeeded" | "gave_up") => {
            let work = async |db: Database, who: String, why: String| {
                db.process_resolve(id, resolution, by(&who, &why)).await
            };
            let said = |moved: ProcessMoved| format!("the process is now {}", moved.state);
            action.perform(&app, ("process resolve", &target), work, said).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a process"))),
    }
}
