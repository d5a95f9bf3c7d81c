-- Why: the reasons, in words, why a job is not running.

-- _lane_takers: the executors that may claim from a lane: the row that decides is enabled, the executor registered, the
-- priority high enough. As in _job_lane_set.
create or replace function towpath._lane_takers(p_lane towpath.job_lane) returns text[]
    language sql stable
as $$
    select coalesce(array_agg(s.executor_id::text order by s.executor_id), '{}')
      from (select distinct on (s.executor_id) s.executor_id, s.enabled, s.priority_floor
              from towpath.job_subscription s
             where (s.executor_kind = p_lane.executor
                    or p_lane.executor is null and (s.job_kind is not null or s.executor_kind = 'PG_worker'))
               and (s.job_kind is null or s.job_kind = p_lane.job_kind)
               and (s.event_domain is null or s.event_domain = p_lane.event_domain)
             order by s.executor_id, s.job_kind nulls last, s.event_domain nulls last) s
     where s.enabled and p_lane.priority >= s.priority_floor
       and exists (select 1 from towpath.consumer_registry c where c.executor_id = s.executor_id)
$$;

-- _lane_unhandled: why no live worker runs the jobs of a lane; null if one does, or if the gate of heartbeats is closed, so
-- that it is unknown. A process with a recent heartbeat that did not say which kinds it handles may handle all.
--
-- Codes: wrong_executor, no_subscription, no_worker, no_transport, no_handler.
create or replace function towpath._lane_unhandled(p_lane towpath.job_lane) returns jsonb
    language plpgsql stable
as $$
declare
    _seconds constant numeric := towpath._config_number('queue.heartbeat.stale_threshold_seconds');
    _since timestamptz := towpath.fn_now() - interval '1 second' * _seconds;
    _takers text[];
    _handled text[];
    _other record;
    _answer jsonb := jsonb_build_object('job_kind', p_lane.job_kind, 'executor', p_lane.executor);
begin
    if not towpath._gate_open('queue.heartbeat.enabled') then
        return null;
    end if;
    _takers := towpath._lane_takers(p_lane);
    if exists (select 1 from towpath.queue_worker w
                where w.seen_at >= _since and p_lane.job_kind = any(w.kinds)
                  and (w.executor_name = any(_takers) or split_part(w.executor_name, '@', 1) = any(_takers)))
       or exists (select 1 from towpath.queue_heartbeat h
                   where h.last_tick_at >= _since
                     and (h.executor_name = any(_takers) or split_part(h.executor_name, '@', 1) = any(_takers))
                     and not exists (select 1 from towpath.queue_worker w
                                      where w.lease_owner = h.lease_owner or w.executor_name = h.executor_name)) then
        return null;
    end if;
    select r.executor_id, r.executor into _other
      from towpath.queue_worker w
      join towpath.consumer_registry r on r.executor_id in (w.executor_name, split_part(w.executor_name, '@', 1))
     where w.seen_at >= _since and p_lane.job_kind = any(w.kinds) and r.executor <> p_lane.executor
     order by w.seen_at desc limit 1;
    if found then
        return _answer || jsonb_build_object('code', 'wrong_executor', 'executor_id', _other.executor_id,
            'wanted', _other.executor, 'text', format('no live worker of executor %s handles %s; %s, of executor %s, does: '
                'did you mean --executor %s?', p_lane.executor, p_lane.job_kind, _other.executor_id, _other.executor, _other.executor));
    end if;
    if _takers = '{}' then
        return _answer || jsonb_build_object('code', 'no_subscription',
            'text', format('no enabled subscription covers kind %s, executor %s, domain %s', p_lane.job_kind,
                           coalesce(p_lane.executor, 'any'), coalesce(p_lane.event_domain, 'none')));
    end if;
    select array_agg(distinct k order by k) into _handled
      from towpath.queue_worker w cross join unnest(w.kinds) k
     where w.seen_at >= _since and (w.executor_name = any(_takers) or split_part(w.executor_name, '@', 1) = any(_takers));
    _answer := _answer || jsonb_build_object('executor_id', _takers[1]);
    if _handled is null then
        return _answer || jsonb_build_object('code', 'no_worker',
            'text', format('no worker of %s is running: none has sent a heartbeat in the last %s s',
                           array_to_string(_takers[1:5], ' or '), _seconds));
    end if;
    if p_lane.job_kind in ('email', 'sms') and 'db_function' = any(_handled) then
        return _answer || jsonb_build_object('code', 'no_transport',
            'text', format('no live worker sends %s: none has a transport; set %s_transport and restart',
                case p_lane.job_kind when 'email' then 'e-mail' else 'SMS' end,
                case p_lane.job_kind when 'email' then 'mail' else 'sms' end));
    end if;
    return _answer || jsonb_build_object('code', 'no_handler', 'handled', to_jsonb(_handled),
        'text', format('no live worker has a handler for %s: those of %s handle %s', p_lane.job_kind,
            array_to_string(_takers[1:5], ' and '),
            array_to_string(_handled[1:10], ', ') || case when cardinality(_handled) > 10 then ', …' else '' end));
