//! F03 to F06 with sessions on another server, whose streams fail one by one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use towpath_model::fanout::Limits;
use towpath_server::stream::{FanOutSettings, Settings};

use crate::server::{Server, session, settings};

/// How requests for one session fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// They are refused on the way.
    Refused,
    /// They arrive, and the answer is lost.
    AnswerLost,
}

/// A proxy between both servers that can fail requests.
#[derive(Clone)]
struct Between {
    there: String,
    faults: Arc<Mutex<HashMap<String, Fault>>>,
    /// The source to check messages against, and messages that were not in it.
    source: Arc<Mutex<Option<String>>>,
    late: Arc<Mutex<Vec<String>>>,
    posts: Arc<AtomicUsize>,
    http: reqwest::Client,
}

impl Between {
    /// Starts before a server; answers the proxy and its URL.
    async fn before(there: &Server) -> (Between, String) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let between = Between {
            there: there.url(""),
            faults: Arc::default(),
            source: Arc::default(),
            late: Arc::default(),
            posts: Arc::default(),
            http,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(hand_on).with_state(between.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (between, url)
    }

    /// From now on, a message that arrives must be in the source already.
    async fn look_for(&self, body: &[u8]) {
        let Some(source) = self.source.lock().unwrap().clone() else { return };
        let held: Value = self.http.get(source).send().await.unwrap().json().await.unwrap();
        let sent: Value = serde_json::from_slice(body).unwrap();
        self.posts.fetch_add(1, Ordering::SeqCst);
        if !held.as_array().unwrap().contains(&sent[0]) {
            self.late.lock().unwrap().push(sent.to_string());
        }
    }

    fn set(&self, number: u32, fault: Option<Fault>) {
        let mut faults = self.faults.lock().unwrap();
        match fault {
            Some(fault) => faults.insert(session(number), fault),
            None => faults.remove(&session(number)),
        };
    }
}

async fn hand_on(State(between): State<Between>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let fault = {
        let faults = between.faults.lock().unwrap();
        faults.iter().find(|(session, _)| path.ends_with(session.as_str())).map(|(_, fault)| *fault)
    };
    if fault == Some(Fault::Refused) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    if parts.method == Method::POST {
        between.look_for(&body).await;
    }
    let mut on = between.http.request(parts.method, format!("{}{path}", between.there)).body(body);
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != "host" && *name != "content-length")
    {
        on = on.header(name, value);
    }
    let answer = on.send().await.unwrap();
    if fault == Some(Fault::AnswerLost) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    response.headers_mut().remove("content-length");
    *response.body_mut() = Body::from(answer.bytes().await.unwrap());
    response
}

/// A server with its sessions on another one, and a proxy between them.
struct World {
    here: Server,
    there: Server,
    between: Between,
}

impl World {
    async fn open() -> World {
        World::with(FanOutSettings::default()).await
    }

    async fn with(settings_of_sessions: FanOutSettings) -> World {
        let there = Server::start().await;
        let (between, url) = Between::before(&there).await;
        let fan_out = FanOutSettings {
            sessions_url: Some(format!("{url}/v1/there/stream/{{project}}")),
            limits: Limits::REMOTE,
            ..settings_of_sessions
        };
        let here = Server::with(Settings { fan_out, ..settings() }).await;
        here.put("/v1/app/stream/room", "application/json", "").await;
        World { here, there, between }
    }

    async fn publish(&self, number: u64) -> [String; 4] {
        let (status, words) =
            self.here.publish("/v1/app/publish/room", "application/json", &number.to_string()).await;
        assert_eq!(status, 204, "a fan-out never fails a publish");
        words
    }

    fn path(number: u32) -> String {
        format!("/v1/there/stream/app/session:{}", session(number))
    }

    /// What the client of a session reads.
    async fn values(&self, number: u32) -> Value {
        self.there.get(&World::path(number)).await.json().await.unwrap_or_default()
    }

    async fn until(&self, number: u32, wanted: impl IntoIterator<Item = u64>) {
        let wanted: Value = wanted.into_iter().collect();
        self.here.until(async || self.values(number).await, |found| *found == wanted).await;
    }

