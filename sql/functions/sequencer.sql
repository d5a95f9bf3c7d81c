-- The sequencer: gives every event its number, once, and never a number to an effect before
-- its cause has one (E03).
--
-- What is new is the difference of two snapshots: visible now, not visible in the one that
-- was remembered. A transaction that commits late is new when it commits, whatever its number
-- or its clock said, and one that stays open delays no other. Within one step events are ordered by id:
-- a writer that saw an event before writing its own drew the later id.

-- _event_cluster: the cluster and database whose transaction numbers are meant. After a dump and
-- restore it differs, and remembered snapshots mean nothing.
create or replace function towpath._event_cluster() returns text
    language plpgsql stable
as $$
begin
    return (select s.system_identifier from pg_control_system() s)::text || ':'
           || (select d.oid from pg_database d where d.datname = current_database());
end;
$$;

-- _snapshot_without: a snapshot in which one transaction counts as still running. The
-- sequencer's own does, or events emitted after it in one transaction would be taken for seen.
create or replace function towpath._snapshot_without(p_snapshot pg_snapshot, p_xact xid8) returns pg_snapshot
    language sql stable
as $$
    select case when not pg_visible_in_snapshot(p_xact, p_snapshot) then p_snapshot
        else format('%s:%s:%s',
                    case when p_xact < pg_snapshot_xmin(p_snapshot) then p_xact else pg_snapshot_xmin(p_snapshot) end,
                    pg_snapshot_xmax(p_snapshot),
                    (select string_agg(x.xact::text, ',' order by x.xact)
                       from (select pg_snapshot_xip(p_snapshot) as xact union select p_xact) x))::pg_snapshot end
$$;

-- _event_hash: by which an event falls into a slice. No SET clause, so that it is inlined.
create or replace function towpath._event_hash(
    p_event_id uuid, p_ordering_key text, p_subject_table text, p_subject_ref text) returns integer
    language sql immutable
as $$
    select hashtext(coalesce(towpath._event_key(p_ordering_key, p_subject_table, p_subject_ref), p_event_id::text))
$$;

-- _event_unseen: whether any event is visible now that was not in the remembered snapshot. A
-- look before the lock, because a lock writes and an idle system should not.
create or replace function towpath._event_unseen(p_seen pg_snapshot, p_now pg_snapshot) returns boolean
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _running xid8[] := array(select pg_snapshot_xip(p_seen));
begin
    return exists (select 1 from towpath.event_outbox o
                    where o.xact_id >= pg_snapshot_xmax(p_seen) and o.xact_id < pg_snapshot_xmax(p_now))
        or (_running <> '{}' and exists (select 1 from towpath.event_outbox o where o.xact_id = any(_running)));
end;
$$;

-- _event_fresh: the first p_limit events of the step from p_seen to p_target, in id order, and the last id.
create or replace function towpath._event_fresh(
    p_seen pg_snapshot, p_target pg_snapshot, p_checked_id bigint, p_limit integer,
    out event_ids uuid[], out key_hashes integer[], out last_id bigint)
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _running xid8[] := array(select pg_snapshot_xip(p_seen));
begin
    with found as (
        select o.id, o.event_id, o.xact_id, o.ordering_key, o.subject_table, o.subject_ref
          from towpath.event_outbox o
         where o.xact_id >= pg_snapshot_xmax(p_seen) and o.xact_id < pg_snapshot_xmax(p_target)
        union all
        select o.id, o.event_id, o.xact_id, o.ordering_key, o.subject_table, o.subject_ref
          from towpath.event_outbox o
         where o.xact_id = any(_running))
    select array_agg(f.event_id), array_agg(f.key_hash), max(f.id) into event_ids, key_hashes, last_id
      from (select f.id, f.event_id, towpath._event_hash(f.event_id, f.ordering_key, f.subject_table, f.subject_ref) as key_hash
              from found f
             where pg_visible_in_snapshot(f.xact_id, p_target)
               and not pg_visible_in_snapshot(f.xact_id, p_seen)
               and (f.id > p_checked_id
                    or not exists (select 1 from towpath.event_position p where p.event_id = f.event_id offset 0))
             order by f.id
             limit p_limit) f;
end;
$$;

