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
    let health = shell.json(&["queue", "health"]);
    assert_eq!(health["queue"]["jobs_queued"], 1);
    assert_eq!(health["executors"][0]["freshness"], "fresh");
    assert_eq!(health["unhandled"], json!([]));
    shell.db.advance(Duration::from_secs(700)).await;
    says(&shell.code(3, &["queue", "health", "--check"]), &["stale"]);
    shell.ok(&["queue", "health"]);
    says(&shell.fails(&["queue", "forget", "ww"]), &["did you mean w?"]);
    says(&shell.ok(&["queue", "forget", "w"]), &["removed the heartbeat of w"]);
    says(
        &shell.code(3, &["queue", "health", "--check"]),
        &[
            "heartbeats    none yet",
            "1 due mail job is waiting: no worker of w is running",
            "-> towpath work",
        ],
    );
    says(&shell.code(4, &["doctor"]), &["WARN  workers      1 due mail job is waiting: no worker of w"]);
    shell.ok(&["job", "cancel", "--kind", "mail", "--state", "queued", "--why", "a test", "--yes"]);
    shell.ok(&["queue", "health", "--check"]);
    shell.ok(&["gate", "close", "queue.worker.enabled", "--why", "a test"]);
    says(&shell.code(3, &["queue", "health", "--check"]), &["workers closed"]);
}

/// O02, Q20: due jobs that no live worker handles are reported, each with its cause, by `why`, `queue health` and the
/// attention list alike: no worker, no handler, no transport, another executor.
#[tokio::test]
async fn jobs_that_nobody_handles_are_reported_with_the_cause() {
    let shell = Shell::open().await;
    let told = async |kind: &str, executor: &str, code: &str, text: &str| {
        let job = shell.json(&["job", "enqueue", kind, "--executor", executor]);
        let job = job["job_id"].as_str().unwrap();
        let why = shell.json(&["job", "why", job]);
        assert_eq!(why["reasons"][0]["code"], code, "{why}");
        says(why["reasons"][0]["text"].as_str().unwrap(), &[text]);
        let health = shell.json(&["queue", "health"]);
        let unhandled = health["unhandled"].as_array().unwrap();
        let found = unhandled.iter().find(|one| one["job_kind"] == kind).unwrap();
        assert_eq!((&found["code"], &found["jobs"]), (&json!(code), &json!(1)), "{found}");
        let attention = shell.database.health_show().await.unwrap().unhandled;
        assert!(attention.iter().any(|one| one.job_kind == kind && one.text == why["reasons"][0]["text"]));
        shell.ok(&["job", "cancel", job, "--why", "a test"]);
        assert_eq!(shell.json(&["queue", "health"])["unhandled"], json!([]));
    };
    told(
        "report",
        "PG_worker",
        "no_worker",
        "no worker of w is running: none has sent a heartbeat in the last",
    )
    .await;
    let announce = async |name: &str, kind: &'static str, kinds: &[String]| {
        let owner = LeaseOwner::new(format!("{name}-1"));
        let heartbeat = Heartbeat {
            executor_name: name,
            executor_kind: Some(kind),
            status: Status::Ok,
            current_job: None,
            owner: &owner,
            metadata: json!({}),
            kinds: Some(kinds),
        };
        shell.database.heartbeat(&heartbeat).await.unwrap();
    };
    announce("w@host-1", "PG_worker", &["db_function".to_owned()]).await;
    told(
        "report",
        "PG_worker",
        "no_handler",
        "no live worker has a handler for report: those of w handle db_function",
    )
    .await;
    told("email", "PG_worker", "no_transport", "set mail_transport and restart").await;
    shell.database.consumer_put("greeter", "external_worker", None, None, "tester").await.unwrap();
    announce("greeter", "external_worker", &["greet".to_owned()]).await;
    told("greet", "PG_worker", "wrong_executor", "did you mean --executor external_worker?").await;
    told("other", "Hermes", "no_subscription", "no enabled subscription covers kind other, executor Hermes")
        .await;
    // A job that a live worker handles is no finding, nor is anything while heartbeats are off.
    let job = shell.enqueue("db_function").await;
    assert_eq!(shell.json(&["job", "why", &job])["reasons"][0]["code"], "ready");
    shell.enqueue("report").await;
    assert_eq!(shell.json(&["queue", "health"])["unhandled"][0]["job_kind"], "report");
    shell.ok(&["gate", "close", "queue.heartbeat.enabled", "--why", "a test"]);
    assert_eq!(shell.json(&["queue", "health"])["unhandled"], json!([]));
}
