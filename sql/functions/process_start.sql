-- Starting processes: one, or many in one call.

-- _process_start_refusal: why a process cannot be started, or null. For callers that write
-- something before: comms stores the message first.
create or replace function towpath._process_start_refusal(
    p_process_kind text, p_ref text, p_check_at timestamptz, p_deadline_at timestamptz, p_max_attempts integer,
    p_actor text) returns jsonb
    language plpgsql stable
as $$
declare
    _kind towpath.process_kind;
    _refusal jsonb := towpath._gate_refusal('process.enabled');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _kind from towpath.process_kind k where k.process_kind = p_process_kind;
    _refusal := towpath._process_right_refusal(_kind, p_process_kind, 'start');
    if _refusal is not null then
        return _refusal;
    end if;
    -- The usual start, looked at once.
    if towpath._key_fits(p_ref) and octet_length(p_ref) <= 500 and p_check_at is null and p_deadline_at is null
       and p_max_attempts is null and p_actor is null then
        return null;
    end if;
    _refusal := coalesce(
        towpath._invalid('ref', case when coalesce(btrim(p_ref), '') = '' then 'must not be blank'
                                     else towpath._text_problem(p_ref, 500) end),
        towpath._moment_refusal(p_check_at, 'check_at'),
        towpath._moment_refusal(p_deadline_at, 'deadline_at'),
        case when p_max_attempts not between 1 and 1000 then
            towpath._invalid('max_attempts', 'must be between 1 and 1000') end,
        towpath._name_or_null_refusal(p_actor, 'actor'));
    if _refusal is not null then
        return _refusal;
    end if;
    if p_deadline_at <= greatest(p_check_at, towpath.fn_now()) then
        return towpath._invalid('deadline_at', 'must be after the start');
    end if;
    return null;
end;
$$;

-- _process_right_refusal: why the session may not start or signal processes of a kind, or null. A producer needs
-- a grant to enqueue jobs of the kind, or of the task type of its attempts.
create or replace function towpath._process_right_refusal(p_kind towpath.process_kind, p_process_kind text, p_verb text)
    returns jsonb
    language plpgsql stable
as $$
begin
    if p_kind.process_kind is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_kind', p_process_kind,
            'detail', 'there is no such process kind; register it with towpath.process_kind');
    end if;
    if pg_has_role(session_user, 'workflow_admin', 'member')
       or towpath._producer_may(p_kind.task_kind, 'PG_worker')
       or p_kind.runs_as <> 'task' and towpath._producer_may(p_kind.process_kind, 'PG_worker') then
        return null;
    end if;
    return jsonb_build_object('ok', false, 'error', 'not_authorised', 'producer', session_user,
        'job_kind', case p_kind.runs_as when 'task' then p_kind.task_kind else p_kind.process_kind end,
        'executor', 'PG_worker',
        'detail', format('%s is not allowed to %s %s: it needs a producer grant for %s jobs of PG_worker', session_user,
            p_verb, p_process_kind, case p_kind.runs_as when 'task' then p_kind.task_kind else p_kind.process_kind end));
end;
$$;

-- _process_start_rows: starts processes of one kind that has nothing of its own but a function or a handler: the
-- processes, their facts, first attempts and jobs, in three statements however many there are. p_processes is an array
-- of {ref, input, check_at, deadline_at, max_attempts}. While a gate is closed the attempts wait for the scan.
--
-- Returns ids and duplicate flags in the order of p_processes.
create or replace function towpath._process_start_rows(
    p_kind towpath.process_kind, p_processes jsonb, p_actor text, p_parent uuid, p_now timestamptz,
    out process_ids uuid[], out duplicates boolean[])
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _micros bigint := (date_part('epoch', p_now) * 1000000)::bigint;
    _tail bytea := substring(uuid_send(gen_random_uuid()) from 9);
    _runs boolean := towpath._gate_open('queue.job_substrate.enabled');
    _lease interval := make_interval(secs => least(p_kind.lease_seconds, p_kind.pickup_seconds));
    -- Of the columns' own types, so that each is checked once and not for every process; as below.
    _actor towpath.label := p_actor;
    _fact_actor towpath.long_label := p_actor;
    _made uuid[];
    _due uuid[];
