//! The views operators read: the contract's columns, and what they cost (Q01, Q14).

use std::time::{Duration, Instant};

use towpath_db::job::Progress;
use towpath_testkit::queue::Queue;

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

/// Q14: the views of a queue with many dead letters read none of them: they touch as many pages as with few.
#[tokio::test]
async fn views_do_not_slow_down_with_dead_letters() {
    let queue = Queue::open().await;
    queue.db.execute(&dead_letters(10)).await;
    let before = buffers(&queue).await;
    queue.db.execute(&dead_letters(20_000)).await;
    queue.db.execute("vacuum analyze towpath.job_dead_letter").await;
    for ((view, before), (_, after)) in before.iter().zip(&buffers(&queue).await) {
        assert!(
            *after <= before * 2 + 20,
            "{view}: {before} pages with 10 dead letters, {after} with 20,010"
        );
    }
    let counted =
        "select min(dead_letters_pending) || ' ' || min(dead_letters_closed) from towpath.v_queue_health";
    assert_eq!(queue.db.text(counted).await, "2001 18009");
    let counted = "select jsonb_object_agg(triage_status, row_count) from towpath.v_job_dead_letter_summary";
    assert_eq!(queue.db.json(counted).await, serde_json::json!({ "pending": 2001, "closed": 18009 }));
}

/// Q14: after many changes, of one and of many dead letters, the summary says what counting them says; and the counts
/// it reads stay few.
#[tokio::test]
async fn the_summary_of_dead_letters_is_their_count() {
    let queue = Queue::open().await;
    queue.db.execute(&dead_letters(100)).await;
    queue
        .db
        .execute(
            "do $$ declare
                 _id uuid;
             begin
                 for _id in select dead_letter_id from towpath.job_dead_letter order by idempotency_key::int limit 80 loop
                     update towpath.job_dead_letter set triage_status = 'acknowledged', triaged_at = now(), triaged_by = 'me',
                            replayed_job_id = gen_random_uuid(), replayed_at = now(), replayed_by = 'me'
                      where dead_letter_id = _id;
                     update towpath.job_dead_letter set triage_status = 'escalated' where dead_letter_id = _id;
                 end loop;
                 update towpath.job_dead_letter set job_kind = 'sms' where idempotency_key::int % 3 = 0;
                 delete from towpath.job_dead_letter where idempotency_key::int % 7 = 0;
             end $$",
        )
        .await;
    let summary = "select jsonb_agg(to_jsonb(s) order by s) from towpath.v_job_dead_letter_summary s";
    let counted = "select jsonb_agg(to_jsonb(s) order by s)
                     from (select job_kind, triage_status, count(*) as row_count, count(replayed_job_id) as replayed_count,
                                  min(moved_at) as oldest_moved_at, max(moved_at) as newest_moved_at
                             from towpath.job_dead_letter group by 1, 2) s";
    assert_eq!(queue.db.json(summary).await, queue.db.json(counted).await);
    let most = "select max(n) from (select count(*) as n from towpath.job_dead_letter_count group by job_kind, triage_status) x";
    assert!(queue.db.text(most).await.parse::<u64>().unwrap() <= 65);
}

/// Dead letters of one kind, nine of ten closed.
fn dead_letters(count: u32) -> String {
    format!(
        "insert into towpath.job_dead_letter (dead_letter_id, job_id, job_kind, executor, payload_json, priority,
             max_attempts, final_error, attempts, actor, idempotency_key, created_at, moved_at, moved_by, triage_status,
             triaged_at, triaged_by)
         select towpath._uuid7(n), gen_random_uuid(), 'mail', 'PG_worker', '{{}}', 100, 5, repeat('no ', 100), 5, 'me',
                n::text, now(), to_timestamp(n / 1000000.0), 'reaper', case when n % 10 = 0 then 'pending' else 'closed' end,
                case when n % 10 > 0 then now() end, case when n % 10 > 0 then 'me' end
           from generate_series(1, {count}) n"
    )
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
