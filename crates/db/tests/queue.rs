//! The queue as operators see it: `sql/functions/queue.sql` and the views.

use std::time::Duration;

use serde_json::{Value, json};
use towpath_db::job::{Claim, Failure, Heartbeat, LeaseOwner, Status};
use towpath_db::{Attribution, Error};
use towpath_testkit::TestDb;

use crate::job_read::{claim, enqueue, with_worker};

const BY: Attribution<'static> = Attribution { actor: "tester", reason: "disk full" };

/// Q17: nobody claims a paused kind; others run on, and resuming frees it.
#[tokio::test]
async fn a_paused_kind_is_not_claimed() {
    let (_db, database) = with_worker(None).await;
    enqueue(&database, "mail").await;
    let other = enqueue(&database, "report").await;
    assert!(database.queue_pause("mail", BY).await.unwrap().changed);
    assert!(!database.queue_pause("mail", BY).await.unwrap().changed);
    assert_eq!(claim(&database).await.lease.job_id(), other);
    let owner = LeaseOwner::new("w-1");
    let ask = Claim { executor: "w", kinds: None, limit: 5, owner: &owner, lease: None };
    assert!(database.claim(&ask).await.unwrap().is_empty());
    let paused = database.queue_paused().await.unwrap();
    assert_eq!((paused[0].paused_by.as_str(), paused[0].reason.as_str()), ("tester", "disk full"));
    assert!(database.queue_backlog().await.unwrap().iter().any(|row| row.job_kind == "mail" && row.paused));
    assert!(database.queue_resume("mail", "tester").await.unwrap().changed);
    claim(&database).await;
    let history = database.queue_pause_history(Some("mail")).await.unwrap();
    let moves: Vec<_> = history.iter().map(|moved| (moved.action.as_str(), moved.actor.as_str())).collect();
    assert_eq!(moves, [("resume", "tester"), ("pause", "tester")], "who did it stays known");
    assert!(matches!(database.queue_resume("mail", " ").await, Err(Error::Invalid(_))));
    assert!(matches!(database.queue_pause(" ", BY).await, Err(Error::Invalid(_))));
}

/// Q13: fresh up to the threshold, warning up to twice of it, stale beyond.
#[tokio::test]
async fn heartbeats_age() {
    let db = TestDb::open().await;
    let database = db.database().await;
    let owner = LeaseOwner::new("w-1");
    let heartbeat = Heartbeat {
        executor_name: "w",
        executor_kind: Some("PG_worker"),
        status: Status::Ok,
        current_job: None,
        owner: &owner,
        metadata: json!({"version": 1}),
        kinds: None,
    };
    database.heartbeat(&heartbeat).await.unwrap();
    for (seconds, freshness) in [(0, "fresh"), (299, "fresh"), (2, "warning"), (297, "warning"), (4, "stale")]
    {
        db.advance(Duration::from_secs(seconds)).await;
        let heartbeats = database.queue_heartbeats().await.unwrap();
        assert_eq!(heartbeats[0].freshness, freshness, "after {} s", heartbeats[0].seconds_since_tick);
        assert_eq!(database.queue_health().await.unwrap()[0].freshness.as_deref(), Some(freshness));
    }
    database.queue_heartbeat_forget("w").await.unwrap();
    assert!(matches!(database.queue_heartbeat_forget("w").await, Err(Error::NotFound(_))));
    let health = database.queue_health().await.unwrap();
    assert_eq!((health.len(), &health[0].executor_name), (1, &None), "one row even without heartbeats");
}

/// Q13: the check says who is late, by the config key or by the threshold it is given, and changes nothing: it runs
/// in a read-only transaction, in the caller's own name, with every gate closed.
#[tokio::test]
async fn the_stale_check_only_looks() {
    let db = TestDb::open().await;
    db.freeze("2026-03-01T12:00:00Z".parse().unwrap()).await;
    for (name, kind) in [("silent", "Agent"), ("late", "Hermes"), ("here", "PG_worker")] {
        db.json(&format!("towpath.fn_queue_heartbeat_tick('{name}', '{kind}', 'warn')")).await;
        // Each is 250 s older than the next.
        db.advance(Duration::from_secs(250)).await;
    }
    db.execute("update towpath.config set value = 'false' where kind = 'gate'").await;
    let looker = db.client_as("towpath_maintainer").await;
    looker.batch_execute("set default_transaction_read_only = on").await.unwrap();
    let check = async |arguments: &str| -> Value {
        looker
            .query_one(&format!("select towpath.fn_queue_stale_check({arguments})"), &[])
            .await
            .unwrap()
            .get(0)
    };
    let answer = check("").await;
    assert_eq!(
        answer["executors"][1],
        json!({
            "executor_name": "late", "executor_kind": "Hermes", "freshness": "warning",
            "last_tick_at": "2026-03-01T12:04:10+00:00", "seconds_since_tick": 500, "last_tick_status": "warn",
        })
    );
    let counts = |answer: &Value| {
        ["threshold_seconds", "fresh", "warning", "stale"].map(|field| answer[field].as_f64().unwrap() as i64)
    };
    assert_eq!(counts(&answer), [300, 1, 1, 1], "by the config key: {answer}");
    for (threshold, expected) in [
        (749, [749, 2, 1, 0]),
        (750, [750, 3, 0, 0]),
        (250, [250, 1, 1, 1]),
        (249, [249, 0, 1, 2]),
        (1, [1, 0, 0, 3]),
        (i32::MAX, [i32::MAX.into(), 3, 0, 0]),
    ] {
        assert_eq!(counts(&check(&threshold.to_string()).await), expected, "by {threshold} s");
    }
    db.execute("delete from towpath.queue_heartbeat").await;
    let nobody = check("60").await;
    assert_eq!((counts(&nobody), &nobody["executors"]), ([60, 0, 0, 0], &json!([])));
    let kind =
        "select format('%s %s', provolatile, prosecdef) from pg_proc where proname = 'fn_queue_stale_check'";
    assert_eq!(db.text(kind).await, "s f", "stable, and with the caller's rights");
}

