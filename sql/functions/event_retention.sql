-- Event partitions: made ahead, dropped when old, never past a cursor or an open dead letter.
--
-- Dropping a partition is the only way an event ends: row triggers refuse everything else, for the
-- owner too. So rows that fell into a default partition stay there until all of it is old, and
-- then the whole default is replaced by an empty one.

-- _event_partition_add: makes one partition, unless its range has rows in the default already.
--
-- Returns exists, created, crowded (rows in the default), locked.
create or replace function towpath._event_partition_add(p_table text, p_name text, p_from text, p_to text) returns text
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _key text := case p_table when 'event_outbox' then 'event_id' when 'delivery_attempt' then 'delivery_id'
                              else 'position' end;
    _crowded boolean;
begin
    if to_regclass('towpath.' || p_name) is not null then
        return 'exists';
    end if;
    execute format('lock table towpath.%I in access exclusive mode', p_table || '_default');
    execute format('select exists (select 1 from towpath.%I where %I >= %L and %I < %L)',
                   p_table || '_default', _key, p_from, _key, p_to) into _crowded;
    if _crowded then
        return 'crowded';
    end if;
    execute format('create table towpath.%I (like towpath.%I including defaults including constraints)', p_name, p_table);
    execute format('alter table towpath.%I attach partition towpath.%I for values from (%L) to (%L)',
                   p_table, p_name, p_from, p_to);
    perform towpath._event_no_truncate(p_name);
    return 'created';
exception when lock_not_available then
    return 'locked';
end;
$$;

-- fn_event_partition_tick: the partitions of today and the days ahead, and of the next positions. One that
-- cannot be made is set aside until the next try is due (Q22).
--
-- Answers: {ok, created: [name], deferred: [{partition, reason}], busy}.
create or replace function towpath.fn_event_partition_tick() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _today timestamptz := date_trunc('day', _now, 'UTC');
    _aside text[] := towpath._loop_aside('event_partitions');
    _rows bigint := towpath._event_partition_rows();
    _first bigint := towpath._event_last_position() / _rows;
    _part record;
    _outcome text;
    _created jsonb := '[]';
    _deferred jsonb := '[]';
