-- Processes that a program outside the database supervises: it asks for what is due, decides, and
-- says what it decided. Nothing is lost if it dies in between.

-- fn_process_due: processes of a kind whose time has come, with their attempts and facts. Each is
-- given to one caller for p_lease_seconds; if that caller does not decide, another gets it.
-- An attempt whose lease ran out is lost by then. A process that raises is set aside, and the others are
-- given (Q22).
--
-- Answers: {ok, processes: [answer of fn_process_show, with generation]}; gate_closed, not_found, invalid.
create or replace function towpath.fn_process_due(
    p_process_kind text, p_limit integer default 10, p_lease_seconds integer default 30) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _refusal jsonb := towpath._gate_refusal('process.enabled');
    _now timestamptz := towpath.fn_now();
    _aside text[] := towpath._loop_aside('process_supervise');
    _process towpath.process;
    _due jsonb := '[]';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not exists (select 1 from towpath.process_kind k where k.process_kind = p_process_kind and k.supervisor is null) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_kind', p_process_kind,
            'detail', 'there is no such externally supervised process kind');
    end if;
    if coalesce(p_lease_seconds, 30) not between 1 and 3600 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'lease_seconds',
                                  'detail', 'must be between 1 and 3600');
    end if;
    for _process in
        select * from towpath.process p
         where p.finished_at is null and not p.in_database and p.process_kind = p_process_kind
           and p.next_check_at <= _now and p.deadline_at > _now
           and (_aside = '{}' or p.process_id::text <> all (_aside))
         order by p.next_check_at limit least(greatest(coalesce(p_limit, 10), 1), 100) for update skip locked
    loop
        begin
            perform towpath._process_expire(_process, _now);
            perform towpath._process_check(_process, case when _process.state = 'held' then _process.deadline_at
                else _now + make_interval(secs => coalesce(p_lease_seconds, 30)) end);
            if _process.state = 'open' then
                _due := _due || jsonb_build_array(towpath.fn_process_show(_process.process_id) - 'ok');
            end if;
        exception when others then
            if towpath._error_passing(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('process_supervise', _process.process_id::text, sqlerrm);
        end;
    end loop;
    return jsonb_build_object('ok', true, 'processes', _due);
end;
$$;

-- fn_process_decide: what a supervisor outside decided, if nothing has happened since it looked:
-- p_generation is the number of the newest fact it saw.
--   {"do": "attempt", "due_at": …}      schedules the next attempt
--   {"do": "wait", "check_at": …}       looks again then
--   {"do": "succeed" | "give_up" | "invalid", "detail": {…}}   ends it
--   {"do": "hold", "why": …}            asks a person
--
-- Answers: {ok, process_id, state, generation, attempt_no}; gate_closed, not_found, not_authorised, invalid,
-- conflict (something happened, it is over, or an attempt is outstanding).
create or replace function towpath.fn_process_decide(p_process_id uuid, p_generation integer, p_decision jsonb)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(towpath._gate_refusal('process.enabled'), towpath._gate_refusal('queue.job_substrate.enabled'),
                               towpath._payload_refusal(coalesce(p_decision, '{}'), 'decision'));
    _do text := p_decision->>'do';
    _now timestamptz;
    _found record;
    _process towpath.process;
    _generation integer;
    _attempt_no integer;
begin
    _refusal := coalesce(_refusal, towpath._moment_refusal((p_decision->>'due_at')::timestamptz, 'due_at'),
                         towpath._moment_refusal((p_decision->>'check_at')::timestamptz, 'check_at'),
                         case when jsonb_typeof(p_decision->'detail') not in ('object', 'null') then
                             towpath._invalid('detail', 'must be an object') end);
    if _refusal is not null then
        return _refusal;
    end if;
    if _do is null or _do not in ('attempt', 'wait', 'succeed', 'give_up', 'invalid', 'hold') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'do',
                                  'detail', 'must be one of attempt, wait, succeed, give_up, invalid, hold');
    end if;
    if _do = 'wait' and p_decision->>'check_at' is null then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'check_at', 'detail', 'check_at is required for wait');
    end if;
    select * into _found from towpath._process_outside(p_process_id);
    if _found.refusal is not null then
        return _found.refusal;
    end if;
    _process := _found.process;
    _now := towpath.fn_now();
    select max(f.fact_no) into _generation from towpath.process_fact f where f.process_id = p_process_id;
    if _process.state <> 'open' or _generation is distinct from p_generation then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', p_process_id, 'state', _process.state,
            'generation', _generation, 'detail', 'the process has changed since it was claimed; claim it again');
    end if;
    if _do = 'attempt' then
        if exists (select 1 from towpath.process_attempt a where a.process_id = p_process_id and a.outcome is null) then
            return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', p_process_id, 'state', _process.state,
                                      'generation', _generation, 'detail', 'an attempt is outstanding');
        end if;
        _attempt_no := towpath._process_attempt(_process, (p_decision->>'due_at')::timestamptz, _now);
    elsif _do = 'wait' then
        perform towpath._process_check(_process,
            least(greatest((p_decision->>'check_at')::timestamptz, _now), _process.deadline_at));
    elsif _do = 'hold' then
        perform towpath._process_hold(_process,
            (select max(a.attempt_no) from towpath.process_attempt a where a.process_id = p_process_id),
            coalesce(p_decision->>'why', 'requested by the supervisor'), _now);
    else
        perform towpath._process_end(_process, case _do when 'succeed' then 'succeeded' when 'give_up' then 'gave_up'
            else 'invalid' end, null, p_decision->'detail', 'supervisor', _now);
    end if;
    delete from towpath.loop_fault f where f.loop_name = 'process_supervise' and f.item = p_process_id::text;
    return jsonb_build_object('ok', true, 'process_id', p_process_id, 'attempt_no', _attempt_no,
        'state', (select p.state from towpath.process p where p.process_id = p_process_id),
        'generation', (select max(f.fact_no) from towpath.process_fact f where f.process_id = p_process_id));
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'decision', 'detail', sqlerrm);
end;
$$;

grant execute on function towpath.fn_process_due(text, integer, integer) to worker_service_user;
grant execute on function towpath.fn_process_decide(uuid, integer, jsonb) to worker_service_user;
