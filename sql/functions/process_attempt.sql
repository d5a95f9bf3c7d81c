-- Attempts: begun once by one worker, ended once, or lost.

-- _process_attempt_begin: scheduled -> begun. The number is the fence: a worker that begins it second, or
-- after it was lost, is refused and must not act. So is everybody while the gate is closed; the
-- attempt stays scheduled, and its job asks again later. Answers {ok, lease_until, idempotency_key}
-- or a refusal of fn_process_attempt_begin.
create or replace function towpath._process_attempt_begin(
    p_process towpath.process, p_attempt_no integer, p_worker text, p_key_honoured boolean, p_now timestamptz)
    returns jsonb
    language plpgsql
as $$
declare
    _attempt towpath.process_attempt;
    _lease timestamptz;
    -- What a handler was told about its worker may be anything.
    _worker text := case when towpath._key_fits(p_worker) then p_worker else 'worker' end;
begin
    if p_process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail', 'there is no such process');
    end if;
    if p_process.finished_at is not null or p_process.deadline_at <= p_now then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'state', p_process.state,
            'detail', case when p_process.finished_at is null then 'the deadline of the process has passed'
                           else 'the process has ended: ' || p_process.state end);
    end if;
    select * into _attempt from towpath.process_attempt a
     where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found',
            'detail', format('process %s has no attempt %s', p_process.process_id, coalesce(p_attempt_no::text, 'null')));
    end if;
    if _attempt.outcome is not null or _attempt.begun_at is not null then
        return jsonb_build_object('ok', false, 'error', 'lease_lost',
            'detail', format('attempt %s of process %s %s', p_attempt_no, p_process.process_id,
                coalesce('has ended: ' || _attempt.outcome, 'was already started by ' || _attempt.worker)));
    end if;
    if not towpath._gate_open('process.enabled') then
        return towpath._gate_refusal('process.enabled');
    end if;
    select p_now + make_interval(secs => k.lease_seconds) into _lease
      from towpath.process_kind k where k.process_kind = p_process.process_kind;
    update towpath.process_attempt a
       set begun_at = p_now, worker = _worker, key_honoured = coalesce(p_key_honoured, false), lease_until = _lease
     where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no;
    perform towpath._process_check(p_process, _lease);
    perform towpath._process_fact(p_process, 'begun', p_attempt_no,
        jsonb_build_object('key_honoured', coalesce(p_key_honoured, false)), _worker, p_now);
    return jsonb_build_object('ok', true, 'process_id', p_process.process_id, 'attempt_no', p_attempt_no,
                              'lease_until', _lease, 'idempotency_key', p_process.process_id);
end;
$$;

-- _process_attempt_end: begun -> accepted | transient | permanent | uncertain, and what follows.
--
-- An attempt that was never begun may fail (its preparation did), but not succeed. An attempt
-- that was lost, or whose process has ended, reports late. A late acceptance is the truth about
-- the world: if the process is unfinished it ends as succeeded, because trying on could only do
-- the same thing twice. Any other late word changes nothing.
--
-- p_detail: message, code, retry_after_seconds, key_honoured and whatever else the kind records.
-- Answers {ok, process_id, attempt_no, state, late} or a refusal of fn_process_attempt_end.
create or replace function towpath._process_attempt_end(
    p_process towpath.process, p_attempt_no integer, p_outcome text, p_detail jsonb, p_now timestamptz,
    p_result jsonb default null) returns jsonb
    language plpgsql
as $$
declare
    _attempt towpath.process_attempt;
    _detail jsonb := jsonb_build_object('outcome', p_outcome) || coalesce(p_detail, '{}');
    _retry_seconds double precision := case when jsonb_typeof(p_detail->'retry_after_seconds') = 'number'
        then least(greatest((p_detail->>'retry_after_seconds')::double precision, 0), 604800) end;
    _late boolean;
    _state text;
