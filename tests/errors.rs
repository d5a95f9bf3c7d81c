//! An error is one clear message and a non-zero exit code, and leaves nothing half-written.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use towpath_testkit::TestDb;
use towpath_testkit::proxy::{Fault, FaultProxy};

use crate::old;
use crate::towpath::{Place, words};

/// One line on standard error (besides log lines), all of `parts` in it, and the code.
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message: Vec<&str> = stderr.lines().filter(|line| line.starts_with("towpath: ")).collect();
    assert_eq!(message.len(), 1, "{}", words(output));
    for part in parts {
        assert!(message[0].contains(part), "{part:?} is missing in {}", message[0]);
    }
    assert_eq!(output.status.code(), Some(code), "{}", words(output));
}

/// Runs `towpath up` against an address.
fn up_on(place: &Place, url: &str) -> Output {
    place.command(&["up"]).env("DATABASE_URL", url).output().unwrap()
}

/// O02: an invalid address.
#[test]
fn a_wrong_database_url() {
    let place = Place::new();
    refused(
        &up_on(&place, "mysql://x"),
        1,
        &["DATABASE_URL is not a PostgreSQL address", "postgresql://user"],
    );
    refused(&up_on(&place, "postgresql://"), 1, &["DATABASE_URL"]);
    assert!(!place.data().exists(), "nothing was written");
}

/// O02: a closed port, and a server that never answers.
#[tokio::test]
async fn an_unreachable_server() {
    let place = Place::new();
    refused(
        &up_on(&place, "postgresql://u:secretword@127.0.0.1:1/d"),
        1,
        &["cannot connect to database d on 127.0.0.1:1", "check DATABASE_URL"],
    );
    assert!(!words(&up_on(&place, "postgresql://u:secretword@127.0.0.1:1/d")).contains("secretword"));
    let proxy = FaultProxy::start("127.0.0.1:1".parse::<std::net::SocketAddr>().unwrap()).await;
    proxy.set(Fault::Stall);
    let url = format!("postgresql://u@{}/d", proxy.addr());
    let output = tokio::task::spawn_blocking(move || up_on(&place, &url)).await.unwrap();
    refused(&output, 1, &["cannot connect to database d"]);
}

/// O02: a database that does not exist, and a user that may not migrate.
#[tokio::test]
async fn a_server_that_refuses() {
    let place = Place::new();
    let db = TestDb::empty().await;
    refused(&up_on(&place, &db.url().replace(db.name(), "no_such")), 1, &["no_such", "does not exist"]);
    db.execute("do $$ begin create role powerless login; exception when duplicate_object then null; end $$")
        .await;
    let output = up_on(&place, &db.url().replace("postgres@", "powerless@"));
    // PostgreSQL's own words depend on whether another database of the server has the roles already.
    refused(&output, 1, &["42501", "may create roles"]);
    assert_eq!(db.text("to_regnamespace('towpath')").await, "null", "nothing half-written");
}

/// O02: a command without an installation says how to start one, and creates nothing.
#[test]
fn a_place_with_nothing_in_it() {
    let place = Place::new();
    refused(&place.run(&["job", "list"]), 1, &["nothing is installed in ./.towpath", "towpath up", "--data"]);
    refused(&place.run(&["work"]), 1, &["towpath up"]);
    let unreachable = place.run(&["stream", "list"]);
    refused(
        &unreachable,
        1,
        &["cannot reach http://127.0.0.1:", "Connection refused", "towpath up", "--url"],
    );
    assert!(
        !words(&unreachable).contains("error sending request"),
        "the cause alone: {}",
        words(&unreachable)
    );
    assert!(!place.data().exists(), "nothing was written");
}

/// O02: the message about a typo shows the right form.
#[tokio::test]
async fn words_that_are_none() {
    let place = Place::new();
    let says = |arguments: &[&str], part: &str| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains(part), "{part:?} is missing in {}", words(&output));
    };
    says(&["job", "show", "12"], "expected a UUID such as 0190f5a4-");
    says(&["up", "--listen", "nowhere"], "such as 127.0.0.1:4437");
    let db = TestDb::new().await;
    let run = |arguments: &[&str]| place.command(arguments).env("DATABASE_URL", db.url()).output().unwrap();
    refused(&run(&["process", "list", "--state", "bad"]), 1, &["state: must be one of open, held"]);
    refused(&run(&["config", "set", "nope", "1", "--why", "x"]), 1, &["towpath config list"]);
    let answer = run(&["db", "psql", "-XAtc", "select 40 + 2"]);
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "42", "{}", words(&answer));
}

/// O02: the port is taken; nothing was started or written yet.
#[tokio::test]
async fn a_port_in_use() {
    let place = Place::new();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", place.port)).unwrap();
    refused(&place.run(&["up"]), 1, &["cannot listen on", "--listen"]);
    assert!(!place.data().exists(), "nothing was written");
}

/// A public address without access control is refused.
#[test]
fn a_public_address() {
    let place = Place::new();
    refused(&place.run(&["up", "--listen", "0.0.0.0:0"]), 1, &["is public", "127.0.0.1"]);
    assert!(!place.data().exists(), "nothing was written");
}

