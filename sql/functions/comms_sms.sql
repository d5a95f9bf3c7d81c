-- SMS: the process that sends one, from kickoff to its last fact (P06).

-- has_send_sms_task_succeeded: whether the provider has accepted it.
create or replace function comms.has_send_sms_task_succeeded(send_sms_task_id bigint) returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select 1 from comms.send_sms_task_succeeded f where f.send_sms_task_id = $1);
end;
$$;

-- is_send_sms_task_over: whether one of the four terminal facts exists.
create or replace function comms.is_send_sms_task_over(send_sms_task_id bigint) returns boolean
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select 1 from comms.send_sms_task_succeeded f where f.send_sms_task_id = $1)
        or exists (select 1 from comms.send_sms_task_gave_up f where f.send_sms_task_id = $1)
        or exists (select 1 from comms.send_sms_task_cancelled f where f.send_sms_task_id = $1)
        or exists (select 1 from comms.send_sms_task_invalid f where f.send_sms_task_id = $1);
end;
$$;

-- count_send_sms_task_scheduled: attempts so far.
create or replace function comms.count_send_sms_task_scheduled(send_sms_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from comms.send_sms_task_scheduled f where f.send_sms_task_id = $1);
end;
$$;

-- count_send_sms_task_failures: attempts that ended badly, or nobody knows how.
create or replace function comms.count_send_sms_task_failures(send_sms_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from comms.send_sms_task_failed f where f.send_sms_task_id = $1);
end;
$$;

-- count_send_sms_task_lost: attempts that nobody came back from.
create or replace function comms.count_send_sms_task_lost(send_sms_task_id bigint) returns integer
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select count(*)::integer from comms.send_sms_task_lost f where f.send_sms_task_id = $1);
end;
$$;

