//! The stream of a job across the death of the server.

use serde_json::{Value, json};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

/// Q24: a server that is killed between an append and the end of the job closes the stream after its restart, with the state
/// that the command line gave the job meanwhile.
#[tokio::test]
async fn a_stream_is_closed_after_a_kill() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    let line = up.wait_for_line("export TOWPATH_URL=").await;
    let token = line.trim().split_once("TOWPATH_TOKEN=").unwrap().1.to_owned();
    let url = format!("http://127.0.0.1:{}", place.port);
    let http = reqwest::Client::new();
    let post = async |path: String, body: Value| -> Value {
        let request = http.post(format!("{url}/api/v1/{path}")).bearer_auth(&token).body(body.to_string());
        request.send().await.unwrap().json().await.unwrap()
    };
    post("executors/register".into(), json!({"kinds": ["resize"]})).await;
    let enqueued = post("jobs/enqueue".into(), json!({"job_kind": "resize"})).await;
    let job_id = enqueued["job_id"].as_str().unwrap().to_owned();
    let claimed = post("jobs/claim".into(), json!({"wait_seconds": 20})).await;
    let attempt = &claimed["jobs"][0]["attempt"];
    let appended = post(format!("jobs/{job_id}/append"), json!({"attempt": attempt, "data": "before"})).await;
    assert_eq!(appended["ok"], true, "{appended}");
    let page = post(format!("jobs/{job_id}/token"), json!({})).await;
    up.kill().await;
    place.until_empty().await;
    place.ok(&["job", "cancel", &job_id, "--why", "enough"]);
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let stream = format!("{url}{}?offset=-1", page["stream"].as_str().unwrap());
    let messages: Vec<Value> = wait::until_some("the end of the stream", async || {
        let request = http.get(&stream).bearer_auth(page["token"].as_str().unwrap());
        let response = request.send().await.ok()?;
        let closed = response.headers().get("stream-closed").is_some();
        let messages = response.json().await.ok()?;
        closed.then_some(messages)
    })
    .await;
    assert!(messages.iter().any(|message| message["value"] == "before"), "{messages:?}");
    assert_eq!(messages.last().unwrap()["value"]["state"], "cancelled", "{messages:?}");
    up.terminate();
    up.wait_exit().await;
}

const WORKER_URL: &str = "TOWPATH_TEST_WORKER_URL";

/// Not a test: a worker with a database connection, as a process of its own.
#[tokio::test]
#[ignore = "a process of a test"]
async fn worker_process() {
    let Ok(url) = std::env::var(WORKER_URL) else { return };
    let database = towpath_db::Database::connect(&url).await.unwrap();
    let render = async |_: Value, ctx: towpath_worker::Context| {
        ctx.progress(10, "begun").await?;
        ctx.append(&json!({ "page": ctx.attempt().number() })).await?;
        if ctx.attempt().number() == 1 {
            println!("the first attempt waits");
            std::future::pending::<()>().await;
        }
        ctx.progress(90, "nearly").await?;
        Ok(json!({ "pages": 2 }))
    };
    let worker = towpath_worker::Worker::builder(database, "renderer")
        .register()
        .lease(std::time::Duration::from_secs(2))
        .handle_kind("render", towpath_worker::Options::default(), render)
        .build()
        .unwrap();
    worker.run_until_signal().await.unwrap();
}

/// Q24, Q11, R06: a job that was enqueued before its worker exists is watched through the server while a worker that has
/// only a database connection runs it, is killed, and another one ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_watched_through_the_death_of_its_worker() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let enqueued: Value = serde_json::from_str(&place.ok(&["--json", "job", "enqueue", "render"])).unwrap();
    let job_id = enqueued["job_id"].as_str().unwrap();
    let mut watching = Victim::spawn(place.command(&["job", "watch", job_id]));
    watching.wait_for_line("queued").await;
    let url = place.ok(&["db", "url"]).trim().to_owned();
    let worker = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "job_stream::worker_process", "--ignored", "--nocapture"]);
        command.env(WORKER_URL, &url);
        Victim::spawn(command)
    };
    let mut first = worker();
    watching.wait_for_line("10 %: begun").await;
    // Only the stream has what a handler appends.
    watching.wait_for_line(r#"{"page":1}"#).await;
    first.kill().await;
    watching.wait_for_line("retry_waiting").await;
    place.ok(&["job", "retry", job_id]);
    let mut second = worker();
    watching.wait_for_line(r#"{"page":2}"#).await;
    watching.wait_for_line(r#"succeeded, attempt 2 of 5: {"pages":2}"#).await;
    assert_eq!(watching.wait_exit().await.code(), Some(0));
    second.terminate();
    second.wait_exit().await;
    up.terminate();
    up.wait_exit().await;
}
