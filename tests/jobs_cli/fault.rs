//! `towpath fault`, and where else a fault is told.

use serde_json::Value;

use super::Shell;

/// Q22: an operator sees what is set aside in `doctor` and `top`, and decides.
#[tokio::test]
async fn faults_are_listed_retried_and_dropped() {
    let shell = Shell::open().await;
    assert!(shell.ok(&["fault", "list"]).contains("nothing is set aside"));
    shell.db.execute("select towpath._loop_fault('reap', 'j1', 'out of range (SQLSTATE 22003)')").await;

    let listed: Value = serde_json::from_str(&shell.ok(&["fault", "list", "--json"])).unwrap();
    assert_eq!((&listed[0]["loop"], &listed[0]["item"]), (&"reap".into(), &"j1".into()));
    assert!(shell.ok(&["fault", "list", "--loop", "reap"]).contains("22003"));
    // Test databases are not durable, which doctor calls a failure.
    let found = shell.code(4, &["doctor"]);
    assert!(found.contains("reap set j1 aside") && found.contains("towpath fault retry reap"), "{found}");
    assert!(shell.ok(&["top", "--once"]).contains("towpath fault list"));

    assert!(
        shell.ok(&["fault", "drop", "reap", "j1", "--why", "ticket 7"]).contains("does not try j1 again")
    );
    assert!(shell.ok(&["fault", "list"]).contains("ticket 7"));
    assert!(shell.ok(&["fault", "retry", "reap", "j1"]).contains("tries j1 again"));
    shell.code(1, &["fault", "retry", "reap", "j2"]);
}
