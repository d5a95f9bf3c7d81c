//! Loops go on: what one item breaks is set aside and told about, and heals.

use std::time::Duration;

use towpath_db::Attribution;
use towpath_testkit::TestDb;

/// Q22: a fault counts, waits longer each time, hides credentials, and is over when the loop says so.
#[tokio::test]
async fn a_fault_counts_waits_and_ends() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let fault = "select towpath._loop_fault('reap', 'a', 'no: password=hunter2 (SQLSTATE 22003)')";
    for times in 1..=3 {
        db.execute(fault).await;
        let [one] = &database.loop_fault_list(Some("reap"), 10).await.unwrap()[..] else {
            panic!("one fault")
        };
        assert_eq!((one.times, one.state.as_str()), (times, "waiting"));
        assert!(one.error.contains("SQLSTATE 22003") && !one.error.contains("hunter2"), "{}", one.error);
        let wait = one.next_try_at.duration_since(one.last_at).as_secs();
        assert_eq!(wait, 10 << (times - 1));
    }
    let aside = "select towpath._loop_aside('reap')";
    assert_eq!(db.text(aside).await, "{a}");
    assert_eq!(db.text("select towpath._loop_aside('other')").await, "{}");
    let over = "select towpath._loop_over('reap', towpath.fn_now())";
    db.execute(over).await;
    assert_eq!(db.text(aside).await, "{a}", "it was passed by, not tried");
    db.advance(Duration::from_secs(41)).await;
    assert_eq!(db.text(aside).await, "{}", "its time has come");
    db.execute(over).await;
    assert!(database.loop_fault_list(None, 10).await.unwrap().is_empty());
}

/// Q22: the pause between two tries has an end, and no number of tries breaks the count.
#[tokio::test]
async fn a_fault_that_lasts_is_tried_every_hour() {
    let db = TestDb::open().await;
    db.execute("select towpath._loop_fault('reap', 'a', 'no') from generate_series(1, 40)").await;
    db.execute("update towpath.loop_fault set times = 2147483647").await;
    db.execute("select towpath._loop_fault('reap', 'a', 'no')").await;
    let wait = "select next_try_at - last_at from towpath.loop_fault";
    assert_eq!(db.text(wait).await, "01:00:00");
}

/// Q22: people decide: a dropped item is passed by for good, until somebody asks for a retry.
#[tokio::test]
async fn administrators_drop_and_retry() {
    let db = TestDb::open().await;
    let (admin, _) = db.database_as("workflow_admin").await;
    let (maintainer, _) = db.database_as("towpath_maintainer").await;
    maintainer.loop_fault_record("schedules", "nightly", "unreadable").await.unwrap();
    let by = Attribution { actor: "ann", reason: "ticket 7" };
    assert!(
        maintainer.loop_fault_drop("schedules", "nightly", by).await.is_err(),
        "a decision of administrators"
    );
    let blank = Attribution { actor: "ann", reason: " " };
    assert!(admin.loop_fault_drop("schedules", "nightly", blank).await.is_err(), "a reason is needed");
    assert!(admin.loop_fault_retry("schedules", "other", "ann").await.is_err(), "nothing of this name");

    admin.loop_fault_drop("schedules", "nightly", by).await.unwrap();
    db.advance(Duration::from_secs(86_400)).await;
    maintainer.loop_fault_record("schedules", "nightly", "unreadable").await.unwrap();
    maintainer.loop_fault_over("schedules", "nightly").await.unwrap();
    db.execute("select towpath._loop_over('schedules', towpath.fn_now() + interval '1 year')").await;
    assert_eq!(db.text("select towpath._loop_aside('schedules')").await, "{nightly}");
    let [one] = &admin.loop_fault_list(None, 10).await.unwrap()[..] else { panic!("one fault") };
    let told = (one.state.as_str(), one.changed_by.as_deref(), one.reason.as_deref());
    assert_eq!(told, ("dropped", Some("ann"), Some("ticket 7")));
    assert_eq!(admin.health_show().await.unwrap().loop_faults, 0, "somebody decided it");

    admin.loop_fault_retry("schedules", "nightly", "ann").await.unwrap();
    assert_eq!(db.text("select towpath._loop_aside('schedules')").await, "{}");
    assert_eq!(admin.health_show().await.unwrap().loop_faults, 1);
    maintainer.loop_fault_over("schedules", "nightly").await.unwrap();
    assert!(admin.loop_fault_list(None, 10).await.unwrap().is_empty());
}

/// Q22: doctor, the attention figures and the metric tell about it.
#[tokio::test]
async fn a_fault_is_seen() {
    let db = TestDb::open().await;
    let database = db.database().await;
    assert!(database.inspect(None).await.unwrap().loop_faults.is_empty());
    db.execute("select towpath._loop_fault('reap', 'a', 'bigint out of range (SQLSTATE 22003)')").await;
    let facts = database.inspect(None).await.unwrap();
    let [fact] = &facts.loop_faults[..] else { panic!("one fault: {:?}", facts.loop_faults) };
    assert_eq!((fact.name.as_str(), fact.item.as_str(), fact.times), ("reap", "a", 1));
    let (survey, _) = database.survey(&[]).await.unwrap();
    assert_eq!(survey.loop_faults.get("reap"), Some(&1.0));
}
