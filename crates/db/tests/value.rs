//! Values that cannot hurt: what no door takes and no table holds, because a loop or a page would stumble on it.

use serde_json::{Value, json};
use towpath_testkit::TestDb;

/// The doors, each with a value that it must refuse and the field that it must name.
const REFUSED: &[(&str, &str)] = &[
    // A time that is none: the reaper would add to it, and pages could not read it.
    ("towpath.fn_job_enqueue('a', p_scheduled_at => '-infinity')", "scheduled_at"),
    ("towpath.fn_job_enqueue('a', p_scheduled_at => 'infinity')", "scheduled_at"),
    ("towpath.fn_job_enqueue('a', p_scheduled_at => '1969-12-31 23:59:59+00')", "scheduled_at"),
    ("towpath.fn_job_enqueue('a', p_scheduled_at => '3000-01-01 00:00:00+00')", "scheduled_at"),
    ("towpath.fn_process_start('comms.send_sms', 'x', p_check_at => 'infinity')", "check_at"),
    ("towpath.fn_process_start('comms.send_sms', 'x', p_deadline_at => 'infinity')", "deadline_at"),
    (
        "comms.send_email('{\"to\": \"a@b.c\", \"subject\": \"s\", \"text\": \"t\"}', 'key', 'infinity')",
        "scheduled_at",
    ),
    ("comms.send_sms('{\"to\": \"+4915112345678\", \"text\": \"t\"}', 'key', '-infinity')", "scheduled_at"),
    ("towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{\"job_kind\": \"a\"}', 'infinity')", "next_at"),
    ("towpath.fn_schedule_fire('s', '-infinity', '2026-01-01')", "tick_at"),
    ("towpath.fn_schedule_skip('s', '2026-01-01', 'infinity')", "next_at"),
    ("towpath.fn_schedule_resume('s', '-infinity')", "next_at"),
    (
        "towpath.fn_mot_graph_emit('{\"nodes\": [{\"node\": \"n\", \"job_kind\": \"a\", \"scheduled_at\": \"infinity\"}]}')",
        "scheduled_at",
    ),
    // A count that overflows when something is added to it.
    ("towpath.fn_job_enqueue('a', p_max_attempts => 2147483647)", "max_attempts"),
    ("towpath.fn_job_enqueue('a', p_max_attempts => 1001)", "max_attempts"),
    ("towpath.fn_job_enqueue('a', p_priority => 32768)", "priority"),
    ("towpath.fn_process_start('comms.send_sms', 'x', p_max_attempts => 1001)", "max_attempts"),
    (
        "towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{\"job_kind\": \"a\", \"max_attempts\": 1001}', '2026-01-01')",
        "max_attempts",
    ),
    ("towpath.fn_job_subscription_put('w', 'PG_worker', p_max_parallel => 2147483647)", "max_parallel"),
    // A name that draws on a terminal, or does not fit into an index.
    (r"towpath.fn_job_enqueue(E'a\nb')", "job_kind"),
    (r"towpath.fn_job_enqueue('a', p_actor => E'\x1b[2J')", "actor"),
    (r"towpath.fn_job_enqueue('a', p_source_ref => E'a\u009b31m')", "source_ref"),
    ("towpath.fn_job_enqueue('a', p_target_ref => repeat('x', 2001))", "target_ref"),
    ("towpath.fn_job_enqueue('a', p_idempotency_key => repeat('x', 2001))", "idempotency_key"),
    ("towpath.fn_job_enqueue('a', p_event_domain => repeat('x', 201))", "event_domain"),
    (r"towpath.fn_event_emit('orders', E'Orders\nPlaced')", "event_type"),
    // Names of events are words.
    ("towpath.fn_event_emit('orders', 'Orders Placed')", "event_type"),
    ("towpath.fn_event_emit('my orders', 'placed')", "event_domain"),
    ("towpath.fn_event_grant_put('p', 'orders', 'was placed')", "event_type"),
    ("towpath.fn_event_subscription_put('user:a', 'my orders')", "event_domain"),
    ("towpath.fn_job_enqueue('a', p_event_domain => 'my orders')", "event_domain"),
    (r"towpath.fn_event_emit('orders', 'placed', p_ordering_key => E'a\tb')", "ordering_key"),
    ("towpath.fn_event_emit('orders', 'placed', p_subject_ref => repeat('x', 2001))", "subject_ref"),
    (r"towpath.fn_consumer_put(E'w\u0007', 'PG_worker')", "executor_id"),
    (r"towpath.fn_producer_grant_put('p', E'a\rb')", "job_kind"),
    (r"towpath.fn_event_grant_put('p', E'a\rb')", "event_domain"),
    (r"towpath.fn_event_subscription_put('user:a', E'a\rb')", "event_domain"),
    (r"towpath.fn_event_subscription_put(E'user:a\u007f', 'a')", "recipient_ref"),
    (r"towpath.fn_queue_pause(E'a\nb', 'me')", "job_kind"),
    (r"towpath.fn_process_kind_put(E'a\nb', '{}')", "process_kind"),
    (r"towpath.fn_queue_heartbeat_tick(E'a\nb', 'PG_worker')", "executor_name"),
    ("towpath.fn_job_dead_letter_triage(gen_random_uuid(), 'closed', 'me', repeat('x', 8001))", "note"),
    // A payload that is no object.
    ("towpath.fn_job_enqueue('a', p_payload_json => '[1]')", "payload_json"),
    ("towpath.fn_job_enqueue('a', p_payload_json => 'null')", "payload_json"),
    (
        "towpath.fn_mot_graph_emit('{\"nodes\": [{\"node\": \"n\", \"job_kind\": \"a\", \"payload_json\": [1]}]}')",
        "payload_json",
    ),
    (
        "towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{\"job_kind\": \"a\", \"payload_json\": 1}', '2026-01-01')",
        "payload_json",
    ),
    ("towpath.fn_event_emit('orders', 'placed', p_payload => '\"text\"')", "payload"),
    ("towpath.fn_queue_heartbeat_tick('w', 'PG_worker', p_metadata => '[1]')", "metadata"),
    // Words for what cannot be read, and the field that it stood in.
    ("towpath.fn_job_fail_or_retry_many('w', '[{\"job_id\": \"nope\"}]')", "failures"),
    ("towpath.fn_job_fail_or_retry_many('w', '[1]')", "failures"),
    ("comms.send_email(null)", "message"),
    ("comms.send_sms(null)", "message"),
];

