-- Keys and retention of the payload store.

-- fn_payload_key_rotate: the next key of a project, wrapped by the master key. Payloads that are stored from
-- now on use it; older ones keep theirs. The first key turns encryption on permanently.
--
-- Answers: {ok, project, key_id}; invalid {field, detail}.
create or replace function towpath.fn_payload_key_rotate(p_project text, p_wrapped bytea, p_actor text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := coalesce(towpath._name_refusal(_actor, 'actor'), towpath._payload_place_refusal(p_project, null));
    _key_id bigint;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if octet_length(p_wrapped) is distinct from 60 then
        return towpath._invalid('wrapped', 'a wrapped key must have 60 bytes: nonce, key and tag; create one with: towpath payload key rotate');
    end if;
    insert into towpath.payload_key (project, wrapped, created_by) values (p_project, p_wrapped, _actor)
    returning key_id into _key_id;
    perform towpath.fn_audit_record(_actor, 'payload key rotate', p_project, format('key %s', _key_id), 'ok');
    return jsonb_build_object('ok', true, 'project', p_project, 'key_id', _key_id);
end;
$$;

-- fn_payload_key_erase: every key of a project is gone, and with them what was encrypted under them.
--
-- The rows stay, without their keys, so that readers get the reason and nothing is stored unencrypted
-- afterwards. The table is rewritten: an update would leave the old row versions in its file.
--
-- Answers: {ok, project, erased}; invalid, not_found, conflict (a transaction that stores payloads stays open).
create or replace function towpath.fn_payload_key_erase(p_project text, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '5s'
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _now timestamptz := towpath.fn_now();
    _keys towpath.payload_key[];
    _erased integer;
    _refusal jsonb := towpath._name_refusal(_actor, 'actor');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    lock table towpath.payload_key in access exclusive mode;
    select array_agg(k order by k.key_id), count(*) filter (where k.project = p_project and k.erased_at is null)
      into _keys, _erased from towpath.payload_key k;
    if _erased = 0 then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'project', p_project, 'detail',
            format('project %s has no key to erase; list keys with: towpath payload key list', p_project));
    end if;
    truncate towpath.payload_key;
    insert into towpath.payload_key (key_id, project, wrapped, created_at, created_by, erased_at, erased_by)
        overriding system value
    select k.key_id, k.project, case when not x.over then k.wrapped end, k.created_at, k.created_by,
           case when x.over then coalesce(k.erased_at, _now) else k.erased_at end,
           case when x.over then coalesce(k.erased_by, _actor) else k.erased_by end
      from unnest(_keys) k cross join lateral (select k.project = p_project as over) x;
    perform towpath.fn_audit_record(_actor, 'payload key erase', p_project, format('%s keys', _erased), 'ok');
    return jsonb_build_object('ok', true, 'project', p_project, 'erased', _erased);
exception when lock_not_available then
    return jsonb_build_object('ok', false, 'error', 'conflict', 'project', p_project, 'detail',
        'an open transaction reads or stores payloads; end it, or try again later');
end;
$$;

-- fn_payload_key_list: the keys of all projects, without the keys themselves.
create or replace function towpath.fn_payload_key_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'keys',
               coalesce(jsonb_agg(to_jsonb(k) - 'wrapped' order by k.project, k.key_id), '[]'))
      from towpath.payload_key k
$$;

-- _payload_named: the payloads made before p_below that something unfinished names: a live job, a dead
-- letter that is neither closed nor replayed, a schedule.
create or replace function towpath._payload_named(p_below uuid) returns uuid[]
    language plpgsql stable
as $$
begin
    return array(
        select n.id
          from (select towpath._payload_id(j.payload_ref) from towpath._job_now v join towpath.job j using (job_id)
                 where j.payload_ref is not null
                union
                select towpath._payload_id(d.payload_ref) from towpath.job_dead_letter d
                 where d.payload_ref is not null and d.triage_status in ('pending', 'acknowledged', 'escalated')
                union
                select towpath._payload_id(s.payload_ref) from towpath.schedule s where s.payload_ref is not null) n(id)
         where n.id < p_below);
