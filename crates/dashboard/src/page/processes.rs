//! `/ui/processes`: business processes, newest first.

use askama::Template;
use axum::extract::State;
use serde::Deserialize;
use towpath_db::process::{Process, ProcessFilter};
use towpath_model::id::ProcessId;

use super::{Filter, given, inline, read_cursor};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::JOBS_PAGE;
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    kind: String,
    state: String,
    r#ref: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "processes.html")]
struct Page {
    shell: Shell,
    command: String,
    asked: Asked,
    processes: Vec<Process>,
    older: Option<ProcessId>,
    query: String,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let filter = ProcessFilter {
            process_kind: given(&asked.kind),
            state: given(&asked.state),
            reference: given(&asked.r#ref),
        };
        let cursor = read_cursor(&asked.cursor, "a process")?;
        let page = app.database.process_list(&filter, JOBS_PAGE, cursor).await?;
        Ok::<_, Fault>((page.processes, page.cursor))
    };
    let ((processes, older), problem) = inline(look.await)?;
    let asked = filter.asked;
    let fields =
        [("kind", asked.kind.as_str()), ("state", asked.state.as_str()), ("ref", asked.r#ref.as_str())];
    let query = super::query(&fields);
    let page = Page {
        command: super::command("towpath process list", &fields),
        shell: shell.at("/ui/processes", "Processes").live("processes").saying(problem.as_ref()),
        query,
        asked,
        processes,
        older,
    };
    shell::render_list(&page, problem.is_some())
}
