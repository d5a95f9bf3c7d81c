//! Schedules: `sql/functions/schedule.sql`.

use jiff::Timestamp;
use serde_json::{Value, json};
use towpath_db::Error;
use towpath_db::schedule::ScheduleSpec;
use towpath_testkit::TestDb;

fn spec(job: Value, next_at: Timestamp) -> ScheduleSpec<'static> {
    ScheduleSpec {
        name: "nightly",
        expression: "0 2 * * *",
        time_zone: "UTC",
        catch_up: "last",
        job,
        next_at,
        actor: "tester",
    }
}

/// Q17: a schedule is made, changed, paused, resumed and forgotten.
#[tokio::test]
async fn a_schedule_lives_and_is_forgotten() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let next = "2030-01-01T02:00:00Z".parse().unwrap();
    assert!(database.schedule_put(&spec(json!({"job_kind": "report"}), next)).await.unwrap().created);
    let job = json!({"job_kind": "report", "payload_json": {"scope": "all"}, "priority": 7});
    assert!(!database.schedule_put(&spec(job, next)).await.unwrap().created);
    let rows = database.schedule_list().await.unwrap();
    assert_eq!((rows.len(), rows[0].priority, rows[0].next_at), (1, 7, next));
    assert_eq!(rows[0].payload_json, json!({"scope": "all"}));
    assert!(database.schedule_pause("nightly", "tester").await.unwrap().changed);
    assert!(!database.schedule_pause("nightly", "tester").await.unwrap().changed);
    let later = "2031-01-01T02:00:00Z".parse().unwrap();
    assert!(database.schedule_resume("nightly", later, "tester").await.unwrap().changed);
    let row = &database.schedule_list().await.unwrap()[0];
    assert!(!row.paused && row.next_at == later);
    database.schedule_delete("nightly").await.unwrap();
    assert!(matches!(database.schedule_delete("nightly").await, Err(Error::NotFound(_))));
    assert!(matches!(database.schedule_pause("nightly", "t").await, Err(Error::NotFound(_))));
    assert!(matches!(database.schedule_resume("nightly", later, "t").await, Err(Error::NotFound(_))));
}

/// Q02, Q03, R07: a template that no job could be made from is refused.
#[tokio::test]
async fn bad_schedules_are_refused() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let next = "2030-01-01T02:00:00Z".parse().unwrap();
    let good = || spec(json!({"job_kind": "report"}), next);
    for bad in [
        ScheduleSpec { time_zone: "Europe/Nowhere", ..good() },
        ScheduleSpec { catch_up: "sometimes", ..good() },
        ScheduleSpec { name: " ", ..good() },
        spec(json!({"job_kind": " "}), next),
        spec(json!({"job_kind": "x", "executor": "MOT"}), next),
        spec(json!({"job_kind": "x", "payload_json": {"raw": 1}}), next),
        spec(json!({"job_kind": "x", "priority": "high"}), next),
    ] {
        let words = format!("{bad:?}");
        assert!(matches!(database.schedule_put(&bad).await, Err(Error::Invalid(_))), "{words}");
    }
    assert!(database.schedule_list().await.unwrap().is_empty());
}

/// R08: only administrators make, move and forget schedules.
#[tokio::test]
async fn only_administrators_change_schedules() {
    let db = TestDb::open().await;
    let calls = [
        "fn_schedule_put('n', '* * * * *', 'UTC', '{\"job_kind\": \"x\"}', now())",
        "fn_schedule_pause('n')",
        "fn_schedule_resume('n')",
        "fn_schedule_delete('n')",
    ];
    for role in ["towpath_observer", "towpath_producer", "worker_service_user"] {
        let client = db.client_as(role).await;
        for call in calls {
            let error = client.batch_execute(&format!("select towpath.{call}")).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{role}: {call}");
        }
    }
    let admin = db.client_as("workflow_admin").await;
    for call in calls {
        admin.batch_execute(&format!("select towpath.{call}")).await.unwrap();
    }
}
