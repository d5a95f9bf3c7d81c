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
        block.lines().filter_map(|line| line.strip_prefix("data:")).collect::<Vec<_>>().join("\n")
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

/// What a browser's `EventSource` makes of a connection: the id and the data of each unnamed event.
fn messages(events: &str) -> Vec<(String, String)> {
    let mut id = String::new();
    let mut messages = vec![];
    for block in events.split_terminator("\n\n") {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        field("id:").unwrap_or(&id).to_owned().clone_into(&mut id);
        if let (None, Some(data)) = (field("event: "), field("data:")) {
            messages.push((id.clone(), data.to_owned()));
        }
    }
    messages
}

/// S02: an `EventSource` that is cut off after any of its events gets the rest with `Last-Event-ID`: nothing is
/// missing and nothing comes twice, even in the middle of one append. The end of the stream stops it.
#[tokio::test]
async fn an_event_source_continues_after_its_last_event() {
    let server = Server::start().await;
    server.put("/v1/stream/a", "application/json", r#"[{"n": 1}, "two,", [3]]"#).await;
    server.post("/v1/stream/a", "application/json", "[4, 5]").await;
    let url = "/v1/stream/a?offset=-1&live=sse&events=messages";
    let follow = async |last: &str| {
        let request = server.request(Method::GET, url).header("last-event-id", last);
        request.send().await.unwrap()
    };
    let up_to_date = |text: &str| text.contains("\"upToDate\":true");
    let all = messages(&events(follow("").await, up_to_date).await);
    let values: Vec<_> = all.iter().map(|(_, data)| data.as_str()).collect();
    assert_eq!(values, [r#"{"n": 1}"#, r#""two,""#, "[3]", "4", "5"]);
    for (seen, (id, _)) in all.iter().enumerate() {
        let rest = messages(&events(follow(id).await, up_to_date).await);
        assert_eq!(rest, all[seen + 1..], "after {} events", seen + 1);
    }

    // Before there is data, too: the first control event has an id.
    let url = "/v1/stream/a?offset=now&live=sse&events=messages";
    let first = events(server.get(url).await, up_to_date).await;
    let id = first.lines().find_map(|line| line.strip_prefix("id:")).unwrap();
    server.post("/v1/stream/a", "application/json", "6").await;
    let request = server.request(Method::GET, url).header("last-event-id", id);
    assert_eq!(messages(&events(request.send().await.unwrap(), up_to_date).await)[0].1, "6");

    let close = server.request(Method::POST, "/v1/stream/a").header("stream-closed", "true");
    let end = header(&close.send().await.unwrap(), "stream-next-offset").to_owned();
    assert_eq!(follow(&end).await.status(), 204, "an EventSource does not reconnect after this");
    assert_eq!(follow("soon").await.status(), 400);
    let unknown = server.get("/v1/stream/a?offset=-1&live=sse&events=all").await;
    assert_eq!(unknown.status(), 400);
}

/// S02: text and bytes have messages too, and the named events of the protocol have ids.
#[tokio::test]
async fn every_event_has_an_id() {
    let server = Server::start().await;
    let closed = |text: &str| text.contains("\"streamClosed\":true");
    for (content_type, body, message) in [("text/plain", "a", "a"), ("image/png", "abc", "YWJj")] {
        let path = format!("/v1/stream/{message}");
        server.put(&path, content_type, body).await;
        server.request(Method::POST, &path).header("stream-closed", "true").send().await.unwrap();
        let next = server.get(&path).await;
        let next = header(&next, "stream-next-offset").to_owned();
        let plain =
            events(server.get(&format!("{path}?offset=-1&live=sse&events=messages")).await, closed).await;
        assert_eq!(messages(&plain), [(next.clone(), message.to_owned())]);
        let named = events(server.get(&format!("{path}?offset=-1&live=sse")).await, closed).await;
        assert!(named.starts_with(&format!("event: data\nid:{next}\ndata:")), "{named}");
    }
}
