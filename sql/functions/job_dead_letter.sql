-- Dead letters, and the other ways in which an operator ends or revives a job.

-- _job_take_out: takes a live job out of the queue and locks it, whatever its state; false
-- if it is not live. The ready row goes first, as the lock order demands: if a claimer holds
-- it, this waits, and then finds the job leased and settles it.
create or replace function towpath._job_take_out(p_job_id uuid) returns boolean
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _live towpath.job_live;
begin
    for _try in 1..1000 loop
        select * into _live from towpath.job_live v where v.job_id = p_job_id;
        if not found then
            if not towpath._job_set_apart(p_job_id) then
                return false;
            end if;
            continue;
        end if;
        if _live.state in (0, 3) and _live.blocked = 0 then
            delete from towpath.job_ready r
             where r.lane = _live.lane and r.due_at = _live.due_at and r.job_id = p_job_id and not r.bundle;
            if not found then
                -- It is not there any more: it was claimed.
                perform towpath._job_settle_ids(array[p_job_id], null);
                continue;
            end if;
        end if;
        perform 1 from towpath.job_live v
          where v.job_id = p_job_id and v.state = _live.state and v.attempts = _live.attempts
            and v.blocked = _live.blocked and v.due_at = _live.due_at
            for update;
        if found then
            return true;
        end if;
        -- It moved between the look and the lock. A ready row that was deleted above cannot
        -- have moved, so nothing is lost by looking again.
    end loop;
    raise exception 'job % is waiting but has no ready row', p_job_id;
end;
$$;

-- fn_job_cancel: any unfinished state -> cancelled (Q17). A running job is cancelled too: its
-- worker gets lease_lost at its next call. Children follow their edges.
--
-- Answers: {ok, job_id, state}; gate_closed, invalid, not_found, conflict (finished already).
create or replace function towpath.fn_job_cancel(p_job_id uuid, p_actor text, p_reason text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._job_end(p_job_id, 'cancelled', coalesce(nullif(btrim(p_reason), ''), 'cancelled'), p_actor);
end;
$$;

-- fn_job_move_to_dead_letter: any unfinished state -> dead_letter, by an operator's decision.
--
-- Answers: {ok, job_id, state}; gate_closed, invalid, not_found, conflict (finished already).
create or replace function towpath.fn_job_move_to_dead_letter(p_job_id uuid, p_error text, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._job_end(p_job_id, 'dead_letter', towpath._error_text(p_error), p_actor);
end;
$$;

-- _job_end: the common part of the two above.
create or replace function towpath._job_end(p_job_id uuid, p_outcome text, p_error text, p_actor text) returns jsonb
    language plpgsql
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _parent boolean;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := towpath._name_refusal(p_actor, 'actor');
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._job_take_out(p_job_id) then
        if exists (select 1 from towpath.job j where j.job_id = p_job_id) then
            return (select jsonb_build_object('ok', false, 'error', 'conflict', 'job_id', p_job_id, 'state', q.state,
                        'detail', format('it has finished as %s at %s', q.state, q.finished_at))
                      from towpath.job_queue q where q.job_id = p_job_id);
        end if;
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id);
    end if;
    select v.has_children into _parent from towpath.job_live v where v.job_id = p_job_id;
    perform towpath._job_close(array[p_job_id], p_outcome, array[left(p_error, 8000)], p_actor, _now);
    if _parent then
        perform towpath._job_parents_failed(array[p_job_id], _now);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', p_outcome);
end;
$$;

-- fn_job_dead_letter_triage: moves the triage status of one dead letter (Q12).
--
-- Answers: {ok, dead_letter_id, triage_status}; gate_closed, invalid, not_found.
create or replace function towpath.fn_job_dead_letter_triage(
    p_dead_letter_id uuid, p_status text, p_actor text, p_note text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := coalesce(towpath._name_refusal(p_actor, 'actor'), towpath._note_refusal(p_note, 'note'));
    if _refusal is not null then
        return _refusal;
    end if;
    if p_status is null or p_status not in ('pending', 'acknowledged', 'manual_replay', 'escalated', 'closed') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'status',
            'detail', 'must be one of pending, acknowledged, manual_replay, escalated, closed');
    end if;
    update towpath.job_dead_letter d
       set triage_status = p_status, triaged_at = towpath.fn_now(), triaged_by = p_actor,
           triage_note = coalesce(p_note, d.triage_note)
     where d.dead_letter_id = p_dead_letter_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id);
    end if;
    return jsonb_build_object('ok', true, 'dead_letter_id', p_dead_letter_id, 'triage_status', p_status);
