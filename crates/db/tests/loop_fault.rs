//! Loops go on: what one item breaks is set aside and told about, and heals.

use std::time::Duration;

use towpath_db::Attribution;
use towpath_db::job::{FailedAttempt, Failure, LeaseOwner, NewJob};
use towpath_model::job::JobId;
use towpath_testkit::TestDb;
use towpath_testkit::queue::{LEASE, Queue, SECOND};

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

/// Makes a table raise for some of its rows, as a trigger or a constraint that somebody added would.
async fn poison(db: &TestDb, table: &str, operation: &str, condition: &str) {
    db.execute(&format!(
        "create or replace function public.poison() returns trigger language plpgsql
             as $$ begin raise exception 'poisoned' using errcode = '22003'; end $$;
         create trigger poison before {operation} on towpath.{table}
             for each row when ({condition}) execute function public.poison()"
    ))
    .await;
}

async fn cure(db: &TestDb, table: &str) {
    db.execute(&format!("drop trigger poison on towpath.{table}")).await;
}

/// Jobs of one call, which share ready rows.
async fn enqueued(queue: &Queue, count: usize) -> Vec<JobId> {
    let jobs = queue.producer.enqueue_many(&vec![NewJob::new("mail"); count]).await.unwrap();
    jobs.into_iter().map(|job| job.unwrap().job_id).collect()
}

/// What is set aside, as `loop item`; every error is the poison's own.
async fn aside(db: &TestDb) -> Vec<String> {
    let faults = db.database().await.loop_fault_list(None, 100).await.unwrap();
    for fault in &faults {
        assert!(fault.error.contains("22003") || fault.error.contains("2BP01"), "{}", fault.error);
    }
    let mut words: Vec<_> = faults.iter().map(|fault| format!("{} {}", fault.name, fault.item)).collect();
    words.sort();
    words
}

async fn retry(db: &TestDb, name: &str, item: &str) {
    db.database().await.loop_fault_retry(name, item, "ann").await.unwrap();
}

/// Q11, Q22: one row that cannot be reaped stays leased; those beside it, of its claim and of others, come back.
#[tokio::test]
async fn a_row_that_cannot_be_reaped_stops_no_other() {
    let queue = Queue::open().await;
    let mut ids = vec![];
    for _ in 0..5 {
        ids.push(queue.enqueue("mail").await);
    }
    assert_eq!(queue.claim_as("a", 5).await.unwrap().len(), 5);
    ids.push(queue.enqueue("mail").await);
    assert_eq!(queue.claim_as("b", 5).await.unwrap().len(), 1);
    poison(&queue.db, "job_run", "insert", &format!("new.job_id = '{}'", ids[2])).await;
    queue.db.advance(LEASE + SECOND).await;
    assert_eq!(queue.reap().await, 5);
    assert_eq!(queue.state(ids[2]).await, "leased");
    assert_eq!(aside(&queue.db).await, [format!("reap {}", ids[2])]);
    assert_eq!(queue.reap().await, 0, "it is passed by");

    cure(&queue.db, "job_run").await;
    retry(&queue.db, "reap", &ids[2].to_string()).await;
    assert_eq!(queue.reap().await, 1);
    assert_eq!(queue.state(ids[2]).await, "retry_waiting");
    assert!(aside(&queue.db).await.is_empty());
}

/// Q22: a job that makes a claim raise is set aside; the claim takes the others. Time heals it.
#[tokio::test]
async fn a_job_that_cannot_be_claimed_stops_no_other() {
    let queue = Queue::open().await;
    let ids = enqueued(&queue, 20).await;
    poison(&queue.db, "lease_entry", "insert", &format!("'{}' = any(new.job_ids)", ids[3])).await;
    let claimed = queue.claim_as("a", 100).await.unwrap();
    assert_eq!(claimed.len(), 19);
    assert!(claimed.iter().all(|job| job.lease.job_id() != ids[3]));
    assert_eq!(aside(&queue.db).await, [format!("claim {}", ids[3])]);
    assert!(queue.claim_as("a", 100).await.unwrap().is_empty(), "and no claim raises any more");
    let why = queue.db.json(&format!("towpath.fn_job_why('{}')", ids[3])).await;
    assert_eq!(why["reasons"][0]["code"], "set_aside", "{why}");

    queue.reap().await;
    assert!(queue.claim_as("a", 100).await.unwrap().is_empty(), "not before its time");
    cure(&queue.db, "lease_entry").await;
    queue.db.advance(SECOND * 11).await;
    queue.reap().await;
    assert_eq!(queue.claim_as("a", 100).await.unwrap().len(), 1);
    queue.reap().await;
    assert!(aside(&queue.db).await.is_empty());
}

