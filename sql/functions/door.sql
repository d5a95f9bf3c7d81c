-- Doors: what an application types to enqueue, emit and start.
--
-- Each is its fn_ function with plain parameter names, and raises what that refuses: with an
-- SQLSTATE of class TP, the cause as message, the facts as detail and the next step as hint. So a
-- transaction cannot commit without its job, event or process, whether or not its program
-- looks at answers (Q21).

-- _shell_word: a text as one word of a command line.
create or replace function towpath._shell_word(p_text text) returns text
    language sql immutable
as $$
    select case when p_text ~ '^[A-Za-z0-9_.:/@+-]+$' then p_text
                else '''' || replace(p_text, '''', '''\''''') || '''' end
$$;

-- _refusal_sqlstate: the SQLSTATE of a word of refusal, as sql/README.md and model::refusal list them.
create or replace function towpath._refusal_sqlstate(p_word text) returns text
    language sql immutable
as $$
    select case p_word
               when 'gate_closed' then 'TP001'
               when 'invalid' then 'TP002'
               when 'invalid_value' then 'TP003'
               when 'unknown_key' then 'TP004'
               when 'not_authorised' then 'TP005'
               when 'not_found' then 'TP006'
               when 'conflict' then 'TP007'
               when 'lease_lost' then 'TP008'
               when 'no_subscription' then 'TP009'
               when 'paused' then 'TP010'
           end
$$;

-- _refusal_hint: what to do about a refusal.
create or replace function towpath._refusal_hint(p_answer jsonb, p_field text) returns text
    language sql stable
as $$
    select case p_answer ->> 'error'
        when 'gate_closed' then format('Open it with: towpath gate open %s --why …', towpath._shell_word(p_answer ->> 'gate'))
        when 'not_authorised' then case
            when p_answer ? 'job_kind' then
                format('An administrator grants it with: towpath executor grant add %s --job-kind %s --executor %s',
                       towpath._shell_word(p_answer ->> 'producer'), towpath._shell_word(p_answer ->> 'job_kind'),
                       towpath._shell_word(p_answer ->> 'executor'))
            when p_answer ->> 'event_domain' = 'towpath' then
                'Choose another domain; towpath is reserved for Towpath''s own events.'
            when p_answer ? 'event_type' then
                format('An administrator grants it with: towpath events grant add %s --domain %s --type %s',
                       towpath._shell_word(p_answer ->> 'producer'), towpath._shell_word(p_answer ->> 'event_domain'),
                       towpath._shell_word(p_answer ->> 'event_type'))
            end
        when 'lease_lost' then 'Stop working on it: another worker has the job now, or it has ended.'
        when 'not_found' then case when p_answer ? 'process_kind' then
            'Install the SQL of this process first; create it with: towpath process new NAME.' end
        when 'invalid' then case
            when p_field = 'executor' then
                'Omit executor to use the one subscribed to this kind; list them with: towpath executor list.'
            when p_field = 'payload' then 'Store the data with towpath.payload_put and pass its reference in payload_ref.'
            end
    end
$$;

-- _raise_refusal: raises the answer {ok: false, …} to p_what, which names the call and its object.
-- Fields are called what the doors call them.
create or replace function towpath._raise_refusal(p_answer jsonb, p_what text) returns void
    language plpgsql
as $$
declare
    _field text := coalesce('{"job_kind": "kind", "payload_json": "payload", "scheduled_at": "run_at",
        "idempotency_key": "key", "event_domain": "domain", "event_type": "type", "event_stream": "stream",
        "process_kind": "kind", "check_at": "run_at"}'::jsonb ->> (p_answer ->> 'field'), p_answer ->> 'field');
    _facts text;
begin
    select string_agg(format('%s: %s', f.name, f.value), ', ' order by f.name = 'index' desc, f.name) into _facts
      from jsonb_each_text(p_answer - '{ok,error,detail}'::text[] || jsonb_strip_nulls(jsonb_build_object('field', _field)))
           as f(name, value);
    raise exception using
        errcode = coalesce(towpath._refusal_sqlstate(p_answer ->> 'error'), 'raise_exception'),
        message = format('%s was refused: %s', p_what, case p_answer ->> 'error'
            when 'gate_closed' then format('the gate %s is closed', p_answer ->> 'gate')
            else concat_ws(': ', _field, coalesce(p_answer ->> 'detail', p_answer ->> 'error')) end),
        detail = coalesce(_facts, p_answer ->> 'error'),
        hint = coalesce(towpath._refusal_hint(p_answer, _field), 'Fix the arguments and call again; nothing was written.'),
        -- The word, for drivers that do not show the SQLSTATE.
        constraint = coalesce(p_answer ->> 'error', '');
end;
$$;

