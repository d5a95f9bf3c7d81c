//! Events in SQL: the outbox, the sequencer and who receives what.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_testkit::TestDb;

/// E01: insert-only for every role, the owner and the superuser among them, by every name of the table, and
/// with the triggers of the session switched off.
#[tokio::test]
async fn the_outbox_is_insert_only_for_everybody() {
    let db = TestDb::open().await;
    db.call("fn_event_emit('orders', 'created')").await;
    db.call("fn_event_sequence()").await;
    // A partition that was made later has the triggers too.
    db.advance(Duration::from_secs(30 * 86_400)).await;
    db.call("fn_event_partition_tick()").await;
    db.call("fn_event_emit('orders', 'created')").await;
    let newest = db.text("select max(tableoid::regclass::text) from towpath.event_outbox").await;
    for role in [
        "postgres",
        "towpath_owner",
        "workflow_admin",
        "towpath_producer",
        "worker_service_user",
        "towpath_observer",
    ] {
        refuses(&db.client_as(role).await, role, &newest).await;
    }
    let superuser = db.client().await;
    superuser.batch_execute("set session_replication_role = replica").await.unwrap();
    refuses(&superuser, "a superuser without triggers", &newest).await;
    assert_eq!(db.text("select count(*) from towpath.event_outbox").await, "2");
}

async fn refuses(client: &tokio_postgres::Client, role: &str, partition: &str) {
    for sql in [
        "update towpath.event_outbox set actor = 'x'",
        "delete from towpath.event_outbox",
        "truncate towpath.event_outbox",
        &format!("update {partition} set actor = 'x'"),
        &format!("delete from {partition}"),
        &format!("truncate {partition}"),
        "update towpath.event_position set position = 7",
        "delete from towpath.event_position",
        "truncate towpath.event_position",
        "truncate towpath.route_attempt",
        "delete from towpath.route_dead_letter",
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{role}: {sql}");
    }
}

/// E01, Q03: what an event must not carry is refused, at any depth and in any letter case, by every door.
#[tokio::test]
async fn bad_events_are_refused() {
    let db = TestDb::open().await;
    for (event, word) in [
        ("fn_event_emit('d', 't', p_payload => '[1]')", "invalid"),
        ("fn_event_emit('d', 't', p_payload => jsonb_build_object('a', repeat('x', 70000)))", "invalid"),
        ("fn_event_emit(' ', 't')", "invalid"),
        ("fn_event_emit('d', ' ')", "invalid"),
        ("fn_event_emit('d', repeat('t', 201))", "invalid"),
        ("fn_event_emit('d', 't', p_subject_ref => '')", "invalid"),
        ("fn_event_emit('d', 't', p_ordering_key => ' ')", "invalid"),
        ("fn_event_emit('d', 't', p_actor => ' ')", "invalid"),
        ("fn_event_emit('d', 't', p_event_id => gen_random_uuid())", "invalid"),
        ("fn_event_emit('towpath', 'warning')", "not_authorised"),
    ] {
        assert_eq!(db.ask(event).await["error"], word, "{event}");
    }
    let owner = db.client_as("towpath_owner").await;
    let denied = [
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
    ];
    for key in denied {
        for spelled in
            [key.to_owned(), key.to_uppercase(), format!("{}{}", key[..1].to_uppercase(), &key[1..])]
        {
            let mut payload = json!({spelled.as_str(): 1});
            for depth in 0..6 {
                payload = if depth % 2 == 0 { json!({"a": payload}) } else { json!({"b": [0, payload]}) };
            }
            let answer = db.ask(&format!("fn_event_emit('d', 't', p_payload => '{payload}')")).await;
            assert_eq!(answer["error"], "invalid", "{payload}");
            assert!(answer["detail"].as_str().unwrap().contains(&spelled), "{answer}");
            let row = json!([{"event_domain": "d", "event_type": "t", "payload": payload}]);
            assert_eq!(db.ask(&format!("fn_event_emit_many('{row}')")).await["refused"], 1, "{row}");
            let insert = format!(
                "insert into towpath.event_outbox (event_id, event_domain, event_type, actor, payload) \
                 values (towpath._uuid7(0), 'd', 't', 'x', '{payload}')"
            );
            let error = owner.batch_execute(&insert).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "23514", "{payload}");
        }
    }
    assert_eq!(db.text("select count(*) from towpath.event_outbox").await, "0");
    let near = r#"fn_event_emit('d', 't', p_payload => '{"tokens": 1, "a": "password: x", "body_ref": 2}')"#;
    assert_eq!(db.ask(near).await["ok"], true, "only the keys themselves");
}