/// Q22: a job whose end, return, start or extension raises is set aside; the others of the batch are recorded.
#[tokio::test]
async fn a_job_that_cannot_be_recorded_stops_no_other_of_its_batch() {
    for (name, table, operation) in [
        ("ack", "job_run", "insert"),
        ("fail", "job_run", "insert"),
        ("release", "job_run", "insert"),
        ("start", "job_live", "update"),
        ("extend", "job_live", "update"),
    ] {
        let queue = Queue::open().await;
        let ids = enqueued(&queue, 5).await;
        let leases: Vec<_> = queue.claim_as("a", 5).await.unwrap().into_iter().map(|job| job.lease).collect();
        let row = if operation == "delete" { "old" } else { "new" };
        let condition = format!("{row}.job_id = '{}'", ids[1]);
        poison(&queue.db, table, operation, &condition).await;
        let worker = &queue.worker;
        let numbers: Vec<_> = leases.iter().map(|lease| (lease.job_id(), lease.attempt())).collect();
        let owner = LeaseOwner::new("a");
        let lost = match name {
            "ack" => worker.ack_many(leases).await.unwrap().lost,
            "release" => worker.release(leases).await.unwrap().lost,
            "fail" => {
                let failed = |lease| FailedAttempt { lease, failure: Failure::retry("no") };
                worker.fail_many(leases.into_iter().map(failed).collect()).await.unwrap().lost
            }
            "start" => worker.start_many(&owner, &numbers).await.unwrap(),
            _ => worker.extend_many(&owner, &numbers, LEASE * 2).await.unwrap().lost,
        };
        assert_eq!(lost, [ids[1]], "{name}");
        assert_eq!(aside(&queue.db).await, [format!("{name} {}", ids[1])]);
        let expected = match name {
            "ack" => "leased succeeded",
            "fail" => "leased retry_waiting",
            "release" => "leased queued",
            "start" => "in_progress leased",
            _ => "leased",
        };
        let states = "select string_agg(distinct state, ' ' order by state) from towpath.job_queue";
        assert_eq!(queue.db.text(states).await, expected, "{name}");

        // The lease runs out, the job runs again, and with it the fault ends.
        cure(&queue.db, table).await;
        queue.db.advance(LEASE * 3).await;
        queue.reap().await;
        for _ in 0..2 {
            queue.db.advance(LEASE).await;
            let leases = queue.claim_as("b", 5).await.unwrap().into_iter().map(|job| job.lease).collect();
            worker.ack_many(leases).await.unwrap();
        }
        queue.reap().await;
        assert_eq!(queue.db.text(states).await, "succeeded", "{name}");
        assert!(aside(&queue.db).await.is_empty(), "{name}");
    }
}

/// Q22: a count that cannot be added does not keep the others from being added.
#[tokio::test]
async fn a_count_that_overflows_stops_no_other() {
    let queue = Queue::open().await;
    for kind in ["good", "full", "fine"] {
        queue.enqueue(kind).await;
        queue.claim().await.ack(&queue.worker).await.unwrap();
    }
    let fill = "insert into towpath.job_counter values ('full', 'succeeded', 9223372036854775807)";
    queue.db.execute(fill).await;
    let fold = "towpath.fn_job_counter_fold()";
    assert_eq!(queue.db.json(fold).await["folded"], 2);
    let [fault] = &aside(&queue.db).await[..] else { panic!("one fault") };
    let item = fault.strip_prefix("counters ").unwrap();
    assert_eq!(queue.db.json(fold).await["folded"], 0, "it is passed by");
    queue.db.execute("update towpath.job_counter set n = 0 where job_kind = 'full'").await;
    retry(&queue.db, "counters", item).await;
    assert_eq!(queue.db.json(fold).await["folded"], 1);
    assert_eq!(queue.db.text("select sum(n) from towpath.job_counter").await, "3");
    assert!(aside(&queue.db).await.is_empty());
}

/// Q22: a lane whose floor cannot be moved keeps the others from nothing.
#[tokio::test]
async fn a_floor_that_cannot_move_stops_no_other() {
    let queue = Queue::open().await;
    for kind in ["a", "b", "c"] {
        queue.enqueue(kind).await;
    }
    let lane = queue.db.text("select lane from towpath.job_lane where job_kind = 'b'").await;
    poison(&queue.db, "job_floor", "insert", &format!("new.lane = {lane}")).await;
    let tick = "towpath.fn_job_floor_tick()";
    assert_eq!(queue.db.json(tick).await["moved"], 2);
    assert_eq!(aside(&queue.db).await, [format!("floors {lane}")]);
    assert_eq!(queue.claim_as("a", 10).await.unwrap().len(), 3, "claims go on everywhere");
    cure(&queue.db, "job_floor").await;
    retry(&queue.db, "floors", &lane).await;
    queue.db.advance(LEASE * 4).await;
    assert_eq!(queue.db.json(tick).await["moved"], 3);
    assert!(aside(&queue.db).await.is_empty());
}

