//! The doors that raise: `sql/functions/door.sql`.

use serde_json::{Value, json};
use tokio_postgres::Client;
use towpath_db::{Error, door};
use towpath_model::refusal::Refusal;
use towpath_testkit::TestDb;
use towpath_testkit::queue::Queue;
use uuid::Uuid;

/// An application: a login that is a producer and nothing else, with one grant for jobs and one for
/// events, and a table of its own.
struct App {
    db: TestDb,
    login: String,
    client: Client,
}

impl App {
    async fn open() -> App {
        let db = TestDb::open().await;
        let (_, login) = db.database_as("towpath_producer").await;
        let kind = |name: &str, task: &str| {
            let settings = json!({"supervisor": "towpath.process_supervisor", "task_kind": task});
            format!("select towpath.fn_process_kind_put('{name}', '{settings}');")
        };
        db.execute(&format!(
            "select towpath.fn_producer_grant_put('{login}', 'resize', 'PG_worker');
             select towpath.fn_event_grant_put('{login}', 'orders', 'paid');
             {} {}
             create schema app authorization {login};
             create table app.sale (sale_id integer); alter table app.sale owner to {login}",
            kind("shop.invoice", "resize"),
            kind("shop.call", "call")
        ))
        .await;
        let client = db.client_as(&login).await;
        App { db, login, client }
    }

    async fn set_gate(&self, gate: &str, value: bool) {
        self.db.execute(&format!("update towpath.config set value = '{value}' where key = '{gate}'")).await;
    }

    async fn id(&self, call: &str) -> Uuid {
        let row = self.client.query_one(&format!("select {call}"), &[]).await;
        row.unwrap_or_else(|error| panic!("{call}: {error:?}")).get(0)
    }

    /// What a call at a door raises, after a write of the application's own in the same transaction;
    /// and that the transaction is lost with it.
    async fn refused(&self, call: &str) -> Refused {
        self.client.batch_execute("begin; insert into app.sale values (1)").await.unwrap();
        let error = self.client.query(&format!("select towpath.{call}"), &[]).await.expect_err(call);
        self.client.batch_execute("commit").await.unwrap();
        for table in ["app.sale", "towpath.job_queue", "towpath.event_outbox", "towpath.process"] {
            assert_eq!(self.db.text(&format!("select count(*) from {table}")).await, "0", "{call}: {table}");
        }
        let db = error.as_db_error().unwrap();
        let text = |field: Option<&str>| field.unwrap_or_default().to_owned();
        Refused {
            refusal: Refusal::from_sqlstate(db.code().code()),
            message: db.message().to_owned(),
            detail: text(db.detail()),
            hint: text(db.hint()),
        }
    }
}

#[derive(Debug)]
struct Refused {
    refusal: Option<Refusal>,
    message: String,
    detail: String,
    hint: String,
}

