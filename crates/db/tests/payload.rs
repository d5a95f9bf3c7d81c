//! The payload store: data by reference, its rights, its end, and the cipher of projects (Q25).

use std::time::Duration;

use serde_json::json;
use towpath_db::job::NewJob;
use towpath_db::payload::NewPayload;
use towpath_db::{Database, Error};
use towpath_model::payload::MasterKeys;
use towpath_testkit::TestDb;
use towpath_testkit::queue::Queue;

const DAY: Duration = Duration::from_secs(86_400);
/// 32 bytes each, in base64.
const MASTER: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_MASTER: &str = "/////////////////////////////////////////+8=";

/// The database with a master key, as a server has it.
async fn keyed(db: &TestDb, master: &str) -> Database {
    db.database().await.with_master_keys(MasterKeys::parse(master).unwrap())
}

fn text<'a>(data: &'a str, project: &'a str) -> NewPayload<'a> {
    NewPayload { data: data.as_bytes(), content_type: "text/plain", project }
}

/// The SQLSTATE and the words with which a statement of a login is refused.
async fn refused(client: &tokio_postgres::Client, sql: &str) -> (String, String) {
    let error = client.query(sql, &[]).await.expect_err(sql);
    let error = error.as_db_error().unwrap();
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Q25, Q19: what is stored in a transaction is there after its commit, and nothing is after a rollback.
#[tokio::test]
async fn stored_data_follows_the_callers_transaction() {
    let db = TestDb::open().await;
    let producer = db.client_as("towpath_producer").await;
    let put = r#"select towpath.payload_put('{"role": "user", "content": "hello"}')"#;
    producer.batch_execute(&format!("begin; {put}; rollback")).await.unwrap();
    assert_eq!(db.text("select count(*) from towpath.payload").await, "0");
    let stored: String = producer.query_one(put, &[]).await.unwrap().get(0);
    let got: serde_json::Value =
        producer.query_one("select towpath.payload_get($1)", &[&stored]).await.unwrap().get(0);
    assert_eq!(got, json!({"role": "user", "content": "hello"}));
    let job = NewJob::new("mail").payload_ref(&stored);
    let (producer, login) = db.database_as("towpath_producer").await;
    db.execute(&format!("select towpath.fn_producer_grant_put('{login}', p_any_kind => true)")).await;
    producer.enqueue(&job).await.expect("a job names it instead of carrying it");
}

/// Q25: a reference gives no access by itself: the login that stored the data reads it, an administrator (audited), and
/// the worker that holds a job which names it, for as long as it holds it.
#[tokio::test]
async fn only_its_owner_an_administrator_and_the_jobs_worker_read_it() {
    let queue = Queue::open().await;
    let stored = queue.producer.payload_put(text("hello", "default")).await.unwrap();
    assert_eq!(queue.producer.payload_get(stored, "me").await.unwrap().data, b"hello");

    let stranger = queue.db.client_as("towpath_producer").await;
    let (code, words) = refused(&stranger, &format!("select towpath.payload_get('{stored}')")).await;
    assert!(code == "TP005" && words.contains("is not allowed to read"), "{code} {words}");
    for role in ["worker_service_user", "towpath_observer"] {
        let client = queue.db.client_as(role).await;
        for call in [
            format!("payload_get('{stored}')"),
            format!("fn_payload_get('{stored}')"),
            "payload_put('{}')".into(),
        ] {
            assert_eq!(
                refused(&client, &format!("select towpath.{call}")).await.0,
                "42501",
                "{role}: {call}"
            );
        }
    }
    let admin = queue.db.database().await;
    assert_eq!(admin.payload_get(stored, "ann").await.unwrap().data, b"hello");
    let audited = admin.audit_list(10, None).await.unwrap();
    assert_eq!((audited[0].actor.as_str(), audited[0].action.as_str()), ("ann", "payload get"));
    assert_eq!(audited[0].target, stored.to_string());

    queue.enqueue_job(&NewJob::new("mail").payload_ref(stored.to_string())).await;
    let lease = queue.claim().await;
    let held = (lease.job_id(), lease.attempt());
    let owner = lease.owner().clone();
    assert_eq!(queue.worker.job_payload(&owner, held).await.unwrap().data, b"hello");
    let thief = towpath_db::job::LeaseOwner::new("thief");
    assert!(matches!(queue.worker.job_payload(&thief, held).await, Err(Error::LeaseLost(_))));
    lease.ack(&queue.worker).await.unwrap();
    assert!(matches!(queue.worker.job_payload(&owner, held).await, Err(Error::LeaseLost(_))));

    queue.enqueue_job(&NewJob::new("mail").payload_ref("s3://bucket/key")).await;
    let lease = queue.claim().await;
    let other = queue.worker.job_payload(&owner, (lease.job_id(), lease.attempt())).await.unwrap_err();
    assert!(matches!(&other, Error::NotFound(words) if words.contains("s3://bucket/key")), "{other}");
}

/// Q25: the login that stored a payload and an administrator delete it, audited; a job that still names it is told why it gets
/// nothing.
#[tokio::test]
async fn a_payload_is_deleted_by_itself() {
    let queue = Queue::open().await;
    let stored = queue.producer.payload_put(text("hello", "default")).await.unwrap();
    let kept = queue.producer.payload_put(text("stays", "default")).await.unwrap();
    queue.enqueue_job(&NewJob::new("mail").payload_ref(stored.to_string())).await;
    let stranger = queue.db.database_as("towpath_consumer").await.0;
    assert!(stranger.payload_delete(stored, "me").await.is_err(), "a consumer was not granted it");
    let call = format!("select towpath.fn_payload_delete('{stored}') ->> 'error'");
    let other: Option<String> =
        queue.db.client_as("towpath_producer").await.query_one(&call, &[]).await.unwrap().get(0);
    assert_eq!(other.as_deref(), Some("not_authorised"), "somebody else's");

    queue.producer.payload_delete(stored, "me").await.unwrap();
    let admin = queue.db.database().await;
    let audited = admin.audit_list(10, None).await.unwrap();
    assert_eq!((audited[0].actor.as_str(), audited[0].action.as_str()), ("me", "payload delete"));
    assert_eq!(audited[0].target, stored.to_string());
    let lease = queue.claim().await;
    let gone = queue.worker.job_payload(lease.owner(), (lease.job_id(), lease.attempt())).await.unwrap_err();
    assert!(matches!(&gone, Error::NotFound(words) if words.contains("it was deleted")), "{gone}");
    assert!(matches!(queue.producer.payload_delete(stored, "me").await, Err(Error::NotFound(_))));

    assert_eq!(queue.producer.payload_get(kept, "me").await.unwrap().data, b"stays");
    admin.payload_delete(kept, "ann").await.expect("an administrator deletes anybody's");
    assert_eq!(queue.db.text("select count(*) from towpath.payload").await, "0");
}

/// Q25, E08: an event names a stored payload, a route hands the reference on, and the worker of the route's job reads it.
#[tokio::test]
async fn a_routed_job_reads_the_payload_that_its_event_names() {
    let queue = Queue::open().await;
    let stored = queue.producer.payload_put(text("hello", "default")).await.unwrap();
    queue
        .db
        .execute(&format!(
            "select towpath.fn_route_put('r', 'job', '{{\"job_kind\": \"mail\", \"from_payload\": {{\"payload_ref\": \"data\"}}}}', 'd');
             select towpath.fn_route_mode_set('r', 'live', 'tester', 'a test');
             select towpath.emit('d', 't', '{{\"data\": \"{stored}\"}}');
             select towpath.fn_event_sequence();
             select towpath.fn_route_worker_run('default')"
        ))
        .await;
    let lease = queue.claim().await;
    let held = (lease.job_id(), lease.attempt());
    assert_eq!(queue.worker.job_payload(lease.owner(), held).await.unwrap().data, b"hello");
    let shown = queue.db.text("select payload_ref from towpath.job_queue").await;
    assert_eq!(shown, stored.to_string());
    assert_eq!(queue.db.text("select decision from towpath.v_route_attempt").await, "sent");
}

/// Q25: sixteen MiB fit, one byte more is refused in words, and so are a bad project and a bad type.
#[tokio::test]
async fn sizes_and_names_are_bounded() {
    let db = TestDb::open().await;
    let admin = db.client().await;
    let bytes = |n: usize| format!("convert_to(repeat('x', {n}), 'UTF8')");
    let put = |data: &str, more: &str| format!("select towpath.payload_put_bytes({data}{more})");
    admin.query(&put(&bytes(16 << 20), ""), &[]).await.unwrap();
    for (sql, words) in [
        (put(&bytes((16 << 20) + 1), ""), "16777217 bytes exceed the limit of 16777216"),
        (put("null", ""), "must not be null"),
        (put("''", ", project => 'a b'"), "must be 1 to 64 letters"),
        (put("''", ", project => null"), "must be 1 to 64 letters"),
        (put("''", ", content_type => E'a\\nb'"), "printable"),
    ] {
        let (code, message) = refused(&admin, &sql).await;
        assert!(code == "TP002" && message.contains(words), "{sql}: {code} {message}");
    }
    let (code, _) = refused(&admin, "select towpath.payload_get('payload:no')").await;
    assert_eq!(code, "TP006");
    let database = keyed(&db, MASTER).await;
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let data = vec![7; (16 << 20) + 1];
    let sealed = |bytes| NewPayload { data: &data[..bytes], content_type: "text/plain", project: "acme" };
    database.payload_put(sealed(16 << 20)).await.unwrap();
    let larger = database.payload_put(sealed((16 << 20) + 1)).await.unwrap_err();
    assert!(larger.to_string().contains("16777217 bytes"), "{larger}");
}

/// Q25: a project with a key stores nothing unencrypted, refuses SQL that would, and each key still opens what it
/// sealed after the next one was made.
#[tokio::test]
async fn a_project_with_a_key_stores_nothing_unencrypted() {
    let db = TestDb::open().await;
    let plain = db.database().await;
    let before = plain.payload_put(text("before", "acme")).await.unwrap();
    let without = plain.payload_key_rotate("acme", "ann").await.unwrap_err();
    assert!(without.to_string().contains("payload_master_key_file"), "{without}");

    let database = keyed(&db, MASTER).await;
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let first = database.payload_put(text("first secret words", "acme")).await.unwrap();
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let second = database.payload_put(text("second secret words", "acme")).await.unwrap();
    for (stored, words) in
        [(before, "before"), (first, "first secret words"), (second, "second secret words")]
    {
        assert_eq!(database.payload_get(stored, "ann").await.unwrap().data, words.as_bytes());
    }
    let clear = "select count(*) from towpath.payload where position('secret words'::bytea in data) > 0";
    assert_eq!(db.text(clear).await, "0");
    let admin = db.client().await;
    for call in ["payload_put('{}', 'acme')".to_owned(), format!("payload_get('{first}')")] {
        let (code, words) = refused(&admin, &format!("select towpath.{call}")).await;
        assert!(code == "TP007" && words.contains("towpath payload"), "{call}: {code} {words}");
    }
    let keyless = plain.payload_get(first, "ann").await.unwrap_err();
    assert!(keyless.to_string().contains("payload_master_key_file"), "{keyless}");
    let keys = plain.payload_key_list().await.unwrap();
    assert_eq!(keys.iter().filter(|key| key.project == "acme" && key.erased_at.is_none()).count(), 2);
}

/// Q25: the wrong master key decrypts nothing, and any change of a row is detected.
#[tokio::test]
async fn a_wrong_key_and_a_changed_row_are_found_out() {
    let db = TestDb::open().await;
    let database = keyed(&db, MASTER).await;
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let stored = database.payload_put(text("one", "acme")).await.unwrap();
    let another = database.payload_put(text("two", "acme")).await.unwrap();
    let wrong = keyed(&db, OTHER_MASTER).await.payload_get(stored, "ann").await.unwrap_err();
    assert!(wrong.to_string().contains("no master key"), "{wrong}");
    let rotated = keyed(&db, &format!("{OTHER_MASTER}\n{MASTER}")).await;
    assert_eq!(
        rotated.payload_get(stored, "ann").await.unwrap().data,
        b"one",
        "an old master key still unwraps"
    );

    let id = |stored: &str| stored.trim_start_matches("payload:").to_owned();
    let (one, two) = (id(&stored.to_string()), id(&another.to_string()));
    for change in [
        "data = set_byte(data, 20, get_byte(data, 20) # 1)".to_owned(),
        "content_type = 'text/html'".to_owned(),
        format!("data = (select data from towpath.payload where payload_id = '{two}')"),
    ] {
        db.execute(&format!("create table kept as select * from towpath.payload where payload_id = '{one}'"))
            .await;
        db.execute(&format!("update towpath.payload set {change} where payload_id = '{one}'")).await;
        let changed = database.payload_get(stored, "ann").await.unwrap_err();
        assert!(changed.to_string().contains("its row was changed"), "{change}: {changed}");
        db.execute(&format!(
            "delete from towpath.payload where payload_id = '{one}';
             insert into towpath.payload select * from kept; drop table kept"
        ))
        .await;
    }
    assert_eq!(database.payload_get(stored, "ann").await.unwrap().data, b"one");
}

/// Q25: erasing the keys of a project makes all it stored unreadable at once, leaves no byte of them in the table's
/// file, and stores nothing unencrypted afterwards. Other projects notice nothing.
#[tokio::test]
async fn erasing_a_key_erases_everything_under_it() {
    let db = TestDb::open().await;
    let database = keyed(&db, MASTER).await;
    for project in ["acme", "other"] {
        database.payload_key_rotate(project, "ann").await.unwrap();
    }
    let gone = database.payload_put(text("gone", "acme")).await.unwrap();
    let kept = database.payload_put(text("kept", "other")).await.unwrap();
    let file = "pg_read_binary_file(pg_relation_filepath('towpath.payload_key'))";
    let wrapped = db.text("select wrapped from towpath.payload_key where project = 'acme'").await;
    let in_file = |wrapped: &str| format!("select position('{wrapped}'::bytea in {file}) > 0");
    db.execute("checkpoint").await;
    assert_eq!(db.text(&in_file(&wrapped)).await, "true", "the check can see a key");

    assert_eq!(database.payload_key_erase("acme", "ann").await.unwrap(), 1);
    db.execute("checkpoint").await;
    assert_eq!(db.text(&in_file(&wrapped)).await, "false");
    let unreadable = database.payload_get(gone, "ann").await.unwrap_err();
    assert!(unreadable.to_string().contains("was erased"), "{unreadable}");
    assert_eq!(database.payload_get(kept, "ann").await.unwrap().data, b"kept");
    for refused in [
        database.payload_put(text("new", "acme")).await.unwrap_err(),
        db.database().await.payload_put(text("new", "acme")).await.unwrap_err(),
    ] {
        assert!(refused.to_string().contains("towpath payload key rotate acme"), "{refused}");
    }
    assert!(matches!(database.payload_key_erase("acme", "ann").await, Err(Error::NotFound(_))));
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let again = database.payload_put(text("again", "acme")).await.unwrap();
    assert_eq!(database.payload_get(again, "ann").await.unwrap().data, b"again");
    let actions: Vec<_> =
        database.audit_list(10, None).await.unwrap().into_iter().map(|row| row.action).collect();
    assert_eq!(actions.iter().filter(|action| *action == "payload key erase").count(), 1, "{actions:?}");
}

/// Q25: an erasure waits for a payload that is being stored, and gets it too.
#[tokio::test]
async fn an_erasure_gets_what_is_being_stored() {
    let db = TestDb::open().await;
    let database = keyed(&db, MASTER).await;
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let (writer, eraser) = (db.rival().await, db.rival().await);
    let data = "decode(repeat('00', 40), 'hex')";
    writer
        .run(&format!(
            "begin; select towpath.fn_payload_put({data}, 'text/plain', 'acme',
                 p_key_id => (select max(key_id) from towpath.payload_key))"
        ))
        .await;
    let erasing = eraser.send("select towpath.fn_payload_key_erase('acme')");
    db.until_blocked(&erasing).await;
    writer.run("commit").await;
    erasing.value().await.unwrap();
    assert_eq!(db.text("select count(*) from towpath.payload where project = 'acme'").await, "1");
    assert_eq!(db.text("select count(*) from towpath.payload_key where wrapped is not null").await, "0");
}

