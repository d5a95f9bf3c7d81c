//! The ten defects of the original design of sessions, one test each.

use reqwest::Method;
use serde_json::{Value, json};
use towpath_model::fanout::Limits;
use towpath_server::stream::{FanOutSettings, Settings};

use crate::project::{Bound, register};
use crate::server::{Server, session, settings};

async fn room(server: &Server) {
    server.put("/v1/app/stream/room", "application/json", "").await;
}

fn stream(number: u32) -> String {
    format!("/v1/app/stream/session:{}", session(number))
}

/// 1 (F05): one sequence for all sessions refused every session that joined late or missed a message.
#[tokio::test]
async fn defect_1_a_late_joiner_is_not_refused() {
    let server = Server::start().await;
    room(&server).await;
    server.publish("/v1/app/publish/room", "application/json", "1").await;
    server.subscribe("app", &session(1), "room").await;
    server.publish("/v1/app/publish/room", "application/json", "2").await;
    server.subscribe("app", &session(2), "room").await;
    let pair = json!({ "sessionId": session(1), "streamId": "room" });
    server.json(Method::DELETE, "/v1/app/unsubscribe", pair).await;
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "3").await;
    assert_eq!((&*words[0], &*words[1]), ("1", "1"));
    server.subscribe("app", &session(1), "room").await;
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "4").await;
    assert_eq!((&*words[1], &*words[2]), ("2", "0"));
    assert_eq!(
        server.values(&stream(1)).await,
        json!([2, 4]),
        "exactly what was published while it followed"
    );
    assert_eq!(server.values(&stream(2)).await, json!([3, 4]));
    server.stop().await;
}

/// 2 (F03): queued messages were lost with the process; here they are lag, across a restart.
#[tokio::test]
async fn defect_2_nothing_is_lost_between_the_source_and_the_sessions() {
    // The worker delivers, and a stop may interrupt it.
    let limits = Limits { queue_threshold: 0, queue: true, inline_max: 0 };
    let fan_out = FanOutSettings { limits, ..FanOutSettings::default() };
    let mut server = Server::with(Settings { fan_out, ..settings() }).await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    for round in 0..5 {
        for n in 0..10 {
            let text = (round * 10 + n).to_string();
            let (_, words) = server.publish("/v1/app/publish/room", "application/json", &text).await;
            assert_eq!(words[3], "queued");
        }
        server = server.restart().await;
    }
    let all: Value = (0..50).collect();
    server.until(async || server.values(&stream(1)).await, |found| *found == all).await;
    server.stop().await;
}

/// 3 (F08): touching did nothing, and claimed JSON.
#[tokio::test]
async fn defect_3_touching_extends_a_session_of_any_type() {
    let server = Server::start().await;
    server.put("/v1/app/stream/room", "text/plain", "").await;
    let first = server.subscribe("app", &session(1), "room").await["expiresAt"].as_i64().unwrap();
    let touch = async || {
        let path = format!("/v1/app/session/{}/touch", session(1));
        let (status, body) = server.json(Method::POST, &path, json!(null)).await;
        assert_eq!(status, 200);
        body["expiresAt"].as_i64().unwrap()
    };
    server.until(touch, |expires| *expires > first).await;
    let head = server.request(Method::HEAD, &stream(1)).send().await.unwrap();
    assert_eq!(head.headers()["content-type"], "text/plain");
    server.stop().await;
}

/// 4 (F06, F08): deleting a session left its subscriptions behind.
#[tokio::test]
async fn defect_4_deleting_a_session_removes_its_subscriptions() {
    let server = Server::start().await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    server.subscribe("app", &session(2), "room").await;
    server.json(Method::DELETE, &format!("/v1/app/session/{}", session(1)), json!(null)).await;
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "1").await;
    assert_eq!((&*words[0], &*words[2]), ("1", "0"), "counted at once, and no failure");
    // Deleting its stream is the same.
    server.request(Method::DELETE, &stream(2)).send().await.unwrap();
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "2").await;
    assert_eq!(words[0], "0");
    server.stop().await;
}

