//! Processes with steps: results that stay, waits that hold no worker, signals that are not lost.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_db::Database;
use towpath_db::process_run::{NewOfMany, NewStep, Signal, Wait};
use towpath_model::id::ProcessId;

use crate::process_kit::{LEASE, Processes, SECOND};

/// Races of a signal against a wait. A hundred find a missing lock at once; the option makes it a thousand.
fn races() -> usize {
    std::env::var("TOWPATH_RACES").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

/// A kind `test.call` with a handler, and another one with an SQL function, owned by somebody who owns nothing else.
async fn place() -> Processes {
    let place = Processes::open().await;
    place.execute("select towpath.process_kind('test.call', backoff_seconds => 0)").await;
    place
}

/// One row of a function about many attempts.
async fn many(place: &Processes, call: &str) -> Value {
    let row = place.worker.query_one(&format!("select answer from towpath.{call}"), &[]).await;
    row.unwrap_or_else(|error| panic!("{call}: {error:?}")).get(0)
}

async fn begin(place: &Processes, process: &str, attempt: i32, worker: &str) -> Value {
    many(place, &format!("fn_process_begin_many(array['{process}']::uuid[], array[{attempt}], '{worker}')"))
        .await
}

async fn step(place: &Processes, process: &str, attempt: i32, worker: &str, value: Value) -> Value {
    let call = format!(
        "fn_process_step_many(array['{process}']::uuid[], array[{attempt}], '{worker}', array['pay'], \
         array['{value}']::jsonb[])"
    );
    many(place, &call).await
}

async fn end(place: &Processes, process: &str, attempt: i32, worker: &str, end: Value) -> Value {
    let call =
        format!("fn_process_end_many(array['{process}']::uuid[], array[{attempt}], '{worker}', '[{end}]')");
    many(place, &call).await
}

async fn wait(place: &Processes, process: &str, attempt: i32, what: &str) -> Value {
    place.ask(&format!("fn_process_wait('{process}', {attempt}, 'w', {what})")).await
}

/// P13: the first result of a step stays, and the next attempt gets it with its beginning.
#[tokio::test]
async fn the_first_result_of_a_step_stays() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    assert_eq!(begin(&place, &process, 1, "w").await["steps"], json!({}));
    assert_eq!(step(&place, &process, 1, "w", json!({ "paid": 1 })).await["value"], json!({ "paid": 1 }));
    assert_eq!(step(&place, &process, 1, "w", json!({ "paid": 2 })).await["value"], json!({ "paid": 1 }));
    let failed = json!({ "outcome": "transient", "detail": { "message": "no" } });
    assert_eq!(end(&place, &process, 1, "w", failed).await["state"], "open");
    let begun = begin(&place, &process, 2, "w").await;
    assert_eq!(begun["steps"], json!({ "pay": { "paid": 1 } }), "{begun}");
    let done = json!({ "outcome": "accepted", "result": { "all": "well" } });
    assert_eq!(end(&place, &process, 2, "w", done).await["state"], "succeeded");
    let shown = place.json(&format!("towpath.fn_process_show('{process}')")).await;
    assert_eq!(shown["process"]["result"], json!({ "all": "well" }));
    place.check().await;
}

/// P13: a worker that does not hold the attempt any more records nothing: after the lease, with another name, or after the end.
#[tokio::test]
async fn a_step_is_fenced() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    begin(&place, &process, 1, "w").await;
    assert_eq!(step(&place, &process, 1, "other", json!(1)).await["error"], "lease_lost");
    place.advance(LEASE + SECOND).await;
    place.scan().await;
    assert_eq!(step(&place, &process, 1, "w", json!(1)).await["error"], "lease_lost");
    begin(&place, &process, 2, "w2").await;
    assert_eq!(step(&place, &process, 1, "w2", json!(1)).await["error"], "lease_lost");
    assert_eq!(step(&place, &process, 2, "w2", json!(2)).await["value"], 2);
    place.json(&format!("towpath.fn_process_cancel('{process}', 'ann')")).await;
    assert_eq!(step(&place, &process, 2, "w2", json!(2)).await["error"], "lease_lost");
    assert_eq!(wait(&place, &process, 2, "'x', p_seconds => 1").await["error"], "lease_lost");
    let none = "00000000-0000-0000-0000-000000000000";
    assert_eq!(step(&place, none, 1, "w", json!(1)).await["error"], "not_found");
    assert_eq!(begin(&place, none, 1, "w").await["error"], "not_found");
    place.check().await;
}

