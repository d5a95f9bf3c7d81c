-- What the holder of a token may do with processes: start, signal, read and resolve those of kinds it may enqueue.

-- _executor_token_process_refusal: why a token may not touch processes of a kind, or null. It may if it may enqueue
-- jobs of the kind, or of the task kind of its attempts; to read, it is enough that it may read those jobs.
create or replace function towpath._executor_token_process_refusal(
    p_token towpath.executor_token, p_process_kind text, p_read boolean) returns jsonb
    language plpgsql stable
as $$
declare
    _refusal jsonb := towpath._executor_token_refusal(p_token);
    _kind towpath.process_kind;
    _executor text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _kind from towpath.process_kind k where k.process_kind = p_process_kind;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_kind', p_process_kind,
            'detail', 'there is no such process kind; register it with towpath.process_kind');
    end if;
    _executor := towpath._process_executor(_kind);
    if exists (select 1 from unnest(array[_kind.task_kind, p_process_kind]) k(job_kind),
                             unnest(array[_executor, coalesce(_executor, 'PG_worker')]) e(executor)
                where towpath._executor_token_may_enqueue(p_token, k.job_kind, e.executor)
                   or p_read and towpath._executor_token_may_read(p_token, k.job_kind, e.executor)) then
        return null;
    end if;
    return jsonb_build_object('ok', false, 'error', 'not_authorised', 'process_kind', p_process_kind, 'detail',
        format('this token covers no processes of kind %s: it needs the right to enqueue jobs of that kind', p_process_kind));
end;
$$;

-- fn_executor_token_process_start: fn_process_start_many for the holder of a token.
--
-- Answers: {ok, process_ids, duplicates}; the refusals of fn_process_start_many, and not_authorised for the token.
create or replace function towpath.fn_executor_token_process_start(
    p_token_hash bytea, p_process_kind text, p_processes jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_process_refusal(_token, p_process_kind, false);
    return coalesce(_refusal, towpath.fn_process_start_many(p_process_kind, p_processes,
                                                            towpath._executor_token_actor(_token)));
end;
$$;

-- fn_executor_token_process_signal: fn_process_signal for the holder of a token.
--
-- Answers: {ok, process_id, recorded, state}; the refusals of fn_process_signal, and not_authorised for the token.
create or replace function towpath.fn_executor_token_process_signal(
    p_token_hash bytea, p_process_kind text, p_ref text, p_process_id uuid, p_name text, p_payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _kind text := coalesce((select p.process_kind from towpath.process p where p.process_id = p_process_id), p_process_kind);
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_process_refusal(_token, _kind, false);
    return coalesce(_refusal, towpath.fn_process_signal(p_process_kind, p_ref, p_name, p_payload,
                                                        towpath._executor_token_actor(_token), p_process_id));
end;
$$;

-- fn_executor_token_process_state: where a process stands and what it came to, for the holder of a token.
--
-- Answers: {ok, process_id, kind, ref, state, input, result, waits_for, attempts, started_at, finished_at, error};
-- not_found, not_authorised.
create or replace function towpath.fn_executor_token_process_state(p_token_hash bytea, p_process_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _process towpath.process;
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    select * into _process from towpath.process p where p.process_id = p_process_id;
    _refusal := case when _process.process_id is null then coalesce(towpath._executor_token_refusal(_token),
            jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id,
                               'detail', format('there is no process %s', p_process_id)))
        else towpath._executor_token_process_refusal(_token, _process.process_kind, true) end;
    if _refusal is not null then
        return _refusal;
    end if;
    return jsonb_build_object('ok', true, 'process_id', p_process_id, 'kind', _process.process_kind, 'ref', _process.ref,
        'state', _process.state, 'input', _process.input, 'waits_for', _process.waits_for,
        'started_at', _process.started_at, 'finished_at', _process.finished_at,
        'attempts', (select count(*) from towpath.process_attempt a
                      where a.process_id = p_process_id and a.begun_at is not null and a.outcome is distinct from 'suspended'),
        'result', (select f.value from towpath.process_fact f where f.process_id = p_process_id
                      and f.fact in ('succeeded', 'gave_up', 'cancelled', 'invalid')),
        'error', (select coalesce(f.detail->>'message', f.detail->>'why') from towpath.process_fact f
                   where f.process_id = p_process_id and f.fact in ('failed', 'uncertain', 'gave_up', 'invalid', 'held')
                   order by f.fact_no desc limit 1));
end;
$$;

-- fn_executor_token_process_resolve: fn_process_resolve for the holder of a token.
--
-- Answers: {ok, process_id, state}; the refusals of fn_process_resolve, and not_authorised for the token.
create or replace function towpath.fn_executor_token_process_resolve(
    p_token_hash bytea, p_process_id uuid, p_resolution text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := coalesce(towpath._executor_token_refusal(_token), case
        when not exists (select 1 from towpath.process p where p.process_id = p_process_id) then
            jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id,
                               'detail', format('there is no process %s', p_process_id)) end,
        towpath._executor_token_process_refusal(_token,
            (select p.process_kind from towpath.process p where p.process_id = p_process_id), false));
    return coalesce(_refusal, towpath.fn_process_resolve(p_process_id, p_resolution,
        towpath._executor_token_actor(_token), p_reason));
end;
$$;

-- fn_process_ended: which of these processes have ended. At most 1,000.
--
-- Answers: {ok, ended: [process_id]}; invalid.
create or replace function towpath.fn_process_ended(p_process_ids uuid[]) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
begin
    if coalesce(cardinality(p_process_ids), 0) > 1000 then
        return towpath._invalid('process_ids', 'must be at most 1000 ids');
    end if;
    return jsonb_build_object('ok', true, 'ended', (
        select coalesce(jsonb_agg(p.process_id), '[]') from towpath.process p
         where p.process_id = any (p_process_ids) and p.finished_at is not null));
end;
$$;

grant execute on function towpath.fn_executor_token_process_start(bytea, text, jsonb),
    towpath.fn_executor_token_process_signal(bytea, text, text, uuid, text, jsonb),
    towpath.fn_executor_token_process_state(bytea, uuid),
    towpath.fn_executor_token_process_resolve(bytea, uuid, text, text),
    towpath.fn_process_ended(uuid[]) to workflow_admin;
