//! What a worker over HTTP can do.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Api, with};

/// Q04, Q07, Q09, Q10: a job's whole life over HTTP.
#[tokio::test]
async fn a_job_is_enqueued_claimed_started_kept_and_acked() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let job = json!({"job_kind": "resize", "payload_json": {"big": 12345678901234567890123_u128 as f64, "ref": "a/b"},
                     "idempotency_key": "k", "priority": 7});
    let first = api.post(&token, "enqueue", job.clone()).await;
    assert_eq!((first.status, &first.body["duplicate"]), (201, &json!(false)), "{first:?}");
    let second = api.post(&token, "enqueue", job).await;
    assert_eq!((second.status, &second.body["duplicate"]), (200, &json!(true)));
    assert_eq!(first.body["job_id"], second.body["job_id"]);
    let said = api.post(&token, "claim", json!({"kinds": ["resize"], "limit": 5, "lease_seconds": 60})).await;
    let jobs = said.body["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1, "{said:?}");
    assert_eq!(jobs[0]["payload_json"]["ref"], "a/b");
    assert_eq!((&jobs[0]["priority"], &jobs[0]["actor"]), (&json!(7), &json!("executor:py")));
    let held = json!({"job_id": jobs[0]["job_id"], "attempt": jobs[0]["attempt"]});
    assert_eq!(api.post(&token, "start", held.clone()).await.body["state"], "in_progress");
    let kept = api.post(&token, "extend", with(&held, &json!({"seconds": 3600}))).await;
    assert!(
        kept.body["lease_until"].as_str().unwrap() > jobs[0]["lease_until"].as_str().unwrap(),
        "{kept:?}"
    );
    let told = api.post(&token, "progress", with(&held, &json!({"percent": 40, "message": "half"}))).await;
    assert_eq!(told.status, 200);
    let seen = api.db.json(
        "select jsonb_agg(jsonb_build_array(progress_percent, progress_message)) from towpath.job_queue",
    );
    assert_eq!(seen.await, json!([[40, "half"]]));
    assert_eq!(api.post(&token, "ack", held.clone()).await.body["state"], "succeeded");
    assert_eq!(api.state(&held["job_id"]).await, "succeeded");
    let again = api.post(&token, "ack", held).await;
    assert_eq!(again.word(), (409, "lease_lost"));
}

/// A payload's numbers come out with all the digits they went in with.
#[tokio::test]
async fn payloads_pass_through_unchanged() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let body = r#"{"job_kind": "resize", "payload_json": {"n": 123456789012345678901234567890, "s": "ü\n"}}"#;
    let said = api.send("enqueue", Some(format!("Bearer {token}")), body.into()).await;
    assert_eq!(said.status, 201, "{said:?}");
    assert_eq!(
        api.db.text("select payload_json ->> 'n' from towpath.job").await,
        "123456789012345678901234567890"
    );
    let claim = api.send("claim", Some(format!("bearer {token}")), "{}".into()).await;
    assert_eq!(claim.body["jobs"][0]["payload_json"]["s"], "ü\n");
}

/// Q05: a batch goes in by one call, all of it or nothing; each refused row is named with its place and reason.
#[tokio::test]
async fn a_batch_goes_in_whole_or_not_at_all() {
    let api = Api::start().await;
    let token = api.token("py", &["resize"]).await;
    let jobs = json!({"jobs": [{"job_kind": "resize"}, {"job_kind": "crop"}, {"job_kind": "resize", "priority": -3}]});
    let said = api.post(&token, "enqueue_many", jobs).await;
    assert_eq!(said.word(), (403, "not_authorised"), "{said:?}");
    let refused = said.body["refused"].as_array().unwrap();
    let named: Vec<_> = refused.iter().map(|row| (&row["index"], &row["error"])).collect();
    assert_eq!(named, [(&json!(1), &json!("not_authorised")), (&json!(2), &json!("invalid"))], "{said:?}");
    assert!(said.body["detail"].as_str().unwrap().starts_with("entry 1: this token of py"), "{said:?}");
    assert_eq!(api.db.text("select count(*) from towpath.job").await, "0");
    let bad = json!({"jobs": [{"job_kind": "resize"}, {"job_kind": "resize", "priority": -3}]});
    let said = api.post(&token, "enqueue_many", bad).await;
    assert_eq!((said.word(), &said.body["refused"][0]["index"]), ((422, "invalid"), &json!(1)), "{said:?}");
    assert_eq!(api.db.text("select count(*) from towpath.job").await, "0");
    let good = json!({"jobs": [{"job_kind": "resize"}, {"job_kind": "resize", "idempotency_key": "k"}]});
    let said = api.post(&token, "enqueue_many", good.clone()).await;
    assert_eq!((said.status, said.body["jobs"].as_array().unwrap().len()), (200, 2), "{said:?}");
    let again = api.post(&token, "enqueue_many", good).await;
    assert_eq!(again.body["jobs"][1]["duplicate"], true, "{again:?}");
    assert_eq!(again.body["jobs"][1]["job_id"], said.body["jobs"][1]["job_id"]);
}

