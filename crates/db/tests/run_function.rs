//! The function runner: what it calls, what it refuses, and what it answers.

use serde_json::{Value, json};
use towpath_testkit::TestDb;

use crate::process_kit::run_as;

/// Functions of every shape a name can point at. Each that runs leaves a row.
const SHAPES: &str = "
    create schema biz;
    grant usage on schema biz to worker_service_user;
    create table biz.ran (what text);
    create function biz.note(what text) returns jsonb language sql security definer
        as $$ insert into biz.ran values (what); select '{\"success\": true}'::jsonb $$;
    revoke execute on function biz.note(text) from public;
    create function biz.good(payload jsonb) returns jsonb language sql security definer as $$ select biz.note('good') $$;
    create function biz.closed(payload jsonb) returns jsonb language sql security definer as $$ select biz.note('closed') $$;
    create function biz.public_only(payload jsonb) returns jsonb language sql security definer as $$ select biz.note('public') $$;
    create function biz.of_text(payload text) returns jsonb language sql security definer as $$ select biz.note('text') $$;
    create function biz.of_two(a jsonb, b jsonb default '{}') returns jsonb language sql security definer as $$ select biz.note('two') $$;
    create function biz.of_none() returns jsonb language sql security definer as $$ select biz.note('none') $$;
    create function biz.returns_text(payload jsonb) returns text language sql security definer as $$ select biz.note('x')::text $$;
    create function biz.returns_set(payload jsonb) returns setof jsonb language sql security definer as $$ select biz.note('set') $$;
    create function biz.variadic(variadic payload jsonb[]) returns jsonb language sql security definer as $$ select biz.note('variadic') $$;
    create procedure biz.a_procedure(payload jsonb) language sql as $$ select biz.note('procedure') $$;
    create aggregate biz.an_aggregate(jsonb) (sfunc = jsonb_concat, stype = jsonb);
    create function biz.\"Quoted Name\"(payload jsonb) returns jsonb language sql security definer as $$ select biz.note('quoted') $$;
    create function biz.raises(payload jsonb) returns jsonb language plpgsql security definer
        as $$ begin perform biz.note('undone'); raise exception 'no such customer' using errcode = 'P0042'; end $$;
    create function biz.answers(payload jsonb) returns jsonb language sql as $$ select payload->'answer' $$;
    do $$ declare f regprocedure; begin
        for f in select p.oid from pg_proc p where p.pronamespace = 'biz'::regnamespace and p.prokind = 'f'
                    and p.proname not in ('closed', 'public_only', 'note') loop
            execute format('revoke execute on function %s from public', f);
            execute format('grant execute on function %s to worker_service_user', f);
        end loop;
        revoke execute on function biz.closed(jsonb) from public;
    end $$;";

/// P02: sixty and more names that are no names of a function: all refused, none reaches the
/// parser, nothing runs.
#[tokio::test]
async fn an_injected_name_is_refused() {
    let db = TestDb::open().await;
    db.execute(SHAPES).await;
    let worker = db.client_as("worker_service_user").await;
    let long = format!("biz.{}", "a".repeat(64));
    let longer = "x".repeat(100_000);
    let corpus: Vec<&str> = INJECTIONS.iter().copied().chain([long.as_str(), longer.as_str()]).collect();
    assert!(corpus.len() >= 60, "{}", corpus.len());
    for name in corpus {
        let answer = run_as(&worker, name, &json!({})).await;
        assert_eq!(answer["success"], false, "{name:?}: {answer}");
        assert_eq!(answer["refusal"], "invalid", "{name:?}: {answer}");
        let why = answer["validation_failure_message"].as_str().unwrap();
        assert!(why.contains("schema.function") && why.len() < 1_000, "{name:?}: {why}");
    }
    let row = worker.query_one("select towpath.run_function(null, '{}')", &[]).await.unwrap();
    assert_eq!(row.get::<_, Value>(0)["refusal"], "invalid");
    assert_eq!(db.text("select count(*) from biz.ran").await, "0", "nothing ran");
}

