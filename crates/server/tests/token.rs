//! F09: tokens on every route, and connections that end with theirs.

use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use towpath_server::project::Auth;
use towpath_server::stream::Settings;

use crate::project::{Bound, Keys, change, register};
use crate::server::{Server, header, session, settings};

/// A project `app` with two sources and two sessions, then registered.
async fn closed(server: &Server) -> Keys {
    for stream in ["x", "y"] {
        server.put(&format!("/v1/app/stream/{stream}"), "application/json", "[0]").await;
        for number in [1, 2] {
            server.subscribe("app", &session(number), stream).await;
        }
    }
    register(server, "app").await
}

/// One request of every kind there is: method, path, body, and the scope it takes.
fn requests(stream: &str, number: u32) -> Vec<(Method, String, Value, &'static str)> {
    let id = session(number);
    let pair = json!({ "sessionId": id, "streamId": stream });
    let at = |path: String| format!("/v1/app/{path}");
    vec![
        (Method::GET, at(format!("stream/{stream}")), json!(null), "read"),
        (Method::HEAD, at(format!("stream/{stream}")), json!(null), "read"),
        (Method::GET, at(format!("stream/{stream}?offset=now&live=long-poll")), json!(null), "read"),
        (Method::POST, at(format!("stream/{stream}")), json!(1), "write"),
        (Method::POST, at(format!("publish/{stream}")), json!(1), "write"),
        (Method::PUT, at(format!("stream/{stream}")), json!(null), "write"),
        (Method::PATCH, at(format!("stream/{stream}")), json!(null), "manage"),
        (
            Method::POST,
            at("streams".into()),
            json!({ "appends": [{ "stream": stream, "json": 1 }] }),
            "write",
        ),
        (Method::GET, at(format!("stream/session:{id}")), json!(null), "read"),
        (Method::GET, at(format!("session/{id}")), json!(null), "read"),
        (Method::POST, at(format!("session/{id}/touch")), json!(null), "read"),
        (Method::POST, at("subscribe".into()), pair.clone(), "read"),
        (Method::DELETE, at("unsubscribe".into()), pair, "write"),
        (Method::GET, at("streams".into()), json!(null), "read"),
        (Method::GET, at("sessions".into()), json!(null), "manage"),
        (Method::GET, at("sources".into()), json!(null), "manage"),
        (Method::GET, at("stream/__ds/subscriptions/s".into()), json!(null), "manage"),
        (Method::DELETE, at(format!("session/{id}")), json!(null), "write"),
    ]
}

async fn ask(server: &Server, token: Option<&str>, request: &(Method, String, Value, &str)) -> u16 {
    let (method, path, body, _) = request;
    let mut asked = server.request(method.clone(), path).header("content-type", "application/json");
    if let Some(token) = token {
        asked = asked.bearer_auth(token);
    }
    if !body.is_null() {
        asked = asked.body(body.to_string());
    }
    asked.send().await.unwrap().status().as_u16()
}

fn rank(scope: &str) -> usize {
    ["read", "write", "manage"].iter().position(|one| *one == scope).unwrap()
}

/// Right × action, without a token, with a foreign one, and with each scope of its own.
#[tokio::test]
async fn every_route_asks_for_its_right() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let foreign = register(&server, "other").await;
    for request in requests("x", 1) {
        assert_eq!(ask(&server, None, &request).await, 401, "{request:?}");
        assert_eq!(ask(&server, Some("nonsense"), &request).await, 401, "{request:?}");
        assert_eq!(ask(&server, Some(&foreign.unbound("manage")), &request).await, 401, "{request:?}");
        for scope in ["read", "write", "manage"] {
            if rank(scope) < rank(request.3) {
                assert_eq!(
                    ask(&server, Some(&keys.unbound(scope)), &request).await,
                    403,
                    "{scope} {request:?}"
                );
            }
        }
        let status = ask(&server, Some(&keys.unbound(request.3)), &request).await;
        assert!(status != 401 && status != 403, "{status} {request:?}");
    }
    // The other project is not touched by any of it, and an unregistered one is open here.
    assert_eq!(server.get("/v1/free/streams").await.status(), 200);
    server.stop().await;
}

