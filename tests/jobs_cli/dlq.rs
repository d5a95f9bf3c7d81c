//! `towpath dlq`.

use towpath_db::job::NewJob;

use super::{Shell, says};

/// Q12: dead letters are listed by filter and shown whole, by their id or their job's.
#[tokio::test]
async fn letters_are_listed_and_shown() {
    let shell = Shell::open().await;
    let job = shell.dead("mail", "address is unknown").await;
    shell.dead("report", "no such table").await;
    let listed = shell.json(&["dlq", "list", "--kind", "mail"]);
    let letters = listed["dead_letters"].as_array().unwrap();
    assert_eq!((letters.len(), &letters[0]["job_id"]), (1, &job.as_str().into()));
    let id = letters[0]["dead_letter_id"].as_str().unwrap();
    for name in [id, &job] {
        says(&shell.ok(&["dlq", "show", name]), &["address is unknown", "pending", &job, id]);
    }
    says(&shell.ok(&["dlq", "list", "--error", "table"]), &["report", "no such table"]);
    assert_eq!(shell.ok(&["dlq", "list", "--status", "closed"]).trim(), "no dead letters");
    let page = shell.json(&["dlq", "list", "--limit", "1"]);
    let rest = shell.json(&["dlq", "list", "--after", page["cursor"].as_str().unwrap()]);
    assert_eq!(rest["dead_letters"].as_array().unwrap().len(), 1);
    says(
        &shell.fails(&["dlq", "show", "0190f5a4-5c2e-7bb0-9f33-0123456789ab"]),
        &["no dead letter", "dlq list"],
    );
}

/// Q12: the five triage states, with who and why.
#[tokio::test]
async fn triage_moves_the_status() {
    let shell = Shell::open().await;
    let job = shell.dead("mail", "address is unknown").await;
    for status in ["acknowledged", "manual_replay", "escalated", "closed", "pending"] {
        shell.ok(&["dlq", "triage", &job, status, "--why", "ticket 7", "--by", "tester"]);
        says(&shell.ok(&["dlq", "show", &job]), &[status, "tester", "ticket 7"]);
    }
    shell.code(2, &["dlq", "triage", &job, "forgotten", "--why", "x"]);
}

/// Q12: a filter is previewed with a count, done with --yes, and never empty; a letter is
/// replayed once.
#[tokio::test]
async fn replay_by_filter_is_previewed_first() {
    let shell = Shell::open().await;
    for _ in 0..3 {
        shell.dead("mail", "no network").await;
    }
    shell.dead("report", "no such table").await;
    says(&shell.fails(&["dlq", "replay"]), &["would replay every dead letter", "--kind"]);
    says(&shell.fails(&["dlq", "replay", "--yes"]), &["would replay every dead letter"]);
    let jobs = || shell.db.text("select count(*) from towpath.job");
    assert_eq!(jobs().await, "4", "nothing was touched");
    let preview = shell.code(3, &["dlq", "replay", "--error", "no"]);
    says(&preview, &["mail", "3", "report", "4 dead letters match", "--yes"]);
    assert_eq!(jobs().await, "4", "a preview touches nothing");
    says(&shell.ok(&["dlq", "replay", "--error", "network", "--yes"]), &["3 dead letters replayed"]);
    assert_eq!(jobs().await, "7");
    assert_eq!(shell.json(&["dlq", "replay", "--error", "network"])["would_replay"], 0, "each once");
    says(&shell.ok(&["dlq", "list", "--status", "manual_replay"]), &["mail"]);
}

/// Letters whose idempotency key an unfinished job has are skipped and named, with code 3.
#[tokio::test]
async fn a_letter_whose_key_is_taken_is_left() {
    let shell = Shell::open().await;
    for kind in ["mail", "report"] {
        shell.database.enqueue(&NewJob::new(kind).idempotency_key(kind)).await.unwrap();
        let failure = towpath_db::job::Failure::permanent("gone");
        shell.claim().await.lease.fail(&shell.database, failure).await.unwrap();
    }
    shell.database.enqueue(&NewJob::new("mail").idempotency_key("mail")).await.unwrap();
    says(
        &shell.code(3, &["dlq", "replay", "--error", "gone", "--yes"]),
        &["1 dead letters replayed", "1 skipped"],
    );
}

/// Several by id, by their own ids and by the ids of their jobs.
#[tokio::test]
async fn letters_are_replayed_by_id() {
    let shell = Shell::open().await;
    let (first, second) = (shell.dead("mail", "a").await, shell.dead("mail", "b").await);
    let letter = shell.json(&["dlq", "show", &first])["dead_letter_id"].as_str().unwrap().to_owned();
    let done = shell.json(&["dlq", "replay", &letter, &second, "--by", "tester"]);
    assert_eq!(done["replayed"].as_array().unwrap().len(), 2);
    says(&shell.fails(&["dlq", "replay", &letter]), &["already replayed"]);
    shell.code(2, &["dlq", "replay", &letter, "--kind", "mail"]);
}
