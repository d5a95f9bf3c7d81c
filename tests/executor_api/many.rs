//! Many attempts in one call: extend and fail; and one that is given back for later.

use serde_json::{Value, json};

use super::{Api, with};

impl Api {
    /// Claims so many jobs: ids and attempts, as later calls take them.
    pub(crate) async fn claim_many(&self, token: &str, limit: usize) -> Vec<Value> {
        let said = self.post(token, "claim", json!({"limit": limit})).await;
        let jobs = said.body["jobs"].as_array().unwrap_or_else(|| panic!("{said:?}"));
        assert_eq!(jobs.len(), limit, "{said:?}");
        jobs.iter().map(|job| json!({"job_id": job["job_id"], "attempt": job["attempt"]})).collect()
    }
}

/// Q09: leases are extended together; a lost one is named, and the others are extended all the same.
#[tokio::test]
async fn many_leases_are_extended_at_once() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for _ in 0..3 {
        api.enqueue("resize").await;
    }
    let held = api.claim_many(&token, 3).await;
    assert_eq!(api.post(&token, "ack", held[2].clone()).await.status, 200);
    let said = api.post(&token, "extend_many", json!({"jobs": held, "seconds": 3600})).await;
    assert_eq!((said.status, &said.body["ok"], &said.body["extended"]), (200, &json!(true), &json!(2)));
    assert_eq!(said.body["lost"], json!([held[2]["job_id"]]));
    let until = "select count(*) from towpath.job_queue where lease_until > now() + interval '59 minutes'";
    assert_eq!(api.db.text(until).await, "2");
    for bad in [json!({"jobs": [], "seconds": 9}), json!({"jobs": held, "seconds": 0})] {
        assert_eq!(api.post(&token, "extend_many", bad).await.word(), (422, "invalid"));
    }
}

/// Q10: failures are recorded together, each with its own consequence.
#[tokio::test]
async fn many_attempts_fail_at_once() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    for _ in 0..3 {
        api.enqueue("resize").await;
    }
    let held = api.claim_many(&token, 3).await;
    let stale = json!({"job_id": held[2]["job_id"], "attempt": 9, "error": "late"});
    let jobs = json!({"jobs": [
        with(&held[0], &json!({"error": "no disk", "retry_delay_seconds": 0})),
        with(&held[1], &json!({"error": "no such file", "permanent": true})),
        stale,
    ]});
    let said = api.post(&token, "fail_many", jobs).await;
    assert_eq!((said.status, &said.body["lost"]), (200, &json!([held[2]["job_id"]])), "{said:?}");
    let state = |n: usize| {
        let failed = said.body["failed"].as_array().unwrap().iter();
        let mut of_job = failed.filter(|row| row["job_id"] == held[n]["job_id"]);
        of_job.next().map(|row| row["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(state(0).as_deref(), Some("retry_waiting"));
    assert_eq!(state(1).as_deref(), Some("dead_letter"));
    assert_eq!(state(2), None);
    assert_eq!(api.state(&held[0]["job_id"]).await, "retry_waiting");
    assert_eq!(api.state(&held[1]["job_id"]).await, "dead_letter");
    assert_eq!(api.state(&held[2]["job_id"]).await, "leased");
    let never = json!({"jobs": [with(&held[2], &json!({"error": "x", "retry_delay_seconds": -1}))]});
    assert_eq!(api.post(&token, "fail_many", never).await.word(), (422, "invalid"));
}

/// A snoozed job comes back later, and the attempt does not count.
#[tokio::test]
async fn a_snoozed_job_comes_back() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let job_id = api.enqueue("resize").await;
    let held = api.claim(&token).await;
    let said = api.post(&token, "snooze", with(&held, &json!({"seconds": 0, "note": "not yet"}))).await;
    assert_eq!((said.status, &said.body["job_id"]), (200, &json!(job_id)), "{said:?}");
    assert!(said.body["scheduled_at"].is_string());
    let again = api.claim(&token).await;
    assert_eq!(again["attempt"], 2, "the number of the attempt is the fence");
    let counted = "select attempts from towpath.job_queue";
    assert_eq!(api.db.text(counted).await, "1", "the first one does not count");
    let lost = api.post(&token, "snooze", with(&held, &json!({"seconds": 5}))).await;
    assert_eq!(lost.word(), (409, "lease_lost"));
}

/// An ack that names the lease entry of the claim does the same as one that does not.
#[tokio::test]
async fn an_ack_may_name_the_lease_entry() {
    let api = Api::start().await;
    let token = api.token("py", &[]).await;
    let jobs: Vec<Value> = (0..3).map(|_| json!({"job_kind": "resize"})).collect();
    assert_eq!(api.post(&token, "enqueue_many", json!({"jobs": jobs})).await.status, 200);
    let said = api.post(&token, "claim", json!({"limit": 3})).await;
    let acks: Vec<Value> = said.body["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| json!({"job_id": job["job_id"], "attempt": job["attempt"], "entry_id": job["entry_id"]}))
        .collect();
    assert_eq!(acks.len(), 3);
    let stranger = api.token("py", &[]).await;
    let foreign = api.post(&stranger, "ack_many", json!({"jobs": acks})).await;
    assert_eq!(foreign.body["acked"], 0, "an entry_id is no right");
    let acked = api.post(&token, "ack_many", json!({"jobs": acks})).await;
    assert_eq!((&acked.body["acked"], &acked.body["lost"]), (&json!(3), &json!([])), "{acked:?}");
}