/// Q25: many at once store and read their own.
#[tokio::test(flavor = "multi_thread")]
async fn many_store_at_once() {
    let db = TestDb::open().await;
    let database = keyed(&db, MASTER).await;
    database.payload_key_rotate("acme", "ann").await.unwrap();
    let storing = (0..16).map(|n| {
        let database = database.clone();
        tokio::spawn(async move {
            let words = format!("payload {n}");
            let stored = database.payload_put(text(&words, "acme")).await.unwrap();
            assert_eq!(database.payload_get(stored, "ann").await.unwrap().data, words.as_bytes());
        })
    });
    for stored in storing.collect::<Vec<_>>() {
        stored.await.unwrap();
    }
    assert_eq!(db.text("select count(distinct payload_id) from towpath.payload").await, "16");
}

/// Q25: retention drops whole days, and keeps what an unfinished job, an open dead letter or a schedule names for as
/// long as it does.
#[tokio::test]
async fn retention_drops_days_and_keeps_what_is_named() {
    let queue = Queue::open().await;
    let tick = async || queue.db.json("towpath.fn_payload_retention_tick()").await;
    queue.db.json("towpath.fn_job_partition_tick()").await;
    queue.db.advance(DAY).await;
    let put = async |words: &str| queue.producer.payload_put(text(words, "default")).await.unwrap();
    let (old, live, dead, planned) =
        (put("old").await, put("live").await, put("dead").await, put("planned").await);
    let partitions = "select count(*) from pg_inherits where inhparent = 'towpath.payload'::regclass
                         and inhrelid in (select tableoid from towpath.payload)";
    assert_eq!(
        queue.db.text(partitions).await,
        "1",
        "all of a day in one partition, and none in the default"
    );
    assert_eq!(queue.db.text("select count(*) from towpath.payload_default").await, "0");
    queue.enqueue_job(&NewJob::new("mail").payload_ref(dead.to_string())).await;
    queue.claim().await.fail(&queue.worker, towpath_db::job::Failure::permanent("no")).await.unwrap();
    let job_id = queue.enqueue_job(&NewJob::new("mail").payload_ref(live.to_string())).await;
    let planned_job = json!({"job_kind": "mail", "payload_ref": planned.to_string()});
    let answer = queue
        .db
        .json(&format!("towpath.fn_schedule_put('n', '* * * * *', 'UTC', '{planned_job}', towpath.fn_now())"))
        .await;
    assert_eq!(answer["ok"], true, "{answer}");

    queue.db.advance(DAY * 29).await;
    assert_eq!(tick().await["dropped"], json!([]), "not before its time");
    queue.db.advance(DAY * 3).await;
    let dropped = tick().await;
    assert_eq!((dropped["dropped"].as_array().unwrap().len(), &dropped["kept"]), (1, &json!(3)), "{dropped}");
    assert!(matches!(queue.producer.payload_get(old, "me").await, Err(Error::NotFound(_))));
    for stored in [live, dead, planned] {
        queue.producer.payload_get(stored, "me").await.unwrap();
    }
    assert_eq!(tick().await["deleted"], 0, "still named");
    queue.db.json(&format!("towpath.fn_job_cancel('{job_id}', 'ann')")).await;
    queue.db.execute("update towpath.job_dead_letter set triage_status = 'closed', triaged_at = now(), triaged_by = 'ann'").await;
    queue.db.execute("delete from towpath.schedule").await;
    assert_eq!(tick().await["deleted"], 3);
    assert_eq!(queue.db.text("select count(*) from towpath.payload").await, "0");
}

