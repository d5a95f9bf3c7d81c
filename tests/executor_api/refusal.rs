//! What a worker over HTTP must not do, each as the token that must be refused.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::executor_token::TokenSpec;
use towpath_db::{Attribution, Database};
use towpath_server::Config;
use towpath_testkit::proxy::{Fault, FaultProxy, Upstream};
use towpath_testkit::server::RunningServer;

use super::{Api, with};

/// Every call that names an attempt, with a body that would be right for its holder.
fn calls(held: &Value) -> Vec<(&'static str, Value)> {
    vec![
        ("start", held.clone()),
        ("extend", with(held, &json!({"seconds": 600}))),
        ("progress", with(held, &json!({"percent": 99}))),
        ("ack", held.clone()),
        ("fail", with(held, &json!({"error": "sabotage", "permanent": true}))),
        ("snooze", with(held, &json!({"seconds": 600}))),
    ]
}

/// R06, R08, Q08: nobody but the token that claimed a job can say anything about it: not
/// another executor, not another token of the same executor, with or without its kind.
#[tokio::test]
async fn no_other_token_touches_a_lease() {
    let api = Api::start().await;
    let holder = api.token("py", &[]).await;
    let job_id = api.enqueue("crop").await;
    let held = api.claim(&holder).await;
    assert_eq!(held["job_id"], json!(job_id));
    let row = || api.db.text("select to_jsonb(v)::text from towpath._job_now v");
    let before = row().await;
    for stranger in
        [api.token("ts", &[]).await, api.token("py", &["resize"]).await, api.token("py", &[]).await]
    {
        for (verb, body) in calls(&held) {
            assert_eq!(api.post(&stranger, verb, body).await.word(), (409, "lease_lost"), "{verb}");
        }
        let failed = json!({"jobs": [with(&held, &json!({"error": "sabotage", "permanent": true}))]});
        for (verb, body) in [
            ("ack_many", json!({"jobs": [held]})),
            ("extend_many", json!({"jobs": [held], "seconds": 600})),
            ("fail_many", failed),
            ("release", json!({"jobs": [held]})),
        ] {
            let said = api.post(&stranger, verb, body).await;
            assert_eq!(said.body["lost"], json!([job_id]), "{verb}");
        }
        assert_eq!(row().await, before, "and nothing changed");
    }
    assert_eq!(api.post(&holder, "ack", held).await.status, 200);
}

/// A worker's name cannot be chosen so that it spells another token's leases.
#[tokio::test]
async fn a_worker_name_forges_no_owner() {
    let api = Api::start().await;
    let (holder, stranger) = (api.token("py", &[]).await, api.token("ts", &[]).await);
    api.enqueue("crop").await;
    let held = api.claim(&holder).await;
    let owner = api.db.text("select lease_owner from towpath._job_now").await;
    let worker = owner.split_once('/').unwrap().1;
    for name in [owner.as_str(), worker, "http", "a b", "", &"x".repeat(65)] {
        let request = reqwest::Client::new().post(api.server.url("/api/v1/jobs/ack")).bearer_auth(&stranger);
        let response = request.header("towpath-worker", name).body(held.to_string()).send().await.unwrap();
        assert!([409, 422].contains(&response.status().as_u16()), "{name:?}: {}", response.status());
    }
    assert_eq!(api.state(&held["job_id"]).await, "leased");
}

/// R06: a token claims its kinds only, and none of another executor's.
#[tokio::test]
async fn a_token_claims_its_own_kinds_only() {
    let api = Api::start().await;
    api.enqueue("resize").await;
    let crop = api.token("py", &["crop"]).await;
    let said = api.post(&crop, "claim", json!({"kinds": ["resize"]})).await;
    assert_eq!(said.word(), (403, "not_authorised"));
    assert_eq!(api.post(&crop, "claim", json!({})).await.body, json!({"jobs": []}), "only crop is asked for");
    // ts has no subscription for resize: asking for it finds nothing.
    let ts = api.token("ts", &[]).await;
    assert_eq!(api.post(&ts, "claim", json!({"kinds": ["resize"]})).await.body, json!({"jobs": []}));
    // A token for a kind that its executor has not subscribed gives no access either.
    let wide = api.token("ts", &["resize", "crop"]).await;
    assert_eq!(api.post(&wide, "claim", json!({"limit": 9})).await.body, json!({"jobs": []}));
    assert_eq!(api.db.text("select state from towpath.job_queue").await, "queued");
    let disabled = "update towpath.job_subscription set enabled = false where executor_id = 'ts'";
    api.db.execute(disabled).await;
    assert_eq!(api.post(&ts, "claim", json!({})).await.word(), (404, "not_found"));
}

