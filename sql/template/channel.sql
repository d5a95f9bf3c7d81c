-- A channel of messages: a message is stored, and kicked off as a process of the kind comms.{{name}} (P06).

-- _{{task_kind}}_make: stores a message, or finds the one that has its key; message_id is null if that is of another
-- channel.
create or replace function comms._{{task_kind}}_make(
    p_message comms.{{task_kind}}_message, p_key text, p_actor text, out message_id bigint, out duplicate boolean)
    language plpgsql
as $$
begin
    insert into comms.message as m (channel, idempotency_key, created_by)
    values ('{{task_kind}}', p_key, coalesce(p_actor, session_user))
    on conflict on constraint message_key_uq do nothing
    returning m.message_id into message_id;
    duplicate := not found;
    if duplicate then
        select m.message_id into message_id from comms.message m
         where m.idempotency_key = p_key and m.channel = '{{task_kind}}';
        return;
    end if;
    p_message.message_id := message_id;
    insert into comms.{{task_kind}}_message select p_message.*;
end;
$$;

-- create_{{task_kind}}_message: stores a message. comms._message_keys lists what it may say.
--
-- Answers: {ok, message_id}; invalid {detail}, unknown_key.
create or replace function comms.create_{{task_kind}}_message(p_message jsonb, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _message comms.{{task_kind}}_message := comms._{{task_kind}}_read(p_message);
    _refusal jsonb := comms._message_refusal('{{task_kind}}', p_message, comms._{{task_kind}}_problem(_message), null, p_actor);
begin
    return coalesce(_refusal, jsonb_build_object('ok', true, 'message_id',
        (select m.message_id from comms._{{task_kind}}_make(_message, null, p_actor) m)));
end;
$$;

-- kickoff_{{name}}_task: a task that sends the message root_id, now or at scheduled_at, and its process. Every
-- kickoff is a send of its own.
--
-- Answers: {ok, {{name}}_task_id, process_id, state}; gate_closed, not_found, not_authorised, invalid.
create or replace function comms.kickoff_{{name}}_task(
    root_id bigint, scheduled_at timestamptz default null, actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _refusal jsonb := coalesce(towpath._moment_refusal(scheduled_at, 'scheduled_at'),
        towpath._process_start_refusal('comms.{{name}}', 'new', scheduled_at, null, null, actor));
    _at timestamptz := coalesce(scheduled_at, towpath.fn_now());
    _id bigint;
    _started jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not exists (select 1 from comms.{{task_kind}}_message m where m.message_id = root_id) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail',
            format('there is no {{task_kind}} message %s; comms.create_{{task_kind}}_message makes one',
                   coalesce(root_id::text, 'null')));
    end if;
    insert into comms.{{name}}_task (message_id, scheduled_at) values (root_id, _at) returning {{name}}_task_id into _id;
    _started := towpath.fn_process_start('comms.{{name}}', _id::text, _at, p_actor => actor);
    if not (_started->>'ok')::boolean then
        delete from comms.{{name}}_task t where t.{{name}}_task_id = _id;
        return _started;
    end if;
    return jsonb_build_object('ok', true, '{{name}}_task_id', _id, 'process_id', _started->'process_id',
                              'state', _started->'state');
end;
$$;

-- send_{{task_kind}}: create_{{task_kind}}_message and kickoff_{{name}}_task in one call. Repeated with the same
-- idempotency key it answers the first send and makes none, even if the message is another.
--
-- Answers: {ok, message_id, {{name}}_task_id, process_id, duplicate}; gate_closed, not_authorised, invalid,
-- unknown_key, conflict (the key belongs to a message of another channel).
create or replace function comms.send_{{task_kind}}(
    p_message jsonb, p_idempotency_key text default null, p_scheduled_at timestamptz default null,
    p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _message comms.{{task_kind}}_message := comms._{{task_kind}}_read(p_message);
    _refusal jsonb := coalesce(comms._send_refusal('{{task_kind}}', p_scheduled_at),
        comms._message_refusal('{{task_kind}}', p_message, comms._{{task_kind}}_problem(_message), p_idempotency_key, p_actor));
    _made record;
    _first jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _made from comms._{{task_kind}}_make(_message, p_idempotency_key, p_actor);
    if _made.message_id is null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'detail', 'a message of another channel has this key');
    end if;
    select jsonb_build_object('ok', true, 'duplicate', true, 'message_id', _made.message_id,
               '{{name}}_task_id', t.{{name}}_task_id, 'process_id', p.process_id, 'state', p.state)
      into _first
      from comms.{{name}}_task t
      join towpath.process p on p.process_kind = 'comms.{{name}}' and p.ref = t.{{name}}_task_id::text
     where _made.duplicate and t.message_id = _made.message_id order by t.{{name}}_task_id limit 1;
    if found then
        return _first;
    end if;
    return jsonb_build_object('message_id', _made.message_id, 'duplicate', false)
        || comms.kickoff_{{name}}_task(_made.message_id, p_scheduled_at, p_actor);
end;
$$;

-- send_{{task_kind}}: the door (door.sql) to comms.send_{{task_kind}}, in the caller's own transaction.
--
-- Returns the id of the process that sends the message; while a message has the same key, the id of its process. Raises
-- TP001, TP002, TP004, TP005, TP007.
create or replace function towpath.send_{{task_kind}}(
    message jsonb, key text default null, run_at timestamptz default null, actor text default null) returns uuid
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _answer jsonb := comms.send_{{task_kind}}(message, key, run_at, actor);
begin
    if _answer -> 'ok' <> 'true' then
        perform towpath._raise_refusal(_answer, 'send_{{task_kind}}');
    end if;
    return _answer ->> 'process_id';
end;
$$;

grant execute on function comms.create_{{task_kind}}_message(jsonb, text),
    comms.kickoff_{{name}}_task(bigint, timestamptz, text), comms.send_{{task_kind}}(jsonb, text, timestamptz, text),
    towpath.send_{{task_kind}}(jsonb, text, timestamptz, text) to towpath_producer, workflow_admin;
