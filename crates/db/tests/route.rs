//! Routing in SQL: passes, decisions, dead letters.

use serde_json::{Value, json};
use towpath_testkit::TestDb;
use towpath_testkit::wait;

/// A database with one route to jobs of kind `k` in this mode.
async fn routed(mode: &str) -> TestDb {
    let db = TestDb::open().await;
    let put = r#"fn_route_put('r', 'job', '{"job_kind": "k", "from_payload": {"priority": "prio"}}')"#;
    db.call(put).await;
    set_mode(&db, mode).await;
    db
}

async fn set_mode(db: &TestDb, mode: &str) {
    db.call(&format!("fn_route_mode_set('r', '{mode}', 'tester', 'a test')")).await;
}

/// Emits one event, numbers it, and runs a pass. Answers the pass's decisions.
async fn emit_and_route(db: &TestDb) -> Value {
    db.call("fn_event_emit('d', 't')").await;
    db.call("fn_event_sequence()").await;
    route(db).await
}

async fn route(db: &TestDb) -> Value {
    db.call("fn_route_worker_run('default', 1000)").await["decisions"].clone()
}

async fn jobs(db: &TestDb) -> String {
    db.text("select count(*) from towpath.job_queue where job_kind = 'k'").await
}

/// A pass in a transaction of its own, and whether that transaction wrote anything: PostgreSQL gives it a
/// number only if it did.
async fn pass_that_writes(db: &TestDb) -> (Value, bool) {
    let mut client = db.client_as("towpath_owner").await;
    let pass = client.transaction().await.unwrap();
    let answer = pass.query_one("select towpath.fn_route_worker_run('default')", &[]).await.unwrap().get(0);
    let wrote =
        pass.query_one("select pg_current_xact_id_if_assigned() is not null", &[]).await.unwrap().get(0);
    pass.commit().await.unwrap();
    (answer, wrote)
}

/// E04: both gates must be open, else a pass writes nothing and says which is closed.
#[tokio::test]
async fn both_gates_must_be_open() {
    let db = routed("live").await;
    db.call("fn_event_emit('d', 't')").await;
    db.call("fn_event_sequence()").await;
    for gate in ["event.routing.enabled", "event.route_worker.enabled"] {
        db.call(&format!("fn_gate_set('{gate}', false, 'tester', 'a test')")).await;
        let (answer, wrote) = pass_that_writes(&db).await;
        assert_eq!((&answer["error"], &answer["gate"]), (&json!("gate_closed"), &json!(gate)));
        assert!(!wrote, "{gate}");
        db.call(&format!("fn_gate_set('{gate}', true, 'tester', 'a test')")).await;
    }
    let (answer, wrote) = pass_that_writes(&db).await;
    assert_eq!((&answer["decisions"]["sent"], wrote), (&json!(1), true), "{answer}");
}

/// E05, E02: off, dry run and live decide differently, each with exactly one attempt.
#[tokio::test]
async fn each_mode_has_its_decision() {
    let db = routed("off").await;
    assert_eq!(emit_and_route(&db).await["disabled"], 1);
    set_mode(&db, "dry_run").await;
    assert_eq!(emit_and_route(&db).await["dry_run"], 1);
    assert_eq!(jobs(&db).await, "0", "a dry run delivers nothing");
    set_mode(&db, "live").await;
    assert_eq!(emit_and_route(&db).await["sent"], 1);
    assert_eq!(jobs(&db).await, "1");
    assert_eq!(db.text("select count(*) from towpath.v_route_attempt").await, "3");
}

/// E07: worker, route and event name what is done once, and so do the mode and the replay's generation; a
/// dead letter carries the same key.
#[tokio::test]
async fn the_key_names_worker_route_event_mode_and_generation() {
    let db = routed("live").await;
    emit_and_route(&db).await;
    let event = db.text("select event_id from towpath.event_outbox").await;
    let key = async |from: &str| db.text(&format!("select idempotency_key from {from}")).await;
    assert_eq!(key("towpath.job_queue").await, format!("wrk:default:r:{event}:live:0"));
    let poison = r#"fn_event_emit('d', 't', p_payload => '{"prio": "abc"}')"#;
    let event = db.ask(poison).await["event_id"].as_str().unwrap().to_owned();
    db.call("fn_event_sequence()").await;
    assert_eq!(route(&db).await["failed"], 1);
    assert_eq!(key("towpath.route_dead_letter").await, format!("wrk:default:r:{event}:live:0"));
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    let replayed = db.ask(&format!("fn_route_send('r', '{event}', 'tester')")).await;
    assert_eq!(replayed["ok"], true, "{replayed}");
    let newest = "(select * from towpath.job_queue order by job_id desc limit 1) newest";
    assert_eq!(key(newest).await, format!("wrk:default:r:{event}:live:1"));
}

