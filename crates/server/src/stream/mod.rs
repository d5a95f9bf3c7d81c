//! The Durable Streams protocol over HTTP.
//!
//! Each file handles one kind of request: it parses headers with `towpath_model::stream`,
//! calls the store, and writes the response. The store's commit decides what a stream may do;
//! nothing here keeps state of a stream.

mod append;
mod batch;
mod create;
mod fanout;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod headers;
mod list;
mod live;
mod manage;
mod read;
mod refusal;
mod request;
mod retention;
mod session;
mod settings;
mod subscription;

use std::sync::Arc;
use std::time::Instant;

use hyper::{Method, Request, Response, StatusCode};
use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;
use towpath_model::stream::name::{Resource, StreamName};
use towpath_model::token::{Action, Invalid as InvalidToken};
use towpath_streams::{Circuits, Error, Store};

use crate::body::Body;
use crate::budget::{Budget, Connection, Share};
use crate::metrics::{self, Metrics};
use crate::project::{Origins, Pass, Projects};
use crate::stop::Stop;
use crate::upload::Upload;
pub(crate) use append::{AppendReply, AppendRequest, Value};
pub use fanout::FanOutSettings;
use fanout::FanOuts;
use live::Readers;
pub(crate) use live::{Event, Events};
use refusal::Refusal;
pub(crate) use request::Fields;
use request::query;
pub use settings::Settings;
use subscription::Subscriptions;
#[cfg(test)]
pub(crate) use subscription::template as woken_route;

/// The service for streams. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Streams(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    readers: Readers,
    projects: Projects,
    fan_outs: FanOuts,
    metrics: Metrics,
    budget: Budget,
    /// The URL of this server.
    base_url: String,
    /// `None` if their stored state could not be read.
    subscriptions: Option<Subscriptions>,
    shutdown: CancellationToken,
    stop: Stop,
}

/// What streams share with the rest of the server.
pub(crate) struct Around {
    /// The URL of this server, unless the settings name another.
    pub(crate) base_url: String,
    pub(crate) projects: Projects,
    pub(crate) metrics: Metrics,
    pub(crate) circuits: Circuits,
    pub(crate) budget: Budget,
}

/// A request for the metrics, and the CORS headers of its response.
struct Asked {
    measured: metrics::Request,
    began: Instant,
    cors: headers::Cors,
}

impl Asked {
    fn new(measured: metrics::Request, cors: headers::Cors) -> Asked {
        Asked { measured, began: Instant::now(), cors }
    }
}

/// The result of every handler: a response, or a refusal that becomes one.
type Answer = Result<Response<Body>, Refusal>;

