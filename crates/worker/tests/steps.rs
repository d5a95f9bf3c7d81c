//! Processes with steps in Rust: each step once, whatever dies in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::process::NewProcess;
use towpath_db::process_run::Signal;
use towpath_model::id::ProcessId;
use towpath_testkit::TestDb;
use towpath_testkit::queue::{EXECUTOR, Queue};
use towpath_testkit::victim::Victim;
use towpath_worker::{Failure, Maintenance, Steps, Worker, task};

/// Runs in which a worker is killed; a long run uses 300.
const KILLS_VARIABLE: &str = "TOWPATH_TEST_STEP_KILLS";
const KILLS_DEFAULT: usize = 16;
/// Places at which the handler below may be killed. Its first life passes 0 to 3: before step one, before and after its
/// work, after its record. 4 and 5 are those of step two in the second life, 6 and 7 those of step three in the third.
const POINTS: usize = 8;
const SECOND: Duration = Duration::from_secs(1);

async fn start(database: &Database, kind: &str, reference: &str, input: Value) -> ProcessId {
    let new = NewProcess { process_kind: kind, reference, input, ..NewProcess::default() };
    database.process_start(&new).await.unwrap().process_id
}

async fn facts(database: &Database, process_id: ProcessId) -> Vec<String> {
    let whole = database.process_show(process_id).await.unwrap();
    whole.facts.into_iter().map(|fact| fact.fact).collect()
}

/// P13, P14, P15: steps, a failure, a sleep and a signal, until the process has its result; no step runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_goes_on_where_it_was() {
    let queue = Queue::open().await;
    queue.db.execute("select towpath.process_kind('shop.order', backoff_seconds => 0)").await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let worker = Worker::builder(queue.worker.clone(), EXECUTOR)
        .process("shop.order", move |cents: i64, steps: Steps| {
            let runs = counted.clone();
            async move {
                let paid: i64 = steps
                    .step("pay", async || {
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok(cents)
                    })
                    .await?;
                if steps.attempt_no() == 1 {
                    return Err(Failure::retry("the first attempt fails"));
                }
                steps.sleep("cool down", Duration::from_secs(3_600)).await?;
                let shipped: Option<String> =
                    steps.wait_for("shipped", Some(Duration::from_secs(86_400))).await?;
                Ok(json!({ "paid": paid, "shipped": shipped }))
            }
        })
        .build()
        .unwrap();
    let process_id = start(&queue.admin, "shop.order", "7", json!(4_200)).await;
    worker.run_once().await.unwrap();
    worker.run_once().await.unwrap();
    let mut maintenance = Maintenance::new(queue.maintainer.clone());
    queue.db.advance(SECOND * 3_601).await;
    maintenance.run_once().await.unwrap();
    worker.run_once().await.unwrap();
    let signal = Signal {
        process_kind: Some("shop.order"),
        reference: Some("7"),
        name: "shipped",
        payload: json!("1Z"),
        ..Signal::default()
    };
    assert!(queue.admin.process_signal(&signal).await.unwrap().recorded);
    worker.run_once().await.unwrap();
    let whole = queue.admin.process_show(process_id).await.unwrap();
    assert_eq!(whole.process.result, json!({ "paid": 4_200, "shipped": "1Z" }), "{whole:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the step was recorded by the first attempt");
}

/// P16: an e-mail kind, an SQL function and a bad input, by the workers that `towpath up` has.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_input_and_a_panic_end_as_the_kind_says() {
    let queue = Queue::open().await;
    queue
        .db
        .execute("select towpath.process_kind('shop.order', max_attempts => 2, backoff_seconds => 0)")
        .await;
    let worker = Worker::builder(queue.worker.clone(), EXECUTOR)
        .process("shop.order", |input: i64, _: Steps| async move {
            assert!(input < 0, "a bug");
            Ok(input)
        })
        .build()
        .unwrap();
    let bad = start(&queue.admin, "shop.order", "bad", json!("no number")).await;
    let panics = start(&queue.admin, "shop.order", "panics", json!(1)).await;
    worker.run_once().await.unwrap();
    worker.run_once().await.unwrap();
    assert_eq!(facts(&queue.admin, bad).await.last().unwrap(), "gave_up");
    let panicked = facts(&queue.admin, panics).await;
    assert_eq!(panicked.iter().filter(|fact| *fact == "failed").count(), 2, "{panicked:?}");
}

