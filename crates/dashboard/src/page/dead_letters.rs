//! `/ui/dead-letters`: what ended badly and waits for a person.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use towpath_db::dead_letter::{DeadLetter, DeadLetterFilter, DeadLetterSummary};
use towpath_model::id::DeadLetterId;

use super::given;
use crate::App;
use crate::access::Viewer;
use crate::fault::Fault;
use crate::filters;
use crate::limits::ROWS_PAGE;
use crate::shell::{self, Shell};

/// The five triage states.
pub(crate) const STATUSES: [&str; 5] = ["pending", "acknowledged", "manual_replay", "escalated", "closed"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    status: String,
    kind: String,
    error: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct Page {
    shell: Shell,
    command: String,
    asked: Asked,
    statuses: [&'static str; 5],
    summary: Arc<Vec<DeadLetterSummary>>,
    letters: Vec<DeadLetter>,
    newer: Option<DeadLetterId>,
    query: String,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let filter = DeadLetterFilter {
        triage_status: given(&asked.status),
        job_kind: given(&asked.kind),
        error_contains: given(&asked.error),
        ..DeadLetterFilter::default()
    };
    let cursor = match given(&asked.cursor) {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| Fault::Invalid(format!("{text:?} is not a dead letter")))?)
        }
    };
    let (found, summary) =
        tokio::try_join!(app.database.dead_letter_list(&filter, ROWS_PAGE, cursor), app.letters(),)?;
    let fields =
        [("status", asked.status.as_str()), ("kind", asked.kind.as_str()), ("error", asked.error.as_str())];
    let query = super::query(&fields);
    let page = Page {
        command: super::command("towpath dlq list", &fields),
        query,
        asked,
        statuses: STATUSES,
        summary: summary.value.unwrap_or_default(),
        letters: found.dead_letters,
        newer: found.cursor,
        shell: Shell::new("/ui/dead-letters", "Dead letters", viewer, &headers).live("dead-letters"),
    };
    shell::render(&page)
}
