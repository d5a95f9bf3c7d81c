//! E-mail and SMS as processes: the example flow of the document, outcomes, and what is kept.

use serde_json::{Value, json};

use crate::process_kit::{DEADLINE, LEASE, Processes, SECOND};

/// P06, P12: failure, retry, success, terminal: the example flow, statement by statement.
#[tokio::test]
async fn the_example_flow() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    let job = place.job(&send.process, 1).await;
    assert_eq!(
        job,
        json!({
            "task_type": "email", "send_email_task_id": send.task, "process_id": send.process, "attempt_no": 1,
            "before_handler": "comms.get_email_payload", "success_handler": "comms.record_email_success",
            "error_handler": "comms.record_email_failure",
        }),
        "P01: the contract of an e-mail task"
    );
    let begun = place.begin(&send, 1, false).await;
    assert_eq!(begun["payload"]["to"], json!(["bob@example.org"]));
    assert_eq!(begun["payload"]["from"], "us@example.org", "the worker's own address");
    assert_eq!(begun["payload"]["text"], "how are you");
    let failed =
        place.fail(&send, 1, json!({ "outcome": "transient", "message": "451 later", "code": "451" })).await;
    assert_eq!(failed["success"], true, "{failed}");
    let supervisor = json!({ "task_type": "db_function", "db_function": "comms.send_email_supervisor",
                             "send_email_task_id": send.task });
    for _ in 0..3 {
        let run = place.run("comms.send_email_supervisor", &supervisor).await;
        assert_eq!(run["payload"]["did"], "wait", "an attempt is scheduled, so none is added: {run}");
    }
    assert_eq!(place.begin(&send, 2, false).await["success"], true);
    assert_eq!(place.succeed(&send, 2).await["payload"]["state"], "succeeded");
    let run = place.run("comms.send_email_supervisor", &supervisor).await;
    assert_eq!(run["payload"], json!({ "state": "succeeded", "did": "nothing" }));
    assert_eq!(
        place.facts(&send.process).await,
        ["started", "scheduled 1", "begun 1", "failed 1", "scheduled 2", "begun 2", "succeeded 2"]
    );
    let task = send.task;
    for (function, answer) in [
        ("has_send_email_task_succeeded", "true"),
        ("is_send_email_task_over", "true"),
        ("count_send_email_task_scheduled", "2"),
        ("count_send_email_task_failures", "1"),
        ("count_send_email_task_lost", "0"),
    ] {
        assert_eq!(place.text(&format!("comms.{function}({task})")).await, answer, "{function}");
    }
    let fact = place.json("select to_jsonb(f) from comms.send_email_task_failed f").await;
    assert_eq!(
        (&fact["outcome"], &fact["code"], &fact["message"]),
        (&json!("transient"), &json!("451"), &json!("451 later"))
    );
    assert_eq!(place.text("select provider_id from comms.send_email_task_succeeded").await, "id-1");
    assert_eq!(place.text("select state from comms._message_rows(null, 1000, 10)").await, "succeeded");
    place.check().await;
}

/// P06: an e-mail task enqueued by hand with the document's own payload runs the outstanding attempt.
#[tokio::test]
async fn the_single_id_of_the_document_is_enough() {
    let place = Processes::open().await;
    let send = place.send("sms").await;
    let payload = json!({ "task_type": "sms", "send_sms_task_id": send.task });
    let begun = place.run("comms.get_sms_payload", &payload).await;
    assert_eq!(begun["payload"]["attempt_no"], 1, "{begun}");
    let done = place
        .run("comms.record_sms_success", &json!({ "original_payload": payload, "worker_payload": {} }))
        .await;
    assert_eq!(done["payload"]["state"], "succeeded", "{done}");
    for function in ["get_sms_payload", "record_sms_success", "record_sms_failure", "send_sms_supervisor"] {
        let nobody = json!({ "send_sms_task_id": 77, "original_payload": { "send_sms_task_id": 77 } });
        let answer = place.run(&format!("comms.{function}"), &nobody).await;
        assert!(!answer["validation_failure_message"].as_str().unwrap().is_empty(), "{function}: {answer}");
    }
}