/// 401 without a token that opens something, and the body is not even read.
#[tokio::test]
async fn without_a_token_nothing_opens() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let basic = Some("Basic cHk6cHk=".to_owned());
    for authorization in
        [None, basic, Some(token.clone()), Some("Bearer tpx_guess".into()), Some("Bearer ".into())]
    {
        for verb in [
            "enqueue",
            "enqueue_many",
            "claim",
            "start",
            "extend",
            "extend_many",
            "progress",
            "ack",
            "ack_many",
            "fail",
            "fail_many",
            "snooze",
            "release",
            "heartbeat",
            "0190f5a4-5c2e-7bb0-9f33-0123456789ab/cancel",
        ] {
            let said = api.send(verb, authorization.clone(), "not even JSON".into()).await;
            assert_eq!(said.word(), (401, "unauthenticated"), "{verb} {authorization:?}");
        }
    }
    let get = reqwest::get(api.server.url("/api/v1/jobs/claim")).await.unwrap();
    assert_eq!((get.status().as_u16(), get.headers()["allow"].to_str().unwrap()), (405, "POST"));
    let nowhere = api.post(&token, "non/sense", json!({})).await;
    assert_eq!(nowhere.word(), (404, "not_found"));
}

/// Revocation and expiry count from the next call on, also for a lease that is held and for
/// a claim that waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_out_at_once() {
    let api = Api::start().await;
    let spec = TokenSpec { executor_id: "py", actor: "tester", ..Default::default() };
    let created = api.database.executor_token_create(&spec).await.unwrap();
    api.enqueue("resize").await;
    let held = api.claim(&created.token).await;
    let waiting = api.post(&created.token, "claim", json!({"wait_seconds": 20}));
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        api.database.executor_token_revoke(created.token_id, "tester").await.unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, revoking);
    assert_eq!(waited.word(), (401, "unauthenticated"));
    assert!(waited.body["detail"].as_str().unwrap().contains("revoked"), "{waited:?}");
    for (verb, body) in calls(&held) {
        assert_eq!(api.post(&created.token, verb, body).await.status, 401, "{verb}");
    }
}

/// R09: enqueueing needs the flag, and stays within the token.
#[tokio::test]
async fn a_token_enqueues_only_what_it_may() {
    let api = Api::start().await;
    let spec = TokenSpec { executor_id: "py", actor: "tester", ..Default::default() };
    let silent = api.database.executor_token_create(&spec).await.unwrap().token;
    assert_eq!(
        api.post(&silent, "enqueue", json!({"job_kind": "resize"})).await.word(),
        (403, "not_authorised")
    );
    let token = api.token("py", &["resize"]).await;
    for job in [
        json!({"job_kind": "crop"}),
        json!({"job_kind": "resize", "executor": "PG_worker"}),
        json!({"job_kind": "resize", "executor": "MOT"}),
    ] {
        assert_eq!(api.post(&token, "enqueue", job.clone()).await.word(), (403, "not_authorised"), "{job}");
    }
    let forged = api.post(&token, "enqueue", json!({"job_kind": "resize", "actor": "root"})).await;
    assert_eq!(forged.word(), (400, "malformed"), "the actor is not the client's to name");
    assert_eq!(api.db.text("select count(*) from towpath.job").await, "0");
}

/// Q06: a closed gate is 503 with Retry-After, and nothing is written.
#[tokio::test]
async fn a_closed_gate_asks_to_come_back() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.enqueue("resize").await;
    let by = Attribution { actor: "tester", reason: "a test" };
    for (gate, verb, body) in [
        ("queue.worker.enabled", "claim", json!({"wait_seconds": 5})),
        ("queue.job_substrate.enabled", "enqueue", json!({"job_kind": "resize"})),
        ("queue.heartbeat.enabled", "heartbeat", json!({})),
    ] {
        api.database.gate_set(gate, towpath_db::GateMove::Close, by).await.unwrap();
        let said = api.post(&token, verb, body).await;
        assert_eq!(said.word(), (503, "gate_closed"), "{verb}");
        assert_eq!(said.retry_after.as_deref(), Some("5"));
        assert!(said.body["detail"].as_str().unwrap().contains(gate), "{said:?}");
    }
    assert_eq!(api.db.text("select count(*) from towpath._job_now where state <> 0").await, "0");
}

