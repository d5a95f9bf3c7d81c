//! `towpath job`.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use towpath_db::job::{Failure, Progress};
use towpath_db::{Attribution, GateMove};
use towpath_testkit::victim::Victim;

use super::{Shell, says};

/// Q04: every field reaches the job, and a key makes one job.
#[tokio::test]
async fn enqueue_fills_every_field_and_a_key_makes_one_job() {
    let shell = Shell::open().await;
    let arguments = [
        "job",
        "enqueue",
        "mail",
        "--payload",
        r#"{"message": "m/1"}"#,
        "--payload-ref",
        "s3://x",
        "--source",
        "shop",
        "--target",
        "user/7",
        "--executor",
        "Agent",
        "--domain",
        "sales",
        "--priority",
        "250",
        "--max-attempts",
        "2",
        "--key",
        "k",
        "--run-id",
        "0190f5a4-5c2e-7bb0-9f33-0123456789ab",
        "--at",
        "2h",
        "--by",
        "tester",
    ];
    let first = shell.json(&arguments);
    assert_eq!(first["duplicate"], false);
    assert_eq!(shell.json(&arguments)["job_id"], first["job_id"], "the same job");
    let job = &shell.json(&["job", "show", first["job_id"].as_str().unwrap()])["job"];
    for (field, value) in [
        ("job_kind", "mail"),
        ("payload_ref", "s3://x"),
        ("source_ref", "shop"),
        ("target_ref", "user/7"),
        ("executor", "Agent"),
        ("event_domain", "sales"),
        ("idempotency_key", "k"),
        ("actor", "tester"),
        ("run_id", "0190f5a4-5c2e-7bb0-9f33-0123456789ab"),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!((&job["priority"], &job["max_attempts"]), (&250.into(), &2.into()));
    assert_eq!(job["payload_json"]["message"], "m/1");
    let due: jiff::Timestamp = job["scheduled_at"].as_str().unwrap().parse().unwrap();
    assert!(due > jiff::Timestamp::now() + Duration::from_secs(7000), "two hours ahead: {due}");
    assert_eq!(shell.db.text("select count(*) from towpath.job").await, "1");
}

/// O02: a refused enqueue says why, and writes nothing.
#[tokio::test]
async fn bad_jobs_are_refused_with_the_reason() {
    let shell = Shell::open().await;
    let fails =
        |arguments: &[&str], part| says(&shell.fails(&[&["job", "enqueue"], arguments].concat()), &[part]);
    fails(&["x", "--payload", "{nope"], "not JSON");
    fails(&["x", "--payload", "@missing.json"], "cannot read missing.json");
    fails(&["x", "--payload", r#"{"a": {"Secret": 1}}"#], "Secret");
    fails(&["x", "--executor", "MOT"], "whitelist");
    fails(&[" "], "must not be blank");
    fails(&["x", "--max-attempts", "0"], "between 1 and 1000");
    fails(&["x", "--payload", "[1]"], "must be a JSON object");
    fails(&["x\n"], "control characters");
    shell.code(2, &["job", "enqueue", "x", "--at", "yesterday"]);
    assert_eq!(shell.db.text("select count(*) from towpath.job").await, "0");
    let by = Attribution { actor: "tester", reason: "a test" };
    shell.database.gate_set("queue.job_substrate.enabled", GateMove::Close, by).await.unwrap();
    fails(&["x"], "gate queue.job_substrate.enabled is closed; open it with: towpath gate open");
}

/// Q22: stored text cannot control a terminal: neither an error, nor the kind of a row that was written without our
/// functions, nor an error message.
#[tokio::test]
async fn stored_text_never_reaches_a_terminal_raw() {
    let shell = Shell::open().await;
    let job = shell.enqueue("mail").await;
    let failure = Failure::retry("bad\u{1b}]0;owned\u{7}\u{9b}2J");
    shell.claim().await.lease.fail(&shell.database, failure).await.unwrap();
    shell
        .db
        .execute("alter domain towpath.label drop constraint label_not_blank_short_and_plain_check")
        .await;
    shell.db.execute("select towpath._job_lane(E'old\\x1b[31m\\nkind', 'PG_worker', 100, null)").await;
    shell
        .db
        .execute(
            "insert into towpath.job select (jsonb_populate_record(j, jsonb_build_object(
                 'job_id', towpath._uuid7((date_part('epoch', towpath.fn_now()) * 1000000)::bigint),
                 'job_kind', E'old\\x1b[31m\\nkind'))).* from towpath.job j",
        )
        .await;
    shell
        .db
        .execute(
            "insert into towpath.job_live (job_id, due_at, lane, max_attempts)
             select j.job_id, j.scheduled_at, (select max(l.lane) from towpath.job_lane l), 5
               from towpath.job j where j.job_kind like 'old%'",
        )
        .await;
    let shown = shell.ok(&["job", "show", &job]);
    assert!(shown.contains(r"bad\u{1b}]0;owned\u{7}\u{9b}2J"), "{shown}");
    let listed = shell.ok(&["job", "list"]);
    assert!(listed.contains(r"old\u{1b}[31m\nkind"), "{listed}");
    let complaint = shell.fails(&["job", "enqueue", "x", "--executor", "\u{1b}[2J"]);
    let json = shell.ok(&["--json", "job", "show", &job]);
    let (backlog, top) = (shell.ok(&["queue", "backlog"]), shell.ok(&["top", "--once"]));
    for printed in [shown, listed, complaint, json, backlog, top] {
        assert!(!printed.contains(|c: char| c.is_control() && c != '\n'), "{printed:?}");
    }
}

