//! `/ui/sessions/{id}`: one session, its subscriptions, and its stream, live.

use askama::Template;
use axum::extract::{Path, Query, State};
use jiff::Timestamp;
use serde::Deserialize;
use towpath_model::session::session_stream;
use towpath_model::stream::name::StreamName;
use towpath_model::stream::offset::Start;
use towpath_streams::{Head, Subscription};

use super::sessions::{Source, read_project, source, used_at};
use super::stream::text;
use crate::App;
use crate::act::Action;
use crate::fault::{Answer, Fault};
use crate::filters::{self, percent};
use crate::limits::STREAM_PAGE_BYTES;
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    project: String,
    /// Whether to show the stream. Reading renews the session, so it happens only on request.
    tail: String,
}

impl Asked {
    fn name(&self, id: &str) -> Result<StreamName, Fault> {
        let project = read_project(&self.project)?;
        session_stream(&project, id).map_err(|invalid| Fault::NotFound(invalid.detail().into()))
    }
}

#[derive(Template)]
#[template(path = "session.html")]
struct Page {
    shell: Shell,
    project: String,
    id: String,
    here: String,
    head: Head,
    used_at: Option<Timestamp>,
    subscriptions: Vec<Row>,
    tail: Option<Tail>,
}

/// A subscription, and the lag of its source.
struct Row {
    subscription: Subscription,
    source: Option<Source>,
}

/// Its stream, from the oldest message that fits, and where the browser continues.
struct Tail {
    messages: Vec<String>,
    follow: String,
}

pub(crate) async fn show(
    shell: Shell,
    State(app): State<App>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
) -> Answer {
    let name = asked.name(&id)?;
    let session = app.store.session(&name)?;
    let row = |subscription: Subscription| {
        let state = app.store.fan_out_state(&subscription.source).ok();
        let source = state.map(|state| source(&app, &subscription.source, state));
        Row { subscription, source }
    };
    let subscriptions = session.subscriptions.into_iter().map(row).collect();
    let id = name.session_id().unwrap_or_default().to_owned();
    let page = Page {
        shell: shell.at("/ui/sessions", format!("Session {id}")).live("sessions"),
        project: name.project.to_string(),
        here: format!("/ui/sessions/{}?project={}", percent(&id), percent(&name.project)),
        id,
        used_at: used_at(&session.head),
        head: session.head,
        subscriptions,
        tail: if asked.tail.is_empty() { None } else { Some(tail(&app, &name).await?) },
    };
    shell::render(&page)
}

async fn tail(app: &App, name: &StreamName) -> Result<Tail, Fault> {
    let page = app.store.read(name, Start::Beginning, STREAM_PAGE_BYTES).await?;
    let place =
        format!("project={}&id={}&offset={}", percent(&name.project), percent(&name.id), page.batch.end());
    let messages = page.batch.messages().map(|message| text(&message, &page.head)).collect();
    Ok(Tail { messages, follow: format!("/ui/stream/follow?{place}") })
}

pub(crate) async fn act(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
    action: Action,
) -> Answer {
    let name = asked.name(&id)?;
    let target = format!("{}/{}", name.project, name.session_id().unwrap_or_default());
    match action.text("do") {
        "touch" => {
            let work = async {
                let done = app.store.session(&name).and_then(|_| app.store.touch(&name));
                done.map(|head| match head.ends_at {
                    Some(at) => format!("the session expires at {at:.0}"),
                    None => "the session does not expire".into(),
                })
            };
            action.perform_outside(&app, ("sessions touch", &target), None, work).await
        }
        "delete" => {
            let work = async {
                app.store.session(&name)?;
                app.store.delete(name.clone()).await?;
                Ok::<_, towpath_streams::Error>("deleted the session and its subscriptions".to_owned())
            };
            let list = format!("/ui/sessions?project={}", percent(&name.project));
            action.perform_outside(&app, ("sessions delete", &target), Some(&list), work).await
        }
        other => Err(Fault::Invalid(format!("unknown action {other:?} for a session"))),
    }
}
