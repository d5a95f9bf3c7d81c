//! `towpath migrate` from the command line.

use std::io::Write;
use std::process::{Command, Stdio};

use towpath_testkit::TestDb;

use crate::towpath::{Place, words};

const CATALOGUE: &str = "select string_agg(identity || e'\\n' || definition, e'\\n' order by identity) \
                         from towpath._schema_catalogue()";

/// O06: two at once against one empty database: both succeed, one schema.
#[tokio::test]
async fn two_migrations_at_once_both_succeed() {
    let (place, db) = (Place::new(), TestDb::empty().await);
    let migrate =
        || place.command(&["migrate"]).env("DATABASE_URL", db.url()).stdout(Stdio::piped()).spawn().unwrap();
    let both = [migrate(), migrate()];
    let mut said = vec![];
    for run in both {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        said.push(String::from_utf8(output.stdout).unwrap());
    }
    said.sort();
    assert!(said[0].contains("0001_base: done"), "{said:?}");
    assert!(said[1].contains("the schema is up to date"), "{said:?}");
}

/// O06: the printed SQL, run by psql on another database, gives the same catalogue.
#[tokio::test]
async fn the_printed_sql_gives_the_same_catalogue() {
    let place = Place::new();
    let (ours, theirs) = (TestDb::empty().await, TestDb::empty().await);
    let output = place.command(&["migrate"]).env("DATABASE_URL", ours.url()).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let sql = place.ok(&["migrate", "--dump-sql"]);
    let mut psql = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", &theirs.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
    assert_eq!(ours.text(CATALOGUE).await, theirs.text(CATALOGUE).await);
    // And the binary finds nothing left to do on it.
    let check = place.command(&["migrate", "--check"]).env("DATABASE_URL", theirs.url()).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", words(&check));
}

/// O06: the exit code of `--check` says whether there is something to do; `--dry-run` changes nothing.
#[tokio::test]
async fn check_and_dry_run_change_nothing() {
    let (place, db) = (Place::new(), TestDb::empty().await);
    let run = |flag: &str| place.command(&["migrate", flag]).env("DATABASE_URL", db.url()).output().unwrap();
    assert_eq!(run("--check").status.code(), Some(3));
    let dry = run("--dry-run");
    assert!(dry.status.success() && words(&dry).contains("rolled back"), "{}", words(&dry));
    assert_eq!(db.text("to_regnamespace('towpath')").await, "null");
    assert_eq!(run("--check").status.code(), Some(3));
}