/// P13: an attempt is begun once, and a lease that is extended is not lost.
#[tokio::test]
async fn an_attempt_with_steps_is_begun_once_and_extended() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    assert_eq!(begin(&place, &process, 1, "w").await["ok"], true);
    assert_eq!(begin(&place, &process, 1, "w2").await["error"], "lease_lost");
    place.advance(LEASE - SECOND).await;
    let call = format!(
        "select count(*) from towpath.fn_process_extend_many(array['{process}']::uuid[], array[1], 'w')"
    );
    assert_eq!(place.worker.query_one(&call, &[]).await.unwrap().get::<_, i64>(0), 1);
    place.advance(SECOND * 3).await;
    place.scan().await;
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1", "begun 1"]);
    place.advance(LEASE).await;
    place.scan().await;
    assert_eq!(place.facts(&process).await[3..], ["lost 1", "scheduled 2"]);
}

/// P14: a sleep holds no worker, counts no attempt, and is over when the clock says so; a restart in between changes nothing.
#[tokio::test]
async fn a_sleep_ends_the_attempt_and_counts_none() {
    let place = Processes::open().await;
    place.execute("select towpath.process_kind('test.call', max_attempts => 1)").await;
    let process = place.start("test.call", "a").await;
    for nap in 1..=3 {
        begin(&place, &process, nap * 2 - 1, "w").await;
        let slept = wait(&place, &process, nap * 2 - 1, &format!("'nap {nap}', p_seconds => 3600")).await;
        assert_eq!(slept["ready"], false, "{slept}");
        place.advance(SECOND * 1_800).await;
        place.scan().await;
        let outstanding = "select count(*) from towpath.process_attempt where outcome is null";
        assert_eq!(place.text(outstanding).await, "0", "half of the time has passed");
        place.advance(SECOND * 1_801).await;
        place.scan().await;
        // A worker that begins and is killed before it asks: the next one sleeps no longer than the first.
        begin(&place, &process, nap * 2, "w").await;
        let slept = wait(&place, &process, nap * 2, &format!("'nap {nap}', p_seconds => 3600")).await;
        assert_eq!(slept["value"], json!({ "timed_out": true }), "{slept}");
        // Two attempts a nap: the second one waits for the next.
        let slept = wait(&place, &process, nap * 2, &format!("'pause {nap}', p_seconds => 1")).await;
        assert_eq!(slept["ready"], false, "{slept}");
        place.advance(SECOND * 2).await;
        place.scan().await;
    }
    begin(&place, &process, 7, "w").await;
    assert_eq!(end(&place, &process, 7, "w", json!({ "outcome": "accepted" })).await["state"], "succeeded");
    place.check().await;
}

/// P14: a wait beyond the deadline could never end, and says so.
#[tokio::test]
async fn a_wait_beyond_the_deadline_is_refused() {
    let place = Processes::open().await;
    place.execute("select towpath.process_kind('test.call', deadline_seconds => 60)").await;
    let process = place.start("test.call", "a").await;
    begin(&place, &process, 1, "w").await;
    let answer = wait(&place, &process, 1, "'nap', p_seconds => 61").await;
    assert!(answer["detail"].as_str().unwrap().contains("deadline_seconds"), "{answer}");
    assert_eq!(wait(&place, &process, 1, "'nap'").await["error"], "invalid");
}

