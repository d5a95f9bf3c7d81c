//! `towpath fault`, and the other places that show a fault.

use serde_json::Value;

use super::Shell;

/// Q22: `maintain --once` runs every task, names each that failed, and its exit code says so.
#[tokio::test]
async fn maintain_once_names_every_failure() {
    let shell = Shell::open().await;
    shell.ok(&["maintain", "--once"]);
    shell
        .db
        .execute(
            "alter function towpath.fn_job_partition_tick rename to fn_gone_1;
             alter function towpath.fn_job_lane_tick rename to fn_gone_2",
        )
        .await;
    let output = shell.command(&["maintain", "--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = crate::towpath::words(&output);
    for part in ["expired leases: 0", "partitions failed", "lanes failed"] {
        assert!(words.contains(part), "{words}");
    }
}

/// Q22: an operator sees what is set aside in `doctor` and `top`, and decides.
#[tokio::test]
async fn faults_are_listed_retried_and_dropped() {
    let shell = Shell::open().await;
    assert!(shell.ok(&["fault", "list"]).contains("no faults"));
    shell.db.execute("select towpath._loop_fault('reap', 'j1', 'out of range (SQLSTATE 22003)')").await;

    let listed: Value = serde_json::from_str(&shell.ok(&["fault", "list", "--json"])).unwrap();
    assert_eq!((&listed[0]["loop"], &listed[0]["item"]), (&"reap".into(), &"j1".into()));
    assert!(shell.ok(&["fault", "list", "--loop", "reap"]).contains("22003"));
    // Test databases are not durable, which doctor calls a failure.
    let found = shell.code(4, &["doctor"]);
    assert!(found.contains("reap set aside j1") && found.contains("towpath fault retry reap"), "{found}");
    assert!(shell.ok(&["top", "--once"]).contains("towpath fault list"));

    assert!(shell.ok(&["fault", "drop", "reap", "j1", "--why", "ticket 7"]).contains("will not retry j1"));
    assert!(shell.ok(&["fault", "list"]).contains("ticket 7"));
    assert!(shell.ok(&["fault", "retry", "reap", "j1"]).contains("will retry j1"));
    shell.code(1, &["fault", "retry", "reap", "j2"]);
}
