-- What a claim that finds nothing costs with one lane, with 5,000 lanes in use, and after they were collected.
--
--   towpath db psql -- -X -f bench/jobs/lanes.sql      (on a database of its own: it makes jobs and moves the collector)
--
-- Prints the median of 200 claims in microseconds. docs/decisions/0013-lanes-are-collected.md has a run.

\set QUIET on
set client_min_messages = warning;
update towpath.config set value = 'true' where key in ('queue.job_substrate.enabled', 'queue.worker.enabled');
select towpath.fn_consumer_put('bench_lanes', 'PG_worker') \g /dev/null
select towpath.fn_job_subscription_put('bench_lanes', 'PG_worker', 'bench.lanes', p_max_parallel => null, p_enabled => true) \g /dev/null

create or replace function pg_temp.claim_us() returns numeric language plpgsql as $$
declare
    _began timestamptz;
    _took double precision[] := '{}';
begin
    for _i in 1..200 loop
        _began := clock_timestamp();
        perform count(*) from towpath.fn_job_claim_rows('bench_lanes', null, 1, 'bench');
        _took := _took || extract(epoch from clock_timestamp() - _began) * 1000000;
    end loop;
    return (select round((percentile_cont(0.5) within group (order by t))::numeric, 1) from unnest(_took) t);
end;
$$;

-- run_all: claims and acks everything there is.
create or replace function pg_temp.run_all() returns void language plpgsql as $$
declare
    _claimed record;
begin
    loop
        select array_agg(c.job_id) as ids, array_agg(c.attempt) as attempts, array_agg(distinct c.entry_id) as entries
          into _claimed from towpath.fn_job_claim_rows('bench_lanes', null, 1000, 'bench') c;
        exit when _claimed.ids is null;
        perform towpath.fn_job_ack_many(_claimed.ids, 'bench', _claimed.attempts, _claimed.entries);
    end loop;
end;
$$;

select towpath.fn_job_enqueue('bench.lanes', p_executor => 'PG_worker') \g /dev/null
select pg_temp.run_all() \g /dev/null
select towpath.fn_job_floor_tick(), towpath.fn_job_counter_fold() \g /dev/null
\echo 'one lane:'
select pg_temp.claim_us() as "µs";

select count(towpath.fn_job_enqueue('bench.lanes', p_priority => n, p_executor => 'PG_worker')) from generate_series(1, 5000) n \g /dev/null
select pg_temp.run_all() \g /dev/null
select towpath.fn_job_floor_tick(), towpath.fn_job_counter_fold() \g /dev/null
\echo '5,000 lanes that were used a moment ago:'
select pg_temp.claim_us() as "µs";

-- As if fifteen seconds had passed.
update towpath.job_lane set used_at = used_at - interval '1 minute' where job_kind = 'bench.lanes';
select towpath.fn_job_lane_tick(10000) \g /dev/null
\echo '5,000 lanes that are closed:'
select pg_temp.claim_us() as "µs";
select towpath.fn_job_lane_tick(10000) \g /dev/null
select towpath.fn_job_lane_tick(10000) \g /dev/null
vacuum analyze towpath.job_lane, towpath.job_floor, towpath.job_ready;
\echo 'after they were collected:'
select pg_temp.claim_us() as "µs";
select count(*) as "lanes left" from towpath.job_lane where job_kind = 'bench.lanes';
