//! The test kit's own promises: fast databases, a clock that obeys, races that repeat.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use towpath_testkit::TestDb;
use towpath_testkit::race::all_at_once;

async fn now(db: &TestDb) -> Timestamp {
    db.client().await.query_one("select towpath.fn_now()", &[]).await.expect("a clock").get(0)
}

/// A database per test in well under 100 ms: the median of eleven.
#[tokio::test]
async fn a_database_is_cloned_in_well_under_100_ms() {
    TestDb::new().await; // makes the template
    let mut times = vec![];
    for _ in 0..11 {
        let started = Instant::now();
        let db = TestDb::new().await;
        times.push(started.elapsed());
        drop(db);
    }
    times.sort();
    // The bound is loose because CI is busy; the figure is printed for measurements.
    println!("median {:?}, worst {:?}", times[5], times[10]);
    assert!(times[5] < Duration::from_millis(500), "{times:?}");
}

/// The clock moves on command and stops on command.
#[tokio::test]
async fn the_clock_obeys() {
    let db = TestDb::new().await;
    let before = now(&db).await;
    db.advance(Duration::from_secs(3600)).await;
    let after = now(&db).await;
    assert!(after.duration_since(before).as_secs() >= 3600);
    let noon: Timestamp = "2030-01-01T12:00:00Z".parse().unwrap();
    db.freeze(noon).await;
    assert_eq!(now(&db).await, noon);
    db.advance(Duration::from_millis(1500)).await;
    assert_eq!(now(&db).await, "2030-01-01T12:00:01.5Z".parse().unwrap());
}

/// Each database is alone: notifications and rows stay inside.
#[tokio::test]
async fn databases_do_not_see_each_other() {
    let (one, other) = (TestDb::new().await, TestDb::new().await);
    one.execute("create table mine ()").await;
    assert_eq!(other.text("to_regclass('mine')").await, "null");
}

/// A dropped value drops its database.
#[tokio::test]
async fn dropping_the_value_drops_the_database() {
    let db = TestDb::new().await;
    let (name, observer) = (db.name().to_owned(), TestDb::empty().await);
    let exists = format!("select count(*) from pg_database where datname = '{name}'");
    assert_eq!(observer.text(&exists).await, "1");
    drop(db);
    assert_eq!(observer.text(&exists).await, "0");
}

/// A race is decided by locks, not by luck: the second waits until the first commits.
#[tokio::test]
async fn until_blocked_waits_for_the_lock_itself() {
    let db = TestDb::new().await;
    db.execute("create table counter as select 0 as n").await;
    let (first, second) = (db.rival().await, db.rival().await);
    first.run("begin; update counter set n = n + 1").await;
    let waiting = second.send("update counter set n = n + 1 returning n");
    db.until_blocked(&waiting).await;
    first.run("commit").await;
    assert_eq!(waiting.value().await.unwrap().as_deref(), Some("2"));
}

/// A statement that never waits is distinguished from one that does.
#[tokio::test]
#[should_panic(expected = "without waiting for anybody")]
async fn until_blocked_fails_when_nobody_waits() {
    let db = TestDb::new().await;
    let rival = db.rival().await;
    let pending = rival.send("select 1");
    db.until_blocked(&pending).await;
}

#[tokio::test]
async fn all_at_once_answers_in_order() {
    assert_eq!(all_at_once(5, |index| async move { index * 2 }).await, [0, 2, 4, 6, 8]);
}
