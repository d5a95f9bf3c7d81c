//! Resend and Twilio as their documentation describes them, on a loopback port.
//!
//! Neither company lets a test run against its service, so this is a double, with the parts of
//! their contract that ours depends on: credentials, required fields, error bodies, and Resend's
//! idempotency keys (the same key and body: the first answer again; the same key and another
//! body: 409; a key whose first request is still running: 409). Twilio honours none.
//!
//! The recipient decides the response: an e-mail address by its first name (`once`: 429 the
//! first time; `broken`: 500 the first time; `never`: 422), a number by its last digits (429, 503
//! and 500: that status the first time; 211: an invalid number).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Form, Json, Router};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait::within;

/// The API key that Resend expects.
pub const RESEND_KEY: &str = "re_towpath_test_key";
/// The Twilio account.
pub const TWILIO_ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
/// The secret of the Twilio account.
pub const TWILIO_SECRET: &str = "twilio_towpath_test_secret";

/// One request as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The recipient.
    pub to: String,
    /// The idempotency key.
    pub key: String,
    /// The body.
    pub body: Value,
}

/// The running double. Dropping it stops it.
pub struct Provider {
    address: SocketAddr,
    state: Shared,
    task: JoinHandle<()>,
}

type Shared = Arc<Inner>;

#[derive(Default)]
struct Inner {
    seen: Mutex<Seen>,
    /// Requests processed so far; tests wait for it.
    carried_out: watch::Sender<usize>,
    /// While true, requests are processed and get no response.
    hold: watch::Sender<bool>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    delivered: Vec<Request>,
    /// Resend's idempotency keys: the body of the first request, and the id in its response once it was sent.
    keys: HashMap<String, (Value, Option<String>)>,
    times: HashMap<String, usize>,
}

