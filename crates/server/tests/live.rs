//! S05: a reader that follows live gets what a reader that catches up gets.

use std::time::Duration;

use reqwest::{Method, Response};
use towpath_server::stream::Settings;

use crate::server::{Server, header, settings};

/// Events until the connection ends or `enough` says so.
async fn events(mut response: Response, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        if enough(&text) {
            break;
        }
    }
    text
}

fn data(events: &str) -> String {
    let blocks = events.split("\n\n").filter_map(|block| block.strip_prefix("event: data\n"));
    let lines = |block: &str| -> String {
        block.lines().map(|line| line.strip_prefix("data:").unwrap()).collect::<Vec<_>>().join("\n")
    };
    blocks.map(lines).collect()
}

#[tokio::test]
async fn followers_and_catchers_up_see_the_same_bytes() {
    let server = Server::start().await;
    server.put("/v1/stream/a", "text/plain", "").await;
    let followers: Vec<_> = futures_util::future::join_all(
        (0..20).map(|_| server.request(Method::GET, "/v1/stream/a?offset=-1&live=sse").send()),
    )
    .await;
    let readers = followers.into_iter().map(|response| {
        tokio::spawn(events(response.unwrap(), |text| text.contains("\"streamClosed\":true")))
    });
    let readers: Vec<_> = readers.collect();
    for n in 0..100 {
        let answer = server.post("/v1/stream/a", "text/plain", &format!("line {n}\n")).await;
        assert_eq!(answer.status(), 204);
    }
    server.request(Method::POST, "/v1/stream/a").header("stream-closed", "true").send().await.unwrap();
    let caught_up = server.get("/v1/stream/a").await.text().await.unwrap();
    for reader in readers {
        let seen = tokio::time::timeout(Duration::from_secs(20), reader).await.unwrap().unwrap();
        assert_eq!(data(&seen), caught_up);
        let (datas, controls) = (seen.matches("event: data").count(), seen.matches("event: control").count());
        assert!(controls >= datas, "a control event follows every data event");
    }
}

#[tokio::test]
async fn an_event_connection_ends_in_time_and_can_be_taken_up() {
    let server = Server::with(Settings { sse_lifetime: Duration::from_millis(300), ..settings() }).await;
    server.put("/v1/stream/a", "application/json", "[1]").await;
    let response = server.get("/v1/stream/a?offset=-1&live=sse").await;
    let seen = tokio::time::timeout(Duration::from_secs(5), events(response, |_| false)).await.unwrap();
    assert_eq!(data(&seen), "[1]");
    let next = seen.rsplit("streamNextOffset\":\"").next().unwrap().split('"').next().unwrap().to_owned();
    server.post("/v1/stream/a", "application/json", "2").await;
    let response = server.get(&format!("/v1/stream/a?offset={next}&live=sse")).await;
    let seen = tokio::time::timeout(Duration::from_secs(5), events(response, |_| false)).await.unwrap();
    assert_eq!(data(&seen), "[2]");
}

#[tokio::test]
async fn a_deleted_stream_ends_its_readers() {
    let server = Server::with(Settings { long_poll: Duration::from_secs(30), ..settings() }).await;
    server.put("/v1/stream/a", "text/plain", "").await;
    let sse = server.get("/v1/stream/a?offset=now&live=sse").await;
    let poll = tokio::spawn(server.request(Method::GET, "/v1/stream/a?offset=now&live=long-poll").send());
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.request(Method::DELETE, "/v1/stream/a").send().await.unwrap();
    let poll = tokio::time::timeout(Duration::from_secs(5), poll).await.unwrap().unwrap().unwrap();
    assert_eq!(poll.status(), 404);
    tokio::time::timeout(Duration::from_secs(5), events(sse, |_| false)).await.unwrap();
}

#[tokio::test]
async fn a_stop_ends_readers_and_keeps_what_was_acknowledged() {
    let server = Server::with(Settings { long_poll: Duration::from_secs(30), ..settings() }).await;
    server.put("/v1/stream/a", "text/plain", "kept").await;
    let sse = tokio::spawn(events(server.get("/v1/stream/a?offset=now&live=sse").await, |_| false));
    let server = tokio::time::timeout(Duration::from_secs(10), server.restart()).await.unwrap();
    sse.await.unwrap();
    let read = server.get("/v1/stream/a").await;
    assert_eq!(header(&read, "stream-up-to-date"), "true");
    assert_eq!(read.text().await.unwrap(), "kept");
}

/// A reader that stays keeps a short life alive.
#[tokio::test]
async fn an_open_reader_renews_a_sliding_life() {
    let server = Server::start().await;
    let created = server.request(Method::PUT, "/v1/stream/a").header("stream-ttl", "1");
    created.header("content-type", "text/plain").send().await.unwrap();
    let reader = server.get("/v1/stream/a?offset=now&live=sse").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(server.request(Method::HEAD, "/v1/stream/a").send().await.unwrap().status(), 200);
    drop(reader);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(server.request(Method::HEAD, "/v1/stream/a").send().await.unwrap().status(), 404);
}
