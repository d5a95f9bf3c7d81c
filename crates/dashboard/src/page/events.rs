//! `/ui/events`: events, newest first.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use serde::Deserialize;
use towpath_db::event::{Event, EventFilter, EventHealth, From};

use super::jobs::{on_the_command_line, read_payload};
use super::{Filter, given, inline, read_cursor};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::JOBS_PAGE;
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    domain: String,
    r#type: String,
    subject: String,
    actor: String,
    payload: String,
    before: String,
}

#[derive(Template)]
#[template(path = "events.html")]
struct Page {
    shell: Shell,
    command: String,
    asked: Asked,
    health: Option<Arc<EventHealth>>,
    events: Vec<Event>,
    older: Option<i64>,
    /// Whether the search stopped early.
    searched: bool,
    query: String,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let filter = EventFilter {
            event_domain: given(&asked.domain),
            event_type: given(&asked.r#type),
            subject_ref: given(&asked.subject),
            actor: given(&asked.actor),
            payload: given(&asked.payload).map(|text| read_payload(&text)).transpose()?,
            ..EventFilter::default()
        };
        let from = read_cursor(&asked.before, "a position")?.map_or(From::Newest, From::Before);
        let page = app.database.event_list(&filter, from, JOBS_PAGE).await?;
        Ok::<_, Fault>((page.events, page.more.then_some(page.position)))
    };
    let (found, health) = tokio::join!(look, app.event_health());
    let (((events, older), problem), health) = (inline(found)?, health?);
    let asked = filter.asked;
    let fields = [
        ("domain", asked.domain.as_str()),
        ("type", asked.r#type.as_str()),
        ("subject", asked.subject.as_str()),
        ("actor", asked.actor.as_str()),
        ("payload", asked.payload.as_str()),
    ];
    let query = super::query(&fields);
    let payload = on_the_command_line(&asked.payload);
    let flags = fields.map(|(name, value)| match name {
        "subject" => ("subject-ref", value),
        "payload" => (name, payload.as_str()),
        _ => (name, value),
    });
    let page = Page {
        command: super::command("towpath events tail", &flags),
        shell: shell.at("/ui/events", "Events").live("events").saying(problem.as_ref()),
        query,
        asked,
        health: health.value,
        older,
        searched: older.is_some() && events.len() < JOBS_PAGE as usize,
        events,
    };
    shell::render_list(&page, problem.is_some())
}
