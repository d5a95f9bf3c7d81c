//! F01 to F08, F10: the HTTP routes of sessions, over a real connection and a real store.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use towpath_model::fanout::Limits;
use towpath_server::stream::{FanOutSettings, Settings};

use crate::server::{Server, header, session, settings};

fn limited(limits: Limits) -> Settings {
    Settings { fan_out: FanOutSettings { limits, ..FanOutSettings::default() }, ..settings() }
}

/// F01: the seven routes, their bodies and headers.
#[tokio::test]
async fn the_seven_routes() {
    let server = Server::start().await;
    let id = session(1);
    server.put("/v1/app/stream/room", "application/json", "[0]").await;
    let first = server.subscribe("app", &id, "room").await;
    assert_eq!(first["sessionId"], id);
    assert_eq!(first["streamId"], "room");
    assert_eq!(first["sessionStreamPath"], format!("/v1/app/stream/session:{id}"));
    assert_eq!(first["isNewSession"], true);
    assert!(first["expiresAt"].as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!(server.subscribe("app", &id, "room").await["isNewSession"], false, "it is there already");

    let (status, words) = server.publish("/v1/app/publish/room", "application/json", "[1,2]").await;
    assert_eq!((status, words.each_ref().map(String::as_str)), (204, ["1", "1", "0", "inline"]));
    let path = first["sessionStreamPath"].as_str().unwrap();
    assert_eq!(server.values(path).await, json!([1, 2]), "nothing from before, everything since");

    let (status, shown) = server.json(Method::GET, &format!("/v1/app/session/{id}"), json!(null)).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["subscriptions"][0]["streamId"], "room");
    let (status, touched) =
        server.json(Method::POST, &format!("/v1/app/session/{id}/touch"), json!(null)).await;
    assert_eq!((status, &touched["sessionId"]), (200, &json!(id)));
    assert!(touched["expiresAt"].as_i64() >= first["expiresAt"].as_i64());

    let pair = json!({ "sessionId": id, "streamId": "room" });
    let (status, gone) = server.json(Method::DELETE, "/v1/app/unsubscribe", pair.clone()).await;
    assert_eq!((status, &gone["unsubscribed"]), (200, &json!(true)));
    assert_eq!(server.json(Method::DELETE, "/v1/app/unsubscribe", pair).await.1["unsubscribed"], false);
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "3").await;
    assert_eq!(words[0], "0");
    assert_eq!(server.values(path).await, json!([1, 2]), "what was delivered stays");

    let (status, deleted) = server.json(Method::DELETE, &format!("/v1/app/session/{id}"), json!(null)).await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    assert_eq!(server.get(path).await.status(), 404);
    assert_eq!(server.get(&format!("/v1/app/session/{id}")).await.status(), 404);
    assert_eq!(server.get("/health").await.status(), 200);
    server.stop().await;
}

/// F01: invalid ids and wrong methods are refused before anything happens.
#[tokio::test]
async fn bad_requests_are_refused() {
    let server = Server::start().await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    let subscribe = async |body: Value| server.json(Method::POST, "/v1/app/subscribe", body).await.0;
    let id = session(1);
    assert_eq!(subscribe(json!({ "sessionId": "user-alice", "streamId": "room" })).await, 400);
    assert_eq!(subscribe(json!({ "sessionId": id, "streamId": "a/b" })).await, 400);
    assert_eq!(subscribe(json!({ "sessionId": id, "streamId": format!("session:{id}") })).await, 400);
    assert_eq!(subscribe(json!({ "sessionId": id })).await, 400);
    assert_eq!(subscribe(json!({ "sessionId": id, "streamId": "room", "x": 1 })).await, 400);
    assert_eq!(subscribe(json!({ "sessionId": id, "streamId": "nowhere" })).await, 404);
    let app = |path: &str| format!("/v1/app/{path}");
    for (method, path, status) in [
        (Method::GET, app("subscribe"), 405),
        (Method::POST, app("unsubscribe"), 405),
        (Method::PUT, app("publish/room"), 405),
        (Method::POST, app(&format!("session/{id}")), 405),
        (Method::POST, app("publish/a%2Fb"), 400),
        (Method::POST, app(&format!("publish/session:{id}")), 400),
        (Method::GET, app("session/x"), 400),
        (Method::GET, app(&format!("session/{id}")), 404),
        (Method::POST, app(&format!("session/{id}/touch")), 404),
        (Method::DELETE, app(&format!("session/{id}")), 404),
        (Method::POST, "/v1/a.b/publish/room".into(), 400),
    ] {
        let answer = server.request(method.clone(), &path).body("x").send().await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
    }
    assert_eq!(server.publish("/v1/app/publish/nowhere", "application/json", "1").await.0, 404);
    let (status, why) = server.json(Method::GET, "/v1/app/session/x", json!(null)).await;
    assert!(status == 400 && why["detail"].as_str().unwrap().contains("UUID"), "{why}");
    server.stop().await;
}

