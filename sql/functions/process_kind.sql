-- Process kinds: how processes of a kind are supervised, and what an attempt of theirs is.

-- _function_problem: why a process kind cannot name this function, or null. What a supervisor or
-- recorder does happens with the owner's rights unless the function has its own, so only
-- functions with definer's rights are called.
create or replace function towpath._function_problem(p_name text) returns text
    language plpgsql stable
as $$
declare
    _function record;
begin
    if p_name !~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$' then
        return format('%s is not a function name such as schema.function', to_jsonb(left(p_name, 200)));
    end if;
    select p.prosecdef as definer, has_schema_privilege('towpath_owner', n.oid, 'usage') as reachable,
           has_function_privilege('towpath_owner', p.oid, 'execute') as granted
      into _function
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = split_part(p_name, '.', 1) and p.proname = split_part(p_name, '.', 2)
       and p.pronargs = 1 and p.proargtypes[0] = 'jsonb'::regtype and p.prorettype = 'jsonb'::regtype
       and p.prokind = 'f' and not p.proretset;
    if not found then
        return format('there is no function %s(jsonb) returns jsonb', p_name);
    elsif not _function.definer then
        return format('%s must be security definer, with a fixed search_path', p_name);
    elsif not _function.reachable then
        return format('towpath_owner calls %s but may not use its schema: grant usage on schema %I to towpath_owner',
                      p_name, split_part(p_name, '.', 1));
    elsif not _function.granted then
        return format('towpath_owner, who calls %s, may not: grant execute on function %s(jsonb) to towpath_owner',
                      p_name, p_name);
    end if;
    return null;
end;
$$;

-- _process_function_problem: why a function cannot be run as a process, or null. Workers call it with their own rights.
create or replace function towpath._process_function_problem(p_name text) returns text
    language plpgsql stable
as $$
declare
    _function record;
    _schema text := split_part(p_name, '.', 1);
begin
    if p_name is null or p_name !~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$' then
        return format('%s is not a function name such as schema.function', coalesce(to_jsonb(left(p_name, 200))::text, 'null'));
    end if;
    select p.oid, has_schema_privilege('worker_service_user', n.oid, 'usage') as reachable,
           exists (select 1 from aclexplode(p.proacl) a
                    where a.grantee = 'worker_service_user'::regrole and a.privilege_type = 'EXECUTE') as granted
      into _function
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = _schema and p.proname = split_part(p_name, '.', 2)
       and p.pronargs = 1 and p.proargtypes[0] = 'jsonb'::regtype and p.prorettype = 'jsonb'::regtype
       and p.prokind = 'f' and not p.proretset;
    if not found then
        return format('there is no function %s(jsonb) returns jsonb', p_name);
    elsif not _function.reachable then
        return format('workers may not use its schema: grant usage on schema %I to worker_service_user', _schema);
    elsif not _function.granted then
        return format('workers may not run it: grant execute on function %s(jsonb) to worker_service_user', p_name);
    end if;
    return null;
end;
$$;

