//! What the database refuses, asked by the role that must be refused.

use serde_json::json;
use towpath_db::Error;
use towpath_db::job::{Claim, Failure, LeaseOwner, NewJob};
use towpath_testkit::queue::{EXECUTOR, Queue};

/// Q02: an enqueue that breaks a rule is refused with the field, and writes nothing.
#[tokio::test]
async fn broken_jobs_are_refused() {
    let queue = Queue::open().await;
    let mail = || NewJob::new("mail");
    for (job, word) in [
        (NewJob::new(""), "blank"),
        (NewJob::new("  "), "blank"),
        (mail().actor(" "), "blank"),
        (mail().priority(-1), "between 0 and 32767"),
        (mail().max_attempts(0), "between 1 and 1000"),
        (mail().executor("MOT"), "whitelist"),
        (mail().executor("pg_worker"), "whitelist"),
        (mail().event_domain(" "), "blank"),
        (mail().idempotency_key(""), "blank"),
    ] {
        let refused = queue.producer.enqueue(&job).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(words) if words.contains(word)), "{job:?}: {refused}");
    }
    assert_eq!(queue.db.text("select count(*) from towpath.job_queue").await, "0");
}

/// Q02: the tables refuse by themselves what no function would write, even to their owner.
#[tokio::test]
async fn the_tables_themselves_refuse() {
    let queue = Queue::open().await;
    queue.enqueue_job(&NewJob::new("mail").idempotency_key("k")).await;
    let owner = queue.db.client_as("towpath_owner").await;
    let live = |set: &str| format!("update towpath.job_live set {set}");
    let copy = |change: serde_json::Value| {
        format!("insert into towpath.job select (jsonb_populate_record(j, '{change}')).* from towpath.job j")
    };
    for (sql, claim) in [
        (live("state = 9"), "live_state_check"),
        (live("attempts = -1"), "not_negative_check"),
        (live("max_attempts = 0"), "attempt_limit_from_1_to_1000_check"),
        (live("lease_owner = 'x'"), "lease"),
        (live("lease_until = now()"), "lease_pair_check"),
        (live("state = 1"), "leased_iff_owned_check"),
        (copy(json!({"job_kind": " "})), "label_not_blank_short_and_plain_check"),
        (copy(json!({"actor": ""})), "label_not_blank_short_and_plain_check"),
        (copy(json!({"priority": -1})), "priority_from_0_to_32767_check"),
        (copy(json!({"max_attempts": 0})), "attempt_limit_from_1_to_1000_check"),
        (copy(json!({"executor": "MOT"})), "whitelist_check"),
        (copy(json!({"payload_json": {"a": [{"SSN": 1}]}})), "safe_check"),
        (
            "insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome)
             values (gen_random_uuid(), 1, 0, now(), null, 'succeeded')"
                .to_owned(),
            "finished_at",
        ),
    ] {
        let error = owner.batch_execute(&sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let told = format!("{} {}", error.message(), error.constraint().unwrap_or_default());
        assert!(["23514", "23502"].contains(&error.code().code()), "{sql}: {told}");
        assert!(told.contains(claim), "{sql}: {told}");
    }
}

/// Q03: the denylist, in any letter case and at any depth, in jobs and in heartbeats.
#[tokio::test]
async fn forbidden_keys_are_refused_at_any_depth() {
    let queue = Queue::open().await;
    for key in [
        "body",
        "content",
        "raw",
        "vector",
        "embedding",
        "secret",
        "token",
        "password",
        "ssn",
        "personal_data",
        "Password",
        "TOKEN",
        "Personal_Data",
    ] {
        for payload in [json!({key: 1}), json!({"a": {"b": [1, {key: null}]}}), json!([[{key: "x"}]])] {
            let job = NewJob::new("mail").payload(&payload).unwrap();
            let refused = queue.producer.enqueue(&job).await.unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{payload}: {refused}");
        }
        let worker = queue.db.client_as("worker_service_user").await;
        let sql = "select towpath.fn_queue_heartbeat_tick('w', 'PG_worker', p_metadata => $1::text::jsonb)";
        let metadata = json!({"deep": {key: 1}}).to_string();
        let answer: serde_json::Value = worker.query_one(sql, &[&metadata]).await.unwrap().get(0);
        assert_eq!(answer["error"], "invalid", "{key} in a heartbeat");
    }
    let fine = NewJob::new("mail").payload(&json!({"body_ref": "blob:1", "n": "token"})).unwrap();
    queue.producer.enqueue(&fine).await.unwrap();
}

/// Q03, R07: around the functions too, dead letters, heartbeats and schedules take no data, and no surface
/// a stranger to the whitelist, not even from the owner of the tables.
#[tokio::test]
async fn every_table_holds_the_denylist_and_the_whitelist() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue.claim().await.fail(&queue.worker, Failure::permanent("no")).await.unwrap();
    for call in [
        "fn_consumer_put('x', 'PG_worker')",
        "fn_producer_grant_put('x', null, 'PG_worker')",
        "fn_queue_heartbeat_tick('x', 'PG_worker')",
        "fn_schedule_put('n', '* * * * *', 'UTC', '{\"job_kind\": \"x\"}', now())",
    ] {
        assert_eq!(queue.db.json(&format!("towpath.{call}")).await["ok"], true, "{call}");
    }
    let owner = queue.db.client_as("towpath_owner").await;
    let data = r#"'{"a": [{"Body": 1}]}'"#;
    for (table, set, constraint) in [
        ("job_dead_letter", format!("payload_json = {data}"), "signal_safe_check"),
        ("queue_heartbeat", format!("metadata = {data}"), "signal_safe_check"),
        ("schedule", format!("payload_json = {data}"), "signal_safe_check"),
        ("job_subscription", "executor_kind = 'MOT'".to_owned(), "executor_kind_whitelist_check"),
        ("consumer_registry", "executor = 'MOT'".to_owned(), "executor_kind_whitelist_check"),
        ("producer_grant", "executor = 'MOT'".to_owned(), "executor_kind_whitelist_check"),
        ("queue_heartbeat", "executor_kind = 'MOT'".to_owned(), "executor_kind_whitelist_check"),
    ] {
        let error = owner.batch_execute(&format!("update towpath.{table} set {set}")).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.constraint(), Some(constraint), "{table}: {}", error.message());
    }
}