    async fn subscribers(&self) -> Value {
        self.here.values("/v1/app/sources").await["sources"][0]["subscribers"].clone()
    }

    async fn stop(self) {
        self.here.stop().await;
        self.there.stop().await;
    }
}

/// F03, F05: the stream of one session answers errors. The others get everything at once. That one gets a
/// backlog, which survives a restart, and everything once and in order when its stream works again.
#[tokio::test]
async fn one_session_that_fails_keeps_nobody_waiting_and_misses_nothing() {
    let mut world = World::open().await;
    for number in 1..=3 {
        world.here.subscribe("app", &session(number), "room").await;
    }
    assert_eq!(world.publish(0).await, ["3", "3", "0", "inline"]);
    world.between.set(2, Some(Fault::Refused));
    assert_eq!(world.publish(1).await, ["3", "2", "1", "inline"], "one failed, and it is said");
    for n in 2..6 {
        assert_eq!(world.publish(n).await[1..], ["2", "0", "inline"], "it is aside; nobody waits for it");
    }
    for number in [1, 3] {
        assert_eq!(world.values(number).await, json!([0, 1, 2, 3, 4, 5]), "session {number}");
    }
    assert_eq!(world.values(2).await, json!([0]));
    // The backlog is durable, and another session joins meanwhile.
    world.here = world.here.restart().await;
    world.here.subscribe("app", &session(4), "room").await;
    world.publish(6).await;
    world.until(1, 0..7).await;
    world.until(4, [6]).await;
    assert_eq!(world.values(2).await, json!([0]));
    world.between.set(2, None);
    world.until(2, 0..7).await;
    world.here.until(async || world.publish(7).await, |words| words[1] == "4").await;
    let last = world.values(1).await;
    let last = last.as_array().unwrap().len() as u64;
    for (number, from) in [(1, 0), (2, 0), (3, 0), (4, 6)] {
        let found = world.values(number).await;
        let found: Vec<u64> = found.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(found.len() as u64, last - from, "session {number}: {found:?}");
        assert_eq!(found[..7 - from as usize], (from..7).collect::<Vec<u64>>(), "session {number}");
    }
    world.stop().await;
}

/// F02: the source is written first, and a failed fan-out never fails a publish: one session fails, its
/// answers are lost, all fail, the circuit is open, the other server is down.
#[tokio::test]
async fn a_publish_succeeds_whatever_becomes_of_its_fan_out() {
    let circuit = towpath_model::circuit::Limits { failures_max: 3, recovery: Duration::from_secs(3_600) };
    let world = World::with(FanOutSettings { circuit, ..FanOutSettings::default() }).await;
    for number in 1..=2 {
        world.here.subscribe("app", &session(number), "room").await;
    }
    *world.between.source.lock().unwrap() = Some(world.here.url("/v1/app/stream/room"));
    let mut sent = Vec::new();
    let mut modes = Vec::new();
    let mut publish = async |faults: [Option<Fault>; 2]| {
        world.between.set(1, faults[0]);
        world.between.set(2, faults[1]);
        let next = sent.len() as u64;
        modes.push(world.publish(next).await[3].clone());
        sent.push(next);
        assert_eq!(world.here.values("/v1/app/stream/room").await, json!(sent), "the source has it");
    };
    publish([None, None]).await;
    publish([Some(Fault::Refused), None]).await;
    publish([None, Some(Fault::AnswerLost)]).await;
    for _ in 0..6 {
        publish([Some(Fault::Refused), Some(Fault::Refused)]).await;
    }
    assert_eq!(modes[0], "inline");
    assert_eq!(modes[8], "circuit-open");
    let late = world.between.late.lock().unwrap().clone();
    assert_eq!(late, Vec::<String>::new(), "whatever arrived there was in the source before");
    assert!(world.between.posts.load(Ordering::SeqCst) >= 4, "and something arrived");
    world.there.stop().await;
    let (status, words) = world.here.publish("/v1/app/publish/room", "application/json", "9").await;
    assert_eq!((status, &*words[3]), (204, "circuit-open"));
    world.here.stop().await;
}

