//! `/ui/audit`: actions taken on the dashboard.

use askama::Template;
use axum::extract::State;
use serde::Deserialize;
use towpath_db::audit::Audited;

use super::{Filter, inline, read_cursor};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::ROWS_PAGE;
use crate::shell::{self, Shell};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    before: String,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    shell: Shell,
    actions: Vec<Audited>,
    older: Option<i64>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        Ok::<_, Fault>(app.database.audit_list(ROWS_PAGE, read_cursor(&asked.before, "an action")?).await?)
    };
    let (actions, problem) = inline(look.await)?;
    let full = actions.len() == usize::try_from(ROWS_PAGE).unwrap_or(0);
    let older = actions.last().filter(|_| full).map(|action| action.audit_id);
    let shell = shell.at("/ui/audit", "Audit").saying(problem.as_ref());
    shell::render_list(&Page { shell, actions, older }, problem.is_some())
}
