-- The function runner: the one door through which a worker calls business functions by name.

-- function_refusal: why a worker does not call a function, as the envelope of run_function, or null. With the caller's rights.
create or replace function towpath.function_refusal(function_name text) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    _schema text := split_part(function_name, '.', 1);
    _function record;
    _word text;
    _why text;
begin
    if function_name is null or function_name !~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$' then
        _word := 'invalid';
        _why := format('%s is not a function name; use schema.function in lower case, without arguments',
                       coalesce(to_jsonb(left(function_name, 200))::text, 'null'));
    else
        select p.oid, p.oid::regprocedure::text as signature,
               p.prokind = 'f' and not p.proretset and p.prorettype = 'jsonb'::regtype as fits,
               exists (select 1 from aclexplode(p.proacl) a
                        where a.grantee = 'worker_service_user'::regrole and a.privilege_type = 'EXECUTE') as granted
          into _function
          from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = _schema and p.proname = split_part(function_name, '.', 2)
           and p.pronargs = 1 and p.proargtypes[0] = 'jsonb'::regtype and p.provariadic = 0;
        if not found then
            _word := 'not_found';
            _why := format('there is no function %s(jsonb) returns jsonb', function_name);
        elsif not _function.fits then
            _word := 'not_found';
            _why := format('%s does not return jsonb; a task function is %s(jsonb) returns jsonb',
                           _function.signature, function_name);
        elsif not _function.granted then
            _word := 'not_authorised';
            _why := format('%s is not granted to worker_service_user; to let workers run it: '
                           'grant execute on function %s to worker_service_user',
                           _function.signature, _function.signature);
        elsif not has_schema_privilege(current_user, _schema, 'usage') then
            _word := 'not_authorised';
            _why := format('%s may not use the schema %s: grant usage on schema %I to %I', current_user, _schema, _schema,
                case when pg_has_role('worker_service_user', 'member') then 'worker_service_user' else current_user end);
        elsif not has_function_privilege(current_user, _function.oid, 'execute') then
            -- Supervisors are called by the owner, too.
            _word := 'not_authorised';
            _why := format('%s may not execute %s: grant execute on function %s to %I',
                           current_user, _function.signature, _function.signature, current_user);
        end if;
    end if;
    return case when _word is not null then jsonb_build_object('success', false, 'error', '',
        'validation_failure_message', _why, 'payload', null, 'refusal', _word) end;
end;
$$;

-- run_function: calls schema.function with a payload and answers the result envelope (P02, P03).
--
-- Security invoker: PostgreSQL itself checks that the caller may execute the target. On top of
-- that, what can be called is closed: a plain name, a function (jsonb) returns jsonb, granted to
-- worker_service_user by name. What PUBLIC may execute does not count, or every function left
-- open by mistake would be a task.
--
-- Answers: {success, error, validation_failure_message, payload}, always all four. A refusal is a
-- validation failure that names the statement to run, with the word in refusal: invalid,
-- not_found, not_authorised. If the target raises, its writes are undone, error has the message
-- and sqlstate the code; a cancelled statement is not caught.
--
-- Called by fn_process_run_many, as_process is set: what the target returns is the payload unless it is an envelope or
-- {"suspend": …}. One of several calls in a transaction, raise_passing is set: an error that will pass, such as a
-- deadlock, is raised, so that the caller can make each call alone.
create or replace function towpath.run_function(
    function_name text, payload jsonb, as_process boolean default false, raise_passing boolean default false) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(towpath.function_refusal(function_name),
        case when jsonb_typeof(payload) is distinct from 'object' then jsonb_build_object('success', false, 'error', '',
            'validation_failure_message', format('the payload of %s must be a JSON object', function_name),
            'payload', null, 'refusal', 'invalid') end);
    _result jsonb;
    _state text;
    _why text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    begin
        execute format('select %I.%I($1)', split_part(function_name, '.', 1), split_part(function_name, '.', 2))
           into _result using payload;
    exception when others then
        get stacked diagnostics _state = returned_sqlstate, _why = message_text;
        if raise_passing and left(_state, 2) in ('40', '53', '55', '57', '58', '08') then
            raise;
        end if;
        return jsonb_build_object('success', false, 'error', left(format('%s: %s', function_name, _why), 2000),
                                  'validation_failure_message', '', 'payload', null, 'sqlstate', _state);
    end;
    if as_process and not (_result ? 'suspend' and jsonb_typeof(_result) = 'object')
       and (jsonb_typeof(_result) = 'object' and jsonb_typeof(_result->'success') = 'boolean') is not true then
        _result := jsonb_build_object('success', true, 'payload', _result);
    elsif as_process and _result ? 'suspend' then
        _result := _result || '{"success": true}';
    end if;
    if _result is null or jsonb_typeof(_result) <> 'object' or jsonb_typeof(_result->'success') is distinct from 'boolean' then
        return jsonb_build_object('success', false, 'validation_failure_message', '', 'payload', null,
            'error', format('%s did not return a result envelope: an object with success is required', function_name));
    end if;
    return jsonb_build_object('error', '', 'validation_failure_message', '', 'payload', null)
        || jsonb_strip_nulls(_result - 'payload') || jsonb_build_object('payload', _result->'payload');
end;
$$;

grant execute on function towpath.run_function(text, jsonb, boolean, boolean), towpath.function_refusal(text)
    to worker_service_user;

-- _envelope_ok: the envelope of a call that went well.
create or replace function towpath._envelope_ok(p_payload jsonb default '{}') returns jsonb
    language plpgsql immutable
as $$
begin
    return jsonb_build_object('success', true, 'error', '', 'validation_failure_message', '', 'payload', p_payload);
end;
$$;

-- _envelope_invalid: the envelope of a call that must not be repeated, and why.
create or replace function towpath._envelope_invalid(p_why text) returns jsonb
    language plpgsql immutable
as $$
begin
    return jsonb_build_object('success', false, 'error', '', 'validation_failure_message', p_why, 'payload', null);
end;
$$;
