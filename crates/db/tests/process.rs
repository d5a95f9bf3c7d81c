//! Processes: started once, supervised by any number, never stuck.

use serde_json::{Value, json};
use towpath_testkit::race::all_at_once;

use crate::process_kit::{DEADLINE, LEASE, PICKUP, Processes, SECOND, run_as};

fn simple() -> Value {
    json!({ "supervisor": "towpath.process_supervisor", "task_kind": "test", "on_uncertain": "retry" })
}

/// P07: one process per kind and ref, however many start it at once, and it has one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_started_once() {
    let place = Processes::with_kind(&simple()).await;
    let mut clients = vec![];
    for _ in 0..8 {
        clients.push(std::sync::Arc::new(place.db.client().await));
    }
    let answers = all_at_once(8, |starter| {
        let client = clients[starter].clone();
        async move {
            let sql = "select towpath.fn_process_start('test.call', 'order-1')";
            client.query_one(sql, &[]).await.unwrap().get::<_, Value>(0)
        }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer["duplicate"] == false).count(), 1, "{answers:?}");
    let process = answers[0]["process_id"].as_str().unwrap();
    assert!(answers.iter().all(|answer| answer["process_id"] == process), "all get the same id");
    assert_eq!(place.facts(process).await, ["started", "scheduled 1"]);
    let job = place.job(process, 1).await;
    assert_eq!(
        job,
        json!({ "task_type": "test", "process_id": process, "attempt_no": 1, "ref": "order-1" }),
        "the job carries references"
    );
}

/// P07: a start that is rolled back leaves nothing: no process, no job.
#[tokio::test]
async fn a_start_belongs_to_its_transaction() {
    let place = Processes::with_kind(&simple()).await;
    let client = place.db.client().await;
    client.batch_execute("begin; select towpath.fn_process_start('test.call', 'a'); rollback").await.unwrap();
    assert_eq!(place.text("select count(*) from towpath.process").await, "0");
    assert_eq!(place.text("select count(*) from towpath.job_queue").await, "0");
}

/// P07: what cannot start says why, and writes nothing.
#[tokio::test]
async fn a_bad_start_is_refused() {
    let place = Processes::with_kind(&simple()).await;
    for (arguments, word) in [
        ("'nobody', 'a'", "not_found"),
        ("'test.call', ' '", "invalid"),
        ("'test.call', null", "invalid"),
        ("'test.call', repeat('x', 501)", "invalid"),
        ("'test.call', 'a', p_deadline_at => '2026-03-01T11:00:00Z'", "invalid"),
        ("'test.call', 'a', p_max_attempts => 0", "invalid"),
        ("'test.call', 'a', p_actor => ' '", "invalid"),
    ] {
        let answer = place.json(&format!("towpath.fn_process_start({arguments})")).await;
        assert_eq!(answer["error"], word, "{arguments}: {answer}");
    }
    let producer = place.db.client_as("towpath_producer").await;
    let sql = "select towpath.fn_process_start('test.call', 'a')";
    let answer: Value = producer.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(answer["error"], "not_authorised", "{answer}");
    place.execute("select towpath.fn_producer_grant_put('towpath_producer', 'test')").await;
    let answer: Value = producer.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(answer["ok"], true, "{answer}");
    place.execute("update towpath.config set value = 'false' where key = 'process.enabled'").await;
    let answer = place.json("towpath.fn_process_start('test.call', 'b')").await;
    assert_eq!((&answer["error"], &answer["gate"]), (&json!("gate_closed"), &json!("process.enabled")));
    assert_eq!(place.json("towpath.fn_process_scan()").await["error"], "gate_closed");
    assert_eq!(place.text("select count(*) from towpath.process").await, "1");
}

