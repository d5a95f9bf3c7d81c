//! The Durable Streams protocol over HTTP.
//!
//! Each file answers one kind of request: it reads headers with `towpath_model::stream`,
//! asks the store, and writes the answer. What a stream may do is decided in the store's
//! commit; nothing here remembers anything about a stream.

mod append;
mod batch;
mod create;
mod headers;
mod list;
mod live;
mod manage;
mod read;
mod refusal;
mod request;
mod settings;
mod subscription;

use std::sync::Arc;

use hyper::{Method, Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use towpath_model::stream::name::{Place, StreamName};
use towpath_streams::Store;

use crate::body::Body;
use crate::stop::Stop;
use crate::upload::Upload;
pub(crate) use append::{Done, Value, Wish};
use live::Readers;
use refusal::Refusal;
pub(crate) use request::Fields;
pub use settings::Settings;
use subscription::Subscriptions;

/// The streams as a service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Streams(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    readers: Readers,
    /// Where this server is reached.
    base_url: String,
    /// `None` if what is kept of them could not be read.
    subscriptions: Option<Subscriptions>,
    shutdown: CancellationToken,
    stop: Stop,
}

/// What every handler answers: a response, or a refusal that becomes one.
type Answer = Result<Response<Body>, Refusal>;

impl Streams {
    /// Opens the streams; `base_url` is where this server is reached unless the settings
    /// know better. The worker behind subscriptions runs until `shutdown`; live readers leave
    /// at the `stop`.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        settings: Settings,
        base_url: String,
        shutdown: CancellationToken,
        stop: Stop,
    ) -> Streams {
        let base_url = settings.public_url.clone().unwrap_or(base_url);
        let base_url = base_url.trim_end_matches('/').to_owned();
        let subscriptions = match Subscriptions::open(store.clone(), &settings, base_url.clone()).await {
            Ok(subscriptions) => {
                store.watch(subscriptions.watcher());
                tokio::spawn(subscriptions.clone().run(shutdown.clone()));
                Some(subscriptions)
            }
            Err(error) => {
                tracing::error!(%error, "subscriptions are not available");
                None
            }
        };
        let readers = Readers::new(settings.live_readers_max);
        Streams(Arc::new(Inner { store, settings, readers, base_url, subscriptions, shutdown, stop }))
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, place: Place, request: Request<Upload>) -> Response<Body> {
        let cors = headers::Cors::wanted(&request);
        let answer = match place {
            _ if request.method() == Method::OPTIONS => Ok(headers::preflight()),
            Place::Stream(name) => self.stream(name, request).await,
            Place::List { project } => self.list(project, request).await,
            Place::Reserved { project, rest } => match &self.0.subscriptions {
                Some(subscriptions) => subscriptions.answer(&project, &rest, request).await,
                None => Err(subscription::unavailable()),
            },
        };
        let mut response = answer.unwrap_or_else(Refusal::into_response);
        cors.add_to(response.headers_mut());
        response
    }

    async fn stream(&self, name: StreamName, request: Request<Upload>) -> Answer {
        match *request.method() {
            Method::POST => self.append(name, request).await,
            Method::GET => self.read(name, request).await,
            Method::PUT => self.create(name, request).await,
            Method::HEAD => self.head(&name),
            Method::DELETE => self.delete(name).await,
            _ => Err(Refusal::method("GET, HEAD, POST, PUT, DELETE, OPTIONS")),
        }
    }

    async fn list(&self, project: Arc<str>, request: Request<Upload>) -> Answer {
        match *request.method() {
            Method::GET => self.list_streams(project, &request).await,
            Method::POST => self.append_batch(project, request).await,
            _ => Err(Refusal::method("GET, POST, OPTIONS")),
        }
    }

    fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// Tells whoever subscribes that a stream grew or went.
    fn changed(&self, name: &StreamName) {
        if let Some(subscriptions) = &self.0.subscriptions {
            subscriptions.changed(name);
        }
    }

    pub(crate) fn body_bytes_max(&self) -> usize {
        self.settings().body_bytes_max
    }

    /// What is said when a body does not come.
    pub(crate) fn slow_body(&self) -> Response<Body> {
        let mut response = Refusal::slow_body().into_response();
        headers::Cors::always().add_to(response.headers_mut());
        response
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }
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