/// O04: lists narrow by every column, page on, and stay machine-readable.
#[tokio::test]
async fn lists_narrow_and_page() {
    let shell = Shell::open().await;
    for _ in 0..3 {
        shell.enqueue("mail").await;
    }
    let other = shell.enqueue("report").await;
    let ids = |arguments: &[&str]| -> Vec<String> {
        let page = shell.json(&[&["job", "list"], arguments].concat());
        page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["job_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&[]).len(), 4);
    assert_eq!(ids(&["--kind", "report"]), [other.as_str()]);
    assert_eq!(ids(&["--state", "queued", "--since", "1h"]).len(), 4);
    assert!(ids(&["--state", "succeeded"]).is_empty() && ids(&["--before", "1h"]).is_empty());
    assert_eq!(ids(&["--key", &other]), [other.as_str()]);
    let first = shell.json(&["job", "list", "--limit", "3"]);
    let rest = ids(&["--after", first["cursor"].as_str().unwrap()]);
    assert_eq!(rest.len(), 1, "the page after");
    says(&shell.ok(&["job", "list", "--limit", "3"]), &["KIND", "report", "0/5", "more: --after"]);
    assert_eq!(shell.ok(&["job", "list", "--kind", "nothing"]).trim(), "no jobs");
    let stderr = shell.command(&["job", "list", "--state", "inprogress"]).output().unwrap().stderr;
    says(&String::from_utf8(stderr).unwrap(), &["did you mean in_progress?"]);
}

/// Q20: `why` says why a job is not running, and what to do.
#[tokio::test]
async fn why_says_each_reason_in_words() {
    let shell = Shell::open().await;
    let by = Attribution { actor: "tester", reason: "disk full" };
    let job = shell.enqueue("mail").await;
    let why = |job: &str, parts: &[&str]| says(&shell.ok(&["job", "why", job]), parts);
    why(&job, &["is queued", "no worker of w is running", "next: towpath work --executor w"]);
    shell.database.queue_pause("mail", by).await.unwrap();
    why(&job, &["tester paused the kind mail", "disk full", "next: towpath queue resume mail"]);
    shell.database.queue_resume("mail", "tester").await.unwrap();
    shell.database.gate_set("queue.worker.enabled", GateMove::Close, by).await.unwrap();
    why(&job, &["queue.worker.enabled is closed", "next: towpath gate open queue.worker.enabled --why"]);
    shell.database.gate_set("queue.worker.enabled", GateMove::Open, by).await.unwrap();
    shell.ok(&["executor", "disable", "w"]);
    why(&job, &["the subscription of w is disabled", "next: towpath executor enable w"]);
    shell.ok(&["executor", "enable", "w"]);
    let later = shell.json(&["job", "enqueue", "mail", "--at", "1d"]);
    why(later["job_id"].as_str().unwrap(), &["scheduled for"]);
    let stranger = shell.json(&["job", "enqueue", "mail", "--executor", "Hermes"]);
    why(stranger["job_id"].as_str().unwrap(), &["no enabled subscription covers kind mail, executor Hermes"]);
    let claimed = shell.claim().await;
    why(&job, &["is leased", "w-1 has leased it (attempt 1)"]);
    claimed.lease.fail(&shell.database, Failure::retry("no network")).await.unwrap();
    why(&job, &["is retry_waiting", "attempt 1 failed"]);
    shell.ok(&["job", "cancel", &job, "--why", "not needed"]);
    why(&job, &["finished as cancelled", "not needed"]);
    let codes = shell.json(&["job", "why", &job]);
    assert_eq!(codes["reasons"][0]["code"], "finished");
    says(&shell.fails(&["job", "why", "0190f5a4-5c2e-7bb0-9f33-0123456789ab"]), &["there is no job"]);
}

/// Q20: `show` prints a job's whole history, with who and when.
#[tokio::test]
async fn show_tells_the_whole_story() {
    let shell = Shell::open().await;
    let job = shell.dead("mail", "address is unknown").await;
    let retried =
        shell.json(&["job", "retry", &job, "--by", "tester"])["job_id"].as_str().unwrap().to_owned();
    let text = shell.ok(&["job", "show", &job]);
    says(
        &text,
        &["dead_letter", "address is unknown", "enqueued", "claimed", "w-1", "replayed", "tester", &retried],
    );
    says(&shell.ok(&["job", "show", &retried]), &["replay of", &job, "queued"]);
    let claimed =
        shell.json(&["job", "enqueue", "mail", "--by", "alice"])["job_id"].as_str().unwrap().to_owned();
    says(&shell.ok(&["job", "show", &claimed]), &["by alice (claimed by login "]);
    let history = &shell.json(&["job", "show", &job])["history"];
    let events: Vec<&str> =
        history.as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["enqueued", "claimed", "dead_letter", "triaged", "replayed"], "{history}");
}

/// Q12, Q17: cancel ends an unfinished job; retry runs a waiting job now and replays a dead letter, once; otherwise
/// both say what is wrong.
#[tokio::test]
async fn cancel_and_retry_do_what_the_state_allows() {
    let shell = Shell::open().await;
    let waiting =
        shell.json(&["job", "enqueue", "mail", "--at", "1d"])["job_id"].as_str().unwrap().to_owned();
    says(&shell.ok(&["job", "retry", &waiting]), &["is due now"]);
    assert_eq!(shell.claim().await.lease.job_id().to_string(), waiting);
    says(&shell.fails(&["job", "retry", &waiting]), &["it is leased", "job why"]);
    says(&shell.ok(&["job", "cancel", &waiting, "--why", "not needed"]), &["is cancelled"]);
    says(&shell.fails(&["job", "cancel", &waiting, "--why", "again"]), &["it has finished as cancelled at "]);
    says(&shell.fails(&["job", "retry", &waiting]), &["is cancelled; enqueue it again"]);
    let failing = shell.enqueue("mail").await;
    let claimed = shell.claim().await;
    claimed.lease.fail(&shell.database, Failure::retry("no network")).await.unwrap();
    says(&shell.ok(&["job", "retry", &failing]), &["is due now"]);
    shell.claim().await.lease.ack(&shell.database).await.unwrap();
    let dead = shell.dead("mail", "gone").await;
    let fresh = shell.json(&["job", "retry", &dead])["job_id"].as_str().unwrap().to_owned();
    says(&shell.fails(&["job", "retry", &dead]), &["already replayed", &fresh]);
    let running = shell.claim().await;
    assert_eq!(running.lease.job_id().to_string(), fresh);
    shell.ok(&["job", "cancel", &fresh, "--why", "stop"]);
    let lost = running.lease.ack(&shell.database).await.unwrap_err();
    assert!(matches!(lost, towpath_db::Error::LeaseLost(_)), "the worker is told: {lost}");
    says(&shell.fails(&["job", "retry", "0190f5a4-5c2e-7bb0-9f33-0123456789ab"]), &["there is no job"]);
}

/// Q09: watch follows a job with its progress to its end, and its exit code says how it ended.
#[tokio::test(flavor = "multi_thread")]
async fn watch_follows_a_job_to_its_end() {
    let shell = Shell::open().await;
    let good = shell.enqueue("mail").await;
    shell.code(3, &["job", "watch", &good, "--timeout", "0"]);
    let mut watching = Victim::spawn(shell.command(&["job", "watch", &good]));
    watching.wait_for_line("queued").await;
    let claimed = shell.claim().await;
    claimed.lease.start(&shell.database).await.unwrap();
    let progress = Progress { percent: Some(30), message: Some("warming up") };
    claimed.lease.progress(&shell.database, progress).await.unwrap();
    watching.wait_for_line("in_progress, 30 %: warming up").await;
    claimed.lease.ack(&shell.database).await.unwrap();
    watching.wait_for_line("succeeded").await;
    assert_eq!(watching.wait_exit().await.code(), Some(0));
    let bad = shell.dead("mail", "address is unknown").await;
    let lines = shell.code(4, &["--json", "job", "watch", &bad]);
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["error"]), (&"dead_letter".into(), &"address is unknown".into()));
}

