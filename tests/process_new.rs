//! `towpath process new`: what it writes installs, passes its own test, and runs to its end.

use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;

use crate::towpath::{Place, words};

/// The SQL that psql would send: what starts with a backslash is for psql itself.
fn statements(place: &Place, file: &str) -> String {
    let text = std::fs::read_to_string(place.dir.join(file)).unwrap();
    text.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n")
}

/// P11: generate, install, test, kick off, and a real worker runs it to its terminal fact.
#[tokio::test]
async fn a_generated_process_runs_to_its_terminal_fact() {
    let (place, db) = (Place::new(), TestDb::open().await);
    let wrote = place.ok(&["process", "new", "billing.send_invoice", "--dir", "sql"]);
    assert!(wrote.contains("kickoff_send_invoice_task"), "it says what comes next: {wrote}");
    db.execute(&statements(&place, "sql/send_invoice.sql")).await;
    db.execute(&statements(&place, "sql/send_invoice.test.sql")).await;
    assert_eq!(db.text("select count(*) from towpath.process").await, "0", "its test leaves nothing behind");

    db.execute("select towpath.fn_consumer_put('towpath', 'PG_worker')").await;
    db.execute("select towpath.fn_job_subscription_put('towpath', 'PG_worker', p_enabled => true)").await;
    let root = db.json("billing.create_send_invoice('order:7')").await;
    let started = db.json(&format!("billing.kickoff_send_invoice_task({})", root["send_invoice_id"])).await;
    let mut command = place.command(&["work"]);
    command.env("DATABASE_URL", db.url());
    let mut worker = Victim::spawn(command);
    wait_until_succeeded(&db, started["process_id"].as_str().unwrap()).await;
    assert_eq!(db.text("select result_ref from billing.send_invoice_task_succeeded").await, "done:order:7");
    worker.kill().await;

    // What it installed is as closed as what we ship.
    let open = "select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p
                 where p.pronamespace = 'billing'::regnamespace and (
                     has_function_privilege('public', p.oid, 'execute') or not p.prosecdef
                     or not p.proconfig @> array['search_path=pg_catalog, pg_temp'])";
    assert_eq!(db.text(open).await, "null");
    assert_eq!(
        db.json("towpath.fn_schema_drift()").await["drift"],
        serde_json::json!(["function towpath.fn_now() differs from what migrate installed"]),
        "only the clock of the tests is ours to explain"
    );
}

/// P11: a custom e-mail or SMS: generate, install, test, kick off, and a real worker sends it by way of
/// the log to its terminal fact.
#[tokio::test]
async fn a_generated_message_is_sent() {
    for (kind, recipient) in [("email", "ann@example.org"), ("sms", "+31612345678")] {
        let (place, db) = (Place::new(), TestDb::open().await);
        let wrote = place.ok(&["process", "new", "shop.tell", "--task-kind", kind]);
        assert!(wrote.contains(&format!("shop.create_tell('order:1', '{recipient}')")), "{wrote}");
        db.execute(&statements(&place, "tell.sql")).await;
        db.execute(&statements(&place, "tell.test.sql")).await;
        db.execute("select towpath.fn_consumer_put('towpath', 'PG_worker')").await;
        db.execute("select towpath.fn_job_subscription_put('towpath', 'PG_worker', p_enabled => true)").await;
        let root = db.json(&format!("shop.create_tell('order:7', '{recipient}')")).await;
        let started = db.json(&format!("shop.kickoff_tell_task({})", root["tell_id"])).await;
        let mut command = place.command(&["work", "--mail-transport", "log", "--sms-transport", "log"]);
        command.env("DATABASE_URL", db.url());
        let mut worker = Victim::spawn(command);
        let process = started["process_id"].as_str().unwrap();
        wait_until_succeeded(&db, process).await;
        assert_eq!(db.text("select result_ref from shop.tell_task_succeeded").await, "log");
        let facts = "select string_agg(fact, ' ' order by fact_no) from towpath.process_fact";
        assert_eq!(
            db.text(&format!("{facts} where process_id = '{process}'")).await,
            "started scheduled begun succeeded"
        );
        worker.kill().await;
    }
}

async fn wait_until_succeeded(db: &TestDb, process: &str) {
    let state = format!("select state from towpath.process where process_id = '{process}'");
    db.until(&state, "succeeded").await;
}

/// P11: with a custom kind the attempt has handlers around it.
#[tokio::test]
async fn a_generated_process_takes_any_kind_of_job() {
    let (place, db) = (Place::new(), TestDb::open().await);
    place.ok(&["process", "new", "call_back", "--task-kind", "phone"]);
    db.execute(&statements(&place, "call_back.sql")).await;
    db.execute(&statements(&place, "call_back.test.sql")).await;
    let kind = db
        .json("select to_jsonb(k) from towpath.process_kind k where process_kind = 'business.call_back'")
        .await;
    assert_eq!(kind["before_handler"], "business.get_call_back_payload");
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