/// F12: a session on another server gets what was acknowledged while it followed, even if it leaves: at once,
/// while its stream fails, again after it came back, and across a restart.
#[tokio::test]
async fn who_leaves_gets_over_there_what_was_published_before() {
    let mut world = World::open().await;
    for number in 1..=2 {
        world.here.subscribe("app", &session(number), "room").await;
    }
    let leave = async |here: &Server, number: u32| {
        let pair = json!({ "sessionId": session(number), "streamId": "room" });
        let (_, answer) = here.json(Method::DELETE, "/v1/app/unsubscribe", pair).await;
        assert_eq!(answer["unsubscribed"], true);
    };
    world.publish(0).await;
    // It gets a backlog, and leaves.
    world.between.set(2, Some(Fault::Refused));
    world.publish(1).await;
    world.publish(2).await;
    leave(&world.here, 2).await;
    world.publish(3).await;
    // It comes back while it has a backlog, more is published, and it leaves again.
    let there = world.there.get(&World::path(2)).await.status();
    assert_eq!(there, 200);
    world.between.set(2, None);
    world.here.subscribe("app", &session(2), "room").await;
    world.between.set(2, Some(Fault::Refused));
    world.publish(4).await;
    leave(&world.here, 2).await;
    world.publish(5).await;
    world.here = world.here.restart().await;
    world.publish(6).await;
    world.between.set(2, None);
    world.until(2, [0, 1, 2, 4]).await;
    world.until(1, 0..=6).await;
    // All of them fail, so that everything waits in the source, and the last one leaves.
    for number in 1..=2 {
        world.between.set(number, Some(Fault::Refused));
    }
    for n in 7..=9 {
        world.publish(n).await;
    }
    leave(&world.here, 1).await;
    world.between.set(1, None);
    world.until(1, 0..=9).await;
    assert_eq!(world.values(2).await, json!([0, 1, 2, 4]));
    world.stop().await;
}

