//! One job for the program that enqueued it: its state, its end, and how to cancel it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use towpath_db::Attribution;
use towpath_db::executor_token::TokenSpec;

use super::{Api, Said, with};

impl Api {
    /// A read of one job with a query.
    pub(crate) async fn job(&self, token: &str, job_id: &str, query: &str) -> Said {
        self.get(token, &format!("/api/v1/jobs/{job_id}?{query}")).await
    }
}

/// Q24: the answer follows the job: waiting, running with progress, failed, dead.
#[tokio::test]
async fn a_job_is_read_while_it_runs() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let enqueued = api.post(&token, "enqueue", json!({"job_kind": "resize", "max_attempts": 4})).await;
    let job_id = enqueued.body["job_id"].as_str().unwrap().to_owned();
    let said = api.job(&token, &job_id, "").await;
    assert_eq!((said.status, &said.body["ok"], &said.body["state"]), (200, &json!(true), &json!("queued")));
    assert_eq!((&said.body["kind"], &said.body["max_attempts"]), (&json!("resize"), &json!(4)));
    let held = api.claim(&token).await;
    api.post(&token, "start", held.clone()).await;
    api.post(&token, "progress", with(&held, &json!({"percent": 40, "message": "half"}))).await;
    let said = api.job(&token, &job_id, "").await;
    assert_eq!(said.body["state"], "in_progress", "{said:?}");
    assert_eq!((&said.body["percent"], &said.body["message"]), (&json!(40), &json!("half")));
    assert_eq!((&said.body["attempt"], &said.body["finished_at"]), (&json!(1), &json!(null)));
    api.post(&token, "fail", with(&held, &json!({"error": "no such file", "permanent": true}))).await;
    let said = api.job(&token, &job_id, "wait=60").await;
    assert_eq!((&said.body["state"], &said.body["error"]), (&json!("dead_letter"), &json!("no such file")));
    assert!(said.body["finished_at"].is_string(), "{said:?}");
}

/// Q24: a read that waits is answered when the job ends, whatever ends it, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_the_end() {
    let api = Arc::new(Api::start().await);
    let token = api.token("py", &[]).await;
    for end in ["ack over HTTP", "cancel in the database", "ack in the database"] {
        let job_id = api.enqueue("resize").await;
        let held = api.claim(&token).await;
        let began = api.db.text("select clock_timestamp()").await;
        let waiting = tokio::spawn({
            let (api, token, job_id) = (api.clone(), token.clone(), job_id.clone());
            async move { api.job(&token, &job_id, "wait=60").await }
        });
        api.until_called("fn_job_watch", &began).await;
        assert!(!waiting.is_finished(), "{end}");
        match end {
            "ack over HTTP" => {
                assert_eq!(api.post(&token, "ack_many", json!({"jobs": [held]})).await.body["acked"], 1);
            }
            "cancel in the database" => {
                let by = Attribution { actor: "tester", reason: "enough" };
                api.database.job_cancel(job_id.parse().unwrap(), by).await.unwrap();
            }
            _ => {
                let ack = "select towpath.fn_job_ack(job_id, lease_owner, 1) ->> 'ok' from towpath.job_queue
                            where state = 'leased'";
                assert_eq!(api.db.text(ack).await, "true");
            }
        }
        let said = waiting.await.unwrap();
        let expected = if end.starts_with("cancel") { "cancelled" } else { "succeeded" };
        assert_eq!(said.body["state"], expected, "{end}: {said:?}");
    }
}

/// Without an end the answer comes when the time is over.
#[tokio::test]
async fn a_read_waits_no_longer_than_asked() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let began = Instant::now();
    let said = api.job(&token, &job_id, "wait=1").await;
    assert_eq!((said.status, &said.body["state"]), (200, &json!("queued")));
    assert!(began.elapsed() >= Duration::from_secs(1));
    for (query, status) in [("wait=61", 422), ("wait=x", 422), ("weight=1", 422)] {
        assert_eq!(api.job(&token, &job_id, query).await.status, status, "{query}");
    }
    assert_eq!(api.job(&token, "nonsense", "").await.word(), (422, "invalid"));
    let gone = "0190f5a4-5c2e-7bb0-9f33-0123456789ab";
    assert_eq!(api.job(&token, gone, "wait=60").await.word(), (404, "not_found"));
}