/// Bad bodies: 400 for what is no JSON of ours, 413, 422 for values that do not fit.
#[tokio::test]
async fn bad_bodies_are_refused_with_the_reason() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let id = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
    let deep = format!(r#"{{"job_kind": "resize", "payload_json": {}{}}}"#, "[".repeat(70), "]".repeat(70));
    let large = format!(r#"{{"job_kind": "resize", "payload_ref": "{}"}}"#, "x".repeat(300_000));
    let fat = format!(r#"{{"job_kind": "resize", "payload_json": {{"x": "{}"}}}}"#, "x".repeat(70_000));
    // Too long for an index, and too irregular to be compressed.
    let name: String = (0..9000_u64).map(|n| char::from(b'a' + (n * n * 7919 / 13 % 26) as u8)).collect();
    let long = json!({"job_kind": "resize", "event_domain": name}).to_string();
    let many = json!({"jobs": vec![json!({"job_kind": "resize"}); 1001]}).to_string();
    for (verb, body, status, part) in [
        ("claim", "", 400, "EOF"),
        ("claim", "[]", 400, "invalid body"),
        ("claim", r#"{"limitt": 1}"#, 400, "limitt"),
        ("enqueue", &deep, 400, "deeper than 64"),
        ("enqueue", &large, 413, "262144"),
        ("enqueue", &fat, 422, "65536"),
        ("enqueue", "{}", 400, "job_kind"),
        ("enqueue", r#"{"job_kind": "resize", "payload_json": {"Token": 1}}"#, 422, "Token"),
        ("enqueue", r#"{"job_kind": "resize", "source_ref": "a\u0000b"}"#, 422, "0000"),
        ("enqueue", r#"{"job_kind": "resize", "scheduled_at": "soon"}"#, 400, "column 45"),
        ("enqueue", &long, 422, ""),
        ("enqueue_many", &many, 422, "1 to 1000"),
        ("claim", r#"{"limit": 101}"#, 422, "1 and 100"),
        ("claim", r#"{"wait_seconds": 31}"#, 422, "0 and 30"),
        ("claim", r#"{"lease_seconds": 0}"#, 422, "lease"),
        ("claim", r#"{"kinds": ["a\u0000b"]}"#, 422, "0x00"),
        ("ack", r#"{"job_id": "x", "attempt": 1}"#, 400, "UUID"),
        ("ack_many", r#"{"jobs": []}"#, 422, "1 to 1000"),
        ("extend", &format!(r#"{{"job_id": "{id}", "attempt": 1, "seconds": 4294967295}}"#), 422, "86400"),
        ("progress", &format!(r#"{{"job_id": "{id}", "attempt": 1, "percent": 101}}"#), 422, "100"),
        (
            "fail",
            &format!(r#"{{"job_id": "{id}", "attempt": 1, "error": "x", "retry_after_seconds": -1}}"#),
            422,
            "retry",
        ),
        (
            "fail",
            &format!(r#"{{"job_id": "{id}", "attempt": 1, "error": "x", "retry_after_seconds": 1e308}}"#),
            422,
            "retry",
        ),
        ("heartbeat", r#"{"metadata": {"password": "x"}}"#, 422, "password"),
        ("heartbeat", r#"{"status": "great"}"#, 400, "great"),
        ("ack", &format!(r#"{{"job_id": "{id}", "attempt": 1}}"#), 409, id),
    ] {
        let said = api.send(verb, Some(format!("Bearer {token}")), body.to_owned()).await;
        let start: String = body.chars().take(80).collect();
        assert_eq!(said.status, status, "{verb} {start}: {said:?}");
        assert!(said.body["detail"].as_str().unwrap().contains(part), "{verb} {start}: {said:?}");
        said.word();
    }
    assert_eq!(api.db.text("select count(*) from towpath.job").await, "0");
}

/// Waiting claims are bounded by token; one too many is told so instead of waiting.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_are_bounded() {
    let api = std::sync::Arc::new(Api::start().await);
    let token = api.token("py", &[]).await;
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (api, token) = (api.clone(), token.clone());
        claims.spawn(async move { api.post(&token, "claim", json!({"wait_seconds": 30})).await });
    }
    for _ in 0..8 {
        let busy = claims.join_next().await.unwrap().unwrap();
        assert_eq!(busy.word(), (503, "busy"));
        assert_eq!(busy.retry_after.as_deref(), Some("1"));
    }
    let other = api.token("ts", &[]).await;
    assert_eq!(api.post(&other, "claim", json!({"wait_seconds": 1})).await.status, 200, "others may wait");
    assert_eq!(api.post(&token, "claim", json!({})).await.status, 200, "and it may ask without waiting");
    api.server.begin_stop();
    while let Some(waited) = claims.join_next().await {
        assert_eq!(waited.unwrap().body, json!({"jobs": []}), "the 32 others waited");
    }
}

/// A lost database is 503, not a hang and not a 500; when it is back, so is the API.
#[tokio::test]
async fn a_lost_database_is_unavailable() {
    let mut api = Api::start().await;
    let token = api.token("py", &[]).await;
    let url = api.db.url();
    let host = url.split("host=").nth(1).unwrap().split('&').next().unwrap().replace("%2F", "/");
    let proxy = FaultProxy::start(Upstream::Unix(format!("{host}/.s.PGSQL.5432").into())).await;
    let proxied = format!("postgresql://postgres@{}/{}", proxy.addr(), api.db.name());
    let database = Database::connect(&proxied).await.unwrap();
    api.server = RunningServer::start(Config { database: Some(database), ..Default::default() }).await;
    assert_eq!(api.post(&token, "claim", json!({})).await.status, 200);
    proxy.set(Fault::Refuse);
    proxy.reset();
    let said = api.post(&token, "claim", json!({})).await;
    assert_eq!(said.word(), (503, "unavailable"));
    assert_eq!(said.retry_after.as_deref(), Some("1"));
    proxy.set(Fault::Pass);
    assert_eq!(api.post(&token, "claim", json!({})).await.status, 200, "and back");
}
