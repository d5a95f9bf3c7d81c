//! Workers as processes of their own, through everything that happens to processes: nothing is lost, and nothing ends
//! twice.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use towpath::testing::prepare;
use towpath::{Client, Context, Failure, Job};
use towpath_db::Database;
use towpath_db::cluster::{Cluster, Config};
use towpath_testkit::background::Background;
use towpath_testkit::database::{programs, scratch};
use towpath_testkit::victim::Victim;
use towpath_testkit::wait::{until_some, until_true};
use towpath_worker::Maintenance;

use crate::Resize;

const URL_VARIABLE: &str = "TOWPATH_BATTERY_URL";
const JOBS: i64 = 10_000;
const LEASE: Duration = Duration::from_secs(2);

/// A PostgreSQL of its own, which keeps what it commits when it is killed, with maintenance beside it.
struct Place {
    cluster: Cluster,
    dir: PathBuf,
    maintenance: Background,
}

impl Place {
    async fn open() -> Place {
        let dir = scratch("towpath-battery-");
        let config = Config { data: dir.clone(), bin: programs(), ..Default::default() };
        let cluster = Cluster::start(&config).await.unwrap();
        prepare(&Client::connect(cluster.url()).await.unwrap()).await.unwrap();
        let maintenance = Maintenance::new(Database::connect(cluster.url()).await.unwrap());
        let maintenance = Background::start(|shutdown| maintenance.run(shutdown));
        Place { cluster, dir, maintenance }
    }

    /// A worker process: this test binary, told to run [`worker_process`] only.
    fn worker(&self) -> Victim {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "battery::worker_process", "--ignored", "--nocapture"]);
        command.env(URL_VARIABLE, self.cluster.url());
        Victim::spawn(command)
    }

    async fn client(&self) -> Option<tokio_postgres::Client> {
        let connected = tokio_postgres::connect(self.cluster.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// What a query says, once the server answers.
    async fn number(&self, sql: &str) -> i64 {
        until_some(sql, async || self.client().await?.query_one(sql, &[]).await.ok()?.get(0)).await
    }

    /// Waits until at most so many jobs are left, and answers how many.
    async fn until_left(&self, most: i64) -> i64 {
        let sql = "select count(*) from towpath.job_queue where state <> 'succeeded'";
        until_some(format!("at most {most} jobs are left"), async || {
            let left = self.number(sql).await;
            (left <= most).then_some(left)
        })
        .await
    }

    async fn execute(&self, sql: &str) {
        self.client().await.unwrap().batch_execute(sql).await.unwrap();
    }

    async fn set_gate(&self, open: bool) {
        let sql = "update towpath.config set value = '{}' where key = 'queue.job_substrate.enabled'";
        self.execute(&sql.replace("{}", &open.to_string())).await;
    }

    /// The process of the server.
    async fn postmaster(&self) -> i32 {
        let sql = "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::bigint";
        i32::try_from(self.number(sql).await).unwrap()
    }

    async fn close(self) {
        self.maintenance.stop().await;
        self.cluster.stop().await;
        let _ = std::fs::remove_dir_all(self.dir);
    }
}

/// The end of one attempt, as the database has it.
#[derive(Clone)]
struct End {
    job: String,
    attempt: i32,
    outcome: String,
}

/// What is wrong with a history: jobs that were lost, and attempts and jobs that ended twice.
fn faults(jobs: &[String], ends: &[End]) -> Vec<String> {
    let mut found = vec![];
    let mut attempts = HashSet::new();
    let mut succeeded: HashMap<&str, i32> = HashMap::new();
    for End { job, attempt, outcome } in ends {
        if !attempts.insert((job, attempt)) {
            found.push(format!("attempt {attempt} of {job} ended twice"));
        }
        if outcome == "succeeded" {
            *succeeded.entry(job).or_default() += 1;
        }
    }
    let times = |job: &String| succeeded.get(job.as_str()).copied().unwrap_or(0);
    let wrong = jobs.iter().filter(|job| times(job) != 1);
    found.extend(wrong.map(|job| format!("{job} succeeded {} times", times(job))));
    found
}

#[test]
fn the_checker_finds_what_must_not_happen() {
    let end = |job: &str, attempt, outcome: &str| End { job: job.into(), attempt, outcome: outcome.into() };
    let (good, failed, later) = (end("a", 1, "succeeded"), end("b", 1, "failed"), end("b", 2, "succeeded"));
    let jobs = ["a".to_owned(), "b".to_owned()];
    let check = |ends: &[&End]| faults(&jobs, &ends.iter().copied().cloned().collect::<Vec<_>>());
    assert_eq!(check(&[&good, &failed, &later]), [""; 0]);
    assert_eq!(check(&[&good, &failed]), ["b succeeded 0 times"]);
    assert_eq!(check(&[&good, &later, &end("a", 2, "succeeded")]), ["a succeeded 2 times"]);
    assert_eq!(check(&[&good, &failed, &failed, &later]), ["attempt 1 of b ended twice"]);
}

/// Not a test: what a worker process of the battery runs.
#[tokio::test]
#[ignore = "a process of the battery"]
async fn worker_process() {
    let Ok(url) = std::env::var(URL_VARIABLE) else { return };
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
    let client = Client::connect(url).await.unwrap();
    let resize = async |job: Resize, ctx: Context| {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => Ok(job.image),
            () = ctx.lost().cancelled() => Err(Failure::retry("lost")),
        }
    };
    let worker = client.worker("images").lease(LEASE).handle(resize).build().unwrap();
    worker.run_until_signal().await.unwrap();
}