begin
    with input as materialized (
        select r.no, towpath._uuid7(_micros + r.no, _tail) as process_id, r.ref, r.input,
               greatest(r.check_at, p_now) as first_at, r.deadline_at,
               coalesce(r.max_attempts, p_kind.max_attempts) as max_attempts
          from rows from (jsonb_to_recordset(p_processes) as (
                   ref text, input jsonb, check_at timestamptz, deadline_at timestamptz, max_attempts integer))
               with ordinality as r(ref, input, check_at, deadline_at, max_attempts, no)),
    timed as materialized (
        select i.*, coalesce(i.deadline_at, least(i.first_at + make_interval(secs => p_kind.deadline_seconds),
                                                  towpath._moment_last())) as ends_at,
               i.first_at <= p_now and _runs as is_due
          from input i),
    made as (
        insert into towpath.process as p (process_id, process_kind, ref, in_database, next_check_at, deadline_at,
                                          max_attempts, started_by, started_at, input, parent_id)
        select t.process_id, p_kind.process_kind, t.ref, true,
               case when t.is_due then least(p_now + _lease, t.ends_at) else t.first_at end,
               t.ends_at, t.max_attempts, _actor, p_now, t.input, p_parent
          from timed t order by t.ref
        on conflict on constraint process_ref_uq do nothing
        returning p.process_id),
    fact as (
        insert into towpath.process_fact (process_id, fact_no, fact, detail, actor, recorded_at)
        select t.process_id, 1, 'started', jsonb_strip_nulls(jsonb_build_object(
                   'check_at', case when t.first_at > p_now then t.first_at end, 'deadline_at', t.ends_at)), _fact_actor, p_now
          from timed t where t.process_id in (select m.process_id from made m))
    select array_agg(t.process_id order by t.no), array(select m.process_id from made m),
           array_agg(t.process_id order by t.no) filter (
               where t.is_due and t.process_id in (select m.process_id from made m))
      into process_ids, _made, _due from timed t;
    duplicates := array_fill(false, array[coalesce(cardinality(process_ids), 0)]);
    if cardinality(_made) < cardinality(process_ids) then
        -- In a new statement: the first one may have committed while this one waited for it.
        select array_agg(coalesce(p.process_id, i.process_id) order by i.no),
               array_agg(not i.process_id = any (_made) order by i.no)
          into process_ids, duplicates
          from unnest(process_ids) with ordinality as i(process_id, no)
          left join towpath.process p on not i.process_id = any (_made) and p.process_kind = p_kind.process_kind
                                     and p.ref = p_processes -> (i.no::integer - 1) ->> 'ref';
    end if;
    if _due is not null then
        perform towpath._process_attempt_rows(p_kind, _due, p_now);
    end if;
end;
$$;

-- _process_attempt_rows: the first attempts of processes of one kind: their jobs, and the facts. The processes are
-- new, so nobody else can see them.
create or replace function towpath._process_attempt_rows(p_kind towpath.process_kind, p_process_ids uuid[], p_now timestamptz)
    returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
declare
    -- The same for all.
    _job jsonb := jsonb_build_object('job_kind', p_kind.task_kind, 'executor', towpath._process_executor(p_kind),
        'max_attempts', 3, 'actor', towpath._own_actor('process', p_kind.process_kind));
    _supervisor towpath.long_label := 'supervisor';
    _due towpath.moment := p_now;
    _jobs jsonb;
    _job_ids uuid[];