/// P15: a signal is kept until somebody waits, belongs to its transaction, and the first of a name stays.
#[tokio::test]
async fn a_signal_is_kept_and_the_first_one_stays() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    let client = place.db.client().await;
    let signal = |payload: &str| {
        format!("select towpath.signal_process('test.call', 'a', 'shipped', '\"{payload}\"')")
    };
    client.batch_execute(&format!("begin; {}; rollback", signal("undone"))).await.unwrap();
    assert!(client.query_one(&signal("first"), &[]).await.unwrap().get::<_, bool>(0));
    assert!(!client.query_one(&signal("second"), &[]).await.unwrap().get::<_, bool>(0));
    begin(&place, &process, 1, "w").await;
    let waited = wait(&place, &process, 1, "'shipped', 'shipped', p_seconds => 60").await;
    assert_eq!(waited["value"], json!({ "signal": "first" }), "{waited}");
    // One that comes after a timeout comes too late: what an attempt has seen stays true.
    let waited = wait(&place, &process, 1, "'later', 'later', p_seconds => 60").await;
    assert_eq!(waited["ready"], false);
    place.advance(SECOND * 61).await;
    place.scan().await;
    begin(&place, &process, 2, "w").await;
    let waited = wait(&place, &process, 2, "'later', 'later', p_seconds => 60").await;
    assert_eq!(waited["value"], json!({ "timed_out": true }));
    client.execute("select towpath.signal_process('test.call', 'a', 'later')", &[]).await.unwrap();
    let waited = wait(&place, &process, 2, "'later', 'later', p_seconds => 60").await;
    assert_eq!(waited["value"], json!({ "timed_out": true }));
    place.check().await;
}

/// P15: what cannot be signalled is an error of the caller's transaction.
#[tokio::test]
async fn a_bad_signal_is_refused() {
    let place = place().await;
    let process = place.start("test.call", "a").await;
    for (arguments, word) in [
        ("'nobody', 'a', 's'", "not_found"),
        ("'test.call', 'b', 's'", "not_found"),
        ("'test.call', 'a', ' '", "invalid"),
        ("'test.call', 'a', null", "invalid"),
        ("'test.call', 'a', 'process:x'", "invalid"),
        ("'test.call', 'a', 's', to_jsonb(repeat('x', 70000))", "invalid"),
    ] {
        let answer = place.json(&format!("towpath.fn_process_signal({arguments})")).await;
        assert_eq!(answer["error"], word, "{arguments}: {answer}");
    }
    let producer = place.db.client_as("towpath_producer").await;
    let sql = "select towpath.fn_process_signal('test.call', 'a', 's')";
    assert_eq!(producer.query_one(sql, &[]).await.unwrap().get::<_, Value>(0)["error"], "not_authorised");
    place.execute("select towpath.fn_producer_grant_put('towpath_producer', 'test.call')").await;
    assert_eq!(producer.query_one(sql, &[]).await.unwrap().get::<_, Value>(0)["recorded"], true);
    place.json(&format!("towpath.fn_process_cancel('{process}', 'ann')")).await;
    assert_eq!(producer.query_one(sql, &[]).await.unwrap().get::<_, Value>(0)["error"], "conflict");
}

/// P15: a signal against a wait, on two connections: in any order, the process goes on exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_races_a_wait() {
    let place = place().await;
    let sender = Arc::new(place.db.client().await);
    let waiter = Arc::new(place.db.client_as("worker_service_user").await);
    let (mut at_once, mut woken) = (0, 0);
    for race in 0..races() {
        let process = place.start("test.call", &race.to_string()).await;
        begin(&place, &process, 1, "w").await;
        let signal = format!("select towpath.signal_process('test.call', '{race}', 'go', '{race}')");
        let wait_sql = format!("select towpath.fn_process_wait('{process}', 1, 'w', 'go', 'go')");
        let (sent, waited) = tokio::join!(ask(sender.clone(), signal), ask(waiter.clone(), wait_sql));
        sent.unwrap();
        let waited: Value = waited.unwrap().get(0);
        match waited["ready"].as_bool().unwrap() {
            true => at_once += 1,
            false => {
                woken += 1;
                assert_eq!(
                    begin(&place, &process, 2, "w").await["ok"],
                    true,
                    "race {race}: nobody was woken"
                );
                let again = wait(&place, &process, 2, "'go', 'go'").await;
                assert_eq!(again["value"], json!({ "signal": race }), "race {race}: {again}");
            }
        }
        let attempts = format!("select count(*) from towpath.process_attempt where process_id = '{process}'");
        let expected = if waited["ready"] == true { "1" } else { "2" };
        assert_eq!(place.text(&attempts).await, expected, "race {race}");
    }
    eprintln!("{at_once} waits found their signal, {woken} were woken");
    place.check().await;
}

