-- Processes written in SQL: what their functions call, and how workers run them.
--
-- A function of a process is schema.function(process jsonb) returns jsonb. It gets {process_id, attempt_no,
-- process_kind, ref, input, steps, idempotency_key, worker} and returns the result, or what a wait answered. It need not
-- belong to anybody in particular: these functions are granted to producers.

-- _process_held: the process of an attempt that the caller's function runs, locked. Raises if it has ended.
create or replace function towpath._process_held(p_process jsonb) returns towpath.process
    language plpgsql
as $$
declare
    _process towpath.process := towpath._process_lock(towpath._uuid_read(p_process->>'process_id'));
    _refusal jsonb := towpath._process_fence(_process, (p_process->>'attempt_no')::integer, p_process->>'worker');
begin
    if _refusal is not null then
        perform towpath._raise_refusal(_refusal, format('process %s', coalesce(p_process->>'process_id', 'null')));
    end if;
    return _process;
end;
$$;

-- process_step: records the result of a step of the process that calls it, in its transaction: with what the step
-- wrote, so inside this database it happens exactly once. Returns the result; an earlier one of that name, if
-- there is one.
--
--     if not process->'steps' ? 'pay' then
--         perform towpath.process_step(process, 'pay', shop.pay(process->>'ref'));
--     end if;
create or replace function towpath.process_step(process jsonb, name text, result jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _process towpath.process;
    _refusal jsonb;
    _id uuid := towpath._uuid_read(process->>'process_id');
    _no integer := (process->>'attempt_no')::integer;
begin
    -- The usual step is new, and its worker holds the attempt.
    perform 1 from towpath.process p where p.process_id = _id and p.finished_at is null for update;
    if found and towpath._key_fits(name) and (result is null or towpath._result_fits(result)) then
        insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, actor, recorded_at, name, value)
        select a.process_id, (select max(f.fact_no) + 1 from towpath.process_fact f where f.process_id = _id),
               'stepped', _no, a.worker, towpath.fn_now(), process_step.name, process_step.result
          from towpath.process_attempt a
         where a.process_id = _id and a.attempt_no = _no and a.worker = process->>'worker' and a.outcome is null
        on conflict do nothing;
        if found then
            return result;
        end if;
    end if;
    _process := towpath._process_held(process);
    _refusal := coalesce(towpath._key_refusal(name, 'name'), towpath._process_value_refusal(result, 'result'));
    if _refusal is not null then
        perform towpath._raise_refusal(_refusal, format('step %s', name));
    end if;
    return towpath._process_step(_process.process_id, _no, process->>'worker', name, result, towpath.fn_now());
end;
$$;

-- _process_wait_or_raise: fn_process_wait for the functions below. Returns {"suspend": …} or the value.
create or replace function towpath._process_wait_or_raise(
    p_process jsonb, p_name text, p_signal text, p_until timestamptz, p_seconds double precision, p_child jsonb) returns jsonb
    language plpgsql
as $$
declare
    _answer jsonb := towpath.fn_process_wait(towpath._uuid_read(p_process->>'process_id'), (p_process->>'attempt_no')::integer,
        p_process->>'worker', p_name, p_signal, p_until, p_seconds, p_child);
begin
    if _answer->'ok' = 'false' then
        perform towpath._raise_refusal(_answer, format('wait %s', p_name));
    end if;
    return case when _answer->'ready' = 'true' then _answer->'value'
                else jsonb_build_object('suspend', _answer - 'ok' - 'ready') end;
end;
$$;

