//! `towpath process new`: what it writes installs, passes its own test, and runs to its end.

use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;

use crate::towpath::{Place, words};

async fn installed(place: &Place, file: &str) -> TestDb {
    let db = TestDb::open().await;
    let text = std::fs::read_to_string(place.dir.join(file)).unwrap();
    assert!(text.lines().count() <= 40, "{text}");
    db.execute(&text).await;
    db.execute("select towpath.fn_consumer_put('towpath', 'PG_worker')").await;
    db.execute("select towpath.fn_job_subscription_put('towpath', 'PG_worker', p_enabled => true)").await;
    db
}

/// The statement that `process new` says to run next.
fn next(wrote: &str) -> &str {
    wrote.lines().last().unwrap().trim()
}

async fn succeeded(place: &Place, db: &TestDb, arguments: &[&str], start: &str) -> String {
    let process = db.text(start).await;
    let mut command = place.command(arguments);
    command.env("DATABASE_URL", db.url());
    let mut worker = Victim::spawn(command);
    let mut keeper = place.command(&["maintain"]);
    keeper.env("DATABASE_URL", db.url());
    let mut keeper = Victim::spawn(keeper);
    db.until(&format!("select state from towpath.process where process_id = '{process}'"), "succeeded").await;
    worker.kill().await;
    keeper.kill().await;
    let facts = "select string_agg(fact, ' ' order by fact_no) from towpath.process_fact";
    db.text(&format!("{facts} where process_id = '{process}'")).await
}

/// P11, P16: generate, install, start, and a real worker runs it to its terminal fact: a step, a wait and an end.
#[tokio::test]
async fn a_generated_process_runs_to_its_terminal_fact() {
    let place = Place::new();
    let wrote = place.ok(&["process", "new", "billing.send_invoice", "--dir", "sql"]);
    let db = installed(&place, "sql/send_invoice.sql").await;
    let facts = succeeded(&place, &db, &["work"], next(&wrote)).await;
    assert_eq!(
        facts, "started scheduled begun stepped suspended scheduled begun stepped succeeded",
        "it goes on after a second without a signal"
    );
    assert_eq!(
        db.json("towpath.fn_schema_drift()").await["drift"],
        serde_json::json!(["function towpath.fn_now() differs from what migrate installed"]),
        "only the clock of the tests is ours to explain"
    );
}

/// P11, P16: your own e-mail or SMS: the input is the message, and a real worker sends it by way of the log.
#[tokio::test]
async fn a_generated_message_is_sent() {
    for kind in ["email", "sms"] {
        let place = Place::new();
        let wrote = place.ok(&["process", "new", "shop.tell", "--task-kind", kind]);
        let db = installed(&place, "tell.sql").await;
        let arguments = ["work", "--mail-transport", "log", "--sms-transport", "log"];
        let facts = succeeded(&place, &db, &arguments, next(&wrote)).await;
        assert_eq!(facts, "started scheduled begun succeeded", "{kind}");
        let result = "select value->>'transport' from towpath.process_fact where fact = 'succeeded'";
        assert_eq!(db.text(result).await, "log");
    }
}

/// P16: handlers in other languages are as small, and their kind is one command.
#[tokio::test]
async fn handlers_in_other_languages_are_written() {
    let (place, db) = (Place::new(), TestDb::open().await);
    for (option, file) in [("--rust", "call.rs"), ("--python", "call.py"), ("--typescript", "call.ts")] {
        let wrote = place.ok(&["process", "new", "shop.call", option]);
        assert!(wrote.contains("towpath process kind shop.call"), "{wrote}");
        let text = std::fs::read_to_string(place.dir.join(file)).unwrap();
        assert!(text.contains("shop.call") && text.lines().count() <= 40, "{text}");
        if option == "--rust" {
            assert_eq!(text, include_str!("../crates/towpath/examples/call.rs"), "what is written compiles");
        }
    }
    let mut command = place.command(&["process", "kind", "shop.call", "--max-attempts", "3"]);
    command.env("DATABASE_URL", db.url());
    assert!(command.status().unwrap().success());
    let kind = "select concat(runs_as, ' ', task_kind, ' ', max_attempts) from towpath.process_kind";
    assert_eq!(db.text(&format!("{kind} where process_kind = 'shop.call'")).await, "handler shop.call 3");
}

/// O02: invalid names are refused with an example, and nothing is overwritten.
#[test]
fn bad_names_and_existing_files_are_refused() {
    let place = Place::new();
    for (name, word) in [
        ("Send", "lower-case"),
        ("a-b", "lower-case"),
        ("x'; drop table y; --", "lower-case"),
        ("towpath.mine", "is reserved"),
        ("pg_temp.mine", "is reserved"),
        ("a.b.c", "lower-case"),
        ("", "lower-case"),
    ] {
        let output = place.run(&["process", "new", name]);
        assert!(!output.status.success(), "{name}");
        assert!(words(&output).contains(word), "{name}: {}", words(&output));
    }
    assert_eq!(std::fs::read_dir(&place.dir).unwrap().count(), 0, "nothing was written");
    place.ok(&["process", "new", "mine"]);
    let again = place.run(&["process", "new", "mine"]);
    assert!(words(&again).contains("not overwritten"), "{}", words(&again));
    assert!(!place.run(&["process", "new", "other", "--task-kind", "it's"]).status.success());
}
