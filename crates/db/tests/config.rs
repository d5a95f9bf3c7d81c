//! Gates and config keys: `sql/functions/config.sql`.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use towpath_db::{Attribution, Error, GateMove};
use towpath_model::config::{gate_is_open, number_or_default};
use towpath_testkit::TestDb;

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "a test" };

/// Q06: the eight keys exist after migration with their stated defaults.
#[tokio::test]
async fn the_eight_keys_have_their_stated_defaults() {
    let db = TestDb::new().await;
    let entries = db.database().await.config_list().await.unwrap();
    let of = |key: &str| {
        entries.iter().find(|e| e.key == key).map(|e| (e.value.as_str(), e.default_value.as_str()))
    };
    for (key, value) in [
        ("queue.job_substrate.enabled", "false"),
        ("queue.worker.enabled", "false"),
        ("queue.notify.enabled", "false"),
        ("queue.heartbeat.enabled", "false"),
        ("queue.heartbeat.stale_threshold_seconds", "300"),
        ("queue.retry.max_attempts_default", "5"),
        ("queue.retry.backoff_base_sec", "10"),
        ("queue.lease.duration_sec", "300"),
    ] {
        assert_eq!(of(key), Some((value, value)), "{key}");
    }
}

/// Q06: false, missing and unparsable are closed, and the answer names the gate.
#[tokio::test]
async fn gates_fail_closed() {
    let db = TestDb::new().await;
    let refusal = "towpath._gate_refusal('queue.worker.enabled')";
    let closed = json!({"ok": false, "error": "gate_closed", "gate": "queue.worker.enabled"});
    for value in ["false", "TRUE", " true", "t", "1", "yes", "", "truth"] {
        db.execute(&format!(
            "update towpath.config set value = '{value}' where key = 'queue.worker.enabled'"
        ))
        .await;
        assert_eq!(db.json(refusal).await, closed, "{value:?}");
    }
    db.execute("delete from towpath.config where key = 'queue.worker.enabled'").await;
    assert_eq!(db.json(refusal).await, closed, "missing");
    let absent = db.json("towpath._gate_refusal(null)").await;
    assert_eq!(absent["error"], "gate_closed");
    // A number that happens to be named is no gate either.
    db.execute("update towpath.config set value = 'true' where key = 'queue.lease.duration_sec'").await;
    assert_eq!(db.json("towpath._gate_refusal('queue.lease.duration_sec')").await["error"], "gate_closed");
}

/// Q06: an open gate refuses nothing.
#[tokio::test]
async fn an_open_gate_lets_through() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let set = database.gate_set("queue.worker.enabled", GateMove::Open, BY).await.unwrap();
    assert!(set.changed && set.value == "true");
    assert_eq!(db.text("towpath._gate_refusal('queue.worker.enabled')").await, "null");
    let again = database.gate_set("queue.worker.enabled", GateMove::Open, BY).await.unwrap();
    assert!(!again.changed, "opening an open gate is a no-op");
}

/// The SQL reads values exactly as `model` does, whatever stands in the row (Q06).
#[tokio::test(flavor = "multi_thread")]
async fn the_database_reads_values_as_the_model_does() {
    let db = TestDb::new().await;
    let client = db.client().await;
    let handle = tokio::runtime::Handle::current();
    let value = prop_oneof![
        "true|false|TRUE| true|true |on|1",
        "[0-9]{0,18}",
        "-?[0-9]{1,3}(\\.[0-9])?",
        "[ -~]{0,12}",
        "\\PC{0,6}"
    ];
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() });
    tokio::task::spawn_blocking(move || {
        runner.run(&value, |value| {
            // Decimal fractions are valid numbers too; the model reads whole ones only.
            prop_assume!(!value.contains('.') && !value.contains('\0'));
            let row = handle.block_on(async {
                let set = "update towpath.config set value = $1 \
                           where key in ('queue.worker.enabled', 'queue.lease.duration_sec')";
                client.execute(set, &[&value]).await.unwrap();
                let read = "select towpath._gate_open('queue.worker.enabled'), \
                            towpath._config_number('queue.lease.duration_sec')::bigint";
                client.query_one(read, &[]).await.unwrap()
            });
            prop_assert_eq!(row.get::<_, bool>(0), gate_is_open(Some(&value)), "gate {:?}", value);
            let number = number_or_default(&value, 300, 1..=86_400);
            prop_assert_eq!(row.get::<_, i64>(1), number as i64, "number {:?}", value);
            Ok(())
        })
    })
    .await
    .unwrap()
    .unwrap();
}

