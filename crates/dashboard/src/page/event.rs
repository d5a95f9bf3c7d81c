//! `/ui/events/{id}`: one event, its recipients, and what routes did with it.

use askama::Template;
use axum::extract::State;
use serde::de::DeserializeOwned;
use serde_json::Value;
use towpath_db::Database;
use towpath_db::event::{DeliveryAttempt, EventWhole, Question, Recipients, Route, RouteSent, WouldDecide};
use towpath_model::event::recipient::Step;
use towpath_model::id::EventId;

use super::Id;
use crate::App;
use crate::act::Action;
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "event.html")]
struct Page {
    shell: Shell,
    id: EventId,
    whole: EventWhole,
    steps: Vec<StepRow>,
    /// What routes would do with it now.
    would: Vec<WouldDecide>,
    deliveries: Vec<DeliveryAttempt>,
    waiting: Vec<Waiting>,
    routes: Vec<Route>,
}

/// One step of the resolution, best first.
struct StepRow {
    meaning: &'static str,
    step: Step,
    /// The recipients decided by this step, and whether each is muted.
    who: Vec<(String, bool)>,
    /// Whether this step selects the recipients.
    is_best: bool,
}

/// A webhook that is not sent yet.
#[derive(serde::Deserialize)]
struct Waiting {
    route_name: String,
    attempts: i32,
    next_at: jiff::Timestamp,
    last_error: Option<String>,
}

/// The steps in order.
const STEPS: [(Step, &str); 5] = [
    (Step::ExactMatch, "a subscription to its type in its stream"),
    (Step::DomainWildcard, "a subscription to everything in its stream"),
    (Step::StreamWildcard, "a subscription to its type in any stream"),
    (Step::DomainOnly, "a subscription to everything of its domain"),
    (Step::BroadcastFallback, "no subscription matches: every matching route receives it"),
];

pub(crate) async fn show(shell: Shell, State(app): State<App>, Id(id): Id<EventId>) -> Answer {
    let question = Question::Stored { event_id: id };
    let (whole, routes, explained) = tokio::try_join!(
        app.database.event_show(id),
        app.database.route_list(),
        app.database.route_explain(&question, "default"),
    )?;
    let title = whole.event.event_type.clone();
    let page = Page {
        shell: shell.at("/ui/events", title).live("events"),
        id,
        steps: steps(&whole.recipients),
        would: explained.decisions,
        deliveries: rows(&whole.deliveries.attempts),
        waiting: rows(&whole.deliveries.waiting),
        whole,
        routes,
    };
    shell::render(&page)
}

/// The steps, each with its recipients.
fn steps(resolved: &Recipients) -> Vec<StepRow> {
    let who = |step: Step| {
        let of = |muted: bool, list: &[towpath_db::event::Recipient]| {
            let on_it = list.iter().filter(|one| one.step == step);
            on_it.map(|one| (one.recipient_ref.clone(), muted)).collect::<Vec<_>>()
        };
        [of(false, &resolved.recipients), of(true, &resolved.suppressed)].concat()
    };
    STEPS
        .map(|(step, meaning)| StepRow { meaning, step, who: who(step), is_best: step == resolved.step })
        .into()
}

/// The readable rows of a history; unknown columns are ignored.
fn rows<T: DeserializeOwned>(values: &[Value]) -> Vec<T> {
    values.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
}

pub(crate) async fn act(State(app): State<App>, Id(id): Id<EventId>, action: Action) -> Answer {
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
        other => Err(Fault::Invalid(format!("unknown action {other:?} for an event"))),
    }
}
