//! `/ui/routes`: where events go, how far, and what holds them up.

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use towpath_db::Database;
use towpath_db::event::{EventHealth, Letters, ModeSet, Route, RouteDeadLetter, RouteWorkers};
use towpath_model::event::route::Mode;

use crate::App;
use crate::access::Viewer;
use crate::act::{Action, by};
use crate::fault::Fault;
use crate::filters;
use crate::limits::ROWS_PAGE;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "routes.html")]
struct Page {
    shell: Shell,
    routes: Vec<Route>,
    workers: RouteWorkers,
    health: EventHealth,
    letters: Vec<RouteDeadLetter>,
}

pub(crate) async fn show(
    viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let (routes, workers, health, letters) = tokio::try_join!(
        app.database.route_list(),
        app.database.route_worker_list(),
        app.database.event_health(),
        app.database.route_dead_letter_list(None, Letters::Open, ROWS_PAGE, None),
    )?;
    let shell = Shell::new("/ui/routes", "Routes", viewer, &headers).live("events");
    shell::render(&Page { shell, routes, workers, health, letters: letters.dead_letters })
}

pub(crate) async fn act(State(app): State<App>, action: Action) -> Result<Response, Fault> {
    let target = action.text("target").to_owned();
    let said = |set: ModeSet| format!("{} is {} now, it was {}", set.route_name, set.mode, set.old_mode);
    let mode = match action.text("do") {
        "enable" => Mode::Live,
        "dry-run" => Mode::DryRun,
        "disable" => Mode::Off,
        "replay" => {
            let id =
                target.parse().map_err(|_| Fault::Invalid(format!("{target:?} is not a dead letter")))?;
            let work = async |db: Database, who: String, _| db.route_dead_letter_replay(id, &who).await;
            return action
                .perform(&app, ("routes dead-letters replay", &target), work, |_| "sent again".into())
                .await;
        }
        other => return Err(Fault::Invalid(format!("a route cannot be asked to {other:?}"))),
    };
    let verb = format!("routes {}", action.text("do"));
    let work =
        async |db: Database, who: String, why: String| db.route_mode_set(&target, mode, by(&who, &why)).await;
    action.perform(&app, (&verb, &target), work, said).await
}
