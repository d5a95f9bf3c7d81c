//! F03, F05, S06: readers of sessions that do not keep up. Nobody waits for them, and they miss nothing.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use towpath_model::fanout::Limits;
use towpath_server::stream::{FanOutSettings, Settings};
use towpath_testkit::wait::within;

use crate::server::{Server, header, session, settings};

/// Together far more than the buffers of a connection hold, on either side.
const MESSAGES: u64 = 240;
const PAD_BYTES: usize = 64 << 10;
/// Sessions that are read live, and all of them.
const READERS: u32 = 4;
const SESSIONS: u32 = 12;
/// Longer than a peer may take no byte.
const CUT_AFTER: Duration = Duration::from_secs(31);

/// What a reader has for sure, and from where it goes on.
#[derive(Debug, Default)]
struct Seen {
    numbers: Vec<u64>,
    next: String,
}

impl Seen {
    /// Data counts once the control event behind it has come: that is what says where to go on.
    fn read(events: &str) -> Seen {
        let mut seen = Seen::default();
        let mut unsure = vec![];
        let (whole, _) = events.rsplit_once("\n\n").unwrap_or_default();
        for block in whole.split("\n\n") {
            let (kind, data) = block.split_once('\n').unwrap_or((block, ""));
            let data: Vec<&str> = data.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            let value: Value = serde_json::from_str(&data.join("\n")).unwrap();
            match kind {
                "event: data" => unsure.extend(numbers(&value)),
                "event: control" => {
                    seen.numbers.append(&mut unsure);
                    seen.next = value["streamNextOffset"].as_str().unwrap().to_owned();
                }
                other => panic!("what is {other}?"),
            }
        }
        seen
    }
}

fn numbers(messages: &Value) -> Vec<u64> {
    messages.as_array().unwrap().iter().map(|message| message["n"].as_u64().unwrap()).collect()
}

fn stream(number: u32) -> String {
    format!("/v1/app/stream/session:{}", session(number))
}

/// Everything behind an offset, page by page.
async fn catch_up(server: &Server, path: &str, mut from: String) -> Vec<u64> {
    let mut found = vec![];
    loop {
        let page = server.get(&format!("{path}?offset={from}")).await;
        assert_eq!(page.status(), 200, "{path}");
        from = header(&page, "stream-next-offset");
        let is_last = header(&page, "stream-up-to-date") == "true";
        found.extend(numbers(&page.json().await.unwrap()));
        if is_last {
            return found;
        }
    }
}

/// A live connection whose kernel keeps only so much, with the head of the answer read off it.
async fn connect(server: &Server, path: &str, kept_bytes: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(kept_bytes).unwrap();
    let mut connection = socket.connect(server.address).await.unwrap();
    let request = format!("GET {path}?offset=-1&live=sse HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    connection
}

/// The body of a chunked answer, as far as it came.
fn unchunked(mut bytes: &[u8]) -> String {
    let mut body = vec![];
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let data = &bytes[end + 2..];
        body.extend_from_slice(&data[..length.min(data.len())]);
        bytes = data.get(length + 2..).unwrap_or_default();
    }
    String::from_utf8(body).unwrap()
}

/// Whether the last message is in what came, of which only the end is new.
fn has_last(bytes: &[u8], new: usize) -> bool {
    let last = format!("\"n\":{},", MESSAGES - 1);
    let from = bytes.len().saturating_sub(new + last.len());
    bytes[from..].windows(last.len()).any(|window| window == last.as_bytes())
}

/// Reads as fast as it comes, until the last message; the connection stays open.
async fn read_fast(mut response: Response) -> (Seen, Response) {
    let (mut bytes, mut came) = (vec![], false);
    loop {
        let chunk = response.chunk().await.unwrap().expect("the connection lasts");
        bytes.extend_from_slice(&chunk);
        came = came || has_last(&bytes, chunk.len());
        if came && bytes.ends_with(b"\n\n") {
            return (Seen::read(std::str::from_utf8(&bytes).unwrap()), response);
        }
    }
}

