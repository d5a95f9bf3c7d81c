//! Jobs while workers and PostgreSQL are killed in the middle of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::{Client, NoTls};
use towpath_db::Database;
use towpath_db::job::NewJob;
use towpath_testkit::victim::Victim;
use towpath_testkit::wait;

use crate::towpath::Place;

/// The number of jobs of the long run; a nightly run asks for 100,000.
const JOBS_VARIABLE: &str = "TOWPATH_TEST_CRASH_JOBS";
const JOBS_DEFAULT: usize = 8_000;

/// One ended attempt as `job_run` keeps it.
#[derive(Debug, Clone)]
struct Run {
    job: String,
    attempt: i32,
    outcome: String,
}

/// The violations of a history: a job must end exactly once, by its last attempt, and no attempt may end twice.
/// The fence guarantees that, whichever process died.
fn violations(jobs: &BTreeSet<String>, runs: &[Run]) -> Vec<String> {
    let mut found = vec![];
    let mut by_job: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_job.entry(&run.job).or_default().push(run);
        if !jobs.contains(&run.job) {
            found.push(format!("{} ran and was never enqueued", run.job));
        }
    }
    for job in jobs {
        let Some(runs) = by_job.get_mut(job.as_str()) else {
            found.push(format!("{job} never ended"));
            continue;
        };
        runs.sort_by_key(|run| run.attempt);
        let ends = |run: &&&Run| ["succeeded", "dead_letter"].contains(&run.outcome.as_str());
        match runs.iter().filter(ends).count() {
            1 if ends(&runs.last().unwrap()) => {}
            1 => found.push(format!("{job} went on after its end: {runs:?}")),
            0 => found.push(format!("{job} never ended: {runs:?}")),
            _ => found.push(format!("{job} ended twice: {runs:?}")),
        }
        if runs.windows(2).any(|pair| pair[0].attempt == pair[1].attempt) {
            found.push(format!("an attempt of {job} ended twice: {runs:?}"));
        }
    }
    found
}

/// The checker finds every kind of bad history.
#[test]
fn the_checker_sees_bad_histories() {
    let jobs: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
    let run = |job: &str, attempt, outcome: &str| Run { job: job.into(), attempt, outcome: outcome.into() };
    let good = [run("a", 1, "lost"), run("a", 2, "succeeded"), run("b", 1, "dead_letter")];
    assert_eq!(violations(&jobs, &good), Vec::<String>::new());
    for (bad, word) in [
        (vec![run("a", 1, "succeeded"), run("a", 2, "succeeded"), good[2].clone()], "ended twice"),
        (vec![run("a", 1, "succeeded"), run("a", 2, "lost"), good[2].clone()], "went on"),
        (vec![run("a", 1, "lost"), good[2].clone()], "never ended"),
        (vec![good[2].clone()], "never ended"),
        (vec![run("a", 1, "lost"), run("a", 1, "succeeded"), good[2].clone()], "an attempt of a ended twice"),
        (vec![good[1].clone(), good[2].clone(), run("c", 1, "succeeded")], "never enqueued"),
    ] {
        let found = violations(&jobs, &bad);
        assert!(found.iter().any(|words| words.contains(word)), "{bad:?}: {found:?}");
    }
}

/// Q08, Q11: workers are killed with SIGKILL repeatedly, PostgreSQL twice with the signal of
/// `pg_ctl -m immediate`; every job ends exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_and_a_killed_postgres_lose_no_job_and_end_none_twice() {
    let jobs: usize = std::env::var(JOBS_VARIABLE).map_or(JOBS_DEFAULT, |text| text.parse().unwrap());
    let place = Place::new();
    let mut up = open(&place).await;
    let enqueued = enqueue(&place, jobs).await;
    let mut workers: Vec<Victim> = (0..3).map(|_| worker(&place)).collect();
    let mut deaths = 0;
    while unfinished(&place).await.is_none_or(|left| left > jobs as i64 / 10) {
        workers.remove(0).kill().await;
        workers.push(worker(&place));
        deaths += 1;
        if deaths == 2 || deaths == 5 {
            let postmaster = place.postmaster().unwrap();
            kill(Pid::from_raw(postmaster), Signal::SIGQUIT).unwrap();
            place.until_other_postmaster(postmaster).await;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(deaths >= 2, "it was over after {deaths} deaths: raise the number of jobs");
    until_finished(&place).await;
    let runs = runs(&place).await;
    let found = violations(&enqueued, &runs);
    assert!(found.is_empty(), "{} violations, the first: {:?}", found.len(), &found[..found.len().min(5)]);
    let lost = runs.iter().filter(|run| run.outcome == "lost").count();
    assert!(lost > 0, "{deaths} deaths and no lease was lost: nothing was tested");
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.wait_exit().await.code(), Some(0), "{:?}", worker.lines());
    }
    up.terminate();
    up.wait_exit().await;
    place.until_empty().await;
}

