-- Task errors: what went wrong, where, and about what.

-- _task_error: records an error from inside the database. Never fails for what it is given.
create or replace function towpath._task_error(
    p_kind text, p_message text, p_job_id uuid, p_job_attempt integer, p_task_type text, p_function_name text,
    p_process_id uuid, p_attempt_no integer, p_context jsonb) returns bigint
    language plpgsql
as $$
declare
    _context jsonb := case when jsonb_typeof(p_context) = 'object' then p_context else '{}' end;
    _id bigint;
begin
    if not towpath._payload_safe(_context) or not towpath._payload_small(_context) then
        _context := jsonb_build_object('dropped', 'the context was too large or contained a forbidden key');
    end if;
    insert into towpath.task_error (kind, message, job_id, job_attempt, task_type, function_name, process_id,
                                    attempt_no, context)
    values (p_kind, left(towpath._error_text(p_message), 4000), p_job_id, p_job_attempt,
            left(p_task_type, 200), left(p_function_name, 200), p_process_id, p_attempt_no, _context)
    returning task_error_id into _id;
    return _id;
end;
$$;

-- fn_task_error_record: a worker records what went wrong (P05). process_id and attempt_no are
-- read from the context, where a payload has them. Long texts are cut, what looks like a
-- credential is masked, and a context with a denied key is dropped: an error is never lost for
-- the way it is told.
--
-- Answers: {ok, task_error_id}; invalid (unknown kind).
create or replace function towpath.fn_task_error_record(
    p_kind text, p_message text, p_job_id uuid default null, p_job_attempt integer default null,
    p_task_type text default null, p_function_name text default null, p_context jsonb default '{}') returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _process text := p_context->>'process_id';
    _attempt text := p_context->>'attempt_no';
begin
    if p_kind is null or p_kind not in ('validation', 'operational', 'provider', 'refused', 'supervisor') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'kind',
            'detail', 'must be one of validation, operational, provider, refused, supervisor');
    end if;
    return jsonb_build_object('ok', true, 'task_error_id', towpath._task_error(
        p_kind, p_message, p_job_id, p_job_attempt, p_task_type, p_function_name,
        case when _process ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then _process::uuid end,
        case when _attempt ~ '^[0-9]{1,9}$' then _attempt::integer end, p_context));
end;
$$;

-- fn_task_error_list: errors by filter, newest first, a page at a time. The filter takes kind,
-- job_id, process_id, task_type, function_name.
--
-- Answers: {ok, task_errors: [...], cursor}; invalid, unknown_key.
create or replace function towpath.fn_task_error_list(
    p_filter jsonb default '{}', p_limit integer default 50, p_cursor bigint default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 1000);
    _refusal jsonb := towpath._filter_refusal(p_filter,
        array['kind', 'job_id', 'process_id', 'task_type', 'function_name']);
    _rows jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select coalesce(jsonb_agg(to_jsonb(e) order by e.task_error_id desc), '[]') into _rows
      from (select * from towpath.task_error e
             where (p_cursor is null or e.task_error_id < p_cursor)
               and (p_filter->>'kind' is null or e.kind = p_filter->>'kind')
               and (p_filter->>'job_id' is null or e.job_id = (p_filter->>'job_id')::uuid)
               and (p_filter->>'process_id' is null or e.process_id = (p_filter->>'process_id')::uuid)
               and (p_filter->>'task_type' is null or e.task_type = p_filter->>'task_type')
               and (p_filter->>'function_name' is null or e.function_name = p_filter->>'function_name')
             order by e.task_error_id desc limit _limit) e;
    return jsonb_build_object('ok', true, 'task_errors', _rows,
        'cursor', case when jsonb_array_length(_rows) = _limit then _rows->-1->'task_error_id' end);
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', sqlerrm);
end;
$$;

grant execute on function towpath.fn_task_error_record(text, text, uuid, integer, text, text, jsonb) to worker_service_user;
grant execute on function towpath.fn_task_error_list(jsonb, integer, bigint) to towpath_observer, workflow_admin;