end;
$$;

-- _payload_partition_drop: drops one day of payloads. Those that something unfinished names move into the default
-- partition: it is where the parent sends a row whose range has no partition.
--
-- Returns how many it kept, or null: another session locks the day, or it cannot be dropped and is set aside (Q22).
create or replace function towpath._payload_partition_drop(p_name text, p_below uuid) returns integer
    language plpgsql
    set lock_timeout = '300ms'
as $$
declare
    _now timestamptz := towpath.fn_now();
    _kept integer;
begin
    execute format('alter table towpath.payload detach partition towpath.%I', p_name);
    execute format('insert into towpath.payload select * from towpath.%I p where p.payload_id = any($1)', p_name)
        using towpath._payload_named(p_below);
    get diagnostics _kept = row_count;
    execute format('drop table towpath.%I', p_name);
    perform towpath._loop_over('payload_retention', _now, array[p_name]);
    return _kept;
exception when lock_not_available then
    return null;
when others then
    if towpath._error_passing(sqlstate) then
        raise;
    end if;
    perform towpath._loop_fault('payload_retention', p_name, sqlerrm);
    return null;
end;
$$;

-- fn_payload_retention_tick: days of payloads that are older than payload.retention.drop_after_days go, one
-- per call; what was kept of earlier days goes once nothing names it.
--
-- Answers: {ok, dropped: [day], kept, deleted, deferred, more, busy}; gate_closed.
create or replace function towpath.fn_payload_retention_tick(p_limit integer default 1000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._tick_refusal(3);
    _limit integer := least(greatest(coalesce(p_limit, 1000), 1), 10000);
    _drop timestamptz := date_trunc('day', towpath.fn_now()
        - towpath._config_number('payload.retention.drop_after_days') * interval '1 day', 'UTC');
    _below uuid := towpath._uuid7_floor(_drop);
    _days text[];
    _kept integer;
    _deleted integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _days := array(
        select right(c.relname, 8) from pg_class c join pg_inherits i on i.inhrelid = c.oid
         where i.inhparent = 'towpath.payload'::regclass and c.relname ~ '_p[0-9]{8}$'
           and (right(c.relname, 8)::date + 1)::timestamp at time zone 'UTC' <= _drop
           and c.relname <> all (towpath._loop_aside('payload_retention'))
         order by 1);
    if _days <> '{}' then
        _kept := towpath._payload_partition_drop('payload_p' || _days[1],
            towpath._uuid7_floor((_days[1]::date + 1)::timestamp at time zone 'UTC'));
    elsif exists (select 1 from towpath.payload_default p where p.payload_id < _below) then
        delete from towpath.payload_default p
         where p.ctid = any(array(select x.ctid from towpath.payload_default x
                                   where x.payload_id < _below and x.payload_id <> all (towpath._payload_named(_below))
                                   limit _limit));
        get diagnostics _deleted = row_count;
    end if;
    return jsonb_build_object('ok', true, 'busy', false,
        'dropped', case when _kept is null then '[]' else jsonb_build_array(_days[1]) end,
        'kept', coalesce(_kept, 0), 'deleted', _deleted, 'deferred', _days <> '{}' and _kept is null,
        'more', _deleted >= _limit or (_kept is not null and cardinality(_days) > 1));
end;
$$;

grant execute on function towpath.fn_payload_key_rotate(text, bytea, text) to workflow_admin;
grant execute on function towpath.fn_payload_key_erase(text, text) to workflow_admin;
grant execute on function towpath.fn_payload_key_list() to towpath_observer, workflow_admin;
grant execute on function towpath.fn_payload_retention_tick(integer) to towpath_maintainer, workflow_admin;
