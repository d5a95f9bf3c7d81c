//! The stream of a job: its progress, what its handler appends, its end, and the token for a page that follows it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::Attribution;
use towpath_db::executor_token::TokenSpec;
use towpath_db::job::{Claim, LeaseOwner, Progress};
use towpath_server::{Config, stream};
use towpath_streams::embedded::{self, Embedded};
use towpath_testkit::server::RunningServer;
use towpath_testkit::wait;

use super::{Api, Said, with};

impl Api {
    /// The same with a stream store, which lasts as long as the directory.
    pub(crate) async fn with_streams(directory: &tempfile::TempDir) -> Api {
        let mut api = Api::start().await;
        let path = directory.path().join("streams");
        let open = tokio::task::spawn_blocking(|| Embedded::open(embedded::Config::new(path)));
        let store = open.await.unwrap().unwrap();
        let streams = Some((Arc::new(store) as Arc<_>, stream::Settings::default()));
        let config = Config { database: Some(api.database.clone()), streams, ..Default::default() };
        api.server = RunningServer::start(config).await;
        api
    }

    /// A token for a job, from the holder of another one.
    pub(crate) async fn job_token(&self, token: &str, job_id: &str) -> String {
        let said = self.post(token, &format!("{job_id}/token"), json!({})).await;
        assert_eq!((said.status, &said.body["stream"]), (200, &json!(path(job_id))), "{said:?}");
        said.body["token"].as_str().unwrap().to_owned()
    }

    async fn append(&self, token: &str, held: &Value, data: Value) -> Said {
        let verb = format!("{}/append", held["job_id"].as_str().unwrap());
        self.post(token, &verb, json!({"attempt": held["attempt"], "data": data})).await
    }

    /// The messages of a job's stream, and whether it is closed.
    async fn messages(&self, token: &str, job_id: &str) -> (Vec<Value>, bool) {
        let url = self.server.url(&format!("{}?offset=-1", path(job_id)));
        let response = reqwest::Client::new().get(url).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let closed = response.headers().get("stream-closed").is_some();
        (response.json().await.unwrap(), closed)
    }

    /// The messages once the stream is closed.
    async fn all_messages(&self, token: &str, job_id: &str) -> Vec<Value> {
        wait::until_some("the end of the stream", async || {
            let (messages, closed) = self.messages(token, job_id).await;
            closed.then_some(messages)
        })
        .await
    }
}

fn path(job_id: &str) -> String {
    format!("/v1/jobs/stream/job/{job_id}")
}

/// Q24: a page that follows the stream sees the progress, every value in order, and the end with the result.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_the_life_of_a_job() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    assert_eq!(api.job(&token, &job_id, "").await.body["stream"], json!(null), "there is none yet");
    let held = api.claim(&token).await;
    let page = api.job_token(&token, &job_id).await;
    api.post(&token, "progress", with(&held, &json!({"percent": 40, "message": "half"}))).await;
    assert_eq!(api.append(&token, &held, json!("a")).await.body["key"], "1.0");
    assert_eq!(api.append(&token, &held, json!([1, 2])).await.body["key"], "1.1");
    assert_eq!(api.job(&page, &job_id, "").await.body["stream"], json!(path(&job_id)));
    let result = json!({"url": "s3://out/1", "n": 7});
    assert_eq!(api.post(&token, "ack", with(&held, &json!({"result": result}))).await.status, 200);
    let messages = api.all_messages(&page, &job_id).await;
    let of = |n: usize, field: &str| messages[n]["value"][field].clone();
    assert_eq!((messages.len(), of(0, "state")), (5, json!("leased")), "{messages:?}");
    assert_eq!((of(1, "percent"), of(1, "message")), (json!(40), json!("half")));
    assert_eq!((&messages[2]["type"], &messages[2]["value"]), (&json!("chunk"), &json!("a")));
    assert_eq!((&messages[3]["key"], &messages[3]["value"]), (&json!("1.1"), &json!([1, 2])));
    assert_eq!(
        (of(4, "state"), of(4, "result"), of(4, "percent")),
        (json!("succeeded"), result.clone(), json!(100))
    );
    assert_eq!(messages[4]["headers"]["operation"], "upsert");
    assert_eq!(api.job(&page, &job_id, "").await.body["result"], result);
    assert_eq!(api.append(&token, &held, json!("late")).await.word(), (409, "lease_lost"));
}

