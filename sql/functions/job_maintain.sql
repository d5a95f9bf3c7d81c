-- Maintenance: what must happen again and again, on any node, in bounded steps.
--
-- A tick that must not run twice at once tries an advisory lock and answers busy: true when
-- another node has it. None of them waits for a worker.

-- _tick_refusal: what a tick answers instead of running: the gate is closed, or another node runs it. Null: it runs. The
-- numbers under 7302: 1 floor, 2 counters, 3 partitions and retention, 4 recount, 5 lanes.
create or replace function towpath._tick_refusal(p_tick integer) returns jsonb
    language plpgsql
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
begin
    if _refusal is null and not pg_try_advisory_xact_lock(7302, p_tick) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    return _refusal;
end;
$$;

-- fn_job_reap: leased | in_progress with a lease that ran out -> retry_waiting, or dead_letter
-- on the last attempt (Q11). The lost attempt counts.
--
-- Takes up to p_limit lease entries whose time is up and looks at their jobs. A lease that was
-- extended has an entry of its own later on; for a row that is locked because it is just being
-- finished there is a new entry. Any number of nodes may reap at once.
-- A job that cannot be reaped is set aside and stays leased; the others go on (Q22).
--
-- Answers: {ok, entries, retried, dead_letter, more: whether to come back at once}; gate_closed.
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
    _done record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    begin
        _done := towpath._job_reap_entries(_limit, false, _now);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
        _done := towpath._job_reap_entries(_limit, true, _now);
    end;
    if _done.entries < _limit then
        perform towpath._loop_over('reap', _now);
    end if;
    perform towpath._job_faults_follow(_now);
    return jsonb_build_object('ok', true, 'entries', _done.entries, 'retried', _done.retried,
                              'dead_letter', _done.dead, 'more', _done.entries = _limit);
end;
$$;

-- _job_reap_entries: a pass of the reaper. Careful means that an error is looked for until the job that
-- raises it is found; else it ends the pass. A job that is set aside has an entry of its own.
create or replace function towpath._job_reap_entries(
    p_limit integer, p_careful boolean, p_now timestamptz, out entries integer, out retried integer, out dead integer)
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _aside text[] := towpath._loop_aside('reap');
    _entry towpath.lease_entry;
    _done record;
begin
    entries := 0;
    retried := 0;
    dead := 0;
    for _entry in
        select e.* from towpath.lease_entry e
         where e.lease_until < p_now
           and (_aside = '{}' or cardinality(e.job_ids) > 1 or e.job_ids[1]::text <> all(_aside))
         order by e.lease_until, e.entry_id
         limit p_limit for update skip locked
    loop
        entries := entries + 1;
        if p_careful then
            _done := towpath._job_reap_carefully(_entry, _entry.job_ids, p_now);
        else
            _done := towpath._job_reap_jobs(_entry, _entry.job_ids, p_now);
        end if;
        retried := retried + _done.retried;
        dead := dead + _done.dead;
        if p_careful and _done.faulty <> '{}' then
            insert into towpath.lease_entry (lease_until, job_ids, attempt, lease_owner, picked_at, subscription_no, lane,
                refunded, wait_ms, bundle)
            select _entry.lease_until, array[f.job_id], _entry.attempt, _entry.lease_owner, _entry.picked_at,
                   _entry.subscription_no, _entry.lane, _entry.refunded, _entry.wait_ms, _entry.bundle
              from unnest(_done.faulty) as f(job_id);
        end if;
        delete from towpath.lease_entry e where e.entry_id = _entry.entry_id;
    end loop;
end;
$$;

-- _job_reap_jobs: what the reaper does with jobs of one lease entry, which it has locked.
create or replace function towpath._job_reap_jobs(
    p_entry towpath.lease_entry, p_job_ids uuid[], p_now timestamptz, out retried integer, out dead integer, out faulty uuid[])
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _expired uuid[];
    _locked uuid[];
    _ended record;