/// 5: messages of two sources in one session could not be distinguished.
#[tokio::test]
async fn defect_5_sources_can_be_distinguished() {
    let server = Server::start().await;
    for stream in ["a", "b"] {
        server.put(&format!("/v1/app/stream/{stream}"), "application/json", "").await;
        let pair = json!({ "sessionId": session(1), "streamId": stream, "envelope": true });
        assert_eq!(server.json(Method::POST, "/v1/app/subscribe", pair).await.0, 200);
        server.publish(&format!("/v1/app/publish/{stream}"), "application/json", r#""hi""#).await;
    }
    let found = server.values(&stream(1)).await;
    assert_eq!((&found[0]["stream"], &found[1]["stream"]), (&json!("a"), &json!("b")));
    assert_eq!(found[0]["offset"].as_str().unwrap().len(), 33, "each with its offset in its source");
    server.stop().await;
}

/// 6 (F09): sessions and sources shared one namespace, so that one could write into the other.
#[tokio::test]
async fn defect_6_nobody_writes_into_a_session() {
    let server = Server::start().await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    let own = format!("session:{}", session(1));
    assert_eq!(server.publish(&format!("/v1/app/publish/{own}"), "application/json", "1").await.0, 400);
    assert_eq!(server.post(&stream(1), "application/json", "1").await.status(), 403);
    let batch = json!({ "appends": [{ "stream": own, "json": 1 }] });
    let (_, answer) = server.json(Method::POST, "/v1/app/streams", batch).await;
    assert_eq!(answer["results"][0]["status"], 403);
    let pair = json!({ "sessionId": session(2), "streamId": own });
    assert_eq!(server.json(Method::POST, "/v1/app/subscribe", pair).await.0, 400);
    assert_eq!(server.values(&stream(1)).await, json!([]));
    server.stop().await;
}

/// 6 (F01): a stream with the name of a session would keep that session from being created. Neither a creation
/// nor a fork can have such a name, however it is spelled.
#[tokio::test]
async fn defect_6_no_stream_takes_the_name_of_a_session() {
    let server = Server::start().await;
    room(&server).await;
    let id = session(1);
    for path in [
        stream(1),
        format!("/v1/app/stream/session%3A{id}"),
        format!("/v1/app/stream/session:{}", id.to_uppercase()),
        format!("/v1/stream/session:{id}"),
    ] {
        let refused = server.put(&path, "application/json", "").await;
        assert_eq!(refused.status(), 409, "{path}");
        let why: Value = refused.json().await.unwrap();
        assert!(why["detail"].as_str().unwrap().contains("choose another name"), "{why}");
        let fork = server.request(Method::PUT, &path).header("stream-forked-from", "/v1/app/stream/room");
        assert_eq!(fork.send().await.unwrap().status(), 409, "{path}");
        assert_eq!(server.get(&path).await.status(), 404, "{path}");
    }
    assert_eq!(server.subscribe("app", &id, "room").await["isNewSession"], true);
    assert_eq!(server.put(&stream(1), "application/json", "").await.status(), 409);
    server.publish("/v1/app/publish/room", "application/json", "1").await;
    assert_eq!(server.values(&stream(1)).await, json!([1]));
    assert_eq!(server.put("/v1/app/stream/session:notes", "application/json", "").await.status(), 201);
    server.stop().await;
}

/// 7 (F09): any token of a project could read and change any session, and writes ignored its scope.
#[tokio::test]
async fn defect_7_a_bound_token_reaches_its_own_session_alone() {
    let server = Server::start().await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    server.subscribe("app", &session(2), "room").await;
    let keys = register(&server, "app").await;
    let token = keys.token("write", &Bound { session: Some(session(1)), ..Bound::default() });
    let ask = async |method: Method, path: String| {
        server.request(method, &path).bearer_auth(&token).send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask(Method::GET, stream(1)).await, 200);
    assert_eq!(ask(Method::GET, stream(2)).await, 403);
    assert_eq!(ask(Method::DELETE, stream(2)).await, 403);
    assert_eq!(ask(Method::GET, "/v1/app/stream/room".into()).await, 403);
    assert_eq!(ask(Method::POST, "/v1/app/publish/room".into()).await, 403);
    assert_eq!(ask(Method::DELETE, format!("/v1/app/session/{}", session(2))).await, 403);
    assert_eq!(ask(Method::DELETE, format!("/v1/app/session/{}", session(1))).await, 200);
    server.stop().await;
}

/// 8 (F08): expired sessions were found by a query to an analytics service; see also
/// `sessions_end_when_nobody_uses_them`. Here the store knows them, even after a restart.
#[tokio::test]
async fn defect_8_the_store_knows_what_has_expired() {
    let fan_out = FanOutSettings { session_ttl_seconds: 1, ..FanOutSettings::default() };
    let server = Server::with(Settings { fan_out, ..settings() }).await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    let server = server.restart().await;
    let subscribers =
        async || server.publish("/v1/app/publish/room", "application/json", "1").await.1[0].clone();
    server.until(subscribers, |count| count == "0").await;
    server.stop().await;
}

/// 9 (F02): an append to the source bypassed the fan-out.
#[tokio::test]
async fn defect_9_no_way_of_writing_goes_past_the_fan_out() {
    let server = Server::start().await;
    room(&server).await;
    server.subscribe("app", &session(1), "room").await;
    let (status, words) = server.publish("/v1/app/stream/room", "application/json", "1").await;
    assert_eq!((status, words.each_ref().map(String::as_str)), (204, ["1", "1", "0", "inline"]));
    let batch = json!({ "appends": [{ "stream": "room", "json": 2 }] });
    assert_eq!(server.json(Method::POST, "/v1/app/streams", batch).await.0, 200);
    let closing = server.request(Method::POST, "/v1/app/stream/room").header("stream-closed", "true");
    let closing = closing.header("content-type", "application/json").body("3").send().await.unwrap();
    assert_eq!(closing.status(), 204);
    server.until(async || server.values(&stream(1)).await, |found| *found == json!([1, 2, 3])).await;
    server.stop().await;
}

/// 10: routes were matched by parts of their path, which allowed requests that should be refused.
#[tokio::test]
async fn defect_10_routes_are_exact() {
    let server = Server::start().await;
    room(&server).await;
    register(&server, "app").await;
    for path in [
        "/v1/app/stream/health",
        "/v1/app/stream/x?/health",
        "/v1/app/session/health",
        "/v1/app/stream/__ds/subscriptions/x/callback/../y",
        "/v1/app/stream/__ds/subscriptions/jwks.json",
        "/v1/app/sources",
        "/v1/app/streams",
        "/v1/%61pp/stream/room",
    ] {
        assert_eq!(server.get(path).await.status(), 401, "{path}");
    }
    for path in ["/v1/app/xsubscribe", "/v1/app/subscribe/x", "/v1/app//publish/room", "/v1/app/health"] {
        let status = server.get(path).await.status();
        assert_eq!(status, 404, "{path}");
    }
    server.stop().await;
}