/// R07: MOT, and anything else outside the whitelist, is refused on all four surfaces.
#[tokio::test]
async fn the_whitelist_holds_on_all_four_surfaces() {
    let queue = Queue::open().await;
    for stranger in ["MOT", "mot", "", "Kestra"] {
        let job = NewJob::new("mail").executor(stranger);
        assert!(matches!(queue.producer.enqueue(&job).await, Err(Error::Invalid(_))), "job: {stranger}");
        for call in [
            format!("fn_job_subscription_put('x', '{stranger}')"),
            format!("fn_consumer_put('x', '{stranger}')"),
            format!("fn_producer_grant_put('x', null, '{stranger}')"),
            format!("fn_queue_heartbeat_tick('x', '{stranger}')"),
        ] {
            assert_eq!(queue.db.json(&format!("towpath.{call}")).await["error"], "invalid", "{call}");
        }
    }
    for known in ["DOT", "Agent", "Hermes", "Codex", "PG_worker", "external_worker", "future_Kestra_adapter"]
    {
        queue.enqueue_job(&NewJob::new("mail").executor(known)).await;
    }
}

/// R06, R08: without an enabled subscription nothing is claimed, and an executor cannot give
/// itself one.
#[tokio::test]
async fn an_executor_cannot_subscribe_itself() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    let owner = LeaseOwner::new("x");
    let claim = Claim { executor: "nobody", kinds: None, limit: 1, owner: &owner, lease: None };
    let refused = queue.worker.claim(&claim).await.unwrap_err();
    assert!(refused.to_string().contains("not registered"), "{refused}");
    queue.db.json("towpath.fn_consumer_put('nobody', 'PG_worker')").await;
    let refused = queue.worker.claim(&claim).await.unwrap_err();
    assert!(refused.to_string().contains("no enabled subscription"), "{refused}");

    let worker = queue.db.client_as("worker_service_user").await;
    for call in [
        "towpath.fn_job_subscription_put('nobody', 'PG_worker', p_enabled => true)",
        "towpath.fn_consumer_put('nobody', 'PG_worker')",
        "towpath.fn_producer_grant_put('nobody')",
        "towpath.fn_gate_set('queue.worker.enabled', false, 'x', 'y')",
        "towpath.fn_job_enqueue('mail')",
        "towpath.fn_job_cancel(gen_random_uuid(), 'x')",
    ] {
        let error = worker.batch_execute(&format!("select {call}")).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{call}");
    }
    for table in ["job_subscription", "consumer_registry", "producer_grant", "job_live", "job"] {
        let error = worker.batch_execute(&format!("delete from towpath.{table}")).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{table}");
    }
    let producer = queue.db.client_as("towpath_producer").await;
    let error = producer.batch_execute("select towpath.fn_job_claim('tester')").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501", "a producer does not claim");
}

