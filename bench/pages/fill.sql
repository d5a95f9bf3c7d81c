-- Fills a fresh database for bench/pages, straight into the tables: what matters is how many rows
-- pages meet, not how they came to be. Takes :rows jobs and as many events over the last
-- three hours, a twentieth as many dead letters, a tenth as many processes.
\set ON_ERROR_STOP on
set client_min_messages = warning;
set synchronous_commit = off;
set work_mem = '64MB';

create temporary table made as
select n, towpath._uuid7((extract(epoch from at) * 1000000)::bigint) as job_id, at,
       (array['mail', 'order.ship', 'order.bill', 'report', 'thumbnail', 'sync', 'import', 'export', 'index',
              'cleanup', 'invoice', 'webhook.retry'])[1 + n % 12] as job_kind,
       -- Of a hundred: 76 succeeded, 3 dead letters, 1 cancelled, 20 unfinished.
       (n / 12) % 100 as share
  from (select n, now() - interval '3 hours' * ((:rows - n)::double precision / :rows) as at
          from generate_series(1, :rows) n) r;
analyze made;

insert into towpath.job_lane (job_kind, executor, priority)
select distinct m.job_kind, 'PG_worker'::towpath.executor_kind, 100 from made m on conflict do nothing;

insert into towpath.job (job_id, job_kind, executor, payload_json, scheduled_at, max_attempts, idempotency_key, actor,
                         created_at)
select m.job_id, m.job_kind, 'PG_worker',
       jsonb_build_object('order', m.n, 'customer', jsonb_build_object('id', 'c' || m.n % 5000, 'name', 'Customer ' || m.n),
                          'amount', m.n % 997, 'note', repeat('some words about it ', 5)),
       m.at, 5, 'bench-' || m.n, 'app-' || m.n % 20, m.at
  from made m;

-- Unfinished: 12 due, 4 next week, 3 wait for a retry, 1 runs.
insert into towpath.job_live (job_id, due_at, lane, attempts, max_attempts, state, lease_owner, lease_until, picked_at)
select m.job_id, case when m.share between 12 and 15 then now() + interval '7 days' else m.at end, l.lane,
       case when m.share >= 16 then 1 else 0 end, 5,
       case when m.share = 19 then 2 when m.share >= 16 then 3 else 0 end,
       case when m.share = 19 then 'bench' end, case when m.share = 19 then now() + interval '1 day' end,
       case when m.share = 19 then m.at end
  from made m join towpath.job_lane l on l.job_kind = m.job_kind where m.share < 20;
insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
select v.lane, v.due_at, v.job_id, v.attempts, 0, false from towpath.job_live v where v.state in (0, 3);

-- Ended attempts: of a retry the first, of the rest the last, and one in twenty had failed before.
insert into towpath.job_run (job_id, attempt, picked_at, finished_at, outcome, lease_owner, error)
select m.job_id, 1, m.at + interval '5 ms' * (m.n % 40), m.at + interval '5 ms' * (m.n % 40) + interval '3 ms' * (m.n % 90),
       case when m.share in (16, 17, 18) or m.n % 20 = 0 then 'failed' when m.share in (20, 21, 22) then 'dead_letter'
            when m.share = 23 then 'cancelled' else 'succeeded' end, 'bench',
       case when m.share in (16, 17, 18, 20, 21, 22) or m.n % 20 = 0
            then format('the provider answered %s for order %s', 500 + m.n % 5, m.n) end
  from made m where m.share >= 16 and m.share <> 19;
insert into towpath.job_run (job_id, attempt, picked_at, finished_at, outcome, lease_owner)
select m.job_id, 2, m.at + interval '1 second', m.at + interval '1 second 20 ms', 'succeeded', 'bench'
  from made m where m.share > 23 and m.n % 20 = 0;
insert into towpath.job_counter (job_kind, outcome, n)
select m.job_kind, 'succeeded', count(*) from made m where m.share > 23 group by 1 on conflict do nothing;
insert into towpath.job_minute (minute_at, job_kind, outcome, n, wait_ms, run_ms)
select date_trunc('minute', m.at), m.job_kind, 'succeeded', count(*), count(*) * 100, count(*) * 135
  from made m where m.share > 23 group by 1, 2 on conflict do nothing;

insert into towpath.job_dead_letter (dead_letter_id, job_id, job_kind, executor, payload_json, priority, max_attempts,
    final_error, attempts, actor, idempotency_key, created_at, moved_at, moved_by, triage_status)
select towpath._uuid7((extract(epoch from m.at) * 1000000)::bigint), m.job_id, m.job_kind, 'PG_worker',
       jsonb_build_object('order', m.n), 100, 5, format('the provider answered %s for order %s', 500 + m.n % 5, m.n), 5,
       'app-1', 'bench-' || m.n, m.at, m.at, 'bench',
       (array['pending', 'acknowledged', 'escalated', 'closed'])[1 + m.n % 4]
  from made m where m.share in (20, 21, 22) or (m.share in (24, 25) and m.n % 2 = 0);

-- Events. The sequencer of the running server numbers them.
insert into towpath.event_outbox (event_id, event_domain, event_type, subject_table, subject_ref, actor, created_at, payload)
select towpath._uuid7((extract(epoch from m.at) * 1000000)::bigint),
       (array['sales', 'stock', 'billing', 'people'])[1 + m.n % 4],
       (array['order.placed', 'order.paid', 'order.shipped', 'item.counted', 'invoice.sent'])[1 + m.n % 5],
       'order', (m.n % 100000)::text, 'app-' || m.n % 20, m.at,
       jsonb_build_object('order', m.n, 'customer', jsonb_build_object('id', 'c' || m.n % 5000), 'amount', m.n % 997,
                          'note', repeat('some words about it ', 3))
  from made m order by m.n;

-- Processes: one in ten jobs has one; a tenth of those is not over.
insert into towpath.process_kind (process_kind, supervisor, task_kind, changed_by)
values ('bench.call', null, 'bench.call', 'bench') on conflict do nothing;
insert into towpath.process (process_id, process_kind, ref, state, in_database, next_check_at, deadline_at, max_attempts,
                             started_by, started_at, finished_at)
select m.job_id, 'bench.call', 'order-' || m.n, case when m.n % 100 = 0 then 'open' when m.n % 500 = 10 then 'held'
       when m.n % 70 = 0 then 'gave_up' else 'succeeded' end, false,
       case when m.n % 100 = 0 or m.n % 500 = 10 then now() + interval '1 day' end, m.at + interval '7 days', 5, 'app-1', m.at,
       case when not (m.n % 100 = 0 or m.n % 500 = 10) then m.at + interval '2 seconds' end
  from made m where m.n % 10 = 0;
insert into towpath.process_fact (process_id, fact_no, fact, detail, actor, recorded_at)
select p.process_id, 1, 'started', '{}', 'app-1', p.started_at from towpath.process p;

insert into towpath.audit (at, actor, action, target, detail, outcome)
select m.at, 'ann', 'job cancel', m.job_id::text, 'bench', 'ok' from made m where m.n % 20 = 0;
vacuum analyze;