/// Every change leaves one audit row with who and why, also around the functions.
#[tokio::test]
async fn every_change_is_audited() {
    let db = TestDb::new().await;
    let database = db.database().await;
    database.config_set("queue.lease.duration_sec", "60", BY).await.unwrap();
    db.execute("update towpath.config set value = '61' where key = 'queue.lease.duration_sec'").await;
    db.execute("delete from towpath.config where key = 'queue.lease.duration_sec'").await;
    let changes = database.config_history(Some("queue.lease.duration_sec"), 10).await.unwrap();
    let seen: Vec<_> = changes
        .iter()
        .map(|c| (c.old_value.as_deref(), c.new_value.as_deref(), c.changed_by.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("61"), None, "postgres", "deleted directly"),
            (Some("60"), Some("61"), "postgres", "changed directly"),
            (Some("300"), Some("60"), "tester", "a test"),
            (None, Some("300"), "postgres", "installed"),
        ]
    );
}

/// The audit itself cannot be rewritten, not even by the owner of everything.
#[tokio::test]
async fn the_audit_is_append_only() {
    let db = TestDb::new().await;
    let owner = db.client_as("towpath_owner").await;
    for sql in [
        "update towpath.config_change set reason = 'x'",
        "delete from towpath.config_change",
        "truncate towpath.config_change",
        "truncate towpath.config",
    ] {
        let error = owner.batch_execute(sql).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("append-only"), "{sql}");
    }
}

/// Bad input is refused with the reason, and changes nothing.
#[tokio::test]
async fn bad_values_are_refused() {
    let db = TestDb::new().await;
    let database = db.database().await;
    let set = async |key: &str, value: &str, by| database.config_set(key, value, by).await.unwrap_err();
    assert!(matches!(set("no.such", "1", BY).await, Error::NotFound(_)));
    for (key, value) in [
        ("queue.worker.enabled", "yes"),
        ("queue.lease.duration_sec", "0"),
        ("queue.lease.duration_sec", "86401"),
        ("queue.lease.duration_sec", "ten"),
        ("queue.lease.duration_sec", ""),
    ] {
        assert!(matches!(set(key, value, BY).await, Error::Invalid(_)), "{key} = {value}");
    }
    let nobody = Attribution { actor: " ", ..BY };
    assert!(matches!(set("queue.worker.enabled", "true", nobody).await, Error::Invalid(_)));
    let whyless = Attribution { reason: "", ..BY };
    assert!(matches!(set("queue.worker.enabled", "true", whyless).await, Error::Invalid(_)));
    assert_eq!(db.text("select count(*) from towpath.config_change where reason <> 'installed'").await, "0");
}

/// Two operators at once: both changes are recorded, each on top of the other.
#[tokio::test]
async fn two_changes_at_once_are_both_recorded() {
    let db = TestDb::new().await;
    let (first, second) = (db.rival().await, db.rival().await);
    let set = |value: u32| {
        format!("select towpath.fn_config_set('queue.lease.duration_sec', '{value}', 'r{value}', 'race')")
    };
    first.run("begin").await;
    first.run(&set(10)).await;
    let waiting = second.send(&set(20));
    db.until_blocked(&waiting).await;
    first.run("commit").await;
    let answer: serde_json::Value = serde_json::from_str(&waiting.value().await.unwrap().unwrap()).unwrap();
    assert_eq!(answer["old_value"], "10", "the second saw the first's value");
    assert_eq!(db.text("select count(*) from towpath.config_change where reason = 'race'").await, "2");
}