/// R06, R08: a claim needs the executor's registration, and registration, subscription and heartbeat name one kind.
/// Without the registration it is silent until it is registered again; what it holds it may finish.
#[tokio::test]
async fn an_executor_works_as_it_is_registered() {
    let queue = Queue::open().await;
    let subscribe = |executor: &str, kind: &str| {
        format!(
            "towpath.fn_job_subscription_put('{executor}', '{kind}', p_max_parallel => null, p_enabled => true)"
        )
    };
    let word = async |call: String| queue.db.json(&call).await["error"].clone();
    assert_eq!(word(subscribe("stranger", "PG_worker")).await, "not_found");
    assert_eq!(word(subscribe(EXECUTOR, "Agent")).await, "conflict");
    assert_eq!(word(format!("towpath.fn_consumer_put('{EXECUTOR}', 'Agent')")).await, "conflict");
    for name in [EXECUTOR.to_owned(), format!("{EXECUTOR}@host-1")] {
        let tick = |kind: &str| format!("towpath.fn_queue_heartbeat_tick('{name}', {kind})");
        assert_eq!(word(tick("'Agent'")).await, "invalid", "{name}");
        assert_eq!(queue.db.json(&tick("null")).await["ok"], true, "{name}");
    }
    let kinds = "select string_agg(distinct executor_kind, ' ') from towpath.v_queue_heartbeat";
    assert_eq!(queue.db.text(kinds).await, "PG_worker");

    queue.enqueue_times("mail", 2).await;
    let held = queue.claim_as("a", 1).await.unwrap().remove(0);
    queue.db.json(&format!("towpath.fn_consumer_delete('{EXECUTOR}')")).await;
    let refused = queue.claim_as("a", 1).await.unwrap_err();
    assert!(matches!(&refused, Error::NotAuthorised(words) if words.contains("executor add")), "{refused}");
    held.lease.ack(&queue.worker).await.unwrap();
    let why =
        "towpath.fn_job_why((select job_id from towpath.job_queue where state = 'queued')) -> 'reasons' -> 0";
    assert_eq!(queue.db.json(why).await["code"], "not_registered");
    queue.db.json(&format!("towpath.fn_consumer_put('{EXECUTOR}', 'PG_worker')")).await;
    assert_eq!(queue.claim_as("a", 1).await.unwrap().len(), 1);
}

/// R08: an executor registered for a login can be used by that login only.
#[tokio::test]
async fn a_registered_executor_belongs_to_its_login() {
    let queue = Queue::open().await;
    queue.enqueue("mail").await;
    queue
        .db
        .execute(&format!("select towpath.fn_consumer_put('{EXECUTOR}', 'PG_worker', 'workflow_admin')"))
        .await;
    let refused = queue.claim_as("a", 1).await.unwrap_err();
    assert!(matches!(refused, Error::NotAuthorised(_)), "{refused}");
}

/// R09: a producer enqueues only the kinds and executors it was granted.
#[tokio::test]
async fn a_producer_enqueues_only_what_it_was_granted() {
    let queue = Queue::open().await;
    let (producer, login) = queue.db.database_as("towpath_producer").await;
    queue.db.execute("delete from towpath.producer_grant").await;
    let refused = producer.enqueue(&NewJob::new("mail")).await.unwrap_err();
    assert!(matches!(&refused, Error::NotAuthorised(words) if words.contains(&login)), "{refused}");
    queue.db.execute(&format!("select towpath.fn_producer_grant_put('{login}', 'mail', 'PG_worker')")).await;
    producer.enqueue(&NewJob::new("mail")).await.unwrap();
    for other in [NewJob::new("sms"), NewJob::new("mail").executor("Hermes")] {
        assert!(matches!(producer.enqueue(&other).await, Err(Error::NotAuthorised(_))), "{other:?}");
    }
    let rows = producer.enqueue_many(&[NewJob::new("mail"), NewJob::new("sms")]).await.unwrap();
    assert!(rows[0].is_ok() && matches!(rows[1], Err(Error::NotAuthorised(_))), "{rows:?}");
}

/// R07: a refusal lists the whitelist, and lists all of it.
#[tokio::test]
async fn a_refused_executor_gets_the_whole_whitelist() {
    let queue = Queue::open().await;
    let said = queue.db.json("towpath.fn_job_enqueue('mail', p_executor => 'MOT')").await;
    let detail = said["detail"].as_str().unwrap();
    let (_, list) = detail.split_once("whitelist: ").expect(detail);
    let names: Vec<&str> = list.split(", ").collect();
    assert_eq!(names.len(), 7);
    for name in names {
        let known = queue.db.text(&format!("select towpath._executor_known('{name}')")).await;
        assert_eq!(known, "true", "{name}");
    }
}

/// Q03, Q22: a number that readers of JSON cannot hold is refused, alone or among others, and a long one that they can hold
/// is not.
#[tokio::test]
async fn a_number_that_nobody_can_read_is_refused() {
    let queue = Queue::open().await;
    let enqueue = |payload: &str| format!("towpath.fn_job_enqueue('mail', p_payload_json => '{payload}')");
    for payload in [r#"{"n": 1e400}"#, r#"{"deep": [{"n": -1e309}]}"#] {
        let refused = queue.db.json(&enqueue(payload)).await;
        assert_eq!((&refused["error"], &refused["field"]), (&json!("invalid"), &json!("payload_json")));
        assert!(refused["detail"].as_str().unwrap().contains("1e308"), "{refused}");
        let many = format!(
            r#"towpath.fn_job_enqueue_many('[{{"kind": "mail"}}, {{"kind": "mail", "payload": {payload}}}]')"#
        );
        let many = queue.db.json(&many).await;
        assert_eq!((&many["enqueued"], &many["refused"]), (&json!(1), &json!(1)), "{many}");
    }
    assert_eq!(queue.db.json(&enqueue(r#"{"n": 1e300}"#)).await["ok"], true);
    assert_eq!(queue.claim_as("a", 10).await.unwrap().len(), 3);
}