/// F07: subscribing again, to the same stream or another one, renews the session and answers its new end,
/// which is also what the session shows.
#[tokio::test]
async fn subscribing_again_touches_the_session_and_says_so() {
    let server = Server::start().await;
    let id = session(1);
    for stream in ["room", "hall"] {
        server.put(&format!("/v1/app/stream/{stream}"), "application/json", "").await;
    }
    let mut before = server.subscribe("app", &id, "room").await["expiresAt"].as_i64().unwrap();
    for stream in ["room", "hall", "hall"] {
        let again = async || {
            let answer = server.subscribe("app", &id, stream).await;
            assert_eq!(answer["isNewSession"], false);
            let (_, shown) = server.json(Method::GET, &format!("/v1/app/session/{id}"), json!(null)).await;
            assert_eq!(answer["expiresAt"], shown["expiresAt"]);
            answer["expiresAt"].as_i64().unwrap()
        };
        // The clock has milliseconds: the first answer may come in the same one.
        before = server.until(again, |now| *now > before).await;
    }
    server.stop().await;
}

/// F12: a message that was acknowledged as queued reaches a session that unsubscribes at once, 200 times of
/// 200, with and without envelopes, in order; a restart changes nothing.
#[tokio::test]
async fn a_queued_message_reaches_who_unsubscribes() {
    let server = Server::with(limited(Limits { queue_threshold: 0, queue: true, inline_max: 1000 })).await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    let subscribe = async |number: u32| {
        let body = json!({ "sessionId": session(number), "streamId": "room", "envelope": number == 2 });
        assert_eq!(server.json(Method::POST, "/v1/app/subscribe", body).await.0, 200);
    };
    for n in 0..200 {
        subscribe(1).await;
        subscribe(2).await;
        let (status, words) =
            server.publish("/v1/app/publish/room", "application/json", &n.to_string()).await;
        assert_eq!((status, &*words[3]), (204, "queued"));
        for number in [1, 2] {
            let pair = json!({ "sessionId": session(number), "streamId": "room" });
            let (_, answer) = server.json(Method::DELETE, "/v1/app/unsubscribe", pair).await;
            assert_eq!(answer["unsubscribed"], true);
        }
    }
    let server = server.restart().await;
    let all: Value = (0..200).collect();
    assert_eq!(server.values(&format!("/v1/app/stream/session:{}", session(1))).await, all);
    let wrapped = server.values(&format!("/v1/app/stream/session:{}", session(2))).await;
    let data: Vec<&Value> = wrapped.as_array().unwrap().iter().map(|one| &one["data"]).collect();
    assert_eq!(json!(data), all);
    server.stop().await;
}

/// F12: a deleted source first delivers what was acknowledged.
#[tokio::test]
async fn a_queued_message_outlives_its_source() {
    let server = Server::with(limited(Limits { queue_threshold: 0, queue: true, inline_max: 1000 })).await;
    for n in 0..50 {
        server.put("/v1/app/stream/room", "application/json", "").await;
        server.subscribe("app", &session(1), "room").await;
        let (_, words) = server.publish("/v1/app/publish/room", "application/json", &n.to_string()).await;
        assert_eq!(words[3], "queued");
        let deleted = server.request(Method::DELETE, "/v1/app/stream/room").send().await.unwrap();
        assert_eq!(deleted.status(), 204);
    }
    let all: Value = (0..50).collect();
    assert_eq!(server.values(&format!("/v1/app/stream/session:{}", session(1))).await, all);
    server.stop().await;
}