/// P09: a permanent error ends it at once; a transient one is retried with growing delays, but not
/// before the provider asked, and not more often than allowed.
#[tokio::test]
async fn each_reply_gets_its_outcome() {
    let place = Processes::open().await;
    let permanent = place.send("email").await;
    place.begin(&permanent, 1, false).await;
    let ended =
        place.fail(&permanent, 1, json!({ "outcome": "permanent", "message": "550 unknown user" })).await;
    assert_eq!(ended["payload"]["state"], "gave_up", "{ended}");
    assert_eq!(place.facts(&permanent.process).await[3..], ["failed 1", "gave_up 1"]);

    let transient = place.send("email").await;
    let due = |attempt: i32| {
        let sql = format!(
            "select extract(epoch from due_at - scheduled_at)::int from towpath.process_attempt
              where process_id = '{}' and attempt_no = {attempt}",
            transient.process
        );
        let place = &place;
        async move { place.text(&sql).await }
    };
    for (attempt, error, delay) in [
        (1, json!("connection refused"), "10"),
        (2, json!({ "outcome": "transient", "message": "429", "retry_after_seconds": 90 }), "90"),
        (3, json!({ "outcome": "transient", "message": "429", "retry_after_seconds": 1 }), "40"),
        (4, json!({ "outcome": "transient", "message": "421" }), "80"),
    ] {
        assert_eq!(place.begin(&transient, attempt, false).await["success"], true);
        assert_eq!(place.fail(&transient, attempt, error).await["success"], true);
        assert_eq!(due(attempt + 1).await, delay, "after attempt {attempt}");
    }
    place.begin(&transient, 5, false).await;
    let ended = place.fail(&transient, 5, json!("connection refused")).await;
    assert_eq!(ended["payload"]["state"], "gave_up", "five attempts are used: {ended}");
    assert_eq!(
        place.text("select max(reason) from comms.send_email_task_gave_up").await,
        "the last attempt failed permanently"
    );
    assert_eq!(
        place.text("select min(reason) from comms.send_email_task_gave_up").await,
        "all attempts are used: 5 of 5"
    );
    place.check().await;
}

/// P09: a retry that could only come after the deadline is not waited for.
#[tokio::test]
async fn a_retry_after_the_deadline_is_given_up_at_once() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.advance(DEADLINE - SECOND * 60).await;
    place.begin(&send, 1, false).await;
    let ended = place
        .fail(&send, 1, json!({ "outcome": "transient", "message": "x", "retry_after_seconds": 61 }))
        .await;
    assert_eq!(ended["payload"]["state"], "gave_up", "{ended}");
}

/// P08: nobody knows whether the SMS was sent: a person is asked, and their word decides.
#[tokio::test]
async fn an_uncertain_sms_goes_to_a_person() {
    let place = Processes::open().await;
    for (resolution, state) in [("succeeded", "succeeded"), ("gave_up", "gave_up"), ("retry", "open")] {
        let send = place.send("sms").await;
        place.begin(&send, 1, false).await;
        let held = place
            .fail(&send, 1, json!({ "outcome": "uncertain", "message": "timeout", "key_honoured": false }))
            .await;
        assert_eq!(held["payload"]["state"], "held", "{held}");
        assert_eq!(place.facts(&send.process).await[3..], ["uncertain 1", "held 1"]);
        let run = place.run("comms.send_sms_supervisor", &json!({ "send_sms_task_id": send.task })).await;
        assert_eq!(run["payload"]["did"], "nothing", "no blind retry: {run}");
        let why = place
            .text(&format!(
                "select why from towpath.v_process_attention where process_id = '{}'",
                send.process
            ))
            .await;
        assert!(why.contains("twice"), "{why}");
        let resolve = format!(
            "towpath.fn_process_resolve('{}', '{resolution}', 'ann', 'called the customer')",
            send.process
        );
        assert_eq!(place.json(&resolve).await["state"], state);
        assert_eq!(place.json(&resolve).await["error"], "conflict", "once");
        if resolution == "retry" {
            assert_eq!(place.facts(&send.process).await[5..], ["resolved 1", "scheduled 2"]);
            place.begin(&send, 2, false).await;
            let held = place.fail(&send, 2, json!({ "outcome": "uncertain", "message": "timeout" })).await;
            assert_eq!(held["payload"]["state"], "held", "the next uncertain one is asked about again");
        }
    }
    assert_eq!(
        place.text("select string_agg(outcome, ',') from comms.send_sms_task_failed").await,
        "uncertain,uncertain,uncertain,uncertain"
    );
    place.advance(DEADLINE).await;
    place.scan().await;
    assert_eq!(
        place.text("select count(*) from towpath.v_process_attention").await,
        "0",
        "the deadline ends it"
    );
    let word = place.text("select max(reason) from comms.send_sms_task_gave_up").await;
    assert!(word.contains("without a decision"), "{word}");
    place.check().await;
}