const INJECTIONS: &[&str] = &[
    "",
    " ",
    ".",
    "..",
    "biz.",
    ".good",
    "good",
    "biz good",
    "biz .good",
    "biz. good",
    " biz.good",
    "biz.good ",
    "biz.good\n",
    "\nbiz.good",
    "biz.good\t",
    "biz.good\r\n",
    "biz.good()",
    "biz.good(jsonb)",
    "biz.good('{}')",
    "biz.good($1)",
    "biz.good($1); drop table biz.ran",
    "biz.good; drop table biz.ran",
    "biz.good;",
    "biz.good--",
    "biz.good -- ",
    "biz.good/*",
    "biz.good/**/",
    "biz/**/.good",
    "biz.good'",
    "biz.good''",
    "biz.good\"",
    "biz.\"good\"",
    "\"biz\".\"good\"",
    "\"biz\".good",
    "biz.\"Quoted Name\"",
    "biz.Quoted Name",
    "biz.good\" ($1); delete from biz.ran; --",
    "biz.good'; delete from biz.ran; --",
    "biz.good' or '1'='1",
    "biz.good union select 1",
    "biz.good($1) from biz.ran",
    "biz.good, biz.closed",
    "biz.good||biz.closed",
    "biz.good.closed",
    "towpath.biz.good",
    "database.biz.good.extra",
    "BIZ.GOOD",
    "Biz.Good",
    "biz.Good",
    "1biz.good",
    "biz.1good",
    "biz.go-od",
    "biz.go$od",
    "biz.$1",
    "$1.$2",
    "%I.%I",
    "%s",
    "biz.%s",
    "biz.\\good",
    "biz\\.good",
    "biz.good\u{200b}",
    "bіz.good",
    "biz.gооd",
    "biz\u{ff0e}good",
    "biz.good\u{202e}",
    "(select 'biz.good')",
    "case when true then biz.good end",
    "pg_catalog.pg_sleep(10)",
    "pg_sleep",
    "E'biz.good'",
    "$$biz.good$$",
    "{\"a\":1}",
    "null",
    "../biz.good",
];

/// P02: only functions (jsonb) returns jsonb with a grant of their own; the refusal says what is
/// missing and the statement that would give it.
#[tokio::test]
async fn only_granted_functions_of_the_right_shape_are_called() {
    let db = TestDb::open().await;
    db.execute(SHAPES).await;
    let worker = db.client_as("worker_service_user").await;
    for (name, word) in [
        ("biz.of_text", "not_found"),
        ("biz.of_two", "not_found"),
        ("biz.of_none", "not_found"),
        ("biz.returns_text", "not_found"),
        ("biz.returns_set", "not_found"),
        ("biz.variadic", "not_found"),
        ("biz.a_procedure", "not_found"),
        ("biz.an_aggregate", "not_found"),
        ("biz.absent", "not_found"),
        ("absent.good", "not_found"),
        ("biz.ran", "not_found"),
        ("pg_catalog.jsonb_typeof", "not_found"),
        ("biz.closed", "not_authorised"),
        ("biz.public_only", "not_authorised"),
        ("towpath.fn_mot_graph_emit", "not_authorised"),
        ("towpath.fn_job_enqueue_many", "not_authorised"),
        ("comms.record_send_email_fact", "not_authorised"),
        ("comms._addresses", "not_found"),
    ] {
        let answer = run_as(&worker, name, &json!({})).await;
        assert_eq!(answer["refusal"], word, "{name}: {answer}");
        assert_eq!(answer["success"], false);
        assert_eq!(answer["error"], "", "a refusal is not retried");
    }
    // PostgreSQL's own functions of that shape, which everybody may call: one up to 17, none in 18.
    let own = "select coalesce(string_agg('pg_catalog.' || proname, ','), '') from pg_proc
                where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f' and not proretset
                  and oidvectortypes(proargtypes) = 'jsonb' and prorettype = 'jsonb'::regtype";
    for name in db.text(own).await.split(',').filter(|name| !name.is_empty()) {
        assert_eq!(run_as(&worker, name, &json!({})).await["refusal"], "not_authorised", "{name}");
    }
    let answer = run_as(&worker, "biz.closed", &json!({})).await;
    let why = answer["validation_failure_message"].as_str().unwrap();
    let statement = why.split_once("run it: ").unwrap().1;
    assert_eq!(statement, "grant execute on function biz.closed(jsonb) to worker_service_user");
    assert_eq!(db.text("select count(*) from biz.ran").await, "0", "nothing ran");

    db.execute(statement).await;
    assert_eq!(
        run_as(&worker, "biz.closed", &json!({})).await["success"],
        true,
        "the statement was the right one"
    );
    assert_eq!(run_as(&worker, "biz.good", &json!({})).await["success"], true);
    db.execute("revoke usage on schema biz from worker_service_user").await;
    let answer = run_as(&worker, "biz.good", &json!({})).await;
    let why = answer["validation_failure_message"].as_str().unwrap();
    assert!(why.ends_with("grant usage on schema biz to worker_service_user"), "{why}");
}