impl Streams {
    /// Opens the streams. The workers behind subscriptions and fan-outs run until `shutdown`;
    /// live readers leave at the `stop`.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        settings: Settings,
        around: Around,
        shutdown: CancellationToken,
        stop: Stop,
    ) -> Result<Streams, Error> {
        let Around { base_url, projects, metrics, circuits, budget } = around;
        let base_url = settings.public_url.clone().unwrap_or(base_url);
        let base_url = base_url.trim_end_matches('/').to_owned();
        let subscriptions = match Subscriptions::open(store.clone(), &settings, base_url.clone()).await {
            Ok(subscriptions) => {
                store.watch(subscriptions.watcher());
                tokio::spawn(subscriptions.clone().run(shutdown.clone()));
                Some(subscriptions)
            }
            Err(error) => {
                tracing::error!(%error, "subscriptions are unavailable");
                None
            }
        };
        let fan_outs = FanOuts::new(store.clone(), settings.fan_out.clone(), circuits, &metrics)?;
        tokio::spawn(fan_outs.clone().work(shutdown.clone()));
        tokio::spawn(fan_outs.clone().clean(shutdown.clone()));
        let readers = Readers::new(settings.live_readers_max);
        Ok(Streams(Arc::new(Inner {
            store,
            settings,
            readers,
            projects,
            fan_outs,
            metrics,
            budget,
            base_url,
            subscriptions,
            shutdown,
            stop,
        })))
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, resource: Resource, request: Request<Upload>) -> Response<Body> {
        let origins = self.0.projects.origins(resource.project(), request.headers());
        let is_foreign = matches!(origins, Origins::Foreign);
        let asked = Asked::new(measured(&resource, &request), headers::Cors::wanted(&request, origins));
        let answer = match *request.method() {
            // A preflight needs no token. Without the CORS headers the browser stops here.
            Method::OPTIONS => Ok(headers::preflight()),
            _ if is_foreign => Err(Refusal::foreign(resource.project())),
            _ => match self.pass(&resource, &request) {
                Ok(pass) => self.dispatch(resource, pass, request).await,
                Err(refusal) => Err(refusal),
            },
        };
        match self.finish(&asked, answer, Response::status) {
            Ok(mut response) => {
                asked.cors.add_to(response.headers_mut());
                response
            }
            Err(refused) => *refused,
        }
    }

    /// Counts a request with its status. A refusal becomes a response.
    fn finish<T>(
        &self,
        asked: &Asked,
        answer: Result<T, Refusal>,
        status: fn(&T) -> StatusCode,
    ) -> Result<T, Box<Response<Body>>> {
        let code = answer.as_ref().map_or_else(|refusal| refusal.status, status);
        self.0.metrics.request(asked.measured, code.as_u16(), asked.began.elapsed());
        answer.map_err(|refusal| {
            self.0.metrics.http().refused(refusal.error);
            let mut response = refusal.into_response();
            asked.cors.add_to(response.headers_mut());
            Box::new(response)
        })
    }

    /// The rights of a request. Wakes of the reserved API have a token of their own, and its
    /// public keys need none.
    fn pass(&self, resource: &Resource, request: &Request<Upload>) -> Result<Pass, Refusal> {
        match resource {
            Resource::Reserved { rest, .. } if subscription::brings_its_own_token(rest) => Ok(Pass::Open),
            resource => {
                let in_url = match (resource, request.method()) {
                    (Resource::Stream(_), &Method::GET) => token_in_url(request.uri().query())?,
                    _ => None,
                };
                let (project, fields) = (resource.project(), request.headers());
                let auth = self.0.settings.auth;
                self.counted(self.0.projects.admit_with(project, fields, in_url.as_deref(), auth))
            }
        }
    }

    fn admit(&self, project: &str, fields: &impl Fields) -> Result<Pass, Refusal> {
        self.counted(self.0.projects.admit(project, fields, self.0.settings.auth))
    }

    /// Counts a request that is not admitted.
    fn counted(&self, admitted: Result<Pass, InvalidToken>) -> Result<Pass, Refusal> {
        if let Err(invalid) = &admitted {
            self.0.metrics.http().not_let_in(invalid.word());
        }
        Ok(admitted?)
    }

    async fn dispatch(&self, resource: Resource, pass: Pass, request: Request<Upload>) -> Answer {
        // A commit decides about an append. What reads first must not miss what another node answered before.
        if !matches!((&resource, request.method()), (Resource::Stream(_), &Method::POST)) {
            self.store().fresh().await?;
        }
        match resource {
            Resource::Stream(name) => self.stream(name, pass, request).await,
            Resource::List { project } => self.list(project, &pass, request).await,
            Resource::Session { project, route } => self.sessions(project, route, &pass, request).await,
            Resource::Reserved { project, rest } => {
                pass.check(if rest.ends_with("/claim") { Action::Work } else { Action::Manage })?;
                match &self.0.subscriptions {
                    Some(subscriptions) => subscriptions.answer(&project, &rest, request).await,
                    None => Err(subscription::unavailable()),
                }
            }
        }
    }

    async fn stream(&self, name: StreamName, pass: Pass, request: Request<Upload>) -> Answer {
        match *request.method() {
            Method::GET | Method::HEAD => pass.check(Action::Read(&name.id))?,
            Method::PATCH => pass.check(Action::Retain(&name.id))?,
            _ => pass.check(Action::Write(&name.id))?,
        }
        match *request.method() {
            Method::POST => self.publish(name, request).await,
            Method::GET => self.read(name, pass, request).await,
            Method::PUT => self.create(name, &pass, request).await,
            Method::HEAD => self.head(&name, &pass),
            Method::DELETE => self.delete(name).await,
            Method::PATCH => self.retain(name, &request).await,
            _ => Err(Refusal::method("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
        }
    }

    async fn list(&self, project: Arc<str>, pass: &Pass, request: Request<Upload>) -> Answer {
        match *request.method() {
            Method::GET => {
                pass.check(Action::List)?;
                self.list_streams(project, &request).await
            }
            Method::POST => self.append_batch(project, pass, request).await,
            _ => Err(Refusal::method("GET, POST, OPTIONS")),
        }
    }

    fn fan_outs(&self) -> &FanOuts {
        &self.0.fan_outs
    }

    /// The memory budget that pays for the answer to a request.
    fn share(&self, project: &Arc<str>, request: &Request<Upload>) -> Share {
        self.0.budget.project(project, request.extensions().get::<Arc<Connection>>().cloned())
    }

    fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Counts peers that were disconnected because they did not read.
    pub(crate) fn slow_clients_dropped(&self) -> Counter {
        self.0.metrics.http().slow_clients_dropped.clone()
    }

    pub(crate) fn body_bytes_max(&self) -> usize {
        self.settings().body_bytes_max
    }

    /// The response to a body that did not arrive in time.
    pub(crate) fn slow_body(&self) -> Response<Body> {
        let mut response = Refusal::slow_body().into_response();
        headers::Cors::Quiet.add_to(response.headers_mut());
        response
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }
}

/// The token in the URL of a read with server-sent events.
fn token_in_url(text: Option<&str>) -> Result<Option<String>, Refusal> {
    match query(text, "live")?.as_deref() {
        Some("sse") => query(text, "token"),
        _ => Ok(None),
    }
}

/// Registers the metrics of streams and fan-outs without opening any.
pub(crate) fn describe(metrics: &Metrics) {
    fanout::describe(metrics);
}

/// The labels of a request in the metrics.
fn measured(resource: &Resource, request: &Request<Upload>) -> metrics::Request {
    use towpath_model::session::Route;
    let is_live = || request.uri().query().is_some_and(|query| query.contains("live="));
    let endpoint = match resource {
        Resource::Stream(_) if is_live() => "stream_live",
        Resource::Stream(_) => "stream",
        Resource::List { .. } => "streams",
        Resource::Reserved { .. } => "reserved",
        Resource::Session { route, .. } => match route {
            Route::Subscribe => "subscribe",
            Route::Unsubscribe => "unsubscribe",
            Route::Publish(_) => "publish",
            Route::Session(_) => "session",
            Route::Touch(_) => "session_touch",
            Route::Sessions => "sessions",
            Route::Sources => "sources",
        },
    };
    metrics::Request { endpoint, method: metrics::method(request.method()) }
}

/// A response without a body.
fn empty(status: StatusCode) -> Response<Body> {
    with_body(status, Body::Empty)
}

fn with_body(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