end;
$$;

-- fn_job_dead_letter_replay: a fresh job from a dead letter, linked to it, once (Q12). Children
-- that were held back by the dead job wait for the fresh one.
--
-- Answers: {ok, dead_letter_id, job_id}; gate_closed, invalid, not_found, conflict (already replayed, or
-- an unfinished job has its key).
create or replace function towpath.fn_job_dead_letter_replay(p_dead_letter_id uuid, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _letter towpath.job_dead_letter;
    _own_key boolean;
    _done record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := towpath._name_refusal(p_actor, 'actor');
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _letter from towpath.job_dead_letter d where d.dead_letter_id = p_dead_letter_id for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id);
    end if;
    if _letter.replayed_job_id is not null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'dead_letter_id', p_dead_letter_id,
            'job_id', _letter.replayed_job_id, 'detail', 'already replayed');
    end if;
    -- A job without a key of its own had its id as the key; so has the fresh one.
    _own_key := _letter.idempotency_key <> _letter.job_id::text;
    select * into _done from towpath._job_enqueue_rows(jsonb_build_array(jsonb_build_object(
        'job_kind', _letter.job_kind, 'executor', _letter.executor, 'event_domain', _letter.event_domain,
        'source_ref', _letter.source_ref, 'target_ref', _letter.target_ref, 'payload_ref', _letter.payload_ref,
        'payload_json', _letter.payload_json, 'priority', _letter.priority, 'max_attempts', _letter.max_attempts,
        'idempotency_key', case when _own_key then _letter.idempotency_key end,
        'actor', p_actor, 'run_id', _letter.run_id)));
    if _done.duplicates[1] then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'dead_letter_id', p_dead_letter_id,
            'job_id', _done.job_ids[1], 'detail', 'an unfinished job has the same idempotency key');
    end if;
    update towpath.job_dead_letter d
       set replayed_job_id = _done.job_ids[1], replayed_at = towpath.fn_now(), replayed_by = p_actor,
           triage_status = 'manual_replay', triaged_at = towpath.fn_now(), triaged_by = p_actor
     where d.dead_letter_id = p_dead_letter_id;
    update towpath.job_edge e set parent_id = _done.job_ids[1]
     where e.parent_id = _letter.job_id and not e.satisfied
       and exists (select 1 from towpath.job_live v where v.job_id = e.child_id);
    if found and towpath._job_set_apart(_done.job_ids[1]) then
        update towpath.job_live v set has_children = true where v.job_id = _done.job_ids[1];
    end if;
    return jsonb_build_object('ok', true, 'dead_letter_id', p_dead_letter_id, 'job_id', _done.job_ids[1]);
end;
$$;

-- _dead_letter_filter_refusal: a filter names known keys only, so that a typing error does not
-- replay everything.
create or replace function towpath._dead_letter_filter_refusal(p_filter jsonb) returns jsonb
    language sql immutable
as $$
    select case
        when jsonb_typeof(p_filter) is distinct from 'object' then
            jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', 'must be an object')
        when exists (select 1 from jsonb_object_keys(p_filter) k
                      where k not in ('job_kind', 'executor', 'event_domain', 'triage_status', 'run_id',
                                      'error_contains', 'moved_after', 'moved_before', 'replayed')) then
            jsonb_build_object('ok', false, 'error', 'unknown_key', 'key',
                (select k from jsonb_object_keys(p_filter) k
                  where k not in ('job_kind', 'executor', 'event_domain', 'triage_status', 'run_id',
                                  'error_contains', 'moved_after', 'moved_before', 'replayed') limit 1))
        end