begin
    if not pg_try_advisory_xact_lock(7304, 1) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    for _part in
        select t.name as parent, t.name || '_p' || to_char(d.day at time zone 'UTC', 'YYYYMMDD') as name,
               towpath._uuid7_floor(d.day)::text as low, towpath._uuid7_floor(d.day + interval '1 day')::text as high
          from unnest(array['event_outbox', 'delivery_attempt']) as t(name)
         cross join lateral (select _today + n * interval '1 day' as day from generate_series(0,
                   towpath._config_number('event.retention.partitions_ahead_days')::integer) n) d
        union all
        select t.name, t.name || '_p' || lpad(n::text, 10, '0'), (n * _rows)::text, ((n + 1) * _rows)::text
          from unnest(array['event_position', 'route_attempt']) as t(name), generate_series(_first, _first + 3) n
    loop
        continue when _part.name = any(_aside);
        begin
            _outcome := towpath._event_partition_add(_part.parent, _part.name, _part.low, _part.high);
        exception when others then
            if towpath._error_passing(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('event_partitions', _part.name, sqlerrm);
            _outcome := 'failed';
        end;
        if _outcome = 'created' then
            _created := _created || to_jsonb(_part.name);
        elsif _outcome <> 'exists' then
            _deferred := _deferred || jsonb_build_object('partition', _part.name, 'reason', _outcome);
        end if;
    end loop;
    perform towpath._loop_over('event_partitions', _now);
    return jsonb_build_object('ok', true, 'created', _created, 'deferred', _deferred, 'busy', false);
end;
$$;

-- _event_keep_from: the lowest position that is still needed: one after the lowest cursor, or that
-- of the oldest open dead letter, unfinished delivery or event that routing has set aside.
create or replace function towpath._event_keep_from() returns bigint
    language sql stable
as $$
    select least(
        (select min(c.position) + 1 from towpath.route_worker w cross join lateral towpath._route_cursors(w.worker_no) c),
        (select min(d.position) from towpath.route_dead_letter d where d.resolved_at is null),
        (select min(d.position) from towpath.delivery d
          where d.delivery_id::text <> all (array(select f.item from towpath.loop_fault f
                                                   where f.loop_name = 'webhook_delivery' and f.state = 'dropped'))),
        (select min(d.position) from towpath.stream_delivery d),
        (select min(split_part(f.item, '/', 2)::bigint) from towpath.loop_fault f
          where f.loop_name = 'routing' and f.state = 'waiting'),
        towpath._event_last_position() + 1)
$$;

-- _event_partition_drop: drops a partition of events, if every event in it has a position below
-- p_keep_from. The share lock waits for writers that are still open in this partition and keeps new
-- ones out, so the count is final. A default is replaced by an empty one.
--
-- Returns dropped, needed, locked, failed (and set aside).
create or replace function towpath._event_partition_drop(p_name text, p_keep_from bigint) returns text
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _range record;
    _numbered bigint;
begin
    if p_name = any(towpath._loop_aside('event_retention')) then
        return 'failed';
    end if;
    execute format('lock table towpath.%I in share mode', p_name);
    execute format('select (select count(*) from towpath.%1$I) as events, '
                   '(select event_id from towpath.%1$I order by event_id limit 1) as low, '
                   '(select event_id from towpath.%1$I order by event_id desc limit 1) as high', p_name) into _range;
    -- The ids between low and high are this partition's own, except around a default, whose
    -- ids can enclose those of other partitions: then there are more numbers than events, and
    -- each event is looked up.
    select count(*) into _numbered from towpath.event_position p
     where p.event_id between _range.low and _range.high and p.position < p_keep_from;
    if _numbered <> _range.events then
        if _numbered < _range.events then
            return 'needed';
        end if;
        execute format('select count(*) from towpath.%I o where exists (select 1 from towpath.event_position p '
                       'where p.event_id = o.event_id and p.position < %s)', p_name, p_keep_from) into _numbered;
        if _numbered <> _range.events then
            return 'needed';
        end if;
    end if;
    return towpath._partition_replace('event_outbox', p_name);
exception when lock_not_available then
    return 'locked';
when others then
    if towpath._error_passing(sqlstate) then
        raise;
    end if;
    perform towpath._loop_fault('event_retention', p_name, sqlerrm);
    return 'failed';
end;
$$;

-- _partition_replace: detaches and drops a partition; a default gets an empty successor. The parent
-- is locked from here to the commit, so nothing slow may follow. A partition that cannot be dropped,
-- because something else depends on it, stays detached and set aside: its rows are out of the way, and
-- fn_event_retention_tick tries again (Q22).
--
-- Returns dropped, locked, failed (and set aside).
create or replace function towpath._partition_replace(p_table text, p_name text) returns text
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    if p_name = any(towpath._loop_aside('event_retention')) then
        return 'failed';
    end if;
    execute format('alter table towpath.%I detach partition towpath.%I', p_table, p_name);
    if p_name <> p_table || '_default' then
        perform towpath._partitions_drop(array[p_name]);
    else
        execute format('drop table towpath.%I', p_name);
        execute format('create table towpath.%I partition of towpath.%I default', p_name, p_table);
        perform towpath._event_no_truncate(p_name);
    end if;
    perform towpath._loop_over('event_retention', _now, array[p_name]);
    return 'dropped';
exception when lock_not_available then
    return 'locked';
when others then
    if towpath._error_passing(sqlstate) then
        raise;
    end if;
    perform towpath._loop_fault('event_retention', p_name, sqlerrm);
    return 'failed';
end;
$$;

-- _partitions_drop: drops detached partitions; one that cannot be dropped is set aside.
create or replace function towpath._partitions_drop(p_names text[]) returns void
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _now timestamptz := towpath.fn_now();
    _name text;
begin
    foreach _name in array p_names loop
        begin
            execute format('drop table if exists towpath.%I', _name);
        exception when others then
            if towpath._error_passing(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('event_retention', _name, sqlerrm);
        end;
    end loop;
    perform towpath._loop_over('event_retention', _now, p_names);
end;
$$;

-- _partitions_drop_again: drops what was detached and could not be dropped, if its next try is due.
create or replace function towpath._partitions_drop_again() returns void
    language plpgsql
as $$
begin
    perform towpath._partitions_drop(array(
        select d from unnest(towpath._loop_due('event_retention')) d
         where not exists (select 1 from pg_inherits i where i.inhrelid = to_regclass('towpath.' || quote_ident(d)))));
exception when lock_not_available then
    -- A reader holds a lock on it; the next pass tries again.
    return;
end;
$$;

-- _event_numbers_drop: drops the partitions of positions, and of attempts, in which no position
-- belongs to an event that is still stored.
create or replace function towpath._event_numbers_drop(p_kept_from bigint) returns text[]
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _part record;
    _dropped text[] := '{}';
    _old boolean;
begin
    for _part in
        select p.relname as parent, c.relname as name
          from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
         where i.inhparent in ('towpath.event_position'::regclass, 'towpath.route_attempt'::regclass)
           and c.relname ~ '_(default|p[0-9]{10})$'
         order by c.relname
    loop
        if _part.name like '%\_default' then
            begin
                -- An empty one stays: null and f() would call f().
                execute format('select coalesce(max(position) < %s, false) from towpath.%I', p_kept_from, _part.name)
                   into _old;
            exception when lock_not_available then
                _old := false;
            end;
        else
            _old := (right(_part.name, 10)::bigint + 1) * towpath._event_partition_rows() <= p_kept_from;
        end if;
        if _old and towpath._partition_replace(_part.parent, _part.name) = 'dropped' then
            _dropped := _dropped || _part.name;
        end if;
    end loop;
    return _dropped;
end;
$$;

-- _event_kept_after: the lowest position that is left once a partition of events is gone. Looked up
-- before anything is locked; what is emitted meanwhile has higher positions.
create or replace function towpath._event_kept_after(p_name text) returns bigint
    language plpgsql stable
as $$
declare
    _first uuid;
begin
    -- The first event that stays.
    select o.event_id into _first from towpath.event_outbox o
     where o.tableoid <> ('towpath.' || p_name)::regclass order by o.event_id limit 1;
    return coalesce((select p.position from towpath.event_position p
                      where p.position >= (select r.kept_from from towpath.event_retention r) and p.event_id >= _first
                      order by p.position limit 1),
                    towpath._event_last_position() + 1);
end;
$$;

-- _delivery_history_drop: drops the oldest day of delivery_attempt if it is old enough.
create or replace function towpath._delivery_history_drop(p_before timestamptz) returns text[]
    language plpgsql
as $$
declare
    _name text;
begin
    select min(c.relname) into _name from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'towpath.delivery_attempt'::regclass and c.relname ~ '_p[0-9]{8}$'
       and (right(c.relname, 8)::date + 1)::timestamp at time zone 'UTC' <= p_before
       and c.relname <> all (towpath._loop_aside('event_retention'));
    if _name is null or towpath._partition_replace('delivery_attempt', _name) <> 'dropped' then
        return '{}';
    end if;
    return array[_name];
end;
$$;

-- fn_event_retention_tick: drops one old partition of events, and what is left without events: positions,
-- attempts, and the history of deliveries. The oldest partition goes first; if somebody
-- needs one of its events, nothing younger goes either. What cannot be dropped is set aside, and the
-- rest goes on (Q22).
--
-- Answers: {ok, dropped: [name], kept_from, keep_from, held: {partition, reason}, more, busy}.
create or replace function towpath.fn_event_retention_tick() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _before timestamptz := date_trunc('day',
        _now - towpath._config_number('event.retention.drop_after_days') * interval '1 day', 'UTC');
    _keep_from bigint := towpath._event_keep_from();
    _name text;
    _left integer;
    _old boolean;
    _kept_after bigint;
    _outcome text;
    _dropped text[] := '{}';
    _held jsonb;
    _kept bigint;
begin
    if not pg_try_advisory_xact_lock(7304, 1) then
        return jsonb_build_object('ok', true, 'busy', true);
    end if;
    perform towpath._partitions_drop_again();
    select min(c.relname), count(*) into _name, _left
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'towpath.event_outbox'::regclass and c.relname ~ '_p[0-9]{8}$'
       and (right(c.relname, 8)::date + 1)::timestamp at time zone 'UTC' <= _before;
    -- A default partition that holds anything is dropped like a day, once all of it is old.
    _old := (select o.event_id < towpath._uuid7_floor(_before) from towpath.event_outbox_default o
              order by o.event_id desc limit 1);
    if _name is null and _old then
        _name := 'event_outbox_default';
    end if;
    if _name is not null then
        _kept_after := towpath._event_kept_after(_name);
        _outcome := towpath._event_partition_drop(_name, _keep_from);
        if _outcome = 'dropped' then
            _dropped := _dropped || _name;
            update towpath.event_retention r set kept_from = greatest(r.kept_from, _kept_after), changed_at = _now;
        else
            _held := jsonb_build_object('partition', _name, 'reason', _outcome, 'keep_from', _keep_from);
        end if;
    end if;
    select r.kept_from into _kept from towpath.event_retention r;
    _dropped := _dropped || towpath._event_numbers_drop(_kept) || towpath._delivery_history_drop(_before);
    return jsonb_build_object('ok', true, 'dropped', to_jsonb(_dropped), 'kept_from', _kept, 'keep_from', _keep_from,
        'held', _held, 'more', _outcome = 'dropped' and (_left > 1 or coalesce(_old, false)), 'busy', false);
end;
$$;

grant execute on function towpath.fn_event_partition_tick() to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_event_retention_tick() to towpath_maintainer, workflow_admin;
