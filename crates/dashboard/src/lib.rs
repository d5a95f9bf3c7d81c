//! Pages for operators, at `/ui`. An internal part: applications depend on the crate `towpath`.
//!
//! Pages are rendered on the server with the same functions that the command line calls, and so is every action.
//! A page names the topics it shows; when one changes, a line on an internal stream makes open pages reload. The
//! crate contains no SQL and keeps no state in memory that matters.

mod access;
mod act;
mod chart;
mod counted;
mod fault;
mod filters;
mod limits;
mod live;
mod page;
mod shell;
mod webhook;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::dead_letter::DeadLetterSummary;
use towpath_db::event::EventHealth;
use towpath_db::queue::{Backlog, Latency, QueueHealth};
use towpath_streams::{Circuits, Store};

use access::Guard;
pub use access::{Access, Cookies, Secret};
use counted::{Counted, Seen};
use live::Live;
pub use webhook::{TestSender, Tested};

/// What the dashboard needs.
#[derive(Clone)]
pub struct Config {
    /// The database they show.
    pub database: Database,
    /// The streams they show, and the stream of changes.
    pub store: Arc<dyn Store>,
    /// The circuit breakers of fan-out, shared with the sender.
    pub circuits: Circuits,
    /// Sends test webhooks.
    pub webhooks: Arc<dyn TestSender>,
    /// Who may read and who may act.
    pub access: Access,
    /// How cookies may be sent.
    pub cookies: Cookies,
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct App {
    database: Database,
    store: Arc<dyn Store>,
    circuits: Circuits,
    webhooks: Arc<dyn TestSender>,
    guard: Arc<Guard>,
    live: Live,
    counts: Counts,
}

/// Counts whose cost grows with the data.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    queue: Counted<Option<QueueHealth>>,
    backlog: Counted<Vec<Backlog>>,
    latency: Counted<Latency>,
    events: Counted<EventHealth>,
    letters: Counted<Vec<DeadLetterSummary>>,
}

impl App {
    /// Counts of the queue.
    pub(crate) async fn queue_health(&self) -> Result<Seen<Option<QueueHealth>>, towpath_db::Error> {
        let db = self.database.clone();
        self.counts.queue.get(|| async move { Ok(db.queue_health().await?.into_iter().next()) }).await
    }

    /// Unfinished jobs by kind.
    pub(crate) async fn backlog(&self) -> Result<Seen<Vec<Backlog>>, towpath_db::Error> {
        let db = self.database.clone();
        self.counts.backlog.get(|| async move { db.queue_backlog().await }).await
    }

    /// How long jobs took.
    pub(crate) async fn latency(&self) -> Result<Seen<Latency>, towpath_db::Error> {
        let db = self.database.clone();
        self.counts.latency.get(|| async move { db.queue_latency(limits::LATENCY_SAMPLE).await }).await
    }

    /// Counts of events.
    pub(crate) async fn event_health(&self) -> Result<Seen<EventHealth>, towpath_db::Error> {
        let db = self.database.clone();
        self.counts.events.get(|| async move { db.event_health().await }).await
    }

    /// Dead letters by kind and status.
    pub(crate) async fn letters(&self) -> Result<Seen<Vec<DeadLetterSummary>>, towpath_db::Error> {
        let db = self.database.clone();
        self.counts.letters.get(|| async move { db.dead_letter_summary().await }).await
    }
}

/// The routes, to be mounted at the root: they all start with `/ui`.
pub fn router(config: Config, shutdown: CancellationToken) -> Router {
    let Config { database, store, circuits, webhooks, access, cookies } = config;
    let live = Live::new(database.clone(), store.clone(), shutdown);
    let app = App {
        database,
        store,
        circuits,
        webhooks,
        guard: Arc::new(Guard::new(access, cookies)),
        live,
        counts: Counts::default(),
    };
    let router =
        table().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router
        .layer(DefaultBodyLimit::max(limits::FORM_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), act::guard))
        .layer(middleware::from_fn(shell::patience))
        .layer(middleware::map_response(shell::harden))
        .with_state(app)
}

/// Every path of the router, for tests that try them all.
pub fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, _)| path).collect()
}

/// The routing table. Requests that change something pass [`act::guard`], which admits only administrators, and take
/// an [`act::Action`], which requires the page's token.
fn table() -> Vec<(&'static str, MethodRouter<App>)> {
    use page::*;
    vec![
        ("/ui", get(overview::show)),
        ("/ui/login", get(access::login::show).post(access::login::enter)),
        ("/ui/logout", post(access::login::leave)),
        ("/ui/live", get(live::follow)),
        ("/ui/assets/{name}", get(shell::asset)),
        ("/ui/jobs", get(jobs::show)),
        ("/ui/jobs/bulk", post(bulk::begin)),
        ("/ui/bulk/{id}", get(bulk::show)),
        ("/ui/jobs/{id}", get(job::show).post(job::act)),
        ("/ui/dead-letters", get(dead_letters::show)),
        ("/ui/dead-letters/{id}", get(dead_letter::show).post(dead_letter::act)),
        ("/ui/events", get(events::show)),
        ("/ui/events/{id}", get(event::show).post(event::act)),
        ("/ui/routes", get(routes::show).post(route::act)),
        ("/ui/routes/{name}", get(route::show)),
        ("/ui/processes", get(processes::show)),
        ("/ui/processes/{id}", get(process::show).post(process::act)),
        ("/ui/executors", get(executors::show).post(executors::act)),
        ("/ui/schedules", get(schedules::show).post(schedules::act)),
        ("/ui/gates", get(gates::show).post(gates::act)),
        ("/ui/streams", get(streams::show)),
        ("/ui/stream", get(stream::show)),
        ("/ui/stream/follow", get(stream::follow)),
        ("/ui/sessions", get(sessions::show)),
        ("/ui/sessions/{id}", get(session::show).post(session::act)),
        ("/ui/audit", get(audit::show)),
        ("/ui/{*rest}", get(fault::not_found)),
    ]
}
