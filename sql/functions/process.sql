-- Processes: what happens to them, and how they end.
--
-- Supervisors and handlers are written with the private functions here. Their
-- callers hold the process row (_process_lock) and pass the moment they read. Even the short ones
-- are plpgsql, whose plans are kept: an SQL function with a search_path is planned at every call.

-- _process_lock: the process, locked; all nulls if there is none.
create or replace function towpath._process_lock(p_process_id uuid) returns towpath.process
    language plpgsql
as $$
declare
    _process towpath.process;
begin
    select * into _process from towpath.process p where p.process_id = p_process_id for update;
    return _process;
end;
$$;

-- _process_find: the process of a kind and a business id, locked; all nulls if there is none.
create or replace function towpath._process_find(p_process_kind text, p_ref text) returns towpath.process
    language plpgsql
as $$
declare
    _process towpath.process;
begin
    select * into _process from towpath.process p where p.process_kind = p_process_kind and p.ref = p_ref for update;
    return _process;
end;
$$;

-- _process_ref: the ref as payloads carry it: a number if it is one.
create or replace function towpath._process_ref(p_ref text) returns jsonb
    language plpgsql immutable
as $$
begin
    return case when p_ref ~ '^(0|[1-9][0-9]{0,17})$' then to_jsonb(p_ref::bigint) else to_jsonb(p_ref) end;
end;
$$;

-- _process_fact: states a fact and tells the kind's recorder, which may refuse by raising.
--
-- A detail with a denied key is a bug of the caller and refused by the table.
create or replace function towpath._process_fact(
    p_process towpath.process, p_fact text, p_attempt_no integer, p_detail jsonb, p_actor text, p_now timestamptz,
    p_value jsonb default null) returns void
    language plpgsql
as $$
declare
    _kind towpath.process_kind;
    _detail jsonb := jsonb_strip_nulls(coalesce(p_detail, '{}'));
    _problem text;
begin
    insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at, value)
    select p_process.process_id, coalesce(max(f.fact_no), 0) + 1, p_fact, p_attempt_no, _detail,
           coalesce(p_actor, session_user), p_now, p_value
      from towpath.process_fact f where f.process_id = p_process.process_id;
    select * into _kind from towpath.process_kind k where k.process_kind = p_process.process_kind;
    if _kind.recorder is null then
        return;
    end if;
    -- What fn_process_kind_put looked at may have been dropped or changed since.
    _problem := towpath._function_problem(_kind.recorder);
    if _problem is not null then
        raise exception 'the recorder of %: %', _kind.process_kind, _problem;
    end if;
    execute format('select %I.%I($1)', split_part(_kind.recorder, '.', 1), split_part(_kind.recorder, '.', 2))
        using jsonb_build_object('process_id', p_process.process_id, 'fact', p_fact, 'attempt_no', p_attempt_no,
            'detail', _detail, 'actor', coalesce(p_actor, session_user), 'recorded_at', p_now,
            _kind.ref_field, towpath._process_ref(p_process.ref));
end;
$$;

-- _process_check: when to look at the process again. Never after its deadline, unless an attempt is
-- running that may still succeed.
create or replace function towpath._process_check(p_process towpath.process, p_check_at timestamptz) returns void
    language plpgsql
as $$
begin
    update towpath.process p set next_check_at = p_check_at
     where p.process_id = p_process.process_id and p.finished_at is null and p.next_check_at <> p_check_at;
end;
$$;

-- _process_end: unfinished -> succeeded | gave_up | cancelled | invalid. An attempt that was not begun
-- goes with its job; one that is running may still report, and that is recorded as late. A parent that waits is told.
--
-- Lock order: a child is locked before its parent. A parent locks no child.
create or replace function towpath._process_end(
    p_process towpath.process, p_state text, p_attempt_no integer, p_detail jsonb, p_actor text, p_now timestamptz,
    p_result jsonb default null) returns void
    language plpgsql
as $$
declare
    _job_id uuid;
    _parent towpath.process;
