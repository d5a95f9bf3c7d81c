//! `towpath demo`: one command, and every part has traffic.

use serde_json::Value;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::{Place, words};

impl Place {
    /// The JSON output of a command.
    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// Runs the command until its output is right.
    async fn until_json(&self, arguments: &[&str], good: impl Fn(&Value) -> bool) {
        wait::until(format!("{arguments:?}"), async || self.json(arguments), good).await;
    }
}

fn some(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// O01, O03: one command makes traffic for every part; Ctrl-C leaves no process behind, and the next start uses
/// the same database.
#[tokio::test]
async fn the_demo_moves_every_plane_and_ctrl_c_leaves_nothing() {
    let place = Place::new();
    let mut demo = Victim::spawn(place.command(&["demo", "--rate", "20"]));
    demo.wait_for_line("towpath is ready").await;
    place
        .until_json(&["queue", "health"], |health| {
            let queue = &health["queue"];
            let moved = ["jobs_succeeded", "attempts_failed", "jobs_dead_letter", "events_24h"];
            moved.iter().all(|count| queue[count].as_i64() > Some(0))
        })
        .await;
    let progress = |page: &Value| {
        let jobs = page["jobs"].as_array();
        jobs.is_some_and(|jobs| jobs.iter().any(|job| job["progress_percent"].as_i64() > Some(0)))
    };
    place.until_json(&["job", "list", "--kind", "demo.transform"], progress).await;
    place.until_json(&["schedule", "list"], |rows| rows[0]["last_tick_at"].is_string()).await;
    place.until_json(&["routes", "dlq", "list"], |page| some(&page["dead_letters"])).await;
    place.until_json(&["process", "list", "--state", "succeeded"], |page| some(&page["processes"])).await;
    let moved = |stream: &Value| !stream["next_offset"].as_str().unwrap_or("").trim_matches('0').is_empty();
    place
        .until_json(&["stream", "list", "--prefix", "demo."], |page| {
            page["streams"].as_array().is_some_and(|streams| streams.len() == 5 && streams.iter().all(moved))
        })
        .await;
    place
        .until_json(&["sessions", "sources"], |list| list["sources"][0]["subscribers"].as_i64() == Some(6))
        .await;
    place.until_json(&["events", "tail", "--type", "order.shipped", "--limit", "1"], Value::is_object).await;
    demo.interrupt();
    demo.wait_for_line("demo: ").await;
    assert_eq!(demo.wait_exit().await.code(), Some(0));
    place.until_empty().await;
    let tally = place.run(&["demo", "--seconds", "2", "--json", "--rate", "50"]);
    assert!(tally.status.success(), "{}", words(&tally));
    let answers = String::from_utf8(tally.stdout).unwrap();
    let tally: Value = serde_json::Deserializer::from_str(&answers).into_iter().last().unwrap().unwrap();
    assert!(tally["webhooks_received"].as_u64() > Some(0) && tally["refused"] == 0, "{tally}");
    place.until_empty().await;
}

/// The demo refuses a database with other data, and uses a server that runs already.
#[tokio::test]
async fn the_demo_refuses_the_data_of_others_and_visits_what_runs() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let visit = place.ok(&["demo", "--seconds", "1"]);
    assert!(
        visit.contains("sending demo traffic to http://127.0.0.1:") && visit.contains("demo: "),
        "{visit}"
    );
    up.terminate();
    up.wait_exit().await;

    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["job", "enqueue", "invoice"]);
    let refused = place.run(&["demo", "--seconds", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(words(&refused).contains("contains jobs that the demo did not create"), "{}", words(&refused));
    up.terminate();
    up.wait_exit().await;
    let refused = place.run(&["demo", "--seconds", "1"]);
    assert_eq!(refused.status.code(), Some(1), "{}", words(&refused));
    assert!(!place.ok(&["schedule", "list"]).contains("demo"));
    assert!(place.ok(&["demo", "--seconds", "1", "--yes"]).contains("0 messages"));
}