/// E03: emitting notifies nobody; a sequencer's pass notifies once, with the last position.
#[tokio::test]
async fn one_notification_per_pass() {
    let db = TestDb::open().await;
    let (listener, mut connection) = tokio_postgres::connect(&db.url(), tokio_postgres::NoTls).await.unwrap();
    let notes = tokio::spawn(async move {
        let mut notes = vec![];
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let tokio_postgres::AsyncMessage::Notification(note) = message {
                notes.push(format!("{} {}", note.channel(), note.payload()));
            }
        }
        notes
    });
    listener.batch_execute("listen towpath_event").await.unwrap();
    for _ in 0..3 {
        db.call("fn_event_emit('d', 't')").await;
    }
    db.call("fn_event_sequence()").await;
    db.call("fn_event_sequence()").await;
    db.call("fn_event_emit('d', 't')").await;
    db.call("fn_event_sequence()").await;
    // A notification is handed over before the answer to the next statement.
    listener.batch_execute("select 1").await.unwrap();
    drop(listener);
    assert_eq!(notes.await.unwrap(), ["towpath_event 3", "towpath_event 4"]);
}

/// E01: an event belongs to the transaction that caused it.
#[tokio::test]
async fn a_rolled_back_event_never_was() {
    let db = TestDb::open().await;
    let client = db.client().await;
    client.batch_execute("begin; select towpath.fn_event_emit('d', 'gone'); rollback").await.unwrap();
    client.batch_execute("begin; select towpath.fn_event_emit('d', 'kept'); commit").await.unwrap();
    assert_eq!(db.ask("fn_event_sequence()").await["numbered"], 1);
    assert_eq!(db.text("select event_type from towpath.event_outbox").await, "kept");
}

/// E03: an event that commits late is numbered when it commits; nobody waits for it, and a
/// cursor on (created_at, id) would never have found it (the control).
#[tokio::test]
async fn a_late_commit_is_not_skipped_and_holds_nobody_up() {
    let db = TestDb::open().await;
    let (slow, quick) = (db.rival().await, db.rival().await);
    slow.run("begin; select towpath.fn_event_emit('d', 'late')").await;
    quick.run("select towpath.fn_event_emit('d', 'early')").await;
    assert_eq!(db.ask("fn_event_sequence()").await["numbered"], 1, "the open transaction delays nobody");
    let naive = "select max(created_at) from towpath.event_outbox";
    let cursor = db.text(naive).await;
    slow.run("commit").await;
    let after_naive = format!("select count(*) from towpath.event_outbox where created_at > '{cursor}'");
    assert_eq!(db.text(&after_naive).await, "0", "the control must lose it");
    assert_eq!(db.ask("fn_event_sequence()").await["numbered"], 1);
    let order = "select string_agg(o.event_type, ',' order by p.position) \
                 from towpath.event_position p join towpath.event_outbox o using (event_id)";
    assert_eq!(db.text(order).await, "early,late");
}