/// Reads a little at a time, with pauses.
async fn read_slowly(mut connection: TcpStream) -> (Seen, TcpStream) {
    let (mut bytes, mut piece, mut came) = (vec![], vec![0; 64 << 10], false);
    loop {
        let count = connection.read(&mut piece).await.unwrap();
        assert!(count > 0, "a slow reader is not cut");
        bytes.extend_from_slice(&piece[..count]);
        came = came || has_last(&bytes, count);
        if came && bytes.ends_with(b"\n\n\r\n") {
            let seen = Seen::read(&unchunked(&bytes));
            if seen.numbers.len() as u64 == MESSAGES {
                return (seen, connection);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads what is left of a connection that was cut.
async fn read_rest(mut connection: TcpStream) -> Vec<u8> {
    let (mut bytes, mut piece) = (vec![], vec![0; 64 << 10]);
    while let Ok(count @ 1..) = connection.read(&mut piece).await {
        bytes.extend_from_slice(&piece[..count]);
    }
    bytes
}

/// F03, F05, S06: one session's reader never reads, another's reads slowly, while much is published to all. Every
/// publish works and the others have everything while the stalled one still holds its connection; the
/// write timeout cuts it, and from its last offset it finds the rest. Both ways of delivery.
#[tokio::test]
async fn a_stalled_reader_keeps_nobody_waiting_and_misses_nothing() {
    for (queue_threshold, mode) in [(200, "inline"), (0, "queued")] {
        let limits = Limits { queue_threshold, queue: true, inline_max: 1000 };
        let server = Server::with(Settings {
            // No other end than the one that is tested.
            sse_lifetime: Duration::from_secs(3600),
            live_readers_max: READERS as usize,
            fan_out: FanOutSettings { limits, ..FanOutSettings::default() },
            ..settings()
        })
        .await;
        server.put("/v1/app/stream/room", "application/json", "").await;
        for number in 0..SESSIONS {
            server.subscribe("app", &session(number), "room").await;
        }
        let stalled = connect(&server, &stream(0), 4 << 10).await;
        let slow = tokio::spawn(read_slowly(connect(&server, &stream(1), 256 << 10).await));
        let fast = [2, 3].map(|number| format!("{}?offset=-1&live=sse", stream(number)));
        let fast = [server.get(&fast[0]).await, server.get(&fast[1]).await];
        let fast = fast.map(|response| tokio::spawn(read_fast(response)));
        let pad = "x".repeat(PAD_BYTES);
        for n in 0..MESSAGES {
            let body = format!(r#"{{"n":{n},"pad":"{pad}"}}"#);
            let (status, words) = server.publish("/v1/app/publish/room", "application/json", &body).await;
            assert_eq!((status, &*words[2]), (204, "0"), "{words:?}");
            assert_eq!(words[3], mode);
        }
        let all: Vec<u64> = (0..MESSAGES).collect();
        let mut open = vec![];
        for reader in fast {
            let (seen, response) = within("an answer", reader).await.unwrap();
            assert_eq!(seen.numbers, all, "{mode}: a fast reader");
            open.push(response);
        }
        let (seen, slow) = within("an answer", slow).await.unwrap();
        assert_eq!(seen.numbers, all, "{mode}: a slow reader");

        // All four hold their connections: there is room for no other, until the stalled one is cut.
        let probe = format!("{}?offset=now&live=long-poll", stream(4));
        assert_eq!(server.get(&probe).await.status(), 429, "{mode}: the stalled one is still there");
        tokio::time::pause();
        tokio::time::advance(CUT_AFTER).await;
        tokio::time::resume();
        let ask = async || server.get(&probe).await.status().as_u16();
        server.until(ask, |status| *status == 204).await;
        drop((open, slow));

        let mut seen = Seen::read(&unchunked(&read_rest(stalled).await));
        let before = seen.numbers.len() as u64;
        assert!(before < MESSAGES, "{mode}: it was never stalled");
        seen.numbers.extend(catch_up(&server, &stream(0), seen.next).await);
        assert_eq!(seen.numbers, all, "{mode}: the stalled reader, {before} before it was cut");
        for number in 4..SESSIONS {
            assert_eq!(catch_up(&server, &stream(number), "-1".into()).await, all, "{mode}: {number}");
        }
        server.stop().await;
    }
}

/// What is read of events is only what is whole.
#[test]
fn half_an_event_does_not_count() {
    let control = |offset: &str| format!("event: control\ndata:{{\"streamNextOffset\":\"{offset}\"}}\n\n");
    let text = format!("{}event: data\ndata:[{{\"n\":0}}]\n\n{}", control("a"), control("b"));
    let more = format!("{text}event: data\ndata:[{{\"n\":1}}]\n\nevent: control\ndata:{{\"stre");
    for text in [&text, &more] {
        let seen = Seen::read(text);
        assert_eq!((&seen.numbers[..], &*seen.next), (&[0][..], "b"), "{text}");
    }
    assert_eq!(unchunked(b"3\r\nabc\r\n5\r\nde"), "abcde");
}
