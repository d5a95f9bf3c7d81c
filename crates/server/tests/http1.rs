//! The loop that serves streams over HTTP/1.1: plain requests are its own, the others it hands
//! on, and a client cannot tell.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::Server;

fn post(body: &str, fields: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/stream/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n{fields}content-length: {length}\r\n\r\n{body}"
    )
}

fn chunked(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/stream/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
    )
}

const GET: &str = "GET /v1/stream/a?offset=-1 HTTP/1.1\r\nhost: localhost\r\n\r\n";
const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LAST: &str = "GET /v1/stream/a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Everything the server says to `text`, sent in pieces of `size` bytes.
async fn said(server: &Server, text: &str, size: usize) -> String {
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.set_nodelay(true).unwrap();
    for piece in text.as_bytes().chunks(size) {
        connection.write_all(piece).await.unwrap();
        // Lets the server read what there is before more comes.
        tokio::task::yield_now().await;
    }
    let mut said = String::new();
    connection.read_to_string(&mut said).await.unwrap();
    said
}

/// The statuses in a conversation, in order.
fn statuses(said: &str) -> Vec<&str> {
    said.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// Requests that follow each other without waiting, own ones and handed on ones, cut anywhere.
#[tokio::test]
async fn a_conversation_is_the_same_however_it_is_cut() {
    let conversation =
        [&post("one,", ""), &post("two,", ""), GET, HEALTH, &chunked("three,"), &post("four,", ""), LAST]
            .concat();
    for size in [1, 7, 64, 150, 100_000] {
        let server = Server::start().await;
        server.put("/v1/stream/a", "text/plain", "").await;
        let said = said(&server, &conversation, size).await;
        assert_eq!(statuses(&said), ["204", "204", "200", "200", "204", "204", "200"], "{size}: {said}");
        assert!(said.ends_with("one,two,three,four,"), "{size}: {said}");
        server.stop().await;
    }
}

/// Both loops say the same about the same request.
#[tokio::test]
async fn own_answers_and_handed_on_answers_agree() {
    let server = Server::start().await;
    server.put("/v1/stream/a", "text/plain", "").await;
    for (request, status) in [
        (post("x", "origin: http://localhost:3000\r\n"), "204"),
        (post("", ""), "400"),
        (post("x", "stream-seq: 5\r\n"), "204"),
        (post("x", "stream-seq: 4\r\n"), "409"),
        (post("x", "producer-id: p\r\nproducer-epoch: 0\r\nproducer-seq: 7\r\n"), "409"),
        (post("x", "producer-id: p\r\n"), "400"),
        (post("x", "if-match: \"0000000000000000_0000000000000000\"\r\n"), "412"),
        (post("x", "").replace("/a ", "/none "), "404"),
        (GET.to_owned(), "200"),
        (GET.replace("-1", "never"), "400"),
        (GET.replace("GET", "BREW"), "405"),
    ] {
        let closing = request.replacen("host: localhost\r\n", "host: localhost\r\nconnection: close\r\n", 1);
        let handed_on = said(&server, &closing, 100_000).await;
        // The refused ones change nothing, so that they can be asked twice.
        let own = said(&server, &format!("{request}{LAST}"), 100_000).await;
        let first = own.split("HTTP/1.1 ").nth(1).unwrap();
        assert_eq!(statuses(&handed_on), [status], "{request}: {handed_on}");
        assert!(first.starts_with(status) || request.contains("stream-seq: 5"), "{request}: {own}");
        if first.starts_with(status) && status != "204" && !request.starts_with("GET /v1/stream/a?offset=-1")
        {
            assert_eq!(fields(first), fields(handed_on.split("HTTP/1.1 ").nth(1).unwrap()), "{request}");
        }
    }
}

/// The names of an answer's fields, sorted, but for those that tell of the connection.
fn fields(answer: &str) -> Vec<String> {
    let head = answer.split("\r\n\r\n").next().unwrap();
    let names = head.lines().skip(1).filter_map(|line| line.split(':').next()).map(str::to_ascii_lowercase);
    let mut names: Vec<String> = names.filter(|name| name != "connection").collect();
    names.sort();
    names
}

/// A stop lets a request that has begun finish, and ends connections that rest.
#[tokio::test]
async fn a_stop_ends_connections_that_rest() {
    let server = Server::start().await;
    server.put("/v1/stream/a", "text/plain", "").await;
    let mut resting = TcpStream::connect(server.address).await.unwrap();
    resting.write_all(post("x", "").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    resting.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 204");
    server.stop().await;
    let mut rest = Vec::new();
    resting.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"\r\n\r\n"), "nothing but the rest of the answer");
}

const FOLLOW: &str = "GET /v1/stream/b?offset=-1&live=sse HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A follower's connection is a connection again when the stream has ended, for what it asked meanwhile too.
#[tokio::test]
async fn a_conversation_goes_on_behind_events() {
    for size in [1, 64, 100_000] {
        let server = Server::start().await;
        server.put("/v1/stream/a", "text/plain", "").await;
        server.put("/v1/stream/b", "text/plain", "").await;
        let conversation = [FOLLOW, &post("one,", ""), FOLLOW, HEALTH, LAST].concat();
        let conversation = said(&server, &conversation, size);
        let (said, ()) = tokio::join!(conversation, async {
            server.post("/v1/stream/b", "text/plain", "message").await;
            let close = server.request(reqwest::Method::POST, "/v1/stream/b").header("stream-closed", "true");
            assert_eq!(close.send().await.unwrap().status(), 204);
        });
        assert_eq!(statuses(&said), ["200", "204", "200", "200", "200"], "{size}: {said}");
        assert_eq!(said.matches("data:message\n").count(), 2, "{size}: {said}");
        assert_eq!(said.matches("\r\n0\r\n\r\n").count(), 2, "{size}: {said}");
        assert!(said.ends_with("one,"), "{size}: {said}");
        server.stop().await;
    }
}

/// A stop ends a connection that followed a stream and is idle now.
#[tokio::test]
async fn a_stop_ends_connections_that_have_followed() {
    let server = Server::start().await;
    server.put("/v1/stream/b", "text/plain", "x").await;
    let close = server.request(reqwest::Method::POST, "/v1/stream/b").header("stream-closed", "true");
    close.send().await.unwrap();
    let mut resting = TcpStream::connect(server.address).await.unwrap();
    // Idle before and after.
    resting.write_all(GET.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    resting.read_exact(&mut first).await.unwrap();
    resting.write_all(FOLLOW.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n0\r\n\r\n") {
        assert_ne!(resting.read_buf(&mut said).await.unwrap(), 0, "{}", String::from_utf8_lossy(&said));
    }
    server.stop().await;
    assert_eq!(resting.read_buf(&mut said).await.unwrap(), 0);
}
