//! What works through PgBouncer, as docs/guides/production.md says: applications in transaction mode, Towpath itself in
//! session mode.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tokio_postgres::{NoTls, SimpleQueryMessage};
use towpath_db::event::NewEvent;
use towpath_db::job::NewJob;
use towpath_testkit::TestDb;
use towpath_testkit::victim::Victim;

use crate::towpath::{Place, words};

/// Debian's packages of PgBouncer and the two libraries that a minimal system lacks.
const PACKAGES: [&str; 3] = ["pgbouncer", "libevent-2.1-7", "libc-ares2"];

struct Pooler {
    url: String,
    _process: Victim,
}

impl Pooler {
    /// In front of a database, with few connections, so that clients share them.
    async fn start(place: &Place, db: &TestDb, mode: &str, size: usize) -> Pooler {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config: tokio_postgres::Config = db.url().parse().unwrap();
        let host = match &config.get_hosts()[0] {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        };
        let (name, user) = (config.get_dbname().unwrap(), config.get_user().unwrap());
        let server = config.get_ports().first().map_or_else(String::new, |port| format!("port={port}"));
        let text = format!(
            "[databases]\nd = host={host} {server} dbname={name} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\nunix_socket_dir =\n{}",
            without_prepared_statements()
        );
        let file = place.dir.join(format!("{mode}.ini"));
        std::fs::write(&file, text).unwrap();
        let (program, libraries) = program();
        let mut command = Command::new(program);
        command.arg(&file).env("LD_LIBRARY_PATH", libraries).current_dir("/");
        // It refuses to run as root.
        if nix::unistd::Uid::effective().is_root() {
            let user = nix::unistd::User::from_name("postgres").unwrap().unwrap();
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let process = Victim::spawn(command);
        process.wait_for_line("process up").await;
        Pooler { url: format!("postgresql://{user}@127.0.0.1:{port}/d"), _process: process }
    }
}

/// PgBouncer can keep prepared statements since 1.21, where it is told to. Off, so that every version does the same;
/// older ones do not know the setting.
fn without_prepared_statements() -> &'static str {
    let (program, libraries) = program();
    let output = Command::new(program).arg("--version").env("LD_LIBRARY_PATH", libraries).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.trim_start_matches("PgBouncer ").split('.').take(2).map(str::parse::<u32>);
    let version: Vec<u32> =
        version.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{text}: {error}"));
    if version >= vec![1, 21] { "max_prepared_statements = 0\n" } else { "" }
}

/// The program: installed, or fetched once per machine into the temporary directory.
fn program() -> (PathBuf, PathBuf) {
    if PathBuf::from("/usr/sbin/pgbouncer").exists() {
        return ("/usr/sbin/pgbouncer".into(), PathBuf::new());
    }
    let prefix = std::env::temp_dir().join("towpath-pgbouncer");
    let done = prefix.join("complete");
    if !done.exists() {
        std::fs::create_dir_all(&prefix).unwrap();
        let run = |command: &mut Command| {
            let output = command.current_dir(&prefix).output().unwrap();
            assert!(output.status.success(), "{command:?}: {}", words(&output));
        };
        run(Command::new("apt-get").arg("download").args(PACKAGES));
        for file in std::fs::read_dir(&prefix).unwrap().flatten() {
            if file.path().extension().is_some_and(|ending| ending == "deb") {
                run(Command::new("dpkg").arg("-x").arg(file.path()).arg("."));
            }
        }
        std::fs::write(done, "").unwrap();
    }
    let libraries = std::fs::read_dir(prefix.join("usr/lib")).unwrap().flatten();
    let libraries =
        libraries.map(|entry| entry.path()).find(|path| path.display().to_string().ends_with("-linux-gnu"));
    (prefix.join("usr/sbin/pgbouncer"), libraries.unwrap_or_default())
}

/// O05: in transaction mode, applications enqueue and emit with the SQL functions and with the crate's functions, many
/// over one connection. A program of Towpath's that meets the statements of another one ends and says why.
#[tokio::test(flavor = "multi_thread")]
async fn in_transaction_mode_applications_work_and_towpath_says_why_not() {
    let db = TestDb::open().await;
    let place = Place::new();
    let pooled = Pooler::start(&place, &db, "transaction", 1).await;
    let mut clients = vec![];
    for _ in 0..3 {
        let (client, connection) = tokio_postgres::connect(&pooled.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        clients.push(client);
    }
    for round in 0..4 {
        for client in &mut clients {
            let sql = "begin; select towpath.enqueue('towpath.noop', '{}'); select towpath.emit('orders', 'placed'); commit";
            let answer = client.simple_query(sql).await.unwrap();
            let rows = answer.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count();
            assert_eq!(rows, 2, "round {round}");
            let transaction = client.transaction().await.unwrap();
            towpath_db::job::enqueue(&transaction, &NewJob::new("towpath.noop")).await.unwrap();
            towpath_db::event::emit(&transaction, &NewEvent::new("orders", "placed")).await.unwrap();
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!(db.text("select count(*) from towpath.job_queue").await, "24");
    assert_eq!(
        db.text("select count(*) from towpath.event_outbox where event_domain = 'orders'").await,
        "24"
    );

    // One session for all. The first command prepares statements in it; the others meet them.
    let run =
        |arguments: &[&str]| place.command(arguments).env("DATABASE_URL", &pooled.url).output().unwrap();
    run(&["job", "list"]);
    for arguments in [&["job", "list"][..], &["job", "enqueue", "towpath.noop"], &["up"]] {
        let output = run(arguments);
        let told = words(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(
            told.contains("a pooler in transaction mode, but Towpath needs sessions"),
            "{arguments:?}: {told}"
        );
    }
    assert_eq!(db.text("select count(*) from towpath.job_queue").await, "24", "nothing was half done");
}

/// O05: in session mode, `up` runs jobs, is woken by notifications, and commands work.
#[tokio::test(flavor = "multi_thread")]
async fn in_session_mode_towpath_runs() {
    let db = TestDb::open().await;
    let place = Place::new();
    let sessions = Pooler::start(&place, &db, "session", 60).await;
    let mut command = place.command(&["up"]);
    command.env("DATABASE_URL", &sessions.url);
    let mut up = Victim::spawn(command);
    up.wait_for_line("towpath is ready").await;
    for _ in 0..3 {
        let mut command = place.command(&["job", "enqueue", "towpath.noop", "--watch"]);
        let output = command.env("DATABASE_URL", &sessions.url).output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
    }
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
}