/// P07: eight supervisors at once on one process schedule one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn eight_supervisors_schedule_one_attempt() {
    let place = Processes::with_kind(&simple()).await;
    let at = "p_check_at => '2026-03-01T13:00:00Z'";
    let answer = place.json(&format!("towpath.fn_process_start('test.call', 'a', {at})")).await;
    let process = answer["process_id"].as_str().unwrap().to_owned();
    place.advance(SECOND * 3_600).await;
    let mut clients = vec![];
    for role in ["towpath_maintainer", "worker_service_user"].into_iter().cycle().take(8) {
        clients.push(std::sync::Arc::new(place.db.client_as(role).await));
    }
    let answers = all_at_once(8, |supervisor| {
        let (client, payload) = (clients[supervisor].clone(), json!({ "process_id": process }));
        async move {
            // Half of them by the scan, half by a task.
            if supervisor % 2 == 0 {
                client.query_one("select towpath.fn_process_scan()", &[]).await.unwrap().get(0)
            } else {
                run_as(&client, "towpath.process_supervisor", &payload).await
            }
        }
    })
    .await;
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1"], "{answers:?}");
    assert_eq!(place.text("select count(*) from towpath.job_queue").await, "1");
}

/// P07: the lock, not luck, makes it one: a supervisor waits for the one before it.
#[tokio::test]
async fn a_supervisor_waits_for_the_one_before() {
    let place = Processes::with_kind(&simple()).await;
    let process = place.start("test.call", "a").await;
    let sql = format!("select towpath.process_supervisor('{{\"process_id\": \"{process}\"}}')");
    let (first, second) = (place.db.rival().await, place.db.rival().await);
    first.run(&format!("begin; {sql}")).await;
    let waiting = second.send(&sql);
    place.db.until_blocked(&waiting).await;
    first.run("commit").await;
    assert!(waiting.value().await.unwrap().unwrap().contains("wait"));
}

/// P08: a job that vanished, however, is noticed and made again; the attempt that never began
/// does not count.
#[tokio::test]
async fn a_lost_job_leaves_no_process_stuck() {
    let mut kind = simple();
    kind["max_attempts"] = json!(1);
    let place = Processes::with_kind(&kind).await;
    let process = place.start("test.call", "a").await;
    for round in 1..4 {
        // As if a restore, a bug or an operator had lost it.
        place
            .execute("delete from towpath.job_live; delete from towpath.job_ready; delete from towpath.job")
            .await;
        place.advance(PICKUP).await;
        assert_eq!(place.scan().await["checked"], 1, "round {round}");
    }
    assert_eq!(
        place.facts(&process).await,
        ["started", "scheduled 1", "lost 1", "scheduled 2", "lost 2", "scheduled 3", "lost 3", "scheduled 4"]
    );
    place.check().await;
}

/// P08: a job that only waits long is left alone: no second one piles up behind a slow queue.
#[tokio::test]
async fn a_waiting_job_is_not_made_twice() {
    let place = Processes::with_kind(&simple()).await;
    let process = place.start("test.call", "a").await;
    for _ in 0..5 {
        place.advance(PICKUP).await;
        assert_eq!(place.scan().await["checked"], 1);
        assert_eq!(place.scan().await["checked"], 0, "it is not looked at again at once");
    }
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1"]);
    assert_eq!(place.text("select count(*) from towpath.job_queue").await, "1");
}

/// P07: the deadline ends what nobody else ends, and takes the waiting job with it.
#[tokio::test]
async fn the_deadline_ends_every_process() {
    let place = Processes::with_kind(&simple()).await;
    let process = place.start("test.call", "a").await;
    place.advance(DEADLINE).await;
    place.scan().await;
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1", "gave_up"]);
    assert_eq!(place.text("select state from towpath.job_queue").await, "cancelled");
    assert_eq!(place.scan().await["checked"], 0, "an ended process is never looked at again");
    place.check().await;
}

