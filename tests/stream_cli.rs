//! `towpath stream …` against a running server.

use serde_json::{Value, json};
use towpath_testkit::victim::Victim;

use crate::towpath::Place;

/// Retention on the command line: set at creation, shown, changed limit by limit, removed.
#[tokio::test]
async fn retention_is_set_shown_and_lifted() {
    let place = Place::new();
    let mut server = Victim::spawn(place.command(&["serve"]));
    server.wait_for_line("ready at").await;
    let run = |words: &[&str]| -> Value {
        serde_json::from_str(&place.ok(&[&["--json", "stream"], words].concat())).unwrap()
    };
    run(&["create", "log", "--max-age", "7d"]);
    let kept =
        |age: Value, bytes: Value| json!({ "stream": "log", "max_age_seconds": age, "max_bytes": bytes });
    assert_eq!(run(&["retention", "log"]), kept(json!(604_800), json!(null)));
    assert_eq!(run(&["retention", "log", "--max-bytes", "1000"]), kept(json!(604_800), json!(1000)));
    assert_eq!(run(&["retention", "log", "--max-age", "none"]), kept(json!(null), json!(1000)));
    assert_eq!(place.ok(&["stream", "retention", "log"]).trim(), "log: keeps 1000 bytes");
    place.ok(&["stream", "retention", "log", "--max-bytes", "none"]);
    assert_eq!(place.ok(&["stream", "retention", "log"]).trim(), "log: keeps everything");
    let refused = place.run(&["stream", "retention", "log", "--max-age", "soon"]);
    assert_eq!(refused.status.code(), Some(2));
    let nowhere = place.run(&["stream", "append", "nothing", "{}"]);
    let words = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(
        words.contains(
            "there is no stream at /v1/default/stream/nothing; list them with: towpath stream list"
        ),
        "{words}"
    );
    let missing = place.run(&["stream", "retention", "nothing", "--max-age", "1h"]);
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && words.contains("404"), "{words}");
    server.terminate();
    server.wait_exit().await;
}