/// Own × foreign: a bound token passes for what it names and for nothing else.
#[tokio::test]
async fn bounds_hold_for_reads_and_writes_alike() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let session_bound = keys.token("manage", &Bound { session: Some(session(1)), ..Bound::default() });
    let stream_bound = keys.token("manage", &Bound { stream: Some("x".into()), ..Bound::default() });
    for (stream, number) in [("y", 2), ("x", 2), ("y", 1), ("x", 1)] {
        for request in requests(stream, number) {
            let about_session = request.1.contains("session") || request.1.ends_with("subscribe");
            let about_project = request.1.ends_with("/sessions")
                || request.1.ends_with("/sources")
                || request.1.contains("__ds")
                || (request.0 == Method::GET && request.1.ends_with("/streams"));
            let own_session = about_session && !about_project && number == 1;
            let own_stream = !about_session && !about_project && stream == "x";
            for (token, own) in [(&session_bound, own_session), (&stream_bound, own_stream)] {
                if own && request.0 == Method::DELETE {
                    continue; // The next rounds need it.
                }
                let status = ask(&server, Some(token), &request).await;
                assert_eq!(status != 403, own, "{status} {stream} {number} {request:?}");
                assert_ne!(status, 401);
            }
        }
    }
    server.stop().await;
}

/// What a request names inside is held against the token too: batches and forks.
#[tokio::test]
async fn what_is_named_inside_counts() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let token = keys.token("write", &Bound { stream: Some("x".into()), ..Bound::default() });
    let batch = json!({ "appends": [{ "stream": "x", "json": 1 }, { "stream": "y", "json": 1 }] });
    let request = server.request(Method::POST, "/v1/app/streams").bearer_auth(&token).json(&batch);
    assert_eq!(request.send().await.unwrap().status(), 403);
    let own = format!("/v1/app/stream/session:{}", session(1));
    for source in ["/v1/app/stream/y", &own] {
        let fork = server.request(Method::PUT, "/v1/app/stream/x").bearer_auth(&token);
        let fork = fork.header("stream-forked-from", source).send().await.unwrap();
        assert_eq!(fork.status(), 403, "{source}");
    }
    let values = server.get_with("/v1/app/stream/y", &keys.unbound("read")).await;
    assert_eq!(values.json::<Value>().await.unwrap(), json!([0]), "nothing was written");
    server.stop().await;
}

async fn drained(mut response: Response) -> Duration {
    let began = Instant::now();
    while let Ok(Some(_)) = response.chunk().await {}
    began.elapsed()
}

/// An open connection ends when its token does, though the stream goes on.
#[tokio::test]
async fn a_connection_ends_with_its_token() {
    let server = Server::with(Settings { long_poll: Duration::from_secs(60), ..settings() }).await;
    let keys = closed(&server).await;
    let short = keys.token("read", &Bound { seconds: Some(2), ..Bound::default() });
    let long = keys.unbound("read");
    let sse = server.get_with("/v1/app/stream/x?offset=now&live=sse", &short).await;
    assert_eq!(sse.status(), 200);
    let staying = server.get_with("/v1/app/stream/x?offset=now&live=sse", &long).await;
    let poll = server.get_with("/v1/app/stream/x?offset=now&live=long-poll", &short);
    let (ended, poll) = tokio::join!(tokio::time::timeout(Duration::from_secs(30), drained(sse)), poll);
    assert!(ended.unwrap() < Duration::from_secs(30));
    assert_eq!(poll.status(), 401, "a poll that outlives its token is not answered with data");
    assert_eq!(server.get_with("/v1/app/stream/x", &short).await.status(), 401);
    // Revoked: the others end too, at once.
    let staying = tokio::spawn(drained(staying));
    assert!(!staying.is_finished());
    change(&server, "app", json!({ "change": "revoke", "kid": "k1" })).await;
    tokio::time::timeout(Duration::from_secs(20), staying).await.expect("it ends with its key").unwrap();
    server.stop().await;
}

