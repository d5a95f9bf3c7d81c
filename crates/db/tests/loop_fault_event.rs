//! Loops of events and processes go on: a planted row raises, the others progress, the fault is listed, and
//! once the cause is gone the row is done too (Q22).

use std::time::Duration;

use serde_json::json;
use towpath_testkit::TestDb;
use towpath_testkit::wait::until_true;

use crate::process_kit::Processes;

/// Makes writing a row raise when the condition holds for it.
async fn plant(db: &TestDb, write: &str, table: &str, when: &str) {
    let sql = format!(
        "create or replace function public.planted() returns trigger language plpgsql as \
         $$ begin raise exception 'planted' using errcode = tg_argv[0]; end $$; \
         create trigger planted before {write} on towpath.{table} for each row when ({when}) \
         execute function public.planted('P0001')"
    );
    db.execute(&sql).await;
}

/// Takes the cause away and asks for a retry, as `towpath fault retry` does.
async fn heal(db: &TestDb, table: &str) {
    db.execute(&format!("drop trigger planted on towpath.{table}")).await;
    retry(db).await;
}

async fn retry(db: &TestDb) {
    db.execute("select towpath.fn_loop_fault_retry(loop_name, item, 'tester') from towpath.loop_fault").await;
}

/// What is set aside, as in `routing default/3`.
async fn faults(db: &TestDb) -> String {
    let sql = "select coalesce(string_agg(loop_name || ' ' || item, ', ' order by loop_name, item), '') \
               from towpath.loop_fault";
    db.text(sql).await
}

/// Emits events of the domain `d` and the types `1`, `2`, … and numbers them.
async fn events(db: &TestDb, count: u32) {
    let many = format!(
        "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', n::text) order by n) \
         from generate_series(1, {count}) n))"
    );
    assert_eq!(db.call(&many).await["emitted"], count);
    db.call("fn_event_sequence()").await;
}

async fn route(db: &TestDb, name: &str, kind: &str, target: &str) {
    db.call(&format!("fn_route_put('{name}', '{kind}', '{target}', 'd')")).await;
    if kind == "webhook" {
        db.call(&format!("fn_route_secret_rotate('{name}')")).await;
    }
    db.call(&format!("fn_route_mode_set('{name}', 'live', 'tester', 'a test')")).await;
}

/// Positions and decisions on a route, as in `1 sent, 2 sent`.
async fn decisions(db: &TestDb, route: &str) -> String {
    let sql = format!(
        "select coalesce(string_agg(concat_ws(' ', a.position, a.decision), ', ' order by a.position), '') \
         from towpath.route_attempt a join towpath.outbound_route r using (route_no) where r.route_name = '{route}'"
    );
    db.text(&sql).await
}

/// Q22: an event that cannot be numbered is set aside; the others are numbered densely, and it gets the next
/// number once it can have one, also while nothing else happens.
#[tokio::test]
async fn the_sequencer_goes_on() {
    let db = TestDb::open().await;
    let bad = db.call("fn_event_emit('d', 'bad')").await["event_id"].as_str().unwrap().to_owned();
    plant(&db, "insert", "event_position", &format!("new.event_id = '{bad}'")).await;
    events(&db, 3).await;
    assert_eq!(faults(&db).await, format!("sequencer {bad}"));
    events(&db, 1).await;
    let order = "select string_agg(concat_ws(' ', position, event_type), ', ' order by position) \
                 from towpath.event_position join towpath.event_outbox using (event_id)";
    assert_eq!(db.text(order).await, "1 1, 2 2, 3 3, 4 1");
    heal(&db, "event_position").await;
    assert_eq!(db.call("fn_event_sequence()").await["last_position"], 5);
    assert_eq!(db.text(order).await, "1 1, 2 2, 3 3, 4 1, 5 bad");
    assert_eq!(faults(&db).await, "");
}

