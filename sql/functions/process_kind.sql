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
        'pickup_seconds', 'deadline_seconds', 'check_seconds', 'backoff_seconds', 'on_uncertain'], 'settings');
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
    _new := jsonb_populate_record(_old, jsonb_build_object('ref_field', coalesce(_old.ref_field, 'ref'),
        'max_attempts', coalesce(_old.max_attempts, 5), 'lease_seconds', coalesce(_old.lease_seconds, 120),
        'pickup_seconds', coalesce(_old.pickup_seconds, 600), 'deadline_seconds', coalesce(_old.deadline_seconds, 86400),
        'check_seconds', coalesce(_old.check_seconds, 30), 'backoff_seconds', coalesce(_old.backoff_seconds, 10),
        'on_uncertain', coalesce(_old.on_uncertain, 'hold')) || coalesce(p_settings, '{}'));
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
    values (p_process_kind, _new.supervisor, _new.recorder, _new.task_kind, _new.db_function, _new.before_handler,
            _new.success_handler, _new.error_handler, _new.ref_field, _new.max_attempts, _new.lease_seconds,
            _new.pickup_seconds, _new.deadline_seconds, _new.check_seconds, _new.backoff_seconds, _new.on_uncertain,
            coalesce(p_actor, session_user), towpath.fn_now())
    on conflict (process_kind) do update
       set (supervisor, recorder, task_kind, db_function, before_handler, success_handler, error_handler, ref_field,
            max_attempts, lease_seconds, pickup_seconds, deadline_seconds, check_seconds, backoff_seconds, on_uncertain,
            changed_by, changed_at)
         = (excluded.supervisor, excluded.recorder, excluded.task_kind, excluded.db_function, excluded.before_handler,
            excluded.success_handler, excluded.error_handler, excluded.ref_field, excluded.max_attempts,
            excluded.lease_seconds, excluded.pickup_seconds, excluded.deadline_seconds, excluded.check_seconds,
            excluded.backoff_seconds, excluded.on_uncertain, excluded.changed_by, excluded.changed_at);
    return jsonb_build_object('ok', true, 'process_kind', p_process_kind, 'created', _old.process_kind is null);
exception when check_violation or not_null_violation or data_exception then
    get stacked diagnostics _field = constraint_name, _problem = message_text;
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'settings', 'detail', _problem);
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

grant execute on function towpath.fn_process_kind_put(text, jsonb, text) to workflow_admin;
grant execute on function towpath.fn_process_kind_list() to towpath_observer, workflow_admin;