/// P07: a supervisor that raises, is not granted, or is gone costs a task error and a delay, not
/// the others, and not the deadline.
#[tokio::test]
async fn a_failing_supervisor_is_recorded_and_outlived() {
    let place = Processes::with_kind(&simple()).await;
    place
        .functions(
            "create function biz.supervisor(payload jsonb) returns jsonb language plpgsql security definer
                 set search_path = pg_catalog, pg_temp as $$ begin raise exception 'broken'; end $$;
             grant execute on function biz.supervisor(jsonb) to worker_service_user",
        )
        .await;
    place.kind("biz.bad", &json!({ "supervisor": "biz.supervisor", "task_kind": "test" })).await;
    let bad = place.start("biz.bad", "a").await;
    let good = place.start("test.call", "a").await;
    assert_eq!(place.facts(&bad).await, ["started"], "the start itself stands");
    place.advance(PICKUP).await;
    let answer = place.scan().await;
    assert_eq!((&answer["checked"], &answer["failed"]), (&json!(2), &json!(1)), "{answer}");
    place.execute("revoke execute on function biz.supervisor(jsonb) from worker_service_user").await;
    place.advance(PICKUP).await;
    assert_eq!(place.scan().await["failed"], 1);
    place.execute("drop function biz.supervisor(jsonb)").await;
    place.advance(PICKUP).await;
    assert_eq!(place.scan().await["failed"], 1);
    let errors = place.json("towpath.fn_task_error_list('{\"kind\": \"supervisor\"}')").await;
    let messages: Vec<&str> =
        errors["task_errors"].as_array().unwrap().iter().map(|e| e["message"].as_str().unwrap()).collect();
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert!(messages[0].contains("there is no function"), "{messages:?}");
    assert!(messages[1].contains("grant execute"), "{messages:?}");
    assert!(messages[2].contains("broken"), "{messages:?}");
    assert!(errors["task_errors"].as_array().unwrap().iter().all(|e| e["process_id"] == bad.as_str()));
    place.advance(DEADLINE).await;
    place.scan().await;
    assert_eq!((place.state(&bad).await, place.state(&good).await), ("gave_up".into(), "gave_up".into()));
    place.check().await;
}

/// P07: a recorder that fails undoes the fact it was told, so that both agree; only the deadline
/// goes without it.
#[tokio::test]
async fn a_failing_recorder_undoes_its_fact_but_not_the_deadline() {
    let place = Processes::open().await;
    place
        .functions(
            "create function biz.recorder(payload jsonb) returns jsonb language plpgsql security definer
                 set search_path = pg_catalog, pg_temp as $$
                 begin
                     if payload->>'fact' in ('lost', 'gave_up') then raise exception 'disk full'; end if;
                     return '{}';
                 end $$",
        )
        .await;
    let mut kind = simple();
    kind["recorder"] = json!("biz.recorder");
    place.kind("test.call", &kind).await;
    let process = place.start("test.call", "a").await;
    place
        .execute("delete from towpath.job_live; delete from towpath.job_ready; delete from towpath.job")
        .await;
    place.advance(PICKUP).await;
    assert_eq!(place.scan().await["failed"], 1);
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1"], "the fact is undone");
    place.advance(DEADLINE).await;
    assert_eq!(place.scan().await["failed"], 1);
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1", "gave_up"]);
    place.check().await;
}

/// P07: a slow supervisor that is cancelled is not the first of the next scan: nobody starves.
#[tokio::test]
async fn a_supervisor_that_takes_too_long_starves_nobody() {
    let place = Processes::with_kind(&simple()).await;
    place
        .functions(
            "create function biz.slow(payload jsonb) returns jsonb language plpgsql security definer
                 set search_path = pg_catalog, pg_temp as $$ begin perform pg_sleep(60); return '{}'; end $$;
             grant execute on function biz.slow(jsonb) to worker_service_user",
        )
        .await;
    place.kind("biz.slow", &json!({ "supervisor": "biz.slow", "task_kind": "test" })).await;
    let later = "p_check_at => '2026-03-01T12:00:01Z'";
    let slow = place.json(&format!("towpath.fn_process_start('biz.slow', 'a', {later})")).await;
    place.advance(SECOND).await;
    let later = "p_check_at => '2026-03-01T12:00:02Z'";
    let quick = place.json(&format!("towpath.fn_process_start('test.call', 'a', {later})")).await;
    place.advance(SECOND).await;
    let maintainer = place.db.client_as("towpath_maintainer").await;
    maintainer.batch_execute("set statement_timeout = '300ms'").await.unwrap();
    let answer: Value = maintainer.query_one("select towpath.fn_process_scan()", &[]).await.unwrap().get(0);
    assert_eq!((&answer["failed"], &answer["more"]), (&json!(1), &json!(true)), "{answer}");
    assert_eq!(place.scan().await["checked"], 1);
    assert_eq!(place.facts(quick["process_id"].as_str().unwrap()).await, ["started", "scheduled 1"]);
    assert_eq!(place.facts(slow["process_id"].as_str().unwrap()).await, ["started"]);
    assert_eq!(
        place.text("select count(*) from towpath.task_error where message like '%timed out'").await,
        "1"
    );
}

