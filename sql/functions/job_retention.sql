-- Retention: partitions are made ahead of time and dropped when they are old (Q16).
--
-- Partition changes need short exclusive locks. They are asked for with a lock timeout, so that
-- a long reader (pg_dump) makes them wait for the next tick instead of making the queue wait.

-- _job_partition_ensure: makes the partition of one day, for job, job_run or payload. Rows of the day that
-- fell into the default partition are moved, if they are few; otherwise they stay there and
-- retention deletes them in steps.
--
-- Returns exists, created, moved, crowded (too many rows in the default), locked, failed (set aside, Q22).
create or replace function towpath._job_partition_ensure(p_table text, p_day timestamptz, p_move_limit integer)
    returns text
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _name text := p_table || '_p' || to_char(p_day at time zone 'UTC', 'YYYYMMDD');
    _from uuid := towpath._uuid7_floor(p_day);
    _to uuid := towpath._uuid7_floor(p_day + interval '1 day');
    _key text := case p_table when 'payload' then 'payload_id' else 'job_id' end;
    _rows bigint;
    _column record;
begin
    if to_regclass('towpath.' || _name) is not null then
        return 'exists';
    end if;
    -- Locked first: nothing may enter the range while the rows move.
    execute format('lock table towpath.%I in access exclusive mode', p_table || '_default');
    execute format('select count(*) from (select 1 from towpath.%I where %I >= %L and %I < %L limit %s) x',
                   p_table || '_default', _key, _from, _key, _to, p_move_limit + 1) into _rows;
    if _rows > p_move_limit then
        return 'crowded';
    end if;
    execute format('create table towpath.%I (like towpath.%I including defaults including constraints)%s', _name, p_table,
                   -- Rows that many jobs share stay in the page (job_run).
                   case when p_table = 'job_run' then ' with (toast_tuple_target = 8160)' end);
    for _column in select a.attname, a.attstattarget as target from pg_attribute a
                    where a.attrelid = to_regclass('towpath.' || p_table) and a.attstattarget >= 0 and a.attnum > 0
                      and not a.attisdropped loop
        execute format('alter table towpath.%I alter column %I set statistics %s', _name, _column.attname, _column.target);
    end loop;
    if _rows > 0 then
        execute format('with m as (delete from towpath.%I where %I >= %L and %I < %L returning *) '
                       'insert into towpath.%I select * from m', p_table || '_default', _key, _from, _key, _to, _name);
    end if;
    execute format('alter table towpath.%I attach partition towpath.%I for values from (%L) to (%L)',
                   p_table, _name, _from, _to);
    return case when _rows > 0 then 'moved' else 'created' end;