-- process_wait: waits for a signal, for at most the timeout. Returns {"signal": payload} or {"timed_out": true}; until then
-- {"suspend": …}, which the function must return. The result is the one of the step of that name.
--
--     shipped := towpath.process_wait(process, 'shipped', interval '3 days');
--     if shipped ? 'suspend' then return shipped; end if;
create or replace function towpath.process_wait(process jsonb, signal text, timeout interval default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._process_wait_or_raise(process, signal, signal, null, extract(epoch from timeout), null);
end;
$$;

-- process_sleep: sleeps for a time, once under each name. Returns {"timed_out": true}, or {"suspend": …} to be returned.
create or replace function towpath.process_sleep(process jsonb, name text, how_long interval) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._process_wait_or_raise(process, name, null, null, extract(epoch from how_long), null);
end;
$$;

-- process_sleep_until: sleeps until a moment. Returns as process_sleep.
create or replace function towpath.process_sleep_until(process jsonb, name text, moment timestamptz) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._process_wait_or_raise(process, name, null, moment, null, null);
end;
$$;

-- process_child: starts a process of its own and waits for its end. Returns {"process_id", "state", "result"}, or
-- {"suspend": …} to be returned.
create or replace function towpath.process_child(process jsonb, name text, kind text, ref text, input jsonb default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._process_wait_or_raise(process, name, null, null, null,
        jsonb_build_object('kind', kind, 'ref', ref, 'input', input));
end;
$$;

-- fn_process_run_many: begins attempts of processes that are SQL functions, runs them, and records how they ended, all in
-- one transaction. With the caller's rights: a function must be granted to worker_service_user by name, as
-- run_function requires. Those of one function are called in one statement. If one of them raises, what all of them wrote
-- is undone, and each is called by itself: an error undoes what its function wrote and fails its attempt; an error that will
-- pass, such as a deadlock, ends the call if several run, and the worker runs each alone.
--
-- Returns what fn_process_end_many and fn_process_begin_many do, and {ok, state: suspended}.
create or replace function towpath.fn_process_run_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text)
    returns table (no integer, answer jsonb)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _begun record;
    _nos integer[];
    _ids uuid[];
    _attempts integer[];
    _results jsonb[];
begin
    for _begun in
        select b.answer->>'db_function' as db_function, b.answer->'ok' = 'true' as is_begun, array_agg(b.no) as nos,
               array_agg(b.answer) as answers, array_agg(b.answer - 'db_function' - 'ok') as payloads
          from towpath.fn_process_function_begin_many(p_process_ids, p_attempt_nos, p_worker) b
         group by 1, 2
    loop
        if not _begun.is_begun then
            return query select u.* from unnest(_begun.nos, _begun.answers) u;
            continue;
        end if;
        _results := null;
        if cardinality(_begun.nos) > 1 and towpath.function_refusal(_begun.db_function) is null then
            begin
                execute format('select array_agg(%I.%I(p.payload) order by p.no) from unnest($1) with ordinality as p(payload, no)',
                               split_part(_begun.db_function, '.', 1), split_part(_begun.db_function, '.', 2))
                   into _results using _begun.payloads;
            exception when others then
                _results := null;
            end;
        end if;
        if _results is null then
            _results := array(select towpath.run_function(_begun.db_function, p, true, cardinality(p_process_ids) > 1)
                                from unnest(_begun.payloads) p);
        end if;
        _nos := _begun.nos;
        select array_agg((a->>'process_id')::uuid), array_agg((a->>'attempt_no')::integer) into _ids, _attempts
          from unnest(_begun.answers) a;
        return query select _nos[e.no], e.answer
                       from towpath.fn_process_function_end_many(_ids, _attempts, p_worker, _results) e;
    end loop;
end;
$$;

-- fn_process_function_end_many: fn_process_end_many for processes that are SQL functions: an attempt ends with what its
-- function returned, a value or the envelope of run_function. Called by fn_process_run_many.
--
-- Returns what fn_process_end_many does, with error_text if the function failed; {ok, state: suspended} if it waits.
create or replace function towpath.fn_process_function_end_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_results jsonb[])
    returns table (no integer, answer jsonb)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _nos integer[];
    _ids uuid[];
    _attempts integer[];
    _ends jsonb;
begin
    return query
    select r.no::integer, jsonb_build_object('ok', true, 'process_id', r.process_id, 'state', 'suspended')
      from unnest(p_process_ids, p_results) with ordinality as r(process_id, result, no)
     where jsonb_typeof(r.result) = 'object' and r.result ? 'suspend';
    select array_agg(r.no::integer), array_agg(r.process_id), array_agg(r.attempt_no), jsonb_agg(case
               when (jsonb_typeof(r.result) = 'object' and jsonb_typeof(r.result->'success') = 'boolean') is not true then
                   jsonb_build_object('outcome', 'accepted', 'result', r.result)
               when coalesce(r.result->>'error', '') <> '' then jsonb_build_object('outcome', 'transient', 'detail',
                   jsonb_strip_nulls(jsonb_build_object('message', left(r.result->>'error', 1000),
                                                        'code', r.result->>'sqlstate')))
               when coalesce(r.result->>'validation_failure_message', '') <> '' then jsonb_build_object('outcome', 'permanent',
                   'detail', jsonb_strip_nulls(jsonb_build_object('message',
                       left(r.result->>'validation_failure_message', 1000), 'code', r.result->>'refusal')))
               else jsonb_build_object('outcome', 'accepted', 'result', r.result->'payload') end)
      into _nos, _ids, _attempts, _ends
      from unnest(p_process_ids, p_attempt_nos, p_results) with ordinality as r(process_id, attempt_no, result, no)
     where (jsonb_typeof(r.result) = 'object' and r.result ? 'suspend') is not true;
    if _ids is not null then
        return query
        select _nos[e.no], e.answer || jsonb_build_object('error_text', _ends -> (e.no - 1) #> '{detail,message}')
          from towpath.fn_process_end_many(_ids, _attempts, p_worker, _ends) e;
    end if;
end;
$$;

-- fn_process_function_begin_many: fn_process_begin_many for processes that are SQL functions. Called by fn_process_run_many.
create or replace function towpath.fn_process_function_begin_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text)
    returns table (no integer, answer jsonb)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query select * from towpath._process_take_many(p_process_ids, p_attempt_nos, p_worker, true, 'function');
end;
$$;

grant execute on function towpath.process_step(jsonb, text, jsonb), towpath.process_wait(jsonb, text, interval),
    towpath.process_sleep(jsonb, text, interval), towpath.process_sleep_until(jsonb, text, timestamptz),
    towpath.process_child(jsonb, text, text, text, jsonb) to towpath_producer, worker_service_user, workflow_admin;
grant execute on function towpath.fn_process_run_many(uuid[], integer[], text),
    towpath.fn_process_function_begin_many(uuid[], integer[], text),
    towpath.fn_process_function_end_many(uuid[], integer[], text, jsonb[]) to worker_service_user;