/// Q08: a worker that was stopped with SIGSTOP past its lease cannot ack when it wakes up.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_cannot_ack_what_another_has_done() {
    let place = Place::new();
    let mut up = open(&place).await;
    // The worker of `up` would take the job first.
    let client = client(&place).await.unwrap();
    client.batch_execute("update towpath.job_subscription set enabled = false").await.unwrap();
    for executor in ["first", "second"] {
        let sql = format!(
            "select towpath.fn_consumer_put('{executor}', 'PG_worker'), \
                    towpath.fn_job_subscription_put('{executor}', 'PG_worker', p_enabled => true)"
        );
        client.batch_execute(&sql).await.unwrap();
    }
    let sleep = NewJob::new("towpath.sleep").payload(&serde_json::json!({ "milliseconds": 1_500 })).unwrap();
    let job_id = database(&place).await.enqueue(&sleep).await.unwrap().job_id;

    let command = |executor: &str| {
        let mut command =
            place.command(&["work", "--executor", executor, "--lease", "1", "--log-level", "debug"]);
        command.env("DATABASE_URL", place.ok(&["db", "url"]).trim());
        Victim::spawn(command)
    };
    let stopped = command("first");
    let state = format!("select state from towpath.job_queue where job_id = '{job_id}'");
    until(&client, &state, "in_progress").await;
    stopped.pause();
    let second = command("second");
    until(&client, &state, "succeeded").await;
    let mark = stopped.mark();
    stopped.resume();
    stopped.wait_for_line_after(mark, "too late").await;
    let history =
        "select string_agg(attempt || ' ' || outcome || ' ' || split_part(lease_owner, '@', 1), ', '
                                     order by attempt) from towpath._job_run_each";
    until(&client, history, "1 lost first, 2 succeeded second").await;
    drop((stopped, second));
    up.terminate();
    up.wait_exit().await;
}

/// Everything up with open gates and quick retries.
async fn open(place: &Place) -> Victim {
    let up = Victim::spawn(place.command(&["up", "--dev"]));
    up.wait_for_line("towpath is ready").await;
    place.ok(&["config", "set", "queue.retry.backoff_base_sec", "1", "--why", "a short test"]);
    up
}

fn worker(place: &Place) -> Victim {
    let mut command = place.command(&["work", "--lease", "2"]);
    command.env("DATABASE_URL", place.ok(&["db", "url"]).trim());
    Victim::spawn(command)
}

async fn database(place: &Place) -> Database {
    Database::connect(place.ok(&["db", "url"]).trim()).await.unwrap()
}

/// Jobs that take a moment each, so that some are running at every kill.
async fn enqueue(place: &Place, jobs: usize) -> BTreeSet<String> {
    let database = database(place).await;
    let sleep = NewJob::new("towpath.sleep").payload(&serde_json::json!({ "milliseconds": 60 })).unwrap();
    let batch = vec![sleep.max_attempts(20); 1_000];
    let mut ids = BTreeSet::new();
    for _ in 0..jobs / batch.len() {
        let rows = database.enqueue_many(&batch).await.unwrap();
        ids.extend(rows.into_iter().map(|row| row.unwrap().job_id.to_string()));
    }
    ids
}

/// Jobs that have not ended; none while the database does not answer.
async fn unfinished(place: &Place) -> Option<i64> {
    let client = client(place).await?;
    let row = client.query_one("select count(*) from towpath._job_now", &[]).await.ok()?;
    Some(row.get(0))
}

async fn until_finished(place: &Place) {
    wait::until("the end of every job", async || unfinished(place).await, |left| *left == Some(0)).await;
}

async fn runs(place: &Place) -> Vec<Run> {
    let client = client(place).await.unwrap();
    let sql = "select job_id::text, attempt::integer, outcome::text from towpath._job_run_each";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| Run { job: row.get(0), attempt: row.get(1), outcome: row.get(2) }).collect()
}

async fn client(place: &Place) -> Option<Client> {
    let url = place.run(&["db", "url"]);
    let url = String::from_utf8(url.stdout).unwrap();
    let (client, connection) = tokio_postgres::connect(url.trim(), NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// Waits until a query returns this text.
async fn until(client: &Client, sql: &str, wanted: &str) {
    let look = async || -> Option<String> {
        let row = client.query_opt(&format!("select ({sql})::text"), &[]).await.unwrap();
        row.and_then(|row| row.get(0))
    };
    wait::until(format!("{sql} = {wanted}"), look, |text| text.as_deref() == Some(wanted)).await;
}
