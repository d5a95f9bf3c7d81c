//! Progress of what takes longer than a second: for people at a terminal, never for scripts.

use std::process::Stdio;

use serde_json::Value;

use crate::jobs_cli::Shell;
use crate::terminal::Terminal;

/// Waits until this many commands of the shell wait for our lock.
async fn until_waiting(shell: &Shell, count: usize) {
    let sql = "select count(*) from pg_stat_activity \
               where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
    shell.db.until(sql, &count.to_string()).await;
}

/// O04: a bulk cancel that takes longer than a second shows its progress on a terminal, and clears it at the end; in a
/// pipe and with JSON it shows nothing. The three wait for the same lock, and the one on the terminal began last, so
/// the other two have waited for more than a second too.
#[tokio::test]
async fn people_see_progress_and_scripts_do_not() {
    let shell = Shell::open().await;
    for kind in ["piped", "json", "shown"] {
        shell.enqueue(kind).await;
    }
    let lock = shell.db.rival().await;
    lock.run("begin; lock table towpath.job_live in exclusive mode").await;
    let cancel = |kind| ["job", "cancel", "--kind", kind, "--why", "a test", "--yes"];

    let mut piped = shell.command(&cancel("piped"));
    let piped = piped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_waiting(&shell, 1).await;
    let mut json = Terminal::run(shell.command(&[&["--json"], &cancel("json")[..]].concat()));
    until_waiting(&shell, 2).await;
    let mut shown = Terminal::run(shell.command(&cancel("shown")));
    shown.wait_for("0/1 jobs").await;
    until_waiting(&shell, 3).await;
    lock.run("rollback").await;

    assert_eq!(shown.wait_exit().await.code(), Some(0));
    shown.wait_for("cancelled 1 job").await;
    assert_eq!(shown.screen().trim(), "cancelled 1 job", "the bar is gone");
    assert_eq!(json.wait_exit().await.code(), Some(0));
    json.wait_for("}").await;
    let told: Value = serde_json::from_str(&json.text()).unwrap();
    assert_eq!(told["done"], 1, "JSON and nothing else");
    let piped = piped.wait_with_output().unwrap();
    assert_eq!(piped.status.code(), Some(0));
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), "cancelled 1 job\n");
    assert_eq!(String::from_utf8(piped.stderr).unwrap(), "");
}