/// Q10: a failure waits for its retry, a permanent one is a dead letter.
#[tokio::test]
async fn failures_retry_or_die() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    api.enqueue("resize").await;
    let held = api.claim(&token).await;
    let failed =
        api.post(&token, "fail", with(&held, &json!({"error": "no disk", "retry_after_seconds": 0}))).await;
    assert_eq!(failed.body["state"], "retry_waiting", "{failed:?}");
    let held = api.claim(&token).await;
    assert_eq!(held["attempt"], 2);
    let failed =
        api.post(&token, "fail", with(&held, &json!({"error": "no such file", "permanent": true}))).await;
    assert_eq!(failed.body["state"], "dead_letter", "{failed:?}");
    assert_eq!(api.db.text("select final_error from towpath.job_dead_letter").await, "no such file");
}

/// Many acks and releases at once; what is not held is named and changes nothing.
#[tokio::test]
async fn many_are_acked_and_released_at_once() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for _ in 0..4 {
        api.enqueue("resize").await;
    }
    let said = api.post(&token, "claim", json!({"limit": 4})).await;
    let held = said.body["jobs"].as_array().unwrap().iter();
    let held: Vec<_> = held.map(|job| json!({"job_id": job["job_id"], "attempt": job["attempt"]})).collect();
    assert_eq!(held.len(), 4);
    let stale = json!({"job_id": held[2]["job_id"], "attempt": 9});
    let acked = api.post(&token, "ack_many", json!({"jobs": [held[0], held[1], stale]})).await;
    assert_eq!(
        (&acked.body["acked"], &acked.body["lost"]),
        (&json!(2), &json!([held[2]["job_id"]])),
        "{acked:?}"
    );
    assert_eq!(api.state(&held[1]["job_id"]).await, "succeeded");
    let released = api.post(&token, "release", json!({"jobs": [held[2], held[3], held[0]]})).await;
    assert_eq!(
        (&released.body["released"], &released.body["lost"]),
        (&json!(2), &json!([held[0]["job_id"]]))
    );
    assert_eq!(api.state(&held[3]["job_id"]).await, "queued");
    assert_eq!(
        api.post(&token, "claim", json!({"limit": 9})).await.body["jobs"].as_array().unwrap().len(),
        2
    );
}

/// Q13: the heartbeat is the executor's own.
#[tokio::test]
async fn a_heartbeat_names_the_executor() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let said = api.post(&token, "heartbeat", json!({"status": "warn", "metadata": {"disk": "low"}})).await;
    assert_eq!((said.status, &said.body["ticks_total"]), (200, &json!(1)), "{said:?}");
    let row = "select executor_name || ' ' || executor_kind || ' ' || last_tick_status from towpath.queue_heartbeat";
    assert_eq!(api.db.text(row).await, "py external_worker warn");
}

/// Q15: a claim that waits is answered when a job comes, not when its time is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_is_woken() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for notify in ["true", "false"] {
        let gate = format!("update towpath.config set value = '{notify}' where key = 'queue.notify.enabled'");
        api.db.execute(&gate).await;
        let began = Instant::now();
        let waiting = api.post(&token, "claim", json!({"wait_seconds": 25}));
        let enqueueing = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            api.enqueue("resize").await
        };
        let (said, job_id) = tokio::join!(waiting, enqueueing);
        assert_eq!(said.body["jobs"][0]["job_id"], json!(job_id), "notify {notify}: {said:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "notify {notify}: {:?}", began.elapsed());
    }
}

/// A claim whose time is over answers no jobs; one that waits does not hold up a stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_ends_with_its_time_and_with_the_server() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let empty = api.post(&token, "claim", json!({"wait_seconds": 1})).await;
    assert_eq!((empty.status, &empty.body), (200, &json!({"jobs": []})));
    let began = Instant::now();
    let waiting = api.post(&token, "claim", json!({"wait_seconds": 30}));
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        api.server.begin_stop();
    };
    let (said, ()) = tokio::join!(waiting, stopping);
    assert_eq!((said.status, &said.body), (200, &json!({"jobs": []})));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// A client that hangs up while it waits takes no job with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_leaves_no_job_stuck() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for _ in 0..5 {
        let waiting = api.post(&token, "claim", json!({"wait_seconds": 30}));
        assert!(tokio::time::timeout(Duration::from_millis(80), waiting).await.is_err(), "it waits");
    }
    // The server sees the closed connections at the latest when it next reads them.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let job_id = api.enqueue("resize").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let said = api.post(&token, "claim", json!({"wait_seconds": 5})).await;
    assert_eq!(said.body["jobs"][0]["job_id"], json!(job_id), "{said:?}");
}

/// Many claims wait for the same: each job goes to one of them, and nobody waits in vain.
#[tokio::test(flavor = "multi_thread")]
async fn many_waiting_claims_share_what_comes() {
    let api = std::sync::Arc::new(Api::start().await);
    let (py, ts) = (api.token("py", &["resize"]).await, api.token("ts", &[]).await);
    let mut claims = tokio::task::JoinSet::new();
    for token in [&py; 20].into_iter().chain([&ts; 10]) {
        let (api, token) = (api.clone(), token.clone());
        claims.spawn(async move { api.post(&token, "claim", json!({"wait_seconds": 30})).await });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    for _ in 0..10 {
        api.enqueue("resize").await;
        api.enqueue("crop").await;
        api.enqueue("resize").await;
    }
    let mut ids = std::collections::BTreeSet::new();
    while let Some(said) = claims.join_next().await {
        let said = said.unwrap();
        let jobs = said.body["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 1, "{said:?}");
        ids.insert(jobs[0]["job_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 30, "each job once");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