/// E03: writers with delays and rollbacks, two sequencers: positions are dense, every
/// committed event has one, no other has, and an effect comes after its cause.
#[tokio::test(flavor = "multi_thread")]
async fn numbering_survives_a_race() {
    let db = TestDb::open().await;
    let until = Instant::now() + Duration::from_secs(4);
    let mut writers = vec![];
    for number in 0..8u32 {
        let client = db.client().await;
        writers.push(tokio::spawn(async move {
            let (mut committed, mut turn) = (vec![], number);
            while Instant::now() < until {
                turn = turn.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                client.batch_execute("begin").await.unwrap();
                let last = "select event_id::text from towpath.event_outbox order by event_id desc limit 1";
                let cause: Option<String> = client.query_opt(last, &[]).await.unwrap().map(|row| row.get(0));
                let emit = "select towpath.fn_event_emit('race', 'e', p_payload => jsonb_build_object('cause', $1::text))";
                let answer: Value = client.query_one(emit, &[&cause]).await.unwrap().get(0);
                if turn % 4 == 0 {
                    client.batch_execute(&format!("select pg_sleep({})", f64::from(turn % 50) / 1000.0)).await.unwrap();
                }
                let end = if turn % 20 == 3 { "rollback" } else { "commit" };
                client.batch_execute(end).await.unwrap();
                if end == "commit" {
                    committed.push((answer["event_id"].as_str().unwrap().to_owned(), cause));
                }
            }
            committed
        }));
    }
    let sequencers: Vec<_> = [db.client().await, db.client().await]
        .into_iter()
        .map(|client| {
            tokio::spawn(async move {
                while Instant::now() < until {
                    client.batch_execute("select towpath.fn_event_sequence()").await.unwrap();
                }
            })
        })
        .collect();
    let mut committed = vec![];
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    for sequencer in sequencers {
        sequencer.await.unwrap();
    }
    while db.ask("fn_event_sequence()").await["numbered"] != 0 {}
    let rows = db
        .client()
        .await
        .query("select event_id::text, position from towpath.event_position", &[])
        .await
        .unwrap();
    let positions: std::collections::HashMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let numbered: BTreeSet<&str> = positions.keys().map(String::as_str).collect();
    let expected: BTreeSet<&str> = committed.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(numbered, expected, "exactly what was committed");
    let mut dense: Vec<i64> = positions.values().copied().collect();
    dense.sort_unstable();
    assert_eq!(dense.last().unwrap() - dense.first().unwrap() + 1, dense.len() as i64, "without gaps");
    for (event, cause) in committed.iter().filter_map(|(event, cause)| Some((event, cause.as_ref()?))) {
        assert!(positions[cause] < positions[event], "an effect came before its cause");
    }
}

/// R02: all combinations of the four rows of a recipient, each absent, speaking or muted.
/// The most specific one decides; if it is muted the event is suppressed, visibly.
#[tokio::test]
async fn the_most_specific_row_decides() {
    let db = TestDb::open().await;
    let steps = ["exact_match", "domain_wildcard", "stream_wildcard", "domain_only"];
    let rows = ["'t', 's'", "null, 's'", "'t', null", "null, null"];
    for combination in 0..81usize {
        db.execute("delete from towpath.event_subscription").await;
        let states: Vec<usize> = (0..4).map(|row| combination / 3usize.pow(row) % 3).collect();
        for (row, &state) in rows.iter().zip(&states).filter(|(_, state)| **state > 0) {
            let mute = state == 2;
            let put = format!("fn_event_subscription_put('role:a', 'd', {row}, p_mute => {mute})");
            db.call(&put).await;
        }
        let event = r#"'{"event_domain": "d", "event_type": "t", "event_stream": "s"}'"#;
        let answer = db.ask(&format!("fn_resolve_recipients({event})")).await;
        match states.iter().position(|&state| state > 0) {
            Some(first) if states[first] == 1 => {
                assert_eq!(answer["step"], steps[first], "{states:?}");
                assert_eq!(answer["recipients"][0]["recipient_ref"], "role:a", "{states:?}");
            }
            Some(first) => {
                assert_eq!(answer["recipients"], json!([]), "{states:?}");
                assert_eq!(answer["suppressed"][0]["step"], steps[first], "{states:?}");
            }
            None => assert_eq!(answer["step"], "broadcast_fallback", "{states:?}"),
        }
    }
}

/// R01: a recipient is a role, an agency, a user or an agent with a name.
#[tokio::test]
async fn recipients_have_a_known_prefix() {
    let db = TestDb::open().await;
    for bad in ["x", "role:", "rol:a", "role: a", "MOT"] {
        let put = format!("fn_event_subscription_put('{bad}', 'd')");
        assert_eq!(db.ask(&put).await["error"], "invalid", "{bad}");
    }
    let owner = db.client_as("towpath_owner").await;
    let insert = "insert into towpath.event_subscription (recipient_ref, event_domain, registered_by) values ('mot:x', 'd', 't')";
    assert_eq!(owner.batch_execute(insert).await.unwrap_err().code().unwrap().code(), "23514");
}

