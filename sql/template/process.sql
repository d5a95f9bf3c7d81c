-- [db_function other email sms]
-- {{name}}: a business process. Install it with psql as somebody who may migrate; it is yours to change.
--
--   {{name}}         what the process is about: the base record
--   {{name}}_task    one run of the process; its id is the ref of a row in towpath.process
--   {{name}}_task_…  its facts: scheduled, succeeded, failed, lost, gave_up, cancelled, invalid
--
-- kickoff_{{name}}_task starts a run. The supervisor decides what comes next from the facts, and never
-- has more than one attempt outstanding. An attempt is a job of the kind {{task_kind}}. What a worker
-- leaves undone is noticed by towpath.fn_process_scan, so nothing is lost with a worker or a job.

begin;
create schema if not exists {{schema}} authorization towpath_owner;
set local role towpath_owner;
grant usage on schema {{schema}} to worker_service_user, towpath_producer, workflow_admin, towpath_observer;

-- 1. Data and facts ------------------------------------------------------------------------------

create table {{schema}}.{{name}} (
    {{name}}_id bigint generated always as identity primary key,
    subject_ref text not null,
-- [email sms]
    recipient text not null,
-- [db_function other email sms]
    created_at timestamptz not null default towpath.fn_now()
);

create table {{schema}}.{{name}}_task (
    {{name}}_task_id bigint generated always as identity primary key,
    {{name}}_id bigint not null references {{schema}}.{{name}},
    scheduled_at timestamptz not null,
    created_at timestamptz not null default towpath.fn_now()
);

create table {{schema}}.{{name}}_task_scheduled (
    {{name}}_task_id bigint not null references {{schema}}.{{name}}_task,
    attempt_no integer not null,
    job_id uuid not null,
    recorded_at timestamptz not null,
    primary key ({{name}}_task_id, attempt_no)
);
create table {{schema}}.{{name}}_task_succeeded (
    {{name}}_task_id bigint primary key references {{schema}}.{{name}}_task,
    attempt_no integer,
    result_ref text,
    recorded_at timestamptz not null
);
create table {{schema}}.{{name}}_task_failed (
    {{name}}_task_id bigint not null references {{schema}}.{{name}}_task,
    attempt_no integer not null,
    outcome text not null check (outcome in ('transient', 'permanent', 'uncertain')),
    code text,
    message text,
    recorded_at timestamptz not null,
    primary key ({{name}}_task_id, attempt_no)
);
create table {{schema}}.{{name}}_task_lost (
    {{name}}_task_id bigint not null references {{schema}}.{{name}}_task,
    attempt_no integer not null,
    begun boolean not null,
    recorded_at timestamptz not null,
    primary key ({{name}}_task_id, attempt_no)
);
create table {{schema}}.{{name}}_task_gave_up (
    {{name}}_task_id bigint primary key references {{schema}}.{{name}}_task,
    reason text,
    recorded_at timestamptz not null
);
create table {{schema}}.{{name}}_task_cancelled (
    {{name}}_task_id bigint primary key references {{schema}}.{{name}}_task,
    actor text not null,
    reason text,
    recorded_at timestamptz not null
);
create table {{schema}}.{{name}}_task_invalid (
    {{name}}_task_id bigint primary key references {{schema}}.{{name}}_task,
    reason text,
    recorded_at timestamptz not null
);

-- Facts are append-only, for every role.
do $$
declare
    _fact text;
begin
    foreach _fact in array array['scheduled', 'succeeded', 'failed', 'lost', 'gave_up', 'cancelled', 'invalid'] loop
        execute format('create trigger append_only before update or delete or truncate on {{schema}}.%I
            for each statement execute function towpath._append_only()', '{{name}}_task_' || _fact);
    end loop;
end;
$$;
-- [comms]
-- {{schema}}.{{name}}: the process that sends one message, from its attempts to its last fact (P06).
-- [end]

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
-- [db_function other email sms]
            values (_id, _attempt, _detail->>'result_ref', _at);
-- [comms]
            values (_id, _attempt, _detail->>'transport', _detail->>'provider_id', _at);
-- [end]
        when 'failed', 'uncertain' then
            insert into {{schema}}.{{name}}_task_failed
-- [db_function other email sms]
            values (_id, _attempt, _detail->>'outcome', _detail->>'code', _detail->>'message', _at);
-- [comms]
            values (_id, _attempt, _detail->>'outcome', _detail->>'transport', _detail->>'code', _detail->>'message',
                    (_detail->>'retry_after_seconds')::double precision, _at);
-- [end]
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
as $$
declare
    _id bigint := towpath._number_read(payload->>'{{name}}_task_id');
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _id::text);
    _now timestamptz := towpath.fn_now();
    _worker jsonb := coalesce(payload->'worker', '{}');
    _attempt_no integer := towpath._process_attempt_no(_process, payload);
-- [db_function other email sms]
    _record {{schema}}.{{name}};