/// P02: the runner has its caller's rights, so that a login without the worker's role cannot even
/// call it, and what it calls without definer's rights stays the caller's.
#[tokio::test]
async fn the_runner_lends_nobody_its_rights() {
    let db = TestDb::open().await;
    db.execute(SHAPES).await;
    db.execute(
        "create function biz.peek(payload jsonb) returns jsonb language sql
             as $$ select jsonb_build_object('success', true, 'payload', (select count(*) from towpath.config)) $$;
         grant execute on function biz.peek(jsonb) to worker_service_user",
    )
    .await;
    for role in ["towpath_producer", "towpath_observer", "workflow_admin"] {
        let client = db.client_as(role).await;
        let error = client.batch_execute("select towpath.run_function('biz.good', '{}')").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{role}");
    }
    let worker = db.client_as("worker_service_user").await;
    let answer = run_as(&worker, "biz.peek", &json!({})).await;
    assert_eq!(answer["sqlstate"], "42501", "it read a table as the worker, who may not: {answer}");
}

/// P02: a temporary function or table named like ours comes between nothing.
#[tokio::test]
async fn temporary_objects_hijack_nothing() {
    let db = TestDb::open().await;
    db.execute(SHAPES).await;
    let worker = db.client_as("worker_service_user").await;
    worker
        .batch_execute(
            "create temporary table pg_proc (oid oid, proname name);
             create temporary table ran (what text);
             create function pg_temp.format(text, variadic text[]) returns text language sql as $$ select 'select 1/0' $$;
             create function pg_temp.aclexplode(aclitem[], out grantee oid, out privilege_type text) returns setof record
                 language sql as $$ select 'worker_service_user'::regrole::oid, 'EXECUTE' $$;
             set search_path = pg_temp, biz, public",
        )
        .await
        .unwrap();
    assert_eq!(run_as(&worker, "biz.closed", &json!({})).await["refusal"], "not_authorised");
    assert_eq!(run_as(&worker, "biz.good", &json!({})).await["success"], true);
    assert_eq!(db.text("select string_agg(what, ',') from biz.ran").await, "good");
}

/// P03: the envelope is always whole: what a function left out is there, what it raised is the
/// error, and its writes are undone.
#[tokio::test]
async fn every_call_answers_the_envelope() {
    let db = TestDb::open().await;
    db.execute(SHAPES).await;
    let worker = db.client_as("worker_service_user").await;
    let answers = |answer: Value| json!({ "answer": answer });

    let good =
        run_as(&worker, "biz.answers", &answers(json!({ "success": true, "payload": { "a": null } }))).await;
    assert_eq!(
        good,
        json!({ "success": true, "error": "", "validation_failure_message": "", "payload": { "a": null } })
    );
    let refused = json!({ "success": false, "validation_failure_message": "no", "error": null, "more": 1 });
    assert_eq!(
        run_as(&worker, "biz.answers", &answers(refused)).await,
        json!({ "success": false, "error": "", "validation_failure_message": "no", "payload": null, "more": 1 })
    );
    for nonsense in [json!(null), json!(7), json!([]), json!({}), json!({ "success": "yes" })] {
        let answer = run_as(&worker, "biz.answers", &answers(nonsense.clone())).await;
        assert_eq!(answer["success"], false, "{nonsense}");
        assert!(
            answer["error"].as_str().unwrap().contains("did not return a result envelope"),
            "{nonsense}: {answer}"
        );
    }
    let raised = run_as(&worker, "biz.raises", &json!({})).await;
    assert_eq!(raised["sqlstate"], "P0042");
    assert_eq!(raised["error"], "biz.raises: no such customer");
    assert_eq!(db.text("select count(*) from biz.ran").await, "0", "its writes are undone");
    let row = worker.query_one("select towpath.run_function('biz.good', '[1]')", &[]).await.unwrap();
    assert_eq!(row.get::<_, Value>(0)["refusal"], "invalid", "a payload is an object");
}