/// E07: a dry run does not use up the live delivery, and a reset cursor delivers nothing twice.
#[tokio::test]
async fn dry_then_live_delivers_and_a_reset_repeats_nothing() {
    let db = routed("dry_run").await;
    assert_eq!(emit_and_route(&db).await["dry_run"], 1);
    set_mode(&db, "live").await;
    for expected in ["1", "1", "1"] {
        db.call("fn_route_worker_put('default', 1, 0)").await;
        route(&db).await;
        assert_eq!(jobs(&db).await, expected);
    }
}

/// Emits an event that the route `r` cannot take, routes it, and answers its dead letter.
async fn dead_letter(db: &TestDb) -> String {
    db.call(r#"fn_event_emit('d', 't', p_payload => '{"prio": "abc", "order": 17}')"#).await;
    db.call("fn_event_sequence()").await;
    assert_eq!(route(db).await["failed"], 1);
    let newest = "select dead_letter_id from towpath.route_dead_letter order by position desc limit 1";
    db.text(newest).await
}

/// E07: a dry run notes what it would do with a dead letter of a live route, and leaves it open: alone and
/// in bulk. The live route delivers it afterwards.
#[tokio::test]
async fn a_dry_run_leaves_a_live_dead_letter_open() {
    let db = routed("live").await;
    let letter = dead_letter(&db).await;
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    set_mode(&db, "dry_run").await;
    let replay = format!("fn_route_dead_letter_replay('{letter}', 'tester')");
    let one = db.ask(&replay).await;
    assert_eq!((&one["decision"], &one["resolved"]), (&json!("dry_run"), &json!(false)), "{one}");
    let many = db.ask("fn_route_dead_letter_replay_many('tester')").await;
    assert_eq!((&many["dry_run"], &many["replayed"]), (&json!([letter]), &json!([])), "{many}");
    assert_eq!(many["failed"], json!([]), "{many}");
    let noted = "select count(*) from towpath.route_attempt where decision = 'dry_run' and reason = 'replay'";
    assert_eq!(db.text(noted).await, "2");
    let open = "select count(*) from towpath.route_dead_letter where resolved_at is null and replays = 2";
    assert_eq!(db.text(open).await, "1");
    set_mode(&db, "live").await;
    assert_eq!(db.ask(&replay).await["resolved"], true);
    assert_eq!(jobs(&db).await, "1");
}

/// E06: a dead letter is replayed from its own snapshot: the partitions of its event, of the event's
/// position and of its attempts are gone.
#[tokio::test]
async fn a_dead_letter_is_replayed_without_its_event() {
    let db = routed("live").await;
    let letter = dead_letter(&db).await;
    let owner = db.client_as("towpath_owner").await;
    for table in ["event_outbox", "event_position", "route_attempt"] {
        let partition = db.text(&format!("select tableoid::regclass from towpath.{table}")).await;
        owner.batch_execute(&format!("drop table {partition}")).await.unwrap();
        assert_eq!(db.text(&format!("select count(*) from towpath.{table}")).await, "0");
    }
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    let replayed = db.ask(&format!("fn_route_dead_letter_replay('{letter}', 'tester')")).await;
    assert_eq!((&replayed["decision"], &replayed["resolved"]), (&json!("sent"), &json!(true)), "{replayed}");
    let order = "select payload_json #>> '{payload,order}' from towpath.job_queue where job_kind = 'k'";
    assert_eq!(db.text(order).await, "17");
}

/// E06: one poison event in a thousand: 999 delivered, one snapshot that replays after the fix.
#[tokio::test]
async fn one_bad_event_stops_nobody() {
    let db = routed("live").await;
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'payload', jsonb_build_object('prio', case when n = 637 then to_jsonb('abc'::text) else to_jsonb(7) end))) \
                from generate_series(1, 1000) n))";
    assert_eq!(db.ask(many).await["emitted"], 1000);
    db.call("fn_event_sequence()").await;
    let decisions = route(&db).await;
    assert_eq!((&decisions["sent"], &decisions["failed"]), (&json!(999), &json!(1)), "{decisions}");
    assert_eq!(jobs(&db).await, "999");
    let letters = db.ask("fn_route_dead_letter_list()").await;
    let letter = letters["dead_letters"][0]["dead_letter_id"].as_str().unwrap().to_owned();
    let replay = format!("fn_route_dead_letter_replay('{letter}', 'tester')");
    assert_eq!(db.ask(&replay).await["resolved"], false, "nothing has been fixed yet");
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    assert_eq!(db.ask(&replay).await["resolved"], true);
    assert_eq!(jobs(&db).await, "1000");
    assert_eq!(db.ask(&replay).await["error"], "conflict", "resolved once");
    let error =
        db.client_as("towpath_owner").await.batch_execute("delete from towpath.route_dead_letter").await;
    assert!(error.is_err(), "resolved, never deleted");
}

