//! S06: every limit has its answer.

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towpath_server::stream::Settings;
use towpath_streams::embedded::disk::{Directory, Disk, DiskFile};
use towpath_streams::embedded::{self, Embedded};

use crate::server::{Server, header, session, settings};

#[tokio::test]
async fn a_body_over_the_limit_is_413_however_it_comes() {
    let server = Server::with(Settings { body_bytes_max: 1000, ..settings() }).await;
    server.put("/v1/stream/a", "text/plain", "").await;
    let large = "x".repeat(3_000_000);
    assert_eq!(server.post("/v1/stream/a", "text/plain", &large).await.status(), 413);
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/stream/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..3 {
        connection.write_all(format!("190\r\n{}\r\n", "y".repeat(400)).as_bytes()).await.unwrap();
    }
    connection.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(server.get("/v1/stream/a").await.text().await.unwrap(), "");
    assert_eq!(server.post("/v1/stream/a", "text/plain", "fits").await.status(), 204);
}

#[tokio::test]
async fn pages_are_bounded_and_end_between_values() {
    let server = Server::with(Settings { page_bytes_max: 4096, ..settings() }).await;
    server.put("/v1/stream/a", "application/json", "").await;
    let values: Vec<String> =
        (0..200).map(|n| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "p".repeat(100))).collect();
    server.post("/v1/stream/a", "application/json", &format!("[{}]", values.join(","))).await;
    let (mut offset, mut seen, mut pages) = ("-1".to_owned(), vec![], 0);
    loop {
        let page = server.get(&format!("/v1/stream/a?offset={offset}")).await;
        offset = header(&page, "stream-next-offset");
        let last = header(&page, "stream-up-to-date") == "true";
        let cached = header(&page, "cache-control");
        assert_eq!(cached.contains("max-age"), !last, "{cached}");
        let body = page.text().await.unwrap();
        assert!(body.len() <= 4096 + 200, "{}", body.len());
        let values: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        seen.extend(values.iter().map(|value| value["n"].as_u64().unwrap()));
        pages += 1;
        if last {
            break;
        }
    }
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert!(pages > 4, "{pages}");
}

#[tokio::test]
async fn live_readers_of_a_project_are_counted() {
    let server = Server::with(Settings { live_readers_max: 2, ..settings() }).await;
    server.put("/v1/stream/a", "text/plain", "").await;
    server.put("/v1/other/stream/a", "text/plain", "").await;
    let first = server.get("/v1/stream/a?offset=now&live=sse").await;
    let second = server.get("/v1/stream/a?offset=now&live=sse").await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let third = server.get("/v1/stream/a?offset=now&live=long-poll").await;
    assert_eq!(third.status(), 429);
    assert_eq!(header(&third, "retry-after"), "1");
    assert_eq!(server.get("/v1/other/stream/a?offset=now&live=long-poll").await.status(), 204);
    drop(first);
    for _ in 0..50 {
        if server.get("/v1/stream/a?offset=now&live=long-poll").await.status() == 204 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("a reader that left still counts");
}

#[tokio::test]
async fn too_many_connections_get_503() {
    let server = Server::configured(settings(), Some(2)).await;
    let _held = [
        TcpStream::connect(server.address).await.unwrap(),
        TcpStream::connect(server.address).await.unwrap(),
    ];
    // A connection made before the two are counted is let in, and leaves again.
    let mut answer = String::new();
    while answer.is_empty() {
        let mut third = TcpStream::connect(server.address).await.unwrap();
        let read = third.read_to_string(&mut answer);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), read).await;
    }
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("too many connections"));
}

#[tokio::test]
async fn streams_of_a_project_are_counted() {
    let server = Server::with(Settings { streams_max: 3, ..settings() }).await;
    for n in 0..3 {
        assert_eq!(server.put(&format!("/v1/p/stream/{n}"), "text/plain", "").await.status(), 201);
    }
    assert_eq!(server.put("/v1/p/stream/3", "text/plain", "").await.status(), 429);
    assert_eq!(
        server.put("/v1/p/stream/2", "text/plain", "").await.status(),
        200,
        "one that is there is no more"
    );
    assert_eq!(server.put("/v1/q/stream/3", "text/plain", "").await.status(), 201);
    server.request(Method::DELETE, "/v1/p/stream/0").send().await.unwrap();
    assert_eq!(server.put("/v1/p/stream/3", "text/plain", "").await.status(), 201);
}

