-- Signals: what a process waits for, told by anybody who may start processes of its kind.

-- _process_signal: records a signal of a process that the caller has locked, and wakes the process if it waits for it
-- (P15). The first signal of a name stays. Answers whether this one was the first.
create or replace function towpath._process_signal(
    p_process towpath.process, p_name text, p_payload jsonb, p_actor text, p_now timestamptz) returns boolean
    language plpgsql
as $$
begin
    if exists (select 1 from towpath.process_fact f
                where f.process_id = p_process.process_id and f.fact = 'signalled' and f.name = p_name) then
        return false;
    end if;
    insert into towpath.process_fact (process_id, fact_no, fact, actor, recorded_at, name, value)
    select p_process.process_id, max(f.fact_no) + 1, 'signalled', p_actor, p_now, p_name, p_payload
      from towpath.process_fact f where f.process_id = p_process.process_id;
    if p_process.waits_for = p_name then
        -- A closed gate, or anything else that goes wrong, leaves it to the scan.
        update towpath.process p set waits_for = null, next_check_at = p_now
         where p.process_id = p_process.process_id and p.finished_at is null
        returning p.* into p_process;
        perform towpath._process_supervise(p_process, p_now);
    end if;
    return true;
end;
$$;

-- fn_process_signal: tells a process something, in the caller's own transaction (P15). The first signal of a name stays,
-- whether or not the process waits for it yet; the same process has at most one of each name. A process that waits
-- for it goes on as soon as the transaction commits. Until then nobody else can change the process: keep it short.
--
-- Answers: {ok, process_id, recorded: whether it was the first, state}; gate_closed, not_found, not_authorised, invalid,
-- conflict (the process has ended).
create or replace function towpath.fn_process_signal(
    p_process_kind text, p_ref text, p_name text, p_payload jsonb default null, p_actor text default null,
    p_process_id uuid default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _refusal jsonb := coalesce(towpath._gate_refusal('process.enabled'), towpath._key_refusal(p_name, 'name'),
        case when p_name is null then towpath._invalid('name', 'is required')
             when p_name like 'process:%' then towpath._invalid('name', 'names that begin with process: are for the ends of children') end,
        towpath._process_value_refusal(p_payload, 'payload'), towpath._name_or_null_refusal(p_actor, 'actor'));
    _process towpath.process;
    _kind towpath.process_kind;
    _recorded boolean;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _process := case when p_process_id is null then towpath._process_find(p_process_kind, p_ref)
                     else towpath._process_lock(p_process_id) end;
    select * into _kind from towpath.process_kind k where k.process_kind = coalesce(_process.process_kind, p_process_kind);
    _refusal := towpath._process_right_refusal(_kind, p_process_kind, 'signal');
    if _refusal is not null then
        return _refusal;
    end if;
    if _process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_kind', p_process_kind, 'ref', p_ref,
            'process_id', p_process_id, 'detail', 'there is no such process; start it before it is signalled');
    end if;
    if _process.finished_at is not null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', _process.process_id,
            'state', _process.state, 'detail', 'the process has ended: ' || _process.state);
    end if;
    _recorded := towpath._process_signal(_process, p_name, p_payload, coalesce(p_actor, session_user), towpath.fn_now());
    return jsonb_build_object('ok', true, 'process_id', _process.process_id, 'recorded', _recorded, 'state', _process.state);
end;
$$;

grant execute on function towpath.fn_process_signal(text, text, text, jsonb, text, uuid) to towpath_producer, workflow_admin;