$$;

-- _dead_letters: the dead letters a filter names, oldest first.
create or replace function towpath._dead_letters(p_filter jsonb, p_after uuid, p_limit integer)
    returns setof towpath.job_dead_letter
    language sql stable
as $$
    select d.* from towpath.job_dead_letter d
     where (p_after is null or d.dead_letter_id > p_after)
       and (p_filter ->> 'job_kind' is null or d.job_kind = p_filter ->> 'job_kind')
       and (p_filter ->> 'executor' is null or d.executor = p_filter ->> 'executor')
       and (p_filter ->> 'event_domain' is null or d.event_domain = p_filter ->> 'event_domain')
       and (p_filter ->> 'triage_status' is null or d.triage_status = p_filter ->> 'triage_status')
       and (p_filter ->> 'run_id' is null or d.run_id = (p_filter ->> 'run_id')::uuid)
       and (p_filter ->> 'error_contains' is null or position(p_filter ->> 'error_contains' in d.final_error) > 0)
       and (p_filter ->> 'moved_after' is null or d.moved_at >= (p_filter ->> 'moved_after')::timestamptz)
       and (p_filter ->> 'moved_before' is null or d.moved_at < (p_filter ->> 'moved_before')::timestamptz)
       and (p_filter ->> 'replayed' is null
            or (d.replayed_job_id is not null) = (p_filter ->> 'replayed')::boolean)
     order by d.dead_letter_id
     limit p_limit
$$;

-- fn_job_dead_letter_replay_many: replays the dead letters of a filter that were not replayed before, oldest first,
-- at most p_limit (1,000) letters after p_cursor. Letters with the key of an unfinished job are
-- left and reported; the cursor goes past them, so that they do not block the rest.
--
-- Answers: {ok, replayed: [{dead_letter_id, job_id}], conflicts: [dead_letter_id], cursor: where to go
-- on, null at the end}; gate_closed, invalid, unknown_key.
create or replace function towpath.fn_job_dead_letter_replay_many(
    p_filter jsonb, p_actor text, p_limit integer default 100, p_cursor uuid default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(towpath._gate_refusal('queue.job_substrate.enabled'),
                               towpath._dead_letter_filter_refusal(p_filter));
    _limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    _seen integer := 0;
    _id uuid;
    _answer jsonb;
    _replayed jsonb := '[]';
    _conflicts jsonb := '[]';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := towpath._name_refusal(p_actor, 'actor');
    if _refusal is not null then
        return _refusal;
    end if;
    for _id in
        select d.dead_letter_id
          from towpath._dead_letters(p_filter || '{"replayed": false}', p_cursor, _limit) d
    loop
        _seen := _seen + 1;
        _answer := towpath.fn_job_dead_letter_replay(_id, p_actor);
        if (_answer ->> 'ok')::boolean then
            _replayed := _replayed || jsonb_build_array(_answer - 'ok');
        else
            _conflicts := _conflicts || jsonb_build_array(_id);
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'replayed', _replayed, 'conflicts', _conflicts,
                              'cursor', case when _seen = _limit then _id end);
exception when data_exception then
    -- A date of the filter that is none; nothing was replayed.
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', sqlerrm);
end;
$$;

-- fn_job_dead_letter_count: how many dead letters a filter names, before they are replayed.
--
-- Answers: {ok, count, replayed: how many of them have been replayed, kinds: {job_kind: count}};
-- invalid, unknown_key.
create or replace function towpath.fn_job_dead_letter_count(p_filter jsonb default '{}') returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath._dead_letter_filter_refusal(p_filter);
begin
    if _answer is null then
        select jsonb_build_object('ok', true, 'count', coalesce(sum(k.n), 0), 'replayed', coalesce(sum(k.replayed), 0),
                                  'kinds', coalesce(jsonb_object_agg(k.job_kind, k.n), '{}'))
          into _answer
          from (select d.job_kind, count(*) as n, count(d.replayed_job_id) as replayed
                  from towpath._dead_letters(p_filter, null, null) d group by d.job_kind) k;
    end if;
    return _answer;
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', sqlerrm);
end;
$$;

