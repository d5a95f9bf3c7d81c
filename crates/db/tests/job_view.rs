//! The views operators read: the contract's columns, and what they cost (Q01, Q14).

use std::time::{Duration, Instant};

use towpath_db::job::Progress;

use crate::queue_place::Queue;

/// How many finished jobs the views are looked at with, if not the default.
const JOBS_VARIABLE: &str = "TOWPATH_TEST_FINISHED_JOBS";
const JOBS_DEFAULT: u64 = 20_000;

/// Q01: the columns of the contract, with its types, and those that were added.
#[tokio::test]
async fn job_queue_has_the_columns_of_the_contract() {
    let queue = Queue::open().await;
    let columns = "select string_agg(column_name || ' ' || udt_name, ', ' order by ordinal_position)
                     from information_schema.columns
                    where table_schema = 'towpath' and table_name = 'job_queue'";
    let columns = queue.db.text(columns).await;
    for (kind, names) in [
        ("uuid", "job_id run_id"),
        (
            "text",
            "job_kind state source_ref target_ref payload_ref lease_owner idempotency_key actor last_error",
        ),
        ("text", "executor event_domain"),
        ("jsonb", "payload_json"),
        ("int4", "priority attempts max_attempts"),
        ("timestamptz", "scheduled_at picked_at finished_at lease_until created_at updated_at"),
        ("_uuid", "blocked_by"),
    ] {
        for name in names.split(' ') {
            let wanted = format!("{name} {kind}");
            assert!(columns.split(", ").any(|column| column == wanted), "{wanted}: {columns}");
        }
    }
}

/// Q14: the views of a queue with many finished jobs read none of them: their work is the same as with
/// none, counted in buffers, and within a generous second.
#[tokio::test]
async fn views_do_not_slow_down_with_finished_jobs() {
    let jobs: u64 = std::env::var(JOBS_VARIABLE).map_or(JOBS_DEFAULT, |text| text.parse().unwrap());
    let queue = Queue::open().await;
    queue.enqueue_times("mail", 50).await;
    let before = buffers(&queue).await;
    // Written as acks leave them, a claim's worth per statement.
    queue.db.execute(&finished(jobs)).await;
    queue.db.execute("analyze").await;
    assert_eq!(queue.db.text("select count(*) from towpath.job_run").await, jobs.to_string());
    let after = buffers(&queue).await;
    for ((view, before), (_, after)) in before.iter().zip(&after) {
        assert!(
            *after <= before * 2 + 50,
            "{view}: {before} buffers without, {after} with {jobs} finished jobs"
        );
    }
    let began = Instant::now();
    for (view, _) in &after {
        queue.db.execute(&format!("select * from towpath.{view}")).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?} for three views", began.elapsed());
}

/// Q01: `updated_at` moves with everything that happens to a job.
#[tokio::test]
async fn updated_at_moves_with_every_change() {
    let queue = Queue::open().await;
    let job_id = queue.enqueue("mail").await;
    let mut last = String::new();
    let mut moved = async |what: &str| {
        let sql =
            format!("select updated_at at time zone 'UTC' from towpath.job_queue where job_id = '{job_id}'");
        let now = queue.db.text(&sql).await;
        assert!(now > last, "{what}: {last} stayed");
        last = now;
        queue.db.advance(Duration::from_secs(1)).await;
    };
    moved("enqueue").await;
    let mut lease = queue.claim().await;
    moved("claim").await;
    lease.start(&queue.worker).await.unwrap();
    moved("start").await;
    lease.extend(&queue.worker, Duration::from_secs(60)).await.unwrap();
    moved("extend").await;
    lease.progress(&queue.worker, Progress { percent: Some(5), message: None }).await.unwrap();
    moved("progress").await;
    queue
        .worker
        .extend_many(lease.owner(), &[(job_id, lease.attempt())], Duration::from_secs(90))
        .await
        .unwrap();
    moved("extend many").await;
    lease.ack(&queue.worker).await.unwrap();
    moved("ack").await;
    let job_id = queue.enqueue("mail").await;
    let lease = queue.claim().await;
    let before =
        queue.db.text(&format!("select updated_at from towpath.job_queue where job_id = '{job_id}'")).await;
    queue.db.advance(Duration::from_secs(1)).await;
    queue.worker.start_many(lease.owner(), &[(job_id, lease.attempt())]).await.unwrap();
    let after =
        queue.db.text(&format!("select updated_at from towpath.job_queue where job_id = '{job_id}'")).await;
    assert!(after > before, "start many: {before} stayed");
}