/// Q22: a subscription whose places cannot be counted again keeps the others from nothing.
#[tokio::test]
async fn a_recount_that_fails_stops_no_other() {
    let queue = Queue::open().await;
    for executor in ["x", "y"] {
        queue.subscribe(executor, "p_max_parallel => 3").await;
    }
    let of = async |executor: &str, column: &str| {
        let sql = format!("select {column} from towpath.job_subscription where executor_id = '{executor}'");
        queue.db.text(&sql).await
    };
    queue.db.execute("update towpath.job_parallel set held = 7").await;
    let wrong = "insert into towpath.job_parallel (subscription_no, held, folded_to)
                 select subscription_no, 7, 0 from towpath.job_subscription where max_parallel is not null";
    queue.db.execute(wrong).await;
    poison(
        &queue.db,
        "job_parallel",
        "insert",
        &format!("new.subscription_no = {}", of("x", "subscription_no").await),
    )
    .await;
    let repaired = async || {
        let answer = queue.db.json("towpath.fn_job_parallel_recount()").await;
        answer["repaired"].as_array().unwrap().len()
    };
    assert_eq!(repaired().await, 1);
    let id = of("x", "subscription_id").await;
    assert_eq!(aside(&queue.db).await, [format!("recount {id}")]);
    assert_eq!(repaired().await, 0);
    cure(&queue.db, "job_parallel").await;
    retry(&queue.db, "recount", &id).await;
    assert_eq!(repaired().await, 1);
    assert!(aside(&queue.db).await.is_empty());
}

/// Q16, Q22: a partition that cannot be dropped, because somebody made a view on it, keeps no other from going.
#[tokio::test]
async fn a_partition_that_cannot_be_dropped_stops_no_other() {
    let queue = Queue::open().await;
    let today = "select date_trunc('day', towpath.fn_now(), 'UTC')";
    let day = async |days: i32| {
        queue
            .db
            .text(&format!("to_char(({today}) at time zone 'UTC' + interval '{days} days', 'YYYYMMDD')"))
            .await
    };
    let (first, second) = (day(1).await, day(2).await);
    queue.db.execute(&format!("create view public.mine as select job_id from towpath.job_p{first}")).await;
    queue
        .db
        .execute("update towpath.config set value = '1' where key like 'queue.retention.%_after_days'")
        .await;
    queue.db.advance(SECOND * 86_400 * 4).await;
    let mut dropped = vec![];
    for _ in 0..10 {
        let answer = queue.db.json("towpath.fn_job_retention_tick()").await;
        assert_eq!(answer["ok"], true, "{answer}");
        dropped
            .extend(answer["dropped"].as_array().unwrap().iter().map(|day| day.as_str().unwrap().to_owned()));
    }
    assert!(dropped.contains(&second) && !dropped.contains(&first), "{dropped:?}");
    assert_eq!(aside(&queue.db).await, [format!("retention {first}")]);
    queue.db.execute("drop view public.mine").await;
    retry(&queue.db, "retention", &first).await;
    assert_eq!(queue.db.json("towpath.fn_job_retention_tick()").await["dropped"], serde_json::json!([first]));
    queue.db.json("towpath.fn_job_retention_tick()").await;
    assert!(aside(&queue.db).await.is_empty());
}

/// Q22: a step of retention and a partition that cannot be made keep no other from being done.
#[tokio::test]
async fn tidying_goes_on_past_what_fails() {
    let queue = Queue::open().await;
    let heartbeat =
        "insert into towpath.queue_heartbeat (executor_name, executor_kind) values ('w@h-1', 'PG_worker')";
    queue.db.execute(heartbeat).await;
    let graph = "insert into towpath.job_graph (graph_id, name, actor, created_at)
                 values ('00000000-0000-7000-8000-000000000000', 'old', 'me', towpath.fn_now())";
    queue.db.execute(graph).await;
    poison(&queue.db, "job_graph", "delete", "true").await;
    queue.db.advance(SECOND * 86_400 * 2).await;
    queue.db.json("towpath.fn_job_retention_tick()").await;
    assert_eq!(
        queue.db.text("select count(*) from towpath.queue_heartbeat").await,
        "0",
        "a later step is done"
    );
    assert_eq!(aside(&queue.db).await, ["retention job_graph"]);
    cure(&queue.db, "job_graph").await;
    queue.db.advance(SECOND * 11).await;
    queue.db.json("towpath.fn_job_retention_tick()").await;
    assert!(aside(&queue.db).await.is_empty());

    let name = queue
        .db
        .text("'job_p' || to_char((date_trunc('day', towpath.fn_now(), 'UTC') + interval '7 days') at time zone 'UTC', 'YYYYMMDD')")
        .await;
    // The name is taken by a type, so that the table cannot be made.
    queue.db.execute(&format!("create type towpath.{name} as enum ()")).await;
    let made = queue.db.json("towpath.fn_job_partition_tick()").await;
    assert!(made["created"].to_string().contains(&name.replace("job_p", "job_run_p")), "{made}");
    let faults = queue.db.database().await.loop_fault_list(Some("partitions"), 10).await.unwrap();
    assert_eq!(faults.iter().map(|fault| fault.item.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    queue.db.execute(&format!("drop type towpath.{name}")).await;
    queue.db.advance(SECOND * 11).await;
    let made = queue.db.json("towpath.fn_job_partition_tick()").await;
    assert!(made["created"].to_string().contains(&name), "{made}");
    assert!(aside(&queue.db).await.is_empty());
}