async fn ask(client: Arc<Client>, sql: String) -> Result<tokio_postgres::Row, tokio_postgres::Error> {
    tokio::spawn(async move { client.query_one(&sql, &[]).await }).await.unwrap()
}

/// P14: a process starts another one and waits for its end, whatever that is.
#[tokio::test]
async fn a_process_waits_for_its_child() {
    let place = place().await;
    place.execute("select towpath.process_kind('test.child', max_attempts => 1)").await;
    for (reference, outcome, state) in [("a", "accepted", "succeeded"), ("b", "permanent", "gave_up")] {
        let parent = place.start("test.call", reference).await;
        begin(&place, &parent, 1, "w").await;
        let child = format!(
            r#"'child', p_child => '{{"kind": "test.child", "ref": "{reference}", "input": {{"n": 1}}}}'"#
        );
        assert_eq!(wait(&place, &parent, 1, &child).await["ready"], false);
        let sql = format!("select process_id::text from towpath.process where parent_id = '{parent}'");
        let child_id = place.text(&sql).await;
        assert_eq!(begin(&place, &child_id, 1, "w").await["input"], json!({ "n": 1 }));
        assert_eq!(
            end(&place, &child_id, 1, "w", json!({ "outcome": outcome, "result": 5 })).await["state"],
            state
        );
        begin(&place, &parent, 2, "w").await;
        let ended = wait(&place, &parent, 2, &child).await;
        assert_eq!(ended["value"]["state"], state, "{ended}");
    }
    // A process of somebody else is no child.
    place.start("test.child", "c").await;
    let parent = place.start("test.call", "c").await;
    begin(&place, &parent, 1, "w").await;
    let answer =
        wait(&place, &parent, 1, r#"'child', p_child => '{"kind": "test.child", "ref": "c"}'"#).await;
    assert_eq!(answer["error"], "conflict", "{answer}");
    place.check().await;
}

const ORDER: &str = "
    do $$ begin create role shopkeeper; exception when duplicate_object then null; end $$;
    grant towpath_producer to shopkeeper; create schema shop authorization shopkeeper;
    set role shopkeeper;
    grant usage on schema shop to worker_service_user;
    create table shop.effect (ref text, what text);
    create function shop.run_order(process jsonb) returns jsonb language plpgsql security definer
        set search_path = pg_catalog, pg_temp
    as $$
    declare
        shipped jsonb;
    begin
        if not process->'steps' ? 'pay' then
            insert into shop.effect values (process->>'ref', 'paid');
            perform towpath.process_step(process, 'pay', '{\"paid\": true}');
        end if;
        if process->'input' ? 'fail' and (process->>'attempt_no')::integer = 1 then
            raise exception 'the first time fails';
        end if;
        shipped := towpath.process_wait(process, 'shipped', interval '3 days');
        if shipped ? 'suspend' then
            return shipped;
        end if;
        insert into shop.effect values (process->>'ref', 'mailed');
        return jsonb_build_object('shipped', shipped);
    end;
    $$;
    revoke execute on function shop.run_order(jsonb) from public;
    grant execute on function shop.run_order(jsonb) to worker_service_user;
    reset role;
    select towpath.process_kind('shop.order', function => 'shop.run_order', backoff_seconds => 0)";

async fn run(place: &Processes, process: &str, attempt: i32) -> Value {
    many(place, &format!("fn_process_run_many(array['{process}']::uuid[], array[{attempt}], 'w')")).await
}

/// P16: a process in SQL is one function and one registration; the function belongs to nobody in particular.
#[tokio::test]
async fn a_process_in_sql_alone() {
    let place = Processes::open().await;
    place.execute(ORDER).await;
    let process = place.start("shop.order", "7").await;
    assert_eq!(run(&place, &process, 1).await["state"], "suspended");
    place.execute("select towpath.signal_process('shop.order', '7', 'shipped', '{\"parcel\": 1}')").await;
    assert_eq!(run(&place, &process, 2).await["state"], "succeeded");
    let effects = "select string_agg(what, ',' order by what) from shop.effect where ref = '7'";
    assert_eq!(place.text(effects).await, "mailed,paid");
    let facts = "started,scheduled 1,begun 1,stepped 1,suspended 1,signalled,scheduled 2,begun 2,stepped 2,succeeded 2";
    assert_eq!(place.facts(&process).await.join(","), facts);
    place.check().await;
}

/// P16: a function that fails leaves nothing of what it wrote, and is run again; three days are over after three days.
#[tokio::test]
async fn a_function_that_fails_is_run_again() {
    let place = Processes::open().await;
    place.execute(ORDER).await;
    let sql = "towpath.fn_process_start('shop.order', '8', p_input => '{\"fail\": true}')";
    let process = place.json(sql).await["process_id"].as_str().unwrap().to_owned();
    let failed = run(&place, &process, 1).await;
    assert_eq!(failed["state"], "open");
    assert!(failed["error_text"].as_str().unwrap().contains("the first time fails"), "{failed}");
    assert_eq!(place.text("select count(*) from shop.effect").await, "0");
    assert_eq!(run(&place, &process, 2).await["state"], "suspended");
    place.advance(SECOND * 86_400 * 3 + SECOND).await;
    place.scan().await;
    assert_eq!(run(&place, &process, 3).await["state"], "succeeded");
    let shown = place.json(&format!("towpath.fn_process_show('{process}')")).await;
    assert_eq!(shown["process"]["result"], json!({ "shipped": { "timed_out": true } }));
    assert_eq!(place.text("select count(*) from shop.effect").await, "2");
    place.check().await;
}

/// P16: a kind whose function workers may not run is refused when it is registered, with the statement that is missing.
#[tokio::test]
async fn a_function_is_looked_at_when_it_is_registered() {
    let place = Processes::open().await;
    place
        .execute("create schema shop; create function shop.f(p jsonb) returns jsonb language sql return p")
        .await;
    for (sql, words) in [
        ("shop.g", "there is no function shop.g(jsonb) returns jsonb"),
        ("shop; drop", "is not a function name"),
        ("shop.f", "grant usage on schema shop to worker_service_user"),
    ] {
        let client = place.db.client().await;
        let refused =
            client.execute("select towpath.process_kind('k', function => $1)", &[&sql]).await.unwrap_err();
        let message = refused.as_db_error().unwrap().message();
        assert!(message.contains(words), "{sql}: {message}");
    }
}

/// P06: an e-mail has one retry, as source 5 says, whether comms sends it or a kind of its own.
#[tokio::test]
async fn an_email_has_one_retry_unless_configured() {
    let db = towpath_testkit::TestDb::open().await;
    db.execute("select towpath.process_kind('shop.tell', task_kind => 'email')").await;
    let attempts = "select string_agg(max_attempts::text, ',') from towpath.process_kind";
    let kinds = "process_kind in ('comms.send_email', 'shop.tell')";
    assert_eq!(db.text(&format!("{attempts} where {kinds}")).await, "2,2");
}

/// P07: many processes in one call are those of many calls, all or none.
#[tokio::test]
async fn many_are_started_in_one_call() {
    let place = place().await;
    let database = Database::connect(&place.db.url()).await.unwrap();
    let new =
        |reference: &str| NewOfMany { reference: reference.to_owned(), input: json!({ "r": reference }) };
    let first =
        database.process_start_many("test.call", &[new("a"), new("b"), new("c")], None).await.unwrap();
    let again = database.process_start_many("test.call", &[new("d"), new("b")], None).await.unwrap();
    assert_eq!(again[1], first[1], "one that exists is found");
    assert_eq!(place.facts(&again[0].to_string()).await, ["started", "scheduled 1"]);
    assert_eq!(place.text("select count(*) from towpath.process").await, "4");
    let bad = place
        .json("towpath.fn_process_start_many('test.call', '[{\"ref\": \"x\"}, {\"ref\": \" \"}]')")
        .await;
    assert_eq!((&bad["error"], &bad["index"]), (&json!("invalid"), &json!(1)), "{bad}");
    assert_eq!(place.text("select count(*) from towpath.process").await, "4");
    assert_eq!(place.json("towpath.fn_process_start_many('test.call', '[]')").await["ok"], true);

    let keys: Vec<(ProcessId, i32)> = first.iter().map(|id| (*id, 1)).collect();
    let begun = database.process_begin_many(&keys, "w", false).await.unwrap();
    assert!(begun.iter().all(|one| matches!(one, Some(Ok(_)))), "{begun:?}");
    let steps: Vec<NewStep> = keys
        .iter()
        .flat_map(|key| {
            ["x", "y"].map(|name| NewStep { attempt: *key, name: name.to_owned(), value: json!(name) })
        })
        .collect();
    let stepped = database.process_step_many(&steps, "w").await.unwrap();
    assert!(stepped.iter().all(|one| matches!(one, Some(Ok(_)))), "{stepped:?}");
    let wait = Wait { name: "s", signal: Some("s"), ..Wait::default() };
    assert!(!database.process_wait(keys[0], "w", &wait).await.unwrap().ready);
    let signal = Signal { process_id: Some(keys[0].0), name: "s", payload: json!(1), ..Signal::default() };
    assert!(database.process_signal(&signal).await.unwrap().recorded);
    place.check().await;
}

/// P15: a route makes a signal of an event, once; an event without a process is a dead letter.
#[tokio::test]
async fn a_route_signals_a_process_exactly_once() {
    let place = place().await;
    let process = place.start("test.call", "77").await;
    let target = json!({ "process_kind": "test.call", "ref_key": "order", "signal": "shipped" });
    let call = format!("towpath.fn_route_put('ship', 'process', '{target}', p_event_domain => 'shop')");
    assert_eq!(place.json(&call).await["ok"], true);
    for mode in ["dry_run", "live"] {
        place.json(&format!("towpath.fn_route_mode_set('ship', '{mode}', 'ann', 'a test')")).await;
    }
    for payload in [json!({ "order": 77, "n": 1 }), json!({ "order": 77, "n": 2 }), json!({ "order": 99 })] {
        place.execute(&format!("select towpath.emit('shop', 'shipped', '{payload}')")).await;
    }
    place.json("towpath.fn_event_sequence()").await;
    let pass = place.json("towpath.fn_route_worker_run('default')").await;
    assert_eq!((&pass["decisions"]["sent"], &pass["decisions"]["failed"]), (&json!(2), &json!(1)), "{pass}");
    begin(&place, &process, 1, "w").await;
    let waited = wait(&place, &process, 1, "'shipped', 'shipped'").await;
    assert_eq!(waited["value"], json!({ "signal": { "order": 77, "n": 1 } }), "the first one stays");
    assert_eq!(place.text("select count(*)::text from towpath.route_dead_letter").await, "1");
    place.check().await;
}

/// P13: a process that somebody has locked holds up no other one of the same call.
#[tokio::test]
async fn a_locked_process_holds_up_no_other() {
    let place = place().await;
    let (one, two) = (place.start("test.call", "1").await, place.start("test.call", "2").await);
    let rival = place.db.rival().await;
    rival.run("begin; select towpath.signal_process('test.call', '1', 's')").await;
    let sql = format!(
        "select no, (answer->>'ok')::boolean from towpath.fn_process_begin_many(array['{one}', '{two}']::uuid[], array[1, 1], 'w')"
    );
    let rows = place.worker.query(&sql, &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i32, bool)>>(), [(2, true)]);
    rival.run("commit").await;
    assert_eq!(begin(&place, &one, 1, "w").await["ok"], true);
}