-- record_send_sms_fact: the recorder: keeps what comms wants to know of each fact, in the fact's own
-- transaction. Nobody is granted it; the process calls it.
create or replace function comms.record_send_sms_fact(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _id bigint := payload->>'send_sms_task_id';
    _attempt integer := payload->>'attempt_no';
    _at timestamptz := payload->>'recorded_at';
    _detail jsonb := payload->'detail';
begin
    case payload->>'fact'
        when 'scheduled' then
            insert into comms.send_sms_task_scheduled values (_id, _attempt, (_detail->>'job_id')::uuid, _at);
        when 'succeeded' then
            insert into comms.send_sms_task_succeeded
            values (_id, _attempt, _detail->>'transport', _detail->>'provider_id', _at);
        when 'failed', 'uncertain' then
            insert into comms.send_sms_task_failed
            values (_id, _attempt, _detail->>'outcome', _detail->>'transport', _detail->>'code', _detail->>'message',
                    (_detail->>'retry_after_seconds')::double precision, _at);
        when 'lost' then
            insert into comms.send_sms_task_lost values (_id, _attempt, (_detail->>'begun')::boolean, _at);
        when 'gave_up' then
            insert into comms.send_sms_task_gave_up values (_id, _detail->>'why', _at);
        when 'cancelled' then
            insert into comms.send_sms_task_cancelled values (_id, payload->>'actor', _detail->>'reason', _at);
        when 'invalid' then
            insert into comms.send_sms_task_invalid values (_id, _detail->>'why', _at);
        else
            null;
    end case;
    return towpath._envelope_ok();
end;
$$;

-- send_sms_supervisor: decides what comes next for one send (P07). It locks the process first, so any
-- number may run at once: one of them acts, the others find the attempt it scheduled.
create or replace function comms.send_sms_supervisor(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _id bigint := towpath._number_read(payload->>'send_sms_task_id');
    _process towpath.process := towpath._process_find('comms.send_sms', _id::text);
    _now timestamptz := towpath.fn_now();
    _succeeded boolean;
    _scheduled integer;
    _ended integer;
begin
    if _process.process_id is null then
        return towpath._envelope_invalid(format('there is no send_sms_task %s', coalesce(_id::text, 'null')));
    end if;
    perform towpath._process_expire(_process, _now);

    -- Input: the facts.
    _succeeded := comms.has_send_sms_task_succeeded(_id);
    _scheduled := comms.count_send_sms_task_scheduled(_id);
    _ended := comms.count_send_sms_task_failures(_id) + comms.count_send_sms_task_lost(_id);

    -- Compute and output: over, held for a person, waiting for an attempt, or the retry policy.
    if _succeeded or _process.state <> 'open' then
        return towpath._envelope_ok(jsonb_build_object('state', _process.state, 'did', 'nothing'));
    elsif _scheduled > _ended then
        return towpath._envelope_ok(jsonb_build_object('state', _process.state, 'did', 'wait', 'attempt_no', _scheduled));
    end if;
    return towpath._envelope_ok(jsonb_build_object('did', towpath._process_retry(_process, _now)));
end;
$$;

-- get_sms_payload: the before handler. Begins the attempt, once, and answers what to hand to the
-- provider: frozen at the first attempt, under the same key at every one. A refusal means: do not send.
create or replace function comms.get_sms_payload(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _id bigint := towpath._number_read(payload->>'send_sms_task_id');
    _process towpath.process := towpath._process_find('comms.send_sms', _id::text);
    _now timestamptz := towpath.fn_now();
    _worker jsonb := coalesce(payload->'worker', '{}');
    _attempt_no integer := towpath._process_attempt_no(_process, payload);
    _message comms.sms_message;
    _begun jsonb;
    _problem text;
    _frozen jsonb;
begin
    _begun := towpath._process_attempt_begin(_process, _attempt_no, coalesce(_worker->>'name', _worker->>'transport', 'worker'),
                                             coalesce(_worker->'key_honoured' = 'true', false), _now);
    if not (_begun->>'ok')::boolean then
        return towpath._process_envelope(_begun);
    end if;
    select f.provider_payload into _frozen from comms.send_sms_task_frozen f where f.send_sms_task_id = _id;
    if not found then
        select m.* into _message
          from comms.send_sms_task t join comms.sms_message m on m.message_id = t.message_id
         where t.send_sms_task_id = _id;
        _problem := comms._sms_problem(_message);
        if _problem is not null then
            perform towpath._process_invalid(_process, _attempt_no, _problem, _now);
            return towpath._envelope_invalid(format('send_sms_task %s: %s', _id, _problem));
        end if;
        _frozen := comms._sms_content(_message, _worker->>'from');
        insert into comms.send_sms_task_frozen values (_id, _frozen, _now);
    end if;
    return towpath._envelope_ok(_frozen || jsonb_build_object('process_id', _process.process_id,
        'attempt_no', _attempt_no, 'idempotency_key', _process.process_id, 'lease_until', _begun->'lease_until'));
end;
$$;

-- record_sms_success: the success handler: the provider accepted the message.
create or replace function comms.record_sms_success(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _original jsonb := payload->'original_payload';
    _process towpath.process := towpath._process_find('comms.send_sms', _original->>'send_sms_task_id');
begin
    return towpath._process_envelope(towpath._process_attempt_end(_process,
        towpath._process_attempt_no(_process, _original), 'accepted', jsonb_strip_nulls(jsonb_build_object(
            'transport', left(payload #>> '{worker_payload,transport}', 100),
            'provider_id', left(payload #>> '{worker_payload,provider_id}', 500),
            'response', left(towpath._text_masked(payload #>> '{worker_payload,response}'), 500))), towpath.fn_now()));
end;
$$;

-- record_sms_failure: the error handler: transient, permanent or uncertain. The next attempt, if there
-- is one, is scheduled in this transaction.
create or replace function comms.record_sms_failure(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _original jsonb := payload->'original_payload';
    _process towpath.process := towpath._process_find('comms.send_sms', _original->>'send_sms_task_id');
    _failure record := towpath._process_failure(payload->'error');
begin
    return towpath._process_envelope(towpath._process_attempt_end(_process,
        towpath._process_attempt_no(_process, _original), _failure.outcome, _failure.detail, towpath.fn_now()));
end;
$$;

-- kickoff_send_sms_task: a task that sends the message root_id, now or at scheduled_at, and its process.
-- Every kickoff is a send of its own.
--
-- Answers: {ok, send_sms_task_id, process_id, state}; gate_closed, not_found, not_authorised, invalid.
create or replace function comms.kickoff_send_sms_task(
    root_id bigint, scheduled_at timestamptz default null, actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(towpath._moment_refusal(scheduled_at, 'scheduled_at'),
        towpath._process_start_refusal('comms.send_sms', 'new', scheduled_at, null, null, actor));
    _at timestamptz := coalesce(scheduled_at, towpath.fn_now());
    _id bigint;
    _started jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not exists (select 1 from comms.sms_message m where m.message_id = root_id) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail',
            format('there is no SMS message %s; comms.create_sms_message makes one', coalesce(root_id::text, 'null')));
    end if;
    insert into comms.send_sms_task (message_id, scheduled_at) values (root_id, _at) returning send_sms_task_id into _id;
    _started := towpath.fn_process_start('comms.send_sms', _id::text, _at, p_actor => actor);
    if not (_started->>'ok')::boolean then
        delete from comms.send_sms_task t where t.send_sms_task_id = _id;
        return _started;
    end if;
    return jsonb_build_object('ok', true, 'send_sms_task_id', _id, 'process_id', _started->'process_id',
                              'state', _started->'state');
end;
$$;

grant execute on function comms.has_send_sms_task_succeeded(bigint), comms.is_send_sms_task_over(bigint),
    comms.count_send_sms_task_scheduled(bigint), comms.count_send_sms_task_failures(bigint),
    comms.count_send_sms_task_lost(bigint) to towpath_observer, workflow_admin;
grant execute on function comms.send_sms_supervisor(jsonb), comms.get_sms_payload(jsonb),
    comms.record_sms_success(jsonb), comms.record_sms_failure(jsonb) to worker_service_user;
grant execute on function comms.kickoff_send_sms_task(bigint, timestamptz, text) to towpath_producer, workflow_admin;