/// Q08: a worker that lost its lease appends nothing, before and after the next one has.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_lease_appends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let stalled = api.claim(&token).await;
    assert_eq!(api.append(&token, &stalled, json!("first")).await.status, 200);
    let stranger = api.token("py", &[]).await;
    assert_eq!(api.append(&stranger, &stalled, json!("x")).await.word(), (409, "lease_lost"));
    api.db.advance(Duration::from_secs(7200)).await;
    assert_eq!(api.append(&token, &stalled, json!("slow")).await.status, 200, "it still has the lease");
    api.db.ask("fn_job_reap()").await;
    assert_eq!(api.append(&token, &stalled, json!("lost")).await.word(), (409, "lease_lost"));
    api.db.advance(Duration::from_secs(7200)).await;
    let current = api.claim(&token).await;
    assert_eq!(current["attempt"], 2);
    assert_eq!(api.append(&token, &current, json!("second")).await.body["key"], "2.0");
    assert_eq!(api.append(&token, &stalled, json!("zombie")).await.word(), (409, "lease_lost"));
    assert_eq!(api.post(&token, "ack", current).await.status, 200);
    let page = api.job_token(&token, &job_id).await;
    let messages = api.all_messages(&page, &job_id).await;
    let chunks: Vec<_> = messages.iter().filter(|m| m["type"] == "chunk").map(|m| &m["value"]).collect();
    assert_eq!(chunks, [&json!("first"), &json!("slow"), &json!("second")]);
}

/// Q24, Q08: the stream of a job whose worker has a database connection: its progress and what it appends come while the
/// job runs, what a worker without the lease sends does not, and the end closes it. The token is the database's.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_on_the_database_is_followed_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let job_id = api.enqueue("resize").await;
    let page = api.database.job_token(job_id.parse().unwrap(), Duration::from_secs(60)).await.unwrap();
    let owner = LeaseOwner::new("rust");
    let claim =
        Claim { executor: "py", kinds: None, limit: 1, owner: &owner, lease: Some(Duration::from_secs(60)) };
    let job = api.database.claim(&claim).await.unwrap().pop().unwrap();
    let first = (job.lease.job_id(), job.lease.attempt());
    api.database.job_append(&owner, first, &json!("before anybody follows")).await.unwrap();
    let told = api.job(&page, &job_id, "").await;
    assert_eq!(told.body["stream"], json!(path(&job_id)), "{told:?}");
    let has = async |what: Value| {
        wait::until_some(what.to_string(), async || {
            let (messages, _) = api.messages(&page, &job_id).await;
            let fits = |message: &Value| {
                what.as_object().map_or(message["value"] == what, |fields| {
                    fields.iter().all(|(name, value)| message["value"][name] == *value)
                })
            };
            messages.iter().any(fits).then_some(())
        })
        .await;
    };
    has(json!("before anybody follows")).await;
    for percent in [10, 20] {
        let progress = Progress { percent: Some(percent), message: Some("half") };
        api.database.progress(&owner, first, progress).await.unwrap();
        has(json!({"percent": percent, "message": "half", "attempt": 1})).await;
        api.database.job_append(&owner, first, &json!({"page": percent})).await.unwrap();
        has(json!({"page": percent})).await;
    }
    // The worker dies, and another one gets the job.
    api.db.advance(Duration::from_secs(7200)).await;
    api.db.ask("fn_job_reap()").await;
    has(json!({"state": "retry_waiting", "attempt": 1})).await;
    let lost = api.database.job_append(&owner, first, &json!("zombie")).await.unwrap_err();
    assert!(matches!(lost, towpath_db::Error::LeaseLost(_)), "{lost}");
    api.db.advance(Duration::from_secs(7200)).await;
    let job = api.database.claim(&claim).await.unwrap().pop().unwrap();
    let second = (job.lease.job_id(), job.lease.attempt());
    let lost = api.database.job_append(&owner, first, &json!("zombie")).await.unwrap_err();
    assert!(matches!(lost, towpath_db::Error::LeaseLost(_)), "{lost}");
    api.database.job_append(&owner, second, &json!("again")).await.unwrap();
    let result = serde_json::value::to_raw_value(&json!({"n": 7})).unwrap();
    job.lease.with_result(result).ack(&api.database).await.unwrap();
    let messages = api.all_messages(&page, &job_id).await;
    let chunks: Vec<_> = messages.iter().filter(|m| m["type"] == "chunk").map(|m| m["key"].clone()).collect();
    assert_eq!(chunks, ["1.0", "1.1", "1.2", "2.0"], "{messages:?}");
    let end = &messages.last().unwrap()["value"];
    assert_eq!((&end["state"], &end["result"]), (&json!("succeeded"), &json!({"n": 7})));
}

