//! Producer tokens: enqueue, emit, read and cancel what they were given, and nothing else.

use serde_json::{Value, json};
use towpath_db::executor_token::{ProducerTokenSpec, Produces};

use super::Api;

impl Api {
    /// A token for a producer.
    pub(crate) async fn producer(&self, kinds: &[&str], domains: &[&str]) -> String {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (kinds, domains) = (owned(kinds), owned(domains));
        let produces = Produces {
            kinds: (!kinds.is_empty()).then_some(&kinds),
            domains: (!domains.is_empty()).then_some(&domains),
        };
        let spec = ProducerTokenSpec { produces, actor: "tester", ..Default::default() };
        self.database.producer_token_create(&spec).await.unwrap().token
    }
}

/// R09: it enqueues its kinds for the executor that runs them, follows and cancels the jobs, and emits in its domains.
#[tokio::test]
async fn a_producer_does_what_it_was_given() {
    let api = Api::start().await;
    let web = api.producer(&["resize"], &["images"]).await;
    assert!(web.starts_with("tpp_"));
    let said = api.post(&web, "enqueue", json!({"job_kind": "resize"})).await;
    assert_eq!(said.status, 201, "{said:?}");
    let job_id = said.body["job_id"].as_str().unwrap().to_owned();
    let row = "select executor || ' ' || (actor ~ '^token:[0-9a-f-]{36}$') from towpath.job";
    assert_eq!(api.db.text(row).await, "external_worker true", "the executor that claims this kind");
    assert_eq!(api.job(&web, &job_id, "").await.body["state"], "queued");
    assert_eq!(api.post(&web, &format!("{job_id}/cancel"), json!({})).await.body["state"], "cancelled");
    let event = json!({"domain": "images", "type": "resized"});
    assert_eq!(api.emit_by(&web, event).await.status, 201);
    let stored = api.post_to("/api/v1/payloads", Some(format!("Bearer {web}")), "data".into()).await;
    assert_eq!(stored.status, 201, "{stored:?}");
    let all = api.producer(&["*"], &["*"]).await;
    assert_eq!(
        api.post(&all, "enqueue", json!({"job_kind": "anything", "executor": "DOT"})).await.status,
        201
    );
    assert_eq!(api.emit_by(&all, json!({"domain": "anything", "type": "t"})).await.status, 201);
}

/// R06, R08, R09: every verb that a producer must not use, and every kind and domain that is not its own.
#[tokio::test]
async fn a_producer_does_nothing_else() {
    let api = Api::start().await;
    let web = api.producer(&["resize"], &["images"]).await;
    let crop = api.enqueue("crop").await;
    let holder = api.token("py", &[]).await;
    let held = api.claim(&holder).await;
    let many = json!({"jobs": [held]});
    let body = |more: Value| super::with(&held, &more);
    for (verb, body) in [
        ("claim", json!({})),
        ("start", body(json!({}))),
        ("extend", body(json!({"seconds": 60}))),
        ("extend_many", json!({"jobs": [held], "seconds": 60})),
        ("progress", body(json!({"percent": 1}))),
        ("ack", body(json!({}))),
        ("ack_many", many.clone()),
        ("fail", body(json!({"error": "x"}))),
        ("fail_many", json!({"jobs": [body(json!({"error": "x"}))]})),
        ("snooze", body(json!({"seconds": 60}))),
        ("release", many),
        ("heartbeat", json!({})),
        ("enqueue", json!({"job_kind": "crop"})),
        (&format!("{crop}/cancel"), json!({})),
    ] {
        assert_eq!(api.post(&web, verb, body).await.word(), (403, "not_authorised"), "{verb}");
    }
    assert_eq!(api.job(&web, &crop, "wait=60").await.word(), (403, "not_authorised"));
    let elsewhere = json!({"domain": "shop", "type": "paid"});
    assert_eq!(api.emit_by(&web, elsewhere).await.word(), (403, "not_authorised"));
    assert_eq!(api.get(&web, "/api/v1/events").await.word(), (403, "not_authorised"));
    let kinds = json!({"kinds": ["resize"]}).to_string();
    let said = api.post_to("/api/v1/executors/register", Some(format!("Bearer {web}")), kinds).await;
    assert_eq!(said.word(), (403, "not_authorised"));
    let emitter = api.producer(&[], &["images"]).await;
    assert_eq!(
        api.post(&emitter, "enqueue", json!({"job_kind": "resize"})).await.word(),
        (403, "not_authorised")
    );
    let stored = api.post_to("/api/v1/payloads", Some(format!("Bearer {emitter}")), "data".into()).await;
    assert_eq!(stored.word(), (403, "not_authorised"));
    assert_eq!(api.state(&held["job_id"]).await, "leased", "nothing changed");
}

/// A revoked producer is out at once.
#[tokio::test]
async fn a_revoked_producer_is_out() {
    let api = Api::start().await;
    let web = api.producer(&["resize"], &["images"]).await;
    let token_id = api.database.executor_token_list(None).await.unwrap()[0].token_id;
    api.database.executor_token_revoke(token_id, "tester").await.unwrap();
    let said = api.post(&web, "enqueue", json!({"job_kind": "resize"})).await;
    assert_eq!(said.word(), (401, "unauthenticated"));
    assert_eq!(
        api.emit_by(&web, json!({"domain": "images", "type": "t"})).await.word(),
        (401, "unauthenticated")
    );
}