begin
    retried := 0;
    dead := 0;
    faulty := '{}';
    if p_entry.attempt is not null then
        perform towpath._job_settle_jobs(p_entry, p_job_ids);
    end if;
    _expired := array(select v.job_id from towpath.job_live v
                       where v.job_id = any(p_job_ids) and v.state in (1, 2) and v.lease_until < p_now);
    if _expired = '{}' then
        return;
    end if;
    _locked := array(select v.job_id from towpath.job_live v
                      where v.job_id = any(_expired) and v.state in (1, 2) and v.lease_until < p_now
                      order by v.job_id for update skip locked);
    if cardinality(_locked) < cardinality(_expired) then
        insert into towpath.lease_entry (lease_until, job_ids)
        values (p_now + interval '5 seconds', array(select unnest(_expired) except select unnest(_locked)));
    end if;
    select * into _ended from towpath._job_fail_rows(_locked, array['the lease expired'], null, null, 0,
                                                     'lost', 'reaper', p_now);
    retried := cardinality(_ended.retried);
    dead := cardinality(_ended.dead);
end;
$$;

-- _job_reap_carefully: the same; what raises is halved until the job that raises is alone, and that is set aside.
create or replace function towpath._job_reap_carefully(
    p_entry towpath.lease_entry, p_job_ids uuid[], p_now timestamptz, out retried integer, out dead integer, out faulty uuid[])
    language plpgsql
as $$
declare
    _half integer := cardinality(p_job_ids) / 2;
    _left record;
    _right record;
begin
    select j.retried, j.dead, j.faulty into retried, dead, faulty
      from towpath._job_reap_jobs(p_entry, p_job_ids, p_now) j;