-- fn_job_retry: does not wait any longer. A waiting job is due now; a dead one is replayed.
--
-- Answers: {ok, job_id, state} with the id of the fresh job after a replay; gate_closed, invalid,
-- not_found, conflict (leased, blocked or finished).
create or replace function towpath.fn_job_retry(p_job_id uuid, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _letter uuid := (select d.dead_letter_id from towpath.job_dead_letter d where d.job_id = p_job_id);
    _live towpath.job_live;
    _answer jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if _letter is not null then
        _answer := towpath.fn_job_dead_letter_replay(_letter, p_actor);
        return case when (_answer ->> 'ok')::boolean
            then jsonb_build_object('ok', true, 'job_id', _answer -> 'job_id', 'state', 'queued') else _answer end;
    end if;
    _refusal := towpath._name_refusal(p_actor, 'actor');
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._job_take_out(p_job_id) then
        return case when exists (select 1 from towpath.job j where j.job_id = p_job_id)
            then jsonb_build_object('ok', false, 'error', 'conflict', 'job_id', p_job_id,
                                    'detail', 'the job has finished')
            else jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id) end;
    end if;
    select * into _live from towpath.job_live v where v.job_id = p_job_id;
    if _live.state in (1, 2) or _live.blocked > 0 then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'job_id', p_job_id,
            'detail', case when _live.blocked > 0 then 'it is waiting for other jobs' else 'it is leased' end);
    end if;
    update towpath.job_live v set due_at = least(v.due_at, _now) where v.job_id = p_job_id returning * into _live;
    insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
    values (_live.lane, _live.due_at, p_job_id, _live.attempts, _live.refunded, false);
    perform towpath._job_wake(array[_live.lane]);
    return jsonb_build_object('ok', true, 'job_id', p_job_id,
        'state', case when _live.state = 3 then 'retry_waiting' else 'queued' end);
end;
$$;

-- fn_job_dead_letter_show: one dead letter, whole. Answers: {ok, dead_letter}; not_found.
create or replace function towpath.fn_job_dead_letter_show(p_dead_letter_id uuid) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        (select jsonb_build_object('ok', true, 'dead_letter', to_jsonb(d)) from towpath.job_dead_letter d
          where d.dead_letter_id = p_dead_letter_id),
        jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id))
$$;

-- fn_job_dead_letter_list: dead letters by filter, oldest first, a page at a time.
--
-- Answers: {ok, dead_letters: [...], cursor}; invalid, unknown_key.
create or replace function towpath.fn_job_dead_letter_list(
    p_filter jsonb default '{}', p_limit integer default 100, p_cursor uuid default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._dead_letter_filter_refusal(p_filter);
    _limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    _answer jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select jsonb_build_object('ok', true,
               'dead_letters', coalesce(jsonb_agg(to_jsonb(d) order by d.dead_letter_id), '[]'),
               'cursor', case when count(*) = _limit
                              then (array_agg(d.dead_letter_id order by d.dead_letter_id desc))[1] end)
      into _answer
      from towpath._dead_letters(p_filter, p_cursor, _limit) d;
    return _answer;
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', sqlerrm);
end;
$$;

grant execute on function towpath.fn_job_cancel(uuid, text, text) to workflow_admin;
grant execute on function towpath.fn_job_retry(uuid, text) to workflow_admin;
grant execute on function towpath.fn_job_dead_letter_count(jsonb) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_dead_letter_show(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_move_to_dead_letter(uuid, text, text) to workflow_admin;
grant execute on function towpath.fn_job_dead_letter_triage(uuid, text, text, text) to workflow_admin;
grant execute on function towpath.fn_job_dead_letter_replay(uuid, text) to workflow_admin;
grant execute on function towpath.fn_job_dead_letter_replay_many(jsonb, text, integer, uuid) to workflow_admin;
grant execute on function towpath.fn_job_dead_letter_list(jsonb, integer, uuid) to workflow_admin, towpath_observer;