-- [comms]
    _message comms.{{task_kind}}_message;
    _frozen jsonb;
-- [end]
    _problem text;
    _begun jsonb;
begin
    _begun := towpath._process_attempt_begin(_process, _attempt_no, coalesce(_worker->>'name', _worker->>'transport', 'worker'),
                                             coalesce(_worker->'key_honoured' = 'true', false), _now);
    if not (_begun->>'ok')::boolean then
        return towpath._process_envelope(_begun);
    end if;
-- [db_function other email sms]
    select r.* into _record from {{schema}}.{{name}} r join {{schema}}.{{name}}_task t using ({{name}}_id)
     where t.{{name}}_task_id = _id;
-- [db_function other]
    _problem := case when btrim(_record.subject_ref) = '' then 'subject_ref is blank' end;
-- [email sms]
    _problem := case when btrim(_record.recipient) = '' then 'recipient is blank' end;
-- [comms]
    -- What the first attempt hands to the provider, every attempt does.
    select f.provider_payload into _frozen from comms.{{name}}_task_frozen f where f.{{name}}_task_id = _id;
    if not found then
        select m.* into _message
          from comms.{{name}}_task t join comms.{{task_kind}}_message m on m.message_id = t.message_id
         where t.{{name}}_task_id = _id;
        _problem := comms._{{task_kind}}_problem(_message);
    end if;
-- [end]
    if _problem is not null then
        perform towpath._process_invalid(_process, _attempt_no, _problem, _now);
        return towpath._envelope_invalid(format('{{name}}_task %s: %s', _id, _problem));
    end if;
-- [db_function other]
    -- Send the key to the service that does the work.
    return towpath._envelope_ok(jsonb_build_object('{{name}}_task_id', _id, 'attempt_no', _attempt_no,
        'idempotency_key', _process.process_id, 'subject_ref', _record.subject_ref));
-- [email]
    -- The e-mail: to, subject, text or html or both; cc, bcc, reply_to, from and headers if you like. The key
    -- is the same at every attempt, so let the content be the same, too.
    return towpath._envelope_ok(jsonb_build_object('idempotency_key', _process.process_id, 'to', _record.recipient,
        'subject', 'About ' || _record.subject_ref, 'text', 'There is news about ' || _record.subject_ref || '.'));
-- [sms]
    -- The SMS: to and text; from if you like. The key is the same at every attempt, so let the content be the
    -- same, too.
    return towpath._envelope_ok(jsonb_build_object('idempotency_key', _process.process_id, 'to', _record.recipient,
        'text', 'There is news about ' || _record.subject_ref || '.'));
-- [comms]
    if _frozen is null then
        _frozen := comms._{{task_kind}}_content(_message, _worker->>'from');
        insert into comms.{{name}}_task_frozen values (_id, _frozen, _now);
    end if;
    return towpath._envelope_ok(_frozen || jsonb_build_object('process_id', _process.process_id,
        'attempt_no', _attempt_no, 'idempotency_key', _process.process_id, 'lease_until', _begun->'lease_until'));
-- [end]
end;
$$;

