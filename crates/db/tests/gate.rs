//! Q06: every function behind a gate, asked with the gate closed in every way that a value can be wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_testkit::TestDb;

const SUBSTRATE: &str = "queue.job_substrate.enabled";
const WORKER: &str = "queue.worker.enabled";
const HEARTBEAT: &str = "queue.heartbeat.enabled";
const PROCESS: &str = "process.enabled";
const ROUTING: &str = "event.routing.enabled";
const ROUTE_WORKER: &str = "event.route_worker.enabled";
const DELIVERY: &str = "event.delivery.enabled";

/// What each gate closes: calls that are let through on the place of [`laid_out`] while every gate is open.
const CALLS: &[(&[&str], &[&str])] = &[
    (
        &[SUBSTRATE],
        &[
            "towpath.fn_job_enqueue('new')",
            r#"towpath.fn_job_enqueue_many('[{"job_kind": "new"}]')"#,
            r#"towpath.fn_executor_token_enqueue(the_token(), '[{"job_kind": "ready"}]')"#,
            "towpath.fn_executor_token_job_cancel(the_token(), held())",
            r#"towpath.fn_mot_graph_emit('{"name": "g", "nodes": [{"node": "a", "job_kind": "x"}]}')"#,
            "towpath.fn_schedule_fire('s', the_tick(), now() + interval '1 hour')",
            "towpath.fn_job_start(held(), 'me', 1)",
            "towpath.fn_job_start_many(array[held()], 'me', array[1])",
            "towpath.fn_job_extend_lease(held(), 'me', 1, 600)",
            "towpath.fn_job_extend_lease_many(array[held()], 'me', array[1], 600)",
            "towpath.fn_job_progress(held(), 'me', 1, 50)",
            "towpath.fn_job_append(held(), 'me', 1, '7')",
            "towpath.fn_job_checkpoint(held(), 'me', 1, '7')",
            "towpath.fn_job_payload(held(), 'me', 1)",
            "towpath.fn_job_release(array[held()], 'me', array[1])",
            "towpath.fn_job_snooze(held(), 'me', 1, 60)",
            "towpath.fn_job_ack(held(), 'me', 1)",
            "towpath.fn_job_ack_many(array[held()], 'me', array[1])",
            "towpath.fn_job_fail_or_retry(held(), 'me', 1, 'no')",
            "towpath.fn_job_fail_or_retry_many('me', \
                 jsonb_build_array(jsonb_build_object('job_id', held(), 'attempt', 1, 'error', 'no')))",
            "towpath.fn_job_cancel(held(), 'x')",
            "towpath.fn_job_retry(later(), 'x')",
            "towpath.fn_job_move_to_dead_letter(held(), 'x', 'y')",
            "towpath.fn_job_dead_letter_triage(dead(), 'acknowledged', 'x')",
            "towpath.fn_job_dead_letter_replay(dead(), 'x')",
            "towpath.fn_job_dead_letter_replay_many('{}', 'x')",
            "towpath.fn_job_reap()",
            "towpath.fn_job_floor_tick()",
            "towpath.fn_job_lane_tick()",
            "towpath.fn_job_claim_set_aside('w')",
            "towpath.fn_job_counter_fold()",
            "towpath.fn_job_parallel_recount()",
            "towpath.fn_job_partition_tick()",
            "towpath.fn_job_retention_tick()",
            "towpath.fn_payload_retention_tick()",
        ],
    ),
    (
        &[SUBSTRATE, WORKER],
        &[
            "towpath.fn_job_claim('w')",
            r#"coalesce((select r.refusal from towpath.fn_job_claim_rows('w') r), '{"ok": true}')"#,
            "towpath.fn_job_arm('w')",
        ],
    ),
    (
        &[HEARTBEAT],
        &["towpath.fn_queue_heartbeat_tick('w', 'PG_worker')", "towpath.fn_queue_heartbeat_end('w', 'me')"],
    ),
    (
        &[PROCESS],
        &[
            "towpath.fn_process_start('k', 'other')",
            r#"towpath.fn_process_start_many('handled', '[{"ref": "other"}]')"#,
            "towpath.fn_process_signal('outside', 'new', 'go')",
            r#"towpath.fn_executor_token_process_start(the_token(), 'k', '[{"ref": "other"}]')"#,
            "towpath.fn_executor_token_process_signal(the_token(), 'called', 'new', null, 'go', null)",
            "(select a.answer from towpath.fn_process_begin_many(array[of_kind('handled')], array[1], 'me') a)",
            "(select a.answer from towpath.fn_process_function_begin_many(array[of_kind('called')], array[1], 'me') a)",
            "(select a.answer from towpath.fn_process_run_many(array[of_kind('called')], array[1], 'me') a)",
            "towpath.fn_process_scan()",
            "towpath.fn_process_due('outside', 1, 60)",
            "towpath.fn_process_attempt_begin(outside('tried'), 1, 'me')",
            r#"comms.send_email('{"to": "a@b.example", "subject": "s", "text": "t"}')"#,
            r#"comms.send_sms('{"to": "+4915112345678", "text": "t"}')"#,
            "comms.kickoff_send_email_task(message('email'))",
            "comms.kickoff_send_sms_task(message('sms'))",
        ],
    ),
    (&[PROCESS, SUBSTRATE], &[r#"towpath.fn_process_decide(outside('new'), 1, '{"do": "succeed"}')"#]),
    (&[ROUTING, ROUTE_WORKER, SUBSTRATE], &["towpath.fn_route_worker_run('default')"]),
    (
        &[ROUTING, SUBSTRATE],
        &[
            "towpath.fn_route_replay('r', 0, 1, 'x', false)",
            "towpath.fn_route_send('r', (select event_id from towpath.event_position where position = 1), 'x')",
            "towpath.fn_route_dead_letter_replay(undelivered(), 'x')",
        ],
    ),
    (&[ROUTING], &["towpath.fn_route_dead_letter_replay_many('{}', 'x')"]),
    (&[ROUTING, DELIVERY], &["towpath.fn_delivery_claim('me')", "towpath.fn_stream_delivery_claim('me')"]),
];

/// Functions that come across a gate and are not behind it.
const BESIDE: &[&str] = &[
    // They tell how gates stand.
    "towpath.fn_event_verify",
    "towpath.fn_job_why",
    "towpath.fn_queue_unhandled",
    "towpath.fn_metrics_read",
    "towpath.fn_health_show",
    // They record what has happened. What follows from it waits until the gates are open.
    "comms.record_email_failure",
    "comms.record_email_success",
    "comms.record_sms_failure",
    "comms.record_sms_success",
    "towpath.fn_process_attempt_end",
    "towpath.fn_process_cancel",
    "towpath.fn_process_end_many",
    "towpath.fn_process_function_end_many",
    "towpath.fn_process_wait",
    "towpath.fn_executor_token_process_resolve",
    "towpath.fn_process_resolve",
    // Workers call them by name. They answer an envelope, with the refusal in it.
    "comms.get_email_payload",
    "comms.get_sms_payload",
    "comms.send_email_supervisor",
    "comms.send_sms_supervisor",
];

/// Everything that is not exactly `true`.
const CLOSED: [&str; 8] = ["false", "TRUE", "True", " true", "true ", "t", "1", ""];

/// A place where every call of [`CALLS`] has something to do, and names for its parts.
async fn laid_out() -> TestDb {
    let db = TestDb::open().await;
    db.execute(
        "create schema shop; grant usage on schema shop to worker_service_user;
         create function shop.call(process jsonb) returns jsonb language sql return '7'::jsonb;
         grant execute on function shop.call to worker_service_user",
    )
    .await;
    for sql in [
        "towpath.fn_consumer_put('w', 'PG_worker')",
        "towpath.fn_job_subscription_put('w', 'PG_worker', p_enabled => true, p_max_parallel => null)",
        r#"towpath.fn_job_enqueue('held', p_payload_ref => towpath.payload_put('{"a": 1}'))"#,
        "towpath.fn_job_claim('w', array['held'], 1, 'me')",
        "towpath.fn_job_enqueue('dead')",
        "towpath.fn_job_move_to_dead_letter((select job_id from towpath.job_queue where job_kind = 'dead'), 'x', 'y')",
        "towpath.fn_job_enqueue('ready')",
        "towpath.fn_job_enqueue('later', p_scheduled_at => now() + interval '1 day')",
        "towpath.fn_executor_token_create('w', null, true, null, null, 'tester')",
        r#"towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{"job_kind": "tick"}', now() - interval '1 hour')"#,
        r#"towpath.fn_process_kind_put('k', '{"supervisor": "towpath.process_supervisor", "task_kind": "t"}')"#,
        r#"towpath.fn_process_kind_put('outside', '{"task_kind": "t"}')"#,
        r#"towpath.fn_process_kind_put('handled', '{"runs_as": "handler", "task_kind": "t"}')"#,
        r#"towpath.fn_process_kind_put('called', '{"runs_as": "function", "db_function": "shop.call"}')"#,
        "towpath.fn_process_start('handled', 'new')",
        "towpath.fn_process_start('called', 'new')",
        "towpath.fn_process_start('outside', 'new')",
        "towpath.fn_process_start('outside', 'tried')",
        r#"towpath.fn_process_decide((select process_id from towpath.process where ref = 'tried'), 1, '{"do": "attempt"}')"#,
        r#"comms.create_email_message('{"to": "a@b.example", "subject": "s", "text": "t"}')"#,
        r#"comms.create_sms_message('{"to": "+4915112345678", "text": "t"}')"#,
        r#"towpath.fn_route_put('r', 'job', '{"job_kind": "routed"}', 'd')"#,
        r#"towpath.fn_route_put('bad', 'job', '{"job_kind": "routed", "from_payload": {"priority": "p"}}', 'bad')"#,
        "towpath.fn_route_mode_set('r', 'live', 'tester', 'a test')",
        "towpath.fn_route_mode_set('bad', 'live', 'tester', 'a test')",
        "towpath.fn_event_emit('d', 't')",
        r#"towpath.fn_event_emit('bad', 't', p_payload => '{"p": "high"}')"#,
        "towpath.fn_event_sequence()",
        "towpath.fn_route_worker_run('default')",
        "towpath.fn_event_emit('d', 't')",
        "towpath.fn_event_sequence()",
    ] {
        let answer = db.json(sql).await;
        assert_eq!(answer["ok"], true, "{sql}: {answer}");
    }
    for (name, returns, sql) in [
        ("held()", "uuid", "select job_id from towpath.job_queue where job_kind = ''held''"),
        ("later()", "uuid", "select job_id from towpath.job_queue where job_kind = ''later''"),
        ("dead()", "uuid", "select dead_letter_id from towpath.job_dead_letter"),
        ("undelivered()", "uuid", "select dead_letter_id from towpath.route_dead_letter"),
        ("the_token()", "bytea", "select token_hash from towpath.executor_token"),
        ("the_tick()", "timestamptz", "select next_at from towpath.schedule"),
        (
            "outside(text)",
            "uuid",
            "select process_id from towpath.process where process_kind = ''outside'' and ref = $1",
        ),
        ("of_kind(text)", "uuid", "select process_id from towpath.process where process_kind = $1"),
        ("message(text)", "bigint", "select message_id from comms.message where channel = $1"),
    ] {
        db.execute(&format!("create function {name} returns {returns} language sql stable as '{sql}'")).await;
    }
    db
}

/// What a call answers, and how many rows it wrote; it leaves nothing behind.
async fn ask(client: &Client, call: &str) -> (Value, i64) {
    // What the session has not reported yet of earlier calls is counted too, hence the difference.
    let written = async || -> i64 {
        let sql = "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
                     from pg_stat_xact_all_tables where schemaname in ('towpath', 'comms')";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    client.batch_execute("begin").await.unwrap();
    let before = written().await;
    let row = client.query_one(&format!("select ({call})::jsonb"), &[]).await;
    let answer = row.unwrap_or_else(|error| panic!("{call}: {error:?}")).get(0);
    let rows = written().await - before;
    client.batch_execute("rollback").await.unwrap();
    (answer, rows)
}

/// Q06: a gate that is false, missing or unparsable makes every function behind it say so and write nothing.
/// While it is open, they are let through, and most of them write.
#[tokio::test]
async fn every_function_behind_a_closed_gate_refuses() {
    let db = laid_out().await;
    let client = db.client().await;
    let (mut asked, mut wrote) = (0, 0);
    for call in CALLS.iter().flat_map(|(_, calls)| *calls) {
        let (answer, rows) = ask(&client, call).await;
        assert_eq!(answer["ok"], true, "{call}: {answer}");
        (asked, wrote) = (asked + 1, wrote + u32::from(rows > 0));
    }
    assert!(wrote * 4 > asked * 3, "{wrote} of {asked} wrote: the place gives them nothing to do");
    let gates: BTreeSet<&str> = CALLS.iter().flat_map(|(gates, _)| *gates).copied().collect();
    for gate in gates {
        let close = |what: &str| format!("update towpath.config set {what}");
        let ways = CLOSED.map(|value| {
            (
                close(&format!("value = '{value}' where key = '{gate}'")),
                close(&format!("value = 'true' where key = '{gate}'")),
            )
        });
        let missing = (
            close(&format!("key = 'gone.enabled' where key = '{gate}'")),
            close(&format!("key = '{gate}' where key = 'gone.enabled'")),
        );
        for (shut, open) in ways.into_iter().chain([missing]) {
            db.execute(&shut).await;
            for call in CALLS.iter().filter(|(gates, _)| gates.contains(&gate)).flat_map(|(_, calls)| *calls)
            {
                let (answer, rows) = ask(&client, call).await;
                assert_eq!(
                    answer,
                    json!({ "ok": false, "error": "gate_closed", "gate": gate }),
                    "{call} after {shut}"
                );
                assert_eq!(rows, 0, "{call} wrote after {shut}");
            }
            db.execute(&open).await;
        }
    }
}

/// Q06: the list above is whole: every function of the contract that reads a gate, itself or through others, is asked.
#[tokio::test]
async fn no_function_behind_a_gate_is_left_out() {
    let db = TestDb::new().await;
    // Two switches are no gates in this sense: they choose how, not whether.
    let reached = db
        .text(
            "with recursive f as (
                 select n.nspname || '.' || p.proname as name,
                        coalesce(nullif(p.prosrc, ''), pg_get_function_sqlbody(p.oid)) as body
                   from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                  where n.nspname in ('towpath', 'comms')),
             called as (
                 select distinct a.name as caller, b.name as callee
                   from f a join f b on a.name <> b.name and position(b.name || '(' in a.body) > 0),
             reached (name) as (
                 select f.name from f join towpath.config c
                     on c.kind = 'gate' and position('''' || c.key || '''' in f.body) > 0
                    and c.key not in ('queue.notify.enabled', 'queue.subscription_resolution.enabled')
                  union
                 select c.caller from called c join reached r on r.name = c.callee)
             select string_agg(distinct name, ' ') from reached where name ~ '^(comms[.][^_]|towpath[.]fn_)'",
        )
        .await;
    let reached: BTreeSet<&str> = reached.split(' ').collect();
    let asked = |name: &str| {
        CALLS.iter().flat_map(|(_, calls)| *calls).any(|call| call.contains(&format!("{name}(")))
    };
    let left_out: Vec<_> = reached.iter().filter(|name| !asked(name) && !BESIDE.contains(name)).collect();
    assert!(left_out.is_empty(), "no call shows what a closed gate does to {left_out:?}");
    let stale: Vec<_> = BESIDE.iter().filter(|name| !reached.contains(**name) || asked(name)).collect();
    assert!(stale.is_empty(), "these come across no gate any more: {stale:?}");
}
