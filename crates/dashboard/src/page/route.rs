//! `/ui/routes/{name}`: one route, its receiver's circuit, and its latest activity.

use askama::Template;
use axum::extract::{Path, State};
use towpath_db::Database;
use towpath_db::event::{
    CircuitClosed, LetterReplayed, Letters, ModeSet, Route, RouteAttempts, RouteDeadLetter,
};
use towpath_model::event::route::Mode;

use crate::App;
use crate::act::{Action, by};
use crate::fault::{Answer, Fault};
use crate::filters;
use crate::limits::JOBS_PAGE;
use crate::shell::{self, Shell};
use crate::webhook::Tested;

#[derive(Template)]
#[template(path = "route.html")]
struct Page {
    shell: Shell,
    route: Route,
    attempts: RouteAttempts,
    letters: Vec<RouteDeadLetter>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>, Path(name): Path<String>) -> Answer {
    let (db, name) = (&app.database, name.as_str());
    let (route, attempts, letters) = tokio::try_join!(
        db.route_show(name),
        db.route_attempts(name, JOBS_PAGE),
        db.route_dead_letter_list(Some(name), Letters::Open, JOBS_PAGE, None),
    )?;
    let shell = shell.at("/ui/routes", format!("Route {name}")).live("events");
    shell::render(&Page { shell, route, attempts, letters: letters.dead_letters })
}

/// A route's own page.
pub(crate) fn here(name: &str) -> String {
    format!("/ui/routes/{}", filters::percent(name))
}

/// The actions on a route and its dead letters.
pub(crate) async fn act(State(app): State<App>, action: Action) -> Answer {
    let target = action.text("target").to_owned();
    let mode = match action.text("do") {
        "enable" => Mode::Live,
        "dry-run" => Mode::DryRun,
        "disable" => Mode::Off,
        "test" => return test(&app, &action, &target).await,
        "close-circuit" => {
            let work = async |db: Database, who: String, why: String| {
                db.route_circuit_close(&target, by(&who, &why)).await
            };
            let said = |closed: CircuitClosed| match closed.changed {
                true => {
                    format!("closed the circuit of {}; waiting deliveries are sent now", closed.target_key)
                }
                false => format!("the circuit of {} is already closed", closed.target_key),
            };
            return action.perform(&app, ("routes close-circuit", &target), work, said).await;
        }
        "replay" => {
            let id =
                target.parse().map_err(|_| Fault::Invalid(format!("{target:?} is not a dead letter")))?;
            let work = async |db: Database, who: String, _| db.route_dead_letter_replay(id, &who).await;
            let said = |done: LetterReplayed| match (done.resolved, done.detail) {
                (true, _) => "replayed".into(),
                (false, Some(error)) => format!("the replay failed, and the dead letter stays open: {error}"),
                (false, None) => "the route is in dry run, and the dead letter stays open".into(),
            };
            return action.perform(&app, ("routes dlq replay", &target), work, said).await;
        }
        "resolve" => {
            let id =
                target.parse().map_err(|_| Fault::Invalid(format!("{target:?} is not a dead letter")))?;
            let work = async |db: Database, who: String, why: String| {
                db.route_dead_letter_resolve(id, by(&who, &why)).await
            };
            let said = |_| "resolved without a replay".into();
            return action.perform(&app, ("routes dlq resolve", &target), work, said).await;
        }
        other => return Err(Fault::Invalid(format!("unknown action {other:?} for a route"))),
    };
    let verb = format!("routes {}", action.text("do"));
    let work =
        async |db: Database, who: String, why: String| db.route_mode_set(&target, mode, by(&who, &why)).await;
    let said = |set: ModeSet| format!("{} is now {}, it was {}", set.route_name, set.mode, set.old_mode);
    action.perform(&app, (&verb, &target), work, said).await
}

/// Sends one webhook with a test event, signed like a real one.
async fn test(app: &App, action: &Action, name: &str) -> Answer {
    let work = async {
        let test = app.database.route_test(name).await.map_err(|error| error.to_string())?;
        let url = test.url.clone();
        in_words(&url, &app.webhooks.send(test).await)
    };
    action.perform_outside(app, ("routes test", name), None, work).await
}

fn in_words(url: &str, tested: &Tested) -> Result<String, String> {
    let outcome = &tested.outcome;
    let took = format!("{} ms", outcome.duration.as_millis());
    let answer = outcome.answer.as_deref().map(str::trim).filter(|answer| !answer.is_empty());
    let answer: String = answer.map_or_else(String::new, |answer| format!(", response: {answer}"));
    match (&tested.failure, outcome.status_code) {
        (None, status) => Ok(format!("{url} accepted it with {} in {took}{answer}", status.unwrap_or(0))),
        (Some(failure), _) => Err(format!("{url} did not accept it after {took}: {}{answer}", failure.error)),
    }
}