/// F12: a source with messages that sessions on another server have yet to get is deleted after they got them.
#[tokio::test]
async fn a_source_waits_for_sessions_over_there() {
    let world = World::open().await;
    world.here.subscribe("app", &session(1), "room").await;
    world.between.set(1, Some(Fault::Refused));
    world.publish(0).await;
    let delete = async || {
        let answer = world.here.request(Method::DELETE, "/v1/app/stream/room").send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(delete().await, 503);
    world.between.set(1, None);
    world.here.until(delete, |status| *status == 204).await;
    assert_eq!(world.values(1).await, json!([0]));
    world.stop().await;
}

/// F05: the answers for one session are lost: everything is sent again, and its stream has each message once.
#[tokio::test]
async fn a_lost_answer_makes_no_message_twice() {
    let world = World::open().await;
    for number in 1..=2 {
        world.here.subscribe("app", &session(number), "room").await;
    }
    world.publish(0).await;
    for round in 0..3 {
        world.between.set(2, Some(Fault::AnswerLost));
        for n in 1..=5 {
            world.publish(round * 5 + n).await;
        }
        // It is sent again and again, and is there each time.
        let arrived = round * 5 + 1;
        let has_first = |found: &Value| found.as_array().is_some_and(|found| found.len() as u64 > arrived);
        world.here.until(async || world.values(2).await, has_first).await;
        world.between.set(2, None);
        world.until(2, 0..=round * 5 + 5).await;
    }
    assert_eq!(world.values(1).await, world.values(2).await);
    world.stop().await;
}

/// F06: deleting the stream of a session on the other server ends that session and no other, even with a
/// backlog; a session of the same name then begins new.
#[tokio::test]
async fn a_stream_that_is_deleted_there_ends_its_session_alone() {
    let world = World::open().await;
    for number in 1..=3 {
        world.here.subscribe("app", &session(number), "room").await;
    }
    world.publish(0).await;
    let delete = async |number: u32| {
        let deleted = world.there.request(Method::DELETE, &World::path(number)).send().await.unwrap();
        assert_eq!(deleted.status(), 204);
    };
    delete(2).await;
    assert_eq!(world.publish(1).await[1..3], ["2", "0"], "gone is no failure");
    assert_eq!(world.subscribers().await, 2);
    // First a backlog, then deleted.
    world.between.set(3, Some(Fault::Refused));
    assert_eq!(world.publish(2).await[2], "1");
    delete(3).await;
    world.between.set(3, None);
    world.here.until(async || world.subscribers().await, |count| *count == 1).await;
    for number in [2, 3] {
        assert_eq!(world.here.get(&format!("/v1/app/session/{}", session(number))).await.status(), 404);
        world.here.subscribe("app", &session(number), "room").await;
    }
    assert_eq!(world.publish(3).await, ["3", "3", "0", "inline"]);
    world.until(1, 0..=3).await;
    world.until(2, [3]).await;
    world.until(3, [3]).await;
    world.stop().await;
}

/// F08: touching also renews the stream on the other server; without it both expire.
#[tokio::test]
async fn touching_keeps_the_stream_over_there() {
    let world = World::with(FanOutSettings { session_ttl_seconds: 2, ..FanOutSettings::default() }).await;
    world.here.subscribe("app", &session(1), "room").await;
    let there = async || {
        let head = world.there.request(Method::HEAD, &World::path(1)).send().await.unwrap();
        head.status().as_u16()
    };
    let began = Instant::now();
    let touch = async || {
        let path = format!("/v1/app/session/{}/touch", session(1));
        let (status, answer) = world.here.json(Method::POST, &path, json!(null)).await;
        assert_eq!((status, there().await), (200, 200), "after {:?}: {answer}", began.elapsed());
        began.elapsed()
    };
    world.here.until(touch, |lived| *lived > Duration::from_secs(5)).await;
    world.here.until(there, |status| *status == 404).await;
    let sources = async || world.here.values("/v1/app/sources").await["sources"].clone();
    world.here.until(sources, |sources| *sources == json!([])).await;
    world.stop().await;
}

/// F07: a failed registration leaves nothing on the other server; a session that existed before stays.
#[tokio::test]
async fn a_refused_session_leaves_nothing_over_there() {
    let world = World::open().await;
    world.here.put("/v1/app/stream/text", "text/plain", "").await;
    let subscribe = async |stream: &str| {
        let body = json!({ "sessionId": session(1), "streamId": stream, "envelope": true });
        world.here.json(Method::POST, "/v1/app/subscribe", body).await.0
    };
    let there = async || world.there.get(&World::path(1)).await.status().as_u16();
    assert_eq!((subscribe("text").await, there().await), (409, 404), "an envelope needs JSON");
    assert_eq!((subscribe("nowhere").await, there().await), (404, 404));
    assert_eq!((subscribe("room").await, there().await), (200, 200));
    assert_eq!((subscribe("text").await, there().await), (409, 200), "it has another type, and stays");
    world.stop().await;
}

/// F03, F04, F10: when every session fails, the circuit opens, and closes after a probe; all of it is counted,
/// and every message arrives late.
#[tokio::test]
async fn an_open_circuit_is_counted_and_closes() {
    let circuit = towpath_model::circuit::Limits { failures_max: 2, recovery: Duration::from_millis(300) };
    let world = World::with(FanOutSettings { circuit, ..FanOutSettings::default() }).await;
    for number in 1..=2 {
        world.here.subscribe("app", &session(number), "room").await;
        world.between.set(number, Some(Fault::Refused));
    }
    let count = AtomicU64::new(0);
    let publish = async || world.publish(count.fetch_add(1, Ordering::SeqCst)).await;
    world.here.until(publish, |words| words[3] == "circuit-open").await;
    let text = world.here.get("/metrics").await.text().await.unwrap();
    for line in [
        r#"towpath_fanout_total{event="fanout_circuit_open"} 1"#,
        r#"towpath_fanout_deliveries_total{outcome="failure"}"#,
        "towpath_fanout_open_circuits 1",
        "towpath_fanout_lagging_sources 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    for number in 1..=2 {
        world.between.set(number, None);
    }
    let total = count.into_inner();
    for number in 1..=2 {
        world.until(number, 0..total).await;
    }
    let open = async || world.here.get("/metrics").await.text().await.unwrap();
    world.here.until(open, |text| text.contains("towpath_fanout_open_circuits 0")).await;
    world.stop().await;
}