/// Q22: a day that cannot be dropped is set aside, visibly; the next one goes, and it goes itself once it can.
#[tokio::test]
async fn a_day_that_cannot_go_holds_up_no_other() {
    let queue = Queue::open().await;
    let tick = async || queue.db.json("towpath.fn_payload_retention_tick()").await["dropped"].clone();
    queue.db.json("towpath.fn_job_partition_tick()").await;
    for _ in 0..2 {
        queue.db.advance(DAY).await;
        queue.producer.payload_put(text("old", "default")).await.unwrap();
    }
    let days = "select string_agg(distinct tableoid::regclass::text, ' ' order by tableoid::regclass::text)
                  from towpath.payload";
    let days = queue.db.text(days).await;
    let (first, second) = days.split_once(' ').expect("two days");
    queue.db.execute(&format!("create view public.of_somebody as select * from {first}")).await;
    queue.db.advance(DAY * 40).await;
    assert_eq!(tick().await, json!([]));
    let faults = queue.db.database().await.loop_fault_list(None, 10).await.unwrap();
    assert!(faults.len() == 1 && first.ends_with(&faults[0].item), "{faults:?}");
    assert_eq!(tick().await, json!([&second[second.len() - 8..]]));
    queue.db.execute("drop view public.of_somebody").await;
    queue.db.advance(Duration::from_secs(11)).await;
    assert_eq!(tick().await, json!([&first[first.len() - 8..]]));
    assert!(queue.db.database().await.loop_fault_list(None, 10).await.unwrap().is_empty());
}

