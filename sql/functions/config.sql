-- Config: the switches and numbers that operators change while everything runs.
--
-- Reading never fails. A gate is open only while its value is exactly 'true'; missing,
-- 'TRUE', ' true ', 'yes' or an empty string are closed (Q06). A number that cannot be
-- read, or lies outside its bounds, counts as its default.

-- _gate_open: the one rule that decides whether a gate is open. This and its neighbours are
-- plpgsql because its plans are cached: as SQL functions they are planned at every call.
-- The hottest functions (claim, ack, enqueue) read the value themselves, by the same rule.
create or replace function towpath._gate_open(p_gate text) returns boolean
    language plpgsql stable
as $$
begin
    return coalesce((select c.value = 'true' from towpath.config c
                      where c.key = p_gate and c.kind = 'gate'), false);
end;
$$;

-- _gate_refusal: null while the gate is open, otherwise the answer every function
-- behind it gives. Callers return it before they write anything.
create or replace function towpath._gate_refusal(p_gate text) returns jsonb
    language plpgsql stable
as $$
begin
    if not towpath._gate_open(p_gate) then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', p_gate);
    end if;
    return null;
end;
$$;

-- _config_value_error: why a value does not fit a key, or null. Spelled out so that the
-- answer can tell an operator what would have been right.
create or replace function towpath._config_value_error(p_config towpath.config, p_value text) returns text
    language plpgsql immutable
as $$
declare
    _number numeric;
begin
    if p_config.kind = 'gate' then
        return case when p_value is null or p_value not in ('true', 'false')
            then 'must be true or false' end;
    end if;
    if p_value is null or p_value !~ '^[0-9]{1,15}(\.[0-9]{1,6})?$' then
        return 'must be a number in plain digits';
    end if;
    _number := p_value::numeric;
    if _number < p_config.min_value or _number > p_config.max_value then
        return format('must be between %s and %s', p_config.min_value, p_config.max_value);
    end if;
    return null;
end;
$$;

-- _config_number: a number that is always usable, whatever the row says.
create or replace function towpath._config_number(p_key text) returns numeric
    language plpgsql stable
as $$
declare
    _config towpath.config;
begin
    select * into _config from towpath.config c where c.key = p_key and c.kind = 'number';
    if towpath._config_value_error(_config, _config.value) is null then
        return _config.value::numeric;
    end if;
    return _config.default_value::numeric;
end;
$$;

-- fn_config_list: every key with its value, whether it is readable, who changed it and why.
create or replace function towpath.fn_config_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'config', coalesce(jsonb_agg(
        jsonb_build_object(
            'key', c.key, 'kind', c.kind, 'value', c.value, 'default_value', c.default_value,
            'effective_value', case c.kind when 'gate' then (c.value = 'true')::text
                                           else towpath._config_number(c.key)::text end,
            'value_error', towpath._config_value_error(c, c.value),
            'description', c.description,
            'changed_at', c.changed_at, 'changed_by', c.changed_by, 'reason', c.reason)
        order by c.key), '[]'))
      from towpath.config c
$$;

-- fn_config_set: changes one key and records who and why. Setting the value it already
-- has changes nothing and answers changed: false, so that scripts can repeat themselves.
--
-- Answers: unknown_key, invalid_value, invalid (blank actor or reason).
create or replace function towpath.fn_config_set(
    p_key text, p_value text, p_actor text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _config towpath.config;
    _problem text;
    _refusal jsonb;
begin
    if coalesce(btrim(p_actor), '') = '' or coalesce(btrim(p_reason), '') = '' then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'actor and reason are required');
    end if;
    _refusal := coalesce(towpath._name_refusal(p_actor, 'actor'), towpath._note_refusal(p_reason, 'reason'));
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _config from towpath.config c where c.key = p_key for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'unknown_key', 'key', p_key);
    end if;
    _problem := towpath._config_value_error(_config, p_value);
    if _problem is not null then
        return jsonb_build_object('ok', false, 'error', 'invalid_value', 'key', p_key, 'detail', _problem);
    end if;
    if _config.value = p_value then
        return jsonb_build_object('ok', true, 'key', p_key, 'value', p_value, 'changed', false);
    end if;
    update towpath.config c
       set value = p_value, changed_by = p_actor, reason = p_reason,
           -- The trigger tells this apart from a direct update by the moved timestamp.
           changed_at = greatest(towpath.fn_now(), c.changed_at + interval '1 microsecond')
     where c.key = p_key;
    return jsonb_build_object('ok', true, 'key', p_key, 'value', p_value,
        'old_value', _config.value, 'changed', true);
end;
$$;

-- fn_config_history: the changes of one key, or of all, newest first.
create or replace function towpath.fn_config_history(p_key text default null, p_limit integer default 100)
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'changes', coalesce(jsonb_agg(to_jsonb(h) order by h.change_id desc), '[]'))
      from (select * from towpath.config_change c
             where p_key is null or c.key = p_key
             order by c.change_id desc
             limit least(greatest(coalesce(p_limit, 100), 1), 1000)) h
$$;

-- fn_gate_set: opens or closes one gate; the same as fn_config_set but refuses keys
-- that are not gates.
create or replace function towpath.fn_gate_set(
    p_gate text, p_open boolean, p_actor text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select 1 from towpath.config c where c.key = p_gate and c.kind = 'gate') then
        return jsonb_build_object('ok', false, 'error', 'unknown_key', 'key', p_gate,
            'detail', 'there is no such gate');
    end if;
    return towpath.fn_config_set(p_gate, coalesce(p_open, false)::text, p_actor, p_reason);
end;
$$;

grant execute on function towpath.fn_config_list() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_config_history(text, integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_config_set(text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_gate_set(text, boolean, text, text) to workflow_admin;
-- Everybody may ask what time it is: views and defaults call it in the caller's name.
grant execute on function towpath.fn_now()
    to workflow_admin, towpath_producer, worker_service_user, towpath_observer, towpath_router, towpath_maintainer,
       towpath_consumer;
