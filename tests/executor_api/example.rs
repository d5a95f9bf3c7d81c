//! The example workers of `examples/workers`, run against a real server.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_db::job::NewJob;
use towpath_testkit::victim::Victim;

use super::Api;
use crate::towpath::WAIT_MAX;

/// Works through good and bad jobs, lives visibly, and stops cleanly on a signal.
#[expect(clippy::print_stdout, reason = "a test that was skipped should say so")]
async fn works(interpreter: &str, file: &str) {
    if Command::new(interpreter).arg("--version").output().is_err() {
        println!("skipped: {interpreter} is not installed, so examples/workers/{file} was not run");
        return;
    }
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let mut command = Command::new(interpreter);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workers").join(file));
    command.env("TOWPATH_URL", api.server.url("")).env("EXECUTOR_TOKEN", &token);
    let mut worker = Victim::spawn(command);
    worker.wait_for_line("working").await;
    for n in 0..5 {
        enqueue(&api, json!({"n": n})).await;
    }
    enqueue(&api, json!({"fail": true})).await;
    let ended = "select count(*) from towpath.job_queue where state in ('succeeded', 'dead_letter')";
    let deadline = Instant::now() + WAIT_MAX;
    while api.db.text(ended).await != "6" {
        assert!(Instant::now() < deadline, "{:?}", worker.lines());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.wait_for_line("done resize {\"n\"").await;
    assert_eq!(api.db.text("select count(*) from towpath.job_queue where state = 'succeeded'").await, "5");
    let error = api.db.text("select final_error from towpath.job_dead_letter").await;
    assert!(error.contains("Error: told to fail"), "{error}");
    let owner = api.db.text("select max(lease_owner) from towpath.job_run").await;
    assert!(owner.starts_with("py/") && owner.contains(&format!("-{}@", worker.pid())), "{owner}");
    assert_eq!(api.db.text("select executor_name from towpath.queue_heartbeat").await, "py");
    worker.terminate();
    assert_eq!(worker.wait_exit(WAIT_MAX).await.code(), Some(0), "{:?}", worker.lines());
}

async fn enqueue(api: &Api, payload: Value) {
    let job = NewJob::new("resize").executor("external_worker").max_attempts(1).payload(&payload).unwrap();
    api.database.enqueue(&job).await.unwrap();
}

/// Issue 7: any language can work. Python, with nothing but its standard library.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_works() {
    works("python3", "worker.py").await;
}

/// Issue 7: any language can work. Node.js, without dependencies, types in comments.
#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_worker_works() {
    works("node", "worker.mjs").await;
}