/// R04: with resolution switched off everything is broadcast, and the answer says so; it is counted and
/// shown, and without a live route nothing is delivered.
#[tokio::test]
async fn resolution_can_be_switched_off() {
    let db = TestDb::open().await;
    db.call("fn_event_subscription_put('role:a', 'd')").await;
    db.call("fn_gate_set('queue.subscription_resolution.enabled', false, 'tester', 'a test')").await;
    let answer = db.ask(r#"fn_resolve_recipients('{"event_domain": "d", "event_type": "t"}')"#).await;
    assert_eq!((&answer["broadcast"], &answer["resolution_enabled"]), (&json!(true), &json!(false)));
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    let shown = "select v.broadcast_events_24h || ' ' || v.subscription_resolution_enabled || ' ' || \
                 (select sum(b.broadcast_events_24h) from towpath.v_subscription_broadcast_used b) || ' ' || \
                 (select count(*) from towpath.job) from towpath.v_queue_health v";
    for (mode, wanted) in [("off", "1 false 1 0"), ("live", "2 false 2 1")] {
        db.call(&format!("fn_route_mode_set('r', '{mode}', 'tester', 'a test')")).await;
        db.call("fn_event_emit('d', 't')").await;
        db.call("fn_event_sequence()").await;
        db.call("fn_route_worker_run('default')").await;
        db.call("fn_event_counter_fold()").await;
        assert_eq!(db.text(shown).await, wanted, "{mode}");
    }
}

/// R03: the warning comes above five per cent, once, and does not count itself.
#[tokio::test]
async fn broadcast_warns_once() {
    let db = TestDb::open().await;
    db.call("fn_event_subscription_put('role:a', 'good')").await;
    let emit = async |domain: &str, count: u32| {
        let many = format!(
            "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', '{domain}', 'event_type', 't')) \
             from generate_series(1, {count})))"
        );
        assert_eq!(db.ask(&many).await["emitted"], count);
        db.call("fn_event_sequence()").await;
        db.call("fn_event_counter_fold()").await;
    };
    emit("good", 100).await;
    emit("nobody", 5).await;
    assert_eq!(db.ask("fn_event_broadcast_check()").await["warned"], false, "below five per cent");
    emit("nobody", 30).await;
    let first = db.ask("fn_event_broadcast_check()").await;
    assert_eq!(first["warned"], true, "{first}");
    db.call("fn_event_sequence()").await;
    db.call("fn_event_counter_fold()").await;
    let again = db.ask("fn_event_broadcast_check()").await;
    assert_eq!((&again["warned"], &again["events"]), (&json!(false), &first["events"]), "{again}");
}

/// R03: each event counts once, in the view and in the warning: with two route workers, with a cursor that
/// is set back to events which then get new decisions, and however the counter cuts its batches. A muted
/// or out of scope subscription is none.
#[tokio::test]
async fn broadcasts_count_each_event_once() {
    let db = TestDb::open().await;
    db.call("fn_event_subscription_put('role:a', 'chosen', p_scope_filter => '{\"vip\": true}')").await;
    db.call("fn_event_subscription_put('role:a', 'muted', p_mute => true)").await;
    db.call("fn_route_worker_put('second')").await;
    db.call(r#"fn_route_put('r', 'job', '{"job_kind": "k"}')"#).await;
    let emit = "fn_event_emit_many((select jsonb_agg(jsonb_build_object('event_domain', d, 'event_type', 't', \
                'payload', jsonb_build_object('vip', n % 2 = 0))) \
                from unnest(array['chosen', 'muted', 'nobody']) d, generate_series(1, 100) n))";
    assert_eq!(db.ask(emit).await["emitted"], 300);
    db.call("fn_event_sequence()").await;
    let route_both = async || {
        for worker in ["default", "second"] {
            while db.ask(&format!("fn_route_worker_run('{worker}', 1000)")).await["more"] == true {}
        }
    };
    route_both().await;
    while db.ask("fn_event_counter_fold(70)").await["more"] == true {}
    db.call("fn_route_mode_set('r', 'dry_run', 'tester', 'a test')").await;
    for worker in ["default", "second"] {
        db.call(&format!("fn_route_worker_put('{worker}', 1, 0)")).await;
    }
    route_both().await;
    assert_eq!(db.text("select count(*) from towpath.route_attempt where decision = 'dry_run'").await, "300");
    db.call("fn_event_counter_fold()").await;
    let used = "select string_agg(format('%s %s/%s', event_domain, broadcast_events_24h, events_24h), ', ' \
                order by event_domain) from towpath.v_subscription_broadcast_used";
    assert_eq!(db.text(used).await, "chosen 50/100, muted 100/100, nobody 100/100");
    let check = db.ask("fn_event_broadcast_check()").await;
    assert_eq!(
        (&check["warned"], &check["broadcasts"], &check["events"]),
        (&json!(true), &json!(250), &json!(300))
    );
    let top = "select payload #>> '{top,0,broadcast_events_24h}' from towpath.event_outbox \
               where event_type = 'subscription.broadcast_drift'";
    assert_eq!(db.text(top).await, "100");
}
