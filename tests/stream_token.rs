//! Servers that require a token: the route role, and sessions on another server, send the configured token; a new
//! token in the file is used without a restart.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::until_true;

use crate::towpath::{Place, words};

/// A stream server whose project `shop` requires tokens.
async fn guarded() -> (Place, Victim) {
    let place = Place::new();
    place.ok(&["project", "add", "shop", "--kid", "first"]);
    let server = Victim::spawn(place.command(&["serve"]));
    server.wait_for_line("ready at").await;
    (place, server)
}

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

fn token(place: &Place, kid: &str, scope: &str) -> String {
    place.ok(&["project", "token", "shop", "--kid", kid, "--scope", scope]).trim().to_owned()
}

/// Replaces the token file.
fn write(place: &Place, text: &str) -> PathBuf {
    let (path, unfinished) = (place.dir.join("tokens"), place.dir.join("tokens.new"));
    std::fs::write(&unfinished, text).unwrap();
    std::fs::rename(&unfinished, &path).unwrap();
    path
}

/// Revokes the first key; returns a token of the second.
fn rotated(place: &Place) -> String {
    place.ok(&["project", "rotate", "shop", "--kid", "second"]);
    place.ok(&["project", "revoke", "shop", "first"]);
    token(place, "second", "write")
}

fn route(place: &Place, db: &TestDb) -> std::process::Command {
    let mut command = place.command(&["route"]);
    command.env("DATABASE_URL", db.url());
    command
}

/// E08: without a token, events for the stream wait and the reason is shown; with one they arrive; when its key is
/// revoked they wait again, until the file has a new token. Nothing is lost or repeated, and no token is printed.
#[tokio::test(flavor = "multi_thread")]
async fn the_route_role_shows_its_token() {
    let ((there, server), place, db) = (guarded().await, Place::new(), TestDb::open().await);
    let url = format!("http://127.0.0.1:{}", there.port);
    for call in [
        r#"fn_route_put('orders', 'stream', '{"stream": "orders", "project": "shop"}', 'd')"#,
        "fn_route_mode_set('orders', 'live', 'tester', 'a test')",
    ] {
        assert_eq!(db.json(&format!("towpath.{call}")).await["ok"], true, "{call}");
    }
    let emit = async || db.execute("select towpath.fn_event_emit('d', 't')").await;
    // One that is being tried again at this moment is leased, not waiting.
    let owed = "select deliveries_waiting + deliveries_leased from towpath.v_event_health";
    let waiting = async || db.text(owed).await;
    let refused = async || {
        let why = db.text("select last_error from towpath.route_stream").await;
        why.contains("401") && why.contains("token_file")
    };

    let mut command = route(&place, &db);
    command.env("TOWPATH_URL", &url);
    let mut role = Victim::spawn(command);
    emit().await;
    until_true("it was not refused", refused).await;
    assert_eq!(waiting().await, "1", "lag, no loss");
    let shown = place.command(&["routes", "show", "orders"]).env("DATABASE_URL", db.url()).output().unwrap();
    let shown = words(&shown);
    assert!(shown.contains("401") && shown.contains("token_file"), "the route says why: {shown}");
    role.terminate();
    role.wait_exit().await;

    let first = token(&there, "first", "write");
    let file = write(&place, &format!("# for the shop\nshop {first}\n"));
    let mut command = route(&place, &db);
    command.env("TOWPATH_URL", &url).env("TOWPATH_TOKEN_FILE", &file);
    let mut role = Victim::spawn(command);
    db.advance(Duration::from_secs(61)).await;
    until_true("the event does not arrive", async || waiting().await == "0").await;

    let second = rotated(&there);
    emit().await;
    until_true("a revoked token still opens", refused).await;
    emit().await;
    write(&place, &format!("other x.y.z\n{second}\n"));
    until_true("the new token is not used", async || {
        db.advance(Duration::from_secs(61)).await;
        db.text("select count(*) from towpath.route_attempt").await == "3" && waiting().await == "0"
    })
    .await;
    let read = client().get(format!("{url}/v1/shop/stream/orders")).bearer_auth(&second).send().await;
    let events: Vec<Value> = read.unwrap().json().await.unwrap();
    let positions: Vec<&Value> = events.iter().map(|event| &event["data"]["position"]).collect();
    assert_eq!(positions, [1, 2, 3]);
    role.terminate();
    role.wait_exit().await;
    let log = role.lines().join("\n");
    assert!(!log.contains(&first) && !log.contains(&second), "a token was printed");
    server.terminate();
}