/// Q24, Q25: a result of more than 64 KiB becomes a payload of its job, which who may read the job reads; a reference to a
/// payload of somebody else gives no access to it. A lost lease stores nothing.
#[tokio::test]
async fn a_large_result_is_a_payload_of_its_job() {
    let queue = Queue::open().await;
    let large = json!({"text": "x".repeat(70_000), "n": 7});
    let ack = async |result: serde_json::Value| {
        let job_id = queue.enqueue("mail").await;
        let raw = serde_json::value::to_raw_value(&result).unwrap();
        queue.claim().await.with_result(raw).ack(&queue.worker).await.map(|()| job_id)
    };
    let job_id = ack(large.clone()).await.unwrap();
    let status = queue.admin.job_status(job_id).await.unwrap();
    let payload = queue.admin.job_result_payload(job_id).await.unwrap();
    assert_eq!(status.result.unwrap(), json!({"payload_ref": payload.payload_ref.to_string()}));
    assert_eq!(
        (payload.json::<serde_json::Value>().unwrap(), payload.content_type.as_str()),
        (large.clone(), "application/json")
    );
    assert_eq!(payload.created_by, format!("job:{job_id}"));

    let stored = queue.producer.payload_put(text("of somebody else", "default")).await.unwrap();
    let thief = ack(json!({"payload_ref": stored.to_string()})).await.unwrap();
    let refused = queue.admin.job_result_payload(thief).await.unwrap_err();
    assert!(matches!(&refused, Error::NotAuthorised(words) if words.contains("did not store")), "{refused}");
    let small = ack(json!(7)).await.unwrap();
    assert!(matches!(queue.admin.job_result_payload(small).await, Err(Error::NotFound(_))));

    let lost = queue.enqueue("mail").await;
    let lease = queue.claim().await;
    let by = towpath_db::Attribution { actor: "tester", reason: "enough" };
    queue.admin.job_cancel(lost, by).await.unwrap();
    let raw = serde_json::value::to_raw_value(&large).unwrap();
    assert!(lease.with_result(raw).ack(&queue.worker).await.is_err());
    assert_eq!(
        queue.db.text("select count(*) from towpath.payload where created_by like 'job:%'").await,
        "1"
    );

    let admin = keyed(&queue.db, MASTER).await;
    admin.payload_key_rotate("default", "tester").await.unwrap();
    let refused = ack(large).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(words) if words.contains("stores encrypted ones only")),
        "{refused}"
    );
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    let refused = ack(serde_json::from_str(&deep).unwrap()).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(words) if words.contains("64 levels")), "{refused}");
}