/// Q22, E06: an event of which not even a dead letter can be written, and one whose write breaks in a way that
/// says nothing about the event, are set aside for their worker; all others are routed, in the same pass, and
/// on their other routes these two are as well.
#[tokio::test]
async fn routing_goes_on() {
    let db = TestDb::open().await;
    route(&db, "r", "job", r#"{"job_kind": "k", "from_payload": {"priority": "prio"}}"#).await;
    route(&db, "other", "job", r#"{"job_kind": "k"}"#).await;
    db.call(r#"fn_event_emit('d', 'poison', p_payload => '{"prio": "abc"}')"#).await;
    events(&db, 5).await;
    plant(&db, "insert", "route_dead_letter", "true").await;
    db.execute(
        "create trigger broken before insert on towpath.route_attempt for each row when (new.position = 4) \
         execute function public.planted('XX001')",
    )
    .await;
    let pass = db.call("fn_route_worker_run('default')").await;
    assert_eq!((&pass["position"], &pass["more"]), (&json!(6), &json!(false)), "{pass}");
    assert_eq!(faults(&db).await, "routing default/1, routing default/4");
    assert_eq!(decisions(&db, "r").await, "2 sent, 3 sent, 5 sent, 6 sent");
    assert_eq!(decisions(&db, "other").await, "1 sent, 2 sent, 3 sent, 5 sent, 6 sent");
    let kept = db.call("fn_event_retention_tick()").await;
    assert_eq!(kept["keep_from"], 1, "what is set aside is kept");
    db.execute("drop trigger broken on towpath.route_attempt").await;
    heal(&db, "route_dead_letter").await;
    db.call("fn_route_worker_run('default')").await;
    assert_eq!(decisions(&db, "r").await, "1 failed, 2 sent, 3 sent, 4 sent, 5 sent, 6 sent");
    assert_eq!(decisions(&db, "other").await, "1 sent, 2 sent, 3 sent, 4 sent, 5 sent, 6 sent");
    assert_eq!(faults(&db).await, "");
}

/// Q22, E04: a gate that closes while a pass goes event by event ends the pass before the first event that needs it;
/// nothing is skipped and nothing is done twice once it is open again.
#[tokio::test]
async fn a_gate_that_closes_in_the_middle_of_a_pass_stops_it_there() {
    let db = TestDb::open().await;
    route(&db, "r", "job", r#"{"job_kind": "k"}"#).await;
    events(&db, 5).await;
    let gate = "update towpath.config set value = '{}' where key = 'queue.job_substrate.enabled'";
    db.execute(&format!(
        "create function public.planted() returns trigger language plpgsql as \
         $$ begin raise exception 'planted' using errcode = 'XX001'; end $$; \
         create trigger planted before insert on towpath.route_attempt for each row when (new.position = 1) \
         execute function public.planted(); \
         create function public.close_gate() returns trigger language plpgsql as \
         $$ begin {}; return new; end $$; \
         create trigger closes after insert on towpath.route_attempt for each row when (new.position = 3) \
         execute function public.close_gate()",
        gate.replace("{}", "false")
    ))
    .await;
    let pass = db.call("fn_route_worker_run('default')").await;
    assert_eq!((&pass["position"], &pass["more"]), (&json!(3), &json!(true)), "{pass}");
    assert_eq!(decisions(&db, "r").await, "2 sent, 3 sent");
    assert_eq!(faults(&db).await, "routing default/1");
    let closed = db.json("towpath.fn_route_worker_run('default')").await;
    assert_eq!(
        (&closed["error"], &closed["gate"]),
        (&json!("gate_closed"), &json!("queue.job_substrate.enabled"))
    );

    db.execute(&format!("drop trigger closes on towpath.route_attempt; {}", gate.replace("{}", "true")))
        .await;
    heal(&db, "route_attempt").await;
    db.call("fn_route_worker_run('default')").await;
    assert_eq!(decisions(&db, "r").await, "1 sent, 2 sent, 3 sent, 4 sent, 5 sent");
    assert_eq!(db.text("select count(*) from towpath.job").await, "5");
    assert_eq!(faults(&db).await, "");
}

/// Q22, E06: routes whose target says nonsense make dead letters of their own events; the sound one goes on.
#[tokio::test]
async fn a_broken_route_fails_alone() {
    let db = TestDb::open().await;
    for name in ["map", "kind", "priority"] {
        route(&db, name, "job", r#"{"job_kind": "k"}"#).await;
    }
    route(&db, "stream", "stream", r#"{"stream": "s"}"#).await;
    route(&db, "sound", "job", r#"{"job_kind": "k"}"#).await;
    for (name, target) in [
        ("map", r#"{"job_kind": "k", "from_payload": "abc"}"#),
        ("kind", r#"{"job_kind": ["k"], "executor": "MOT"}"#),
        ("priority", r#"{"job_kind": "k", "priority": "high"}"#),
        ("stream", r#"{"stream": null}"#),
    ] {
        let broken =
            format!("update towpath.outbound_route set target = '{target}' where route_name = '{name}'");
        db.execute(&broken).await;
    }
    events(&db, 3).await;
    db.call("fn_route_worker_run('default')").await;
    assert_eq!(decisions(&db, "sound").await, "1 sent, 2 sent, 3 sent");
    for name in ["map", "kind", "priority", "stream"] {
        assert_eq!(decisions(&db, name).await, "1 failed, 2 failed, 3 failed", "{name}");
    }
    assert_eq!(faults(&db).await, "", "dead letters tell of it");
}

/// Q22: an error of the code itself would meet every event: the pass fails as a whole, sets nothing aside, makes
/// no dead letters, and goes on once the code is whole.
#[tokio::test]
async fn an_error_in_the_code_sets_nothing_aside() {
    let db = TestDb::open().await;
    route(&db, "r", "job", r#"{"job_kind": "k"}"#).await;
    events(&db, 3).await;
    db.execute(
        "alter function towpath._route_key(text, text, uuid, text, integer) rename to _route_key_away",
    )
    .await;
    let pass = db.client().await.query_one("select towpath.fn_route_worker_run('default')", &[]).await;
    assert_eq!(pass.unwrap_err().code().unwrap().code(), "42883");
    assert_eq!((faults(&db).await.as_str(), decisions(&db, "r").await.as_str()), ("", ""));
    db.execute(
        "alter function towpath._route_key_away(text, text, uuid, text, integer) rename to _route_key",
    )
    .await;
    // PostgreSQL reports an error before it has released the locks of the pass.
    until_true("the events are routed", async || {
        db.call("fn_route_worker_run('default')").await;
        decisions(&db, "r").await == "1 sent, 2 sent, 3 sent"
    })
    .await;
}

/// Q22: a fault heals by itself: the next try comes after ten seconds, and nobody has to ask for it.
#[tokio::test]
async fn a_fault_heals_by_itself() {
    let db = TestDb::open().await;
    route(&db, "r", "job", r#"{"job_kind": "k"}"#).await;
    events(&db, 2).await;
    plant(&db, "insert", "route_attempt", "new.position = 1").await;
    db.call("fn_route_worker_run('default')").await;
    db.execute("drop trigger planted on towpath.route_attempt").await;
    db.call("fn_route_worker_run('default')").await;
    assert_eq!(faults(&db).await, "routing default/1", "not before its time");
    db.advance(Duration::from_secs(11)).await;
    db.call("fn_route_worker_run('default')").await;
    assert_eq!((decisions(&db, "r").await.as_str(), faults(&db).await.as_str()), ("1 sent, 2 sent", ""));
}

async fn claimed(db: &TestDb, owner: &str) -> String {
    let claimed = db.call(&format!("fn_delivery_claim('{owner}', 10)")).await;
    let positions: Vec<_> =
        claimed["deliveries"].as_array().unwrap().iter().map(|d| d["position"].to_string()).collect();
    positions.join(" ")
}

/// Q22: a webhook that cannot be leased, and one whose lost lease cannot be recorded, are set aside; the
/// others are claimed and requeued.
#[tokio::test]
async fn webhook_delivery_goes_on() {
    let db = TestDb::open().await;
    route(&db, "hook", "webhook", r#"{"url": "https://example.org"}"#).await;
    events(&db, 4).await;
    db.call("fn_route_worker_run('default')").await;
    let id = async |position: u32| {
        db.text(&format!("select delivery_id from towpath.delivery where position = {position}")).await
    };
    plant(&db, "update", "delivery", "new.position = 2").await;
    assert_eq!(claimed(&db, "first").await, "1 3 4");
    assert_eq!(faults(&db).await, format!("webhook_delivery {}", id(2).await));
    heal(&db, "delivery").await;
    assert_eq!(claimed(&db, "first").await, "2");
    db.call(&format!("fn_delivery_succeed('{}', 'first', 1)", id(2).await)).await;
    assert_eq!(faults(&db).await, "", "over when it has ended");

    db.advance(Duration::from_secs(16)).await;
    plant(&db, "insert", "delivery_attempt", "new.position = 3").await;
    assert_eq!(claimed(&db, "second").await, "1 4");
    assert_eq!(faults(&db).await, format!("webhook_delivery {}", id(3).await));
    heal(&db, "delivery_attempt").await;
    assert_eq!(claimed(&db, "second").await, "3");
}

/// Q22, E09: on a route that keeps the order of keys, later deliveries of a key wait behind the one that is set aside, and
/// operators are told which; other keys go on, and so does this one once the fault is dropped.
#[tokio::test]
async fn an_ordered_key_waits_behind_a_fault_and_goes_on_when_it_is_dropped() {
    let db = TestDb::open().await;
    let target = r#"{"url": "https://example.org"}"#;
    db.call(&format!("fn_route_put('hook', 'webhook', '{target}', 'd', p_ordering => 'key')")).await;
    db.call("fn_route_secret_rotate('hook')").await;
    db.call("fn_route_mode_set('hook', 'live', 'tester', 'a test')").await;
    // Positions 1, 3 and 5 have one key, 2, 4 and 6 another.
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'ordering_key', 'k' || n % 2) order by n) from generate_series(1, 6) n))";
    db.call(many).await;
    db.call("fn_event_sequence()").await;
    db.call("fn_route_worker_run('default')").await;
    let id = async |position: u32| {
        db.text(&format!("select delivery_id from towpath.delivery where position = {position}")).await
    };
    let (head, waits) = (id(1).await, [id(3).await, id(5).await]);
    plant(&db, "update", "delivery", "new.position = 1").await;
    assert_eq!(claimed(&db, "s").await, "2", "one at a time of the other key");
    db.call(&format!("fn_delivery_succeed('{}', 's', 1)", id(2).await)).await;
    db.advance(Duration::from_secs(2)).await;
    assert_eq!(claimed(&db, "s").await, "4");

    let fault = &db.call("fn_loop_fault_list()").await["faults"][0];
    assert_eq!((&fault["item"], &fault["behind"]), (&json!(head), &json!(waits)));
    assert_eq!(db.call("fn_health_show()").await["deliveries_behind"], 2);
    let event = db.text("select event_id from towpath.delivery where position = 3").await;
    let shown = db.call(&format!("fn_delivery_history(p_event_id => '{event}')")).await;
    assert_eq!(shown["waiting"][0]["behind"], json!(head), "{shown}");

    db.call(&format!("fn_loop_fault_drop('webhook_delivery', '{head}', 'ticket 7')")).await;
    assert_eq!(db.call("fn_health_show()").await["deliveries_behind"], 0);
    db.advance(Duration::from_secs(2)).await;
    assert_eq!(claimed(&db, "s").await, "3", "its key goes on, in order");
    assert_eq!(
        db.text(&format!("select behind from towpath._delivery_now where delivery_id = '{}'", waits[1]))
            .await,
        waits[0]
    );
}

/// Q22: a stream that cannot be leased is set aside, and the others are owed their events.
#[tokio::test]
async fn stream_delivery_goes_on() {
    let db = TestDb::open().await;
    route(&db, "one", "stream", r#"{"stream": "one"}"#).await;
    route(&db, "two", "stream", r#"{"stream": "two"}"#).await;
    events(&db, 2).await;
    db.call("fn_route_worker_run('default')").await;
    let claimed = async || {
        let answer = db.call("fn_stream_delivery_claim('s')").await;
        answer["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["stream"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    plant(&db, "update", "route_stream", "new.stream = 'one'").await;
    assert_eq!(claimed().await, ["two"]);
    let number = db.text("select route_stream_no from towpath.route_stream where stream = 'one'").await;
    assert_eq!(faults(&db).await, format!("stream_delivery {number}"));
    heal(&db, "route_stream").await;
    assert_eq!(claimed().await, ["one"]);
    db.call(&format!("fn_stream_delivery_end({number}, 's', 1, 2)")).await;
    assert_eq!(faults(&db).await, "", "over when it has ended");
}

/// Q22, R03: an event that cannot be counted is set aside; the others are counted once each, and so is it
/// when it can be.
#[tokio::test]
async fn event_counting_goes_on() {
    let db = TestDb::open().await;
    events(&db, 3).await;
    plant(&db, "insert", "event_resolution_hour", "new.event_type = '2'").await;
    db.call("fn_event_counter_fold()").await;
    let counted = "select string_agg(event_type || ' ' || events, ', ' order by event_type) \
                   from towpath.event_resolution_hour";
    assert_eq!(db.text(counted).await, "1 1, 3 1");
    assert_eq!(faults(&db).await, "event_counting 2");
    heal(&db, "event_resolution_hour").await;
    db.call("fn_event_counter_fold()").await;
    assert_eq!(db.text(counted).await, "1 1, 2 1, 3 1");
    assert_eq!(faults(&db).await, "");
}

/// Q22: a partition on which something else depends cannot be dropped: it is set aside, detached, and younger
/// ones go; it is dropped once it can be.
#[tokio::test]
async fn event_retention_goes_on() {
    let db = TestDb::open().await;
    db.freeze("2026-03-01T12:00:00Z".parse().unwrap()).await;
    for _ in 0..3 {
        db.call("fn_event_partition_tick()").await;
        events(&db, 1).await;
        db.advance(Duration::from_secs(86_400)).await;
    }
    db.call("fn_route_worker_run('default')").await;
    db.execute("create view public.report as select * from towpath.event_outbox_p20260301").await;
    db.advance(Duration::from_secs(20 * 86_400)).await;
    for _ in 0..3 {
        db.call("fn_event_retention_tick()").await;
    }
    assert_eq!(db.text("select count(*) from towpath.event_outbox").await, "0", "the others went");
    assert_eq!(db.text("select count(*) from public.report").await, "1");
    assert_eq!(faults(&db).await, "event_retention event_outbox_p20260301");
    db.execute("drop view public.report").await;
    retry(&db).await;
    db.call("fn_event_retention_tick()").await;
    assert_eq!(db.text("select to_regclass('towpath.event_outbox_p20260301')").await, "null");
    assert_eq!(faults(&db).await, "");
}

/// Q22: a partition that cannot be made, because another has its range, is set aside, and the others are made.
#[tokio::test]
async fn event_partitions_go_on() {
    let db = TestDb::open().await;
    db.freeze("2026-03-01T12:00:00Z".parse().unwrap()).await;
    db.execute(
        "set role towpath_owner; do $$ begin execute format( \
             'create table towpath.mine partition of towpath.event_outbox for values from (%L) to (%L)', \
             towpath._uuid7_floor('2026-03-02T00:00:00Z'), towpath._uuid7_floor('2026-03-02T01:00:00Z')); end $$",
    )
    .await;
    let tick = db.call("fn_event_partition_tick()").await;
    assert_eq!(
        tick["deferred"],
        json!([{"partition": "event_outbox_p20260302", "reason": "failed"}]),
        "{tick}"
    );
    assert_eq!(faults(&db).await, "event_partitions event_outbox_p20260302");
    assert_eq!(db.text("select to_regclass('towpath.event_outbox_p20260303') is not null").await, "true");
    db.execute("drop table towpath.mine").await;
    retry(&db).await;
    assert_eq!(db.call("fn_event_partition_tick()").await["created"], json!(["event_outbox_p20260302"]));
    assert_eq!(faults(&db).await, "");
}

/// Q22: processes whose supervisor raises, whose supervisor is gone, whose check is due at `-infinity`, or of
/// which not even the error can be recorded hold up no other.
#[tokio::test]
async fn the_process_scan_goes_on() {
    let place = Processes::with_kind(
        &json!({ "supervisor": "towpath.process_supervisor", "task_kind": "db_function" }),
    )
    .await;
    place
        .functions(
            "create function biz.raises(payload jsonb) returns jsonb language plpgsql security definer \
             set search_path = pg_catalog, pg_temp as $$ begin raise exception 'no'; end $$; \
             create function biz.leaves(payload jsonb) returns jsonb language sql security definer \
             set search_path = pg_catalog, pg_temp as $$ select towpath._envelope_ok() $$; \
             grant execute on function biz.raises(jsonb), biz.leaves(jsonb) to worker_service_user",
        )
        .await;
    for (kind, supervisor) in [("raises", "biz.raises"), ("gone", "biz.leaves"), ("silent", "biz.raises")] {
        place.kind(kind, &json!({ "supervisor": supervisor, "task_kind": "db_function" })).await;
    }
    let mut bad = vec![];
    for kind in ["raises", "gone", "silent"] {
        bad.push(place.start(kind, "one").await);
    }
    place.execute("drop function biz.leaves").await;
    let old = place.start("test.call", "old").await;
    // As a row from before there was the rule.
    place.execute("alter domain towpath.moment drop constraint moment_from_1970_to_3000_check").await;
    place
        .execute(&format!(
            "update towpath.process set next_check_at = '-infinity' where process_id = '{old}'"
        ))
        .await;
    let last = place.start("test.call", "last").await;
    place
        .execute("delete from towpath.job_live; delete from towpath.job_ready; delete from towpath.job")
        .await;
    // Not even the error of this one can be recorded.
    plant(&place.db, "insert", "task_error", &format!("new.process_id = '{}'", bad[2])).await;
    place.advance(Duration::from_secs(601)).await;
    let scan = place.scan().await;
    assert_eq!((&scan["checked"], &scan["failed"]), (&json!(5), &json!(3)), "{scan}");
    assert_eq!(faults(&place.db).await, format!("process_scan {}", bad[2]));
    for process in [&old, &last] {
        assert_eq!(place.facts(process).await, ["started", "scheduled 1", "lost 1", "scheduled 2"]);
    }
    let again = "select string_agg(process_kind, ' ' order by process_kind) from towpath.process \
                 where next_check_at <= towpath.fn_now()";
    assert_eq!(place.text(again).await, "silent", "the others come back later");
    assert_eq!(place.scan().await["checked"], 0, "what is set aside is passed by");
    heal(&place.db, "task_error").await;
    assert_eq!(place.scan().await["checked"], 1);
    assert_eq!(faults(&place.db).await, "");
}

/// Q22: a process that a program supervises and whose recorder raises is set aside, and the program gets the
/// others.
#[tokio::test]
async fn supervision_from_outside_goes_on() {
    let place = Processes::with_kind(&json!({ "supervisor": null, "task_kind": "db_function" })).await;
    let [bad, good] = [place.start("test.call", "bad").await, place.start("test.call", "good").await];
    plant(&place.db, "update", "process", &format!("new.process_id = '{bad}'")).await;
    let due = async || {
        let due = place.ask("fn_process_due('test.call')").await;
        due["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["process"]["ref"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(due().await, [r#""good""#]);
    assert_eq!(faults(&place.db).await, format!("process_supervise {bad}"));
    heal(&place.db, "process").await;
    assert_eq!(due().await, [r#""bad""#]);
    let decided = place.ask(&format!("fn_process_decide('{bad}', 1, '{{\"do\": \"succeed\"}}')")).await;
    assert_eq!((&decided["ok"], faults(&place.db).await.as_str()), (&json!(true), ""), "{decided}");
    assert_eq!(place.state(&good).await, "open");
}
