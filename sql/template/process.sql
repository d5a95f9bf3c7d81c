-- {{schema}}.{{name}}: the process that sends one message, from its attempts to its last fact (P06).

-- has_{{name}}_task_succeeded: whether it succeeded.
create or replace function {{schema}}.has_{{name}}_task_succeeded({{name}}_task_id bigint) returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select 1 from {{schema}}.{{name}}_task_succeeded f where f.{{name}}_task_id = $1);
end;
$$;

-- is_{{name}}_task_over: whether one of the four terminal facts exists.
create or replace function {{schema}}.is_{{name}}_task_over({{name}}_task_id bigint) returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select 1 from {{schema}}.{{name}}_task_succeeded f where f.{{name}}_task_id = $1)
        or exists (select 1 from {{schema}}.{{name}}_task_gave_up f where f.{{name}}_task_id = $1)
        or exists (select 1 from {{schema}}.{{name}}_task_cancelled f where f.{{name}}_task_id = $1)
        or exists (select 1 from {{schema}}.{{name}}_task_invalid f where f.{{name}}_task_id = $1);
end;
$$;

-- count_{{name}}_task_scheduled: attempts so far.
create or replace function {{schema}}.count_{{name}}_task_scheduled({{name}}_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from {{schema}}.{{name}}_task_scheduled f where f.{{name}}_task_id = $1);
end;
$$;

-- count_{{name}}_task_failures: attempts that failed or are uncertain.
create or replace function {{schema}}.count_{{name}}_task_failures({{name}}_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from {{schema}}.{{name}}_task_failed f where f.{{name}}_task_id = $1);
end;
$$;

-- count_{{name}}_task_lost: attempts whose worker did not report back.
create or replace function {{schema}}.count_{{name}}_task_lost({{name}}_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from {{schema}}.{{name}}_task_lost f where f.{{name}}_task_id = $1);
end;
$$;

