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
use towpath_server::stream::{FanOutSettings, Settings};

use crate::kit::{Server, session, settings};

/// How requests about one session go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// They are refused before they get there.
    Refused,
    /// They get there, and the answer is lost.
    AnswerLost,
}

/// What stands between both servers: hands requests on, except where it was told not to.
#[derive(Clone)]
struct Between {
    there: String,
    faults: Arc<Mutex<HashMap<String, Fault>>>,
    /// Where the source is, if what arrives is to be looked for in it; and what was not there.
    source: Arc<Mutex<Option<String>>>,
    late: Arc<Mutex<Vec<String>>>,
    posts: Arc<AtomicUsize>,
    http: reqwest::Client,
}

impl Between {
    /// Begins to stand before a server; answers itself and where it is.
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

    /// A message that arrives must be in the source by then.
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

/// A server whose sessions live on another one, with something between them.
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

/// F03, F05: the stream of one session answers errors. The others have everything at once, the one is put
/// aside, over a restart too, and has everything, once and in order, when its stream works again.
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
    // What is aside is kept durably, and a late joiner comes in meanwhile.
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

/// F02: the source is written first, and what becomes of the fan-out never fails a publish: one session fails,
/// its answers are lost, all fail, the circuit is open, nobody is there at all.
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

/// F12: what was acknowledged while a session followed reaches it over there though it leaves: at once, while
/// its stream fails, again after it came back, and over a restart.
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
    // It is put aside, and leaves.
    world.between.set(2, Some(Fault::Refused));
    world.publish(1).await;
    world.publish(2).await;
    leave(&world.here, 2).await;
    world.publish(3).await;
    // It comes back while it is still behind, hears of more, and leaves again.
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

/// F12: a source with messages that sessions over there have not got yet is deleted once they have.
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

/// F05: the answers about one session are lost on the way: everything is sent to it again, and its stream
/// takes each message once.
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
        // It is tried again and again, and each time it has arrived.
        let arrived = round * 5 + 1;
        let has_first = |found: &Value| found.as_array().is_some_and(|found| found.len() as u64 > arrived);
        world.here.until(async || world.values(2).await, has_first).await;
        world.between.set(2, None);
        world.until(2, 0..=round * 5 + 5).await;
    }
    assert_eq!(world.values(1).await, world.values(2).await);
    world.stop().await;
}

/// F06: a stream that is deleted there takes its session along, while it is aside too, and nobody else; who
/// comes back under the same name begins anew.
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
    // Aside first, then deleted.
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

/// F08: touching renews the stream over there too, which nobody reads; without it both end.
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

/// F07: what cannot be registered leaves nothing over there; a session that was there before stays.
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

/// F03, F04, F10: with every session failing the circuit opens, and closes after a probe; all of it is
/// counted, and everything arrives late.
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