impl Provider {
    /// Starts one.
    pub async fn start() -> Provider {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Shared::default();
        let router = Router::new()
            .route("/emails", post(resend))
            .route("/2010-04-01/Accounts/{account}/Messages.json", post(twilio))
            .with_state(state.clone());
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Provider { address, state, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its APIs.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request for a recipient, whatever the response.
    pub fn requests(&self, to: &str) -> Vec<Request> {
        let seen = self.state.seen.lock().expect("no handler panics");
        seen.requests.iter().filter(|request| request.to == to).cloned().collect()
    }

    /// The messages delivered to a recipient.
    pub fn delivered(&self, to: &str) -> Vec<Request> {
        let seen = self.state.seen.lock().expect("no handler panics");
        seen.delivered.iter().filter(|request| request.to == to).cloned().collect()
    }

    /// From now on requests are processed and get no response, until `release`.
    pub fn hold(&self) {
        self.state.hold.send_replace(true);
    }

    /// Sends the responses that were held back.
    pub fn release(&self) {
        self.state.hold.send_replace(false);
    }

    /// Waits until `wanted` requests have been processed since the start.
    pub async fn until_carried_out(&self, wanted: usize) {
        let mut carried_out = self.state.carried_out.subscribe();
        let what = format!("{wanted} requests carried out");
        within(what, carried_out.wait_for(|count| *count >= wanted)).await.expect("the provider runs");
    }

    /// Requests processed since the start.
    pub fn carried_out(&self) -> usize {
        *self.state.carried_out.borrow()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    /// Counts a request, and the requests for its recipient.
    fn count(&self, request: &Request) -> usize {
        let mut seen = self.seen.lock().expect("no handler panics");
        seen.requests.push(request.clone());
        let times = seen.times.entry(request.to.clone()).or_default();
        *times += 1;
        *times
    }

    /// Delivers, and waits while responses are held back.
    async fn deliver(&self, request: Request) {
        self.seen.lock().expect("no handler panics").delivered.push(request);
        self.answered().await;
    }

    async fn answered(&self) {
        self.carried_out.send_modify(|count| *count += 1);
        let _ = self.hold.subscribe().wait_for(|hold| !hold).await;
    }
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn refuse(status: u16, headers: &[(&'static str, &'static str)], body: Value) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    let mut response = (status, Json(body)).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    response
}

fn resend_error(status: u16, name: &str, message: &str) -> Response {
    let headers: &[_] = if status == 429 { &[("retry-after", "1")] } else { &[] };
    refuse(status, headers, json!({ "statusCode": status, "name": name, "message": message }))
}

async fn resend(State(state): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    if header(&headers, "authorization") != format!("Bearer {RESEND_KEY}") {
        return resend_error(403, "invalid_api_key", "API key is invalid");
    }
    let to = body["to"][0].as_str().unwrap_or_default().to_owned();
    let key = header(&headers, "idempotency-key");
    let request = Request { to: to.clone(), key: key.clone(), body: body.clone() };
    let times = state.count(&request);
    for field in ["from", "to", "subject"] {
        if body[field].is_null() {
            return resend_error(422, "missing_required_field", &format!("Missing `{field}` field"));
        }
    }
    match (to.split(['@', '+']).next().unwrap_or_default(), times) {
        ("once", 1) => return resend_error(429, "rate_limit_exceeded", "Too many requests"),
        ("broken", 1) => return resend_error(500, "internal_server_error", "An unexpected error occurred"),
        ("never", _) => return resend_error(422, "validation_error", "Invalid `to` field"),
        _ => {}
    }
    if key.is_empty() || key.len() > 256 {
        return resend_error(400, "invalid_idempotency_key", "The key must be between 1-256 chars");
    }
    let known = state.seen.lock().expect("no handler panics").keys.get(&key).cloned();
    let id = match known {
        Some((before, _)) if before != body => {
            return resend_error(409, "invalid_idempotent_request", "Same key, different payload");
        }
        Some((_, None)) => {
            return resend_error(409, "concurrent_idempotent_requests", "The request is in progress");
        }
        Some((_, Some(id))) => {
            state.answered().await;
            id
        }
        None => {
            let id = uuid::Uuid::now_v7().to_string();
            // A real service answers the first request after it has stored the key; while ours
            // holds the answer back, the work is done, so a second request gets the same answer.
            state.seen.lock().expect("no handler panics").keys.insert(key, (body, Some(id.clone())));
            state.deliver(request).await;
            id
        }
    };
    Json(json!({ "id": id })).into_response()
}

fn twilio_error(status: u16, code: u32, message: &str) -> Response {
    let body = json!({
        "code": code, "message": message, "status": status,
        "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
    });
    refuse(status, &[], body)
}

async fn twilio(
    State(state): State<Shared>,
    Path(account): Path<String>,
    headers: HeaderMap,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    use base64::Engine;
    let login = format!("{TWILIO_ACCOUNT}:{TWILIO_SECRET}");
    let login = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login));
    if account != TWILIO_ACCOUNT || header(&headers, "authorization") != login {
        return twilio_error(401, 20003, "Authenticate");
    }
    let to = form.get("To").cloned().unwrap_or_default();
    let key = header(&headers, "i-twilio-idempotency-token");
    let request = Request { to: to.clone(), key, body: json!(form) };
    let times = state.count(&request);
    if form.get("From").or(form.get("MessagingServiceSid")).is_none() {
        return twilio_error(400, 21603, "A 'From' phone number is required.");
    }
    match (&to[to.len().saturating_sub(3)..], times) {
        ("429", 1) => return twilio_error(429, 20429, "Too Many Requests"),
        ("503", 1) => return twilio_error(503, 20503, "Service unavailable"),
        ("500", 1) => {
            state.deliver(request).await;
            return twilio_error(500, 20500, "Internal Server Error");
        }
        ("211", _) => return twilio_error(400, 21211, "The 'To' number is not a valid phone number."),
        _ => {}
    }
    let sid = format!("SM{}", uuid::Uuid::now_v7().simple());
    state.deliver(request).await;
    (StatusCode::CREATED, Json(json!({ "sid": sid, "status": "queued" }))).into_response()
}
