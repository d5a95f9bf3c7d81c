//! O04: exit codes are stable. The table in docs/reference/exit-codes.md is what scripts rely on.

use towpath_testkit::victim::Victim;

use crate::towpath::{Place, words};

/// A command for each documented code.
#[tokio::test]
async fn every_documented_exit_code_is_the_one_that_comes() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let job = |arguments: &[&str]| place.ok(&[&["job", "enqueue", "--json"], arguments].concat());
    let id = |answer: String| {
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["job_id"].as_str().unwrap().to_owned()
    };
    let good = id(job(&["towpath.noop"]));
    let bad = id(job(&["towpath.fail", "--payload", r#"{"permanent": true}"#]));
    let idle = id(job(&["nobody.runs.this"]));
    let code = |arguments: &[&str]| {
        let output = place.run(arguments);
        (output.status.code().unwrap(), words(&output))
    };
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (expected, arguments) in [
        (0, vec!["job", "list"]),
        (0, vec!["job", "watch", &good]),
        (0, vec!["migrate", "--check"]),
        (0, vec!["events", "verify"]),
        (1, vec!["job", "show", nobody]),
        (1, vec!["gate", "open", "no.such.gate", "--why", "a test"]),
        (1, vec!["stream", "read", "no-such-stream"]),
        (1, vec!["job", "cancel", "--why", "a test"]),
        (2, vec!["job", "list", "--no-such-flag"]),
        (2, vec!["job", "list", "--log-format", "yaml"]),
        (2, vec!["job", "cancel", &idle, "--kind", "both.are.too.much", "--why", "a test"]),
        (3, vec!["job", "watch", &idle, "--timeout", "0"]),
        (3, vec!["dlq", "replay", "--kind", "towpath.fail"]),
        (3, vec!["job", "cancel", "--kind", "nobody.runs.this", "--why", "a test"]),
        (3, vec!["job", "retry", "--kind", "nobody.runs.this"]),
        (3, vec!["queue", "health", "--check"]),
        (4, vec!["job", "watch", &bad]),
        (0, vec!["job", "cancel", "--kind", "nobody.runs.this", "--why", "a test", "--yes"]),
        (4, vec!["job", "cancel", "--kind", "nobody.runs.this", "--why", "a test", "--yes"]),
        (4, vec!["job", "watch", &idle]),
        (0, vec!["queue", "health", "--check"]),
    ] {
        let (actual, words) = code(&arguments);
        assert_eq!(actual, expected, "{arguments:?}: {words}");
    }
    up.interrupt();
    assert_eq!(up.wait_exit().await.code(), Some(0));
    let table = std::fs::read_to_string("../../docs/reference/exit-codes.md").unwrap();
    for code in [0, 1, 2, 3, 4, 101, 130] {
        assert!(table.contains(&format!("\n| {code} | ")), "{code} is not documented");
    }
}

/// O04: with --watch each look is a line of JSON; Ctrl-C ends it with 0; a first look that fails ends it with 1.
#[tokio::test]
async fn a_watched_command_looks_again_and_again() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let mut watch =
        Victim::spawn(place.command(&["job", "list", "--kind", "nobody.runs.this", "--json", "--watch=0.1"]));
    watch.wait_for_line(r#"{"jobs":[],"cursor":null}"#).await;
    place.ok(&["job", "enqueue", "nobody.runs.this"]);
    watch.wait_for_line(r#""job_kind":"nobody.runs.this""#).await;
    watch.interrupt();
    assert_eq!(watch.wait_exit().await.code(), Some(0));
    let mut watch = Victim::spawn(place.command(&["stream", "list", "--watch=0.1"]));
    watch.wait_for_line("no streams").await;
    place.ok(&["stream", "create", "notes"]);
    watch.wait_for_line("notes").await;
    watch.terminate();
    assert_eq!(watch.wait_exit().await.code(), Some(0));
    let gone = place.run(&["dlq", "show", "00000000-0000-7000-8000-000000000000", "--watch"]);
    assert_eq!(gone.status.code(), Some(1), "{}", words(&gone));
    up.terminate();
    up.wait_exit().await;
}

/// O04: a manual page for every command, without the settings of the process on each of them.
#[test]
fn manual_pages_are_written() {
    let place = Place::new();
    let words = place.ok(&["man", "--out", "pages"]);
    assert!(words.contains("pages to pages"), "{words}");
    let page = |name: &str| std::fs::read_to_string(place.dir.join("pages").join(name)).unwrap();
    assert!(page("towpath.1").contains("data"), "the first page has the settings");
    let list = page("towpath-job-list.1");
    assert!(list.contains("List jobs, newest first") && list.contains("\\-\\-watch"), "{list}");
    assert!(!list.contains("postgres\\-bin"), "{list}");
    assert!(page("towpath-routes-dlq-replay.1").contains("\\-\\-yes"));
}
