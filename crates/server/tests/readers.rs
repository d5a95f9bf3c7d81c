//! S08: readers that ask and do not read. What is held for them is bounded, and a reader that reads on misses nothing.

use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use towpath_server::ReaderLimits;
use towpath_testkit::wait::within;

use crate::server::Server;

const MIB: usize = 1 << 20;
const LIMITS: ReaderLimits =
    ReaderLimits { server_bytes_max: 4 * MIB, project_bytes_max: 2 * MIB, connection_bytes_max: MIB };
/// Together they ask for twenty times what may be held, and more than the kernel takes of each.
const STALLED: usize = 40;

/// A stream of sixteen megabytes of JSON, and what a page of it must say.
async fn filled(server: &Server) -> String {
    let path = "/v1/stream/large";
    assert_eq!(server.put(path, "application/json", "").await.status(), 201);
    let mut values = vec![];
    for batch in 0..64 {
        let batch: Vec<String> = (0..64)
            .map(|n| format!("{{\"n\":{},\"pad\":\"{}\"}}", batch * 64 + n, "x".repeat(4 << 10)))
            .collect();
        let body = format!("[{}]", batch.join(","));
        assert_eq!(server.post(path, "application/json", &body).await.status(), 204);
        values.extend(batch);
    }
    values.join(",")
}

/// Asks, and takes nothing; the kernel keeps little.
async fn ask(server: &Server, path: &str, fields: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut connection = socket.connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// The body of an answer whose length is told, all of it.
async fn body_of(mut connection: TcpStream) -> String {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    within("an answer", connection.read_exact(&mut body)).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// The values of a page, without the brackets around them.
fn bare(page: &str) -> &str {
    page.strip_prefix('[').and_then(|page| page.strip_suffix(']')).expect("an array")
}

/// S08: however many stop reading, no more is held for them than there is for their project. Others are served
/// beside them, and a page that was let go comes whole when its reader reads again.
#[tokio::test]
async fn what_is_held_for_readers_is_bounded() {
    let server = Server::bounded(LIMITS).await;
    let all = filled(&server).await;
    for fields in ["", "connection: close\r\n"] {
        let mut stalled = vec![];
        for _ in 0..STALLED {
            stalled.push(ask(&server, "/v1/stream/large?offset=-1", fields).await);
            assert!(server.metric("reader_bytes").await <= LIMITS.project_bytes_max as i64);
        }
        assert!(server.metric("reader_bytes").await <= LIMITS.project_bytes_max as i64);
        let page = within("an answer", server.get("/v1/stream/large?offset=-1")).await;
        assert!(all.starts_with(bare(&page.text().await.unwrap())), "an honest reader gets its page");
        // Two who read again, the first and the last to come.
        let last = stalled.pop().unwrap();
        let first = stalled.swap_remove(0);
        for (reader, bytes_min) in [(first, 900 << 10), (last, 60 << 10)] {
            let page = body_of(reader).await;
            assert!(page.len() > bytes_min && all.starts_with(bare(&page)), "{} bytes", page.len());
        }
        drop(stalled);
        server.until(|| server.metric("reader_bytes"), |held| *held == 0).await;
    }
    server.stop().await;
}

/// S08: over HTTP/2 many requests share one connection, and what is held for it; none holds up the others.
#[tokio::test]
async fn a_connection_has_a_bound_of_its_own() {
    let server = Server::bounded(LIMITS).await;
    let all = filled(&server).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(65_535)
        .build()
        .unwrap();
    let url = server.url("/v1/stream/large?offset=-1");
    let mut answers = vec![];
    for _ in 0..STALLED {
        answers.push(client.request(Method::GET, &url).send().await.unwrap());
        assert!(server.metric("reader_bytes").await <= LIMITS.connection_bytes_max as i64);
    }
    for answer in answers {
        let page = within("an answer", answer.text()).await.unwrap();
        assert!(page.len() > 60 << 10 && all.starts_with(bare(&page)), "{} bytes", page.len());
    }
    drop(client);
    server.stop().await;
}

/// The values of the data events in a chunked answer, as far as they are whole.
fn events_of(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let data = &bytes[end + 2..];
        text += std::str::from_utf8(&data[..length.min(data.len())]).unwrap();
        bytes = data.get(length + 2..).unwrap_or_default();
    }
    let (whole, _) = text.rsplit_once("\n\n").unwrap_or_default();
    let events = whole.split("\n\n").filter_map(|event| event.strip_prefix("event: data\nid:"));
    events.map(|event| bare(event.split_once("\ndata:").unwrap().1)).collect::<Vec<_>>().join(",")
}

/// S08: a follower that stops reading holds next to nothing, however many there are: others of its project are served
/// beside them, and when it reads again it misses nothing.
#[tokio::test]
async fn followers_that_do_not_read_hold_nothing() {
    let server = Server::bounded(LIMITS).await;
    let all = filled(&server).await;
    let path = "/v1/stream/large?offset=-1&live=sse";
    for fields in ["", "connection: close\r\n"] {
        let mut stalled = vec![];
        // What is left of an event may be short: more of them than of pages.
        for _ in 0..5 * STALLED {
            stalled.push(ask(&server, path, fields).await);
            assert!(server.metric("reader_bytes").await <= LIMITS.project_bytes_max as i64);
        }
        let page = server.get("/v1/stream/large?offset=-1").await;
        assert_eq!(page.status(), 200);
        assert!(all.starts_with(bare(&page.text().await.unwrap())), "an honest reader gets its page");
        let mut follower = server.get(path).await;
        assert!(follower.chunk().await.unwrap().is_some(), "an honest follower gets its events");
        assert!(server.metric("reader_bytes").await <= LIMITS.project_bytes_max as i64);
        assert_eq!(server.metric("reader_refusals_total").await, 0);

        // The last to come reads again.
        let mut again = stalled.pop().unwrap();
        let (mut bytes, mut piece) = (vec![], vec![0; 64 << 10]);
        while bytes.len() < all.len() {
            let count = within("an answer", again.read(&mut piece)).await.unwrap();
            assert!(count > 0, "the connection lasts");
            bytes.extend_from_slice(&piece[..count]);
        }
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let seen = events_of(&bytes[head..]);
        assert!(seen.len() > all.len() / 2 && all.starts_with(&seen), "{} bytes", seen.len());
        drop((stalled, again, follower));
        server.until(|| server.metric("reader_bytes"), |held| *held == 0).await;
    }
    server.stop().await;
}