/// Q14: many dead letters are counted right, and no view reads one of them twice.
#[tokio::test]
async fn views_read_no_dead_letter_twice() {
    let queue = Queue::open().await;
    queue
        .db
        .execute(
            "insert into towpath.job_dead_letter (dead_letter_id, job_id, job_kind, executor, payload_json, priority,
                 max_attempts, final_error, attempts, actor, idempotency_key, created_at, moved_by, triage_status,
                 triaged_at, triaged_by)
             select gen_random_uuid(), gen_random_uuid(), 'mail', 'PG_worker', '{}', 100, 5, repeat('no ', 100), 5, 'me',
                    n::text, now(), 'reaper', case when n % 10 = 0 then 'pending' else 'closed' end,
                    case when n % 10 > 0 then now() end, case when n % 10 > 0 then 'me' end
               from generate_series(1, 20000) n",
        )
        .await;
    queue.db.execute("vacuum analyze towpath.job_dead_letter").await;
    let rows = "select pg_relation_size('towpath.job_dead_letter') / current_setting('block_size')::int";
    let rows: u64 = queue.db.text(rows).await.parse().unwrap();
    for (view, touched) in buffers(&queue).await {
        assert!(touched <= rows + 200, "{view} touches {touched} pages, the letters have {rows}");
    }
    let counted =
        "select min(dead_letters_pending) || ' ' || min(dead_letters_closed) from towpath.v_queue_health";
    assert_eq!(queue.db.text(counted).await, "2000 18000");
    let counted = "select jsonb_object_agg(triage_status, row_count) from towpath.v_job_dead_letter_summary";
    assert_eq!(queue.db.json(counted).await, serde_json::json!({ "pending": 2000, "closed": 18000 }));
}

/// What each view touches, in pages.
async fn buffers(queue: &Queue) -> Vec<(&'static str, u64)> {
    let mut counted = vec![];
    for view in ["v_queue_health", "v_job_queue_backlog", "v_job_dead_letter_summary"] {
        let client = queue.db.client().await;
        let sql = format!("explain (analyze, buffers, timing off, format json) select * from towpath.{view}");
        // The first look also reads the catalogue and sets hint bits.
        client.query_one(&sql, &[]).await.unwrap();
        let plan: serde_json::Value = client.query_one(&sql, &[]).await.unwrap().get(0);
        let of = |key: &str| plan[0]["Plan"][key].as_u64().unwrap();
        counted.push((view, of("Shared Hit Blocks") + of("Shared Read Blocks")));
    }
    counted
}

/// Jobs of the last hour that succeeded, in both tables and in the counters.
fn finished(jobs: u64) -> String {
    format!(
        "insert into towpath.job (job_id, job_kind, priority, scheduled_at, max_attempts, idempotency_key,
                                  actor, created_at, executor, payload_json)
         select towpath._uuid7((extract(epoch from now()) * 1000000)::bigint - n), 'mail', 100, now(), 5,
                'finished ' || n, 'tester', now(), 'PG_worker', '{{}}'
           from generate_series(1, {jobs}) n;
         insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner)
         select j.job_id, 1, 0, now(), now(), 'succeeded', 'a' from towpath.job j
          where j.idempotency_key like 'finished %';
         insert into towpath.job_counter (job_kind, outcome, n) values ('mail', 'succeeded', {jobs})
             on conflict (job_kind, outcome) do update set n = towpath.job_counter.n + excluded.n;"
    )
}
