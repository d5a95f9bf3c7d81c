//! Sessions and streams from the command line, and the log of the cleaner.

use serde_json::{Value, json};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

const SESSION: &str = "0190f5a4-5c2e-7bb0-9f33-000000000001";

async fn serve(place: &Place, more: &[&str]) -> Victim {
    let server = Victim::spawn(place.command(&[&["serve"], more].concat()));
    server.wait_for_line("ready at").await;
    server
}

fn told(place: &Place, arguments: &[&str]) -> Value {
    let printed = place.ok(&[&["--json"], arguments].concat());
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}"))
}

/// F01, O04: publish once, follow the session live; every command for sessions prints JSON with `--json`, and
/// a refusal says why.
#[tokio::test]
async fn sessions_are_handled_from_the_command_line() {
    let place = Place::new();
    let mut server = serve(&place, &[]).await;
    place.ok(&["stream", "create", "room", "--content-type", "application/json"]);
    let subscribed = told(&place, &["subscribe", SESSION, "room"]);
    let path = format!("/v1/default/stream/session:{SESSION}");
    let own = [format!("/v1/stream/session:{SESSION}"), path];
    assert!(own.iter().any(|path| subscribed["sessionStreamPath"] == **path), "{subscribed}");
    let name = format!("session:{SESSION}");
    let mut tail = Victim::spawn(place.command(&["streams", "tail", &name, "--offset", "-1"]));
    for text in ["first", "second"] {
        let published = told(&place, &["publish", "room", &format!(r#"{{"text": "{text}"}}"#)]);
        assert_eq!(
            (&published["count"], &published["successes"], &published["mode"]),
            (&json!(1), &json!(1), &json!("inline"))
        );
        let line = tail.wait_for_line(text).await;
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json!({ "text": text }));
    }
    tail.interrupt();
    tail.wait_exit().await;

    let listed = told(&place, &["sessions", "list"]);
    assert_eq!((&listed["sessions"][0]["sessionId"], &listed["next"]), (&json!(SESSION), &json!(null)));
    let sources = told(&place, &["sessions", "sources"]);
    let source = &sources["sources"][0];
    assert_eq!((&source["subscribers"], &source["lagBytes"]), (&json!(1), &json!(0)), "{sources}");
    assert_eq!(source["circuit"], "closed");
    let shown = told(&place, &["sessions", "show", SESSION]);
    assert_eq!(shown["subscriptions"][0]["streamId"], "room");
    let touched = told(&place, &["sessions", "touch", SESSION]);
    assert!(touched["expiresAt"].as_i64() >= shown["expiresAt"].as_i64());
    assert_eq!(told(&place, &["unsubscribe", SESSION, "room"])["unsubscribed"], true);
    assert_eq!(told(&place, &["sessions", "delete", SESSION])["deleted"], true);
    let refused = place.run(&["sessions", "show", SESSION]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("it may have ended"), "{why}");
    server.terminate();
    server.wait_exit().await;
}

/// F08: unused sessions are removed, and the cleaner logs how many, with their subscriptions.
#[tokio::test]
async fn the_cleaner_reports_what_ended() {
    let place = Place::new();
    let mut server = serve(
        &place,
        &["--session-ttl-seconds", "3", "--session-clean-seconds", "1", "--log-format", "json"],
    )
    .await;
    for stream in ["a", "b"] {
        place.ok(&["stream", "create", stream, "--content-type", "application/json"]);
        place.ok(&["subscribe", SESSION, stream]);
    }
    let line: Value = serde_json::from_str(&server.wait_for_line("cleaned sessions").await).unwrap();
    assert_eq!((&line["expired"], &line["subscriptions_removed"]), (&json!(1), &json!(2)), "{line}");
    assert_eq!(told(&place, &["sessions", "list"])["sessions"], json!([]));
    server.terminate();
    server.wait_exit().await;
}

/// E08, F03: what a route appends to a stream in the same process reaches sessions on another server too.
#[tokio::test(flavor = "multi_thread")]
async fn a_routed_event_reaches_sessions_on_another_server() {
    let (place, there) = (Place::new(), Place::new());
    let other = serve(&there, &[]).await;
    let there_url = format!("http://127.0.0.1:{}/v1/stream", there.port);
    let sessions_url = format!("{there_url}/{{project}}");
    let up = ["up", "--dev", "--sessions-url", &sessions_url];
    let mut server = Victim::spawn(place.command(&up));
    server.wait_for_line("towpath is ready").await;
    place.ok(&["stream", "create", "orders", "--content-type", "application/json"]);
    place.ok(&["subscribe", SESSION, "orders"]);
    place.ok(&["routes", "add", "live", "--to-stream", "orders", "--domain", "shop"]);
    place.ok(&["routes", "enable", "live", "--why", "a test"]);
    for number in 1..=3 {
        let payload = format!(r#"{{"number": {number}}}"#);
        place.ok(&["events", "emit", "shop", "paid", "--payload", &payload]);
    }
    let url = format!("{there_url}/default/session:{SESSION}");
    let look = async || -> Value { reqwest::get(&url).await.unwrap().json().await.unwrap() };
    let is_right = |found: &Value| {
        let events = found.as_array().unwrap().iter();
        events.map(|event| &event["data"]["payload"]["number"]).eq([1, 2, 3].iter())
    };
    wait::until("three events", look, is_right).await;
    server.terminate();
    server.wait_exit().await;
    other.terminate();
}