/// O02: the data directory cannot be written. Root may write anywhere but to a file's
/// inside, so a file stands in for a read-only file system.
#[test]
fn an_unusable_data_directory() {
    let place = Place::new();
    std::fs::write(place.dir.join("file"), "").unwrap();
    refused(&place.run(&["up", "--data", "file/data"]), 1, &["cannot write to the data directory", "--data"]);
    if nix::unistd::Uid::effective().is_root() {
        return;
    }
    std::fs::set_permissions(&place.dir, std::fs::Permissions::from_mode(0o555)).unwrap();
    refused(&place.run(&["up"]), 1, &["cannot write to the data directory", "--data"]);
    std::fs::set_permissions(&place.dir, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory with other files is not overwritten.
#[test]
fn a_directory_with_other_files() {
    let place = Place::new();
    std::fs::create_dir_all(place.data().join("postgres")).unwrap();
    std::fs::write(place.data().join("postgres/precious"), "keep").unwrap();
    refused(&place.run(&["up"]), 1, &["is not a PostgreSQL directory"]);
    assert_eq!(std::fs::read_to_string(place.data().join("postgres/precious")).unwrap(), "keep");
}

/// O02: garbage, unknown keys and wrong values in the settings file.
#[test]
fn a_bad_settings_file() {
    let place = Place::new();
    let with = |text: &str| {
        std::fs::write(place.dir.join("towpath.toml"), text).unwrap();
        place.run(&["up"])
    };
    refused(&with("data = \n\u{1}\u{2}"), 2, &["towpath.toml", "is not TOML"]);
    refused(&with("lisen = '127.0.0.1:1'"), 2, &["towpath.toml", "did you mean listen?"]);
    let wrong = with("log_format = 'xml'");
    assert_eq!(wrong.status.code(), Some(2), "{}", words(&wrong));
    assert!(words(&wrong).contains("xml") && words(&wrong).contains("text, json"), "{}", words(&wrong));
    std::fs::remove_file(place.dir.join("towpath.toml")).unwrap();
    refused(&place.run(&["--config", "gone.toml", "up"]), 2, &["cannot read the settings file gone.toml"]);
    let mut slip = place.command(&["up"]);
    refused(&slip.env("TOWPATH_LISEN", "x").output().unwrap(), 2, &["did you mean TOWPATH_LISTEN?"]);
    assert!(!place.data().exists(), "nothing was written");
}

/// Settings: the file is below the environment, which is below a flag; secrets are not shown.
#[test]
fn settings_come_from_the_strongest_place() {
    let place = Place::new();
    let file = "data = 'from-file'\nlog_level = 'warn'\ndatabase_url = 'postgresql://u:secretword@h/d'";
    std::fs::write(place.dir.join("towpath.toml"), file).unwrap();
    let mut command = place.command(&["settings", "--json", "--data", "from-flag"]);
    let output = command.env("TOWPATH_LOG_LEVEL", "debug").output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| shown.as_array().unwrap().iter().find(|s| s["key"] == key).unwrap().clone();
    assert_eq!(of("data"), serde_json::json!({"key": "data", "value": "from-flag", "from": "flag"}));
    assert_eq!(of("log_level")["from"], "TOWPATH_LOG_LEVEL");
    assert_eq!(of("database_url")["value"], "postgresql://u:***@h/d");
    assert_eq!(of("database_url")["from"], "towpath.toml");
    assert_eq!(of("log_format")["from"], "default");
}

/// O02: the programs of PostgreSQL 14 are refused before anything is created.
#[test]
fn an_old_postgresql_is_not_started() {
    let place = Place::new();
    let bin = place.dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in ["initdb", "postgres"] {
        let path = bin.join(program);
        std::fs::write(&path, "#!/bin/sh\necho 'postgres (PostgreSQL) 14.11'\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = place.run(&["up", "--postgres-bin", bin.to_str().unwrap()]);
    refused(&output, 1, &["only PostgreSQL 14", "15 or newer is required", "apt-get install postgresql"]);
    assert!(!place.data().exists(), "nothing was made");
    let empty = place.run(&["up", "--postgres-bin", place.dir.to_str().unwrap()]);
    refused(&empty, 1, &["no PostgreSQL server in", "apt-get install postgresql"]);
}

/// O02: a PostgreSQL 14 at DATABASE_URL is refused before anything is written.
#[tokio::test]
async fn an_old_server_is_refused() {
    let place = Place::new();
    let server = old::Server::start(&place).await;
    refused(
        &up_on(&place, &server.url),
        1,
        &["the server is PostgreSQL 14, but 15 or newer is required", "upgrade"],
    );
    let doctor = place.command(&["doctor"]).env("DATABASE_URL", &server.url).output().unwrap();
    assert_eq!(doctor.status.code(), Some(4), "{}", words(&doctor));
}

/// A data directory of another release says which package is missing.
#[test]
fn a_directory_of_another_release() {
    let place = Place::new();
    std::fs::create_dir_all(place.data().join("postgres")).unwrap();
    std::fs::write(place.data().join("postgres/PG_VERSION"), "99\n").unwrap();
    refused(&place.run(&["up"]), 1, &["was created by PostgreSQL 99", "apt-get install postgresql-99"]);
}

/// The message about an unknown gate or key names the nearest one; blank reasons are refused.
#[tokio::test]
async fn gates_and_keys_that_do_not_exist() {
    let place = Place::new();
    let db = TestDb::new().await;
    let run = |arguments: &[&str]| place.command(arguments).env("DATABASE_URL", db.url()).output().unwrap();
    refused(
        &run(&["gate", "open", "queue.worker.enable", "--why", "x"]),
        1,
        &["did you mean queue.worker.enabled?"],
    );
    let blank = run(&["gate", "open", "queue.worker.enabled", "--why", " "]);
    assert_eq!(blank.status.code(), Some(2));
    assert!(words(&blank).contains("must not be empty; it is recorded with the change"), "{}", words(&blank));
    refused(
        &run(&["config", "set", "queue.lease.duration_sec", "-1", "--why", "x"]),
        1,
        &["queue.lease.duration_sec: must be a number"],
    );
    refused(&run(&["config", "set", "no.such", "1", "--why", "x"]), 1, &["no config key"]);
    refused(
        &run(&["config", "set", "queue.lease.duration_sec", "0", "--why", "x"]),
        1,
        &["between 1 and 86400"],
    );
}

/// O02: `doctor` without a database, with an unreachable server, and its exit codes.
#[tokio::test]
async fn doctor_has_codes_for_scripts() {
    let place = Place::new();
    let fresh = place.run(&["doctor"]);
    assert_eq!(fresh.status.code(), Some(0), "{}", words(&fresh));
    assert!(words(&fresh).contains("-> towpath up") && !place.data().exists(), "{}", words(&fresh));
    let doctor = |url: &str| place.command(&["doctor", "--json"]).env("DATABASE_URL", url).output().unwrap();
    assert_eq!(doctor("postgresql://u@127.0.0.1:1/d").status.code(), Some(4));
    let db = TestDb::empty().await;
    let output = doctor(&db.url());
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |check: &str| {
        let found = findings.as_array().unwrap().iter().find(|f| f["check"] == check);
        found.unwrap_or_else(|| panic!("no {check} in {findings}")).clone()
    };
    assert_eq!(of("schema")["fix"], "towpath migrate");
    // The test server may lose everything, and doctor must see it.
    assert_eq!(of("durability")["level"], "fail");
    assert_eq!(output.status.code(), Some(4));
}

/// O04: with --json errors are JSON too, also those of the command line; wrong values get an example of a right one.
#[tokio::test]
async fn errors_are_json_for_scripts() {
    let place = Place::new();
    let db = TestDb::new().await;
    let run = |arguments: &[&str]| {
        let output = place.command(arguments).env("DATABASE_URL", db.url()).output().unwrap();
        let error: serde_json::Value =
            serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{}", words(&output)));
        assert_eq!(error["exit_code"].as_i64(), output.status.code().map(i64::from), "{error}");
        assert!(output.stdout.is_empty(), "{}", words(&output));
        error["error"].as_str().unwrap().to_owned()
    };
    assert!(
        run(&["--json", "job", "show", "00000000-0000-7000-8000-000000000000"]).contains("there is no job")
    );
    assert!(
        run(&["job", "enqueue", "x", "--priority", "high", "--json"]).contains("a whole number, such as 100")
    );
    assert!(run(&["--json", "gate", "open"]).contains("required"));
    assert!(run(&["job", "list", "--payload", "order", "--json"]).contains("order=7"));
}

/// O03: what people type first is answered with help, or understood.
#[tokio::test]
async fn what_people_type_first_works() {
    let place = Place::new();
    let nothing = place.run(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(
        words(&nothing).contains("Start:") && words(&nothing).contains("towpath up --help"),
        "{}",
        words(&nothing)
    );
    let alike = |arguments: [&str; 3]| place.ok(&arguments);
    assert_eq!(alike(["gate", "open", "-h"]), alike(["gates", "open", "--help"]));
    assert!(!alike(["gate", "open", "-h"]).contains("smtp"));
    let db = TestDb::open().await;
    let with = |arguments: &[&str]| {
        let output = place.command(arguments).env("DATABASE_URL", db.url()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(with(&["route", "list"]).contains("no routes"));
    assert_eq!(with(&["jobs", "list", "--payload", "order=7"]).trim(), "no jobs");
    assert!(with(&["complete", "--", "gate", "open", "queue.w"]).contains("queue.worker.enabled\n"));
    // Silent and soon without a database.
    let mut command = place.command(&["complete", "--", "gate", "open", ""]);
    let output = command.env("DATABASE_URL", "postgresql://u@127.0.0.1:1/d").output().unwrap();
    assert!(
        output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
        "{}",
        words(&output)
    );
}