-- fn_process_kind_put: makes or changes a process kind. p_settings has the columns of process_kind;
-- what it does not name stays, or has its default. Running processes follow the change, except
-- for their deadline and max_attempts.
--
-- Answers: {ok, process_kind, created}; invalid {field, detail}, unknown_key, conflict (processes of
-- the kind are supervised from elsewhere).
create or replace function towpath.fn_process_kind_put(p_process_kind text, p_settings jsonb, p_actor text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._filter_refusal(p_settings, array['supervisor', 'recorder', 'task_kind', 'db_function',
        'before_handler', 'success_handler', 'error_handler', 'ref_field', 'max_attempts', 'lease_seconds',
        'pickup_seconds', 'deadline_seconds', 'check_seconds', 'backoff_seconds', 'on_uncertain', 'runs_as'], 'settings');
    _runs_as text := p_settings->>'runs_as';
    _old towpath.process_kind;
    _new towpath.process_kind;
    _field text;
    _problem text;
begin
    _refusal := coalesce(_refusal, towpath._name_refusal(p_process_kind, 'process_kind'),
                         towpath._name_or_null_refusal(p_actor, 'actor'));
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _old from towpath.process_kind k where k.process_kind = p_process_kind for update;
    if _runs_as <> _old.runs_as then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_kind', p_process_kind,
            'detail', format('the kind runs as a %s; choose another name for one that runs as a %s', _old.runs_as, _runs_as));
    end if;
    _runs_as := coalesce(_old.runs_as, _runs_as, 'task');
    _new := jsonb_populate_record(_old, jsonb_build_object('ref_field', coalesce(_old.ref_field, 'ref'),
        'max_attempts', coalesce(_old.max_attempts, case when _runs_as = 'handler' and p_settings->>'task_kind' = 'email' then 2
                                                        else 5 end), 'lease_seconds', coalesce(_old.lease_seconds, 120),
        'pickup_seconds', coalesce(_old.pickup_seconds, 600),
        -- Steps may wait for days.
        'deadline_seconds', coalesce(_old.deadline_seconds, case _runs_as when 'task' then 86400 else 2592000 end),
        'check_seconds', coalesce(_old.check_seconds, 30), 'backoff_seconds', coalesce(_old.backoff_seconds, 10),
        'on_uncertain', coalesce(_old.on_uncertain, case when _runs_as = 'task' or p_settings->>'task_kind' = 'sms' then 'hold'
                                                         else 'retry' end),
        'runs_as', _runs_as)
        || case when _runs_as = 'task' then '{}' else jsonb_build_object('supervisor', 'towpath.process_supervisor',
               'task_kind', coalesce(_old.task_kind, case _runs_as when 'function' then 'process' else p_process_kind end)) end
        || coalesce(p_settings, '{}'));
    _problem := case when _runs_as = 'function' then towpath._process_function_problem(_new.db_function) end;
    if _problem is not null then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'function', 'detail', _problem);
    end if;
    for _field, _problem in
        select f.field, towpath._function_problem(f.name)
          from (values ('supervisor', _new.supervisor), ('recorder', _new.recorder)) f (field, name)
         where f.name is not null
    loop
        if _problem is not null then
            return jsonb_build_object('ok', false, 'error', 'invalid', 'field', _field, 'detail', _problem);
        end if;
    end loop;
    if (_old.supervisor is null) <> (_new.supervisor is null) and exists (
        select 1 from towpath.process p where p.process_kind = p_process_kind and p.finished_at is null) then
        return jsonb_build_object('ok', false, 'error', 'conflict',
            'detail', 'unfinished processes of this kind use the other kind of supervision; wait until they end');
    end if;
    insert into towpath.process_kind as k
    values (p_process_kind, _new.runs_as, _new.supervisor, _new.recorder, _new.task_kind, _new.db_function, _new.before_handler,
            _new.success_handler, _new.error_handler, _new.ref_field, _new.max_attempts, _new.lease_seconds,
            _new.pickup_seconds, _new.deadline_seconds, _new.check_seconds, _new.backoff_seconds, _new.on_uncertain,
            coalesce(p_actor, session_user), towpath.fn_now())
    on conflict (process_kind) do update
       set (runs_as, supervisor, recorder, task_kind, db_function, before_handler, success_handler, error_handler, ref_field,
            max_attempts, lease_seconds, pickup_seconds, deadline_seconds, check_seconds, backoff_seconds, on_uncertain,
            changed_by, changed_at)
         = (excluded.runs_as, excluded.supervisor, excluded.recorder, excluded.task_kind, excluded.db_function, excluded.before_handler,
            excluded.success_handler, excluded.error_handler, excluded.ref_field, excluded.max_attempts,
            excluded.lease_seconds, excluded.pickup_seconds, excluded.deadline_seconds, excluded.check_seconds,
            excluded.backoff_seconds, excluded.on_uncertain, excluded.changed_by, excluded.changed_at);
    return jsonb_build_object('ok', true, 'process_kind', p_process_kind, 'created', _old.process_kind is null);
exception when check_violation or not_null_violation or data_exception then
    get stacked diagnostics _field = constraint_name, _problem = message_text;
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'settings', 'detail', _problem);
end;
$$;

-- process_kind: registers a process kind, once or again: that is all a kind needs (P16). Its attempts run an SQL function,
-- or else a handler: of a worker's own task kind, the kind itself if none is named; email and sms send the input as a
-- message. What is null has its default, or stays.
--
--     select towpath.process_kind('shop.order', function => 'shop.order');
--
-- Raises TP002, TP005, TP007.
create or replace function towpath.process_kind(
    kind             text,
    function         text    default null,
    task_kind        text    default null,
    max_attempts     integer default null,
    lease_seconds    integer default null,
    deadline_seconds integer default null,
    backoff_seconds  integer default null,
    check_seconds    integer default null,
    on_uncertain     text    default null,
    actor            text    default null) returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_process_kind_put(kind, jsonb_strip_nulls(jsonb_build_object(
        'runs_as', case when function is null then 'handler' else 'function' end, 'db_function', function,
        'task_kind', task_kind, 'max_attempts', max_attempts, 'lease_seconds', lease_seconds,
        'deadline_seconds', deadline_seconds, 'backoff_seconds', backoff_seconds, 'check_seconds', check_seconds,
        'on_uncertain', on_uncertain)), actor);
begin
    if _answer -> 'ok' <> 'true' then
        perform towpath._raise_refusal(_answer, format('process kind %s', kind));
    end if;
end;
$$;

-- fn_process_kind_list: the kinds.
create or replace function towpath.fn_process_kind_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'process_kinds',
        coalesce(jsonb_agg(to_jsonb(k) order by k.process_kind), '[]')) from towpath.process_kind k
$$;

grant execute on function towpath.fn_process_kind_put(text, jsonb, text),
    towpath.process_kind(text, text, text, integer, integer, integer, integer, integer, text, text) to workflow_admin;
grant execute on function towpath.fn_process_kind_list() to towpath_observer, workflow_admin;
