//! Credentials in error texts: masked the same way in SQL and in Rust, wherever an error is kept.

use serde_json::json;
use towpath_db::job::{Failure, NewJob};
use towpath_model::mask::masked;
use towpath_testkit::TestDb;
use towpath_testkit::queue::Queue;

use crate::seed::seed;

/// What texts are made of: names, signs, quotes, tokens and their halves, and what lies around them.
const PIECES: &[&str] = &[
    "token",
    "Password",
    "passwd",
    "api_key",
    "api-key",
    "apiKey",
    "access",
    "secret",
    "_key",
    "s",
    "pwd",
    "cookie",
    "client_secret",
    "credentials",
    "jwt",
    "Authorization",
    "AUTHORIZATION",
    "Bearer",
    "bearer",
    "BEARER",
    "basic",
    "Digest",
    "negotiate",
    "=",
    ":",
    "=>",
    "::",
    " ",
    "  ",
    "\t",
    "\n",
    "\"",
    "'",
    "\\",
    "\\\"",
    ",",
    ";",
    "&",
    "}",
    "{",
    "://",
    "user",
    "@",
    "/",
    "host",
    "-----BEGIN ",
    "RSA PRIVATE KEY",
    "-----",
    "-----END ",
    "-",
    "eyJ",
    "eyJhbGciOi",
    ".",
    "eyJzdWIiOi",
    "c2lnbmF0dXJl",
    "sk_",
    "sk-",
    "tpx_",
    "re_",
    "whsec_",
    "ghp_",
    "github_pat_",
    "xoxb-",
    "glpat-",
    "live_",
    "0123456789abcdef",
    "AbCdEfGhIjKlMnOp",
    "lowercaseonly",
    "AKIA",
    "ASIA",
    "IOSFODNN7EXAMPLE",
    "AIza",
    "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "x",
    "7",
    "ä",
    "ß",
    "\u{17f}",
    "\u{212a}",
    "***",
    "<",
    ">",
    "_",
    "failed",
    "Z9",
];

/// D9: the function in SQL and the one in Rust give the same answer to any text, and masking twice changes nothing.
#[tokio::test]
async fn sql_and_rust_mask_the_same() {
    let db = TestDb::new().await;
    let mut random = fastrand::Rng::with_seed(seed());
    let texts: Vec<String> = (0..5_000)
        .map(|_| (0..random.usize(1..14)).map(|_| *random.choice(PIECES).unwrap()).collect())
        .collect();
    let rows = db
        .client()
        .await
        .query(
            "select towpath._text_masked(t) from unnest($1::text[]) with ordinality as u(t, n) order by n",
            &[&texts],
        )
        .await
        .unwrap();
    let mut changed = 0;
    for (text, row) in texts.iter().zip(&rows) {
        let in_sql: String = row.get(0);
        assert_eq!(masked(text), in_sql, "{text:?}");
        changed += usize::from(*text != in_sql);
    }
    assert!(changed > 500, "the texts have something to mask: {changed}");
}

/// What drivers and providers put into their messages.
const LEAKS: [&str; 8] = [
    "kaboom token=hunter2abc for 7",
    "401 with Authorization: Bearer hunter2abc",
    "password: hunter2abc was refused",
    "cannot reach amqp://bob:hunter2abc@mq:5672/v",
    "got eyJhbGciOi.eyJodW50ZXIyYWJj.hunter2abc back",
    "AKIAHUNTER2ABCDEFGHI is not allowed",
    "bad key -----BEGIN PRIVATE KEY-----\nhunter2abc\n-----END PRIVATE KEY-----",
    "tpx_hunter2abc0123456789 expired",
];

/// D9: no door keeps a credential: not a failure that is tried again, not the last one, alone or in a batch, and not a
/// move to the dead letters by hand.
#[tokio::test]
async fn no_job_keeps_a_credential_of_its_error() {
    let queue = Queue::open().await;
    for leak in LEAKS {
        queue.enqueue_job(&NewJob::new("mail").max_attempts(2)).await;
        queue.claim().await.fail(&queue.worker, Failure::retry(leak)).await.unwrap();
        let kept =
            queue.db.text("select last_error from towpath.job_queue where state = 'retry_waiting'").await;
        assert!(kept.contains("***"), "{leak}: {kept}");
        queue.db.execute("select towpath.fn_job_cancel(job_id, 'ann') from towpath.job_queue where state = 'retry_waiting'").await;
        queue.enqueue("mail").await;
        queue.claim().await.fail(&queue.worker, Failure::permanent(leak)).await.unwrap();
        queue.enqueue("mail").await;
        let lease = queue.claim().await;
        let failures =
            json!([{"job_id": lease.job_id(), "attempt": lease.attempt(), "error": leak, "permanent": true}]);
        let many = queue.db.client_as("worker_service_user").await;
        let answer: serde_json::Value = many
            .query_one(
                "select towpath.fn_job_fail_or_retry_many($1, $2)",
                &[&lease.owner().as_str(), &failures],
            )
            .await
            .unwrap()
            .get(0);
        assert_eq!(answer["dead_letter"].as_array().unwrap().len(), 1, "{answer}");
        let job_id = queue.enqueue("mail").await;
        let moved = format!("towpath.fn_job_move_to_dead_letter('{job_id}', '{leak}', 'ann')");
        assert_eq!(queue.db.json(&moved).await["ok"], true);
    }
    let letters = "select count(*) from towpath.job_dead_letter where final_error like '%***%'";
    assert_eq!(queue.number(letters).await, 3 * LEAKS.len());
    let everything = "select (select string_agg(j::text, ' ') from towpath.job_queue j)
        || (select string_agg(r::text, ' ') from towpath.job_run r)
        || (select string_agg(d::text, ' ') from towpath.job_dead_letter d)";
    let everything = queue.db.text(everything).await;
    assert!(!everything.to_lowercase().contains("hunter2abc"), "{everything}");
}
