-- Maintenance: what must happen again and again, on any node, in bounded steps.
--
-- A tick that must not run twice at once tries an advisory lock and answers busy: true when
-- another node has it. None of them waits for a worker.

-- _tick_lock: true if this transaction may run the tick. The numbers under 7302:
-- 1 floor, 2 counters, 3 partitions and retention, 4 recount.
create or replace function towpath._tick_lock(p_tick integer) returns boolean
    language sql volatile
    set search_path = pg_catalog, pg_temp
as $$ select pg_try_advisory_xact_lock(7302, p_tick) $$;

-- fn_job_reap: leased | in_progress with a lease that ran out -> retry_waiting, or dead_letter
-- on the last attempt (Q11). The lost attempt counts.
--
-- Takes up to p_limit entries of the agenda (one per claim or extension) and looks at their
-- jobs. A lease that was extended has an entry of its own later on; a row that somebody is
-- just finishing is skipped and put back on the agenda. Any number of nodes may reap at once.
--
-- Answers: {ok, batches, retried, dead_letter, more: whether to come back at once}; gate_closed.
create or replace function towpath.fn_job_reap(p_limit integer default 50) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 1000);
    _batch record;
    _expired uuid[];
    _locked uuid[];
    _ended record;
    _batches integer := 0;
    _retried integer := 0;
    _dead integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    for _batch in
        select b.batch_id, b.job_ids from towpath.lease_batch b
         where b.lease_until < _now
         order by b.lease_until, b.batch_id
         limit _limit for update skip locked
    loop
        _batches := _batches + 1;
        perform towpath._job_settle(array[_batch.batch_id], null);
        _expired := array(select v.job_id from towpath.job_live v
                           where v.job_id = any(_batch.job_ids) and v.state in (1, 2) and v.lease_until < _now);
        if _expired <> '{}' then
            _locked := array(select v.job_id from towpath.job_live v
                              where v.job_id = any(_expired) and v.state in (1, 2) and v.lease_until < _now
                              order by v.job_id for update skip locked);
            if cardinality(_locked) < cardinality(_expired) then
                insert into towpath.lease_batch (lease_until, job_ids)
                values (_now + interval '5 seconds',
                        array(select unnest(_expired) except select unnest(_locked)));
            end if;
            select * into _ended from towpath._job_fail_rows(_locked, array['the lease ran out'], null, null, 0,
                                                             'lost', 'reaper', _now);
            _retried := _retried + cardinality(_ended.retried);
            _dead := _dead + cardinality(_ended.dead);
        end if;
        delete from towpath.lease_batch b where b.batch_id = _batch.batch_id;
    end loop;
    return jsonb_build_object('ok', true, 'batches', _batches, 'retried', _retried, 'dead_letter', _dead,
                              'more', _batches = _limit);
end;
$$;

-- fn_job_floor_tick: moves the floor of every lane up to 200 ms before its first waiting job.
--
-- From the old floor upwards that is one index probe per lane. A transaction that stayed
-- open past a floor may have committed a job below it: the sweep looks there too and lowers
-- the floor to what it finds, so such a job is late, never lost. Below the floor lie the dead
-- entries of finished jobs, and a held snapshot keeps them, so the sweep spends at most a
-- twentieth of the time: it waits twenty times as long as it took last time.
-- The floor never lies after now, or a new job would be stored as due too late.
--
-- Answers: {ok, lanes, moved, lowered, swept, busy}; gate_closed.
create or replace function towpath.fn_job_floor_tick() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _began timestamptz := clock_timestamp();
    _sweep boolean;
    _lane record;
    _first timestamptz;
    _floor timestamptz;
    _lanes integer := 0;
    _moved integer := 0;
    _lowered integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._tick_lock(1) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    select _now >= s.swept_at + s.sweep_ms * 20 * interval '1 millisecond' or s.swept_at > _now into _sweep
      from towpath.job_floor_sweep s;
    for _lane in
        select l.lane, f.floor_at, f.floor_no
          from towpath.job_lane l
          left join lateral (select f.floor_at, f.floor_no from towpath.job_floor f
                              where f.lane = l.lane order by f.floor_no desc limit 1) f on true
    loop
        _lanes := _lanes + 1;
        _first := null;
        if _sweep then
            select r.due_at into _first from towpath.job_ready r
             where r.lane = _lane.lane order by r.due_at limit 1;
        else
            select r.due_at into _first from towpath.job_ready r
             where r.lane = _lane.lane and r.due_at >= coalesce(_lane.floor_at, '-infinity') order by r.due_at limit 1;
        end if;
        _floor := least(coalesce(_first, _now), _now) - interval '200 milliseconds';
        continue when _floor between _lane.floor_at and _lane.floor_at + interval '200 milliseconds';
        -- An idle lane has no dead entries to step over; a minute's lag costs it nothing.
        continue when _first is null and _floor between _lane.floor_at and _lane.floor_at + interval '1 minute';
        insert into towpath.job_floor (lane, floor_at) values (_lane.lane, _floor);
        delete from towpath.job_floor f where f.lane = _lane.lane and f.floor_no = _lane.floor_no;
        if _floor < _lane.floor_at then
            _lowered := _lowered + 1;
        else
            _moved := _moved + 1;
        end if;
    end loop;
    if _sweep then
        update towpath.job_floor_sweep s
           set swept_at = _now,
               sweep_ms = extract(epoch from clock_timestamp() - _began) * 1000;
    end if;
    return jsonb_build_object('ok', true, 'lanes', _lanes, 'moved', _moved, 'lowered', _lowered, 'swept', _sweep,
                              'busy', false);
