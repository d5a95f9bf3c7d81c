//! Health, readiness, and an accept loop that cannot be held up.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towpath_server::Config;
use towpath_testkit::TestDb;
use towpath_testkit::proxy::{Fault, FaultProxy, Upstream};
use towpath_testkit::server::RunningServer;

async fn get(server: &RunningServer, path: &str) -> (u16, serde_json::Value) {
    let response = reqwest::get(server.url(path)).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// O05: ready means that the database answers and has our schema.
#[tokio::test]
async fn ready_follows_the_schema() {
    let db = TestDb::new().await;
    let server =
        RunningServer::start(Config { database: Some(db.database().await), ..Default::default() }).await;
    assert_eq!(get(&server, "/ready").await.0, 200);
    assert_eq!(get(&server, "/health").await.0, 200);
    db.execute("insert into towpath.schema_migration values (999, 'future', 'x', now(), '9.9.9')").await;
    let (status, body) = get(&server, "/ready").await;
    assert_eq!(status, 503);
    assert!(body["reason"].as_str().unwrap().contains("upgrade towpath"), "{body}");
    assert_eq!(get(&server, "/health").await.0, 200, "alive all the same");
    server.stop().await;
}

/// O05: a database behind a dead network makes it not ready, within seconds, and ready
/// again when the network is back.
#[tokio::test]
async fn ready_survives_a_broken_network() {
    let db = TestDb::new().await;
    let (proxy, url) = proxied(&db).await;
    let database = towpath_db::Database::connect(&url).await.unwrap();
    let server = RunningServer::start(Config { database: Some(database), ..Default::default() }).await;
    assert_eq!(get(&server, "/ready").await.0, 200);
    proxy.set(Fault::Refuse);
    proxy.reset();
    assert_eq!(get(&server, "/ready").await.0, 503);
    proxy.set(Fault::Stall);
    let (status, body) = get(&server, "/ready").await;
    assert_eq!((status, &body["reason"]), (503, &"the database does not respond".into()));
    proxy.reset();
    proxy.set(Fault::Pass);
    assert_eq!(get(&server, "/ready").await.0, 200, "and back");
    server.stop().await;
}

/// A database's socket behind a fault proxy, and the address that goes through it.
async fn proxied(db: &TestDb) -> (FaultProxy, String) {
    let url = db.url();
    let host = url.split("host=").nth(1).unwrap().split('&').next().unwrap().replace("%2F", "/");
    let proxy = FaultProxy::start(Upstream::Unix(format!("{host}/.s.PGSQL.5432").into())).await;
    let url = format!("postgresql://postgres@{}/{}", proxy.addr(), db.name());
    (proxy, url)
}

/// A client that never finishes its head is cut off; others are served meanwhile.
#[tokio::test]
async fn a_slow_head_holds_nobody_up() {
    let db = TestDb::new().await;
    let server =
        RunningServer::start(Config { database: Some(db.database().await), ..Default::default() }).await;
    let mut slow = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\nx: ").await.unwrap();
    assert_eq!(get(&server, "/health").await.0, 200);
    // With nothing else to do, a paused clock goes straight to the next time-out.
    tokio::time::pause();
    let mut rest = vec![];
    let cut = tokio::time::timeout(Duration::from_secs(600), slow.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the time-out on heads did not fire");
    tokio::time::resume();
    server.stop().await;
}