/// Q22: no door takes a value that would hurt; each says which field and why, and writes nothing.
#[tokio::test]
async fn every_door_refuses_what_would_hurt() {
    let db = TestDb::open().await;
    let written = "select (select count(*) from towpath.job) + (select count(*) from towpath.job_lane)
        + (select count(*) from towpath.schedule) + (select count(*) from towpath.event_outbox)
        + (select count(*) from towpath.process) + (select count(*) from comms.message)
        + (select count(*) from towpath.job_graph) + (select count(*) from towpath.queue_heartbeat)";
    for (call, field) in REFUSED {
        let answer = db.json(&format!("select {call}")).await;
        assert_eq!(
            (&answer["error"], &answer["field"]),
            (&json!("invalid"), &json!(field)),
            "{call}: {answer}"
        );
        assert_eq!(db.text(written).await, "0", "{call} wrote something");
    }
}

/// Q22, Q05: of a batch the bad rows are refused one by one, and the good ones go in.
#[tokio::test]
async fn bad_rows_of_a_batch_keep_no_good_one_out() {
    let db = TestDb::open().await;
    let bad = json!([
        {"job_kind": "a", "scheduled_at": "infinity"}, {"job_kind": "a", "max_attempts": 2_147_483_647},
        {"job_kind": "a", "max_attempts": 1e9}, {"job_kind": "a", "payload_json": [1]}, {"job_kind": "a\n"}, 5, null,
        {"job_kind": "a", "source_ref": "\u{1b}]0;x\u{7}"}, {"job_kind": "a", "priority": 1e300},
    ]);
    let rows = bad.as_array().unwrap().len();
    let mut jobs = bad.clone();
    jobs.as_array_mut().unwrap().push(json!({"job_kind": "good"}));
    let answer = db.json(&format!("select towpath.fn_job_enqueue_many('{jobs}')")).await;
    assert_eq!((&answer["enqueued"], &answer["refused"]), (&json!(1), &json!(rows)), "{answer}");
    for refusal in &answer["jobs"].as_array().unwrap()[..rows] {
        assert_eq!(refusal["error"], "invalid", "{answer}");
        assert!(refusal["detail"].is_string(), "{answer}");
    }
    let events = json!([
        {"event_domain": "a", "event_type": "b\u{7}"}, {"event_domain": "a", "event_type": "b", "payload": [1]}, 7,
        {"event_domain": "a", "event_type": "b"},
    ]);
    let answer = db.json(&format!("select towpath.fn_event_emit_many('{events}')")).await;
    assert_eq!((&answer["emitted"], &answer["refused"]), (&json!(1), &json!(3)), "{answer}");
}

