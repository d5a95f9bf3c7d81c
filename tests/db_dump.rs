//! `towpath db dump`, and both backups of a system in use, restored elsewhere.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_db::cluster::Binaries;
use towpath_db::event::NewEvent;
use towpath_db::job::NewJob;
use towpath_testkit::victim::Victim;
use towpath_testkit::{TestDb, wait};

use crate::towpath::{Place, words};

/// One of PostgreSQL's programs.
fn program(name: &str) -> Command {
    let dir = towpath_testkit::database::programs();
    Command::new(Binaries::find(dir.as_deref(), None).unwrap().dir.join(name))
}

const WAITING: &str = "select count(*) from pg_locks l join pg_stat_activity a using (pid) \
                       where a.datname = current_database() and a.application_name = 'pg_dump' and not l.granted";

/// O05: `pg_dump` alone fails if maintenance replaces a partition after it has listed the tables and before it has locked
/// them. `db dump` holds maintenance off, waits for what already runs, and says so if there is no backup.
#[tokio::test(flavor = "multi_thread")]
async fn maintenance_waits_for_a_dump() {
    let db = TestDb::open().await;
    let place = Place::new();
    let other = db.client().await;
    // One locked table stops pg_dump where it is most vulnerable.
    let stop = "begin; lock table towpath.schema_migration in access exclusive mode";
    other.batch_execute(stop).await.unwrap();
    let file = place.dir.join("plain.dump");
    let mut plain = program("pg_dump");
    let plain = plain.arg("--file").arg(&file).arg(db.url()).stderr(Stdio::piped()).spawn().unwrap();
    db.until(WAITING, "1").await;
    let replace = "select towpath._partition_replace('event_position', 'event_position_default')";
    db.execute(&format!("set role towpath_owner; {replace}; reset role")).await;
    other.batch_execute("rollback").await.unwrap();
    let plain = plain.wait_with_output().unwrap();
    assert!(words(&plain).contains("cache lookup failed for relation"), "{}", words(&plain));

    let dump = |file: &str| {
        let mut command = place.command(&["db", "dump", file]);
        command.env("DATABASE_URL", db.url());
        command
    };
    let running = "begin; select pg_advisory_xact_lock(7304, 1)";
    other.batch_execute(running).await.unwrap();
    let mut dumping = Victim::spawn(dump("whole.dump"));
    let held = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                and database = (select oid from pg_database where datname = current_database())";
    db.until(held, "1").await;
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(dumping.wait_exit().await.code(), Some(0), "{:?}", dumping.lines());

    other.batch_execute(stop).await.unwrap();
    let mut dumping = Victim::spawn(dump("again.dump"));
    db.until(WAITING, "1").await;
    let ticks = [
        "fn_event_partition_tick()",
        "fn_event_retention_tick()",
        "fn_job_partition_tick()",
        "fn_job_retention_tick()",
        "fn_payload_retention_tick()",
    ];
    for tick in ticks {
        assert_eq!(db.call(tick).await["busy"], true, "{tick}");
    }
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(dumping.wait_exit().await.code(), Some(0), "{:?}", dumping.lines());
    dumping.wait_for_line("bytes in again.dump").await;
    // The server notices a moment later that the dump's connection has ended.
    for tick in ticks {
        wait::until(tick, async || db.call(tick).await["busy"].clone(), |busy| *busy == false).await;
    }
    let refused = dump("no/such/directory").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", words(&refused));
    assert!(words(&refused).contains("no/such/directory is no backup"), "{}", words(&refused));
}

/// Jobs, events and appends until it is stopped; what was acknowledged, in order.
struct Load {
    database: Database,
    stream: String,
    done: AtomicUsize,
    stop: CancellationToken,
}

/// A job, and the offset behind the append that followed it.
type Acknowledged = (String, String);

