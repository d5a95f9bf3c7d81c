//! S06: too many of anything. What is beyond a bound is refused, and the server goes on.

use std::time::Duration;

use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, settings};

/// S06: when every connection is taken, a probe is still answered 200; others get 503.
#[tokio::test]
async fn health_answers_when_every_connection_is_taken() {
    let server = Server::configured(settings(), Some(2)).await;
    let mut taken = vec![];
    for _ in 0..2 {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        connection.read_u8().await.unwrap();
        taken.push(connection);
    }
    let fresh = || reqwest::Client::builder().no_proxy().build().unwrap();
    let status = async |method: Method, path: &str| {
        fresh().request(method, server.url(path)).send().await.unwrap().status().as_u16()
    };
    for _ in 0..50 {
        assert_eq!(status(Method::GET, "/health").await, 200);
    }
    assert_eq!(status(Method::GET, "/v1/stream/a").await, 503);
    assert_eq!(status(Method::PUT, "/v1/stream/a").await, 503);
    drop(taken);
    server.until(|| status(Method::GET, "/v1/stream/a"), |status| *status == 404).await;
    server.stop().await;
}

/// S06: those who take a place beyond the bound and ask nothing give it back in a moment.
#[tokio::test]
async fn the_places_for_probes_are_not_to_be_kept() {
    let server = Server::configured(settings(), Some(1)).await;
    let mut silent = vec![];
    for _ in 0..40 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let probe = async || {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(server.url("/health")).send().await.map_or(0, |answer| answer.status().as_u16())
    };
    server.until(probe, |status| *status == 200).await;
    drop(silent);
    server.stop().await;
}

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// How many bytes the server answers to a flood of one frame, and whether it cut the connection.
async fn flood(server: &Server, frame: &[u8], count: usize) -> bool {
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    connection.write_all(&self::frame(4, 0, 0, &[])).await.unwrap();
    let (mut reading, mut writing) = connection.into_split();
    let drained = tokio::spawn(async move { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await });
    let burst = frame.repeat(100);
    for _ in 0..count / 100 {
        if writing.write_all(&burst).await.is_err() {
            return true;
        }
    }
    // A connection that is not cut stays open for longer than this.
    tokio::time::timeout(Duration::from_secs(5), drained).await.is_ok()
}

/// S06: a peer that pings, sets, resets or sends nothing without end loses its connection.
#[tokio::test]
async fn floods_of_http2_frames_are_cut() {
    let server = Server::start().await;
    // A request that is reset at once: HEADERS of GET / on a new stream, then RST_STREAM.
    for (what, one) in [
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("an unknown frame", frame(200, 0, 0, &[])),
    ] {
        assert!(flood(&server, &one, 20_000).await, "{what} went on and on");
    }
    assert!(!flood(&server, &frame(6, 0, 0, &[7; 8]), 500).await, "some pings are fine");
    let mut resets = vec![];
    for number in 0..5_000_u32 {
        let stream = 2 * number + 1;
        // :method GET, :scheme http, :path / out of the static table.
        resets.extend(frame(1, 4 | 1, stream, &[0x82, 0x86, 0x84]));
        resets.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    assert!(flood(&server, &resets, 100).await, "resets went on and on");
    assert_eq!(server.get("/health").await.status(), 200);
    assert!(server.metric("http2_floods_total").await >= 4);
    server.stop().await;
}
