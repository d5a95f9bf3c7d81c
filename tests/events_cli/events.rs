//! `towpath events …`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::jobs_cli::{Shell, says};

/// E10: an emitted event is shown, by `show` and in the tail, with filters and from a position.
#[tokio::test]
async fn events_are_emitted_and_tailed() {
    let shell = Shell::open().await;
    let emit = ["events", "emit", "orders", "created", "--subject-table", "orders", "--subject-ref", "7"];
    let event = shell.json(&[&emit[..], &["--payload", r#"{"order": {"paid": true}}"#]].concat());
    let id = event["event_id"].as_str().unwrap();
    says(
        &shell.ok(&["events", "show", id]),
        &["none yet", "orders/7", "no route worker", "(claimed by login "],
    );
    let own = uuid::Uuid::now_v7().to_string();
    for expected in ["emitted event", "already exists"] {
        says(&shell.ok(&["events", "emit", "mail", "sent", "--event-id", &own]), &[expected]);
    }
    shell.database.event_sequence(100).await.unwrap();
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let text = shell.ok(&[&["--json", "events", "tail"], arguments].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(&[]);
    assert_eq!((all.len(), &all[0]["position"], &all[1]["event_domain"]), (2, &json!(1), &json!("mail")));
    assert_eq!(lines(&["--payload", r#"{"order": {"paid": true}}"#])[0]["event_id"], id);
    assert_eq!(lines(&["--after", "1"]).len(), 1);
    assert!(lines(&["--domain", "nobodys"]).is_empty());
    says(&shell.ok(&["events", "tail"]), &["orders/created", "row=7"]);
    let secret = shell.fails(&["events", "emit", "d", "t", "--payload", r#"{"a": {"PASSWORD": 1}}"#]);
    says(&secret, &["PASSWORD"]);
    says(&shell.fails(&["events", "emit", "d", "t", "--payload", "[1]"]), &["JSON object"]);
    says(
        &shell.fails(&["events", "emit", "orders", "Orders Placed"]),
        &["event_type: must not contain spaces"],
    );
    says(&shell.fails(&["events", "show", &uuid::Uuid::now_v7().to_string()]), &["retention"]);
}

/// E10: `tail --follow` prints later events.
#[tokio::test]
async fn a_tail_follows() {
    let shell = Shell::open().await;
    shell.emit("old", json!({})).await;
    let mut tail = shell.command(&["--json", "events", "tail", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("old"));
    shell.emit("new", json!({})).await;
    assert!(lines.next().unwrap().unwrap().contains("new"));
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// E10, R02, E05: explain says beforehand who gets an event and what each route does; show says it afterwards.
#[tokio::test]
async fn an_event_is_explained() {
    let shell = Shell::open().await;
    shell.ok(&["routes", "add", "to-jobs", "--to-job", "k", "--domain", "orders"]);
    shell.ok(&["subscriptions", "add", "role:a", "orders"]);
    shell.ok(&["subscriptions", "add", "role:b", "orders", "--type", "created", "--mute"]);
    let thought = ["events", "explain", "--domain", "orders", "--type", "created"];
    says(&shell.ok(&thought), &["recipients: role:a", "muted by role:b", "disabled", "mode_off"]);
    shell.ok(&["routes", "enable", "to-jobs", "--why", "a test"]);
    let explained = shell.json(&thought);
    assert_eq!(explained["decisions"][0]["decision"], "sent");
    let id = shell.emit("orders", json!({})).await;
    shell.route().await;
    let shown = shell.json(&["events", "show", &id]);
    assert_eq!(shown["attempts"][0]["decision"], "sent");
    assert_eq!(shown["attempts"][0]["suppressed"], json!(["role:b"]));
    says(&shell.ok(&["events", "explain", &id]), &["sent"]);
    says(&shell.fails(&["events", "explain"]), &["--domain"]);
    says(&shell.fails(&["events", "explain", &id, "--worker", "nobody"]), &["nobody"]);
}

/// E07, E10: a replay counts first, with code 3, sends with --yes, and is a new generation.
#[tokio::test]
async fn a_replay_counts_first() {
    let shell = Shell::open().await;
    shell.ok(&["routes", "add", "late", "--to-job", "k", "--domain", "orders"]);
    let first = shell.emit("orders", json!({"n": 1})).await;
    shell.emit("mail", json!({})).await;
    shell.emit("orders", json!({"n": 2})).await;
    shell.route().await;
    says(&shell.fails(&["events", "replay", "late", "--after", "0"]), &["off"]);
    shell.ok(&["routes", "enable", "late", "--why", "a test"]);
    let count = shell.code(3, &["--json", "events", "replay", "late", "--after", "0"]);
    assert_eq!(serde_json::from_str::<Value>(&count).unwrap()["would_replay"], 2);
    let done = shell.json(&["events", "replay", "late", "--after", "0", "--yes", "--per-second", "100"]);
    assert_eq!((&done["sent"], &done["failed"]), (&json!(2), &json!(0)));
    assert_eq!(shell.db.text("select count(*) from towpath.job_queue where job_kind = 'k'").await, "2");
    says(&shell.ok(&["events", "replay", "late", &first]), &["sent", "generation 1"]);
    says(&shell.fails(&["events", "replay", "lat", &first]), &["no route lat"]);
    says(&shell.ok(&["events", "replay", "late", "--after", "3"]), &["no event between these positions"]);
}

/// E10: all nine checks pass on a healthy database; one that fails is named with the next step and code 4, and so is
/// the holder of a lock.
#[tokio::test]
async fn verify_finds_what_is_stuck() {
    let shell = Shell::open().await;
    let poison = ["routes", "add", "r", "--to-job", "k", "--from-payload", "priority=prio"];
    shell.ok(&poison);
    shell.ok(&["routes", "enable", "r", "--why", "a test"]);
    shell.emit("d", json!({"prio": "abc"})).await;
    shell.route().await;
    let verified = shell.json(&["events", "verify"]);
    assert_eq!((&verified["passed"], verified["checks"].as_array().unwrap().len()), (&json!(true), 9));
    shell.db.advance(std::time::Duration::from_secs(25 * 3600)).await;
    let words = shell.code(4, &["events", "verify", "--full"]);
    says(&words, &["FAIL  W8_letters", "routes dlq list", "checks failed"]);
    let holder = shell.db.rival().await;
    holder.run("begin; select 1 from towpath.route_worker_cursor for update").await;
    shell.emit("d", json!({})).await;
    says(
        &shell.code(4, &["events", "verify"]),
        &["slice 0 is 1 events behind, locked by PostgreSQL process"],
    );
    holder.run("rollback").await;
    shell.db.execute("update towpath.route_cursor_mark set position = 99").await;
    says(&shell.code(4, &["events", "verify"]), &["FAIL  W2_cursors", "routes worker"]);
    says(&shell.ok(&["events", "health"]), &["dead letters  1 open", "gates         open"]);
}

/// R09 for events: grants are added, listed and revoked.
#[tokio::test]
async fn producers_are_granted_events() {
    let shell = Shell::open().await;
    says(&shell.ok(&["events", "grant", "list"]), &["only administrators"]);
    let granted = shell.json(&["events", "grant", "add", "shop", "--domain", "orders"]);
    let id = granted["grant_id"].as_str().unwrap();
    says(&shell.misused(&["events", "grant", "add", "shop"]), &["--domain", "--any-domain"]);
    says(
        &shell.ok(&["events", "grant", "add", "shop", "--domain", "orders"]),
        &["shop could already emit events of domain orders"],
    );
    says(&shell.ok(&["events", "grant", "list"]), &["shop", "orders", "any"]);
    shell.ok(&["events", "grant", "revoke", id]);
    says(&shell.fails(&["events", "grant", "revoke", id]), &["grant list"]);
}
