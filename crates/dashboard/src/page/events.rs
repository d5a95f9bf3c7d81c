//! `/ui/events`: what happened, newest first.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use towpath_db::event::{Event, EventFilter, EventHealth, From};

use super::given;
use super::jobs::read_payload;
use crate::App;
use crate::access::Viewer;
use crate::fault::Fault;
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
    before: Option<i64>,
}

#[derive(Template)]
#[template(path = "events.html")]
struct Page {
    shell: Shell,
    asked: Asked,
    health: EventHealth,
    events: Vec<Event>,
    older: Option<i64>,
    query: String,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let filter = EventFilter {
        event_domain: given(&asked.domain),
        event_type: given(&asked.r#type),
        subject_ref: given(&asked.subject),
        actor: given(&asked.actor),
        payload: given(&asked.payload).map(|text| read_payload(&text)).transpose()?,
        ..EventFilter::default()
    };
    let from = asked.before.map_or(From::Newest, From::Before);
    let (page, health) =
        tokio::try_join!(app.database.event_list(&filter, from, JOBS_PAGE), app.database.event_health())?;
    let fields = [
        ("domain", asked.domain.as_str()),
        ("type", asked.r#type.as_str()),
        ("subject", asked.subject.as_str()),
        ("actor", asked.actor.as_str()),
        ("payload", asked.payload.as_str()),
    ];
    let query = super::query(&fields);
    let page = Page {
        shell: Shell::new("/ui/events", "Events", viewer, &headers).live("events"),
        query,
        asked,
        health,
        older: page.more.then_some(page.position),
        events: page.events,
    };
    shell::render(&page)
}