/// F03: above the threshold the worker delivers, from the source's cursor; nothing is missing.
#[tokio::test]
async fn above_the_threshold_the_worker_delivers() {
    let server = Server::with(limited(Limits { queue_threshold: 2, queue: true, inline_max: 1000 })).await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    for number in 0..3 {
        server.subscribe("app", &session(number), "room").await;
    }
    for n in 0..20 {
        let (status, words) =
            server.publish("/v1/app/publish/room", "application/json", &n.to_string()).await;
        assert_eq!((status, &*words[0], &*words[1], &*words[3]), (204, "3", "0", "queued"));
    }
    let all: Value = (0..20).collect();
    for number in 0..3 {
        let path = format!("/v1/app/stream/session:{}", session(number));
        server.until(async || server.values(&path).await, |found| *found == all).await;
    }
    let sources = async || server.values("/v1/app/sources").await;
    server.until(sources, |found| found["sources"][0]["lagBytes"] == 0).await;
    server.stop().await;
}

/// F03, F11: by default a publish delivers to any number of sessions of the same store, in its own commit.
#[tokio::test]
async fn sessions_here_have_no_limit_by_default() {
    const MANY: u32 = 201;
    let server = Server::start().await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    for number in 0..MANY {
        server.subscribe("app", &session(number), "room").await;
    }
    let many = MANY.to_string();
    let (status, words) = server.publish("/v1/app/publish/room", "application/json", "1").await;
    assert_eq!((status, words.each_ref().map(String::as_str)), (204, [&*many, &*many, "0", "inline"]));
    let last = format!("/v1/app/stream/session:{}", session(MANY - 1));
    assert_eq!(server.values(&last).await, json!([1]));
    server.stop().await;
}

