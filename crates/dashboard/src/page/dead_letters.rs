//! `/ui/dead-letters`: jobs that failed for good.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use serde::Deserialize;
use towpath_db::dead_letter::{DeadLetter, DeadLetterFilter, DeadLetterSummary};
use towpath_model::id::DeadLetterId;

use super::{Filter, given, inline, read_cursor};
use crate::App;
use crate::fault::{Answer, Fault};
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

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let filter = DeadLetterFilter {
            triage_status: given(&asked.status),
            job_kind: given(&asked.kind),
            error_contains: given(&asked.error),
            ..DeadLetterFilter::default()
        };
        let cursor = read_cursor(&asked.cursor, "a dead letter")?;
        let found = app.database.dead_letter_list(&filter, ROWS_PAGE, cursor).await?;
        Ok::<_, Fault>((found.dead_letters, found.cursor))
    };
    let (found, summary) = tokio::join!(look, app.letters());
    let (((letters, newer), problem), summary) = (inline(found)?, summary?);
    let asked = filter.asked;
    let fields =
        [("status", asked.status.as_str()), ("kind", asked.kind.as_str()), ("error", asked.error.as_str())];
    let query = super::query(&fields);
    let page = Page {
        command: super::command("towpath dlq list", &fields),
        query,
        asked,
        statuses: STATUSES,
        summary: summary.value.unwrap_or_default(),
        letters,
        newer,
        shell: shell.at("/ui/dead-letters", "Dead letters").live("dead-letters").saying(problem.as_ref()),
    };
    shell::render_list(&page, problem.is_some())
}