exception
    when lock_not_available then
        return 'locked';
    when others then
        if towpath._error_passing(sqlstate) then
            raise;
        end if;
        perform towpath._loop_fault('partitions', _name, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
        return 'failed';
end;
$$;

-- fn_job_partition_tick: the partitions of the days ahead.
--
-- Today's is never made: an enqueue that was already on its way into the default partition
-- would then be refused there. Where maintenance has not run for days, today's jobs stay in
-- the default partition, and retention deletes them from it in steps.
--
-- Answers: {ok, created: [name], deferred: [{partition, reason}], busy}; gate_closed.
create or replace function towpath.fn_job_partition_tick(p_move_limit integer default 50000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._tick_refusal(3);
    _today timestamptz := date_trunc('day', towpath.fn_now(), 'UTC');
    _day timestamptz;
    _table text;
    _outcome text;
    _created jsonb := '[]';
    _deferred jsonb := '[]';
    _began timestamptz := towpath.fn_now();
begin
    if _refusal is not null then
        return _refusal;
    end if;
    for _i in 1..towpath._config_number('queue.retention.partitions_ahead_days')::integer loop
        _day := _today + _i * interval '1 day';
        foreach _table in array array['job', 'job_run', 'payload'] loop
            _outcome := towpath._job_partition_ensure(_table, _day, coalesce(p_move_limit, 50000));
            if _outcome in ('created', 'moved') then
                _created := _created || to_jsonb(_table || '_p' || to_char(_day at time zone 'UTC', 'YYYYMMDD'));
            elsif _outcome <> 'exists' then
                _deferred := _deferred || jsonb_build_object('reason', _outcome, 'partition',
                    _table || '_p' || to_char(_day at time zone 'UTC', 'YYYYMMDD'));
            end if;
        end loop;
    end loop;
    perform towpath._loop_over('partitions', _began);
    return jsonb_build_object('ok', true, 'created', _created, 'deferred', _deferred, 'busy', false);
end;
$$;

-- _job_partition_drop: drops one day of job and job_run. Jobs of that day which are still live move
-- into the default partition with their history: it is where the parent sends a row whose
-- range has no partition, so inserting them again is all there is to it. A day that cannot be dropped, because of a
-- view of somebody's for example, is set aside (Q22), and dropped is null.
create or replace function towpath._job_partition_drop(p_suffix text, p_below uuid, out dropped boolean, out kept integer)
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _live uuid[];
begin
    kept := 0;
    if to_regclass('towpath.job_p' || p_suffix) is not null then
        execute format('alter table towpath.job detach partition towpath.%I', 'job_p' || p_suffix);
    end if;
    if to_regclass('towpath.job_run_p' || p_suffix) is not null then
        execute format('alter table towpath.job_run detach partition towpath.%I', 'job_run_p' || p_suffix);
    end if;
    _live := array(select v.job_id from towpath._job_now v where v.job_id < p_below);
    if to_regclass('towpath.job_p' || p_suffix) is not null then
        execute format('insert into towpath.job select * from towpath.%I j where j.job_id = any($1)',
                       'job_p' || p_suffix) using _live;
        get diagnostics kept = row_count;
        update towpath.job_retention r
           set dropped_jobs = r.dropped_jobs
                   + pg_stat_get_tuples_inserted(to_regclass('towpath.job_p' || p_suffix)) - kept;
        execute format('drop table towpath.%I', 'job_p' || p_suffix);
    end if;
    if to_regclass('towpath.job_run_p' || p_suffix) is not null then
        execute format('insert into towpath.job_run select * from towpath.%I r where r.job_id = any($1)',
                       'job_run_p' || p_suffix) using _live;
        execute format('drop table towpath.%I', 'job_run_p' || p_suffix);
    end if;
    dropped := true;
exception
    when lock_not_available then
        dropped := false;
        kept := 0;
    when others then
        if towpath._error_passing(sqlstate) then
            raise;
        end if;
        perform towpath._loop_fault('retention', p_suffix, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
        dropped := null;
        kept := 0;
end;
$$;

-- fn_job_retention_tick: finished jobs become cleaned by moving one mark, then their partitions go, one
-- day per call; strays in the default partitions, old edges and graphs go in steps. Dead
-- letters stay. Heartbeats of processes that were silent for a day go too.
--
-- Answers: {ok, cleaned_below, dropped: [day], kept_live, deleted, deferred, more, busy}; gate_closed.
create or replace function towpath.fn_job_retention_tick(p_limit integer default 10000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._tick_refusal(3);
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 10000), 1), 100000);
    _clean timestamptz := _now - towpath._config_number('queue.retention.clean_after_days') * interval '1 day';
    _drop timestamptz := date_trunc('day',
        _now - towpath._config_number('queue.retention.drop_after_days') * interval '1 day', 'UTC');
    _below uuid;
    _suffixes text[];
    _gone record;
    _dropped jsonb := '[]';
    _kept integer := 0;
    _deleted integer := 0;
    _deferred boolean := false;
    _step text;
    _aside text[] := towpath._loop_aside('retention');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _below := towpath._uuid7_floor(_drop);
    update towpath.job_retention r
       set cleaned_below = greatest(r.cleaned_below::text, towpath._uuid7_floor(_clean)::text)::uuid, changed_at = _now
     where r.cleaned_below < towpath._uuid7_floor(_clean);

    _suffixes := array(
        select distinct right(c.relname, 8) from pg_class c
          join pg_inherits i on i.inhrelid = c.oid
         where i.inhparent in ('towpath.job'::regclass, 'towpath.job_run'::regclass)
           and c.relname ~ '_p[0-9]{8}$'
           and (right(c.relname, 8)::date + 1)::timestamp at time zone 'UTC' <= _drop
           and right(c.relname, 8) <> all(_aside)
         order by 1);
    if _suffixes <> '{}' then
        select * into _gone from towpath._job_partition_drop(_suffixes[1],
            towpath._uuid7_floor((_suffixes[1]::date + 1)::timestamp at time zone 'UTC'));
        if _gone.dropped then
            _dropped := jsonb_build_array(_suffixes[1]);
            _kept := _gone.kept;
            update towpath.job_retention r
               set dropped_below = towpath._uuid7_floor((_suffixes[1]::date + 1)::timestamp at time zone 'UTC'),
                   changed_at = _now;
        elsif not _gone.dropped then
            _deferred := true;
        end if;
    end if;

    foreach _step in array array['job_default', 'job_run_default', 'job_edge', 'job_graph', 'job_chunk', 'queue_heartbeat'] loop
        if _step <> all(_aside) then
            _deleted := _deleted + towpath._job_retention_step(_step, _below, _limit, _now);
        end if;
    end loop;
    if cardinality(_suffixes) <= 1 then
        perform towpath._loop_over('retention', _now);
    end if;
    return jsonb_build_object('ok', true, 'cleaned_below', _clean, 'dropped', _dropped, 'kept_live', _kept,
        'deleted', _deleted, 'deferred', _deferred,
        'more', _deleted >= _limit or (cardinality(_suffixes) > 1 and not _deferred), 'busy', false);
end;
$$;

-- _job_retention_step: deletes what is old from one table; a step that raises is set aside. Returns how many rows went.
create or replace function towpath._job_retention_step(
    p_step text, p_below uuid, p_limit integer, p_now timestamptz) returns integer
    language plpgsql
as $$
declare
    _count integer := 0;
begin
    if p_step = 'job_default' then
        -- Strays: what fell into the default partitions and has finished.
        delete from towpath.job_default j
         where j.ctid = any(array(
               select x.ctid from towpath.job_default x
                where x.job_id < p_below and not exists (select 1 from towpath._job_now v where v.job_id = x.job_id)
                limit p_limit));
    elsif p_step = 'job_run_default' then
        delete from towpath.job_run_default r
         where r.ctid = any(array(
               select x.ctid from towpath.job_run_default x
                where x.job_id < p_below and not exists (select 1 from towpath.job j where j.job_id = x.job_id)
                limit p_limit));
    elsif p_step = 'job_edge' then
        delete from towpath.job_edge e
         where e.ctid = any(array(
               select x.ctid from towpath.job_edge x
                where x.child_id < p_below and not exists (select 1 from towpath.job_live v where v.job_id = x.child_id)
                limit p_limit));
    elsif p_step = 'job_graph' then
        delete from towpath.job_graph g
         where g.graph_id = any(array(
               select x.graph_id from towpath.job_graph x
                where x.graph_id < p_below
                  and not exists (select 1 from towpath.job_graph_node n join towpath.job_live v on v.job_id = n.job_id
                                   where n.graph_id = x.graph_id)
                limit least(p_limit, 1000)));
    elsif p_step = 'job_chunk' then
        delete from towpath.job_chunk c
         where c.ctid = any(array(
               select x.ctid from towpath.job_chunk x where x.appended_at < p_now - interval '1 day'
                order by x.appended_at limit p_limit));
    else
        -- A process that was killed sent heartbeats under a name that is never used again (executor@host-pid).
        delete from towpath.queue_heartbeat h
         where h.executor_name ~ '@.+-[0-9]+$' and h.last_tick_at < p_now - interval '1 day';
        return 0;
    end if;
    get diagnostics _count = row_count;
    return _count;
exception when others then
    if towpath._error_passing(sqlstate) then
        raise;
    end if;
    perform towpath._loop_fault('retention', p_step, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
    return 0;
end;
$$;

grant execute on function towpath.fn_job_partition_tick(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_job_retention_tick(integer) to towpath_maintainer, workflow_admin;
