//! `/ui/audit`: what people did here.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use towpath_db::audit::Audited;

use crate::App;
use crate::access::Viewer;
use crate::fault::Fault;
use crate::filters;
use crate::limits::ROWS_PAGE;
use crate::shell::{self, Shell};

#[derive(Deserialize)]
pub(crate) struct Asked {
    before: Option<i64>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    shell: Shell,
    actions: Vec<Audited>,
    older: Option<i64>,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let actions = app.database.audit_list(ROWS_PAGE, asked.before).await?;
    let full = actions.len() == usize::try_from(ROWS_PAGE).unwrap_or(0);
    let older = actions.last().filter(|_| full).map(|action| action.audit_id);
    shell::render(&Page { shell: Shell::new("/ui/audit", "Audit", viewer, &headers), actions, older })
}