begin
    select * into _attempt from towpath.process_attempt a
     where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail', format('there is no attempt %s of process %s',
            coalesce(p_attempt_no::text, 'null'), coalesce(p_process.process_id::text, 'null')));
    end if;
    if _attempt.begun_at is null and p_outcome = 'accepted' then
        return jsonb_build_object('ok', false, 'error', 'conflict',
            'detail', format('attempt %s of process %s was never started', p_attempt_no, p_process.process_id));
    end if;
    if _attempt.outcome not in ('lost', 'superseded') or exists (
        select 1 from towpath.process_fact f
         where f.process_id = p_process.process_id and f.attempt_no = p_attempt_no and f.fact = 'late') then
        return jsonb_build_object('ok', false, 'error', 'lease_lost',
            'detail', format('attempt %s of process %s has already ended', p_attempt_no, p_process.process_id));
    end if;

    _late := _attempt.outcome is not null or p_process.finished_at is not null;
    if _attempt.outcome is null then
        update towpath.process_attempt a
           set outcome = p_outcome, ended_at = p_now,
               key_honoured = a.key_honoured or coalesce(p_detail->'key_honoured' = 'true', false),
               retry_at = p_now + make_interval(secs => _retry_seconds)
         where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no;
    end if;
    if _late then
        perform towpath._process_fact(p_process, 'late', p_attempt_no, _detail, _attempt.worker, p_now);
    end if;
    if p_process.finished_at is null then
        if p_outcome = 'accepted' then
            perform towpath._process_end(p_process, 'succeeded', p_attempt_no,
                _detail || jsonb_build_object('late', case when _late then true end), _attempt.worker, p_now, p_result);
        elsif not _late then
            perform towpath._process_fact(p_process, case p_outcome when 'uncertain' then 'uncertain' else 'failed' end,
                p_attempt_no, _detail, _attempt.worker, p_now);
            perform towpath._process_supervise(p_process, p_now);
        end if;
    end if;
    select p.state into _state from towpath.process p where p.process_id = p_process.process_id;
    return jsonb_build_object('ok', true, 'process_id', p_process.process_id, 'attempt_no', p_attempt_no,
                              'state', _state, 'late', _late);
end;
$$;

-- _process_invalid: an attempt that was begun finds that there is nothing to do: the process ends as
-- invalid. For handlers that prepare an attempt; the fact is written before they refuse.
create or replace function towpath._process_invalid(
    p_process towpath.process, p_attempt_no integer, p_why text, p_now timestamptz) returns void
    language plpgsql
as $$
begin
    update towpath.process_attempt a set outcome = 'permanent', ended_at = p_now
     where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no and a.outcome is null;
    perform towpath._process_end(p_process, 'invalid', p_attempt_no, jsonb_build_object('why', left(p_why, 1000)),
                                 'handler', p_now);
end;
$$;

-- _process_attempt_no: the attempt a payload is about: the one it names, or else the outstanding one.
create or replace function towpath._process_attempt_no(p_process towpath.process, p_payload jsonb) returns integer
    language plpgsql stable
as $$
begin
    -- A number that no attempt has names none, rather than the outstanding one.
    return case when jsonb_typeof(p_payload->'attempt_no') = 'number' then
               case when p_payload->>'attempt_no' ~ '^[0-9]{1,9}$' then (p_payload->>'attempt_no')::integer else 0 end
           else (select a.attempt_no from towpath.process_attempt a
                  where a.process_id = p_process.process_id and a.outcome is null) end;
end;
$$;

-- _process_envelope: an answer of the functions above as the envelope of a handler. A refusal is a
-- validation failure: repeating it changes nothing. Only a closed gate may open again; refusal says
-- so, and workers put the job off without counting an attempt.
create or replace function towpath._process_envelope(p_answer jsonb) returns jsonb
    language plpgsql stable
as $$
begin
    return case when (p_answer->>'ok')::boolean then towpath._envelope_ok(p_answer - 'ok')
                when p_answer->>'error' = 'gate_closed' then
                    towpath._envelope_invalid(format('gate %s is closed', p_answer->>'gate'))
                    || jsonb_build_object('refusal', 'gate_closed')
                else towpath._envelope_invalid(coalesce(p_answer->>'detail', p_answer->>'error')) end;
end;
$$;

-- _process_failure: what an error handler was told, as an outcome and a detail. A plain string is a
-- transient error; an unknown word is uncertain.
create or replace function towpath._process_failure(p_error jsonb, out outcome text, out detail jsonb)
    language sql stable