/// F09: a token is verified once and remembered, and still ends with its key: the next append on the same connection
/// is refused.
#[tokio::test]
async fn a_remembered_token_ends_with_its_key() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let token = keys.unbound("write");
    let append = async || {
        let request =
            server.request(Method::POST, "/v1/app/stream/x").header("content-type", "application/json");
        request.bearer_auth(&token).body("1").send().await.unwrap().status()
    };
    for _ in 0..3 {
        assert_eq!(append().await, 204);
    }
    change(&server, "app", json!({ "change": "revoke", "kid": "k1" })).await;
    assert_eq!(append().await, 401);
    server.stop().await;
}

/// Pages behind a token are nobody else's, unless the URL holds the reader key.
#[tokio::test]
async fn private_pages_are_cached_only_where_nobody_finds_them() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let read = keys.unbound("read");
    let close = server.request(Method::POST, "/v1/app/stream/x").bearer_auth(keys.unbound("write"));
    close.header("stream-closed", "true").send().await.unwrap();
    let plain = server.get_with("/v1/app/stream/x", &read).await;
    assert_eq!(header(&plain, "cache-control"), "private, no-cache");
    let key = header(&plain, "stream-reader-key");
    assert!(key.len() >= 43, "{key}");
    let kept = server.get_with(&format!("/v1/app/stream/x?reader_key={key}"), &read).await;
    assert_eq!(header(&kept, "cache-control"), "public, max-age=60, stale-while-revalidate=300");
    let wrong = server.get_with("/v1/app/stream/x?reader_key=AAAA", &read).await;
    assert_eq!(header(&wrong, "cache-control"), "private, no-cache");
    let other = server.get_with(&format!("/v1/app/stream/y?reader_key={key}"), &read).await;
    assert_eq!(header(&other, "cache-control"), "private, no-cache", "a key opens one stream");
    let bare = server.get(&format!("/v1/app/stream/x?reader_key={key}")).await;
    assert_eq!(bare.status(), 401, "the key is no right");
    assert_eq!(header(&bare, "cache-control"), "no-store");
    change(&server, "app", json!({ "change": "reader_key" })).await;
    let turned = server.get_with(&format!("/v1/app/stream/x?reader_key={key}"), &read).await;
    assert_eq!(header(&turned, "cache-control"), "private, no-cache");
    server.stop().await;
}

/// S09: pages of listed origins only; an open project answers those that this machine serves.
#[tokio::test]
async fn origins_are_the_projects_own() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let read = keys.unbound("read");
    let from = async |origin: &str, method: Method| {
        let request = server.request(method, "/v1/app/stream/x").bearer_auth(&read).header("origin", origin);
        let answer = request.send().await.unwrap();
        (header(&answer, "access-control-allow-origin"), header(&answer, "vary"))
    };
    let none = (String::new(), "origin".to_owned());
    assert_eq!(from("https://a.example", Method::GET).await, none);
    let origins = json!({ "change": "origins", "origins": ["https://a.example"] });
    assert_eq!(change(&server, "app", origins).await.0, 200);
    let listed = ("https://a.example".to_owned(), "origin".to_owned());
    assert_eq!(from("https://a.example", Method::GET).await, listed);
    assert_eq!(from("https://a.example", Method::OPTIONS).await, listed);
    assert_eq!(from("https://b.example", Method::GET).await, none);
    assert_eq!(from("https://b.example", Method::OPTIONS).await, none);
    let open = async |origin: &str, method: Method| {
        let request = server.request(method, "/v1/free/stream/x").header("origin", origin);
        let answer = request.header("content-type", "text/plain").body("data").send().await.unwrap();
        (answer.status().as_u16(), header(&answer, "access-control-allow-origin"))
    };
    let local = "http://localhost:3000";
    assert_eq!(open(local, Method::PUT).await, (201, local.to_owned()));
    assert_eq!(open("http://[::1]:3000", Method::GET).await, (200, "http://[::1]:3000".to_owned()));
    for origin in ["https://a.example", "null", "http://localhost.a.example"] {
        for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
            assert_eq!(open(origin, method.clone()).await, (403, String::new()), "{origin} {method}");
        }
        assert_eq!(open(origin, Method::OPTIONS).await, (204, String::new()), "{origin}");
    }
    let quiet = server.get("/v1/free/stream/x").await;
    assert_eq!((header(&quiet, "access-control-allow-origin"), header(&quiet, "vary")), none);
    server.stop().await;
}