begin
    if cardinality(p_process_ids) = 1 then
        _job_ids := array[towpath._process_job(p_kind, p_process_ids[1],
            jsonb_build_object('process_id', p_process_ids[1], 'attempt_no', 1), p_now, p_now)];
    else
        select jsonb_agg(_job || jsonb_build_object('run_id', i.process_id,
                   'payload_json', jsonb_build_object('process_id', i.process_id, 'attempt_no', 1)))
          into _jobs from unnest(p_process_ids) i(process_id);
        select e.job_ids into _job_ids from towpath._job_enqueue_rows(_jobs) e;
    end if;
    with made as materialized (
        select i.process_id, i.job_id from unnest(p_process_ids, _job_ids) as i(process_id, job_id)),
    attempt as (
        insert into towpath.process_attempt (process_id, attempt_no, job_id, scheduled_at, due_at, lease_until)
        select m.process_id, 1, m.job_id, p_now, _due, p_now + make_interval(secs => p_kind.pickup_seconds) from made m)
    insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at)
    select m.process_id, 2, 'scheduled', 1, jsonb_build_object('job_id', m.job_id), _supervisor, p_now from made m;
end;
$$;

-- fn_process_start: nothing -> open, in the caller's own transaction; supervised at once unless
-- p_check_at lies ahead. One process per kind and ref: a second start finds the first.
--
-- Answers: {ok, process_id, duplicate, state}; gate_closed, not_found (the kind), not_authorised,
-- invalid {field, detail}.
create or replace function towpath.fn_process_start(
    p_process_kind text, p_ref text, p_check_at timestamptz default null, p_deadline_at timestamptz default null,
    p_max_attempts integer default null, p_actor text default null, p_input jsonb default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _refusal jsonb := coalesce(
        towpath._process_start_refusal(p_process_kind, p_ref, p_check_at, p_deadline_at, p_max_attempts, p_actor),
        towpath._process_value_refusal(p_input, 'input'));
begin
    return coalesce(_refusal, towpath._process_start(p_process_kind, p_ref, p_check_at, p_deadline_at, p_max_attempts,
        coalesce(p_actor, session_user), p_input, null, towpath.fn_now()));
end;
$$;

-- _process_start: fn_process_start without its refusals.
create or replace function towpath._process_start(
    p_process_kind text, p_ref text, p_check_at timestamptz, p_deadline_at timestamptz, p_max_attempts integer,
    p_actor text, p_input jsonb, p_parent uuid, p_now timestamptz) returns jsonb
    language plpgsql
as $$
declare
    _first timestamptz := greatest(p_check_at, p_now);
    _kind towpath.process_kind;
    _process towpath.process;
    _deadline timestamptz;
    _made record;
begin
    select * into _kind from towpath.process_kind k where k.process_kind = p_process_kind;
    if _kind.runs_as <> 'task' then
        select * into _made from towpath._process_start_rows(_kind, jsonb_build_array(jsonb_build_object('ref', p_ref,
            'input', p_input, 'check_at', p_check_at, 'deadline_at', p_deadline_at, 'max_attempts', p_max_attempts)),
            p_actor, p_parent, p_now);
        return jsonb_build_object('ok', true, 'process_id', _made.process_ids[1], 'duplicate', _made.duplicates[1], 'state',
            case when _made.duplicates[1] then
                (select p.state from towpath.process p where p.process_id = _made.process_ids[1]) else 'open' end);
    end if;
    _deadline := coalesce(p_deadline_at, least(_first + make_interval(secs => _kind.deadline_seconds), towpath._moment_last()));
    insert into towpath.process as p (process_id, process_kind, ref, in_database, next_check_at, deadline_at,
                                      max_attempts, started_by, started_at, input, parent_id)
    values (towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint), p_process_kind, p_ref,
            _kind.supervisor is not null, _first, _deadline, coalesce(p_max_attempts, _kind.max_attempts), p_actor, p_now,
            p_input, p_parent)
    on conflict on constraint process_ref_uq do nothing
    returning p.* into _process;
    if not found then
        select * into _process from towpath.process p where p.process_kind = p_process_kind and p.ref = p_ref;
        return jsonb_build_object('ok', true, 'process_id', _process.process_id, 'duplicate', true,
                                  'state', _process.state);
    end if;
    perform towpath._process_fact(_process, 'started', null,
        jsonb_build_object('check_at', case when _first > p_now then _first end, 'deadline_at', _deadline), p_actor, p_now);
    if _first <= p_now then
        perform towpath._process_supervise(_process, p_now);
    end if;
    return jsonb_build_object('ok', true, 'process_id', _process.process_id, 'duplicate', false,
        'state', (select p.state from towpath.process p where p.process_id = _process.process_id));