/// Q22, E06: what a route takes from an event's payload and cannot use makes that event a dead letter, in words;
/// the other events go on.
#[tokio::test]
async fn a_bad_value_of_a_payload_is_a_route_dead_letter() {
    let db = TestDb::open().await;
    let target = json!({"job_kind": "a", "from_payload": {"scheduled_at": "when", "priority": "how", "target_ref": "who"}});
    for sql in [
        format!("select towpath.fn_route_put('r', 'job', '{target}', 'orders')"),
        "select towpath.fn_route_mode_set('r', 'live', 'me', 'test')".to_owned(),
    ] {
        assert_eq!(db.json(&sql).await["ok"], true);
    }
    let emit = |payload: Value| {
        format!("select towpath.fn_event_emit('orders', 'placed', p_payload => '{payload}')")
    };
    let bad = [
        (json!({"when": "infinity"}), "scheduled_at must be a time from 1970 up to the year 3000"),
        (json!({"when": "soon"}), "invalid input syntax for type timestamp with time zone"),
        (json!({"how": 99_999}), "priority must be between 0 and 32767"),
        (json!({"who": "a\nb"}), "target_ref must not contain control characters"),
    ];
    for (payload, _) in &bad {
        assert_eq!(db.json(&emit(payload.clone())).await["ok"], true);
    }
    assert_eq!(db.json(&emit(json!({"when": "2030-01-01T00:00:00Z"}))).await["ok"], true);
    db.json("select towpath.fn_event_sequence()").await;
    let answer = db.json("select towpath.fn_route_worker_run('default')").await;
    assert_eq!(
        answer["decisions"],
        json!({"sent": 1, "failed": 4, "dry_run": 0, "disabled": 0, "skipped": 0}),
        "{answer}"
    );
    let errors =
        db.text("select string_agg(error, '; ' order by position) from towpath.route_dead_letter").await;
    for (error, (payload, words)) in errors.split("; ").zip(&bad) {
        assert!(error.contains(words), "{payload}: {error}");
    }
    assert_eq!(db.text("select count(*) from towpath.job where isfinite(scheduled_at)").await, "1");
}

/// P06: a send that is refused uses nothing up: the same key sends afterwards, once.
#[tokio::test]
async fn a_refused_send_burns_no_key() {
    let db = TestDb::open().await;
    let send = |at: &str| {
        format!(
            "select comms.send_email('{{\"to\": \"a@b.c\", \"subject\": \"s\", \"text\": \"t\"}}', 'key', {at})"
        )
    };
    for at in ["'infinity'", "'-infinity'", "'3000-01-01'"] {
        assert_eq!(db.json(&send(at)).await["field"], "scheduled_at");
    }
    let sent = db.json(&send("null")).await;
    assert_eq!((&sent["ok"], &sent["duplicate"]), (&json!(true), &json!(false)), "{sent}");
    let again = db.json(&send("null")).await;
    assert_eq!((&again["duplicate"], &again["process_id"]), (&json!(true), &sent["process_id"]), "{again}");
}

/// Q22: the tables refuse too, whatever writes them.
#[tokio::test]
async fn the_tables_hold_no_value_that_hurts() {
    let db = TestDb::open().await;
    for sql in [
        "select towpath.fn_job_enqueue('a', p_idempotency_key => 'a')",
        "select towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{\"job_kind\": \"a\"}', '2026-01-01')",
        "select towpath.fn_event_emit('orders', 'placed')",
        "select comms.send_email('{\"to\": \"a@b.c\", \"subject\": \"s\", \"text\": \"t\"}')",
    ] {
        assert_eq!(db.json(sql).await["ok"], true, "{sql}");
    }
    let owner = db.client_as("towpath_owner").await;
    for (sql, claim) in [
        (
            "insert into towpath.job select (jsonb_populate_record(j, '{\"scheduled_at\": \"infinity\"}')).* from towpath.job j",
            "moment_from_1970_to_3000_check",
        ),
        ("update towpath.job_live set due_at = '-infinity'", "moment_from_1970_to_3000_check"),
        ("update towpath.job_live set max_attempts = 2147483647", "attempt_limit_from_1_to_1000_check"),
        (
            "insert into towpath.job select (jsonb_populate_record(j, '{\"payload_json\": [1]}')).* from towpath.job j",
            "signal_small_object_check",
        ),
        ("update towpath.schedule set next_at = 'infinity'", "moment_from_1970_to_3000_check"),
        ("update towpath.schedule set job_kind = E'a\\nb'", "label_not_blank_short_and_plain_check"),
        ("update towpath.process set deadline_at = 'infinity'", "moment_from_1970_to_3000_check"),
        ("update towpath.process set ref = E'\\x1b[0m'", "ref_label_short_and_plain_check"),
        ("update comms.send_email_task set scheduled_at = 'infinity'", "moment_from_1970_to_3000_check"),
        (
            "insert into towpath.event_outbox (event_id, event_domain, event_type, actor) values (gen_random_uuid(), 'a', E'b\\n', 'c')",
            "label_not_blank_short_and_plain_check",
        ),
    ] {
        let error = owner.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(
            (error.code().code(), error.constraint()),
            ("23514", Some(claim)),
            "{sql}: {}",
            error.message()
        );
    }
}