/// O02: settings show that a token is set and never its value; an invalid token file is an error that names the line
/// and not its text.
#[test]
fn tokens_are_not_shown() {
    let place = Place::new();
    let mut command = place.command(&["settings"]);
    command.env("TOWPATH_TOKEN", "s3cret-one").env("TOWPATH_SESSIONS_TOKEN", "s3cret-two");
    let shown = words(&command.output().unwrap());
    assert!(!shown.contains("s3cret") && shown.matches("***").count() >= 2, "{shown}");
    let file = write(&place, "shop s3cret and more\n");
    for arguments in [&["stream", "list"][..], &["serve"]] {
        let mut command = place.command(arguments);
        command.env("TOWPATH_TOKEN_FILE", &file).env("TOWPATH_SESSIONS_TOKEN_FILE", &file);
        let output = command.output().unwrap();
        let said = words(&output);
        assert!(!output.status.success() && said.contains("line 1") && !said.contains("s3cret"), "{said}");
    }
}

/// F05, F09: sessions on a server that requires a token: refused without one, delivered with it; a revoked key causes
/// lag, and with the next token in the file everything is delivered, once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_on_another_server_show_their_token() {
    let ((there, guard), place) = (guarded().await, Place::new());
    let there_url = format!("http://127.0.0.1:{}/v1/shop/stream", there.port);
    let sessions_url = format!("{there_url}/{{project}}");
    let file = write(&place, "other x.y.z\n");
    let serve = ["serve", "--sessions-url", &sessions_url, "--circuit-breaker-recovery-ms", "200"];
    let mut command = place.command(&serve);
    command.env("TOWPATH_SESSIONS_TOKEN_FILE", &file);
    let mut server = Victim::spawn(command);
    server.wait_for_line("ready at").await;
    let (http, base) = (client(), format!("http://127.0.0.1:{}/v1/app", place.port));
    let put = http.put(format!("{base}/stream/room")).header("content-type", "application/json");
    assert_eq!(put.send().await.unwrap().status(), 201);
    let session = "0190f5a4-5c2e-7bb0-9f33-000000000001";
    let subscribe = async || {
        let body = json!({ "sessionId": session, "streamId": "room" });
        http.request(Method::POST, format!("{base}/subscribe")).json(&body).send().await.unwrap()
    };
    let publish = async |number: u32| {
        let request = http.post(format!("{base}/publish/room")).header("content-type", "application/json");
        let answer = request.body(number.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 204, "a fan-out never fails a publish");
        answer.headers()["stream-fanout-failures"].to_str().unwrap().to_owned()
    };
    let refused = subscribe().await;
    assert!(refused.status().is_server_error(), "{}", refused.status());

    let first = token(&there, "first", "write");
    write(&place, &format!("app {first}\n"));
    until_true("the token is not used", async || subscribe().await.status() == 200).await;
    assert_eq!(publish(0).await, "0");
    let second = rotated(&there);
    assert_eq!(publish(1).await, "1", "the key was revoked");
    publish(2).await;
    write(&place, &format!("app {second}\n"));
    let values = async || -> Value {
        let url = format!("{there_url}/app/session:{session}");
        http.get(url).bearer_auth(&second).send().await.unwrap().json().await.unwrap_or_default()
    };
    until_true("the session misses something", async || values().await == json!([0, 1, 2])).await;
    server.terminate();
    server.wait_exit().await;
    let log = server.lines().join("\n");
    assert!(!log.contains(&first) && !log.contains(&second), "a token was printed");
    guard.terminate();
}
