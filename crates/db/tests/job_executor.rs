//! Where a job goes that names no executor.

use serde_json::{Value, json};
use towpath_db::executor_token::TokenSpec;
use towpath_db::job::NewJob;
use towpath_testkit::TestDb;

/// A database in which `py` works on `resize` as external_worker, and `any` on every kind as Agent.
async fn place() -> TestDb {
    let db = TestDb::open().await;
    subscribe(&db, "'py', 'external_worker'", "'resize', p_enabled => true").await;
    subscribe(&db, "'any', 'Agent'", "p_enabled => true").await;
    db
}

/// Registers an executor of a kind, and subscribes it.
async fn subscribe(db: &TestDb, executor: &str, subscription: &str) {
    for call in [
        format!("fn_consumer_put({executor})"),
        format!("fn_job_subscription_put({executor}, {subscription})"),
    ] {
        let answer = db.json(&format!("towpath.{call}")).await;
        assert_eq!(answer["ok"], true, "{call}: {answer}");
    }
}

/// The executor of the newest job.
async fn newest(db: &TestDb) -> String {
    db.text("select executor from towpath.job_queue order by job_id desc limit 1").await
}

async fn enqueued(db: &TestDb, kind: &str) -> String {
    db.execute(&format!("select towpath.fn_job_enqueue('{kind}')")).await;
    newest(db).await
}

/// Q21, Q04: the enabled subscriptions to a kind decide, as far as they agree; else it shows as PG_worker's.
#[tokio::test]
async fn the_only_subscription_to_a_kind_takes_its_jobs() {
    let db = place().await;
    assert_eq!(enqueued(&db, "resize").await, "external_worker");
    assert_eq!(enqueued(&db, "crop").await, "PG_worker", "a subscription to every kind does not count");
    subscribe(&db, "'py2', 'external_worker'", "'resize', p_event_domain => 'd', p_enabled => true").await;
    assert_eq!(enqueued(&db, "resize").await, "external_worker", "a second of the same executor");
    subscribe(&db, "'dot', 'DOT'", "'resize'").await;
    assert_eq!(enqueued(&db, "resize").await, "external_worker", "one that is not enabled");
    subscribe(&db, "'dot', 'DOT'", "'resize', p_enabled => true").await;
    assert_eq!(enqueued(&db, "resize").await, "PG_worker", "two executors");
    let delete = async |executor: &str| {
        let of = format!("from towpath.job_subscription where executor_id = '{executor}'");
        db.execute(&format!("select towpath.fn_job_subscription_delete(subscription_id) {of}")).await;
    };
    delete("py").await;
    delete("py2").await;
    assert_eq!(enqueued(&db, "resize").await, "DOT", "one of them is gone");
    delete("dot").await;
    assert_eq!(enqueued(&db, "resize").await, "PG_worker", "nobody is left");
}

/// What an executor claims now.
async fn claimed(db: &TestDb, executor: &str) -> usize {
    let answer = db.json(&format!("towpath.fn_job_claim('{executor}', null, 10)")).await;
    answer["jobs"].as_array().map_or(0, Vec::len)
}

/// R06, R07: a job that comes before the first worker of its kind waits for the executor that is subscribed to the
/// kind by name later, of whatever executor kind; a job that names an executor waits for that one.
#[tokio::test]
async fn a_job_may_come_before_its_worker() {
    let db = place().await;
    subscribe(&db, "'work', 'PG_worker'", "'mail', p_max_parallel => null, p_enabled => true").await;
    db.execute(
        r#"select towpath.enqueue('crop'), towpath.enqueue('crop', key => 'k'),
                  towpath.enqueue_many('[{"kind": "crop"}, {"kind": "crop", "executor": "PG_worker"}]'),
                  towpath.fn_mot_graph_emit('{"name": "g", "nodes": [{"node": "a", "job_kind": "crop"}]}')"#,
    )
    .await;
    for executor in ["py", "any", "work"] {
        assert_eq!(claimed(&db, executor).await, 0, "{executor} is not subscribed to the kind by name");
    }
    let why = "select text from towpath.job j, lateral jsonb_path_query(towpath.fn_job_why(j.job_id), '$.reasons[*].text') as w(text)
                where j.executor is null limit 1";
    assert_eq!(db.text(why).await, "\"no enabled subscription covers kind crop, executor any, domain none\"");
    let answer = db.json("towpath.fn_executor_register('py', array['crop'])").await;
    assert_eq!(answer["added"], json!(["crop"]), "{answer}");
    assert_eq!(newest(&db).await, "external_worker", "it shows who will run it");
    assert_eq!(claimed(&db, "py").await, 4, "all but the one that names PG_worker");
    assert_eq!(db.text("select executor from towpath.job_queue where state = 'queued'").await, "PG_worker");
}

/// R06: the same with the worker first, and with a worker that is subscribed to every kind as PG_worker.
#[tokio::test]
async fn a_worker_may_come_before_its_job() {
    let db = place().await;
    db.json("towpath.fn_executor_register('py', array['crop'])").await;
    assert_eq!(enqueued(&db, "crop").await, "external_worker");
    assert_eq!(claimed(&db, "py").await, 1);
    assert_eq!(enqueued(&db, "blur").await, "PG_worker");
    subscribe(&db, "'every', 'PG_worker'", "p_max_parallel => null, p_enabled => true").await;
    assert_eq!(claimed(&db, "every").await, 1, "blur is registered by nobody");
}