/// P07: with 100,000 open processes a scan reads what is due, not what waits.
#[tokio::test]
async fn a_scan_reads_only_what_is_due() {
    let place = Processes::with_kind(&simple()).await;
    place.execute(
            "insert into towpath.process (process_id, process_kind, ref, in_database, next_check_at, deadline_at,
                                          max_attempts, started_by, started_at)
             select towpath._uuid7(1772366400000000 + n), 'test.call', 'n' || n, true,
                    timestamptz '2026-03-01 13:00Z' + n * interval '1 second', '2027-01-01', 5, 'test', towpath.fn_now()
               from generate_series(1, 100000) n;
             analyze towpath.process",
        )
        .await;
    let process = place.start("test.call", "due").await;
    place.advance(PICKUP).await;
    let client = place.db.client().await;
    client.batch_execute("begin").await.unwrap();
    let answer: Value = client.query_one("select towpath.fn_process_scan()", &[]).await.unwrap().get(0);
    assert_eq!(answer["checked"], 1, "{answer}");
    let read = "select coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
                 where relid = 'towpath.process'::regclass";
    let row = client.query_one(read, &[]).await.unwrap();
    let (sequential, by_index): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(sequential, 0, "it never reads the whole table");
    assert!(by_index < 50, "{by_index} rows for one process that was due");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1"]);
}

/// P07: a backlog is taken in bounded bites, by several scanners at once, each process once.
#[tokio::test(flavor = "multi_thread")]
async fn many_scanners_share_a_backlog() {
    let place = Processes::with_kind(&simple()).await;
    let sql = "select count(*) from (select towpath.fn_process_start('test.call', 'n' || n,
                   p_check_at => towpath.fn_now() + interval '1 second') from generate_series(1, 500) n) x";
    assert_eq!(place.text(sql).await, "500");
    place.advance(SECOND).await;
    let mut clients = vec![];
    for _ in 0..4 {
        clients.push(std::sync::Arc::new(place.db.client_as("towpath_maintainer").await));
    }
    let checked = all_at_once(4, |scanner| {
        let client = clients[scanner].clone();
        async move {
            let mut checked = 0;
            loop {
                let row = client.query_one("select towpath.fn_process_scan(20)", &[]).await.unwrap();
                let answer: Value = row.get(0);
                assert_eq!(answer["failed"], 0);
                match answer["checked"].as_i64().unwrap() {
                    0 => return checked,
                    some => {
                        assert!(some <= 40, "a pass is bounded");
                        checked += some;
                    }
                }
            }
        }
    })
    .await;
    assert_eq!(checked.iter().sum::<i64>(), 500, "{checked:?}");
    assert_eq!(place.text("select count(*) from towpath.process_fact where fact = 'scheduled'").await, "500");
    place.check().await;
}

/// P06: facts cannot be changed or deleted by anyone, and a second end is refused by the table.
#[tokio::test]
async fn facts_are_append_only_and_end_once() {
    let place = Processes::with_kind(&simple()).await;
    let process = place.start("test.call", "a").await;
    let cancel = format!("towpath.fn_process_cancel('{process}', 'ann', 'not needed')");
    assert_eq!(place.json(&cancel).await["state"], "cancelled");
    assert_eq!(place.json(&cancel).await["error"], "conflict");
    for role in ["postgres", "towpath_owner"] {
        let client = place.db.client_as(role).await;
        for sql in [
            "update towpath.process_fact set fact = 'succeeded'",
            "delete from towpath.process_fact",
            "truncate towpath.process_fact",
        ] {
            let error = client.batch_execute(sql).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {sql}");
        }
    }
    let second = format!(
        "insert into towpath.process_fact (process_id, fact_no, fact, actor, recorded_at)
         values ('{process}', 99, 'succeeded', 'x', now())"
    );
    let error = place.db.client().await.batch_execute(&second).await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().constraint(), Some("process_fact_terminal_uq"));
    let denied = format!(
        "insert into towpath.process_fact (process_id, fact_no, fact, actor, recorded_at, detail)
         values ('{process}', 99, 'started', 'x', now(), '{{\"Body\": 1}}')"
    );
    assert!(place.db.client().await.batch_execute(&denied).await.is_err(), "facts carry references, too");
}