exception when others then
    if towpath._error_common(sqlstate) then
        raise;
    end if;
    if _half = 0 then
        perform towpath._loop_fault('reap', p_job_ids[1]::text, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
        retried := 0;
        dead := 0;
        faulty := p_job_ids;
        return;
    end if;
    _left := towpath._job_reap_carefully(p_entry, p_job_ids[:_half], p_now);
    _right := towpath._job_reap_carefully(p_entry, p_job_ids[_half + 1:], p_now);
    retried := _left.retried + _right.retried;
    dead := _left.dead + _right.dead;
    faulty := _left.faulty || _right.faulty;
end;
$$;

-- fn_job_floor_tick: moves the floor of every lane up to 200 ms before its first waiting job.
--
-- From the old floor upwards that is one index probe per lane. A transaction that stayed
-- open past a floor may have committed a job below it: the sweep looks there too and lowers
-- the floor to what it finds, so such a job is late, never lost. Below the floor lie the dead
-- entries of finished jobs, and a held snapshot keeps them, so the sweep spends at most a
-- twentieth of the time: it waits twenty times as long as it took last time.
-- The floor never lies after now, or a new job would be stored as due too late. That the clock went back is noticed here.
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
    _refusal jsonb := towpath._tick_refusal(1);
    _now timestamptz := towpath.fn_now();
    _began timestamptz := clock_timestamp();
    _sweep boolean;
    _seen timestamptz;
    _back_until timestamptz;
    _done record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select _now >= s.swept_at + s.sweep_ms * 20 * interval '1 millisecond' or s.swept_at > _now, s.seen_at, s.back_until
      into _sweep, _seen, _back_until
      from towpath.job_floor_sweep s;
    if _seen > _now + interval '100 milliseconds' then
        _back_until := _seen;
        perform towpath._job_clock_back(_now, _back_until, true);
    elsif _now < _back_until then
        perform towpath._job_clock_back(_now, _back_until, false);
    end if;
    begin
        _done := towpath._job_floors_move(_sweep, false, _now);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
        _done := towpath._job_floors_move(_sweep, true, _now);
    end;
    perform towpath._loop_over('floors', _now);
    update towpath.job_floor_sweep s
       set seen_at = _now, back_until = _back_until,
           swept_at = case when _sweep then _now else s.swept_at end,
           sweep_ms = case when _sweep then extract(epoch from clock_timestamp() - _began) * 1000 else s.sweep_ms end;
    return jsonb_build_object('ok', true, 'lanes', _done.lanes, 'moved', _done.moved, 'lowered', _done.lowered,
                              'swept', _sweep, 'busy', false);
end;
$$;

-- _job_clock_back: the clock went back, from p_until to p_now. Jobs that were due stay due, and leases last no longer
-- than they would have. Later, until the clock is where it was, only jobs that wanted to be due by now and were
-- raised to a floor of before: their producers had not seen the new one.
--
-- Schedules are left alone: a tick is a moment of the clock on the wall, and happens once.
create or replace function towpath._job_clock_back(p_now timestamptz, p_until timestamptz, p_first boolean) returns void
    language plpgsql
as $$
declare
    _lanes integer[] := array(select l.lane from towpath.job_lane l);
begin
    if p_first then
        update towpath.lease_entry e set lease_until = e.lease_until - (p_until - p_now);
    end if;
    with late as (
        update towpath.job_ready r set due_at = p_now
         where r.lane = any(_lanes) and r.due_at > p_now and r.due_at <= p_until
           and (p_first or r.attempts = 0 and (select j.scheduled_at from towpath.job j where j.job_id = r.job_id) <= p_now)
        returning r.lane, r.job_id, r.bundle),
    live as (
        update towpath.job_live v set due_at = p_now
          from late l where v.job_id = l.job_id and not l.bundle)
    select array_agg(distinct l.lane) into _lanes from late l;
    if p_first then
        update towpath.job_live v set lease_until = v.lease_until - (p_until - p_now) where v.state in (1, 2);
    end if;
    perform towpath._job_wake(_lanes);
end;
$$;

-- _job_floors_move: the floors of all lanes. Careful means that a lane that raises is set aside; else it ends the pass.
create or replace function towpath._job_floors_move(
    p_sweep boolean, p_careful boolean, p_now timestamptz, out lanes integer, out moved integer, out lowered integer)
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _aside text[] := towpath._loop_aside('floors');
    _lane record;
    _way integer;
begin
    lanes := 0;
    moved := 0;
    lowered := 0;
    for _lane in
        select l.lane, f.floor_at, f.floor_no
          from towpath.job_lane l
          left join lateral (select f.floor_at, f.floor_no from towpath.job_floor f
                              where f.lane = l.lane order by f.floor_no desc limit 1) f on true
         where _aside = '{}' or l.lane::text <> all(_aside)
    loop
        lanes := lanes + 1;
        if p_careful then
            begin
                _way := towpath._job_floor_move(_lane.lane, _lane.floor_at, _lane.floor_no, p_sweep, p_now);
            exception when others then
                if towpath._error_common(sqlstate) then
                    raise;
                end if;
                perform towpath._loop_fault('floors', _lane.lane::text, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
                _way := 0;
            end;
        else
            _way := towpath._job_floor_move(_lane.lane, _lane.floor_at, _lane.floor_no, p_sweep, p_now);
        end if;
        moved := moved + (_way > 0)::integer;
        lowered := lowered + (_way < 0)::integer;
    end loop;
end;
$$;

-- _job_floor_move: the floor of one lane. Returns 1 if it was raised, -1 if it was lowered, 0 if it stays.
create or replace function towpath._job_floor_move(
    p_lane integer, p_floor_at timestamptz, p_floor_no bigint, p_sweep boolean, p_now timestamptz) returns integer
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _first timestamptz;
    _floor timestamptz;
begin
    if p_sweep then
        select r.due_at into _first from towpath.job_ready r
         where r.lane = p_lane order by r.due_at limit 1;
    else
        select r.due_at into _first from towpath.job_ready r
         where r.lane = p_lane and r.due_at >= coalesce(p_floor_at, '-infinity') order by r.due_at limit 1;
    end if;
    _floor := least(coalesce(_first, p_now), p_now) - interval '200 milliseconds';
    if _floor between p_floor_at and p_floor_at + interval '200 milliseconds'
       -- An idle lane has no dead entries to step over; a minute's lag costs it nothing.
       or _first is null and _floor between p_floor_at and p_floor_at + interval '1 minute' then
        return 0;
    end if;
    insert into towpath.job_floor (lane, floor_at) values (p_lane, _floor);
    delete from towpath.job_floor f where f.lane = p_lane and f.floor_no = p_floor_no;
    return case when _floor < p_floor_at then -1 else 1 end;
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
    _refusal jsonb := towpath._tick_refusal(2);
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 10000), 1), 100000);
    _aside text[] := towpath._loop_aside('counters');
    _tids tid[];
    _folded integer;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _tids := array(select x.ctid from towpath.job_counter_delta x
                    where _aside = '{}' or x.ctid::text <> all(_aside) limit _limit);
    _folded := towpath._job_deltas_fold(_tids);
    if cardinality(_tids) < _limit then
        perform towpath._loop_over('counters', _now);
    end if;
    delete from towpath.job_minute m
     where m.ctid = any(array(
           select x.ctid from towpath.job_minute x
            where x.minute_at < _now - towpath._config_number('queue.retention.chart_days') * interval '1 day'
            limit _limit));
    delete from towpath.job_wake w
     where w.ctid = any(array(
           select x.ctid from towpath.job_wake x
            where exists (select 1 from towpath.job_wake y
                           where y.job_kind = x.job_kind and y.wake_no > x.wake_no)
            limit _limit));
    return jsonb_build_object('ok', true, 'folded', _folded, 'more', cardinality(_tids) >= _limit, 'busy', false);
