-- Lanes: made on first use, collected when they are unused (Q23).
--
-- A claim looks at every lane that is open, so lanes that were used once must not stay. The collector closes a lane
-- that is empty: claims skip it, and an enqueue into it opens it again under a lock on its row. What the lock
-- does not cover is a transaction that found the lane open before it was closed and commits its job later. Such a
-- transaction has read job_lane, and PostgreSQL keeps that lock until its end; so the collector notes who holds one
-- after the lane was closed, and deletes the lane when all of them have ended and left nothing behind. Until then it
-- looks at closed lanes in every pass and opens those that got a job, so a job of theirs is late, never lost. A
-- transaction with one snapshot for all its statements may read job_lane later than that and still see the past, so
-- it locks the lane it uses.

-- _job_lane: the number of a lane, made on first use, opened if it was closed. Two producers that need the same new
-- lane meet here: the second waits for the first to commit, once in the life of the lane.
create or replace function towpath._job_lane(
    p_job_kind text, p_executor text, p_priority integer, p_event_domain text) returns integer
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
declare
    _lane integer;
    _closing boolean;
begin
    loop
        select l.lane, l.closed_by is not null into _lane, _closing from towpath.job_lane l
         where l.job_kind = p_job_kind and l.executor is not distinct from p_executor and l.priority = p_priority
           and l.event_domain is not distinct from p_event_domain;
        if not found then
            insert into towpath.job_lane (job_kind, executor, priority, event_domain)
            values (p_job_kind, p_executor, p_priority, p_event_domain)
            on conflict do nothing;
            continue;
        elsif _closing then
            update towpath.job_lane l set closed_by = null, used_at = towpath.fn_now() where l.lane = _lane;
        elsif current_setting('transaction_isolation') <> 'read committed' then
            perform 1 from towpath.job_lane l where l.lane = _lane for key share;
        end if;
        exit when found;
    end loop;
    return _lane;
end;
$$;

-- fn_job_lane_tick: closes unused lanes, opens closed ones that got a job after all, and deletes those that no
-- transaction can use any more. Unused means without a job and without an end of an attempt for ten minutes, or for 15
-- seconds while there are more than twenty lanes, which claims would feel.
--
-- Answers: {ok, closed, opened, collected, more, busy}; gate_closed.
create or replace function towpath.fn_job_lane_tick(p_limit integer default 1000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _refusal jsonb := towpath._tick_refusal(5);
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 1000), 1), 10000);
    _unused timestamptz;
    _idle integer[];
    _used integer[];
    _opened integer[];
    _closed integer := 0;
    _collected integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    with late as (
        update towpath.job_lane l set closed_by = null, used_at = _now
         where l.lane = any(array(
               select x.lane from towpath.job_lane x
                where x.closed_by is not null and exists (select 1 from towpath.job_ready r where r.lane = x.lane)
                for no key update skip locked))
        returning l.lane)
    select array_agg(l.lane) into _opened from late l;
    perform towpath._job_wake(_opened);

    _unused := _now - case when (select count(*) from towpath.job_lane l where l.closed_by is null) > 20
                           then interval '15 seconds' else interval '10 minutes' end;
    _idle := array(select l.lane from towpath.job_lane l
                    where l.closed_by is null and l.used_at < _unused
                      and not exists (select 1 from towpath.job_ready r where r.lane = l.lane)
                    order by l.used_at limit _limit);
    if _idle <> '{}' or exists (select 1 from towpath.job_lane l where l.closed_by is not null) then
        select * into _collected, _used from towpath._job_lanes_collect(_limit, _idle <> '{}');
        update towpath.job_lane l set closed_by = pg_current_xact_id()
         where l.lane = any(array(select x.lane from towpath.job_lane x
                                   where x.lane = any(_idle) and x.lane <> all(_used) and x.closed_by is null
                                   for update skip locked));
        get diagnostics _closed = row_count;
        -- Their jobs run for long or wait for others: all of job_live is not read for them at every tick.
        update towpath.job_lane l set used_at = _now
         where l.lane = any(array(select x.lane from towpath.job_lane x
                                   where x.lane = any(_idle) and x.lane = any(_used)
                                   for no key update skip locked));
    end if;
    return jsonb_build_object('ok', true, 'closed', _closed, 'opened', coalesce(cardinality(_opened), 0),
        'collected', _collected, 'more', greatest(_closed, _collected) >= _limit, 'busy', false);
end;
$$;

-- _job_lanes_collect: deletes closed lanes, if everybody who may have found them open has ended. Says how many went,
-- and which lanes a job or a count names, if it had to find out or p_ask wants to know.
create or replace function towpath._job_lanes_collect(
    p_limit integer, p_ask boolean, out collected integer, out used integer[])
    language plpgsql
    set jit = off
as $$
declare
    _tick towpath.job_lane_tick;
    _readers text[];
begin
    select * into _tick from towpath.job_lane_tick;
    _readers := array(select distinct k.virtualtransaction from pg_locks k
                       where k.relation = 'towpath.job_lane'::regclass and k.pid is distinct from pg_backend_pid()
                         and k.database = (select d.oid from pg_database d where d.datname = current_database()));
    collected := 0;
    used := '{}';
    if _tick.readers && _readers and not p_ask then
        return;
    end if;
    -- After the readers, so that what ended transactions wrote is seen; by one snapshot, because an attempt that ends is counted as
    -- its job goes.
    used := array(select v.lane from towpath.job_live v group by v.lane
                  union select e.lane from towpath.lease_entry e where e.bundle
                  union select d.lane from towpath.job_counter_delta d group by d.lane);
    if _tick.readers && _readers then
        return;
    end if;
    with gone as (
        delete from towpath.job_lane l
         where l.lane = any(array(
               select x.lane from towpath.job_lane x
                where x.closed_by < _tick.noted_by and x.lane <> all(used)
                  and not exists (select 1 from towpath.job_ready r where r.lane = x.lane)
                limit p_limit for update skip locked))
        returning l.lane),
    floors as (
        delete from towpath.job_floor f using gone g where f.lane = g.lane)
    select count(*) into collected from gone;
    if collected < p_limit then
        update towpath.job_lane_tick t set readers = _readers, noted_by = pg_current_xact_id();
    end if;
end;
$$;

grant execute on function towpath.fn_job_lane_tick(integer) to towpath_maintainer, workflow_admin;