impl Load {
    async fn run(self: Arc<Load>) -> Vec<Acknowledged> {
        let http = reqwest::Client::new();
        let mut acknowledged = vec![];
        while !self.stop.is_cancelled() {
            let job = self.database.enqueue(&NewJob::new("towpath.noop")).await.unwrap().job_id;
            self.database.event_emit(&NewEvent::new("orders", "placed")).await.unwrap();
            let append = http.post(&self.stream).header("content-type", "text/plain").body(format!("{job}|"));
            let answer = append.send().await.unwrap();
            assert_eq!(answer.status(), 204);
            let offset = answer.headers()["stream-next-offset"].to_str().unwrap().to_owned();
            acknowledged.push((job.to_string(), offset));
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        acknowledged
    }
}

/// S06, O05: the database and the streams, backed up while jobs, events and appends go on, and restored on a PostgreSQL
/// that knows nothing of Towpath: everything acknowledged before the backup began is there, offsets are the same, every
/// job ends, and work goes on.
#[tokio::test(flavor = "multi_thread")]
async fn both_backups_under_load_are_restored_elsewhere() {
    let place = Place::new();
    let mut up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["stream", "create", "notes", "--content-type", "text/plain"]);
    let url = place.ok(&["db", "url"]);
    let load = Arc::new(Load {
        database: Database::connect(url.trim()).await.unwrap(),
        stream: format!("http://127.0.0.1:{}/v1/stream/notes", place.port),
        done: AtomicUsize::new(0),
        stop: CancellationToken::new(),
    });
    let running = tokio::spawn(load.clone().run());
    let done = async || load.done.load(Ordering::SeqCst);
    wait::until("some work", done, |n| *n > 100).await;
    let before = done().await;
    let here = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    for arguments in [&["db", "dump", "towpath.dump"][..], &["stream", "backup", "streams"]] {
        let output = here(arguments).await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
    }
    let run = |command: &mut Command| {
        let output = command.current_dir(&place.dir).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", words(&output));
    };
    run(program("pg_dumpall")
        .args(["--roles-only", "--no-role-passwords", "--file", "roles.sql", "--dbname"])
        .arg(url.trim()));
    run(program("pg_restore").args(["--file", "towpath.sql", "towpath.dump"]));
    wait::until("work after the backup", done, |n| *n > before + 100).await;
    load.stop.cancel();
    let acknowledged = running.await.unwrap();
    up.kill().await;

    let other = Place::new();
    let file = |name: &str| place.dir.join(name).display().to_string();
    // The superuser is there already, as on every PostgreSQL.
    other.ok(&["db", "psql", "--", "-X", "--quiet", "-f", &file("roles.sql")]);
    other.ok(&["db", "psql", "--", "-X", "--quiet", "-v", "ON_ERROR_STOP=1", "-f", &file("towpath.sql")]);
    other.ok(&["stream", "restore", &file("streams")]);
    let mut up = Victim::spawn(other.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    let count =
        |sql: &str| other.ok(&["db", "psql", "--", "-X", "-At", "-c", sql]).trim().parse::<usize>().unwrap();
    let ids: Vec<_> = acknowledged[..before].iter().map(|(job, _)| format!("'{job}'")).collect();
    let jobs = format!("select count(*) from towpath.job_queue where job_id in ({})", ids.join(", "));
    assert_eq!(count(&jobs), before, "jobs that were acknowledged before the backup");
    let events = count("select count(*) from towpath.event_outbox where event_domain = 'orders'");
    assert!((before..acknowledged.len()).contains(&events), "{events} events");
    let ended = format!("{jobs} and state = 'succeeded'");
    wait::until("the end of every job", async || count(&ended), |n| *n == before).await;
    let read = async |offset: &str| {
        let url = format!("http://127.0.0.1:{}/v1/stream/notes?offset={offset}", other.port);
        reqwest::get(url).await.unwrap().text().await.unwrap()
    };
    let whole = read("-1").await;
    let written: String = acknowledged.iter().map(|(job, _)| format!("{job}|")).collect();
    assert!(written.starts_with(&whole) && whole.matches('|').count() >= before, "{whole}");
    for at in [0, before / 2, before - 1] {
        let length: usize = acknowledged[..=at].iter().map(|(job, _)| job.len() + 1).sum();
        assert_eq!(read(&acknowledged[at].1).await, whole[length..], "the offset behind append {at}");
    }
    other.ok(&["job", "enqueue", "towpath.noop", "--watch"]);
    other.ok(&["stream", "append", "notes", "more"]);
    up.terminate();
    assert_eq!(up.wait_exit().await.code(), Some(0));
}