/// P08: a person's retry is granted even when the attempts are used up.
#[tokio::test]
async fn a_person_may_grant_one_more_attempt() {
    let place = Processes::open().await;
    place.kind("comms.send_sms", &json!({ "max_attempts": 1 })).await;
    let send = place.send("sms").await;
    place.begin(&send, 1, false).await;
    place.fail(&send, 1, json!({ "outcome": "uncertain", "message": "timeout" })).await;
    let resolve = format!("towpath.fn_process_resolve('{}', 'retry', 'ann')", send.process);
    assert_eq!(place.json(&resolve).await["state"], "open");
    assert_eq!(place.begin(&send, 2, false).await["success"], true);
    assert_eq!(place.succeed(&send, 2).await["payload"]["state"], "succeeded");
    place.check().await;
}

/// P08: a killed worker leaves an SMS as uncertain as a broken connection does; a provider that
/// honours the key makes both safe to repeat. E-mail is repeated under the same Message-ID.
#[tokio::test]
async fn lost_is_uncertain_unless_the_key_is_honoured() {
    let place = Processes::open().await;
    for (channel, key_honoured, state) in
        [("sms", false, "held"), ("sms", true, "open"), ("email", false, "open"), ("email", true, "open")]
    {
        let lost = place.send(channel).await;
        place.begin(&lost, 1, key_honoured).await;
        place.advance(LEASE).await;
        place.scan().await;
        assert_eq!(place.state(&lost.process).await, state, "lost {channel} {key_honoured}");
        let uncertain = place.send(channel).await;
        place.begin(&uncertain, 1, false).await;
        let error = json!({ "outcome": "uncertain", "message": "reset", "key_honoured": key_honoured });
        assert_eq!(
            place.fail(&uncertain, 1, error).await["payload"]["state"],
            state,
            "uncertain {channel} {key_honoured}"
        );
    }
    let never_begun = place.send("sms").await;
    place
        .execute("delete from towpath.job_live; delete from towpath.job_ready; delete from towpath.job")
        .await;
    place.advance(SECOND * 600).await;
    place.scan().await;
    assert_eq!(
        place.facts(&never_begun.process).await[2..],
        ["lost 1", "scheduled 2"],
        "it cannot have been sent"
    );
    place.check().await;
}

/// P06: what cannot be sent is invalid: a terminal fact, and no attempt to send it.
#[tokio::test]
async fn an_invalid_message_ends_as_invalid() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.execute("update comms.email_message set to_addresses = '{nonsense}'").await;
    let refused = place.begin(&send, 1, false).await;
    assert!(
        refused["validation_failure_message"]
            .as_str()
            .unwrap()
            .contains("\"nonsense\" is not an e-mail address"),
        "{refused}"
    );
    assert_eq!(place.facts(&send.process).await, ["started", "scheduled 1", "begun 1", "invalid 1"]);
    assert_eq!(place.text("select count(*) from comms.send_email_task_invalid").await, "1");
    place.check().await;
}

/// A before handler that fails itself is a failure of an attempt that nobody saw.
#[tokio::test]
async fn a_preparation_that_fails_is_retried() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    let error = json!({ "outcome": "transient", "code": "before_handler", "message": "deadlock" });
    assert_eq!(place.fail(&send, 1, error).await["payload"]["state"], "open");
    assert_eq!(place.facts(&send.process).await, ["started", "scheduled 1", "failed 1", "scheduled 2"]);
    place.check().await;
}