end;
$$;

-- _process_value_refusal: why a value cannot be the input, a result or a signal's payload, or null.
create or replace function towpath._process_value_refusal(p_value jsonb, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return case when not towpath._result_fits(p_value) then
        towpath._invalid(p_field, 'must have at most 64 KiB and 64 levels; store it with towpath.payload_put and pass its reference') end;
end;
$$;

-- fn_process_start_many: the rules of fn_process_start for many processes of one kind, all or none, in one call.
-- p_processes is an array of {ref, input, check_at, deadline_at, max_attempts}, at most 10,000.
--
-- Answers: {ok, process_ids: [...], duplicates: how many existed}; gate_closed, not_found (the kind), not_authorised,
-- invalid {field, detail, index}.
create or replace function towpath.fn_process_start_many(
    p_process_kind text, p_processes jsonb, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := towpath.fn_now();
    _kind towpath.process_kind;
    _refusal jsonb;
    _made record;
begin
    if jsonb_typeof(p_processes) is distinct from 'array' or jsonb_array_length(p_processes) > 10000 then
        return towpath._invalid('processes', 'must be an array of at most 10000 processes');
    end if;
    _refusal := towpath._process_start_refusal(p_process_kind, 'any', null, null, null, p_actor);
    if _refusal is not null then
        return _refusal;
    end if;
    begin
        -- Every row that is not plainly good gets its reason.
        select coalesce(towpath._process_start_refusal(p_process_kind, r.ref, r.check_at, r.deadline_at, r.max_attempts, null),
                        towpath._process_value_refusal(r.input, 'input')) || jsonb_build_object('index', r.no - 1)
          into _refusal
          from rows from (jsonb_to_recordset(p_processes) as (
                   ref text, input jsonb, check_at timestamptz, deadline_at timestamptz, max_attempts integer))
               with ordinality as r(ref, input, check_at, deadline_at, max_attempts, no)
         where (towpath._key_fits(r.ref) and octet_length(r.ref) <= 500 and r.check_at is null and r.deadline_at is null
                and r.max_attempts is null and (r.input is null or towpath._result_fits(r.input))) is not true
           and coalesce(towpath._process_start_refusal(p_process_kind, r.ref, r.check_at, r.deadline_at, r.max_attempts, null),
                        towpath._process_value_refusal(r.input, 'input')) is not null
         limit 1;
    exception when data_exception then
        return towpath._invalid('processes', sqlerrm);
    end;
    if _refusal is not null then
        return _refusal;
    end if;
    if jsonb_array_length(p_processes) = 0 then
        return jsonb_build_object('ok', true, 'process_ids', '[]'::jsonb, 'duplicates', 0);
    end if;
    select * into _kind from towpath.process_kind k where k.process_kind = p_process_kind;
    if _kind.runs_as = 'task' then
        select array_agg((a.answer ->> 'process_id')::uuid order by a.no) as process_ids,
               array_agg((a.answer -> 'duplicate')::boolean order by a.no) as duplicates
          into _made
          from (select r.no, towpath._process_start(p_process_kind, r.ref, r.check_at, r.deadline_at, r.max_attempts,
                           coalesce(p_actor, session_user), r.input, null, _now) as answer
                  from rows from (jsonb_to_recordset(p_processes) as (
                           ref text, input jsonb, check_at timestamptz, deadline_at timestamptz, max_attempts integer))
                       with ordinality as r(ref, input, check_at, deadline_at, max_attempts, no)) a;
    else
        select * into _made from towpath._process_start_rows(_kind, p_processes, coalesce(p_actor, session_user), null, _now);
    end if;
    return jsonb_build_object('ok', true, 'process_ids', to_jsonb(_made.process_ids),
                              'duplicates', cardinality(array_positions(_made.duplicates, true)));
end;
$$;

grant execute on function towpath.fn_process_start(text, text, timestamptz, timestamptz, integer, text, jsonb),
    towpath.fn_process_start_many(text, jsonb, text) to towpath_producer, workflow_admin;