-- _event_fresh_on: continues a step that was too big for one call. By id, so that each call costs what it numbers,
-- and not what is left.
create or replace function towpath._event_fresh_on(
    p_seen pg_snapshot, p_target pg_snapshot, p_after_id bigint, p_last_id bigint, p_checked_id bigint,
    p_limit integer, out event_ids uuid[], out key_hashes integer[], out last_id bigint)
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    select array_agg(f.event_id), array_agg(f.key_hash), max(f.id) into event_ids, key_hashes, last_id
      from (select o.id, o.event_id, towpath._event_hash(o.event_id, o.ordering_key, o.subject_table, o.subject_ref) as key_hash
              from towpath.event_outbox o
             where o.id > p_after_id and o.id <= p_last_id
               and pg_visible_in_snapshot(o.xact_id, p_target)
               and not pg_visible_in_snapshot(o.xact_id, p_seen)
               and (o.id > p_checked_id
                    or not exists (select 1 from towpath.event_position p where p.event_id = o.event_id offset 0))
             order by o.id
             limit p_limit) f;
end;
$$;

-- _event_fresh_rest: after a restore, what is visible and has no position. Snapshots are of no use there,
-- so this looks at every event; it happens once in the life of a cluster.
create or replace function towpath._event_fresh_rest(
    p_limit integer, out event_ids uuid[], out key_hashes integer[], out last_id bigint)
    language plpgsql stable
as $$
declare
    _aside text[] := towpath._loop_aside('sequencer');
begin
    select array_agg(f.event_id), array_agg(f.key_hash) into event_ids, key_hashes
      from (select o.event_id, towpath._event_hash(o.event_id, o.ordering_key, o.subject_table, o.subject_ref) as key_hash
              from towpath.event_outbox o
             where not exists (select 1 from towpath.event_position p where p.event_id = o.event_id)
               and o.event_id::text <> all (_aside)
             order by o.id
             limit p_limit) f;
end;
$$;

-- _event_place: numbers events in the order given, after p_position. An event that cannot have a number is
-- set aside, and the others get theirs (Q22). Answers how many were numbered.
create or replace function towpath._event_place(p_event_ids uuid[], p_key_hashes integer[], p_position bigint)
    returns bigint
    language plpgsql
as $$
declare
    _numbered bigint := 0;
    _event record;
begin
    begin
        insert into towpath.event_position (position, event_id, key_hash)
        select p_position + e.nth, e.event_id, e.key_hash
          from unnest(p_event_ids, p_key_hashes) with ordinality as e(event_id, key_hash, nth);
        return coalesce(cardinality(p_event_ids), 0);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
    end;
    for _event in select e.event_id, e.key_hash from unnest(p_event_ids, p_key_hashes) as e(event_id, key_hash) loop
        begin
            insert into towpath.event_position (position, event_id, key_hash)
            values (p_position + _numbered + 1, _event.event_id, _event.key_hash);
            _numbered := _numbered + 1;
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('sequencer', _event.event_id::text, sqlerrm);
        end;
    end loop;
    return _numbered;
end;
$$;

-- _event_place_again: numbers events that were set aside and whose next try is due, like events that
-- commit late. Answers how many were numbered.
create or replace function towpath._event_place_again(p_position bigint) returns bigint
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
    _due text[] := towpath._loop_due('sequencer');
    _events record;
    _numbered bigint;
begin
    select array_agg(o.event_id order by o.id) as ids,
           array_agg(towpath._event_hash(o.event_id, o.ordering_key, o.subject_table, o.subject_ref) order by o.id) as hashes
      into _events
      from towpath.event_outbox o
     where o.event_id = any(_due::uuid[])
       and not exists (select 1 from towpath.event_position p where p.event_id = o.event_id);
    _numbered := towpath._event_place(_events.ids, _events.hashes, p_position);
    perform towpath._loop_over('sequencer', _now, _due);
    return _numbered;
end;
$$;

-- _event_last_id: the highest id any event has drawn so far, committed or not.
create or replace function towpath._event_last_id() returns bigint
    language plpgsql stable
as $$
begin
    return coalesce(pg_sequence_last_value(pg_get_serial_sequence('towpath.event_outbox', 'id')::regclass), 0);
end;
$$;