begin
    update towpath.process_attempt a set outcome = 'superseded', ended_at = p_now
     where a.process_id = p_process.process_id and a.outcome is null and a.begun_at is null
    returning a.job_id into _job_id;
    if found then
        -- While the substrate's gate is closed the job stays, and finds its attempt ended.
        perform towpath._job_end(_job_id, 'cancelled', 'its process has ended: ' || p_state, 'process');
    end if;
    update towpath.process p set state = p_state, finished_at = p_now, next_check_at = null
     where p.process_id = p_process.process_id and p.finished_at is null;
    if not found then
        raise exception 'process % has ended already', p_process.process_id;
    end if;
    perform towpath._process_fact(p_process, p_state, p_attempt_no, p_detail, p_actor, p_now, p_result);
    if p_process.parent_id is not null then
        _parent := towpath._process_lock(p_process.parent_id);
        if _parent.finished_at is null then
            perform towpath._process_signal(_parent, 'process:' || p_process.process_id,
                jsonb_build_object('process_id', p_process.process_id, 'state', p_state, 'result', p_result), 'process', p_now);
        end if;
    end if;
end;
$$;

-- _process_hold: open -> held. An operator decides; only the deadline still applies.
create or replace function towpath._process_hold(
    p_process towpath.process, p_attempt_no integer, p_why text, p_now timestamptz) returns void
    language plpgsql
as $$
begin
    update towpath.process p set state = 'held', next_check_at = p.deadline_at
     where p.process_id = p_process.process_id and p.state = 'open';
    perform towpath._process_fact(p_process, 'held', p_attempt_no, jsonb_build_object('why', p_why), 'supervisor', p_now);
end;
$$;

-- _process_attempt: schedules the next attempt: a job, due at p_due_at. Answers its number, or null
-- while a gate is closed; then the process is looked at again later. The caller has made sure
-- that no attempt is outstanding, and the table refuses a second one.
create or replace function towpath._process_attempt(p_process towpath.process, p_due_at timestamptz, p_now timestamptz)
    returns integer
    language plpgsql
as $$
declare
    _kind towpath.process_kind;
    _no integer;
    _due timestamptz := greatest(coalesce(p_due_at, p_now), p_now);
    _look timestamptz;
    _payload jsonb;
    _job_id uuid;
begin
    select * into _kind from towpath.process_kind k where k.process_kind = p_process.process_kind;
    if not towpath._gate_open('process.enabled') or not towpath._gate_open('queue.job_substrate.enabled') then
        perform towpath._process_check(p_process, p_now + make_interval(secs => _kind.check_seconds));
        return null;
    end if;
    select coalesce(max(a.attempt_no), 0) + 1 into _no
      from towpath.process_attempt a where a.process_id = p_process.process_id;
    _payload := case when _kind.runs_as <> 'task' then
        jsonb_build_object('process_id', p_process.process_id, 'attempt_no', _no)
    else jsonb_strip_nulls(jsonb_build_object('task_type', _kind.task_kind, 'db_function', _kind.db_function,
        'before_handler', _kind.before_handler, 'success_handler', _kind.success_handler,
        'error_handler', _kind.error_handler, 'process_id', p_process.process_id, 'attempt_no', _no,
        _kind.ref_field, towpath._process_ref(p_process.ref))) end;
    _job_id := towpath._process_job(_kind, p_process.process_id, _payload, _due, p_now);
    _look := _due + make_interval(secs => _kind.pickup_seconds);
    insert into towpath.process_attempt (process_id, attempt_no, job_id, scheduled_at, due_at, lease_until)
    values (p_process.process_id, _no, _job_id, p_now, _due, _look);
    -- A handler's attempt does not set the check when it begins, so it is looked at as early as its lease can end.
    perform towpath._process_check(p_process, least(p_process.deadline_at,
        case _kind.runs_as when 'task' then _look
                           else _due + make_interval(secs => least(_kind.lease_seconds, _kind.pickup_seconds)) end));
    perform towpath._process_fact(p_process, 'scheduled', _no,
        jsonb_build_object('job_id', _job_id, 'due_at', case when _due > p_now then _due end), 'supervisor', p_now);
    return _no;
end;
$$;

-- _process_job: enqueues the job of one attempt. Straight-line: a batch of one costs twice as much. Without a key: that
-- there is one attempt is sure, and jobs without one cost less.
create or replace function towpath._process_job(
    p_kind towpath.process_kind, p_process_id uuid, p_payload jsonb, p_due_at timestamptz, p_now timestamptz) returns uuid
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
as $$
declare
    _executor text := towpath._process_executor(p_kind);
    _lane integer := towpath._job_lane(p_kind.task_kind, _executor, 100, null);
    _job_id uuid := towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint);
