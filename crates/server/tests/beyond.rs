//! What goes beyond the protocol: conditions, lists, batches, retention, projects, HTTP/2.

use reqwest::Method;
use serde_json::json;
use towpath_server::tls::Tls;

use crate::server::{Server, header};

#[tokio::test]
async fn if_match_appends_only_at_the_tail_it_names() {
    let server = Server::start().await;
    let created = server.put("/v1/stream/a", "text/plain", "one").await;
    let tail = header(&created, "stream-next-offset");
    let append = |expected: &str| {
        let request = server.request(Method::POST, "/v1/stream/a").header("content-type", "text/plain");
        request.header("if-match", format!("\"{expected}\"")).body("two").send()
    };
    let first = append(&tail).await.unwrap();
    assert_eq!(first.status(), 204);
    let second = append(&tail).await.unwrap();
    assert_eq!(second.status(), 412);
    assert_eq!(header(&second, "stream-next-offset"), header(&first, "stream-next-offset"));
    assert_eq!(append("0_3").await.unwrap().status(), 400);
    assert_eq!(server.get("/v1/stream/a").await.text().await.unwrap(), "onetwo");
}

/// S02: any RFC 3339 time is taken as the end of a stream, said by HEAD, and the same when the stream is created again, over a
/// restart too; one that is not is refused.
#[tokio::test]
async fn a_stream_ends_at_any_time_there_is() {
    let mut server = Server::start().await;
    let times = [
        ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.999999999Z"),
        ("2999-01-01t00:00:00z", "2999-01-01T00:00:00Z"),
        ("2999-01-01T00:00:00.25+05:30", "2998-12-31T18:30:00.25Z"),
    ];
    for expected in [201, 200, 200] {
        for (number, (asked, said)) in times.iter().enumerate() {
            let path = format!("/v1/stream/ends-{number}");
            let put = server.request(Method::PUT, &path).header("stream-expires-at", *asked);
            assert_eq!(put.send().await.unwrap().status(), expected, "{asked}");
            let head = server.request(Method::HEAD, &path).send().await.unwrap();
            assert_eq!(header(&head, "stream-expires-at"), *said);
        }
        server = server.restart().await;
    }
    let put =
        server.request(Method::PUT, "/v1/stream/never").header("stream-expires-at", "2999-02-30T00:00:00Z");
    assert_eq!(put.send().await.unwrap().status(), 400);
    server.stop().await;
}