/// Q08, Q10, Q11: of 10,000 jobs every one succeeds exactly once, although a worker is killed, one is stopped for longer
/// than its lease, one drains, the gate is closed for a while, and PostgreSQL is killed.
#[tokio::test(flavor = "multi_thread")]
async fn workers_lose_no_job_and_end_none_twice() {
    let place = Place::open().await;
    let client = Client::connect(place.cluster.url()).await.unwrap();
    let mut connection = place.client().await.unwrap();
    for image in (0..JOBS).step_by(1_000) {
        let transaction = connection.transaction().await.unwrap();
        let jobs =
            (image..image + 1_000).map(|image| (Resize { image }, Resize::defaults().max_attempts(20)));
        towpath::enqueue_many(&transaction, jobs).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let (mut killed, stalled, mut drained) = (place.worker(), place.worker(), place.worker());

    assert!(place.until_left(JOBS * 9 / 10).await > 0);
    killed.kill().await;
    let replacement = place.worker();

    assert!(place.until_left(JOBS * 8 / 10).await > 0);
    stalled.pause();

    assert!(place.until_left(JOBS * 6 / 10).await > 0);
    let mark = replacement.mark();
    place.set_gate(false).await;
    replacement.wait_for_line_after(mark, "is closed").await;
    place.set_gate(true).await;

    assert!(place.until_left(JOBS * 5 / 10).await > 0);
    let before = place.postmaster().await;
    kill(Pid::from_raw(before), Signal::SIGQUIT).unwrap();
    until_true("another PostgreSQL", async || place.postmaster().await != before).await;

    assert!(place.until_left(JOBS * 3 / 10).await > 0);
    let mark = stalled.mark();
    stalled.resume();

    assert!(place.until_left(JOBS * 2 / 10).await > 0);
    drained.terminate();
    assert!(drained.wait_exit().await.success(), "{:?}", drained.lines());
    let held =
        format!("select count(*) from towpath.job_queue where lease_owner like '%-{}#%'", drained.pid());
    assert_eq!(place.number(&held).await, 0, "a drained worker holds nothing");

    place.until_left(0).await;
    // It had results for attempts that the reaper has given to others.
    stalled.wait_for_line_after(mark, "too late").await;
    let connection = place.client().await.unwrap();
    let sql = "select job_id::text, attempt::integer, outcome::text from towpath._job_run_each";
    let rows = connection.query(sql, &[]).await.unwrap();
    let ends: Vec<End> =
        rows.iter().map(|row| End { job: row.get(0), attempt: row.get(1), outcome: row.get(2) }).collect();
    let jobs: Vec<String> = connection
        .query("select job_id::text from towpath.job_queue", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(jobs.len() as i64, JOBS);
    assert_eq!(faults(&jobs, &ends), [""; 0]);
    assert!(ends.iter().any(|end| end.outcome == "lost"), "no lease was lost: nothing was tested");
    for mut worker in [stalled, replacement] {
        worker.terminate();
        assert!(worker.wait_exit().await.success(), "{:?}", worker.lines());
    }
    drop(client);
    place.close().await;
}