end;
$$;

-- fn_job_counter_fold: adds what ended lately to the totals and the minutes, forgets old minutes,
-- and clears flags and floors that newer ones replaced.
--
-- Answers: {ok, folded, more, busy}; gate_closed.
create or replace function towpath.fn_job_counter_fold(p_limit integer default 10000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 10000), 1), 100000);
    _folded integer;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._tick_lock(2) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    with gone as (
        delete from towpath.job_counter_delta d
         where d.ctid = any(array(select x.ctid from towpath.job_counter_delta x limit _limit))
        returning d.*),
    named as (
        select l.job_kind, g.outcome, date_trunc('minute', g.counted_at) as minute_at, count(*) as deltas,
               sum(g.n) as n, sum(g.wait_ms) as wait_ms, sum(g.run_ms) as run_ms
          from gone g join towpath.job_lane l on l.lane = g.lane
         group by l.job_kind, g.outcome, date_trunc('minute', g.counted_at)),
    total as (
        insert into towpath.job_counter as c (job_kind, outcome, n)
        select n.job_kind, n.outcome, sum(n.n) from named n group by n.job_kind, n.outcome order by 1, 2
        on conflict (job_kind, outcome) do update set n = c.n + excluded.n),
    minute as (
        insert into towpath.job_minute as m (minute_at, job_kind, outcome, n, wait_ms, run_ms)
        select n.minute_at, n.job_kind, n.outcome, n.n, n.wait_ms, n.run_ms from named n order by 1, 2, 3
        on conflict (minute_at, job_kind, outcome) do update
           set n = m.n + excluded.n, wait_ms = m.wait_ms + excluded.wait_ms, run_ms = m.run_ms + excluded.run_ms)
    select coalesce(sum(n.deltas), 0) into _folded from named n;
    delete from towpath.job_minute m
     where m.ctid = any(array(
           select x.ctid from towpath.job_minute x
            where x.minute_at < _now - towpath._config_number('queue.retention.chart_days') * interval '1 day'
            limit _limit));
    delete from towpath.job_wake w
     where w.ctid = any(array(
           select x.ctid from towpath.job_wake x
            where exists (select 1 from towpath.job_wake y
                           where y.job_kind = x.job_kind and y.executor = x.executor and y.wake_no > x.wake_no)
            limit _limit));
    return jsonb_build_object('ok', true, 'folded', _folded, 'more', _folded >= _limit, 'busy', false);
end;
$$;

-- fn_job_parallel_recount: checks the counters of max_parallel against the leases that are held and
-- repairs them; folds releases that committed late. One scan of job_live for each subscription
-- whose counter looks wrong, so seldom more than none.
--
-- Answers: {ok, checked, repaired: [{subscription_id, difference}], busy}; gate_closed.
create or replace function towpath.fn_job_parallel_recount() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _row record;
    _difference integer;
    _checked integer := 0;
    _repaired jsonb := '[]';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._tick_lock(4) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    for _row in
        select s.subscription_id, s.subscription_no, coalesce(h.n, 0) as leased, coalesce(p.held, 0) as held,
               coalesce(r.n, 0) as released, coalesce(r.late, false) as late
          from towpath.job_subscription s
          left join (select abs(v.subscription_no) as no, count(*) as n from towpath._job_now v
                      where v.state in (1, 2) group by 1) h on h.no = s.subscription_no
          left join lateral (select p.held, p.folded_to from towpath.job_parallel p
                              where p.subscription_no = s.subscription_no order by p.change_no desc limit 1) p on true
          left join lateral (select sum(r.n) as n, bool_or(r.release_no <= p.folded_to - 2000) as late
                               from towpath.job_parallel_release r where r.subscription_no = s.subscription_no) r on true
         where s.max_parallel is not null
         order by s.subscription_no
    loop
        _checked := _checked + 1;
        if _row.leased <> _row.held - _row.released or _row.late then
            _difference := towpath._job_parallel_recount(_row.subscription_no);
            _repaired := _repaired || jsonb_build_object('subscription_id', _row.subscription_id,
                                                         'difference', _difference);
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'checked', _checked, 'repaired', _repaired, 'busy', false);
end;
$$;

grant execute on function towpath.fn_job_reap(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_floor_tick() to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_counter_fold(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_parallel_recount() to towpath_maintainer, workflow_admin;
