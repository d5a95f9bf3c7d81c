-- Supervision: the retry policy that processes share, and the scan that leaves none behind.

-- _process_retry: what to do with an open process that has no outstanding attempt, and does it (P07).
--
--   nothing tried yet                                    ─▶ an attempt, now
--   the last attempt was suspended                       ─▶ an attempt, when its wait is over
--   the last attempt failed permanently                     ─▶ gave_up
--   nobody knows whether it took effect, and the other
--   side does not honour the key                         ─▶ by the kind: held, or an attempt
--   as many attempts as may reach the other side         ─▶ gave_up
--   otherwise                                            ─▶ an attempt, after the backoff
--
-- Every attempt counts, except one that was lost before it was begun: it cannot have reached
-- anybody. So max_attempts bounds what the other side sees. A lost attempt has waited for its
-- lease already and is repeated without a backoff.
--
-- Answers: what it did: attempt, hold, gave_up or wait (a gate is closed).
create or replace function towpath._process_retry(p_process towpath.process, p_now timestamptz) returns text
    language plpgsql
as $$
declare
    _kind towpath.process_kind;
    _last towpath.process_attempt;
    _counted integer;
    _failed integer;
    _due timestamptz;
begin
    select * into _last from towpath.process_attempt a
     where a.process_id = p_process.process_id order by a.attempt_no desc limit 1;
    if not found then
        return case when towpath._process_attempt(p_process, p_now, p_now) is null then 'wait' else 'attempt' end;
    end if;
    if _last.outcome = 'suspended' then
        if _last.retry_at <= p_now or exists (
            select 1 from towpath.process_fact w join towpath.process_fact s on s.process_id = w.process_id
                          and s.fact = 'signalled' and s.name = w.detail->>'signal'
             where w.process_id = p_process.process_id and w.fact = 'suspended' and w.attempt_no = _last.attempt_no) then
            update towpath.process p set waits_for = null
             where p.process_id = p_process.process_id and p.waits_for is not null;
            return case when towpath._process_attempt(p_process, p_now, p_now) is null then 'wait' else 'attempt' end;
        end if;
        perform towpath._process_check(p_process, least(_last.retry_at, p_process.deadline_at));
        return 'wait';
    end if;
    select * into _kind from towpath.process_kind k where k.process_kind = p_process.process_kind;
    select count(*) filter (where a.outcome <> 'suspended' and (a.outcome <> 'lost' or a.begun_at is not null)),
           count(*) filter (where a.outcome in ('transient', 'uncertain'))
      into _counted, _failed
      from towpath.process_attempt a where a.process_id = p_process.process_id;

    if _last.outcome = 'permanent' then
        perform towpath._process_end(p_process, 'gave_up', _last.attempt_no,
            jsonb_build_object('why', 'the last attempt failed permanently'), 'supervisor', p_now);
        return 'gave_up';
    end if;
    if (_last.outcome = 'uncertain' or _last.outcome = 'lost' and _last.begun_at is not null)
       and not _last.key_honoured and _kind.on_uncertain = 'hold'
       and not exists (select 1 from towpath.process_fact f where f.process_id = p_process.process_id
                          and f.fact = 'resolved' and f.attempt_no = _last.attempt_no) then
        perform towpath._process_hold(p_process, _last.attempt_no,
            'the last attempt has an unknown outcome, and a retry could take effect twice', p_now);
        return 'hold';
    end if;
    _due := case when _last.outcome = 'lost' then p_now
        else greatest(coalesce(_last.retry_at, '-infinity'),
                      _last.ended_at + make_interval(secs => _kind.backoff_seconds * 2 ^ least(greatest(_failed - 1, 0), 10)))
        end;
    if _counted >= p_process.max_attempts or _due >= p_process.deadline_at then
        perform towpath._process_end(p_process, 'gave_up', _last.attempt_no,
            jsonb_build_object('attempts', _counted, 'why', case when _counted >= p_process.max_attempts
                then format('all attempts are used: %s of %s', _counted, p_process.max_attempts)
                else 'the next attempt would be after the deadline' end), 'supervisor', p_now);
        return 'gave_up';
    end if;
    return case when towpath._process_attempt(p_process, _due, p_now) is null then 'wait' else 'attempt' end;
end;
$$;

-- _process_decide: process_supervisor for a process that the caller has locked. Answers what it did.
create or replace function towpath._process_decide(p_process towpath.process, p_now timestamptz) returns text
    language plpgsql
as $$
declare
    _until timestamptz;
begin
    perform towpath._process_expire(p_process, p_now);
    if p_process.state <> 'open' then
        return 'wait';
    end if;
    select least(a.lease_until, p_now + make_interval(secs => k.lease_seconds)) into _until
      from towpath.process_attempt a, towpath.process_kind k
     where a.process_id = p_process.process_id and a.outcome is null and k.process_kind = p_process.process_kind;
    if found then
        -- It may be begun at any moment, or its lease extended: looked at again before a lease can have ended.
        perform towpath._process_check(p_process, least(_until, p_process.deadline_at));
        return 'wait';
    end if;
    return towpath._process_retry(p_process, p_now);
end;
$$;