/// Reachable from outside, a project that nobody registered is closed like any other.
#[tokio::test]
async fn required_means_everybody() {
    let server = Server::with(Settings { auth: Auth::Required, ..settings() }).await;
    for path in ["/v1/stream/a", "/v1/free/stream/a", "/v1/free/streams", "/v1/free/sources"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status().as_u16(), &*header(&answer, "www-authenticate")),
            (401, "Bearer"),
            "{path}"
        );
    }
    assert_eq!(server.get("/v1/stream/__ds/jwks.json").await.status(), 200, "public keys are public");
    let keys = register(&server, "app").await;
    assert_eq!(server.get_with("/v1/app/streams", &keys.unbound("read")).await.status(), 200);
    assert_eq!(server.get_with("/v1/free/streams", &keys.unbound("read")).await.status(), 401);
    server.stop().await;
}

/// F09: `EventSource` cannot send a header, so a live read takes its token from the URL: one that only reads, only what
/// it names, and for an hour at most. Nothing else does.
#[tokio::test]
async fn a_url_carries_only_small_tokens() {
    let server = Server::start().await;
    let keys = closed(&server).await;
    let x = || Bound { stream: Some("x".into()), ..Bound::default() };
    let own_session = Bound { session: Some(session(1)), ..Bound::default() };
    let live = "offset=now&live=sse";
    let at =
        |stream: &str, query: &str, token: &str| format!("/v1/app/stream/{stream}?{query}&token={token}");
    let small = keys.token("read", &x());
    for (path, status, why) in [
        (at("x", live, &small), 200, "what it is for"),
        (at(&format!("session:{}", session(1)), live, &keys.token("read", &own_session)), 200, "a session's"),
        (at("y", live, &small), 403, "another stream"),
        (at("x", "offset=-1", &small), 401, "a page is cached under its URL"),
        (at("x", "offset=now&live=long-poll", &small), 401, "the same"),
        (at("x", live, &keys.token("write", &x())), 401, "it could write"),
        (at("x", live, &keys.token("read", &Bound::default())), 401, "it could read everything"),
        (at("x", live, &keys.token("read", &Bound { seconds: Some(3700), ..x() })), 401, "it lives too long"),
        (at("x", live, "nonsense"), 401, "not a token"),
        (at("x", live, &format!("{small}&token={small}")), 400, "twice"),
    ] {
        let answer = server.get(&path).await;
        assert_eq!(answer.status(), status, "{why}");
    }
    let write = server.request(Method::POST, &at("x", live, &keys.token("read", &x())));
    let write = write.header("content-type", "application/json").body("1").send().await.unwrap();
    assert_eq!(write.status(), 401);
    // A header counts more, and is not rescued by the URL.
    let both =
        server.request(Method::GET, &at("x", live, &small)).bearer_auth("nonsense").send().await.unwrap();
    assert_eq!(both.status(), 401);
    let short = keys.token("read", &Bound { seconds: Some(1), ..x() });
    let response = server.get(&at("x", live, &short)).await;
    assert!(drained(response).await < Duration::from_secs(10), "it ends with its token");
    server.stop().await;
}