/// Q21: a closed gate raises at every door behind one, with the gate and the command that opens it.
#[tokio::test]
async fn a_closed_gate_raises() {
    let app = App::open().await;
    for (gate, call) in [
        ("queue.job_substrate.enabled", "enqueue('resize')"),
        ("queue.job_substrate.enabled", r#"enqueue_many('[{"kind": "resize"}]')"#),
        ("process.enabled", "start_process('shop.invoice', '7')"),
    ] {
        app.set_gate(gate, false).await;
        let refused = app.refused(call).await;
        app.set_gate(gate, true).await;
        assert_eq!(refused.refusal, Some(Refusal::GateClosed), "{call}: {refused:?}");
        assert_eq!(refused.detail, format!("gate: {gate}"), "{call}");
        assert!(refused.message.contains(gate), "{call}: {refused:?}");
        assert!(refused.hint.contains(&format!("towpath gate open {gate} --why")), "{call}: {refused:?}");
    }
}

/// Q21, R09: a missing grant raises at every door, with the command that gives it.
#[tokio::test]
async fn a_missing_grant_raises() {
    let app = App::open().await;
    let job = |kind: &str, executor: &str| {
        format!("towpath executor grant add {} --job-kind {kind} --executor {executor}", app.login)
    };
    let event = format!("towpath events grant add {} --domain orders --type lost", app.login);
    for (call, hint) in [
        ("enqueue('crop')", job("crop", "PG_worker")),
        ("enqueue('resize', executor => 'Agent')", job("resize", "Agent")),
        (r#"enqueue_many('[{"kind": "resize"}, {"kind": "crop"}]')"#, job("crop", "PG_worker")),
        ("start_process('shop.call', '7')", job("call", "PG_worker")),
        ("emit('orders', 'lost')", event.clone()),
        (r#"emit_many('[{"domain": "orders", "type": "lost"}]')"#, event),
        ("enqueue('a ''job''')", job(r"'a '\''job'\'''", "PG_worker")),
        ("emit('towpath', 'x')", "Choose another domain".into()),
    ] {
        let refused = app.refused(call).await;
        assert_eq!(refused.refusal, Some(Refusal::NotAuthorised), "{call}: {refused:?}");
        assert!(refused.message.contains(&app.login), "{call}: {refused:?}");
        assert!(refused.hint.contains(&hint), "{call}: {refused:?}");
    }
}

/// Q21, P06: a message that cannot be sent raises, and nothing of it is stored; one that can is sent once per key.
#[tokio::test]
async fn a_message_that_cannot_be_sent_raises() {
    let app = App::open().await;
    let email = r#"send_email('{"to": "ann@example.org", "subject": "s", "text": "t"}'"#;
    let sms = r#"send_sms('{"to": "+31612345678", "text": "t"}'"#;
    for (channel, call) in [("email", email), ("sms", sms)] {
        let refused = app.refused(&format!("{call})")).await;
        assert_eq!(refused.refusal, Some(Refusal::NotAuthorised), "{refused:?}");
        let grant =
            format!("towpath executor grant add {} --job-kind {channel} --executor PG_worker", app.login);
        assert!(refused.hint.contains(&grant), "{refused:?}");
        let sql = format!("select towpath.fn_producer_grant_put('{}', '{channel}', 'PG_worker')", app.login);
        app.db.execute(&sql).await;
        app.set_gate("process.enabled", false).await;
        let refused = app.refused(&format!("{call})")).await;
        assert_eq!(refused.refusal, Some(Refusal::GateClosed), "{refused:?}");
        app.set_gate("process.enabled", true).await;
        for (bad, refusal, words) in [
            (format!("{call}, run_at => 'infinity')"), Refusal::Invalid, "run_at"),
            (format!("{call}, key => ' ')"), Refusal::Invalid, "key"),
            (format!("send_{channel}('{{}}')"), Refusal::Invalid, "message: to"),
            (format!(r#"send_{channel}('{{"tto": "x"}}')"#), Refusal::UnknownKey, "tto"),
        ] {
            let refused = app.refused(&bad).await;
            assert_eq!(refused.refusal, Some(refusal), "{bad}: {refused:?}");
            assert!(format!("{} {}", refused.message, refused.detail).contains(words), "{bad}: {refused:?}");
        }
        assert_eq!(app.db.text("select count(*) from comms.message").await, "0", "nothing was stored");
    }
    let first = app.id(&format!("towpath.{email}, key => 'order-7')")).await;
    assert_eq!(app.id(&format!("towpath.{email}, key => 'order-7')")).await, first);
    let sql =
        "select count(*) || ' ' || min(process_kind) || ' ' || min(process_id::text) from towpath.process";
    assert_eq!(app.db.text(sql).await, format!("1 comms.send_email {first}"));
    let other = app.client.query(&format!("select towpath.{sms}, key => 'order-7')"), &[]).await.unwrap_err();
    assert_eq!(Refusal::from_sqlstate(other.code().unwrap().code()), Some(Refusal::Conflict));
}

/// Q21: a bad value raises at every door, with the field as the door calls it, in a batch with the index.
#[tokio::test]
async fn a_bad_value_raises() {
    let app = App::open().await;
    let paid = r#"{"domain": "orders", "type": "paid"}"#;
    let (nameless, misspelt) = (
        format!(r#"emit_many('[{paid}, {{"domain": "orders", "type": "paid", "actor": ""}}]')"#),
        r#"emit_many('[{"domain": "orders", "type": "paid", "event_stream": "x"}]')"#,
    );
    let (denied, unknown, absent) = (
        r#"enqueue_many('[{"kind": "resize"}, {"kind": "resize", "payload": {"token": 1}}]')"#,
        r#"enqueue_many('[{"kind": "resize", "executor": "PG_wroker"}]')"#,
        r#"enqueue_many('[{"kind": "resize"}, {"kind": "resize", "priorty": 1}]')"#,
    );
    for (call, detail, words) in [
        (r#"enqueue('resize', '{"a": [{"Password": 1}]}')"#, "field: payload", "Password"),
        ("enqueue('resize', executor => 'PG_wroker')", "field: executor", "PG_worker, external_worker"),
        ("enqueue('resize', '[1]')", "field: payload", "object"),
        (r#"enqueue_many('[{"kind": "resize", "payload": [1]}]')"#, "index: 0, field: payload", "object"),
        ("enqueue('resize', run_at => 'infinity')", "field: run_at", "1970"),
        ("enqueue('resize', priority => -1)", "field: priority", "priority"),
        ("enqueue('resize', max_attempts => 0)", "field: max_attempts", "max_attempts"),
        ("enqueue('resize', key => ' ')", "field: key", "blank"),
        ("enqueue('resize', actor => '')", "field: actor", "blank"),
        (denied, "index: 1, field: payload", "jobs[1]"),
        (unknown, "index: 0, field: executor", "jobs[0]"),
        (absent, "index: 1, name: priorty", "not a known field"),
        (r#"enqueue_many('[{"kind": "resize", "run_at": "soon"}]')"#, "index: 0", "soon"),
        (r#"enqueue_many('[{"kind": "resize"}, 7]')"#, "index: 1", "object"),
        ("enqueue_many('{}')", "field: jobs", "array"),
        ("emit('orders', 'paid', '[]')", "field: payload", "object"),
        (r#"emit('orders', 'paid', '{"body": 1}')"#, "field: payload", "body"),
        ("emit('orders', 'paid', stream => ' ')", "field: stream", "stream"),
        (nameless.as_str(), "index: 1, field: actor", "events[1]"),
        (misspelt, "index: 0, name: event_stream", "not a known field"),
        ("start_process('shop.invoice', ' ')", "field: ref", "blank"),
        ("start_process('shop.invoice', '7', max_attempts => 0)", "field: max_attempts", "max_attempts"),
    ] {
        let refused = app.refused(call).await;
        assert_eq!(refused.refusal, Some(Refusal::Invalid), "{call}: {refused:?}");
        assert_eq!(refused.detail, detail, "{call}");
        assert!(refused.message.contains(words), "{call}: {refused:?}");
        assert!(!refused.hint.is_empty(), "{call}: {refused:?}");
    }
    let refused = app.refused("start_process('shop.nope', '7')").await;
    assert_eq!(refused.refusal, Some(Refusal::NotFound), "{refused:?}");
    assert!(refused.hint.contains("towpath process new"), "{refused:?}");
}

/// Q21, Q19, E01: with one grant each, commit makes everything visible at once, rollback leaves nothing.
#[tokio::test]
async fn a_commit_makes_everything_visible_and_a_rollback_nothing() {
    let app = App::open().await;
    let calls = r#"begin;
        insert into app.sale values (1);
        select towpath.enqueue('resize', '{"image": 7}');
        select towpath.enqueue_many('[{"kind": "resize"}, {"kind": "resize"}]');
        select towpath.emit('orders', 'paid', '{"order": 7}');
        select towpath.emit_many('[{"domain": "orders", "type": "paid"}]');
        select towpath.start_process('shop.invoice', 'order:7');"#;
    let seen = "select (select count(*) from app.sale)
        || ' ' || (select count(*) from towpath.job_queue where job_kind = 'resize')
        || ' ' || (select count(*) from towpath.event_outbox) || ' ' || (select count(*) from towpath.process)";
    for (end, expected) in [("rollback", "0 0 0 0"), ("commit", "1 4 2 1")] {
        app.client.batch_execute(calls).await.unwrap();
        assert_eq!(app.db.text(seen).await, "0 0 0 0", "nothing before the {end}");
        app.client.batch_execute(end).await.unwrap();
        assert_eq!(app.db.text(seen).await, expected, "after the {end}");
    }
}

/// Q21: every option of a door arrives, and a batch takes the same names.
#[tokio::test]
async fn every_option_arrives_alone_and_in_a_batch() {
    let app = App::open().await;
    let run_id = Uuid::now_v7();
    let job = json!({"kind": "resize", "payload": {"n": 1}, "priority": 7, "run_at": "2030-01-02T03:04:05Z",
        "key": "k", "executor": "PG_worker", "max_attempts": 3, "domain": "orders", "source_ref": "s",
        "target_ref": "t", "payload_ref": "p", "actor": "alice", "run_id": run_id});
    let event = json!({"domain": "orders", "type": "paid", "payload": {"n": 1}, "stream": "st",
        "subject_table": "sale", "subject_ref": "7", "ordering_key": "o", "actor": "alice"});
    for many in [false, true] {
        let call = |door: &str, item: &Value| match many {
            true => format!("(towpath.{door}_many('{}'))[1]", json!([item])),
            false => format!("towpath.{door}({})", named(item)),
        };
        let id = app.id(&call("enqueue", &job)).await;
        let row = "select jsonb_build_object('kind', job_kind, 'payload', payload_json, 'priority', priority,
            'run_at', to_char(scheduled_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), 'key', idempotency_key,
            'executor', executor, 'max_attempts', max_attempts, 'domain', event_domain, 'source_ref', source_ref,
            'target_ref', target_ref, 'payload_ref', payload_ref, 'actor', actor, 'run_id', run_id)
            from towpath.job_queue";
        assert_eq!(app.db.json(&format!("{row} where job_id = '{id}'")).await, job, "in a batch: {many}");
        app.db.execute(&format!("select towpath.fn_job_cancel('{id}', 'tester')")).await;
        let id = app.id(&call("emit", &event)).await;
        let row = "select jsonb_build_object('domain', event_domain, 'type', event_type, 'payload', payload,
            'stream', event_stream, 'subject_table', subject_table, 'subject_ref', subject_ref,
            'ordering_key', ordering_key, 'actor', actor) from towpath.event_outbox";
        assert_eq!(app.db.json(&format!("{row} where event_id = '{id}'")).await, event, "in a batch: {many}");
    }
    let start = "towpath.start_process('shop.invoice', 'order:7', run_at => '2030-01-01Z',
        deadline_at => '2030-01-02Z', max_attempts => 2, actor => 'alice')";
    let id = app.id(start).await;
    let row =
        "select format('%s %s %s %s', date(next_check_at), date(deadline_at), max_attempts, started_by)";
    let row = app.db.text(&format!("{row} from towpath.process where process_id = '{id}'")).await;
    assert_eq!(row, "2030-01-01 2030-01-02 2 alice");
    assert_eq!(app.id(start).await, id, "one process per kind and ref");
}

/// The fields of an object as named arguments.
fn named(item: &Value) -> String {
    let argument = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} => '{text}'"),
        other => format!("{name} => '{other}'"),
    };
    item.as_object().unwrap().iter().map(argument).collect::<Vec<_>>().join(", ")
}

/// Q21, Q04: while a key is taken, by a job of whatever kind and payload, its holder is the answer.
#[tokio::test]
async fn a_taken_key_answers_the_job_that_has_it() {
    let app = App::open().await;
    app.db.execute(&format!("select towpath.fn_producer_grant_put('{}', 'crop')", app.login)).await;
    let first = app.id("towpath.enqueue('resize', key => 'k')").await;
    assert_eq!(app.id(r#"towpath.enqueue('crop', '{"other": 1}', key => 'k')"#).await, first);
    assert_eq!(app.id(r#"(towpath.enqueue_many('[{"kind": "crop", "key": "k"}]'))[1]"#).await, first);
    assert_eq!(app.db.text("select count(*) from towpath.job_queue").await, "1");
}

/// Q21: every code is read back as the variant a caller reacts to; none is a plain database error.
#[tokio::test]
async fn every_code_is_recognised() {
    let db = TestDb::new().await;
    let client = db.client().await;
    for &refusal in Refusal::ALL {
        let answer = json!({"ok": false, "error": refusal.word()});
        let raise = format!("do $$ begin perform towpath._raise_refusal('{answer}', 'a test'); end $$");
        let error = client.batch_execute(&raise).await.unwrap_err();
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(refusal.sqlstate()));
        let word = error.as_db_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned();
        assert_eq!(word, refusal.word(), "for drivers that do not show the SQLSTATE");
        let error = Error::from(error);
        assert!(!matches!(error, Error::Postgres(_)), "{refusal}: {error:?}");
    }
    let other = Error::from(client.batch_execute("select 1/0").await.unwrap_err());
    assert!(matches!(other, Error::Postgres(_)), "{other:?}");
}

/// Q21, Q08: an attempt ends with the transaction of its handler or not at all; one whose lease was lost takes the
/// transaction with it.
#[tokio::test]
async fn an_ack_is_part_of_the_transaction() {
    let queue = Queue::open().await;
    queue.db.execute("create table sale (n integer)").await;
    let mut client = queue.db.client().await;
    queue.enqueue("mail").await;
    let lease = queue.claim().await;
    let held = (lease.job_id(), lease.attempt());
    for (commits, state) in [(false, "leased"), (true, "succeeded")] {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("insert into sale values (1)").await.unwrap();
        door::ack(&transaction, lease.owner(), held, None).await.unwrap();
        match commits {
            false => transaction.rollback().await.unwrap(),
            true => transaction.commit().await.unwrap(),
        }
        assert_eq!(queue.state(lease.job_id()).await, state);
    }
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("insert into sale values (2)").await.unwrap();
    let lost = door::ack(&transaction, lease.owner(), held, None).await.unwrap_err();
    assert!(matches!(lost, door::Error::LeaseLost(_)), "{lost:?}");
    assert!(lost.hint().is_some_and(|hint| hint.contains("Stop")), "{lost:?}");
    transaction.commit().await.unwrap();
    assert_eq!(queue.db.text("select string_agg(n::text, ' ') from sale").await, "1");
}
