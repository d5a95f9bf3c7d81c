//! `towpath init`, from an empty database to the first job.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;

use crate::terminal::Terminal;
use crate::towpath::{Place, words};

/// O01, O02, O08: one command without questions, on an empty database; then `up` runs a job. A second run
/// changes nothing and says so, and the settings file is for its owner alone.
#[tokio::test]
async fn init_leads_to_the_first_job_and_can_be_repeated() {
    let db = TestDb::empty().await;
    let place = Place::new();
    let init = |arguments: &[&str]| {
        let mut command = place.command(&[&["init"], arguments].concat());
        let output = command.env("DATABASE_URL", db.url()).output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let rehearsed = init(&["--dry-run"]);
    assert!(
        rehearsed.contains("rolled back") && rehearsed.contains("would write towpath.toml"),
        "{rehearsed}"
    );
    assert!(!place.dir.join("towpath.toml").exists());
    let done: Value = serde_json::from_str(&init(&["--json"])).unwrap();
    assert_eq!(
        (&done["migrated"], &done["file_written"], &done["key_created"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!(done["gates_closed"], json!([]));
    assert!(done["kinds_registered"].as_array().unwrap().contains(&json!("db_function")), "{done}");
    let file = place.dir.join("towpath.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let content = std::fs::read_to_string(&file).unwrap();
    let password = done["admin_password"].as_str().unwrap();
    assert!(content.contains(password) && content.contains(&db.url()), "{content}");
    let again = init(&[]);
    let there = [
        "already at version",
        "already open",
        "towpath is already registered",
        "default is already registered",
        "left as it is",
    ];
    for part in there {
        assert!(again.contains(part), "{part}: {again}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    // Without DATABASE_URL: everything is in the file.
    let mut up = Victim::spawn(place.command(&["up"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["job", "enqueue", "towpath.noop", "--watch"]);
    place.ok(&["queue", "health", "--check"]);
    let url = format!("http://127.0.0.1:{}/ui", place.port);
    let page = reqwest::get(&url).await.unwrap();
    assert!(page.url().path().contains("login"), "the dashboard asks for the password: {}", page.url());
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
}

/// O08: on a terminal, `init` asks for the database and before it opens the gates; without an answer it changes
/// nothing. With `--yes` it asks nothing.
#[tokio::test]
async fn init_asks_on_a_terminal() {
    let db = TestDb::empty().await;
    let place = Place::new();
    let mut init = Terminal::run(place.command(&["init"]));
    init.wait_for("PostgreSQL URL (empty: a private one in ").await;
    // Ctrl-D: the end of input.
    init.press("\x04");
    assert_eq!(init.wait_exit().await.code(), Some(1));
    init.wait_for("no answer; give flags instead").await;
    assert!(!place.dir.join("towpath.toml").exists() && !place.data().exists());

    let mut init = Terminal::run(place.command(&["init"]));
    init.wait_for("PostgreSQL URL").await;
    init.press(&format!("{}\n", db.url()));
    init.wait_for("Open every gate, so that jobs, events and processes run? [Y/n]").await;
    init.press("n\n");
    assert_eq!(init.wait_exit().await.code(), Some(0), "{}", init.screen());
    init.wait_for("open them with: towpath gate open --all").await;
    let content = std::fs::read_to_string(place.dir.join("towpath.toml")).unwrap();
    assert!(content.contains(&db.url()), "{content}");
    let closed = "select count(*) > 0 from towpath.config where kind = 'gate' and value = 'false'";
    assert_eq!(db.text(closed).await, "true");

    // The file has the database now, so only the gates are left to ask for; Enter means yes.
    let mut init = Terminal::run(place.command(&["init"]));
    init.wait_for("Open every gate").await;
    init.press("\n");
    assert_eq!(init.wait_exit().await.code(), Some(0), "{}", init.screen());
    assert!(!init.text().contains("PostgreSQL URL"), "{}", init.text());
    assert_eq!(db.text(closed).await, "false");

    let mut init = Terminal::run(place.command(&["init", "--yes"]));
    assert_eq!(init.wait_exit().await.code(), Some(0), "{}", init.screen());
    init.wait_for("already open").await;
    assert!(!init.text().contains("Open every gate"), "{}", init.text());
}
