//! Subscriptions outlive the server and lost workers.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use towpath_model::stream::name::StreamName;
use towpath_streams::embedded::{self, Embedded};
use towpath_streams::{Append, Beyond, FanOut, Messages, Store, Subscribe};

use crate::server::Server;

const SUB: &str = "/v1/stream/__ds/subscriptions/s";

async fn subscribed() -> Server {
    let server = Server::start().await;
    server.put("/v1/stream/wake", "application/json", "").await;
    let subscription =
        json!({ "type": "pull-wake", "pattern": "events/*", "wake_stream": "wake", "lease_ttl_ms": 1000 });
    assert_eq!(server.json(Method::PUT, SUB, subscription).await.0, 201);
    server
}

async fn claim(server: &Server) -> (u16, Value) {
    server.json(Method::POST, &format!("{SUB}/claim"), json!({ "worker": "w" })).await
}

async fn ack(server: &Server, claimed: &Value, offset: &str) -> (u16, Value) {
    let body = json!({ "wake_id": claimed["wake_id"], "generation": claimed["generation"],
        "acks": [{ "stream": "events/a", "offset": offset }], "done": true });
    let request = server.request(Method::POST, &format!("{SUB}/ack"));
    let response = request.bearer_auth(claimed["token"].as_str().unwrap()).json(&body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn tail(claimed: &Value) -> String {
    claimed["streams"][0]["tail_offset"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn cursors_leases_and_tokens_survive_a_restart() {
    let server = subscribed().await;
    server.put("/v1/stream/events/a", "application/json", "[1]").await;
    let (status, claimed) = claim(&server).await;
    assert_eq!(status, 200, "{claimed}");
    let server = server.restart().await;
    assert_eq!(claim(&server).await.0, 409, "the lease is still held");
    assert_eq!(
        ack(&server, &claimed, &tail(&claimed)).await,
        (200, json!({ "ok": true, "next_wake": false }))
    );
    let server = server.restart().await;
    let (status, answer) = claim(&server).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (409, Some("NO_PENDING_WORK")));
    server.post("/v1/stream/events/a", "application/json", "[2]").await;
    let (status, claimed) = claim(&server).await;
    assert_eq!((status, claimed["generation"].as_u64()), (200, Some(2)));
}

#[tokio::test]
async fn a_lost_worker_is_fenced_and_its_work_handed_on() {
    let server = subscribed().await;
    server.put("/v1/stream/events/a", "application/json", "[1]").await;
    let (_, lost) = claim(&server).await;
    let (mut status, mut next) = claim(&server).await;
    assert_eq!(status, 409);
    for _ in 0..100 {
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        (status, next) = claim(&server).await;
    }
    assert_eq!(status, 200, "{next}");
    let (status, answer) = ack(&server, &lost, &tail(&lost)).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (409, Some("FENCED")));
    assert_eq!(ack(&server, &next, &tail(&next)).await.0, 200);
}

/// A stream that grew while the server was down is work when it comes back.
#[tokio::test]
async fn growth_is_found_by_looking() {
    let server = subscribed().await;
    server.put("/v1/stream/events/a", "application/json", "[1]").await;
    let server = server.restart().await;
    let mut seen: Vec<Value> = vec![];
    for _ in 0..100 {
        seen = server.get("/v1/stream/wake").await.json().await.unwrap();
        if !seen.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(seen[0]["subscription_id"], "s");
    assert_eq!(seen[0]["stream"], "events/a");
}

#[tokio::test]
async fn a_wake_cannot_be_written_into_what_the_server_keeps() {
    let server = Server::start().await;
    let subscription = json!({ "type": "pull-wake", "pattern": "x/*", "wake_stream": "__ds/keys" });
    assert_eq!(server.json(Method::PUT, SUB, subscription).await.0, 400);
}

#[tokio::test]
async fn deleting_a_subscription_forgets_it() {
    let server = subscribed().await;
    let response = server.request(Method::DELETE, SUB).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let server = server.restart().await;
    assert_eq!(server.get(SUB).await.status(), 404);
    let other = json!({ "type": "pull-wake", "pattern": "x/*", "wake_stream": "wake" });
    assert_eq!(server.json(Method::PUT, SUB, other).await.0, 201);
}

#[tokio::test]
async fn projects_have_their_own_subscriptions() {
    let server = subscribed().await;
    assert_eq!(server.get("/v1/shop/stream/__ds/subscriptions/s").await.status(), 404);
    server.put("/v1/shop/stream/events/a", "application/json", "[1]").await;
    assert_eq!(claim(&server).await.0, 409);
}

/// A stream that grows other than by a request wakes too: here by a delivery to a session and by
/// an append of the process itself.
#[tokio::test]
async fn deliveries_to_sessions_wake() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(embedded::Config::new(directory.path())).unwrap();
    let server = Server::of(store.clone()).await;
    server.put("/v1/stream/wake", "application/json", "").await;
    server.put("/v1/stream/room", "application/json", "").await;
    let subscription = json!({ "type": "pull-wake", "pattern": "*", "wake_stream": "wake" });
    assert_eq!(server.json(Method::PUT, SUB, subscription).await.0, 201);
    let (session, source) =
        (StreamName::session("default", "a").unwrap(), StreamName::new("default", "room").unwrap());
    let subscribe = Subscribe { session, source: source.clone(), ttl_seconds: 60, envelope: false };
    store.subscribe(subscribe).await.unwrap();
    let append = Append { messages: Messages::one("1,"), ..Append::default() };
    let fan_out = FanOut { inline_max: 10, beyond: Beyond::Queue };
    store.publish(source, append, fan_out).await.unwrap();
    let is_pending = |stream: &&Value| stream["path"] == "session:a" && stream["has_pending"] == true;
    let look = async || server.json(Method::GET, SUB, Value::Null).await.1;
    let is_right =
        |found: &Value| found["streams"].as_array().into_iter().flatten().filter(is_pending).count() == 1;
    server.until(look, is_right).await;
}
