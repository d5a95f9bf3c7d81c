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
    assert_eq!(messages[0]["value"], "before", "{messages:?}");
    assert_eq!(messages.last().unwrap()["value"]["state"], "cancelled", "{messages:?}");
    up.terminate();
    up.wait_exit().await;
}