/// F03: with the queue off and too many sessions, the publish succeeds, the header says skipped, and it is
/// counted; the message is never delivered, and the next one within the limit is.
#[tokio::test]
async fn skipped_is_said_and_counted() {
    let server = Server::with(limited(Limits { queue_threshold: 1, queue: false, inline_max: 2 })).await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    for number in 0..3 {
        server.subscribe("app", &session(number), "room").await;
    }
    let (status, words) = server.publish("/v1/app/publish/room", "application/json", "1").await;
    assert_eq!((status, words.each_ref().map(String::as_str)), (204, ["3", "0", "0", "skipped"]));
    server.json(Method::DELETE, &format!("/v1/app/session/{}", session(2)), json!(null)).await;
    let (_, words) = server.publish("/v1/app/publish/room", "application/json", "2").await;
    assert_eq!(words.each_ref().map(String::as_str), ["2", "2", "0", "inline"]);
    let path = format!("/v1/app/stream/session:{}", session(0));
    assert_eq!(server.values(&path).await, json!([2]));
    assert_eq!(server.values("/v1/app/stream/room").await, json!([1, 2]), "the source has everything");
    let text = server.get("/metrics").await.text().await.unwrap();
    assert!(text.contains(r#"towpath_fanout_total{event="fanout_skipped"} 1"#), "{text}");
    server.stop().await;
}

/// F07: envelopes tell the sources of a session apart; streams that do not fit are refused with a reason, and
/// nothing is left of a new session.
#[tokio::test]
async fn envelopes_tell_sources_apart() {
    let server = Server::start().await;
    for (stream, content_type) in [("a", "application/json"), ("b", "application/json"), ("t", "text/plain")]
    {
        server.put(&format!("/v1/app/stream/{stream}"), content_type, "").await;
    }
    let id = session(1);
    let subscribe = async |stream: &str, envelope: bool, id: &str| {
        let body = json!({ "sessionId": id, "streamId": stream, "envelope": envelope });
        server.json(Method::POST, "/v1/app/subscribe", body).await
    };
    assert_eq!(subscribe("a", true, &id).await.0, 200);
    assert_eq!(subscribe("b", true, &id).await.0, 200);
    server.publish("/v1/app/publish/b", "application/json", r#"{"n":1}"#).await;
    server.publish("/v1/app/publish/a", "application/json", "2").await;
    let found = server.values(&format!("/v1/app/stream/session:{id}")).await;
    let told: Vec<_> = found.as_array().unwrap().iter().map(|one| (&one["stream"], &one["data"])).collect();
    assert_eq!(told, [(&json!("b"), &json!({ "n": 1 })), (&json!("a"), &json!(2))]);
    let (status, why) = subscribe("t", false, &id).await;
    assert_eq!(status, 409, "{why}");
    assert!(!why["detail"].as_str().unwrap().is_empty());
    let other = session(2);
    assert_eq!(subscribe("t", true, &other).await.0, 409, "an envelope needs JSON");
    assert_eq!(server.get(&format!("/v1/app/session/{other}")).await.status(), 404, "nothing is left of it");
    server.stop().await;
}

/// F08: an unused session ends with its subscriptions; reading, touching and a live connection renew it.
#[tokio::test]
async fn sessions_end_when_nobody_uses_them() {
    let fan_out = FanOutSettings {
        session_ttl_seconds: 2,
        clean_every: Duration::from_millis(50),
        ..Default::default()
    };
    let server = Server::with(Settings { fan_out, ..settings() }).await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    for number in 0..4 {
        server.subscribe("app", &session(number), "room").await;
    }
    let path = |number| format!("/v1/app/stream/session:{}", session(number));
    let live = server.get(&format!("{}?offset=-1&live=sse", path(3))).await;
    assert_eq!(live.status(), 200);
    let subscribers = async || server.values("/v1/app/sources").await["sources"][0]["subscribers"].clone();
    let keep = async || {
        server.get(&path(1)).await;
        server.json(Method::POST, &format!("/v1/app/session/{}/touch", session(2)), json!(null)).await;
        (server.request(Method::HEAD, &path(0)).send().await.unwrap().status().as_u16(), subscribers().await)
    };
    let (_, left) = server.until(keep, |(status, left)| *status == 404 && *left == json!(3)).await;
    assert_eq!(left, 3, "only the one nobody used is gone, and its subscription with it");
    let text = async || server.get("/metrics").await.text().await.unwrap();
    let counted = |text: &String| {
        text.contains(r#"towpath_session_total{event="session_expire"} 1"#)
            && text.contains("towpath_cleanup_sessions_total 1")
            && text.contains("towpath_cleanup_subscriptions_total 1")
    };
    server.until(text, counted).await;
    drop(live);
    server.stop().await;
}

/// F10: every category of the source document is a metric.
#[tokio::test]
async fn every_category_is_counted() {
    let server = Server::start().await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    let id = session(1);
    server.subscribe("app", &id, "room").await;
    server.publish("/v1/app/publish/room", "application/json", "1").await;
    server.publish("/v1/app/publish/nowhere", "application/json", "1").await;
    server.post("/v1/app/stream/room", "application/json", "2").await;
    server.json(Method::POST, &format!("/v1/app/session/{id}/touch"), json!(null)).await;
    let pair = json!({ "sessionId": id, "streamId": "room" });
    server.json(Method::DELETE, "/v1/app/unsubscribe", pair).await;
    server.json(Method::DELETE, &format!("/v1/app/session/{id}"), json!(null)).await;
    let text = server.get("/metrics").await.text().await.unwrap();
    for line in [
        r#"towpath_fanout_total{event="fanout"} 2"#,
        r#"towpath_fanout_total{event="fanout_queued"} 0"#,
        r#"towpath_fanout_deliveries_total{outcome="success"} 2"#,
        r#"towpath_subscription_total{event="subscribe"} 1"#,
        r#"towpath_subscription_total{event="unsubscribe"} 1"#,
        r#"towpath_session_total{event="session_create"} 1"#,
        r#"towpath_session_total{event="session_touch"} 1"#,
        r#"towpath_session_total{event="session_delete"} 1"#,
        r#"towpath_session_total{event="session_expire"} 0"#,
        r#"towpath_cleanup_total{event="cleanup_batch"}"#,
        r#"towpath_publish_total{event="publish"} 1"#,
        r#"towpath_publish_total{event="append"} 1"#,
        r#"towpath_publish_error_total{error="not_found"} 1"#,
        r#"towpath_http_requests_total{endpoint="publish",method="POST",status="204"} 1"#,
        r#"towpath_http_request_seconds_count{endpoint="subscribe",method="POST"} 1"#,
        "towpath_sessions 0",
        "towpath_fanout_lag_bytes 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    server.stop().await;
}

/// F08: sessions and cursors survive a restart of the server.
#[tokio::test]
async fn sessions_survive_a_restart() {
    let server = Server::start().await;
    server.put("/v1/app/stream/room", "application/json", "").await;
    let id = session(1);
    server.subscribe("app", &id, "room").await;
    server.publish("/v1/app/publish/room", "application/json", "1").await;
    let server = server.restart().await;
    let answer = server.post("/v1/app/publish/room", "application/json", "2").await;
    assert_eq!(header(&answer, "stream-fanout-count"), "1");
    assert_eq!(server.values(&format!("/v1/app/stream/session:{id}")).await, json!([1, 2]));
    server.stop().await;
}
