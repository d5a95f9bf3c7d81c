//! A server on a stream store of its own, and a client of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use towpath_server::metrics::Metrics;
use towpath_server::stream::Settings;
use towpath_server::tls::Tls;
use towpath_server::{Config, ReaderLimits};
use towpath_streams::embedded::{self, Embedded};
use towpath_testkit::server::RunningServer;
use towpath_testkit::wait;

pub(crate) struct Server {
    pub(crate) address: std::net::SocketAddr,
    http: reqwest::Client,
    settings: Settings,
    store: Embedded,
    running: RunningServer,
    directory: Arc<TempDir>,
}

/// What opens the registry of projects.
pub(crate) const ADMIN: &str = "admin";

/// Short waits, so that tests do not wait.
pub(crate) fn settings() -> Settings {
    Settings { long_poll: Duration::from_millis(300), webhook_local: true, ..Settings::default() }
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(settings()).await
    }

    pub(crate) async fn with(settings: Settings) -> Server {
        Server::configured(settings, None).await
    }

    pub(crate) async fn configured(settings: Settings, connections_max: Option<usize>) -> Server {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Server::on(directory, settings, Config { connections_max, ..Config::default() }).await
    }

    pub(crate) async fn secure(tls: Tls) -> Server {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Server::on(directory, settings(), Config { tls: Some(tls), ..Config::default() }).await
    }

    /// A server that may hold only so much for readers.
    pub(crate) async fn bounded(readers: ReaderLimits) -> Server {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Server::on(directory, settings(), Config { readers, ..Config::default() }).await
    }

    async fn on(directory: Arc<TempDir>, settings: Settings, config: Config) -> Server {
        let path: PathBuf = directory.path().join("streams");
        let store = tokio::task::spawn_blocking(|| Embedded::open(embedded::Config::new(path)))
            .await
            .unwrap()
            .unwrap();
        Server::serving(store, directory, settings, config).await
    }

    /// A server of a store that the test has made.
    pub(crate) async fn of(store: Embedded) -> Server {
        Server::serving(store, Arc::new(tempfile::tempdir().unwrap()), settings(), Config::default()).await
    }

    async fn serving(store: Embedded, directory: Arc<TempDir>, settings: Settings, config: Config) -> Server {
        let config = Config {
            streams: Some((Arc::new(store.clone()), settings.clone())),
            metrics: Metrics::new(),
            admin_token: Some(ADMIN.to_owned()),
            ..config
        };
        let running = RunningServer::start(config).await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Server { address: running.address(), http, settings, store, running, directory }
    }

    /// Stops the server and starts another one on the same store.
    pub(crate) async fn restart(self) -> Server {
        let (directory, settings) = (self.directory.clone(), self.settings.clone());
        self.stop().await;
        Server::on(directory, settings, Config::default()).await
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
        let store = self.store;
        tokio::task::spawn_blocking(move || store.shut_down()).await.unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.running.url(path)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub(crate) async fn put(&self, path: &str, content_type: &str, body: &str) -> Response {
        let request = self.request(Method::PUT, path).header("content-type", content_type);
        request.body(body.to_owned()).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, content_type: &str, body: &str) -> Response {
        let request = self.request(Method::POST, path).header("content-type", content_type);
        request.body(body.to_owned()).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    pub(crate) async fn get_with(&self, path: &str, token: &str) -> Response {
        self.request(Method::GET, path).bearer_auth(token).send().await.unwrap()
    }

    /// Creates a stream of JSON.
    pub(crate) async fn put_with(&self, path: &str, token: &str) -> Response {
        let request = self.request(Method::PUT, path).header("content-type", "application/json");
        request.bearer_auth(token).send().await.unwrap()
    }

    /// Publishes, and answers the status and the four words about the fan-out.
    pub(crate) async fn publish(&self, path: &str, content_type: &str, body: &str) -> (u16, [String; 4]) {
        let answer = self.post(path, content_type, body).await;
        let names = ["count", "successes", "failures", "mode"];
        let words = names.map(|name| header(&answer, &format!("stream-fanout-{name}")));
        (answer.status().as_u16(), words)
    }

    /// Subscribes and answers the body; it must work.
    pub(crate) async fn subscribe(&self, project: &str, session: &str, stream: &str) -> Value {
        let body = serde_json::json!({ "sessionId": session, "streamId": stream });
        let (status, answer) = self.json(Method::POST, &format!("/v1/{project}/subscribe"), body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Everything in a stream of JSON.
    pub(crate) async fn values(&self, path: &str) -> Value {
        self.get(path).await.json().await.unwrap()
    }

    /// Asks until the answer is right.
    pub(crate) async fn until<T: std::fmt::Debug>(
        &self,
        ask: impl AsyncFn() -> T,
        is_right: impl Fn(&T) -> bool,
    ) -> T {
        wait::until("the right answer", ask, is_right).await
    }

    /// What `/metrics` says of one metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> i64 {
        let text = self.get("/metrics").await.text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("towpath_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
    }

    pub(crate) async fn json(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let response = self.request(method, path).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or_default())
    }
}

/// The id of a session.
pub(crate) fn session(number: u32) -> String {
    format!("0190f5a4-5c2e-7bb0-9f33-{number:012}")
}

pub(crate) fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}