-- enqueue: a job, in the caller's own transaction; fn_job_enqueue says what the options mean.
--
--     select towpath.enqueue('resize', '{"image": 7}', priority => 200, key => 'image:7');
--
-- Returns its id. While an unfinished job has the same key, of whatever kind and payload, that job
-- is the answer and nothing is written; to tell the two apart call fn_job_enqueue, whose
-- answer has "duplicate". Raises TP001, TP002, TP005.
create or replace function towpath.enqueue(
    kind         text,
    payload      jsonb       default '{}',
    priority     integer     default null,
    run_at       timestamptz default null,
    key          text        default null,
    executor     text        default null,
    max_attempts integer     default null,
    domain       text        default null,
    source_ref   text        default null,
    target_ref   text        default null,
    payload_ref  text        default null,
    actor        text        default null,
    run_id       uuid        default null) returns uuid
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_job_enqueue(kind, source_ref, target_ref, payload_ref, payload, priority, run_at,
                                            max_attempts, key, actor, run_id, executor, domain);
begin
    if not _answer ? 'job_id' then
        perform towpath._raise_refusal(_answer, format('enqueue %s', kind));
    end if;
    return _answer ->> 'job_id';
end;
$$;

-- enqueue_many: a batch of jobs, all of them or none. Each is an object with the names of enqueue's
-- parameters; at most 10,000.
--
--     select towpath.enqueue_many('[{"kind": "resize", "payload": {"image": 7}}, {"kind": "resize"}]');
--
-- Returns their ids in the order of the batch, for a key that is taken the id of the job that has it.
-- Raises TP001, TP002, TP005, for a row with its index, counted from 0.
create or replace function towpath.enqueue_many(jobs jsonb) returns uuid[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    perform towpath._raise_unknown_names(jobs, '{kind,payload,priority,run_at,key,executor,max_attempts,domain,'
        'source_ref,target_ref,payload_ref,actor,run_id}', 'enqueue_many: jobs');
    _answer := towpath.fn_job_enqueue_many(jobs);
    perform towpath._raise_refused_row(_answer, _answer -> 'jobs', 'enqueue_many', 'jobs');
    return array(select (j.job ->> 'job_id')::uuid
                   from jsonb_array_elements(_answer -> 'jobs') with ordinality as j(job, no) order by j.no);
end;
$$;

-- ack: ends an attempt well, in the transaction of what the attempt did: both are there or neither is. A worker that
-- lost its lease loses its transaction too. Raises TP001, TP002, TP008.
create or replace function towpath.ack(job_id uuid, lease_owner text, attempt integer, result jsonb default null)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_job_ack(job_id, lease_owner, attempt, result);
begin
    if _answer -> 'ok' = 'false' then
        perform towpath._raise_refusal(_answer, format('ack %s', job_id));
    end if;
end;
$$;

-- job_token: a token for a page in a browser that follows one job: it may read the job and its stream, and cancel it.
-- Who may enqueue such a job may make one. Raises TP002, TP005, TP006.
create or replace function towpath.job_token(job_id uuid, seconds integer default 3600) returns text
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_job_token(job_id, seconds);
begin
    if _answer -> 'ok' = 'false' then
        perform towpath._raise_refusal(_answer, format('job_token %s', job_id));
    end if;
    return _answer ->> 'token';
end;
$$;

-- emit: an event, in the caller's own transaction; fn_event_emit says what the options mean.
--
--     select towpath.emit('orders', 'paid', '{"order": 7}', subject_table => 'orders', subject_ref => '7');
--
-- Returns its id: with event_id that one, whether or not it was there before. Raises TP002, TP005.
create or replace function towpath.emit(
    domain        text,
    type          text,
    payload       jsonb default '{}',
    stream        text  default null,
    subject_table text  default null,
    subject_ref   text  default null,
    ordering_key  text  default null,
    actor         text  default null,
    event_id      uuid  default null) returns uuid
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_event_emit(domain, type, stream, subject_table, subject_ref, payload, actor,
                                           ordering_key, event_id);
begin
    if not _answer ? 'event_id' then
        perform towpath._raise_refusal(_answer, format('emit %s/%s', domain, type));
    end if;
    return _answer ->> 'event_id';
end;
$$;

-- emit_many: a batch of events, all of them or none. Each is an object with the names of emit's
-- parameters; at most 10,000.
--
-- Returns their ids in the order of the batch. Raises TP002, TP005, for a row with its index, counted
-- from 0.
create or replace function towpath.emit_many(events jsonb) returns uuid[]
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    perform towpath._raise_unknown_names(events,
        '{domain,type,payload,stream,subject_table,subject_ref,ordering_key,actor,event_id}', 'emit_many: events');
    _answer := towpath.fn_event_emit_many(events);
    perform towpath._raise_refused_row(_answer, _answer -> 'events', 'emit_many', 'events');
    return array(select (e.event ->> 'event_id')::uuid
                   from jsonb_array_elements(_answer -> 'events') with ordinality as e(event, no) order by e.no);
end;
$$;

-- start_process: a process of a kind, in the caller's own transaction, supervised at once or from run_at
-- on; fn_process_start says what the options mean.
--
--     select towpath.start_process('shop.order', 'order:7', input => '{"amount": 12}');
--
-- Returns its id: there is one process per kind and ref, and a second start answers the first. Raises
-- TP001, TP002, TP005, TP006.
create or replace function towpath.start_process(
    kind         text,
    ref          text,
    run_at       timestamptz default null,
    deadline_at  timestamptz default null,
    max_attempts integer     default null,
    actor        text        default null,
    input        jsonb       default null) returns uuid
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_process_start(kind, ref, run_at, deadline_at, max_attempts, actor, input);
begin
    if not _answer ? 'process_id' then
        perform towpath._raise_refusal(_answer, format('start_process %s', kind));
    end if;
    return _answer ->> 'process_id';
end;
$$;

-- signal_process: tells a process something, in the caller's own transaction; fn_process_signal says more.
--
--     select towpath.signal_process('shop.order', 'order:7', 'shipped', '{"parcel": "1Z"}');
--
-- Returns whether it was the first of its name: only that one counts. Raises TP001, TP002, TP005, TP006, TP007.
create or replace function towpath.signal_process(
    kind text, ref text, signal text, payload jsonb default null, actor text default null) returns boolean
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_process_signal(kind, ref, signal, payload, actor);
begin
    if _answer -> 'ok' <> 'true' then
        perform towpath._raise_refusal(_answer, format('signal_process %s %s', kind, ref));
    end if;
    return _answer -> 'recorded';
end;
$$;

-- _raise_unknown_names: raises the first row of a batch that is no object or has a name that is none of
-- the door's: it is misspelt, and would be ignored. A value that is no array is left to the fn_ function.
create or replace function towpath._raise_unknown_names(p_rows jsonb, p_names text[], p_what text) returns void
    language plpgsql
    set jit = off
as $$
declare
    _bad record;
    _name text;
begin
    select r.no - 1 as index, r.item into _bad
      from jsonb_array_elements(case when jsonb_typeof(p_rows) = 'array' then p_rows else '[]' end)
           with ordinality as r(item, no)
     where case when jsonb_typeof(r.item) = 'object' then r.item - p_names <> '{}' else true end
     limit 1;
    if not found then
        return;
    end if;
    if jsonb_typeof(_bad.item) = 'object' then
        select min(k) into _name from jsonb_object_keys(_bad.item - p_names) k;
    end if;
    perform towpath._raise_refusal(jsonb_strip_nulls(jsonb_build_object('error', 'invalid', 'index', _bad.index,
            'name', _name, 'detail', coalesce(_name || ' is not a known field; use ' || array_to_string(p_names, ', '),
                                              'must be a JSON object'))),
        format('%s[%s]', p_what, _bad.index));
end;
$$;

-- _raise_refused_row: raises the answer to a batch, or to the first of its rows that was refused.
create or replace function towpath._raise_refused_row(p_answer jsonb, p_rows jsonb, p_what text, p_array text)
    returns void
    language plpgsql
as $$
declare
    _bad record;
begin
    if p_answer -> 'ok' = 'false' then
        perform towpath._raise_refusal(p_answer, p_what);
    elsif p_answer -> 'refused' <> '0' then
        select r.no - 1 as index, r.answer into _bad from jsonb_array_elements(p_rows) with ordinality as r(answer, no)
         where r.answer -> 'ok' = 'false' order by r.no limit 1;
        perform towpath._raise_refusal(_bad.answer || jsonb_build_object('index', _bad.index),
                                       format('%s: %s[%s]', p_what, p_array, _bad.index));
    end if;
end;
$$;

grant execute on function towpath.enqueue(text, jsonb, integer, timestamptz, text, text, integer, text, text, text, text,
    text, uuid) to towpath_producer, workflow_admin;
grant execute on function towpath.enqueue_many(jsonb) to towpath_producer, workflow_admin;
grant execute on function towpath.ack(uuid, text, integer, jsonb) to worker_service_user;
grant execute on function towpath.emit(text, text, jsonb, text, text, text, text, text, uuid)
    to towpath_producer, workflow_admin;
grant execute on function towpath.job_token(uuid, integer) to towpath_producer, workflow_admin;
grant execute on function towpath.emit_many(jsonb) to towpath_producer, workflow_admin;
grant execute on function towpath.start_process(text, text, timestamptz, timestamptz, integer, text, jsonb),
    towpath.signal_process(text, text, text, jsonb, text) to towpath_producer, workflow_admin;