/// Messages that cannot be sent are refused when they are written, with the reason.
#[tokio::test]
async fn bad_messages_are_refused() {
    let place = Processes::open().await;
    let good = json!({ "to": ["a@b.example"], "subject": "s", "text": "t" });
    let with = |key: &str, value: Value| {
        let mut message = good.clone();
        message[key] = value;
        message
    };
    for message in [
        json!({ "subject": "s", "text": "t" }),
        with("to", json!([])),
        with("to", json!("nobody")),
        with("to", json!(["a@b.example", "a@b@c"])),
        with("to", json!("a@b.example\r\nbcc: all@b.example")),
        with("to", json!([null])),
        with("to", json!(vec!["a@b.example"; 51])),
        with("cc", json!("x")),
        with("bcc", json!("x y@z.example")),
        with("reply_to", json!("<>")),
        with("from", json!("Ann <ann>")),
        with("subject", json!("")),
        with("subject", json!("a\nX-Evil: 1")),
        with("subject", json!("x".repeat(999))),
        with("text", json!(null)),
        with("text", json!("x".repeat(1_048_577))),
        with("headers", json!([])),
        with("headers", json!({ "Bcc": "all@b.example" })),
        with("headers", json!({ "X-A": "1\r\nX-B: 2" })),
        with("headers", json!({ "X A": "1" })),
        with("headers", json!({ "X-A": 1 })),
        json!("hello"),
        json!(null),
    ] {
        for function in ["create_email_message", "send_email"] {
            let client = place.db.client().await;
            let sql = format!("select comms.{function}($1)");
            let answer: Value = client.query_one(&sql, &[&message]).await.unwrap().get(0);
            assert_eq!(answer["error"], "invalid", "{function} {message:.100}: {answer}");
        }
    }
    for message in [
        json!({ "to": "0151", "text": "t" }),
        json!({ "to": "+4915112345678", "text": "" }),
        json!({ "to": "+4915112345678", "text": "x".repeat(1_601) }),
        json!({ "text": "t" }),
        json!({ "to": "+4915112345678", "text": "t", "from": "a name that is too long" }),
    ] {
        let answer = place.json(&format!("comms.send_sms('{message}')")).await;
        assert_eq!(answer["error"], "invalid", "{message:.100}: {answer}");
    }
    let typo = place.json(r#"comms.send_email('{"to": "a@b.example", "subject": "s", "txt": "t"}')"#).await;
    assert_eq!((&typo["error"], &typo["key"]), (&json!("unknown_key"), &json!("txt")));
    assert_eq!(place.text("select count(*) from comms.message").await, "0", "nothing was written");
    for fine in [
        good.clone(),
        with("to", json!("Ann B. <ann@b.example>")),
        with("headers", json!({ "X-Campaign": "1" })),
    ] {
        assert_eq!(place.json(&format!("comms.create_email_message('{fine}')")).await["ok"], true, "{fine}");
    }
}

/// A producer that repeats itself with the same key sends once; without one, twice.
#[tokio::test]
async fn a_repeated_send_finds_the_first() {
    let place = Processes::open().await;
    let message = json!({ "to": "a@b.example", "subject": "s", "text": "t" });
    let send = async |key: &str| place.json(&format!("comms.send_email('{message}', {key})")).await;
    let (first, second) = (send("'order-7'").await, send("'order-7'").await);
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(
        (&first["process_id"], &first["send_email_task_id"]),
        (&second["process_id"], &second["send_email_task_id"])
    );
    assert_ne!(send("null").await["process_id"], send("null").await["process_id"]);
    let other =
        place.json("comms.send_sms('{\"to\": \"+4915112345678\", \"text\": \"t\"}', 'order-7')").await;
    assert_eq!(other["error"], "conflict", "{other}");
    assert_eq!(send("' '").await["error"], "invalid");
    assert_eq!(place.text("select count(*) from towpath.process").await, "3");
}

/// P06: kickoff by the document's name: root id and time; it waits for its time.
#[tokio::test]
async fn a_kickoff_waits_for_its_time() {
    let place = Processes::open().await;
    let message = json!({ "to": "a@b.example", "subject": "s", "text": "t" });
    let created = place.json(&format!("comms.create_email_message('{message}')")).await;
    let kickoff = format!("comms.kickoff_send_email_task({}, '2026-03-02T12:00:00Z')", created["message_id"]);
    let started = place.json(&kickoff).await;
    let process = started["process_id"].as_str().unwrap().to_owned();
    assert_eq!(place.facts(&process).await, ["started"]);
    place.advance(SECOND * 86_399).await;
    assert_eq!(place.scan().await["checked"], 0);
    place.advance(SECOND).await;
    place.scan().await;
    assert_eq!(place.facts(&process).await, ["started", "scheduled 1"], "the deadline counts from then");
    let absent = place.json("comms.kickoff_send_email_task(77)").await;
    assert_eq!(absent["error"], "not_found", "{absent}");
    let wrong = place.json(&format!("comms.kickoff_send_sms_task({})", created["message_id"])).await;
    assert_eq!(wrong["error"], "not_found", "an e-mail is no text message: {wrong}");
    place.execute("update towpath.config set value = 'false' where key = 'process.enabled'").await;
    assert_eq!(
        place.json(&format!("comms.kickoff_send_email_task({})", created["message_id"])).await["error"],
        "gate_closed"
    );
    assert_eq!(place.json(&format!("comms.send_email('{message}')")).await["error"], "gate_closed");
    assert_eq!(place.text("select count(*) from comms.send_email_task").await, "1", "nothing is left behind");
}

/// R09: a producer sends only on the channels it was granted.
#[tokio::test]
async fn a_producer_needs_a_grant_to_send() {
    let place = Processes::open().await;
    let producer = place.db.client_as("towpath_producer").await;
    let email = r#"select comms.send_email('{"to": "a@b.example", "subject": "s", "text": "t"}')"#;
    let sms = r#"select comms.send_sms('{"to": "+4915112345678", "text": "t"}')"#;
    let ask = async |sql: &str| producer.query_one(sql, &[]).await.unwrap().get::<_, Value>(0);
    assert_eq!(ask(email).await["error"], "not_authorised");
    place.execute("select towpath.fn_producer_grant_put('towpath_producer', 'email')").await;
    assert_eq!(ask(email).await["ok"], true);
    assert_eq!(ask(sms).await["error"], "not_authorised");
    assert_eq!(place.text("select count(*) from comms.message").await, "1");
}

/// Lists and observers never see what a message says.
#[tokio::test]
async fn lists_hold_no_text() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.send("sms").await;
    place.begin(&send, 1, false).await;
    place.succeed(&send, 1).await;
    let observer = place.db.client_as("towpath_observer").await;
    for call in ["comms.message_list()", "towpath.fn_process_list()", "towpath.fn_job_list()"] {
        let answer: Value = observer.query_one(&format!("select {call}"), &[]).await.unwrap().get(0);
        assert!(!answer.to_string().contains("how are you"), "{call}");
    }
    let show = format!("select towpath.fn_process_show('{}')", send.process);
    let shown: Value = observer.query_one(&show, &[]).await.unwrap().get(0);
    assert!(!shown.to_string().contains("how are you"));
    assert!(observer.batch_execute("select comms.message_show(1)").await.is_err());
    let shown = place.json("comms.message_show(1)").await;
    assert_eq!(
        (&shown["message"]["text_body"], &shown["tasks"][0]["provider_id"]),
        (&json!("how are you"), &json!("id-1"))
    );
    let sms = place.json("comms.message_list('{\"channel\": \"sms\"}')").await;
    assert_eq!(sms["messages"].as_array().unwrap().len(), 1);
    assert_eq!(sms["messages"][0]["state"], "open");
    assert_eq!(place.json("comms.message_show(77)").await["error"], "not_found");
}