#[tokio::test]
async fn streams_are_listed_by_project_and_prefix() {
    let server = Server::start().await;
    for path in ["/v1/shop/stream/orders/1", "/v1/shop/stream/orders/2", "/v1/shop/stream/users/1"] {
        server.put(path, "application/json", "").await;
    }
    server.put("/v1/stream/orders/9", "text/plain", "").await;
    let list = async |query: &str| -> serde_json::Value {
        server.get(&format!("/v1/shop/streams{query}")).await.json().await.unwrap()
    };
    let ids = |list: &serde_json::Value| -> Vec<String> {
        let streams = list["streams"].as_array().unwrap().iter();
        streams.map(|stream| stream["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&list("").await), ["orders/1", "orders/2", "users/1"]);
    assert_eq!(ids(&list("?prefix=orders/").await), ["orders/1", "orders/2"]);
    let page = list("?limit=2").await;
    assert_eq!(page["next"], "orders/2");
    assert_eq!(ids(&list("?limit=2&after=orders/2").await), ["users/1"]);
    assert_eq!(server.get("/v1/shop/streams?limit=0").await.status(), 400);
    let own: serde_json::Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(ids(&own), ["orders/9"], "what the server keeps for itself is not shown");
}

#[tokio::test]
async fn projects_do_not_see_each_other() {
    let server = Server::start().await;
    server.put("/v1/one/stream/a", "text/plain", "mine").await;
    assert_eq!(server.get("/v1/two/stream/a").await.status(), 404);
    let fork = server.request(Method::PUT, "/v1/two/stream/b");
    let fork = fork.header("stream-forked-from", "/v1/one/stream/a").send().await.unwrap();
    assert_eq!(fork.status(), 400);
}

#[tokio::test]
async fn a_batch_is_decided_append_by_append() {
    let server = Server::start().await;
    server.put("/v1/stream/j", "application/json", "").await;
    server.put("/v1/stream/t", "text/plain", "").await;
    let batch = json!({ "appends": [
        { "stream": "j", "json": [{ "a": 1 }, 2] },
        { "stream": "t", "text": "hello" },
        { "stream": "t", "base64": "IQ==", "content_type": "text/plain" },
        { "stream": "missing", "text": "x" },
        { "stream": "t", "close": true },
        { "stream": "t", "text": "late" },
    ] });
    let (status, answer) = server.json(Method::POST, "/v1/streams", batch).await;
    assert_eq!(status, 200, "{answer}");
    let words: Vec<_> = answer["results"].as_array().unwrap().iter().map(|it| it["error"].as_str()).collect();
    assert_eq!(words, [None, None, None, Some("not_found"), None, Some("closed")]);
    assert_eq!(server.get("/v1/stream/j").await.text().await.unwrap(), "[{\"a\":1},2]");
    assert_eq!(server.get("/v1/stream/t").await.text().await.unwrap(), "hello!");
    for item in [
        json!({ "stream": "__ds/keys", "text": "x" }),
        json!({ "stream": "j", "text": "x", "producer": { "id": "", "epoch": 0, "seq": 0 } }),
        json!({ "stream": "j", "text": "x", "stream_seq": "s".repeat(300) }),
        json!({ "stream": "j", "text": "x", "json": 1 }),
        json!({ "stream": "j" }),
    ] {
        let (status, answer) = server.json(Method::POST, "/v1/streams", json!({ "appends": [item] })).await;
        assert_eq!(status, 400, "{answer}");
    }
}

#[tokio::test]
async fn reserved_streams_are_out_of_reach() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/stream/__ds/keys").await.status(), 404);
    assert_eq!(server.get("/v1/stream/__ds%2Fkeys").await.status(), 404);
    assert_eq!(server.get("/v1/stream/%5F_ds/keys").await.status(), 404);
    let fork = server.request(Method::PUT, "/v1/stream/mine");
    let fork = fork.header("stream-forked-from", "/v1/stream/%5F%5Fds/keys").send().await.unwrap();
    assert_eq!(fork.status(), 400);
}

/// S05: an offset beyond the tail belongs to another life of the name.
#[tokio::test]
async fn a_reader_is_never_sent_back_silently() {
    let server = Server::start().await;
    let tail = header(&server.put("/v1/stream/a", "text/plain", "long ago").await, "stream-next-offset");
    server.request(Method::DELETE, "/v1/stream/a").send().await.unwrap();
    server.put("/v1/stream/a", "text/plain", "new").await;
    for live in ["", "&live=long-poll", "&live=sse"] {
        let answer = server.get(&format!("/v1/stream/a?offset={tail}{live}")).await;
        assert_eq!(answer.status(), 400, "{live}");
        assert!(header(&answer, "stream-next-offset").ends_with("3"));
    }
}

#[tokio::test]
async fn retention_drops_the_oldest_and_says_so() {
    let server = Server::start().await;
    let created = server.request(Method::PUT, "/v1/stream/a").header("content-type", "text/plain");
    let created = created.header("stream-retain-bytes", "64").send().await.unwrap();
    let zero = header(&created, "stream-next-offset");
    let line = "0123456789abcdef";
    for _ in 0..64 {
        server.post("/v1/stream/a", "text/plain", line).await;
    }
    let mut first = String::new();
    for _ in 0..100 {
        let head = server.request(Method::HEAD, "/v1/stream/a").send().await.unwrap();
        first = header(&head, "stream-first-offset");
        if !first.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_ne!(first, "", "nothing was dropped");
    let gone = server.get(&format!("/v1/stream/a?offset={zero}")).await;
    assert_eq!(gone.status(), 410);
    assert_ne!(header(&gone, "stream-first-offset"), "");
    let rest = server.get("/v1/stream/a").await.text().await.unwrap();
    assert!(!rest.is_empty() && rest.len() < 64 * line.len() && rest.len().is_multiple_of(line.len()));
}

/// Issue 8: retention is changed after the creation too, limit by limit, and shown; mistakes are named.
#[tokio::test]
async fn retention_is_changed_later() {
    let server = Server::start().await;
    server.put("/v1/stream/a", "text/plain", "0123456789").await;
    let patch = async |limits: &[(&str, &str)]| {
        let request = server.request(Method::PATCH, "/v1/stream/a");
        let request = limits.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap()
    };
    let shown = async || {
        let head = server.request(Method::HEAD, "/v1/stream/a").send().await.unwrap();
        (header(&head, "stream-retain-seconds"), header(&head, "stream-retain-bytes"))
    };
    let pair = |seconds: &str, bytes: &str| (seconds.to_owned(), bytes.to_owned());
    assert_eq!(shown().await, pair("", ""));
    let said = patch(&[("stream-retain-seconds", "3600")]).await;
    assert_eq!((said.status().as_u16(), header(&said, "stream-retain-seconds")), (204, "3600".into()));
    patch(&[("stream-retain-bytes", "16")]).await;
    assert_eq!(shown().await, pair("3600", "16"), "the other limit stays");
    let listed: serde_json::Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(listed["streams"][0]["retain_seconds"], 3600);
    patch(&[("stream-retain-seconds", "none")]).await;
    assert_eq!(shown().await, pair("", "16"));
    for _ in 0..3 {
        server.post("/v1/stream/a", "text/plain", "0123456789").await;
    }
    // Whole messages: what is kept is the limit and the rest of the message it falls into.
    let text = async || server.get("/v1/stream/a").await.text().await.unwrap();
    server.until(text, |text| text.len() <= 20).await;
    let zero = "0000000000000000_0000000000000000";
    assert_eq!(server.get(&format!("/v1/stream/a?offset={zero}")).await.status(), 410);
    for (limits, word) in [
        (vec![], "send the limit to change"),
        (vec![("stream-retain-seconds", "0")], "above zero"),
        (vec![("stream-retain-bytes", "1k")], "above zero"),
        (vec![("stream-retain-bytes", "1"), ("stream-retain-bytes", "2")], "once"),
    ] {
        let refused = patch(&limits).await;
        assert_eq!(refused.status(), 400, "{limits:?}");
        let detail = refused.text().await.unwrap();
        assert!(detail.contains(word), "{limits:?}: {detail}");
    }
    assert_eq!(shown().await, pair("", "16"), "a refused change changes nothing");
    let missing = server.request(Method::PATCH, "/v1/stream/b").header("stream-retain-bytes", "1");
    assert_eq!(missing.send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_connection_that_begins_with_http2_is_served() {
    let server = Server::start().await;
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = server.url("/v1/stream/a");
    let created =
        http2.put(&url).header("content-type", "application/json").body("[1,2]").send().await.unwrap();
    assert_eq!(created.version(), reqwest::Version::HTTP_2);
    assert_eq!(created.status(), 201);
    let read = http2.get(&url).send().await.unwrap();
    assert_eq!(read.text().await.unwrap(), "[1,2]");
    let health = http2.get(server.url("/health")).send().await.unwrap();
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn tls_carries_both_versions_of_http() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server = Server::secure(Tls::read(&certificate, &key).unwrap()).await;
    let url = format!("https://localhost:{}/v1/stream/a", server.address.port());
    let client = || reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
    let http2 = client().build().unwrap();
    let created = http2.put(&url).header("content-type", "text/plain").body("x").send().await.unwrap();
    assert_eq!(created.version(), reqwest::Version::HTTP_2);
    assert_eq!(header(&created, "location"), url);
    let http1 = client().http1_only().build().unwrap();
    let read = http1.get(&url).send().await.unwrap();
    assert_eq!(read.version(), reqwest::Version::HTTP_11);
    assert_eq!(read.text().await.unwrap(), "x");
    assert!(Tls::read(&key, &certificate).is_err());
}
