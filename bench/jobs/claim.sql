-- What bench/jobs/claim runs inside the server.

create unlogged table public.claimed (part text, at timestamptz default clock_timestamp(), jobs integer, ms double precision,
    ack_ms double precision);

-- produce: that many jobs in batches of 500.
create function public.produce(p_jobs integer) returns void language plpgsql as $$
begin
    for _i in 1..p_jobs / 500 loop
        perform towpath.fn_job_enqueue_many((select jsonb_agg(jsonb_build_object('job_kind', 'noop', 'payload_json',
            jsonb_build_object('number', n))) from generate_series(1, 500) n));
    end loop;
end;
$$;

-- take: one timed claim and its ack, each in a transaction of its own; how many jobs it got. Acks name the lease entries of
-- the claim (entries, as a worker does), or only jobs (ids), or one job a call (single), as executors over HTTP do.
create procedure public.take(p_limit integer, p_part text, p_acks text, inout jobs integer) language plpgsql as $$
declare
    _began timestamptz := clock_timestamp();
    _owner text := 'w' || pg_backend_pid();
    _claim_ms double precision;
    _ids uuid[];
    _attempts integer[];
    _entries bigint[];
begin
    select array_agg(c.job_id), array_agg(c.attempt), array_agg(distinct c.entry_id) into _ids, _attempts, _entries
      from towpath.fn_job_claim_rows('bench', array['noop'], p_limit, _owner, 30) c;
    commit;
    jobs := coalesce(cardinality(_ids), 0);
    if jobs > 0 then
        _claim_ms := extract(epoch from clock_timestamp() - _began) * 1000;
        _began := clock_timestamp();
        if p_acks = 'single' then
            for _i in 1..jobs loop
                perform towpath.fn_job_ack(_ids[_i], _owner, _attempts[_i]);
            end loop;
        else
            perform towpath.fn_job_ack_many(_ids, _owner, _attempts, case p_acks when 'entries' then _entries end);
        end if;
        commit;
        insert into public.claimed (part, jobs, ms, ack_ms)
        values (p_part, jobs, _claim_ms, extract(epoch from clock_timestamp() - _began) * 1000);
    end if;
end;
$$;

-- work: a claim; a short rest if there was nothing.
create procedure public.work(p_limit integer, p_acks text) language plpgsql as $$
declare
    _jobs integer;
begin
    call public.take(p_limit, 'held', p_acks, _jobs);
    if _jobs < p_limit then
        perform pg_sleep(0.01);
    end if;
end;
$$;

create procedure public.drain(p_claims integer, p_part text) language plpgsql as $$
declare
    _jobs integer;
begin
    for _i in 1..p_claims loop
        call public.take(200, p_part, 'entries', _jobs);
        if _i % 50 = 0 then
            perform towpath.fn_job_floor_tick();
            commit;
        end if;
    end loop;
end;
$$;

-- load: finished jobs with their runs straight into the tables; waiting ones as an enqueue
-- leaves them.
create procedure public.load(p_ready integer, p_future integer, p_finished integer) language plpgsql as $$
declare
    _lane integer := (select l.lane from towpath.job_lane l where l.job_kind = 'noop' limit 1);
    _now timestamptz := clock_timestamp();
    _micros bigint := (extract(epoch from _now) * 1000000)::bigint;
begin
    create temp table made as
    select towpath._uuid7(_micros + n) as job_id, n from generate_series(1, p_ready + p_future + p_finished) n;
    insert into towpath.job (job_id, job_kind, executor, payload_json, scheduled_at, max_attempts, idempotency_key,
        actor, created_at)
    select m.job_id, 'noop', 'PG_worker', jsonb_build_object('number', m.n), _now, 5, m.job_id::text, 'bench', _now
      from made m;
    insert into towpath.job_run (job_id, attempt, picked_at, finished_at, outcome, lease_owner)
    select m.job_id, 1, _now, _now, 'succeeded', 'bench' from made m where m.n > p_ready + p_future;
    insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
    select _lane, case when m.n <= p_ready then _now else _now + interval '1 day' end, m.job_id, 0, 0, true
      from made m where m.n <= p_ready + p_future;
    drop table made;
    commit;
end;
$$;

-- quarters: claims and acks by quarter of the time, and the last quarter's p50 as a multiple of the first's.
create function public.quarters(p_seconds integer, p_rate integer, p_acks text) returns jsonb language sql as $$
    with quarter as (
        select width_bucket(extract(epoch from c.at - s.began), 0, p_seconds + 0.001, 4) as no,
               sum(c.jobs) as jobs,
               percentile_cont(0.5) within group (order by c.ms) as p50,
               percentile_cont(0.99) within group (order by c.ms) as p99,
               percentile_cont(0.5) within group (order by c.ack_ms) as ack_p50
          from public.claimed c, (select min(x.at) as began from public.claimed x) s group by 1)
    select jsonb_build_object('measure', 'held', 'seconds', p_seconds, 'rate', p_rate, 'acks', p_acks,
               'jobs', sum(q.jobs), 'p50_ms', jsonb_agg(round(q.p50::numeric, 2) order by q.no),
               'p99_ms', jsonb_agg(round(q.p99::numeric, 2) order by q.no),
               'last_to_first', round((max(q.p50) filter (where q.no = 4) / max(q.p50) filter (where q.no = 1))::numeric, 2),
               'ack_p50_ms', jsonb_agg(round(q.ack_p50::numeric, 2) order by q.no),
               'ack_last_to_first',
               round((max(q.ack_p50) filter (where q.no = 4) / max(q.ack_p50) filter (where q.no = 1))::numeric, 2))
      from quarter q where q.no between 1 and 4
$$;

-- sizes: the claims on the large tables beside those on the empty ones.
create function public.sizes(p_ready integer, p_future integer, p_finished integer) returns jsonb language sql as $$
    with part as (
        select c.part, percentile_cont(0.5) within group (order by c.ms) as p50,
               percentile_cont(0.99) within group (order by c.ms) as p99
          from public.claimed c group by c.part)
    select jsonb_build_object('measure', 'large', 'ready', p_ready, 'future', p_future, 'finished', p_finished,
               'empty_p50_ms', round((e.p50)::numeric, 2), 'empty_p99_ms', round((e.p99)::numeric, 2),
               'large_p50_ms', round((l.p50)::numeric, 2), 'large_p99_ms', round((l.p99)::numeric, 2),
               'large_to_empty', round((l.p50 / e.p50)::numeric, 2))
      from part e, part l where e.part = 'empty' and l.part = 'large'
$$;