/// Q08: a worker that sleeps is woken by a job that waits for nobody in particular.
#[tokio::test]
async fn a_sleeping_worker_is_woken_by_a_job_without_executor() {
    let db = place().await;
    subscribe(&db, "'dot', 'DOT'", "'resize', p_max_parallel => null, p_enabled => true").await;
    db.execute("select towpath.fn_gate_set('queue.notify.enabled', true, 'tester', 'a test')").await;
    for executor in ["py", "dot"] {
        let armed = db.json(&format!("towpath.fn_job_arm('{executor}')")).await;
        assert_eq!(armed["ok"], true, "{armed}");
    }
    let up = "select armed from towpath.job_wake where job_kind = 'resize' order by wake_no desc limit 1";
    assert_eq!(db.text(up).await, "true");
    assert_eq!(enqueued(&db, "resize").await, "PG_worker", "two executors are subscribed");
    assert_eq!(db.text(up).await, "false", "both are woken");
    assert_eq!(claimed(&db, "dot").await, 1, "and either may take it");
}

/// Q21: the same at every way in; a way that names an executor gets that one.
#[tokio::test]
async fn every_way_in_has_the_same_default() {
    let db = place().await;
    let database = db.database().await;
    let graph = json!({"name": "g", "nodes": [{"node": "a", "job_kind": "resize"}]});
    for (call, expected) in [
        ("enqueue('resize')".to_owned(), "external_worker"),
        ("enqueue('resize', executor => 'Hermes')".into(), "Hermes"),
        (r#"enqueue_many('[{"kind": "resize"}]')"#.into(), "external_worker"),
        (r#"fn_job_enqueue_many('[{"job_kind": "resize"}]')"#.into(), "external_worker"),
        (r#"fn_job_enqueue_many('[{"job_kind": "resize"}, {"job_kind": " "}]')"#.into(), "external_worker"),
        (r#"fn_job_enqueue_many('[{"job_kind": "resize", "executor": "DOT"}]')"#.into(), "DOT"),
        (format!("fn_mot_graph_emit('{graph}')"), "external_worker"),
    ] {
        db.execute(&format!("select towpath.{call}")).await;
        assert_eq!(newest(&db).await, expected, "{call}");
    }
    database.enqueue(&NewJob::new("resize")).await.unwrap();
    assert_eq!(newest(&db).await, "external_worker", "from Rust");

    db.execute(
        r#"select towpath.fn_schedule_put('s', '* * * * *', 'UTC', '{"job_kind": "resize"}', now());
           select towpath.fn_schedule_fire('s', next_at, next_at + interval '1 minute') from towpath.schedule"#,
    )
    .await;
    assert_eq!(newest(&db).await, "external_worker", "a schedule");

    db.execute(
        r#"select towpath.fn_route_put('r', 'job', '{"job_kind": "resize"}');
           select towpath.fn_route_mode_set('r', 'live', 'tester', 'a test');
           select towpath.fn_event_emit('d', 't')"#,
    )
    .await;
    for pass in ["fn_event_sequence()", "fn_route_worker_run('default', 1000)"] {
        let answer: Value = db.json(&format!("towpath.{pass}")).await;
        assert_eq!(answer["ok"], true, "{answer}");
    }
    assert_eq!(newest(&db).await, "external_worker", "a route");

    let spec = TokenSpec { executor_id: "py", may_enqueue: true, actor: "tester", ..Default::default() };
    let token = database.executor_token_create(&spec).await.unwrap().token;
    let enqueue = format!(
        "towpath.fn_executor_token_enqueue(sha256('{token}'::bytea), '{}')",
        json!([{"job_kind": "resize"}])
    );
    assert_eq!(db.json(&enqueue).await["enqueued"], 1);
    assert_eq!(newest(&db).await, "external_worker", "over HTTP");
}

/// Q21: two administrators who subscribe different executors at the same moment leave no wrong default.
#[tokio::test]
async fn concurrent_subscriptions_see_each_other() {
    let db = TestDb::open().await;
    let (one, other) = (db.client().await, db.client().await);
    for executor in ["DOT", "Agent"] {
        db.execute(&format!("select towpath.fn_consumer_put('{executor}', '{executor}')")).await;
    }
    let put = |executor: &str| {
        format!(
            "begin; select towpath.fn_job_subscription_put('{executor}', '{executor}', 'k', p_enabled => true)"
        )
    };
    one.batch_execute(&put("DOT")).await.unwrap();
    let second = put("Agent");
    let waiting = tokio::spawn(async move {
        other.batch_execute(&second).await.unwrap();
        other.batch_execute("commit").await.unwrap();
    });
    let waits = "select count(*) from pg_locks where relation = 'towpath.job_kind_executor'::regclass and not granted";
    while db.text(waits).await == "0" && !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    one.batch_execute("commit").await.unwrap();
    waiting.await.unwrap();
    assert_eq!(enqueued(&db, "k").await, "PG_worker");
}
