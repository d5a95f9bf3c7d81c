//! The example workers of `examples/workers`, run against a real server.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use towpath_db::job::NewJob;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use super::Api;
use super::meddler::Meddler;
use crate::towpath::words;

/// Works through good and bad jobs, lives visibly, and stops cleanly on a signal.
async fn works(interpreter: &str, program: &Path) {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let mut command = Command::new(interpreter);
    command.arg(program).env("TOWPATH_URL", api.server.url("")).env("EXECUTOR_TOKEN", &token);
    let mut worker = Victim::spawn(command);
    worker.wait_for_line("working").await;
    for n in 0..5 {
        enqueue(&api, json!({"n": n})).await;
    }
    enqueue(&api, json!({"fail": true})).await;
    let ended = "select count(*) from towpath.job_queue where state in ('succeeded', 'dead_letter')";
    wait_for(&api, ended, "6").await;
    worker.wait_for_line("done resize {\"n\"").await;
    assert_eq!(api.db.text("select count(*) from towpath.job_queue where state = 'succeeded'").await, "5");
    let error = api.db.text("select final_error from towpath.job_dead_letter").await;
    assert!(error.contains("Error: told to fail"), "{error}");
    let owner = api.db.text("select max(lease_owner) from towpath._job_run_each").await;
    assert!(owner.starts_with("py/") && owner.contains(&format!("-{}@", worker.pid())), "{owner}");
    assert_eq!(api.db.text("select executor_name from towpath.queue_heartbeat").await, "py");
    worker.terminate();
    assert_eq!(worker.wait_exit().await.code(), Some(0), "{:?}", worker.lines());
}

async fn enqueue(api: &Api, payload: Value) {
    let job = NewJob::new("resize").executor("external_worker").max_attempts(1).payload(&payload).unwrap();
    api.database.enqueue(&job).await.unwrap();
}

/// Jobs that are cancelled under its hands, a lease that cannot be extended once, and a stop in the middle of a
/// batch: the worker drops what is lost, goes on, claims many jobs with one call and acknowledges many with one.
async fn survives(interpreter: &str, program: &Path) {
    let api = Api::start().await;
    let meddler = Meddler::start(api.server.url(""), api.database.clone()).await;
    let token = api.token("py", &[]).await;
    let batch = [
        json!({"n": 0}),
        json!({"n": 1, "cancel_at": "start"}),
        json!({"n": 2, "cancel_at": "progress"}),
        json!({"n": 3, "cancel_at": "fail", "fail": true}),
        json!({"n": 4, "extend_fails": true}),
        json!({"n": 5, "cancel_at": "ack_many"}),
        json!({"n": 6}),
    ];
    for payload in batch {
        enqueue(&api, payload).await;
    }
    let mut command = Command::new(interpreter);
    command.arg(program).env("TOWPATH_URL", &meddler.url).env("EXECUTOR_TOKEN", &token);
    command.env("LEASE_SECONDS", "1").env("ACK_SECONDS", "60");
    let mut worker = Victim::spawn(command);
    let states = "select string_agg(left(state, 1), '' order by payload_json ->> 'n') from towpath.job_queue";
    wait_for(&api, states, "scccscs").await;
    let claimed = &meddler.calls("claim")[0].1["jobs"];
    assert_eq!(claimed.as_array().unwrap().len(), 7, "one claim takes them all");
    assert!(meddler.calls("ack").is_empty(), "acknowledged together");
    let acked = meddler.calls("ack_many");
    assert_eq!((acked.len(), acked[0].0["jobs"].as_array().map(Vec::len)), (1, Some(4)), "{acked:?}");

    let rest = [json!({"n": 7, "hold": true}), json!({"n": 8})];
    let rest = rest.map(|payload| NewJob::new("resize").payload(&payload).unwrap());
    api.database.enqueue_many(&rest).await.unwrap();
    meddler.wait_held().await;
    worker.terminate();
    worker.wait_for_line("stopping").await;
    meddler.let_go();
    assert_eq!(worker.wait_exit().await.code(), Some(0), "{:?}", worker.lines());
    assert_eq!(
        api.db.text(states).await,
        "scccscssq",
        "the job in hand is finished, the other one given back"
    );
}

async fn wait_for(api: &Api, sql: &str, prefix: &str) {
    wait::until(prefix, async || api.db.text(sql).await, |text| text.starts_with(prefix)).await;
}

/// The directory of the examples.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workers")
}

/// Whether a program that an example needs is here; says so if not.
#[expect(clippy::print_stdout, reason = "a test that was skipped should say so")]
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed, so its example worker was not run");
    }
    found
}

/// Checks the types of the TypeScript example and compiles it, with the compiler its lock file names, in
/// a copy: the tree stays as it is.
fn compiled() -> PathBuf {
    let (from, to) =
        (examples().join("typescript"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker-ts"));
    std::fs::create_dir_all(&to).unwrap();
    for file in ["package.json", "package-lock.json", "tsconfig.json", "worker.ts"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    for arguments in [&["ci", "--no-audit", "--no-fund"][..], &["run", "build"]] {
        let output = Command::new("npm").args(arguments).current_dir(&to).output().unwrap();
        assert!(output.status.success(), "npm {arguments:?}: {}", words(&output));
    }
    to.join("build/worker.js")
}

/// Issue 7: any language can work. Python, with nothing but its standard library.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_works() {
    if has("python3") {
        works("python3", &examples().join("worker.py")).await;
    }
}

/// Issue 7, Q08: any language can work. TypeScript, type-checked, without dependencies when it runs. A cancelled
/// job does not end the worker, nor a failed extension its lease keeper.
#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_worker_works_and_survives_lost_leases() {
    if has("npm") && has("node") {
        let program = compiled();
        works("node", &program).await;
        survives("node", &program).await;
    }
}

/// Q08: a cancelled job does not end the Python worker, nor a failed extension its lease keeper.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_survives_lost_leases() {
    if has("python3") {
        survives("python3", &examples().join("worker.py")).await;
    }
}