/// Q14: the contract's columns are all there, and count what they say.
#[tokio::test]
async fn health_counts_what_it_says() {
    let (db, database) = with_worker(None).await;
    enqueue(&database, "mail").await;
    enqueue(&database, "mail").await;
    claim(&database).await.lease.ack(&database).await.unwrap();
    let health = &database.queue_health().await.unwrap()[0];
    assert_eq!((health.jobs_queued, health.jobs_succeeded, health.jobs_leased), (1, 1, 0));
    assert_eq!((health.subscription_rules, health.subscriptions_enabled), (1, 1));
    assert!(health.job_substrate_enabled && health.worker_enabled && health.oldest_due_at.is_some());
    claim(&database).await.lease.fail(&database, Failure::retry("no")).await.unwrap();
    let health = &database.queue_health().await.unwrap()[0];
    // Attempts fail, jobs do not: this one waits.
    assert_eq!((health.jobs_failed, health.attempts_failed, health.jobs_retry_waiting), (0, 1, 1));
    let columns =
        "select string_agg(column_name, ' ' order by ordinal_position) from information_schema.columns
                    where table_schema = 'towpath' and table_name = 'v_queue_health'";
    let columns = db.text(columns).await;
    let columns: Vec<_> = columns.split(' ').collect();
    let contract = "executor_name executor_kind last_tick_at last_tick_status seconds_since_tick freshness ticks_total \
                    current_job_id lease_owner jobs_queued jobs_leased jobs_in_progress jobs_retry_waiting \
                    jobs_succeeded jobs_failed jobs_dead_letter jobs_cancelled dead_letters_pending \
                    dead_letters_acknowledged dead_letters_manual_replay dead_letters_escalated dead_letters_closed \
                    job_substrate_enabled worker_enabled notify_enabled heartbeat_enabled";
    for column in contract.split_whitespace() {
        assert!(columns.contains(&column), "{column} is missing: {columns:?}");
    }
    let backlog = &database.queue_backlog().await.unwrap()[0];
    assert_eq!(
        (backlog.job_kind.as_str(), backlog.state.as_str(), backlog.row_count),
        ("mail", "retry_waiting", 1)
    );
}

/// R10: what every executor subscribed, whether it is registered and when it was seen.
#[tokio::test]
async fn executors_show_their_health() {
    let (_db, database) = with_worker(Some(3)).await;
    let health = &database.executor_health().await.unwrap()[0];
    assert_eq!((health.executor_id.as_str(), health.rules, health.enabled_rules), ("w", 1, 1));
    assert_eq!((health.max_parallel_total, health.registered, health.last_tick_at), (Some(3), true, None));
    database.consumer_delete("w").await.unwrap();
    assert!(!database.executor_health().await.unwrap()[0].registered);
}

/// R10: `any_enabled` is 1 for an executor with at least one enabled rule, 0 for one without; the queue's
/// health adds the rules of all of them up.
#[tokio::test]
async fn executors_show_whether_any_rule_is_enabled() {
    let db = TestDb::open().await;
    for (executor, kind, enabled) in [
        ("all", "a", true),
        ("some", "a", true),
        ("some", "b", false),
        ("none", "a", false),
        ("none", "b", false),
    ] {
        db.json(&format!("towpath.fn_consumer_put('{executor}', 'PG_worker')")).await;
        let put = format!(
            "towpath.fn_job_subscription_put('{executor}', 'PG_worker', '{kind}', p_enabled => {enabled})"
        );
        assert_eq!(db.json(&put).await["ok"], true);
    }
    let health = "select string_agg(concat_ws(' ', executor_id, rules, any_enabled), ', ' order by executor_id) \
                  from towpath.v_executor_subscription_health";
    assert_eq!(db.text(health).await, "all 1 1, none 2 0, some 2 1");
    let fed = "select concat_ws(' ', subscription_rules, subscriptions_enabled) from towpath.v_queue_health";
    assert_eq!(db.text(fed).await, "5 2");
}

/// O03: what ended is counted by minute, kind and outcome, once it is folded.
#[tokio::test]
async fn charts_count_what_ended() {
    let (db, database) = with_worker(None).await;
    for kind in ["mail", "mail", "report"] {
        enqueue(&database, kind).await;
        claim(&database).await.lease.ack(&database).await.unwrap();
    }
    db.execute("select towpath.fn_job_counter_fold()").await;
    let count = async |kind: Option<&str>| -> i64 {
        database.queue_chart(None, kind).await.unwrap().iter().map(|minute| minute.n).sum()
    };
    assert_eq!((count(None).await, count(Some("mail")).await, count(Some("other")).await), (3, 2, 0));
    let later = jiff::Timestamp::now() + Duration::from_secs(3600);
    assert!(database.queue_chart(Some(later), None).await.unwrap().is_empty());
}
