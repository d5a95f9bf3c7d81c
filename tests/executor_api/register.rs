//! A worker that registers its kinds itself, with a token that allows it.

use serde_json::json;
use towpath_db::executor_token::TokenSpec;
use towpath_db::subscription::SubscriptionSpec;

use super::{Api, Said};

impl Api {
    pub(crate) async fn register(&self, token: &str, body: serde_json::Value) -> Said {
        self.post_to("/api/v1/executors/register", Some(format!("Bearer {token}")), body.to_string()).await
    }

    /// A token of `py` that may register.
    pub(crate) async fn registering(&self, kinds: Option<&[String]>) -> String {
        let spec =
            TokenSpec { executor_id: "py", kinds, may_register: true, actor: "tester", ..Default::default() };
        self.database.executor_token_create(&spec).await.unwrap().token
    }
}

/// A registered kind is claimed at once; registering again changes nothing.
#[tokio::test]
async fn a_worker_registers_its_kinds() {
    let api = Api::start().await;
    let token = api.registering(None).await;
    let kinds = json!({"kinds": ["resize", "blur"], "concurrency": 8});
    let said = api.register(&token, kinds.clone()).await;
    assert_eq!((said.status, &said.body["executor"]), (200, &json!("py")), "{said:?}");
    assert_eq!((&said.body["added"], &said.body["disabled"]), (&json!(["blur"]), &json!([])));
    assert_eq!(api.register(&token, kinds).await.body["added"], json!([]));
    let limit = "select max_parallel is null from towpath.job_subscription where job_kind = 'blur'";
    assert_eq!(api.db.text(limit).await, "true");
    let job_id = api.enqueue("blur").await;
    assert_eq!(api.claim(&token).await["job_id"], json!(job_id));
}

/// R06: a job that was enqueued before the first worker of its kind registered goes to that worker, whether it came from
/// a producer's token or from SQL; and it shows as that worker's.
#[tokio::test]
async fn a_job_may_come_before_its_worker_registers() {
    let api = Api::start().await;
    let web = api.producer(&["blur"], &[]).await;
    let said = api.post(&web, "enqueue", json!({"job_kind": "blur"})).await;
    assert_eq!(said.status, 201, "{said:?}");
    api.db.execute("select towpath.enqueue('blur'), towpath.enqueue_many('[{\"kind\": \"blur\"}]')").await;
    let token = api.registering(None).await;
    let none = api.post(&token, "claim", json!({"kinds": ["blur"]})).await;
    assert_eq!(none.body["jobs"], json!([]), "{none:?}");
    assert_eq!(api.register(&token, json!({"kinds": ["blur"]})).await.body["added"], json!(["blur"]));
    api.claim_many(&token, 3).await;
    let job_id = said.body["job_id"].as_str().unwrap();
    assert_eq!(api.job(&token, job_id, "").await.body["state"], "leased", "its worker may read it");
}

/// What an operator disabled stays disabled, and the worker is told.
#[tokio::test]
async fn registering_enables_nothing_that_was_disabled() {
    let api = Api::start().await;
    let token = api.registering(None).await;
    let spec = SubscriptionSpec {
        executor_id: "py",
        executor_kind: "external_worker",
        job_kind: Some("resize"),
        enabled: false,
        actor: "tester",
        ..Default::default()
    };
    api.database.subscription_put(&spec).await.unwrap();
    let said = api.register(&token, json!({"kinds": ["resize"]})).await;
    assert_eq!((&said.body["added"], &said.body["disabled"]), (&json!([]), &json!(["resize"])), "{said:?}");
    let enabled = "select enabled from towpath.job_subscription where job_kind = 'resize'";
    assert_eq!(api.db.text(enabled).await, "false");
}

/// R08: a token registers only if it may, and only its own kinds.
#[tokio::test]
async fn a_token_registers_only_what_it_may() {
    let api = Api::start().await;
    let plain = api.token("py", &[]).await;
    let kinds = json!({"kinds": ["blur"]});
    assert_eq!(api.register(&plain, kinds.clone()).await.word(), (403, "not_authorised"));
    let narrow = api.registering(Some(&["crop".to_owned()])).await;
    assert_eq!(api.register(&narrow, kinds.clone()).await.word(), (403, "not_authorised"));
    assert_eq!(api.register(&narrow, json!({"kinds": ["crop"]})).await.status, 200);
    let wide = api.registering(None).await;
    for bad in [json!({"kinds": []}), json!({"kinds": [""]}), json!({"kinds": ["a"], "concurrency": 0})] {
        assert_eq!(api.register(&wide, bad.clone()).await.word(), (422, "invalid"), "{bad}");
    }
    assert_eq!(api.register("tpx_guess", kinds).await.word(), (401, "unauthenticated"));
    assert_eq!(api.db.text("select count(*) from towpath.job_subscription").await, "3", "as before");
}

/// Q13: a heartbeat says which kinds the process handles, and so does registering.
#[tokio::test]
async fn workers_are_known_by_their_kinds() {
    let api = Api::start().await;
    let token = api.registering(None).await;
    assert_eq!(api.register(&token, json!({"kinds": ["blur"], "concurrency": 8})).await.status, 200);
    let worker = "select w ->> 'executor_name' || ' ' || (w ->> 'kinds') || ' ' || (w ->> 'concurrency') || ' ' || (w ->> 'live')
                    from jsonb_array_elements(towpath.fn_queue_worker_list('blur') -> 'workers') w";
    assert_eq!(api.db.text(worker).await, r#"py ["blur"] 8 true"#);
    let heartbeat = json!({"kinds": ["blur", "resize"]});
    assert_eq!(api.post(&token, "heartbeat", heartbeat).await.status, 200);
    assert_eq!(api.db.text(worker).await, r#"py ["blur", "resize"] 8 true"#);
    assert_eq!(api.post(&token, "heartbeat", json!({"kinds": [""]})).await.word(), (422, "invalid"));
    api.db.advance(std::time::Duration::from_secs(3601)).await;
    let other = api.token("ts", &[]).await;
    assert_eq!(api.post(&other, "heartbeat", json!({"kinds": ["crop"]})).await.status, 200);
    let left = "select string_agg(executor_name, ' ') from towpath.queue_worker";
    assert_eq!(api.db.text(left).await, "ts", "the one that was silent for an hour is gone");
}
