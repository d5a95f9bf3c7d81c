//! Executor tokens: `sql/functions/executor_token.sql`.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::executor_token::{BatchError, TokenHash, TokenSpec};
use towpath_db::subscription::SubscriptionSpec;
use towpath_db::{Database, Error};
use towpath_testkit::TestDb;

/// A database with the executor `py`, which claims `resize` and `crop` as external_worker.
async fn with_executor() -> (TestDb, Database) {
    let db = TestDb::open().await;
    let database = db.database().await;
    database.consumer_put("py", "external_worker", None, None, "tester").await.expect("an executor");
    for kind in ["resize", "crop"] {
        database
            .subscription_put(&SubscriptionSpec {
                executor_id: "py",
                executor_kind: "external_worker",
                job_kind: Some(kind),
                enabled: true,
                actor: "tester",
                ..Default::default()
            })
            .await
            .expect("an executor");
    }
    (db, database)
}

fn spec() -> TokenSpec<'static> {
    TokenSpec { executor_id: "py", actor: "tester", ..Default::default() }
}

fn refused(error: Error) -> String {
    match error {
        Error::NotAuthorised(detail) => detail,
        other => panic!("{other:?}"),
    }
}

/// R08: only the hash is stored, and the word opens what the token was made for.
#[tokio::test]
async fn a_token_opens_its_executor_and_its_word_is_stored_nowhere() {
    let (db, database) = with_executor().await;
    let kinds = ["resize".to_owned()];
    let spec = TokenSpec { kinds: Some(&kinds), ..spec() };
    let created = database.executor_token_create(&spec).await.unwrap();
    assert!(created.token.starts_with("tpx_") && created.token.len() == 68, "{}", created.token.len());
    assert!(!format!("{created:?}").contains(&created.token), "not in a log either");
    let scope = database.executor_token_check(&TokenHash::of(&created.token)).await.unwrap();
    assert_eq!(
        (scope.executor_id.as_deref(), scope.executor.as_deref()),
        (Some("py"), Some("external_worker"))
    );
    assert_eq!((scope.kinds, scope.may_enqueue), (Some(vec!["resize".to_owned()]), false));
    let stored = db.text("select string_agg(t::text, ' ') from towpath.executor_token t").await;
    assert!(!stored.contains(&created.token) && !stored.contains(&created.token[4..]), "{stored}");
    let listed = database.executor_token_list(Some("py")).await.unwrap();
    assert_eq!((listed.len(), listed[0].state.as_str()), (1, "active"));
    assert!(listed[0].last_used_at.is_some(), "its use was noted");
}

/// Unknown, revoked, expired, and without its executor: closed at once, and it says why.
#[tokio::test]
async fn a_token_that_ended_gives_no_access() {
    let (db, database) = with_executor().await;
    let check = async |word: &str| database.executor_token_check(&TokenHash::of(word)).await;
    assert!(refused(check("tpx_guess").await.unwrap_err()).contains("unknown"));
    let revoked = database.executor_token_create(&spec()).await.unwrap();
    assert!(database.executor_token_revoke(revoked.token_id, "tester").await.unwrap().changed);
    assert!(!database.executor_token_revoke(revoked.token_id, "tester").await.unwrap().changed);
    assert!(refused(check(&revoked.token).await.unwrap_err()).contains("revoked"));
    let expires_at = Some(jiff::Timestamp::now() + Duration::from_secs(60));
    let expiring = database.executor_token_create(&TokenSpec { expires_at, ..spec() }).await.unwrap();
    check(&expiring.token).await.unwrap();
    db.advance(Duration::from_secs(61)).await;
    assert!(refused(check(&expiring.token).await.unwrap_err()).contains("expired"));
    let orphan = database.executor_token_create(&spec()).await.unwrap();
    database.consumer_delete("py").await.unwrap();
    database.consumer_put("py", "external_worker", None, None, "tester").await.unwrap();
    assert!(
        refused(check(&orphan.token).await.unwrap_err()).contains("revoked"),
        "the name came back, not the token"
    );
    let states: Vec<String> =
        database.executor_token_list(None).await.unwrap().into_iter().map(|token| token.state).collect();
    assert_eq!(states, ["revoked", "revoked", "revoked"]);
}

/// Bad arguments are refused with the field.
#[tokio::test]
async fn bad_tokens_are_not_made() {
    let (_db, database) = with_executor().await;
    let make = async |spec: TokenSpec<'static>| database.executor_token_create(&spec).await.unwrap_err();
    assert!(matches!(make(TokenSpec { executor_id: "nobody", ..spec() }).await, Error::NotFound(_)));
    assert!(matches!(make(TokenSpec { kinds: Some(&[]), ..spec() }).await, Error::Invalid(_)));
    let blank: &'static [String] = Box::leak(Box::new([" ".to_owned()]));
    assert!(matches!(make(TokenSpec { kinds: Some(blank), ..spec() }).await, Error::Invalid(_)));
    let past = Some(jiff::Timestamp::UNIX_EPOCH);
    assert!(matches!(make(TokenSpec { expires_at: past, ..spec() }).await, Error::Invalid(_)));
    assert!(matches!(make(TokenSpec { actor: " ", ..spec() }).await, Error::Invalid(_)));
}

