//! `towpath queue`.

use std::time::Duration;

use serde_json::json;
use towpath_db::job::{Heartbeat, LeaseOwner, Status};

use super::{Shell, says};

/// Q17: a pause stops claims of the kind and records who and why; a mistyped kind is refused.
#[tokio::test]
async fn a_kind_is_paused_and_resumed() {
    let shell = Shell::open().await;
    shell.enqueue("mail").await;
    says(&shell.fails(&["queue", "pause", "maul", "--why", "x"]), &["did you mean mail?", "--unseen"]);
    shell.ok(&["queue", "pause", "maul", "--why", "x", "--unseen"]);
    says(&shell.ok(&["queue", "pause", "mail", "--why", "disk full", "--by", "tester"]), &["mail is paused"]);
    says(&shell.ok(&["queue", "pause", "mail", "--why", "again"]), &["is already paused"]);
    says(&shell.ok(&["queue", "backlog"]), &["mail", "queued", "paused by tester", "disk full"]);
    let backlog = shell.json(&["queue", "backlog"]);
    assert_eq!(
        (&backlog["backlog"][0]["paused"], &backlog["backlog"][0]["row_count"]),
        (&json!(true), &json!(1))
    );
    says(&shell.ok(&["queue", "resume", "mali"]), &["was not paused; did you mean mail?"]);
    says(&shell.ok(&["queue", "resume", "mail"]), &["mail is resumed"]);
    shell.claim().await;
}

/// Q14: health is one command; --check makes it an exit code for scripts.
#[tokio::test]
async fn health_shows_counts_gates_and_heartbeats() {
    let shell = Shell::open().await;
    shell.enqueue("mail").await;
    shell.enqueue("mail").await;
    shell.claim().await.lease.ack(&shell.database).await.unwrap();
    let owner = LeaseOwner::new("w-1");
    let heartbeat = Heartbeat {
        executor_name: "w",
        executor_kind: Some("PG_worker"),
        status: Status::Ok,
        current_job: None,
        owner: &owner,
        metadata: json!({}),
        kinds: None,
    };
    shell.database.heartbeat(&heartbeat).await.unwrap();
    says(
        &shell.ok(&["queue", "health", "--check"]),
        &["1 queued", "1 succeeded", "1 of 1 subscriptions enabled", "jobs open", "w", "fresh"],
    );
    let rows = shell.json(&["queue", "health"]);
    assert_eq!((&rows[0]["jobs_queued"], &rows[0]["freshness"]), (&json!(1), &json!("fresh")));
    shell.db.advance(Duration::from_secs(700)).await;
    says(&shell.code(3, &["queue", "health", "--check"]), &["stale"]);
    shell.ok(&["queue", "health"]);
    says(&shell.fails(&["queue", "forget", "ww"]), &["did you mean w?"]);
    says(&shell.ok(&["queue", "forget", "w"]), &["removed the heartbeat of w"]);
    says(&shell.ok(&["queue", "health", "--check"]), &["heartbeats    none yet"]);
    shell.ok(&["gate", "close", "queue.worker.enabled", "--why", "a test"]);
    says(&shell.code(3, &["queue", "health", "--check"]), &["workers closed"]);
}