/// E09: four slices, eight workers at once: every event once, none left.
#[tokio::test(flavor = "multi_thread")]
async fn slices_share_the_work_without_overlap() {
    let db = routed("live").await;
    db.call("fn_route_worker_put('default', 4, 0)").await;
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'subject_ref', n::text)) from generate_series(1, 4000) n))";
    assert_eq!(db.ask(many).await["emitted"], 4000);
    db.call("fn_event_sequence()").await;
    let mut workers = vec![];
    for _ in 0..8 {
        let client = db.client().await;
        workers.push(tokio::spawn(async move {
            for _ in 0..40 {
                client.batch_execute("select towpath.fn_route_worker_run('default', 100)").await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    // `more` is about the slice that was taken, so each is asked until it is false.
    for slice in 0..4 {
        while db.ask(&format!("fn_route_worker_run('default', 1000, {slice}, 4)")).await["more"] == true {}
    }
    assert_eq!(jobs(&db).await, "4000");
    let verify = db.ask("fn_event_verify()").await;
    assert_eq!(verify["passed"], true, "{verify}");
}

/// E09: the slices change again and again while eight workers run: every event once, none left.
#[tokio::test(flavor = "multi_thread")]
async fn slices_may_change_while_workers_run() {
    let db = routed("live").await;
    let many = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', 'd', 'event_type', 't', \
                'subject_table', 's', 'subject_ref', (n % 50)::text)) from generate_series(1, 3000) n))";
    assert_eq!(db.ask(many).await["emitted"], 3000);
    db.call("fn_event_sequence()").await;
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut workers = vec![];
    for _ in 0..8 {
        let (client, done) = (db.client().await, done.clone());
        workers.push(tokio::spawn(async move {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                client.batch_execute("select towpath.fn_route_worker_run('default', 40)").await.unwrap();
            }
        }));
    }
    for slices in [4, 7, 2, 16, 1, 5] {
        db.call(&format!("fn_route_worker_put('default', {slices})")).await;
    }
    wait::until("3000 jobs", async || jobs(&db).await, |count| count == "3000").await;
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(db.text("select count(distinct source_ref) from towpath.job_queue").await, "3000");
    let verify = db.ask("fn_event_verify(true)").await;
    assert_eq!(verify["passed"], true, "{verify}");
}

/// E08: what routes have for a stream is counted densely, claimed in order under one lease, and
/// a sender that lost the lease cannot end it.
#[tokio::test]
async fn streams_are_owed_events_in_order() {
    let db = TestDb::open().await;
    for bad in
        [r#"{"stream": ""}"#, r#"{"stream": "__ds/x"}"#, r#"{"stream": "session:1"}"#, r#"{"steam": "x"}"#]
    {
        let answer = db.ask(&format!("fn_route_put('s', 'stream', '{bad}')")).await;
        assert_eq!((&answer["error"], &answer["field"]), (&json!("invalid"), &json!("target")), "{bad}");
    }
    db.call(r#"fn_route_put('s', 'stream', '{"stream": "orders"}', 'd')"#).await;
    db.call("fn_route_mode_set('s', 'live', 'tester', 'a test')").await;
    for _ in 0..3 {
        db.call("fn_event_emit('d', 't')").await;
    }
    db.call("fn_event_sequence()").await;
    assert_eq!(route(&db).await["sent"], 3);
    let claimed = db.ask("fn_stream_delivery_claim('a')").await;
    let stream = &claimed["streams"][0];
    let numbers: Vec<i64> =
        stream["events"].as_array().unwrap().iter().map(|event| event["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(db.ask("fn_stream_delivery_claim('b')").await["streams"], json!([]), "one sender at a time");
    let end = |owner: &str, attempt: i32, more: &str| {
        format!("fn_stream_delivery_end({}, '{owner}', {attempt}{more})", stream["route_stream_no"])
    };
    // The first two are in; the third is tried again later, by somebody else.
    let after = db.ask(&end("a", 1, ", 2, 'the disk is full'")).await;
    assert_eq!((&after["appended"], &after["dead"]), (&json!(2), &json!(0)));
    assert_eq!(db.ask(&end("a", 1, ", 3")).await["error"], "lease_lost");
    db.advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(db.ask("fn_stream_delivery_claim('b')").await["streams"][0]["events"][0]["number"], 3);
    // The lease runs out, and the next one finds that the stream has ended.
    db.advance(std::time::Duration::from_secs(31)).await;
    assert_eq!(db.ask("fn_stream_delivery_claim('c')").await["streams"][0]["attempt"], 3);
    assert_eq!(db.ask(&end("b", 2, ", 3")).await["error"], "lease_lost");
    assert_eq!(db.ask(&end("c", 3, ", null, 'the stream has ended', true")).await["dead"], 1);
    let letters = db.ask("fn_route_dead_letter_list()").await;
    assert_eq!(letters["dead_letters"].as_array().unwrap().len(), 1);
    let letter = letters["dead_letters"][0]["dead_letter_id"].as_str().unwrap();
    assert_eq!(db.ask(&format!("fn_route_dead_letter_replay('{letter}', 'tester')")).await["resolved"], true);
    let again = db.ask("fn_stream_delivery_claim('d')").await;
    assert_eq!(again["streams"][0]["events"][0]["number"], 4, "a replay has a number of its own");
    db.call("fn_route_retire('s', 'tester', 'a test')").await;
    assert_eq!(db.text("select count(*) from towpath.stream_delivery").await, "0");
}

/// E08: a route can make changes of the State Protocol of events: an entity is changed by the events that name its
/// key, deleted by those that say so, and an event without the key is a dead letter that stops no other.
#[tokio::test]
async fn events_become_changes_of_state() {
    let db = TestDb::open().await;
    for bad in [
        r#"{"stream": "s", "entity": "order"}"#,
        r#"{"stream": "s", "key": "payload.id"}"#,
        r#"{"stream": "s", "delete_on": ["gone"]}"#,
        r#"{"stream": "s", "entity": "", "key": "payload.id"}"#,
        r#"{"stream": "s", "entity": "order", "key": "payload..id"}"#,
        r#"{"stream": "s", "entity": "order", "key": 7, "delete_on": [7]}"#,
        r#"{"stream": "s", "entity": "order", "key": "payload.id", "delete_on": "gone"}"#,
    ] {
        let answer = db.ask(&format!("fn_route_put('s', 'stream', '{bad}')")).await;
        assert_eq!((&answer["error"], &answer["field"]), (&json!("invalid"), &json!("target")), "{bad}");
    }
    let target =
        r#"{"stream": "orders", "entity": "order", "key": "payload.order.id", "delete_on": ["cancelled"]}"#;
    db.call(&format!("fn_route_put('s', 'stream', '{target}', 'd')")).await;
    db.call("fn_route_mode_set('s', 'live', 'tester', 'a test')").await;
    for (event, payload) in [
        ("placed", r#"{"order": {"id": "a"}, "total": 1}"#),
        ("placed", r#"{"order": {"id": 7}, "total": 2}"#),
        ("placed", r#"{"order": {"id": {"x": 1}}}"#),
        ("placed", r#"{"order": "a"}"#),
        ("cancelled", r#"{"order": {"id": "a"}}"#),
    ] {
        db.call(&format!("fn_event_emit('d', '{event}', p_payload => '{payload}')")).await;
    }
    db.call("fn_event_sequence()").await;
    let routed = route(&db).await;
    assert_eq!((&routed["sent"], &routed["failed"]), (&json!(3), &json!(2)));
    let claimed = db.ask("fn_stream_delivery_claim('a')").await;
    let changes = claimed["streams"][0]["events"].as_array().unwrap().iter().map(|event| {
        let mut change: Value = serde_json::from_str(event["body"].as_str().unwrap()).unwrap();
        assert!(change["headers"]["timestamp"].is_string());
        change["headers"]["timestamp"].take();
        change
    });
    let headers = |operation: &str| json!({ "operation": operation, "timestamp": null });
    assert_eq!(
        changes.collect::<Vec<_>>(),
        [
            json!({ "type": "order", "key": "a", "headers": headers("upsert"),
                    "value": { "order": { "id": "a" }, "total": 1 } }),
            json!({ "type": "order", "key": "7", "headers": headers("upsert"),
                    "value": { "order": { "id": 7 }, "total": 2 } }),
            json!({ "type": "order", "key": "a", "headers": headers("delete") }),
        ]
    );
    let letters = db.ask("fn_route_dead_letter_list()").await;
    let errors =
        letters["dead_letters"].as_array().unwrap().iter().map(|letter| letter["error"].as_str().unwrap());
    let said = "the event has no text or number at payload.order.id, which names the entity (22000)";
    assert_eq!(errors.collect::<Vec<_>>(), [said, said]);
}

/// E02: a worker with a domain reads that domain only: it decides about nothing else and records nothing about
/// it, its routes are for that domain, and the nine checks hold.
#[tokio::test]
async fn a_worker_may_be_for_one_domain() {
    let db = TestDb::open().await;
    assert_eq!(db.ask("fn_route_worker_put('mine', 2, 0, 'tester', 'a')").await["event_domain"], "a");
    assert_eq!(db.ask("fn_route_worker_put('mine', 2, 0, 'tester', 'b')").await["error"], "conflict");
    assert_eq!(db.ask("fn_route_worker_put('x', p_event_domain => ' ')").await["error"], "invalid");
    let put = |domain: &str| {
        format!("fn_route_put('r', 'job', '{{\"job_kind\": \"k\"}}', {domain}, p_worker_name => 'mine')")
    };
    assert_eq!(db.ask(&put("'b'")).await["error"], "invalid");
    db.call(&put("null")).await;
    set_mode(&db, "live").await;
    for domain in ["a", "b", "a"] {
        db.call(&format!("fn_event_emit('{domain}', 't')")).await;
    }
    db.call("fn_event_sequence()").await;
    for slice in 0..2 {
        let pass = db.ask(&format!("fn_route_worker_run('mine', 100, {slice}, 2)")).await;
        assert_eq!(pass["ok"], true, "{pass}");
    }
    db.call("fn_route_worker_run('default')").await;
    let attempts = "select string_agg(concat_ws(' ', position, decision), ', ' order by position) from towpath.route_attempt \
                    where worker_no = (select worker_no from towpath.route_worker where worker_name = 'mine')";
    assert_eq!(db.text(attempts).await, "1 sent, 3 sent");
    assert_eq!(jobs(&db).await, "2");
    assert_eq!(db.ask("fn_event_verify()").await["passed"], true);
}

/// R08: only the administrator makes routes and subscriptions.
#[tokio::test]
async fn only_the_administrator_changes_routing() {
    let db = TestDb::open().await;
    for role in ["towpath_producer", "worker_service_user", "towpath_observer"] {
        let client = db.client_as(role).await;
        for call in [
            r#"fn_route_put('x', 'job', '{"job_kind": "k"}')"#,
            "fn_event_subscription_put('role:a', 'd')",
            "fn_event_actor_put('role:a', 'me')",
            "fn_event_grant_put('me')",
            "fn_route_worker_put('mine')",
            "fn_route_secret_rotate('r')",
            "fn_route_test('r')",
            "fn_route_mode_set('r', 'live', 'x', 'y')",
        ] {
            let error = client.batch_execute(&format!("select towpath.{call}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {call}");
        }
    }
}