/// R08, P10: only workflow_admin, under which the server runs, makes, lists, revokes, checks and uses tokens.
#[tokio::test]
async fn only_the_named_roles_get_through() {
    let (db, _) = with_executor().await;
    let admin = [
        "select towpath.fn_executor_token_create('py')",
        "select towpath.fn_executor_token_list()",
        "select towpath.fn_executor_token_revoke(gen_random_uuid())",
        "select towpath.fn_executor_token_check('\\x00')",
        "select towpath.fn_executor_token_enqueue('\\x00', '[]')",
        "select towpath.fn_executor_token_register('\\x00', '{x}')",
        "select towpath.fn_executor_token_emit('\\x00', '[]')",
        "select towpath.fn_executor_token_job_state('\\x00', gen_random_uuid())",
        "select towpath.fn_executor_token_job_cancel('\\x00', gen_random_uuid())",
    ];
    let table =
        ["select * from towpath.executor_token", "update towpath.executor_token set may_enqueue = true"];
    for role in ["workflow_admin", "towpath_producer", "worker_service_user", "towpath_observer"] {
        let client = db.client_as(role).await;
        let may = |sql| role == "workflow_admin" && admin.contains(&sql);
        for sql in admin.into_iter().chain(table) {
            let outcome = client.batch_execute(sql).await;
            match outcome {
                Ok(()) => assert!(may(sql), "{role} may not: {sql}"),
                Err(error) => {
                    assert_eq!(error.code().unwrap().code(), "42501", "{role}: {sql}: {error:?}");
                    assert!(!may(sql), "{role} may: {sql}");
                }
            }
        }
    }
}

/// Whether each is a duplicate.
async fn enqueue(database: &Database, word: &str, jobs: Value) -> Result<Vec<bool>, BatchError> {
    let jobs = jobs.as_array().expect("an array").clone();
    let answers = database.executor_token_enqueue(&TokenHash::of(word), &jobs).await?;
    Ok(answers.into_iter().map(|answer| answer.duplicate).collect())
}

/// Why the whole call was refused.
fn whole(error: BatchError) -> Error {
    match error {
        BatchError::Whole(error) => error,
        BatchError::Rows(rows) => panic!("{rows:?}"),
    }
}

/// R09: a token enqueues what its executor works on within its kinds, what was granted to
/// the executor by name, and nothing else; its name cannot be changed.
#[tokio::test]
async fn a_token_enqueues_within_its_scope_only() {
    let (db, database) = with_executor().await;
    let silent = database.executor_token_create(&spec()).await.unwrap();
    let error = enqueue(&database, &silent.token, json!([{"job_kind": "resize"}])).await.unwrap_err();
    assert!(refused(whole(error)).contains("is not allowed to enqueue"));
    let kinds = ["resize".to_owned()];
    let spec = TokenSpec { kinds: Some(&kinds), may_enqueue: true, ..spec() };
    let token = database.executor_token_create(&spec).await.unwrap().token;
    let jobs = json!([
        {"job_kind": "resize", "idempotency_key": "one", "actor": "root", "payload_json": {"n": 12345678901234567890.5}},
        {"job_kind": "resize", "idempotency_key": "one"},
        {"job_kind": "crop"},
        {"job_kind": "resize", "executor": "PG_worker"},
        {"job_kind": "resize", "payload_json": {"Deep": [{"PASSWORD": 1}]}},
        {"job_kind": "resize", "priority": -1},
        {"job_kind": "resize", "scheduled_at": "tomorrow-ish"},
        {"job_kind": " "},
        {},
    ]);
    let Err(BatchError::Rows(rows)) = enqueue(&database, &token, jobs.clone()).await else { panic!("rows") };
    let of = |index: usize| rows.iter().find(|row| row.index == index).unwrap().error.to_string();
    assert_eq!(rows.iter().map(|row| row.index).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8]);
    assert!(of(2).contains("is not allowed to enqueue crop for external_worker"), "{}", of(2));
    assert!(of(3).contains("is not allowed to enqueue resize for PG_worker"), "{}", of(3));
    assert!(of(4).contains("PASSWORD"), "{}", of(4));
    assert!(of(5).contains("between 0 and 32767"), "{}", of(5));
    assert!(of(6).contains("tomorrow-ish"), "{}", of(6));
    assert!(of(7).contains("not authorised") && of(8).contains("not authorised"), "{} {}", of(7), of(8));
    assert_eq!(db.text("select count(*) from towpath.job").await, "0", "one refusal refuses all");
    let good = Value::from(jobs.as_array().unwrap()[..2].to_vec());
    assert_eq!(enqueue(&database, &token, good).await.unwrap(), [false, true]);
    assert_eq!(db.text("select string_agg(actor, ',') from towpath.job").await, "executor:py", "one job");
    database.producer_grant_put("executor:py", Some("mail"), Some("PG_worker"), "tester").await.unwrap();
    let granted = enqueue(&database, &token, json!([{"job_kind": "mail", "executor": "PG_worker"}])).await;
    assert_eq!(granted.unwrap(), [false]);
    let ungranted = enqueue(&database, &token, json!([{"job_kind": "mail", "executor": "DOT"}])).await;
    assert!(matches!(ungranted, Err(BatchError::Rows(_))), "mail was granted for PG_worker only");
}

/// Q06: behind a closed gate a token enqueues nothing.
#[tokio::test]
async fn a_closed_gate_stops_tokens_too() {
    let (db, database) = with_executor().await;
    let token =
        database.executor_token_create(&TokenSpec { may_enqueue: true, ..spec() }).await.unwrap().token;
    db.execute("update towpath.config set value = 'false' where key = 'queue.job_substrate.enabled'").await;
    let error = whole(enqueue(&database, &token, json!([{"job_kind": "resize"}])).await.unwrap_err());
    assert!(matches!(error, Error::GateClosed { .. }), "{error:?}");
    assert_eq!(db.text("select count(*) from towpath.job").await, "0");
}