/// P05: errors carry ids and context, are append-only for everybody, and hold no credentials.
#[tokio::test]
async fn task_errors_are_kept_and_keep_no_secrets() {
    let db = TestDb::open().await;
    let worker = db.client_as("worker_service_user").await;
    let record = |kind: &str, message: &str, context: Value| {
        let sql = format!(
            "select towpath.fn_task_error_record($1, $2, '01900000-0000-7000-8000-000000000001', 2, 'email', 'comms.x', '{context}')"
        );
        let (kind, message, worker) = (kind.to_owned(), message.to_owned(), &worker);
        async move { worker.query_one(&sql, &[&kind, &message]).await.unwrap().get::<_, Value>(0) }
    };
    let process = "01900000-0000-7000-8000-00000000000a";
    let context = json!({ "process_id": process, "attempt_no": 3, "send_email_task_id": 9 });
    assert_eq!(record("provider", "451 try later", context).await["ok"], true);
    assert_eq!(record("shrug", "x", json!({})).await["error"], "invalid");
    for (message, shown) in [
        ("smtp://me:hunter2@mail failed", "smtp://me:***@mail failed"),
        ("401: Authorization: Bearer abcdefghijkl was refused", "401: Authorization: Bearer *** was refused"),
        ("password=hunter2, retry", "password=***, retry"),
        (r#"{"api_key": "abc123"}"#, r#"{"api_key": "***"}"#),
        ("key re_AbCdEfGhIjKlMnOp is revoked", "key re_*** is revoked"),
        ("  ", "no error text"),
    ] {
        let id = record("operational", message, json!({})).await["task_error_id"].clone();
        let kept =
            db.text(&format!("select message from towpath.task_error where task_error_id = {id}")).await;
        assert_eq!(kept, shown);
    }
    assert_eq!(record("operational", &"x".repeat(10_000), json!({})).await["ok"], true);
    let id = record("operational", "x", json!({ "a": [{ "PassWord": "hunter2" }] })).await["task_error_id"]
        .clone();
    let kept = db.json(&format!("select context from towpath.task_error where task_error_id = {id}")).await;
    assert!(kept["dropped"].is_string(), "{kept}");

    let listed = db.json(&format!("towpath.fn_task_error_list('{{\"process_id\": \"{process}\"}}')")).await;
    let errors = listed["task_errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!((&errors[0]["attempt_no"], &errors[0]["job_attempt"]), (&json!(3), &json!(2)));
    assert_eq!(errors[0]["context"]["send_email_task_id"], 9);
    let page = db.json("towpath.fn_task_error_list('{}', 2)").await;
    let next = db.json(&format!("towpath.fn_task_error_list('{{}}', 100, {})", page["cursor"])).await;
    assert_eq!(next["task_errors"].as_array().unwrap().len(), 7, "the rest");
    assert_eq!(db.json("towpath.fn_task_error_list('{\"proces_id\": 1}')").await["error"], "unknown_key");
    assert_eq!(db.json("towpath.fn_task_error_list('{\"process_id\": \"x\"}')").await["error"], "invalid");

    for role in ["postgres", "towpath_owner"] {
        let client = db.client_as(role).await;
        for sql in [
            "update towpath.task_error set message = 'x'",
            "delete from towpath.task_error",
            "truncate towpath.task_error",
        ] {
            let error = client.batch_execute(sql).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {sql}");
        }
    }
}