end;
$$;

-- _job_why_live: the reasons of an unfinished job.
create or replace function towpath._job_why_live(p_job_id uuid) returns jsonb
    language plpgsql stable
as $$
declare
    _now timestamptz := towpath.fn_now();
    _live record;
    _lane towpath.job_lane;
    _pause towpath.job_pause;
    _gate text;
    _row record;
    _reasons jsonb := '[]';
    _takers integer := 0;
begin
    select * into _live from towpath._job_now_of(p_job_id);
    select * into _lane from towpath.job_lane l where l.lane = _live.lane;
    foreach _gate in array array['queue.job_substrate.enabled', 'queue.worker.enabled'] loop
        if not towpath._gate_open(_gate) then
            _reasons := _reasons || jsonb_build_object('code', 'gate_closed', 'gate', _gate,
                'text', format('the gate %s is closed', _gate));
        end if;
    end loop;
    if _live.state in (1, 2) then
        return _reasons || jsonb_build_object(
            'code', case when _live.lease_until < _now then 'lease_expired' else 'leased' end,
            'lease_owner', _live.lease_owner, 'lease_until', _live.lease_until,
            'text', case when _live.lease_until < _now
                then format('the lease of %s expired at %s; the reaper will release the job', _live.lease_owner, _live.lease_until)
                else format('%s has leased it (attempt %s) until %s', _live.lease_owner, _live.attempts, _live.lease_until)
                end);
    end if;
    if _live.blocked > 0 then
        for _row in
            select e.parent_id, e.on_failure, coalesce(q.state, 'cleaned') as state
              from towpath.job_edge e left join towpath.job_queue q on q.job_id = e.parent_id
             where e.child_id = _live.job_id and not e.satisfied order by e.parent_id limit 20
        loop
            _reasons := _reasons || jsonb_build_object('code', 'blocked', 'job_id', _row.parent_id, 'state', _row.state,
                'text', format('it is waiting for job %s, which is %s%s', _row.parent_id, _row.state,
                    case _row.state when 'dead_letter' then '; replay that job to continue'
                                    when 'cancelled' then '; it will never run, cancel it too' else '' end));
        end loop;
    end if;
    if _live.due_at > _now then
        _reasons := _reasons || jsonb_build_object(
            'code', case when _live.state = 3 then 'retry_backoff' else 'not_due' end, 'until', _live.due_at,
            'text', case when _live.state = 3
                then format('attempt %s failed; the next attempt is at %s', _live.attempts, _live.due_at)
                else format('it is scheduled for %s', _live.due_at) end);
    end if;
    select * into _row from towpath.loop_fault f where f.loop_name = 'claim' and f.item = p_job_id::text;
    if found then
        _reasons := _reasons || jsonb_build_object('code', 'set_aside', 'error', _row.error, 'until', _row.next_try_at,
            'text', format('claiming it failed, so it was set aside until %s: %s; see: towpath fault list',
                           case when _row.state = 'dropped' then 'you retry it with: towpath fault retry' else _row.next_try_at::text end,
                           _row.error));
    end if;
    select * into _pause from towpath.job_pause p where p.job_kind = _lane.job_kind;
    if found then
        _reasons := _reasons || jsonb_build_object('code', 'paused', 'job_kind', _lane.job_kind,
            'text', format('%s paused the kind %s at %s: %s', _pause.paused_by, _lane.job_kind, _pause.paused_at,
                           _pause.reason));
    end if;
    -- For every executor the row that decides about this lane, as in _job_lane_set.
    for _row in
        select distinct on (s.executor_id) s.executor_id, s.enabled, s.priority_floor, s.max_parallel,
               exists (select 1 from towpath.consumer_registry c where c.executor_id = s.executor_id) as registered,
               case when s.max_parallel is not null then
                   coalesce((select p.held from towpath.job_parallel p where p.subscription_no = s.subscription_no
                              order by p.change_no desc limit 1), 0)
                   - coalesce((select sum(r.n) from towpath.job_parallel_release r
                                where r.subscription_no = s.subscription_no), 0) end as held,
               (select string_agg(o.lease_owner, ', ') from (select distinct v.lease_owner from towpath._job_now v
                 where v.subscription_no = s.subscription_no and v.state in (1, 2)
                   and s.max_parallel is not null limit 5) o) as owners
          from towpath.job_subscription s
         where (s.executor_kind = _lane.executor
                or _lane.executor is null and (s.job_kind is not null or s.executor_kind = 'PG_worker'))
           and (s.job_kind is null or s.job_kind = _lane.job_kind)
           and (s.event_domain is null or s.event_domain = _lane.event_domain)
         order by s.executor_id, s.job_kind nulls last, s.event_domain nulls last
    loop
        if not _row.enabled then
            _reasons := _reasons || jsonb_build_object('code', 'subscription_disabled', 'executor_id', _row.executor_id,
                'text', format('the subscription of %s is disabled', _row.executor_id));
        elsif not _row.registered then
            _reasons := _reasons || jsonb_build_object('code', 'not_registered', 'executor_id', _row.executor_id,
                'text', format('%s is not registered', _row.executor_id));
        elsif _lane.priority < _row.priority_floor then
            _reasons := _reasons || jsonb_build_object('code', 'priority_floor', 'executor_id', _row.executor_id,
                'text', format('%s claims only priority %s and above, this job has %s', _row.executor_id,
                               _row.priority_floor, _lane.priority));
        elsif _row.held >= _row.max_parallel then
            _reasons := _reasons || jsonb_build_object('code', 'max_parallel', 'executor_id', _row.executor_id,
                'text', format('%s is running %s of at most %s jobs (%s)', _row.executor_id, _row.held, _row.max_parallel,
                               coalesce(_row.owners, 'nobody')));
        else
            _takers := _takers + 1;
        end if;
    end loop;
    if _takers = 0 and not exists (
           select 1 from jsonb_array_elements(_reasons) r
            where r ->> 'code' in ('subscription_disabled', 'not_registered', 'priority_floor', 'max_parallel')) then
        _reasons := _reasons || coalesce(towpath._lane_unhandled(_lane), jsonb_build_object('code', 'no_subscription',
            'job_kind', _lane.job_kind, 'executor', _lane.executor,
            'text', format('no enabled subscription covers kind %s, executor %s, domain %s', _lane.job_kind,
                           coalesce(_lane.executor, 'any'), coalesce(_lane.event_domain, 'none'))));
    end if;
    if _takers > 0 then
        -- An executor could take it, so the reasons of the others do not matter.
        select coalesce(jsonb_agg(r), '[]') into _reasons from jsonb_array_elements(_reasons) r
         where r ->> 'code' not in ('subscription_disabled', 'not_registered', 'priority_floor', 'max_parallel');
        _reasons := _reasons || coalesce(towpath._lane_unhandled(_lane), '[]');
    end if;
    if _reasons = '[]' then
        _reasons := jsonb_build_array(jsonb_build_object('code', 'ready',
            'ahead', (select count(*)
                        from (select 1
                                from (select r.due_at, unnest(coalesce(r.job_ids, array[r.job_id])) as job_id
                                        from towpath.job_ready r
                                       where r.lane = _live.lane
                                         and (r.due_at, r.job_id) < (_live.due_at, _live.job_id)) r
                               where (r.due_at, r.job_id) < (_live.due_at, _live.job_id)
                               limit 10000) x),
            'text', case when towpath._gate_open('queue.heartbeat.enabled')
                then 'it can be claimed, and a worker that may run it is alive; jobs of its lane that were due earlier run first'
                else 'it can be claimed; whether a worker runs it is not known, because the gate '
                     'queue.heartbeat.enabled is closed' end));
    end if;
    return _reasons;