-- record_{{handler}}_success: {original_payload, worker_payload}; ends the process as succeeded.
create or replace function {{schema}}.record_{{handler}}_success(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _original jsonb := payload->'original_payload';
    _process towpath.process := towpath._process_find('{{schema}}.{{name}}', _original->>'{{name}}_task_id');
begin
    return towpath._process_envelope(towpath._process_attempt_end(_process,
        towpath._process_attempt_no(_process, _original), 'accepted',
-- [db_function other]
        jsonb_build_object('result_ref', payload #>> '{worker_payload,result_ref}'), towpath.fn_now()));
-- [email sms]
        -- What the provider calls the message, if it said so.
        jsonb_build_object('result_ref', coalesce(payload #>> '{worker_payload,provider_id}',
                                                  payload #>> '{worker_payload,transport}')), towpath.fn_now()));
-- [comms]
        jsonb_strip_nulls(jsonb_build_object(
            'transport', left(payload #>> '{worker_payload,transport}', 100),
            'provider_id', left(payload #>> '{worker_payload,provider_id}', 500),
            'response', left(towpath._text_masked(payload #>> '{worker_payload,response}'), 500))), towpath.fn_now()));
-- [end]
end;
$$;

-- record_{{handler}}_failure: {original_payload, error}; error is a text, or {outcome, message, code,
-- retry_after_seconds, key_honoured} with the outcome transient, permanent or uncertain.
create or replace function {{schema}}.record_{{handler}}_failure(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
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
-- [db_function]

-- {{name}}_work: the work itself. Raise to fail; answer what should be kept of the result. It happens in
-- one transaction with its fact, so inside this database it happens exactly once.
create or replace function {{schema}}.{{name}}_work(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return jsonb_build_object('result_ref', 'done:' || (payload->>'subject_ref'));
end;
$$;

-- run_{{name}}: what the worker calls: begins the attempt, does the work, records how it ended.
create or replace function {{schema}}.run_{{name}}(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _begun jsonb := {{schema}}.get_{{handler}}_payload(payload);
    _result jsonb;
begin
    if not (_begun->>'success')::boolean then
        return _begun;
    end if;
    begin
        _result := {{schema}}.{{name}}_work(_begun->'payload');
    exception when others then
        return {{schema}}.record_{{handler}}_failure(jsonb_build_object('original_payload', payload,
            'error', jsonb_build_object('outcome', 'transient', 'code', sqlstate, 'message', sqlerrm)));
    end;
    return {{schema}}.record_{{handler}}_success(jsonb_build_object('original_payload', payload, 'worker_payload', _result));
end;
$$;
-- [end]

-- 3. Supervisor ------------------------------------------------------------------------------------

-- {{name}}_supervisor: locks the process, reads the facts, decides. Safe to run many at once.
create or replace function {{schema}}.{{name}}_supervisor(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
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

-- [db_function other email sms]
-- 4. Kickoff ---------------------------------------------------------------------------------------

-- create_{{name}}: the base record. Answers {ok, {{name}}_id}.
-- [db_function other]
create or replace function {{schema}}.create_{{name}}(p_subject_ref text) returns jsonb
-- [email sms]
create or replace function {{schema}}.create_{{name}}(p_subject_ref text, p_recipient text) returns jsonb
-- [db_function other email sms]
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
-- [db_function other]
    insert into {{schema}}.{{name}} (subject_ref) values (p_subject_ref)
-- [email sms]
    insert into {{schema}}.{{name}} (subject_ref, recipient) values (p_subject_ref, p_recipient)
-- [db_function other email sms]
    returning jsonb_build_object('ok', true, '{{name}}_id', {{name}}_id)
$$;

-- kickoff_{{name}}_task: a run of the process for the record root_id, now or at scheduled_at.
-- Answers {ok, {{name}}_task_id, process_id}; raises what towpath.start_process refuses.
create or replace function {{schema}}.kickoff_{{name}}_task(root_id bigint, scheduled_at timestamptz default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _at timestamptz := coalesce(scheduled_at, towpath.fn_now());
    _id bigint;
begin
    insert into {{schema}}.{{name}}_task ({{name}}_id, scheduled_at) values (root_id, _at)
    returning {{name}}_task_id into _id;
    return jsonb_build_object('ok', true, '{{name}}_task_id', _id,
                              'process_id', towpath.start_process('{{schema}}.{{name}}', _id::text, _at));
end;
$$;

-- [end]
-- 5. Grants, and the kind ----------------------------------------------------------------------------

-- Functions of towpath_owner are closed to everybody until they are granted by name.
grant execute on function {{schema}}.{{name}}_supervisor(jsonb), {{schema}}.get_{{handler}}_payload(jsonb),
    {{schema}}.record_{{handler}}_success(jsonb), {{schema}}.record_{{handler}}_failure(jsonb) to worker_service_user;
-- [db_function]
grant execute on function {{schema}}.run_{{name}}(jsonb) to worker_service_user;
-- [end]
grant execute on function {{schema}}.has_{{name}}_task_succeeded(bigint), {{schema}}.is_{{name}}_task_over(bigint),
    {{schema}}.count_{{name}}_task_scheduled(bigint), {{schema}}.count_{{name}}_task_failures(bigint),
    {{schema}}.count_{{name}}_task_lost(bigint) to towpath_observer, workflow_admin;
-- [db_function other email sms]
grant execute on function {{schema}}.create_{{name}}{{create_types}}, {{schema}}.kickoff_{{name}}_task(bigint, timestamptz)
    to towpath_producer, workflow_admin;

do $$
declare
    _answer jsonb := towpath.fn_process_kind_put('{{schema}}.{{name}}', jsonb_build_object(
        'supervisor', '{{schema}}.{{name}}_supervisor', 'recorder', '{{schema}}.record_{{name}}_fact',
        'task_kind', '{{task_kind}}', 'ref_field', '{{name}}_task_id',
-- [db_function]
        'db_function', '{{schema}}.run_{{name}}',
-- [email sms other]
        'before_handler', '{{schema}}.get_{{handler}}_payload', 'success_handler', '{{schema}}.record_{{handler}}_success',
        'error_handler', '{{schema}}.record_{{handler}}_failure',
-- [db_function other email sms]
        'max_attempts', 5, 'lease_seconds', 120, 'deadline_seconds', 86400, 'backoff_seconds', 10,
        -- When it is not known whether an attempt took effect: hold it for an operator, or retry.
        'on_uncertain', 'hold'));
begin
    if not (_answer->>'ok')::boolean then
        raise exception 'the kind {{schema}}.{{name}} was refused: %', _answer;
    end if;
end;
$$;
commit;
-- [end]