/// P06: every fact table refuses change to every role, the owner and the superuser among them, and
/// success is at most once per task by its key.
#[tokio::test]
async fn the_facts_of_comms_are_append_only() {
    let place = Processes::open().await;
    let send = place.send("email").await;
    place.begin(&send, 1, false).await;
    place.succeed(&send, 1).await;
    let tables = place.text(
            "select string_agg(c.relname, ',' order by c.relname) from pg_class c
              where c.relnamespace = 'comms'::regnamespace and c.relkind = 'r' and c.relname ~ '^send_.*_task_'",
        )
        .await;
    let tables: Vec<&str> = tables.split(',').collect();
    assert_eq!(tables.len(), 16, "{tables:?}");
    for role in ["postgres", "towpath_owner"] {
        let client = place.db.client_as(role).await;
        for table in &tables {
            let channel = if table.contains("email") { "email" } else { "sms" };
            for sql in [
                format!("update comms.{table} set send_{channel}_task_id = 1"),
                format!("delete from comms.{table}"),
                format!("truncate comms.{table}"),
            ] {
                let error = client.batch_execute(&sql).await.unwrap_err();
                assert_eq!(error.code().unwrap().code(), "42501", "{role}: {sql}");
            }
        }
    }
    let again =
        format!("insert into comms.send_email_task_succeeded values ({}, 2, 'x', 'y', now())", send.task);
    let error = place.db.client().await.batch_execute(&again).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23505");
}
