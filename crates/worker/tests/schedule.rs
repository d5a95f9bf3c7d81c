//! Schedules and maintenance with several nodes (Q17).

use jiff::{SignedDuration, Timestamp};
use towpath_testkit::queue::Queue;
use towpath_testkit::race::all_at_once;
use towpath_worker::Maintenance;

use crate::worker::maintenance;

const START: &str = "2026-03-01T00:00:00Z";

async fn put(queue: &Queue, name: &str, expression: &str, catch_up: &str) {
    let sql = format!(
        "towpath.fn_schedule_put('{name}', '{expression}', 'Europe/Berlin', '{{\"job_kind\": \"{name}\"}}', \
         '{START}'::timestamptz + interval '1 minute', '{catch_up}', 'me')"
    );
    let answer = queue.db.json(&sql).await;
    assert_eq!(answer["ok"], true, "{answer}");
}

/// Q17: with three nodes that look at every tick at the same moment, every tick fires once.
#[tokio::test(flavor = "multi_thread")]
async fn every_tick_fires_once_however_many_nodes_run() {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(start).await;
    put(&queue, "minutely", "* * * * *", "all").await;
    maintenance(&queue).run_once().await.unwrap();
    for minute in 1..=10 {
        queue.db.freeze(start + SignedDuration::from_mins(minute)).await;
        let (database, _) = queue.db.database_as("towpath_maintainer").await;
        let fired = all_at_once(3, |_| {
            let mut node = Maintenance::new(database.clone());
            async move { node.run_once().await.unwrap().fired }
        })
        .await;
        assert_eq!(fired.iter().sum::<usize>(), 1, "minute {minute}: {fired:?}");
    }
    assert_eq!(queue.states().await, "queued 10");
    let keys =
        "select count(distinct idempotency_key) from towpath.job_queue where actor = 'schedule:minutely'";
    assert_eq!(queue.db.text(keys).await, "10");
}

/// Q17: after a pause the policy decides: nothing, the last tick, or every one of them.
#[tokio::test]
async fn missed_ticks_follow_the_policy() {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(start).await;
    for policy in ["skip", "last", "all"] {
        put(&queue, policy, "* * * * *", policy).await;
    }
    queue.db.freeze(start + SignedDuration::from_secs(5 * 60 + 30)).await;
    let mut node = maintenance(&queue);
    assert_eq!(node.run_once().await.unwrap().fired, 6);
    let of = async |kind: &str| {
        queue.db.text(&format!("select count(*) from towpath.job_queue where job_kind = '{kind}'")).await
    };
    assert_eq!((of("skip").await, of("last").await, of("all").await), ("0".into(), "1".into(), "5".into()));
    queue.db.freeze(start + SignedDuration::from_secs(6 * 60)).await;
    assert_eq!(node.run_once().await.unwrap().fired, 3, "the next tick is nobody's past");
}

/// Gates closed, maintenance says so; open again, it does everything in one round.
#[tokio::test]
async fn maintenance_honours_the_gate() {
    let queue = Queue::open().await;
    let gate = |value| {
        format!("update towpath.config set value = '{value}' where key = 'queue.job_substrate.enabled'")
    };
    let mut node = maintenance(&queue);
    queue.db.execute(&gate("false")).await;
    let failure = node.run_once().await.unwrap_err();
    assert!(matches!(failure.failed[0].1, towpath_db::Error::GateClosed { .. }));
    assert_eq!(failure.to_string().lines().count(), 1, "one gate, one line: {failure}");
    queue.db.execute(&gate("true")).await;
    node.run_once().await.unwrap();
}

/// Q22: schedules that cannot be read or fired are set aside; the others tick, and a repaired one ticks again.
#[tokio::test]
async fn a_broken_schedule_stops_no_other() {
    let queue = Queue::open().await;
    let start: Timestamp = START.parse().unwrap();
    queue.db.freeze(start).await;
    for name in ["a", "cron", "zone", "poison", "z"] {
        put(&queue, name, "* * * * *", "all").await;
    }
    queue
        .db
        .execute(
            "update towpath.schedule set expression = '61 * * * *' where name = 'cron';
             update towpath.schedule set time_zone = 'Nowhere/Town' where name = 'zone';
             create function public.poison() returns trigger language plpgsql
                 as $$ begin raise exception 'poisoned' using errcode = '22003'; end $$;
             create trigger poison before insert on towpath.job
                 for each row when (new.job_kind = 'poison') execute function public.poison()",
        )
        .await;
    queue.db.freeze(start + SignedDuration::from_mins(1)).await;
    let mut node = maintenance(&queue);
    assert_eq!(node.run_once().await.unwrap().fired, 2);
    assert_eq!(node.run_once().await.unwrap().fired, 0, "what is broken is passed by");
    let faults = queue.admin.loop_fault_list(Some("schedules"), 10).await.unwrap();
    let mut names: Vec<_> = faults.iter().map(|fault| (fault.item.as_str(), fault.times)).collect();
    names.sort_unstable();
    assert_eq!(names, [("cron", 1), ("poison", 1), ("zone", 1)]);

    put(&queue, "cron", "* * * * *", "all").await;
    put(&queue, "zone", "* * * * *", "all").await;
    queue.db.execute("drop trigger poison on towpath.job").await;
    queue.admin.loop_fault_retry("schedules", "poison", "ann").await.unwrap();
    assert_eq!(node.run_once().await.unwrap().fired, 3);
    assert!(queue.admin.loop_fault_list(None, 10).await.unwrap().is_empty());
}

/// Q22: a whole pass that fails is told too, does not stop the other tasks, and its end is told.
#[tokio::test]
async fn a_pass_that_fails_is_noted_until_it_works_again() {
    let queue = Queue::open().await;
    let function =
        queue.db.text("select pg_get_functiondef('towpath.fn_job_parallel_recount()'::regprocedure)").await;
    queue
        .db
        .execute(
            "create or replace function towpath.fn_job_parallel_recount() returns jsonb language plpgsql security definer
                 as $$ begin raise exception 'broken' using errcode = '22003'; end $$",
        )
        .await;
    let mut node = maintenance(&queue);
    node.run_once().await.unwrap_err();
    let faults = queue.admin.loop_fault_list(None, 10).await.unwrap();
    assert_eq!(
        faults.iter().map(|f| (f.name.as_str(), f.item.as_str())).collect::<Vec<_>>(),
        [("recount", "*")]
    );
    queue.db.execute(&function).await;
    // By another node: the one that succeeds says so.
    maintenance(&queue).run_once().await.unwrap();
    assert!(queue.admin.loop_fault_list(None, 10).await.unwrap().is_empty());
}