/// Q24: the stream ends with its job, also if that is cancelled or reaped by another process.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_job_closes_its_stream() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let token = api.token("py", &[]).await;
    for end in ["cancelled", "dead_letter"] {
        let job = json!({"job_kind": "resize", "max_attempts": 1});
        let job_id = api.post(&token, "enqueue", job).await.body["job_id"].as_str().unwrap().to_owned();
        let held = api.claim(&token).await;
        assert_eq!(api.append(&token, &held, json!(1)).await.status, 200);
        let page = api.job_token(&token, &job_id).await;
        assert!(!api.messages(&page, &job_id).await.1, "it is open");
        if end == "cancelled" {
            let by = Attribution { actor: "tester", reason: "enough" };
            api.database.job_cancel(job_id.parse().unwrap(), by).await.unwrap();
        } else {
            api.db.advance(Duration::from_secs(7200)).await;
            api.db.ask("fn_job_reap()").await;
        }
        let messages = api.all_messages(&page, &job_id).await;
        assert_eq!(messages.last().unwrap()["value"]["state"], end, "{messages:?}");
    }
}

/// Q24: the token of a job reads that job and its stream and cancels it, and does nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_job_is_for_that_job() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let token = api.token("py", &[]).await;
    let (own, other) = (api.enqueue("resize").await, api.enqueue("resize").await);
    let page = api.job_token(&token, &own).await;
    api.job_token(&token, &other).await;
    assert_eq!(api.job(&page, &own, "").await.body["state"], "queued");
    assert_eq!(api.job(&page, &other, "").await.word(), (403, "not_authorised"));
    assert_eq!(api.post(&page, &format!("{other}/cancel"), json!({})).await.word(), (403, "not_authorised"));
    assert_eq!(api.post(&page, &format!("{own}/token"), json!({})).await.word(), (403, "not_authorised"));
    assert_eq!(
        api.post(&page, "enqueue", json!({"job_kind": "resize"})).await.word(),
        (403, "not_authorised")
    );
    assert_eq!(
        api.emit_by(&page, json!({"domain": "a", "type": "b"})).await.word(),
        (401, "unauthenticated")
    );
    let attempt = json!({"job_id": own, "attempt": 1, "seconds": 9, "error": "x"});
    for verb in ["claim", "start", "extend", "ack", "fail", "snooze", "heartbeat", &format!("{own}/append")] {
        assert_eq!(api.post(&page, verb, attempt.clone()).await.word(), (401, "unauthenticated"), "{verb}");
    }
    let http = reqwest::Client::new();
    let url = |job_id: &str| api.server.url(&path(job_id));
    assert_eq!(http.get(url(&own)).send().await.unwrap().status(), 401, "the stream needs a token");
    assert_eq!(http.get(url(&other)).bearer_auth(&page).send().await.unwrap().status(), 403);
    let written = http.post(url(&own)).bearer_auth(&page).header("content-type", "application/json");
    assert_eq!(written.body("[1]").send().await.unwrap().status(), 403, "it only reads");
    // A page of another origin may call.
    let call =
        http.get(api.server.url(&format!("/api/v1/jobs/{own}"))).header("origin", "https://app.example");
    let answer = call.bearer_auth(&page).send().await.unwrap();
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example");
    let cancelled = api.post(&page, &format!("{own}/cancel"), json!({"reason": "stop"})).await;
    assert_eq!(cancelled.body["state"], "cancelled", "{cancelled:?}");
    let messages = api.all_messages(&page, &own).await;
    assert_eq!(messages.last().unwrap()["value"]["error"], "stop");
}