/// A kind is checked when it is made, and names only what may be called.
#[tokio::test]
async fn a_bad_kind_is_refused() {
    let place = Processes::with_kind(&simple()).await;
    place.execute("create function public.plain(payload jsonb) returns jsonb language sql as $$ select '{}'::jsonb $$")
        .await;
    for (settings, word) in [
        (json!({ "supervisor": "towpath.absent", "task_kind": "t" }), "invalid"),
        (json!({ "supervisor": "public.plain", "task_kind": "t" }), "invalid"),
        (json!({ "supervisor": "drop table x", "task_kind": "t" }), "invalid"),
        (json!({ "recorder": "public.plain", "task_kind": "t" }), "invalid"),
        (json!({ "supervisor": "towpath.process_supervisor" }), "invalid"),
        (json!({ "task_kind": "t", "max_attempts": 0 }), "invalid"),
        (json!({ "task_kind": "t", "max_attempts": "many" }), "invalid"),
        (json!({ "task_kind": "t", "ref_field": "attempt_no" }), "invalid"),
        (json!({ "task_kind": "t", "on_uncertain": "shrug" }), "invalid"),
        (json!({ "task_kind": "t", "max_atempts": 3 }), "unknown_key"),
        (json!([]), "invalid"),
    ] {
        let answer = place.json(&format!("towpath.fn_process_kind_put('test.bad', '{settings}')")).await;
        assert_eq!(answer["error"], word, "{settings}: {answer}");
    }
    place.start("test.call", "a").await;
    let answer = place.json("towpath.fn_process_kind_put('test.call', '{\"supervisor\": null}')").await;
    assert_eq!(answer["error"], "conflict", "an open process keeps its supervisor: {answer}");
    let answer = place.json("towpath.fn_process_kind_put('test.call', '{\"max_attempts\": 9}')").await;
    assert_eq!(answer["created"], false);
    let kinds = place.json("towpath.fn_process_kind_list()").await;
    let kind =
        kinds["process_kinds"].as_array().unwrap().iter().find(|k| k["process_kind"] == "test.call").unwrap();
    assert_eq!(
        (&kind["max_attempts"], &kind["supervisor"]),
        (&json!(9), &json!("towpath.process_supervisor"))
    );
}

/// Lists are narrowed by what they are asked, and go on where they stopped.
#[tokio::test]
async fn processes_are_listed_page_by_page() {
    let place = Processes::with_kind(&simple()).await;
    for n in 0..5 {
        let process = place.start("test.call", &format!("n{n}")).await;
        if n < 2 {
            place.json(&format!("towpath.fn_process_cancel('{process}', 'ann')")).await;
        }
        place.advance(SECOND).await;
    }
    let refs = |answer: &Value| -> Vec<String> {
        answer["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["ref"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = async |arguments: &str| place.json(&format!("towpath.fn_process_list({arguments})")).await;
    let first = list("'{}', 3").await;
    assert_eq!(refs(&first), ["n4", "n3", "n2"]);
    let rest = list(&format!("'{{}}', 3, '{}'", first["cursor"].as_str().unwrap())).await;
    assert_eq!((refs(&rest), &rest["cursor"]), (vec!["n1".into(), "n0".into()], &Value::Null));
    assert_eq!(refs(&list(r#"'{"state": "open"}'"#).await), ["n4", "n3", "n2"]);
    assert_eq!(refs(&list(r#"'{"state": "cancelled", "process_kind": "test.call"}'"#).await), ["n1", "n0"]);
    assert_eq!(refs(&list(r#"'{"ref": "n3"}'"#).await), ["n3"]);
    assert_eq!(list(r#"'{"state": "x"}'"#).await["error"], "invalid");
    assert_eq!(list(r#"'{"status": "open"}'"#).await["error"], "unknown_key");
    assert_eq!(place.json("towpath.fn_process_show(gen_random_uuid())").await["error"], "not_found");
    let health = place
        .json("select to_jsonb(h) from towpath.v_process_health h where process_kind = 'test.call'")
        .await;
    assert_eq!((&health["open"], &health["overdue"]), (&json!(3), &json!(0)), "{health}");
    place.advance(LEASE + PICKUP).await;
    let health = place
        .json("select to_jsonb(h) from towpath.v_process_health h where process_kind = 'test.call'")
        .await;
    assert_eq!(health["overdue"], 3, "nobody scans: {health}");
}
