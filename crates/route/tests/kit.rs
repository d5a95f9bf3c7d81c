//! What the tests share: a receiver that records and answers as told, and a role that runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use towpath_route::webhook::Reach;
use towpath_route::{Config, Role};
use towpath_testkit::TestDb;

/// Longer than anything here takes on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// How to answer the request with this number, from 0.
type Answer = dyn Fn(usize, &Arrived) -> Response + Send + Sync;

/// A receiver of webhooks on this machine.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    answer: Arc<Answer>,
}

impl Receiver {
    /// One that answers as the function says.
    pub(crate) async fn new(
        answer: impl Fn(usize, &Arrived) -> Response + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    pub(crate) async fn at(
        address: SocketAddr,
        answer: impl Fn(usize, &Arrived) -> Response + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(Mutex::new(vec![]));
        let shared = Shared { arrived: arrived.clone(), answer: Arc::new(answer) };
        let routes = Router::new().fallback(receive).with_state(shared);
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Receiver { address, arrived, server }
    }

    /// One that is content with everything.
    pub(crate) async fn content() -> Receiver {
        Receiver::new(|_, _| StatusCode::NO_CONTENT.into_response()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    pub(crate) async fn until_arrived(&self, count: usize) -> Vec<Arrived> {
        let deadline = Instant::now() + WAIT_MAX;
        while self.arrived().len() < count {
            assert!(Instant::now() < deadline, "{} of {count} webhooks came", self.arrived().len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.arrived()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let arrived = Arrived { headers, body };
    let number = {
        let mut all = shared.arrived.lock().unwrap();
        all.push(arrived.clone());
        all.len() - 1
    };
    (shared.answer)(number, &arrived)
}

/// A role that runs in the test's own process, as the least privileged login.
pub(crate) struct Running {
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) async fn start(db: &TestDb) -> Running {
        Running::with(db, Config::default()).await
    }

    pub(crate) async fn with(db: &TestDb, config: Config) -> Running {
        let (database, _) = db.database_as("towpath_router").await;
        let reach = Reach { local: true, networks: vec![] };
        let role = Role::new(database, Config { reach, ..config }).unwrap();
        Running::of(role, CancellationToken::new())
    }

    pub(crate) fn of(role: Role, shutdown: CancellationToken) -> Running {
        let task = Some(tokio::spawn(role.run(shutdown.clone())));
        Running { shutdown, task }
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        if let Some(task) = self.task.take() {
            tokio::time::timeout(WAIT_MAX, task).await.expect("it ends").unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The answer of one public function, written without its schema; it must not refuse.
pub(crate) async fn call(db: &TestDb, function: &str) -> Value {
    let answer = db.json(&format!("towpath.{function}")).await;
    assert_eq!(answer["ok"], true, "{function}: {answer}");
    answer
}

/// Waits until a query answers this text.
pub(crate) async fn until(db: &TestDb, sql: &str, wanted: &str) {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let text = db.text(sql).await;
        if text == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {text} never became {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A live webhook route `hook` for every event of the domain `d`, and its signing key.
pub(crate) async fn hook(db: &TestDb, url: &str, more: &str) -> String {
    call(db, &format!("fn_route_put('hook', 'webhook', '{{\"url\": \"{url}\"}}', 'd'{more})")).await;
    let key = call(db, "fn_route_secret_rotate('hook')").await["signing_key"].as_str().unwrap().to_owned();
    call(db, "fn_route_mode_set('hook', 'live', 'tester', 'a test')").await;
    key
}

/// A live route `jobs` that makes a job of every event of the domain `d`.
pub(crate) async fn jobs(db: &TestDb) {
    call(db, r#"fn_route_put('jobs', 'job', '{"job_kind": "k"}', 'd')"#).await;
    call(db, "fn_route_mode_set('jobs', 'live', 'tester', 'a test')").await;
}

pub(crate) async fn emit(db: &TestDb, count: u32) {
    let many = format!(
        "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
         'subject_ref', n::text)) from generate_series(1, {count}) n))"
    );
    assert_eq!(call(db, &many).await["emitted"], count);
}