-- record_{{name}}_fact: called by the process with every fact, in its transaction. If it raises, the fact is undone.
create or replace function {{schema}}.record_{{name}}_fact(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _id bigint := payload->>'{{name}}_task_id';
    _attempt integer := payload->>'attempt_no';
    _at timestamptz := payload->>'recorded_at';
    _detail jsonb := payload->'detail';
begin
    case payload->>'fact'
        when 'scheduled' then
            insert into {{schema}}.{{name}}_task_scheduled values (_id, _attempt, (_detail->>'job_id')::uuid, _at);
        when 'succeeded' then
            insert into {{schema}}.{{name}}_task_succeeded
            values (_id, _attempt, _detail->>'transport', _detail->>'provider_id', _at);
        when 'failed', 'uncertain' then
            insert into {{schema}}.{{name}}_task_failed
            values (_id, _attempt, _detail->>'outcome', _detail->>'transport', _detail->>'code', _detail->>'message',
                    (_detail->>'retry_after_seconds')::double precision, _at);
        when 'lost' then
            insert into {{schema}}.{{name}}_task_lost values (_id, _attempt, (_detail->>'begun')::boolean, _at);
        when 'gave_up' then
            insert into {{schema}}.{{name}}_task_gave_up values (_id, _detail->>'why', _at);
        when 'cancelled' then
            insert into {{schema}}.{{name}}_task_cancelled values (_id, payload->>'actor', _detail->>'reason', _at);
        when 'invalid' then
            insert into {{schema}}.{{name}}_task_invalid values (_id, _detail->>'why', _at);
        else
            null; -- started, begun, held, resolved and late are kept by towpath.process_fact
    end case;
    return towpath._envelope_ok();
end;
$$;

-- 2. Handlers --------------------------------------------------------------------------------------

-- get_{{handler}}_payload: the before handler. Begins the attempt, once, and answers what the work needs, with a key
-- that is the same at every attempt. A refusal means: do nothing. Whatever makes the work pointless for good ends
-- the process as invalid.
create or replace function {{schema}}.get_{{handler}}_payload(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _id bigint := towpath._number_read(payload->>'{{name}}_task_id');
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _id::text);
    _now timestamptz := towpath.fn_now();
    _worker jsonb := coalesce(payload->'worker', '{}');
    _attempt_no integer := towpath._process_attempt_no(_process, payload);
    _message comms.{{task_kind}}_message;
    _frozen jsonb;
    _problem text;
    _begun jsonb;
begin
    _begun := towpath._process_attempt_begin(_process, _attempt_no, coalesce(_worker->>'name', _worker->>'transport', 'worker'),
                                             coalesce(_worker->'key_honoured' = 'true', false), _now);
    if not (_begun->>'ok')::boolean then
        return towpath._process_envelope(_begun);
    end if;
    -- What the first attempt hands to the provider, every attempt does.
    select f.provider_payload into _frozen from comms.{{name}}_task_frozen f where f.{{name}}_task_id = _id;
    if not found then
        select m.* into _message
          from comms.{{name}}_task t join comms.{{task_kind}}_message m on m.message_id = t.message_id
         where t.{{name}}_task_id = _id;
        _problem := comms._{{task_kind}}_problem(_message);
    end if;
    if _problem is not null then
        perform towpath._process_invalid(_process, _attempt_no, _problem, _now);
        return towpath._envelope_invalid(format('{{name}}_task %s: %s', _id, _problem));
    end if;
    if _frozen is null then
        _frozen := comms._{{task_kind}}_content(_message, _worker->>'from');
        insert into comms.{{name}}_task_frozen values (_id, _frozen, _now);
    end if;
    return towpath._envelope_ok(_frozen || jsonb_build_object('process_id', _process.process_id,
        'attempt_no', _attempt_no, 'idempotency_key', _process.process_id, 'lease_until', _begun->'lease_until'));
end;
$$;

-- record_{{handler}}_success: {original_payload, worker_payload}; ends the process as succeeded.
create or replace function {{schema}}.record_{{handler}}_success(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _original jsonb := payload->'original_payload';
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _original->>'{{name}}_task_id');
begin
    return towpath._process_envelope(towpath._process_attempt_end(_process,
        towpath._process_attempt_no(_process, _original), 'accepted',
        jsonb_strip_nulls(jsonb_build_object(
            'transport', left(payload #>> '{worker_payload,transport}', 100),
            'provider_id', left(payload #>> '{worker_payload,provider_id}', 500),
            'response', left(towpath._text_masked(payload #>> '{worker_payload,response}'), 500))), towpath.fn_now()));
end;
$$;

-- record_{{handler}}_failure: {original_payload, error}; error is a text, or {outcome, message, code,
-- retry_after_seconds, key_honoured} with the outcome transient, permanent or uncertain.
create or replace function {{schema}}.record_{{handler}}_failure(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _original jsonb := payload->'original_payload';
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _original->>'{{name}}_task_id');
    _failure record := towpath._process_failure(payload->'error');
begin
    return towpath._process_envelope(towpath._process_attempt_end(_process,
        towpath._process_attempt_no(_process, _original), _failure.outcome, _failure.detail, towpath.fn_now()));
end;
$$;

-- 3. Supervisor ------------------------------------------------------------------------------------

-- {{name}}_supervisor: locks the process, reads the facts, decides. Safe to run many at once.
create or replace function {{schema}}.{{name}}_supervisor(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _id bigint := towpath._number_read(payload->>'{{name}}_task_id');
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _id::text);
    _now timestamptz := towpath.fn_now();
    _scheduled integer;
    _ended integer;
begin
    if _process.process_id is null then
        return towpath._envelope_invalid(format('there is no {{name}}_task %s', coalesce(_id::text, 'null')));
    end if;
    perform towpath._process_expire(_process, _now);

    -- Input: the facts.
    _scheduled := {{schema}}.count_{{name}}_task_scheduled(_id);
    _ended := {{schema}}.count_{{name}}_task_failures(_id) + {{schema}}.count_{{name}}_task_lost(_id);

    -- Compute and output: over or held, waiting for an attempt, or the retry policy that processes share.
    if {{schema}}.has_{{name}}_task_succeeded(_id) or _process.state <> 'open' then
        return towpath._envelope_ok(jsonb_build_object('state', _process.state, 'did', 'nothing'));
    elsif _scheduled > _ended then
        return towpath._envelope_ok(jsonb_build_object('state', _process.state, 'did', 'wait', 'attempt_no', _scheduled));
    end if;
    return towpath._envelope_ok(jsonb_build_object('did', towpath._process_retry(_process, _now)));
end;
$$;

-- 5. Grants, and the kind ----------------------------------------------------------------------------

-- Functions of towpath_owner are closed to everybody until they are granted by name.
grant execute on function {{schema}}.{{name}}_supervisor(jsonb), {{schema}}.get_{{handler}}_payload(jsonb),
    {{schema}}.record_{{handler}}_success(jsonb), {{schema}}.record_{{handler}}_failure(jsonb) to worker_service_user;
grant execute on function {{schema}}.has_{{name}}_task_succeeded(bigint), {{schema}}.is_{{name}}_task_over(bigint),
    {{schema}}.count_{{name}}_task_scheduled(bigint), {{schema}}.count_{{name}}_task_failures(bigint),
    {{schema}}.count_{{name}}_task_lost(bigint) to towpath_observer, workflow_admin;