-- fn_event_sequence: gives the next positions to events that have none.
--
-- The lock comes first and alone; every later statement then sees what the last sequencer
-- left. Any number may run: one works, the others answer busy. If a step holds more events
-- than p_limit, the snapshot it leads to is kept and the next call goes on in the middle of
-- it. An event that cannot be numbered is set aside and numbered later, as one that commits
-- late is (Q22). One notification per pass.
--
-- Answers: {ok, numbered, last_position, more, busy}; conflict (not read committed).
create or replace function towpath.fn_event_sequence(p_limit integer default 10000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 10000), 1), 1000000);
    _cluster text := towpath._event_cluster();
    _tick towpath.event_tick;
    _now pg_snapshot;
    _fresh record;
    _numbered bigint := 0;
    _restored boolean;
    _more boolean;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return jsonb_build_object('ok', false, 'error', 'conflict',
            'detail', 'the sequencer requires a read committed transaction');
    end if;
    select * into _tick from towpath.event_tick t order by t.tick_no desc limit 1;
    if _tick.cluster = _cluster and _tick.target is null
       and not towpath._event_unseen(_tick.snapshot, pg_current_snapshot()) and towpath._loop_due('sequencer') = '{}' then
        return jsonb_build_object('ok', true, 'numbered', 0, 'last_position', _tick.last_position,
                                  'more', false, 'busy', false);
    end if;

    perform 1 from towpath.event_sequencer s for update skip locked;
    if not found then
        return jsonb_build_object('ok', true, 'numbered', 0, 'last_position', _tick.last_position,
                                  'more', false, 'busy', true);
    end if;
    select * into _tick from towpath.event_tick t order by t.tick_no desc limit 1;
    _now := towpath._snapshot_without(pg_current_snapshot(), pg_current_xact_id());
    -- A snapshot from the future is one from another cluster, whatever its name says.
    _restored := _tick.cluster <> _cluster or _tick.snapshot is null
                 or pg_snapshot_xmax(_tick.snapshot) > pg_snapshot_xmax(_now);
    if towpath._loop_due('sequencer') <> '{}' then
        _numbered := towpath._event_place_again(_tick.last_position);
    end if;
    if _restored then
        select * into _fresh from towpath._event_fresh_rest(_limit);
    elsif _tick.target is null then
        _tick.target := _now;
        select * into _fresh from towpath._event_fresh(_tick.snapshot, _tick.target, _tick.checked_id, _limit);
        _tick.target_last_id := towpath._event_last_id();
    else
        select * into _fresh from towpath._event_fresh_on(_tick.snapshot, _tick.target, _tick.target_id,
            _tick.target_last_id, _tick.checked_id, _limit);
    end if;
    _more := coalesce(cardinality(_fresh.event_ids), 0) = _limit;
    _numbered := _numbered + towpath._event_place(_fresh.event_ids, _fresh.key_hashes, _tick.last_position + _numbered);
    if _restored and not _more then
        -- Whatever committed since _now has been numbered or will be looked up.
        _tick.snapshot := _now;
        _tick.cluster := _cluster;
        _tick.target := null;
        _tick.target_id := 0;
        _tick.target_last_id := 0;
        _tick.checked_id := towpath._event_last_id();
    elsif not _restored then
        _tick.target_id := _fresh.last_id;
        if not _more then
            _tick.snapshot := _tick.target;
            _tick.target := null;
            _tick.target_id := 0;
            _tick.target_last_id := 0;
        end if;
    end if;
    _tick.last_position := _tick.last_position + _numbered;
    insert into towpath.event_tick (last_position, snapshot, target, target_id, target_last_id, checked_id, cluster)
    values (_tick.last_position, _tick.snapshot, _tick.target, _tick.target_id, _tick.target_last_id,
            _tick.checked_id, _tick.cluster);
    -- By its number: a range would read every old row while another session holds a snapshot.
    delete from towpath.event_tick t where t.tick_no = _tick.tick_no;
    if _numbered > 0 and towpath._gate_open('queue.notify.enabled') then
        perform pg_notify('towpath_event', _tick.last_position::text);
    end if;
    return jsonb_build_object('ok', true, 'numbered', _numbered, 'last_position', _tick.last_position,
                              'more', _more, 'busy', false);
end;
$$;

-- _event_last_position: the highest position. Everything up to it has been committed.
create or replace function towpath._event_last_position() returns bigint
    language plpgsql stable
as $$
begin
    return (select t.last_position from towpath.event_tick t order by t.tick_no desc limit 1);
end;
$$;

grant execute on function towpath.fn_event_sequence(integer) to towpath_router, workflow_admin;
