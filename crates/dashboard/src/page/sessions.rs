//! `/ui/sessions`: the sessions of a project, and the lag of their sources.

use askama::Template;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use towpath_model::circuit;
use towpath_model::session::check_project;
use towpath_model::stream::expiry::Expiry;
use towpath_model::stream::name::{SESSION_PREFIX, StreamName};
use towpath_streams::{FanOutState, Head, List, SessionCounts};

use super::{Filter, inline};
use crate::App;
use crate::fault::{Answer, Fault};
use crate::filters::{self, percent};
use crate::limits::{LAGGING_MAX, ROWS_PAGE};
use crate::shell::{self, Shell};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    project: String,
    session: String,
    after: String,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct Page {
    shell: Shell,
    asked: Asked,
    project: String,
    counts: SessionCounts,
    sources: Vec<Source>,
    sessions: Vec<Row>,
    more: Option<String>,
}

/// A stream that sessions follow.
pub(crate) struct Source {
    pub(crate) id: String,
    pub(crate) link: String,
    pub(crate) state: FanOutState,
    pub(crate) lag_bytes: i64,
    pub(crate) circuit: &'static str,
}

/// One session of the list.
struct Row {
    id: String,
    link: String,
    head: Head,
    used_at: Option<Timestamp>,
    follows: Vec<String>,
    /// How many more there are.
    others: usize,
}

/// Subscriptions named in one row.
const NAMED_MAX: usize = 4;

pub(crate) async fn show(shell: Shell, State(app): State<App>, filter: Filter<Asked>) -> Answer {
    let limit = usize::try_from(ROWS_PAGE).unwrap_or(100);
    let asked = &filter.asked;
    let look = async {
        filter.check()?;
        let project = read_project(&asked.project)?;
        let list = List {
            project: project.as_str().into(),
            prefix: format!("{SESSION_PREFIX}{}", asked.session.trim()),
            after: super::given(&asked.after),
            limit,
        };
        Ok::<_, Fault>((project, app.store.list(list).await?))
    };
    let ((project, found), problem) = inline(look.await)?;
    let asked = filter.asked;
    let more = found.last().filter(|_| found.len() == limit).map(|(name, _)| {
        let fields = [("project", &*project), ("session", asked.session.as_str()), ("after", &*name.id)];
        format!("/ui/sessions?{}", super::query(&fields))
    });
    let page = Page {
        counts: app.store.session_counts(),
        sources: sources(&app, &project),
        sessions: found.into_iter().filter_map(|(name, head)| row(&app, &name, head)).collect(),
        more,
        project,
        asked,
        shell: shell.at("/ui/sessions", "Sessions").live("sessions").saying(problem.as_ref()),
    };
    shell::render_list(&page, problem.is_some())
}

/// The requested project, or the default one.
pub(crate) fn read_project(text: &str) -> Result<String, Fault> {
    let project = super::given(text).unwrap_or_else(|| "default".into());
    check_project(&project).map_err(|invalid| Fault::Invalid(invalid.detail().into()))?;
    Ok(project)
}

/// When a session was last used, derived from its expiry.
pub(crate) fn used_at(head: &Head) -> Option<Timestamp> {
    let Expiry::Sliding { seconds } = head.expiry else { return None };
    let life = SignedDuration::from_secs(i64::try_from(seconds).ok()?);
    head.ends_at?.checked_sub(life).ok()
}

fn row(app: &App, name: &StreamName, head: Head) -> Option<Row> {
    let subscriptions = app.store.session(name).ok()?.subscriptions;
    let id = name.session_id()?.to_owned();
    let follows: Vec<_> =
        subscriptions.iter().take(NAMED_MAX).map(|subscription| subscription.source.id.to_string()).collect();
    Some(Row {
        link: format!("/ui/sessions/{}?project={}", percent(&id), percent(&name.project)),
        id,
        used_at: used_at(&head),
        head,
        others: subscriptions.len() - follows.len(),
        follows,
    })
}

/// The project's sources: lagging ones first, then by name.
fn sources(app: &App, project: &str) -> Vec<Source> {
    let lagging = app.store.lagging(LAGGING_MAX).into_iter().filter(|(name, _)| &*name.project == project);
    let mut found: Vec<_> = lagging.collect();
    found.sort_by_key(|(_, state)| std::cmp::Reverse(state.lag_bytes()));
    for (name, state) in app.store.sources(project, None, usize::try_from(ROWS_PAGE).unwrap_or(100)) {
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, state));
        }
    }
    found.into_iter().map(|(name, state)| source(app, &name, state)).collect()
}

/// One source for a page.
pub(crate) fn source(app: &App, name: &StreamName, state: FanOutState) -> Source {
    Source {
        id: name.id.to_string(),
        link: format!("/ui/stream?project={}&id={}", percent(&name.project), percent(&name.id)),
        lag_bytes: i64::try_from(state.lag_bytes()).unwrap_or(i64::MAX),
        state,
        circuit: match app.circuits.state(name) {
            circuit::State::Closed => "closed",
            circuit::State::Open => "open",
            circuit::State::HalfOpen => "half-open",
        },
    }
}