end;
$$;

-- fn_job_why: why a job is not running, as words for people and codes for programs.
--
-- Codes: gate_closed, leased, lease_expired, blocked, not_due, retry_backoff, paused, subscription_disabled,
-- not_registered, priority_floor, max_parallel, set_aside, ready, finished, and those of _lane_unhandled.
--
-- Answers: {ok, job_id, state, reasons: [{code, text, ...}]}; not_found.
create or replace function towpath.fn_job_why(p_job_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _job record;
begin
    select q.state, q.finished_at, q.last_error into _job from towpath.job_queue q where q.job_id = p_job_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id);
    end if;
    if towpath._job_unfinished(p_job_id) then
        return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', _job.state,
                                  'reasons', towpath._job_why_live(p_job_id));
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', _job.state, 'reasons',
        jsonb_build_array(jsonb_build_object('code', 'finished', 'text', concat_ws(': ',
            format('it finished as %s at %s', _job.state, _job.finished_at), _job.last_error))));
end;
$$;

-- fn_queue_unhandled: the due jobs that no live worker runs, by kind and executor, the kind that waits longest first; with
-- e-mails, SMS and attempts of processes, which are jobs. Counts end at 1000 for each lane. Empty while a gate holds
-- everything, or while no heartbeats are sent because their gate is closed; kinds that are paused are left out.
--
-- Answers: {ok, unhandled: [{job_kind, executor, jobs, oldest_due_at, code, text, ...}]}.
create or replace function towpath.fn_queue_unhandled() returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _answer jsonb;
begin
    if not (towpath._gate_open('queue.job_substrate.enabled') and towpath._gate_open('queue.worker.enabled')) then
        return jsonb_build_object('ok', true, 'unhandled', '[]'::jsonb);
    end if;
    -- Only the lanes with due jobs are asked about: fn_metrics_read does it every few seconds.
    with due as materialized (
        select l, f.floor_at
          from towpath.job_lane l
         cross join lateral (select coalesce((select f.floor_at from towpath.job_floor f where f.lane = l.lane
                                               order by f.floor_no desc limit 1), '-infinity') as floor_at) f
         where l.closed_by is null
           and not exists (select 1 from towpath.job_pause p where p.job_kind = l.job_kind)
           and exists (select 1 from towpath.job_ready r
                        where r.lane = l.lane and r.due_at >= f.floor_at and r.due_at <= _now)
         limit 10000),
    unhandled as materialized (select (d.l).lane, d.floor_at, towpath._lane_unhandled(d.l) as why from due d)
    select coalesce(jsonb_agg(x.why || jsonb_build_object('jobs', x.jobs, 'oldest_due_at', x.oldest)
                              order by x.oldest), '[]')
      into _answer
      from (select u.why, sum(d.jobs) as jobs, min(d.oldest) as oldest
              from unhandled u
             cross join lateral (
                   select sum(coalesce(cardinality(r.job_ids), 1)) as jobs, min(r.due_at) as oldest
                     from (select r.job_ids, r.due_at from towpath.job_ready r
                            where r.lane = u.lane and r.due_at >= u.floor_at and r.due_at <= _now
                            order by r.due_at limit 1000) r) d
             where u.why is not null and d.jobs > 0
             group by u.why order by min(d.oldest) limit 20) x;
    return jsonb_build_object('ok', true, 'unhandled', _answer);
end;
$$;

grant execute on function towpath.fn_queue_unhandled() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_why(uuid) to workflow_admin, towpath_observer;
