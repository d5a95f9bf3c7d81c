-- What an operator does with a process: cancel it, or decide how an uncertain attempt ended.

-- fn_process_cancel: unfinished -> cancelled. An attempt that is running may still take effect; what it
-- reports is recorded as late.
--
-- Answers: {ok, process_id, state}; invalid, not_found, conflict (it has ended).
create or replace function towpath.fn_process_cancel(p_process_id uuid, p_actor text, p_reason text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _process towpath.process;
    _begun integer;
    _refusal jsonb := towpath._name_refusal(p_actor, 'actor');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _process := towpath._process_lock(p_process_id);
    if _process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id);
    end if;
    if _process.finished_at is not null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', p_process_id, 'state', _process.state,
                                  'detail', 'the process has ended');
    end if;
    select a.attempt_no into _begun from towpath.process_attempt a
     where a.process_id = p_process_id and a.outcome is null and a.begun_at is not null;
    perform towpath._process_end(_process, 'cancelled', null, jsonb_build_object('reason', left(p_reason, 1000),
        'attempt_running', _begun), p_actor, towpath.fn_now());
    return jsonb_build_object('ok', true, 'process_id', p_process_id, 'state', 'cancelled', 'attempt_running', _begun);
end;
$$;

-- fn_process_resolve: a person has found out what became of a held process (P08).
--   succeeded  it took effect
--   retry      it did not: another attempt, even if they were used up
--   gave_up    leave it
--   cancelled  it is not wanted any more
--
-- Answers: {ok, process_id, state}; invalid, not_found, conflict (it is not held, or its deadline has
-- passed).
create or replace function towpath.fn_process_resolve(
    p_process_id uuid, p_resolution text, p_actor text, p_note text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz;
    _process towpath.process;
    _attempt_no integer;
    _refusal jsonb := towpath._name_refusal(p_actor, 'actor');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_resolution is null or p_resolution not in ('succeeded', 'retry', 'gave_up', 'cancelled') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'resolution',
                                  'detail', 'must be one of succeeded, retry, gave_up, cancelled');
    end if;
    _process := towpath._process_lock(p_process_id);
    _now := towpath.fn_now();
    if _process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id);
    end if;
    if _process.state <> 'held' or p_resolution = 'retry' and _process.deadline_at <= _now then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', p_process_id, 'state', _process.state,
            'detail', case when _process.state = 'held' then 'its deadline has passed' else 'it is not held' end);
    end if;
    select max(a.attempt_no) into _attempt_no from towpath.process_attempt a where a.process_id = p_process_id;
    perform towpath._process_fact(_process, 'resolved', _attempt_no,
        jsonb_build_object('resolution', p_resolution, 'note', left(p_note, 1000)), p_actor, _now);
    if p_resolution = 'retry' then
        update towpath.process p
           set state = 'open', next_check_at = _now, max_attempts = least(greatest(p.max_attempts, _attempt_no + 1), 1000)
         where p.process_id = p_process_id
        returning p.* into _process;
        perform towpath._process_supervise(_process, _now);
    else
        perform towpath._process_end(_process, p_resolution, _attempt_no,
            jsonb_build_object('why', 'decided by an operator'), p_actor, _now);
    end if;
    return jsonb_build_object('ok', true, 'process_id', p_process_id,
        'state', (select p.state from towpath.process p where p.process_id = p_process_id));
end;
$$;

grant execute on function towpath.fn_process_cancel(uuid, text, text) to workflow_admin;
grant execute on function towpath.fn_process_resolve(uuid, text, text, text) to workflow_admin;