/// A token that may not cancel a job makes no token that can.
#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_may_cancel_make_tokens_of_a_job() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let job_id = api.enqueue("resize").await;
    let verb = format!("{job_id}/token");
    let spec = TokenSpec { executor_id: "py", actor: "tester", ..Default::default() };
    let silent = api.database.executor_token_create(&spec).await.unwrap().token;
    assert_eq!(api.post(&silent, &verb, json!({})).await.word(), (403, "not_authorised"));
    let web = api.producer(&["resize"], &[]).await;
    for bad in [json!({"seconds": 0}), json!({"seconds": 604_801})] {
        assert_eq!(api.post(&web, &verb, bad).await.word(), (422, "invalid"));
    }
    assert_eq!(api.post(&web, &verb, json!({"seconds": 60})).await.status, 200);
    let bare = Api::start().await;
    let job_id = bare.enqueue("resize").await;
    let token = bare.token("py", &[]).await;
    let said = bare.post(&token, &format!("{job_id}/token"), json!({})).await;
    assert_eq!(said.word(), (503, "unavailable"), "a server without a stream store says so");
}

/// Q10, Q24: results are kept with the run, of one ack and of many; one that cannot be
/// kept is refused, and nothing of the call is done.
#[tokio::test]
async fn results_are_kept() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for _ in 0..4 {
        api.enqueue("resize").await;
    }
    let held = api.claim_many(&token, 4).await;
    let huge = format!(r#"{{"job_id": {}, "attempt": 1, "result": 1e400}}"#, held[0]["job_id"]);
    let said = api.send("ack", Some(format!("Bearer {token}")), huge.clone()).await;
    assert_eq!(said.word(), (422, "invalid"));
    assert!(said.body["detail"].as_str().unwrap().contains("1e308"), "{said:?}");
    let said =
        api.send("ack_many", Some(format!("Bearer {token}")), format!(r#"{{"jobs": [{huge}]}}"#)).await;
    assert_eq!(said.word(), (422, "invalid"));
    let zero = with(&held[0], &json!({"result": {"text": "a\0b"}}));
    assert_eq!(api.post(&token, "ack", zero.clone()).await.word(), (422, "invalid"));
    assert_eq!(api.post(&token, "ack_many", json!({"jobs": [zero]})).await.word(), (422, "invalid"));
    let many = json!({"jobs": [held[0], with(&held[1], &json!({"result": {"n": 1}})), with(&held[2], &json!({"result": 0}))]});
    let said = api.post(&token, "ack_many", many).await;
    assert_eq!((&said.body["acked"], &said.body["lost"]), (&json!(3), &json!([])), "{said:?}");
    assert_eq!(
        api.post(&token, "ack", with(&held[3], &json!({"result": "not zero: \\u0000"}))).await.status,
        200
    );
    for (n, result) in
        [(0, json!(null)), (1, json!({"n": 1})), (2, json!(0)), (3, json!("not zero: \\u0000"))]
    {
        let said = api.job(&token, held[n]["job_id"].as_str().unwrap(), "").await;
        assert_eq!((&said.body["state"], &said.body["result"]), (&json!("succeeded"), &result), "{n}");
    }
}

/// R09: after the key for tokens of jobs was replaced, a running server refuses the tokens of the old one, for the job and
/// its stream, and takes those of the new one.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_replaced_key_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::with_streams(&directory).await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let old = api.job_token(&token, &job_id).await;
    assert_eq!(api.job(&old, &job_id, "").await.status, 200);
    api.database.job_token_key_rotate("tester").await.unwrap();
    // Nobody asks for a token meanwhile: the server finds out by itself.
    wait::until_some("the old token is refused", async || {
        (api.job(&old, &job_id, "").await.status == 401).then_some(())
    })
    .await;
    let url = api.server.url(&format!("{}?offset=-1", path(&job_id)));
    let read = |token: &str| reqwest::Client::new().get(&url).bearer_auth(token).send();
    assert_eq!(read(&old).await.unwrap().status(), 401);
    let new = api.database.job_token(job_id.parse().unwrap(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(read(&new).await.unwrap().status(), 200);
    assert_eq!(api.job(&new, &job_id, "").await.status, 200);
}