-- process_supervisor: a supervisor that is nothing but the retry policy, for kinds that need no more.
-- Safe to run any number of times at once: it locks the process.
create or replace function towpath.process_supervisor(payload jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _process towpath.process;
    _now timestamptz;
begin
    _process := towpath._process_lock(towpath._uuid_read(payload->>'process_id'));
    _now := towpath.fn_now();
    if _process.process_id is null or not _process.in_database then
        return towpath._envelope_invalid(format('there is no process %s with a function as its supervisor',
                                                coalesce(left(payload->>'process_id', 200), 'null')));
    end if;
    return towpath._envelope_ok(jsonb_build_object('state', _process.state, 'did', towpath._process_decide(_process, _now)));
end;
$$;

-- _process_look: looks at one process whose time has come: what was lost becomes a fact, the deadline
-- ends it, otherwise its supervisor decides. Answers whether that went well.
--
-- The deadline waits for an attempt that is running, at most for its lease: the end should say
-- what happened. It comes even if the kind's recorder fails.
create or replace function towpath._process_look(p_process towpath.process, p_now timestamptz) returns boolean
    language plpgsql
as $$
declare
    _running_until timestamptz;
    _why text;
begin
    perform towpath._process_expire(p_process, p_now);
    if p_process.deadline_at > p_now then
        if p_process.state = 'held' then
            perform towpath._process_check(p_process, p_process.deadline_at);
            return true;
        end if;
        return towpath._process_supervise(p_process, p_now);
    end if;
    select a.lease_until into _running_until from towpath.process_attempt a
     where a.process_id = p_process.process_id and a.outcome is null and a.begun_at is not null;
    if found then
        perform towpath._process_check(p_process, _running_until);
        return true;
    end if;
    perform towpath._process_end(p_process, 'gave_up', null, jsonb_build_object('why', case p_process.state
        when 'held' then 'the deadline passed without a decision' else 'the deadline passed' end), 'deadline', p_now);
    return true;
exception when others then
    get stacked diagnostics _why = message_text;
    perform towpath._task_error('supervisor', _why, null, null, null, 'towpath.fn_process_scan',
        p_process.process_id, null, jsonb_build_object('process_kind', p_process.process_kind, 'ref', p_process.ref));
    if p_process.deadline_at > p_now then
        perform towpath._process_check(p_process, p_now + interval '30 seconds');
        return false;
    end if;
    -- The kind cannot be told, but the process ends.
    update towpath.process p set state = 'gave_up', finished_at = p_now, next_check_at = null
     where p.process_id = p_process.process_id;
    insert into towpath.process_fact (process_id, fact_no, fact, detail, actor, recorded_at)
    select p_process.process_id, coalesce(max(f.fact_no), 0) + 1, 'gave_up',
           jsonb_build_object('why', 'the deadline passed', 'unrecorded', left(_why, 500)), 'deadline', p_now
      from towpath.process_fact f where f.process_id = p_process.process_id;
    return false;
end;
$$;

-- fn_process_scan: looks at the processes whose time has come, the longest overdue first, at most
-- p_limit (1,000), and at as many that are supervised elsewhere but past their deadline (P07). It
-- reads one index of what is due, so open processes that wait cost nothing. Any number of nodes may
-- scan at once: each skips what another holds. One process that fails is recorded and comes back
-- later; a cancelled statement ends the pass after that. One that not even that can be recorded of is
-- set aside (Q22).
--
-- Answers: {ok, checked, failed, more: whether to come back at once, next_check_at: of the first one that
-- waits}; gate_closed.
create or replace function towpath.fn_process_scan(p_limit integer default 100) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set lock_timeout = '5s'
as $$
declare
    _refusal jsonb := towpath._gate_refusal('process.enabled');
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    _aside text[] := towpath._loop_aside('process_scan');
    _process towpath.process;
    _checked integer := 0;
    _failed integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    for _process in
        select * from (select * from towpath.process p
                        where p.finished_at is null and p.in_database and p.next_check_at <= _now
                          and (_aside = '{}' or p.process_id::text <> all (_aside))
                        order by p.next_check_at limit _limit for update skip locked) due
        union all
        select * from (select * from towpath.process p
                        where p.finished_at is null and not p.in_database and p.deadline_at <= _now
                          and p.next_check_at <= _now and (_aside = '{}' or p.process_id::text <> all (_aside))
                        order by p.deadline_at limit _limit for update skip locked) over
    loop
        _checked := _checked + 1;
        begin
            if not towpath._process_look(_process, _now) then
                _failed := _failed + 1;
            end if;
        exception when query_canceled then
            -- A statement timeout: the process that used the time must not be the first again.
            perform towpath._process_check(_process, _now + interval '5 minutes');
            perform towpath._task_error('supervisor', 'the supervisor timed out', null, null, null,
                'towpath.fn_process_scan', _process.process_id, null, jsonb_build_object('process_kind', _process.process_kind));
            return jsonb_build_object('ok', true, 'checked', _checked, 'failed', _failed + 1, 'more', true,
                                      'next_check_at', null);
        when others then
            if towpath._error_passing(sqlstate) then
                raise;
            end if;
            _failed := _failed + 1;
            perform towpath._loop_fault('process_scan', _process.process_id::text, sqlerrm);
        end;
    end loop;
    if _checked < _limit then
        perform towpath._loop_over('process_scan', _now);
    end if;
    return jsonb_build_object('ok', true, 'checked', _checked, 'failed', _failed, 'more', _checked >= _limit,
        'next_check_at', (select min(p.next_check_at) from towpath.process p
                           where p.finished_at is null and p.in_database and p.next_check_at > _now));
end;
$$;

grant execute on function towpath.process_supervisor(jsonb) to worker_service_user;
grant execute on function towpath.fn_process_scan(integer) to towpath_maintainer, workflow_admin;
