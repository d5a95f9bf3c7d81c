//! `towpath schedule`.

use serde_json::json;

use super::{Shell, says};

/// Q17: mistakes in an expression or a zone are named, and nothing is created.
#[tokio::test]
async fn mistakes_are_named() {
    let shell = Shell::open().await;
    let fails = |expression: &str, zone: &str, parts: &[&str]| {
        says(&shell.fails(&["schedule", "add", "s", expression, "report", "--zone", zone]), parts);
    };
    fails("61 * * * *", "UTC", &["invalid cron expression", "minute hour day-of-month month day-of-week"]);
    fails("whenever", "UTC", &["invalid cron expression"]);
    fails("0 7 * * *", "Europe/Berlni", &["did you mean Europe/Berlin?"]);
    fails("0 0 30 2 *", "UTC", &["never runs"]);
    says(&shell.fails(&["schedule", "add", "s", "0 7 * * *", "x", "--executor", "MOT"]), &["whitelist"]);
    says(
        &shell.fails(&["schedule", "add", "s", "0 7 * * *", "x", "--payload", r#"{"token": 1}"#]),
        &["token"],
    );
    assert_eq!(shell.json(&["schedule", "list"]), json!([]));
}

/// Q17: a schedule is added, changed and removed; its next runs are in its own time zone.
#[tokio::test]
async fn a_schedule_is_made_paused_resumed_run_and_removed() {
    let shell = Shell::open().await;
    shell.db.freeze("2026-03-28T12:00:00Z".parse().unwrap()).await;
    let add = ["schedule", "add", "nightly", "30 7 * * *", "report", "--zone", "Europe/Berlin"];
    let made = shell.ok(&[&add[..], &["--payload", r#"{"scope": "all"}"#, "--catch-up", "skip"]].concat());
    says(&made, &["created schedule nightly", "2026-03-29 07:30:00 CEST", "2026-03-30 07:30:00 CEST"]);
    says(&shell.fails(&add), &["schedule nightly already exists", "--replace"]);
    shell.ok(&[&add[..], &["--replace", "--payload", r#"{"scope": "some"}"#]].concat());
    let row = &shell.json(&["schedule", "list"])[0];
    assert_eq!((&row["next_at"], &row["catch_up"]), (&json!("2026-03-29T05:30:00Z"), &json!("last")));
    says(&shell.fails(&["schedule", "pause", "nightli"]), &["did you mean nightly?"]);
    says(&shell.ok(&["schedule", "pause", "nightly"]), &["is paused"]);
    says(&shell.ok(&["schedule", "list"]), &["nightly", "Europe/Berlin", "paused"]);
    shell.db.freeze("2026-06-01T12:00:00Z".parse().unwrap()).await;
    says(&shell.ok(&["schedule", "resume", "nightly"]), &["is resumed", "2026-06-02 07:30:00 CEST"]);
    says(&shell.ok(&["schedule", "resume", "nightly"]), &["was not paused"]);
    let run = shell.json(&["schedule", "run", "nightly", "--by", "tester"]);
    let job = &shell.json(&["job", "show", run["job_id"].as_str().unwrap()])["job"];
    assert_eq!((&job["job_kind"], &job["actor"]), (&json!("report"), &json!("tester")));
    assert_eq!(job["payload_json"], json!({"scope": "some"}));
    shell.ok(&["schedule", "remove", "nightly"]);
    says(&shell.fails(&["schedule", "remove", "nightly"]), &["there is no schedule nightly"]);
    says(&shell.ok(&["schedule", "list"]), &["no schedules"]);
}