/// P16: many processes that are SQL functions run in few transactions, and one that fails takes no other with it.
#[tokio::test(flavor = "multi_thread")]
async fn functions_run_together_and_fail_alone() {
    let queue = Queue::open().await;
    let sql = "
        create schema shop; grant usage on schema shop to worker_service_user;
        create function shop.half(process jsonb) returns jsonb language plpgsql security definer
            set search_path = pg_catalog, pg_temp
        as $$
        begin
            perform towpath.process_step(process, 'half', process->'input');
            if (process->>'input')::integer % 10 = 0 then raise exception 'a tenth fails'; end if;
            return process->'input';
        end;
        $$;
        revoke execute on function shop.half(jsonb) from public;
        grant execute on function shop.half(jsonb) to worker_service_user;
        select towpath.process_kind('shop.half', function => 'shop.half', max_attempts => 1)";
    queue.db.execute(sql).await;
    for number in 0..100 {
        start(&queue.admin, "shop.half", &number.to_string(), json!(number)).await;
    }
    let worker = task::register(Worker::builder(queue.worker.clone(), EXECUTOR)).build().unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(worker.run(shutdown.clone()));
    queue.db.until("select count(*)::text from towpath.process where finished_at is null", "0").await;
    shutdown.cancel();
    running.await.unwrap();
    let states = "select string_agg(concat(state, ' ', count), ', ' order by state) from (
        select state, count(*) from towpath.process group by state) s";
    assert_eq!(queue.db.text(states).await, "gave_up 10, succeeded 90");
    let transactions =
        "select count(distinct xmin::text)::text from towpath.process where finished_at is not null";
    let transactions: usize = queue.db.text(transactions).await.parse().unwrap();
    assert!(transactions < 60, "{transactions} transactions for 100 processes");
    assert_eq!(queue.db.text("select count(*)::text from towpath.task_error").await, "10");
}

/// P14: a closed gate stops attempts that are scheduled and not begun; they go on when it opens.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_gate_stops_what_has_not_begun() {
    let queue = Queue::open().await;
    queue.db.execute("select towpath.process_kind('shop.order')").await;
    let process_id = start(&queue.admin, "shop.order", "7", json!(1)).await;
    let worker = Worker::builder(queue.worker.clone(), EXECUTOR)
        .process("shop.order", |input: i64, _: Steps| async move { Ok(input) })
        .build()
        .unwrap();
    queue.db.execute("update towpath.config set value = 'false' where key = 'process.enabled'").await;
    worker.run_once().await.unwrap();
    assert_eq!(facts(&queue.admin, process_id).await, ["started", "scheduled"]);
    queue.db.execute("update towpath.config set value = 'true' where key = 'process.enabled'").await;
    queue.db.advance(SECOND * 60).await;
    worker.run_once().await.unwrap();
    assert_eq!(facts(&queue.admin, process_id).await, ["started", "scheduled", "begun", "succeeded"]);
}

/// What is known of one killed process afterwards: the attempts in which each step ran, the attempt that recorded it, and
/// how often the process ended.
#[derive(Debug, Clone, PartialEq)]
struct History {
    ran: Vec<(String, i32)>,
    recorded: Vec<(String, i32)>,
    ends: usize,
}

/// The violations: a step has no record or two, ran again after its record, or the process has not ended once.
fn violations(history: &History) -> Vec<String> {
    let mut found = vec![];
    for step in ["one", "two", "three"] {
        let records: Vec<i32> =
            history.recorded.iter().filter(|(name, _)| name == step).map(|(_, attempt)| *attempt).collect();
        match records.as_slice() {
            [recorded] => {
                if history.ran.iter().any(|(name, attempt)| name == step && attempt > recorded) {
                    found.push(format!("{step} ran again after its record"));
                }
                if !history.ran.iter().any(|(name, attempt)| name == step && attempt == recorded) {
                    found.push(format!("{step} is recorded and did not run"));
                }
            }
            records => found.push(format!("{step} is recorded {} times", records.len())),
        }
    }
    if history.ends != 1 {
        found.push(format!("it ended {} times", history.ends));
    }
    found
}

/// The checker finds every kind of bad history.
#[test]
fn the_checker_sees_bad_steps() {
    let pairs =
        |pairs: &[(&str, i32)]| pairs.iter().map(|(name, no)| ((*name).to_owned(), *no)).collect::<Vec<_>>();
    let good = History {
        ran: pairs(&[("one", 1), ("one", 2), ("two", 3), ("three", 4)]),
        recorded: pairs(&[("one", 2), ("two", 3), ("three", 4)]),
        ends: 1,
    };
    assert_eq!(violations(&good), Vec::<String>::new());
    let bad = |change: fn(&mut History), words: &str| {
        let mut history = good.clone();
        change(&mut history);
        assert!(violations(&history).iter().any(|found| found.contains(words)), "{words}");
    };
    bad(|history| history.ran.push(("one".into(), 3)), "ran again after its record");
    bad(|history| history.recorded.push(("two".into(), 4)), "recorded 2 times");
    bad(|history| drop(history.recorded.pop()), "recorded 0 times");
    bad(|history| drop(history.ran.pop()), "did not run");
    bad(|history| history.ends = 0, "ended 0 times");
    bad(|history| history.ends = 2, "ended 2 times");
}

