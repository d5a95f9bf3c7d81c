//! A server between a worker and Towpath that meddles: what it does with a job's calls stands in the job's payload.
//!
//! - `cancel_at: VERB`: the job is cancelled just before that call reaches Towpath.
//! - `extend_fails: true`: its first `extend` is answered with 500, and its `progress` is held back until a later
//!   one has gone through.
//! - `hold: true`: its `progress` is held back until the test lets it go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_db::{Attribution, Database};
use towpath_testkit::wait::within;

/// The running meddler. Ends with the value.
pub(crate) struct Meddler {
    pub(crate) url: String,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    upstream: String,
    database: Database,
    http: reqwest::Client,
    payloads: Mutex<HashMap<String, Value>>,
    /// Every call that was let through: verb, body, answer.
    calls: Mutex<Vec<(String, Value, Value)>>,
    /// How often an extension was refused here, and how often one went through afterwards.
    extends: watch::Sender<(usize, usize)>,
    /// Whether a `progress` is held back, and whether it may go.
    hold: watch::Sender<(bool, bool)>,
}

impl Meddler {
    pub(crate) async fn start(upstream: String, database: Database) -> Meddler {
        let inner = Arc::new(Inner {
            upstream,
            database,
            http: reqwest::Client::new(),
            payloads: Mutex::default(),
            calls: Mutex::default(),
            extends: watch::Sender::default(),
            hold: watch::Sender::default(),
        });
        let app = Router::new().route("/api/v1/jobs/{verb}", post(pass)).with_state(inner.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Meddler { url, inner, task }
    }

    /// The bodies and answers of all calls of one verb that went through.
    pub(crate) fn calls(&self, verb: &str) -> Vec<(Value, Value)> {
        let calls = self.inner.calls.lock().unwrap();
        calls.iter().filter(|call| call.0 == verb).map(|call| (call.1.clone(), call.2.clone())).collect()
    }

    /// Waits until a job is held back.
    pub(crate) async fn wait_held(&self) {
        let mut hold = self.inner.hold.subscribe();
        within("a job that is held back", hold.wait_for(|hold| hold.0)).await.unwrap();
    }

    pub(crate) fn let_go(&self) {
        self.inner.hold.send_modify(|hold| hold.1 = true);
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    State(inner): State<Arc<Inner>>,
    Path(verb): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let sent: Value = serde_json::from_slice(&body).unwrap();
    let payload = inner.meddle(&verb, &sent).await;
    if verb == "extend" && payload["extend_fails"] == true {
        let first = inner.extends.send_if_modified(|(refused, _)| std::mem::replace(refused, 1) == 0);
        if first {
            return (
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({"error": "internal", "detail": "x"}).to_string(),
            );
        }
    }
    let mut request = inner.http.post(format!("{}/api/v1/jobs/{verb}", inner.upstream)).body(body);
    for name in ["authorization", "towpath-worker"] {
        request = request.header(name, headers[name].clone());
    }
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    inner.note(&verb, sent, serde_json::from_str(&text).unwrap(), status.is_success());
    (status, text)
}

impl Inner {
    /// Does what the payloads of the named jobs ask for. Answers that of the one job, if it is one.
    async fn meddle(&self, verb: &str, sent: &Value) -> Value {
        let one = sent["job_id"].as_str().map(str::to_owned);
        let many = sent["jobs"].as_array().into_iter().flatten().filter_map(|job| job["job_id"].as_str());
        let ids: Vec<String> = one.clone().into_iter().chain(many.map(str::to_owned)).collect();
        let payload = |id: &String| self.payloads.lock().unwrap().get(id).cloned().unwrap_or(Value::Null);
        for id in &ids {
            if payload(id)["cancel_at"] == verb {
                let by = Attribution { actor: "tester", reason: "meddling" };
                self.database.job_cancel(id.parse().unwrap(), by).await.unwrap();
            }
        }
        let payload = one.as_ref().map_or(Value::Null, payload);
        if verb == "progress" && payload["extend_fails"] == true {
            let mut extends = self.extends.subscribe();
            let later = extends.wait_for(|(refused, passed)| *refused > 0 && *passed > 0);
            within("an extend that passes again", later).await.unwrap();
        }
        if verb == "progress" && payload["hold"] == true {
            let mut hold = self.hold.subscribe();
            self.hold.send_modify(|hold| hold.0 = true);
            within("the end of the hold", hold.wait_for(|hold| hold.1)).await.unwrap();
        }
        payload
    }

    fn note(&self, verb: &str, sent: Value, answer: Value, went_well: bool) {
        for job in answer["jobs"].as_array().into_iter().flatten().filter(|_| verb == "claim") {
            let id = job["job_id"].as_str().unwrap().to_owned();
            self.payloads.lock().unwrap().insert(id, job["payload_json"].clone());
        }
        let id = sent["job_id"].as_str().unwrap_or_default();
        let fails =
            self.payloads.lock().unwrap().get(id).is_some_and(|payload| payload["extend_fails"] == true);
        if verb == "extend" && went_well && fails {
            self.extends.send_modify(|(refused, passed)| *passed += usize::from(*refused > 0));
        }
        self.calls.lock().unwrap().push((verb.to_owned(), sent, answer));
    }
}
