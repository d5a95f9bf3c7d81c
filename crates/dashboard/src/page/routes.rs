//! `/ui/routes`: routes, route workers and dead letters.

use askama::Template;
use axum::extract::State;
use towpath_db::event::{Letters, Route, RouteDeadLetter, RouteWorkers};

use super::route::here;
use crate::App;
use crate::fault::Answer;
use crate::filters;
use crate::limits::ROWS_PAGE;
use crate::shell::{self, Shell};

#[derive(Template)]
#[template(path = "routes.html")]
struct Page {
    shell: Shell,
    routes: Vec<(String, Route)>,
    workers: RouteWorkers,
    /// A gate of routing is closed.
    is_off: bool,
    letters: Vec<RouteDeadLetter>,
}

pub(crate) async fn show(shell: Shell, State(app): State<App>) -> Answer {
    let (routes, workers, health, letters) = tokio::try_join!(
        app.database.route_list(),
        app.database.route_worker_list(),
        app.event_health(),
        app.database.route_dead_letter_list(None, Letters::Open, ROWS_PAGE, None),
    )?;
    let shell = shell.at("/ui/routes", "Routes").live("events");
    let routes = routes.into_iter().map(|route| (here(&route.route_name), route)).collect();
    let is_off = health.value.is_some_and(|health| !health.routing_enabled || !health.route_worker_enabled);
    shell::render(&Page { shell, routes, workers, is_off, letters: letters.dead_letters })
}