/// P13: SIGKILL of the worker at every boundary between steps: each is recorded once, none runs after its record, and
/// the process ends once.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_repeat_no_recorded_step() {
    let kills: usize =
        std::env::var(KILLS_VARIABLE).map_or(KILLS_DEFAULT, |text| text.parse().expect("a number of kills"));
    let db = TestDb::open().await;
    db.execute(
        "select towpath.fn_consumer_put('tester', 'PG_worker'),
                towpath.fn_job_subscription_put('tester', 'PG_worker', p_max_parallel => null, p_enabled => true);
         select towpath.process_kind('crash.steps', lease_seconds => 5, max_attempts => 100, backoff_seconds => 0);
         create table public.ran (ref text, step text, attempt_no integer)",
    )
    .await;
    let database = db.database().await;
    let mut maintenance = Maintenance::new(database.clone());
    for run in 0..kills {
        let reference = run.to_string();
        let process_id = start(&database, "crash.steps", &reference, Value::Null).await;
        let signal = format!(
            "select towpath.signal_process('crash.steps', '{reference}', 'go', '{{\"run\": {run}}}')"
        );
        let mut point = (run % POINTS).to_string();
        let mut signalled = false;
        for life in 0..40 {
            let mut worker = Victim::spawn(the_worker_at(&db.url(), &point));
            let ended = worker.wait_exit().await;
            // A worker that was not killed had nothing more to do: the process waits, or has ended.
            if ended.success() && !signalled && run % 2 == 0 {
                db.execute(&signal).await;
                signalled = true;
            }
            if !ended.success() {
                point = "none".to_owned();
            }
            // What the dead worker held runs out; what sleeps wakes up.
            db.advance(SECOND * 61).await;
            maintenance.run_once().await.unwrap();
            if database.process_show(process_id).await.unwrap().process.is_over() {
                break;
            }
            assert!(life < 39, "run {run} does not end: {:?}", facts(&database, process_id).await);
        }
        let whole = database.process_show(process_id).await.unwrap();
        let ran = format!(
            "select coalesce(jsonb_agg(jsonb_build_array(step, attempt_no)), '[]') from public.ran where ref = '{reference}'"
        );
        let ran = db.json(&ran).await;
        let steps = ["one", "two", "three"];
        let recorded = whole.facts.iter().filter(|fact| fact.fact == "stepped");
        let history = History {
            ran: serde_json::from_value(ran).unwrap(),
            recorded: recorded
                .filter_map(|fact| Some((fact.name.clone()?, fact.attempt_no?)))
                .filter(|(name, _)| steps.contains(&name.as_str()))
                .collect(),
            ends: whole.facts.iter().filter(|fact| fact.fact == whole.process.state).count(),
        };
        assert_eq!(violations(&history), Vec::<String>::new(), "run {run}: {whole:?}");
        assert_eq!(whole.process.state, "succeeded", "run {run}: {whole:?}");
    }
}

/// This test binary once more, as the worker.
fn the_worker_at(url: &str, point: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "steps::the_worker", "--ignored", "--nocapture"]);
    command.env("STEPS_DATABASE_URL", url).env("STEPS_KILL_AT", point);
    command
}

/// Not a test: the worker that the test above kills. It runs what there is, and kills itself at the given point.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child process of killed_workers_repeat_no_recorded_step"]
async fn the_worker() {
    let Ok(url) = std::env::var("STEPS_DATABASE_URL") else { return };
    let kill_at: Option<usize> = std::env::var("STEPS_KILL_AT").unwrap().parse().ok();
    let database = Database::connect(&url).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let client = Arc::new(client);
    let builder =
        Worker::builder(database, EXECUTOR).process("crash.steps", move |_: Value, steps: Steps| {
            let client = client.clone();
            let points = Points { kill_at, next: AtomicUsize::new(0) };
            async move {
                for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
                    points.here();
                    let _: usize = steps
                        .step(name, async || {
                            points.here();
                            let sql = "insert into public.ran values ($1, $2, $3)";
                            client.execute(sql, &[&steps.reference(), &name, &steps.attempt_no()]).await?;
                            points.here();
                            Ok(number)
                        })
                        .await?;
                    points.here();
                    if number == 0 {
                        steps.sleep("nap", SECOND * 30).await?;
                    }
                    if number == 1 {
                        let _: Option<Value> = steps.wait_for("go", Some(SECOND * 90)).await?;
                    }
                }
                Ok(json!("all three"))
            }
        });
    let worker = builder.build().unwrap();
    while !worker.run_once().await.unwrap().is_empty() {}
}

/// Counts the places that a handler passes in one life of its worker.
struct Points {
    kill_at: Option<usize>,
    next: AtomicUsize,
}

impl Points {
    fn here(&self) {
        if self.kill_at == Some(self.next.fetch_add(1, Ordering::SeqCst)) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        }
    }
}