/// S06: the limit is on what tenants make. The keys and journals of the reserved API, and what holds envelopes
/// for sessions, take nobody's place, after a restart neither.
#[tokio::test]
async fn what_a_server_keeps_for_itself_is_not_counted() {
    let server = Server::with(Settings { streams_max: 4, ..settings() }).await;
    assert_eq!(server.put("/v1/stream/wake", "application/json", "").await.status(), 201);
    let subscription =
        json!({ "type": "pull-wake", "pattern": "a/*", "wake_stream": "wake", "lease_ttl_ms": 1000 });
    assert_eq!(server.json(Method::PUT, "/v1/stream/__ds/subscriptions/s", subscription).await.0, 201);
    let pair = json!({ "sessionId": session(1), "streamId": "wake", "envelope": true });
    assert_eq!(server.json(Method::POST, "/v1/default/subscribe", pair).await.0, 200, "the second stream");
    assert_eq!(server.put("/v1/stream/third", "text/plain", "").await.status(), 201);
    let server = server.restart().await;
    assert_eq!(server.put("/v1/stream/fourth", "text/plain", "").await.status(), 201);
    assert_eq!(server.put("/v1/stream/fifth", "text/plain", "").await.status(), 429);
}

/// A directory whose files are synced only while the gate is open.
struct Stalled {
    inner: Directory,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct StalledFile {
    inner: Arc<dyn DiskFile>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Stalled {
    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(StalledFile { inner, gate: self.gate.clone() })
    }
}

impl Disk for Stalled {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(name).map(|file| self.file(file))
    }
    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }
}

impl DiskFile for StalledFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.inner.read_at(buffer, position)
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.inner.write_at(bytes, position)
    }
    fn sync(&self) -> io::Result<()> {
        let (open, opened) = &*self.gate;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        self.inner.sync()
    }
}

/// A disk that has stopped: what waits for it is bounded, more is 503, reads go on, and what
/// waited is answered when the disk comes back.
#[tokio::test]
async fn more_than_the_disk_takes_is_503() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new((Mutex::new(true), Condvar::new()));
    let disk = Stalled { inner: Directory::take(directory.path()).unwrap(), gate: gate.clone() };
    let config = embedded::Config { queue_bytes_max: 100_000, ..embedded::Config::new(directory.path()) };
    let store = Embedded::open_on(Arc::new(disk), config).unwrap();
    let server = Server::of(store).await;
    server.put("/v1/stream/a", "text/plain", "before").await;
    *gate.0.lock().unwrap() = false;

    let body = "x".repeat(30_000);
    let appends = (0..12).map(|_| server.post("/v1/stream/a", "text/plain", &body));
    let mut appends: FuturesUnordered<_> = appends.collect();
    // Nothing can be acknowledged, so every answer is a refusal.
    let first = appends.next().await.unwrap();
    assert_eq!((first.status().as_u16(), header(&first, "retry-after").as_str()), (503, "1"));
    assert!(first.text().await.unwrap().contains("busy"));
    assert_eq!(server.get("/v1/stream/a").await.text().await.unwrap(), "before", "reads go on");

    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let mut made = 0;
    while let Some(answer) = appends.next().await {
        made += usize::from(answer.status() == 204);
    }
    assert!(made >= 4, "what waited was made: {made}");
    let all = server.get("/v1/stream/a").await.text().await.unwrap();
    assert_eq!(all.len(), "before".len() + made * body.len(), "and nothing else");
    assert_eq!(server.post("/v1/stream/a", "text/plain", "after").await.status(), 204);
}

/// What the server says to a client that has sent `text` and then falls silent, and how many
/// seconds it waits.
async fn silence_after(text: &str) -> (String, u64) {
    let server = Server::start().await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(text.as_bytes()).await.unwrap();
    let started = tokio::time::Instant::now();
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer).await;
    (answer, started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_ends_the_connection() {
    let (answer, seconds) = silence_after("GET /health HTTP/1.1\r\nhost:").await;
    assert!(!answer.contains("200 OK"), "{answer}");
    assert!((60..=90).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_ended() {
    let (answer, seconds) = silence_after("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!((60..=90).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_408() {
    let head = "POST /v1/stream/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\nhalf";
    let (answer, seconds) = silence_after(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!((50..=150).contains(&seconds), "{seconds}");
}

/// S06: no form and no call waits for its body forever, whatever reads it.
#[tokio::test(start_paused = true)]
async fn a_body_for_anybody_else_has_its_time_too() {
    let head = "POST /admin/v1/projects/app HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer admin\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\nhalf";
    let (answer, seconds) = silence_after(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!((50..=150).contains(&seconds), "{seconds}");
}
