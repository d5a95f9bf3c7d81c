//! `/ui/events/{id}`: one event, who heard it and why, and what became of it.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use towpath_db::Database;
use towpath_db::event::{EventWhole, Route, RouteSent};
use towpath_model::id::EventId;

use crate::App;
use crate::access::Viewer;
use crate::act::Action;
use crate::fault::Fault;
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "event.html")]
struct Page {
    shell: Shell,
    id: EventId,
    whole: EventWhole,
    routes: Vec<Route>,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let id = read_id(&id)?;
    let (whole, routes) = tokio::try_join!(app.database.event_show(id), app.database.route_list())?;
    let title = whole.event.event_type.clone();
    let shell = Shell::new("/ui/events", title, viewer, &headers).live("events");
    shell::render(&Page { shell, id, whole, routes })
}

pub(crate) async fn act(
    State(app): State<App>,
    Path(id): Path<String>,
    action: Action,
) -> Result<Response, Fault> {
    let id = read_id(&id)?;
    let target = id.to_string();
    match action.text("do") {
        "send" => {
            let route = action.text("route").to_owned();
            let work = async |db: Database, who: String, _| db.route_send(&route, id, &who).await;
            let said = |sent: RouteSent| match sent.detail {
                Some(detail) => format!("{}: {detail}", sent.decision),
                None => format!("{} through {}", sent.decision, sent.route_name),
            };
            action.perform(&app, ("events replay", &target), work, said).await
        }
        other => Err(Fault::Invalid(format!("an event cannot be asked to {other:?}"))),
    }
}

fn read_id(text: &str) -> Result<EventId, Fault> {
    text.parse().map_err(|_| Fault::NotFound(format!("{text:?} is not the id of an event")))
}
