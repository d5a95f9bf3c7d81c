//! The database's numbers at `/metrics`: bounded, and no trouble when the database is.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_db::Database;
use towpath_server::Config;
use towpath_server::metrics::{Metrics, SurveyNumbers};
use towpath_testkit::TestDb;
use towpath_testkit::proxy::{Fault, FaultProxy, Upstream};
use towpath_testkit::server::RunningServer;
use towpath_testkit::wait;

/// The server's own: how often it looks at the database.
const SURVEY_EVERY: Duration = Duration::from_secs(5);

/// Waits until the text is as it should be.
async fn until(metrics: &Metrics, right: impl Fn(&str) -> bool) -> String {
    wait::until("right numbers", async || metrics.text(), |text| right(text)).await
}

/// Lets time pass at once.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn survey(database: Database, shutdown: &CancellationToken) -> Metrics {
    let metrics = Metrics::new();
    tokio::spawn(SurveyNumbers::new(&metrics, Some(database)).run(shutdown.clone()));
    metrics
}

/// O05: thousands of kinds make a hundred series and one for the others, and nothing is lost in it.
#[tokio::test]
async fn thousands_of_kinds_do_not_make_thousands_of_series() {
    let db = TestDb::open().await;
    db.execute(
        "insert into towpath.job_lane (job_kind, executor, priority)
         select 'kind-' || i, 'PG_worker', 100 from generate_series(1, 3000) i;
         insert into towpath.job_counter (job_kind, outcome, n)
         select 'kind-' || i, 'succeeded', i from generate_series(1, 3000) i;
         insert into towpath.job_live (job_id, due_at, lane, max_attempts)
         select gen_random_uuid(), towpath.fn_now(), lane, 1 from towpath.job_lane",
    )
    .await;
    let shutdown = CancellationToken::new();
    let metrics = survey(db.database().await, &shutdown);
    let text = until(&metrics, |text| text.contains("towpath_jobs_finished_total{")).await;
    let series = |name: &str| -> Vec<(String, f64)> {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let read = |line: &str| {
            let (labels, n) = line.rsplit_once(' ').unwrap();
            (labels.to_owned(), n.parse().unwrap())
        };
        lines.map(read).collect()
    };
    let finished = series("towpath_jobs_finished_total");
    assert_eq!(finished.len(), 101);
    assert_eq!(finished.iter().map(|(_, n)| n).sum::<f64>(), f64::from(3000 * 3001 / 2));
    assert!(finished.iter().any(|(labels, _)| labels.contains("kind-3000")), "the busiest are named");
    let depth = series("towpath_jobs_depth");
    assert_eq!(depth.len(), 101);
    let other = depth.iter().find(|(labels, _)| labels.contains("\"other\"")).unwrap();
    assert_eq!(other.1, 2900.0);
    shutdown.cancel();
}

/// O05: a database that does not answer does not keep `/metrics` waiting: it says so, and tells
/// nothing old.
#[tokio::test]
async fn a_dead_database_does_not_hold_the_numbers_up() {
    let db = TestDb::open().await;
    let url = db.url();
    let host = url.split("host=").nth(1).unwrap().split('&').next().unwrap().replace("%2F", "/");
    let proxy = FaultProxy::start(Upstream::Unix(format!("{host}/.s.PGSQL.5432").into())).await;
    let proxied = format!("postgresql://postgres@{}/{}", proxy.addr(), db.name());
    let shutdown = CancellationToken::new();
    let metrics = survey(Database::connect(&proxied).await.unwrap(), &shutdown);
    let server = RunningServer::start(Config { metrics: metrics.clone(), ..Config::default() }).await;
    until(&metrics, |text| {
        text.contains("towpath_database_up 1") && text.contains("towpath_kinds_paused{} 0")
    })
    .await;
    proxy.set(Fault::Stall);
    // Nothing answers now, so that every wait may be cut short.
    let look = async || {
        skip(Duration::from_secs(1)).await;
        metrics.text()
    };
    wait::until("no database", look, |text| text.contains("towpath_database_up 0")).await;
    let text = reqwest::get(server.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(!text.contains("towpath_kinds_paused{} 0"), "what is not known is not said:\n{text}");
    assert!(!text.contains("towpath_database_survey_failures_total 0"), "{text}");
    proxy.reset();
    proxy.set(Fault::Pass);
    skip(SURVEY_EVERY).await;
    until(&metrics, |text| text.contains("towpath_database_up 1")).await;
    shutdown.cancel();
    server.stop().await;
}
