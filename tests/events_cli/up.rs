//! An event through `towpath up`, from the command that emits it to the job it makes.

use serde_json::{Value, json};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

/// E02, E03, E10: `up` numbers, routes and maintains by itself; nothing else has to be started.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_becomes_a_job_by_itself() {
    let place = Place::new();
    let up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&place.ok(&[&["--json"], arguments].concat())).unwrap()
    };
    json(&["routes", "add", "invoices", "--to-job", "invoice", "--domain", "orders"]);
    json(&["routes", "enable", "invoices", "--why", "a test"]);
    let event = json(&["events", "emit", "orders", "paid", "--payload", r#"{"order_id": 7}"#]);
    let event = event["event_id"].as_str().unwrap();
    let look = async || json(&["events", "show", event])["attempts"].clone();
    let attempts = wait::until("an attempt to route it", look, |attempts| *attempts != json!([])).await;
    assert_eq!((&attempts[0]["decision"], &attempts[0]["route_name"]), (&json!("sent"), &json!("invoices")));
    let job = json(&["job", "show", attempts[0]["result_id"].as_str().unwrap()]);
    assert_eq!(job["job"]["job_kind"], "invoice", "{job}");
    assert_eq!(json(&["events", "verify"])["passed"], true);
}