end;
$$;

-- _job_deltas_fold: adds these counts to the totals and the minutes; they are gone then. What raises is halved until the
-- count that raises is alone, and that is set aside.
create or replace function towpath._job_deltas_fold(p_tids tid[]) returns integer
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
    _half integer := cardinality(p_tids) / 2;
    _lanes integer[];
    _folded integer;
begin
    with gone as (
        delete from towpath.job_counter_delta d
         where d.ctid = any(p_tids)
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
    select coalesce(sum(n.deltas), 0), (select array_agg(distinct g.lane) from gone g) into _folded, _lanes from named n;
    update towpath.job_lane l set used_at = _now where l.lane = any(_lanes) and l.used_at < _now - interval '10 seconds';
    return _folded;
exception when others then
    if towpath._error_common(sqlstate) then
        raise;
    end if;
    if _half = 0 then
        perform towpath._loop_fault('counters', p_tids[1]::text, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
        return 0;
    end if;
    return towpath._job_deltas_fold(p_tids[:_half]) + towpath._job_deltas_fold(p_tids[_half + 1:]);
end;
$$;

-- fn_job_parallel_recount: checks the counters of max_parallel against the leases that are held and
-- repairs them; folds releases that committed late. One scan of all leases for each subscription
-- whose counter looks wrong, so seldom more than none.
--
-- Answers: {ok, checked, repaired: [{subscription_id, difference}], busy}; gate_closed.
create or replace function towpath.fn_job_parallel_recount() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._tick_refusal(4);
    _row record;
    _difference integer;
    _aside text[] := towpath._loop_aside('recount');
    _began timestamptz := towpath.fn_now();
    _checked integer := 0;
    _repaired jsonb := '[]';
begin
    if _refusal is not null then
        return _refusal;
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
         where s.max_parallel is not null and s.subscription_id::text <> all(_aside)
         order by s.subscription_no
    loop
        _checked := _checked + 1;
        if _row.leased <> _row.held - _row.released or _row.late then
            begin
                _difference := towpath._job_parallel_recount(_row.subscription_no);
                _repaired := _repaired || jsonb_build_object('subscription_id', _row.subscription_id,
                                                             'difference', _difference);
            exception when others then
                if towpath._error_common(sqlstate) then
                    raise;
                end if;
                perform towpath._loop_fault('recount', _row.subscription_id::text,
                                            format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
            end;
        end if;
    end loop;
    perform towpath._loop_over('recount', _began);
    return jsonb_build_object('ok', true, 'checked', _checked, 'repaired', _repaired, 'busy', false);
end;
$$;

grant execute on function towpath.fn_job_reap(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_floor_tick() to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_counter_fold(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_parallel_recount() to towpath_maintainer, workflow_admin;