as $$
    select case when jsonb_typeof(p_error) is distinct from 'object' or p_error->>'outcome' is null then 'transient'
                when p_error->>'outcome' in ('transient', 'permanent') then p_error->>'outcome'
                else 'uncertain' end,
           jsonb_strip_nulls(jsonb_build_object(
               'message', left(towpath._error_text(
                   case when jsonb_typeof(p_error) = 'object' then p_error->>'message' else p_error #>> '{}' end), 1000),
               'code', left(p_error->>'code', 100),
               'transport', left(p_error->>'transport', 100),
               'retry_after_seconds', case when jsonb_typeof(p_error->'retry_after_seconds') = 'number'
                                           then p_error->'retry_after_seconds' end,
               'key_honoured', case when jsonb_typeof(p_error->'key_honoured') = 'boolean' then p_error->'key_honoured' end))
$$;

-- _process_outside: the process, locked, if a program outside the database may move it; otherwise
-- why not. What functions of the database supervise is moved by their own handlers only; kinds with a
-- function or a handler have functions of their own (process_run.sql).
create or replace function towpath._process_outside(p_process_id uuid, out process towpath.process, out refusal jsonb)
    language plpgsql
as $$
begin
    process := towpath._process_lock(p_process_id);
    if process.process_id is null then
        refusal := jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id);
    elsif process.in_database then
        refusal := jsonb_build_object('ok', false, 'error', 'not_authorised', 'process_id', p_process_id,
            'detail', format('only its own functions may change a process of kind %s', process.process_kind));
    end if;
end;
$$;

-- fn_process_attempt_begin: a worker takes an attempt, once.
--
-- Answers: {ok, process_id, attempt_no, lease_until, idempotency_key}; gate_closed, not_found,
-- not_authorised, invalid, conflict (the process has ended), lease_lost (begun already, or lost).
create or replace function towpath.fn_process_attempt_begin(
    p_process_id uuid, p_attempt_no integer, p_worker text, p_key_honoured boolean default false) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _found record;
    _refusal jsonb := towpath._owner_refusal(p_worker, 'worker');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _found from towpath._process_outside(p_process_id);
    return coalesce(_found.refusal, towpath._process_attempt_begin(_found.process, p_attempt_no, p_worker,
                                                                   p_key_honoured, towpath.fn_now()));
end;
$$;

-- fn_process_attempt_extend: the worker that holds an attempt needs it longer, but not beyond one lease
-- after the deadline.
--
-- Answers: {ok, process_id, attempt_no, lease_until}; not_found, not_authorised, invalid, lease_lost.
create or replace function towpath.fn_process_attempt_extend(
    p_process_id uuid, p_attempt_no integer, p_worker text, p_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _found record;
    _lease timestamptz;
begin
    if p_seconds not between 1 and 86400 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'seconds',
                                  'detail', 'must be between 1 and 86400');
    end if;
    select * into _found from towpath._process_outside(p_process_id);
    if _found.refusal is not null then
        return _found.refusal;
    end if;
    update towpath.process_attempt a
       set lease_until = greatest(a.lease_until, least(
               _now + make_interval(secs => coalesce(p_seconds, k.lease_seconds)),
               (_found.process).deadline_at + make_interval(secs => k.lease_seconds)))
      from towpath.process_kind k
     where a.process_id = p_process_id and a.attempt_no = p_attempt_no and a.worker = p_worker and a.outcome is null
       and k.process_kind = (_found.process).process_kind
    returning a.lease_until into _lease;
    if not found or (_found.process).finished_at is not null then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'process_id', p_process_id,
                                  'attempt_no', p_attempt_no);
    end if;
    perform towpath._process_check(_found.process, _lease);
    return jsonb_build_object('ok', true, 'process_id', p_process_id, 'attempt_no', p_attempt_no, 'lease_until', _lease);
end;
$$;

-- fn_process_attempt_end: how an attempt ended, from the worker that began it.
--
-- Answers: {ok, process_id, attempt_no, state, late}; not_found, not_authorised, invalid, conflict (never
-- begun), lease_lost (ended already).
create or replace function towpath.fn_process_attempt_end(
    p_process_id uuid, p_attempt_no integer, p_outcome text, p_detail jsonb default '{}') returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _found record;
    _refusal jsonb := towpath._payload_refusal(coalesce(p_detail, '{}'), 'detail');
begin
    if p_outcome is null or p_outcome not in ('accepted', 'transient', 'permanent', 'uncertain') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'outcome',
                                  'detail', 'must be one of accepted, transient, permanent, uncertain');
    end if;
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _found from towpath._process_outside(p_process_id);
    return coalesce(_found.refusal, towpath._process_attempt_end(_found.process, p_attempt_no, p_outcome, p_detail,
                                                                 towpath.fn_now()));
end;
$$;

grant execute on function towpath.fn_process_attempt_begin(uuid, integer, text, boolean) to worker_service_user;
grant execute on function towpath.fn_process_attempt_extend(uuid, integer, text, integer) to worker_service_user;
grant execute on function towpath.fn_process_attempt_end(uuid, integer, text, jsonb) to worker_service_user;