begin
    with ready as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
        values (_lane, greatest(p_due_at, (select f.floor_at from towpath.job_floor f where f.lane = _lane
                                            order by f.floor_no desc limit 1)), _job_id, 0, 0, true))
    insert into towpath.job (job_id, job_kind, executor, source_ref, payload_json, priority, scheduled_at, max_attempts,
                             actor, run_id, created_at, traceparent)
    values (_job_id, p_kind.task_kind, _executor, 'process:' || p_process_id, p_payload, 100, p_due_at, 3,
            towpath._own_actor('process', p_kind.process_kind), p_process_id, p_now, towpath._traceparent());
    if p_due_at <= p_now then
        perform towpath._job_wake(array[_lane]);
    end if;
    return _job_id;
end;
$$;

-- _process_executor: who runs the attempts of a kind. A handler may be of any executor: the one that is subscribed. Null if
-- none is yet, or several are: then the one that claims the attempt's job.
create or replace function towpath._process_executor(p_kind towpath.process_kind) returns text
    language plpgsql stable
as $$
begin
    return case p_kind.runs_as when 'handler' then
        (select e.executor from towpath.job_kind_executor e where e.job_kind = p_kind.task_kind) else 'PG_worker' end;
end;
$$;

-- _process_expire: an outstanding attempt whose time has run out becomes lost (P08). One that was
-- never begun and whose job still exists is only late: it gets more time. Answers whether one was
-- lost.
create or replace function towpath._process_expire(p_process towpath.process, p_now timestamptz) returns boolean
    language plpgsql
as $$
declare
    _attempt towpath.process_attempt;
    _look timestamptz;
begin
    select * into _attempt from towpath.process_attempt a
     where a.process_id = p_process.process_id and a.outcome is null and a.lease_until <= p_now;
    if not found then
        return false;
    end if;
    if _attempt.begun_at is null and towpath._job_unfinished(_attempt.job_id) then
        select p_now + make_interval(secs => k.pickup_seconds) into _look
          from towpath.process_kind k where k.process_kind = p_process.process_kind;
        update towpath.process_attempt a set lease_until = _look
         where a.process_id = p_process.process_id and a.attempt_no = _attempt.attempt_no;
        return false;
    end if;
    update towpath.process_attempt a set outcome = 'lost', ended_at = p_now
     where a.process_id = p_process.process_id and a.attempt_no = _attempt.attempt_no;
    perform towpath._process_fact(p_process, 'lost', _attempt.attempt_no, jsonb_build_object(
        'begun', _attempt.begun_at is not null, 'worker', _attempt.worker, 'job_id', _attempt.job_id,
        'lease_until', _attempt.lease_until), 'supervisor', p_now);
    return true;
end;
$$;

-- _process_supervise: runs the kind's supervisor now. It never raises: what goes wrong is recorded,
-- and the process is looked at again. A process supervised from outside is only marked as due.
-- Answers whether it went well.
create or replace function towpath._process_supervise(p_process towpath.process, p_now timestamptz) returns boolean
    language plpgsql
as $$
declare
    _kind towpath.process_kind;
    _result jsonb;
    _problem text;
begin
    select * into _kind from towpath.process_kind k where k.process_kind = p_process.process_kind;
    if _kind.supervisor is null then
        perform towpath._process_check(p_process, p_now);
        return true;
    end if;
    if _kind.supervisor = 'towpath.process_supervisor' then
        perform towpath._process_decide(p_process, p_now);
        return true;
    end if;
    _problem := towpath._function_problem(_kind.supervisor);
    if _problem is null then
        _result := towpath.run_function(_kind.supervisor, jsonb_build_object('task_type', 'db_function',
            'db_function', _kind.supervisor, 'process_id', p_process.process_id,
            _kind.ref_field, towpath._process_ref(p_process.ref)));
        _problem := coalesce(nullif(_result->>'error', ''), nullif(_result->>'validation_failure_message', ''));
    end if;
    if _problem is null then
        -- A supervisor that named no time is asked again, so that none can stop the clock.
        update towpath.process p
           set next_check_at = least(p_now + make_interval(secs => _kind.check_seconds), p.deadline_at)
         where p.process_id = p_process.process_id and p.finished_at is null
           and p.next_check_at <= p_now and p.deadline_at > p_now;
        return true;
    end if;
    perform towpath._task_error('supervisor', _problem, null, null, 'db_function', _kind.supervisor,
        p_process.process_id, null, jsonb_build_object('process_kind', _kind.process_kind, 'ref', p_process.ref));
    perform towpath._process_check(p_process, p_now + make_interval(secs => _kind.check_seconds));
    return false;
end;
$$;