/// One token's waiting reads do not take every place.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_reads_are_bounded() {
    let api = Arc::new(Api::start().await);
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..130 {
        let (api, token, job_id) = (api.clone(), token.clone(), job_id.clone());
        reads.spawn(async move { api.job(&token, &job_id, "wait=60").await });
    }
    for _ in 0..2 {
        let said = reads.join_next().await.unwrap().unwrap();
        assert_eq!((said.word(), said.retry_after.as_deref()), ((503, "busy"), Some("1")));
    }
    assert_eq!(api.job(&token, &job_id, "").await.status, 200, "it may ask without waiting");
    let other = api.token("py", &[]).await;
    assert_eq!(api.job(&other, &job_id, "wait=1").await.status, 200, "others may wait");
    assert_eq!(api.post(&token, &format!("{job_id}/cancel"), json!({})).await.status, 200);
    while let Some(said) = reads.join_next().await {
        assert_eq!(said.unwrap().body["state"], "cancelled");
    }
}

/// Q17: a cancelled job is over, for its worker too.
#[tokio::test]
async fn a_job_is_cancelled() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let held = api.claim(&token).await;
    let cancel = format!("{job_id}/cancel");
    let said = api.post(&token, &cancel, json!({"reason": "not needed"})).await;
    assert_eq!((said.status, &said.body["state"]), (200, &json!("cancelled")), "{said:?}");
    assert_eq!(api.post(&token, "ack", held).await.word(), (409, "lease_lost"));
    assert_eq!(api.job(&token, &job_id, "").await.body["error"], "not needed");
    let by = "select ended_by from towpath._job_run_each where outcome = 'cancelled'";
    assert_eq!(api.db.text(by).await, "executor:py");
    assert_eq!(api.post(&token, &cancel, json!({})).await.word(), (409, "conflict"));
    let empty = api.send(&cancel, Some(format!("Bearer {token}")), String::new()).await;
    assert_eq!(empty.word(), (409, "conflict"), "a reason is not required");
}

/// R06, R09: a token reads the kinds it claims or enqueues, and cancels those it may enqueue.
#[tokio::test]
async fn a_token_reads_and_cancels_its_own_kinds_only() {
    let api = Api::start().await;
    let (resize, crop) = (api.enqueue("resize").await, api.enqueue("crop").await);
    let ts = api.token("ts", &[]).await;
    assert_eq!(api.job(&ts, &crop, "").await.status, 200);
    let foreign = api.job(&ts, &resize, "wait=60").await;
    assert_eq!(foreign.word(), (403, "not_authorised"));
    assert!(foreign.body.get("state").is_none());
    assert_eq!(api.post(&ts, &format!("{resize}/cancel"), json!({})).await.word(), (403, "not_authorised"));
    let narrow = api.token("py", &["crop"]).await;
    assert_eq!(api.job(&narrow, &resize, "").await.word(), (403, "not_authorised"));
    let spec = TokenSpec { executor_id: "py", actor: "tester", ..Default::default() };
    let silent = api.database.executor_token_create(&spec).await.unwrap().token;
    assert_eq!(api.job(&silent, &resize, "").await.status, 200, "it may claim it");
    assert_eq!(
        api.post(&silent, &format!("{resize}/cancel"), json!({})).await.word(),
        (403, "not_authorised")
    );
    for (job_id, state) in [(&resize, "queued"), (&crop, "queued")] {
        assert_eq!(api.state(&json!(job_id)).await, state);
    }
    assert_eq!(api.job("tpx_guess", &crop, "").await.word(), (401, "unauthenticated"));
}