/// Q18: a graph is enqueued whole or not at all, from a file or a pipe, and can be looked at.
#[tokio::test]
async fn graphs_are_emitted_and_shown() {
    let shell = Shell::open().await;
    let emit = |graph: &str| {
        let mut command = shell.command(&["--json", "job", "graph", "emit", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(graph.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let refused = |graph: &str, parts: &[&str]| {
        let output = emit(graph);
        assert_eq!(output.status.code(), Some(1));
        says(&String::from_utf8(output.stderr).unwrap(), parts);
    };
    let nodes = r#""nodes": [{"node": "a", "job_kind": "x"}, {"node": "b", "job_kind": "x"}]"#;
    refused(
        &format!(r#"{{{nodes}, "edges": [{{"from": "a", "to": "b"}}, {{"from": "b", "to": "a"}}]}}"#),
        &["cycle", "a, b"],
    );
    refused(&format!(r#"{{{nodes}, "edges": [{{"from": "a", "to": "z"}}]}}"#), &["unknown node"]);
    refused(r#"{"nodes": [{"node": "n1", "job_kind": "x", "executor": "MOT"}]}"#, &["node n1", "whitelist"]);
    refused("[", &["- is not JSON"]);
    assert_eq!(shell.db.text("select count(*) from towpath.job").await, "0", "all or nothing");
    let output = emit(&format!(
        r#"{{"name": "nightly", {nodes}, "edges": [{{"from": "a", "to": "b", "on_failure": "hold"}}]}}"#
    ));
    let emitted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let graph = emitted["graph_id"].as_str().unwrap();
    says(&shell.ok(&["job", "graph", "show", graph]), &["graph nightly", "  b", "a (held if it fails)"]);
    let drawn = shell.ok(&["job", "graph", "show", graph, "--draw", "mermaid"]);
    says(&drawn, &["flowchart TD", "n0[\"a: queued\"]", "n0 -.-> n1"]);
    let drawn = shell.ok(&["job", "graph", "show", graph, "--draw", "dot"]);
    says(&drawn, &["digraph \"nightly\"", "n0 -> n1 [style=dashed];"]);
    let child = emitted["jobs"]["b"].as_str().unwrap();
    says(
        &shell.ok(&["job", "why", child]),
        &["it is waiting for job", emitted["jobs"]["a"].as_str().unwrap()],
    );
    shell.claim().await.lease.ack(&shell.database).await.unwrap();
    says(&shell.ok(&["job", "graph", "show", graph]), &["succeeded", "a (done)"]);
    says(&shell.fails(&["job", "graph", "show", child]), &["there is no graph"]);
}
