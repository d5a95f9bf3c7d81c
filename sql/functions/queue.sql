-- The queue as operators see it: heartbeats, pauses.

-- fn_queue_heartbeat_tick: the heartbeat of an executor (Q13). Its name is the registered one, or that followed by @ and
-- the name of the process; then its kind is the registered one, and may be null. p_kinds are the kinds that the
-- process p_lease_owner handles.
--
-- Answers: {ok, executor_name, ticks_total}; gate_closed, invalid.
create or replace function towpath.fn_queue_heartbeat_tick(
    p_executor_name text, p_executor_kind text, p_status text default 'ok', p_current_job_id uuid default null,
    p_lease_owner text default null, p_metadata jsonb default '{}', p_kinds text[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.heartbeat.enabled');
    _now timestamptz := towpath.fn_now();
    _registered text := (select r.executor from towpath.consumer_registry r
                          where r.executor_id in (p_executor_name, split_part(p_executor_name, '@', 1))
                          order by length(r.executor_id) desc limit 1);
    _kind text := coalesce(p_executor_kind, _registered, 'PG_worker');
    _ticks bigint;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := coalesce(
        towpath._name_refusal(p_executor_name, 'executor_name'),
        case when not towpath._executor_known(_kind) then
            towpath._invalid('executor_kind', towpath._executor_unknown(_kind)) end,
        case when _kind <> _registered then towpath._invalid('executor_kind',
            format('%s is registered as %s, not as %s', p_executor_name, _registered, _kind)) end,
        case when coalesce(p_status, '') not in ('ok', 'warn', 'error') then
            towpath._invalid('status', 'must be one of ok, warn, error') end,
        towpath._key_refusal(p_lease_owner, 'lease_owner'),
        towpath._payload_refusal(coalesce(p_metadata, '{}'), 'metadata'),
        case when p_kinds is not null and p_lease_owner is null then
            towpath._invalid('lease_owner', 'must name the process that handles the kinds') end,
        towpath._names_refusal(p_kinds, 'kinds'));
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.queue_heartbeat as h (executor_name, executor_kind, last_tick_at, last_tick_status, ticks_total,
        current_job_id, lease_owner, metadata, created_at, updated_at)
    values (p_executor_name, _kind, _now, p_status, 1, p_current_job_id, p_lease_owner,
        coalesce(p_metadata, '{}'), _now, _now)
    on conflict (executor_name) do update
       set executor_kind = excluded.executor_kind, last_tick_at = excluded.last_tick_at,
           last_tick_status = excluded.last_tick_status, ticks_total = h.ticks_total + 1,
           current_job_id = excluded.current_job_id, lease_owner = excluded.lease_owner,
           metadata = excluded.metadata, updated_at = excluded.updated_at
    returning h.ticks_total into _ticks;
    if p_kinds is not null then
        perform towpath._queue_worker_see(p_lease_owner, p_executor_name, p_kinds, null, _now);
    end if;
    return jsonb_build_object('ok', true, 'executor_name', p_executor_name, 'ticks_total', _ticks);
end;
$$;

-- _queue_worker_see: notes which kinds a process handles, and forgets some that were not seen for an hour.
create or replace function towpath._queue_worker_see(
    p_lease_owner text, p_executor_name text, p_kinds text[], p_concurrency integer, p_now timestamptz) returns void
    language plpgsql
as $$
begin
    insert into towpath.queue_worker as w (lease_owner, executor_name, kinds, concurrency, seen_at)
    values (p_lease_owner, p_executor_name, array(select distinct k from unnest(p_kinds) k order by k), p_concurrency, p_now)
    on conflict (lease_owner) do update
       set executor_name = excluded.executor_name, kinds = excluded.kinds,
           concurrency = coalesce(excluded.concurrency, w.concurrency), seen_at = excluded.seen_at;
    delete from towpath.queue_worker w
     where w.lease_owner in (select x.lease_owner from towpath.queue_worker x
                              where x.seen_at < p_now - interval '1 hour' limit 100 for update skip locked);
end;
$$;

-- fn_queue_worker_list: the processes that said in a heartbeat which kinds they handle, those of one kind or all. live is
-- false for one that sent no heartbeat for longer than queue.heartbeat.stale_threshold_seconds.
--
-- Answers: {ok, workers: [{lease_owner, executor_name, kinds, concurrency, seen_at, live}]}.
create or replace function towpath.fn_queue_worker_list(p_job_kind text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'workers', coalesce(jsonb_agg(to_jsonb(w) || jsonb_build_object('live',
               w.seen_at >= towpath.fn_now()
                   - interval '1 second' * towpath._config_number('queue.heartbeat.stale_threshold_seconds'))
               order by w.executor_name, w.lease_owner), '[]'))
      from (select * from towpath.queue_worker w where p_job_kind is null or p_job_kind = any(w.kinds)
             order by w.seen_at desc limit 1000) w
$$;

-- fn_queue_heartbeat_forget: removes the heartbeat of an executor that will not come back.
--
-- Answers: {ok, executor_name}; not_found.
create or replace function towpath.fn_queue_heartbeat_forget(p_executor_name text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.queue_heartbeat h where h.executor_name = p_executor_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'executor_name', p_executor_name);
    end if;
    return jsonb_build_object('ok', true, 'executor_name', p_executor_name);
end;
$$;

-- fn_queue_heartbeat_end: an executor stops, so that its silence is not taken for a
-- failure. Only the process that ticked last under this name can say so.
--
-- Answers: {ok, executor_name, ended}; gate_closed.
create or replace function towpath.fn_queue_heartbeat_end(p_executor_name text, p_lease_owner text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.heartbeat.enabled');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    delete from towpath.queue_worker w where w.lease_owner = p_lease_owner;
    delete from towpath.queue_heartbeat h where h.executor_name = p_executor_name and h.lease_owner = p_lease_owner;
    return jsonb_build_object('ok', true, 'executor_name', p_executor_name, 'ended', found);
end;
$$;

-- fn_queue_stale_check: which executors are late, by threshold (warning) and twice the
-- threshold (stale). Reads a view in the caller's own name and changes nothing; it works
-- with every gate closed.
--
-- Answers: {ok, threshold_seconds, fresh, warning, stale, executors: [{executor_name, freshness, ...}]}.
create or replace function towpath.fn_queue_stale_check(p_threshold_seconds integer default null) returns jsonb
    language plpgsql stable security invoker
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    select jsonb_build_object('ok', true,
               'threshold_seconds', coalesce(p_threshold_seconds, max(h.stale_threshold_seconds)),
               'fresh', count(*) filter (where h.verdict = 'fresh'),
               'warning', count(*) filter (where h.verdict = 'warning'),
               'stale', count(*) filter (where h.verdict = 'stale'),
               'executors', coalesce(jsonb_agg(jsonb_build_object(
                   'executor_name', h.executor_name, 'executor_kind', h.executor_kind, 'freshness', h.verdict,
                   'last_tick_at', h.last_tick_at, 'seconds_since_tick', h.seconds_since_tick,
                   'last_tick_status', h.last_tick_status) order by h.executor_name), '[]'))
      into _answer
      from (select h.*, case
                     when p_threshold_seconds is null then h.freshness
                     when h.seconds_since_tick <= p_threshold_seconds then 'fresh'
                     when h.seconds_since_tick <= p_threshold_seconds * 2::bigint then 'warning'
                     else 'stale' end as verdict
              from towpath.v_queue_heartbeat h) h;
    return _answer;
end;
$$;

-- fn_queue_pause: jobs of this kind are not claimed until it is resumed (Q17). Running jobs continue, and
-- enqueueing still works. Pausing twice keeps the first reason.
--
-- Answers: {ok, job_kind, changed}; invalid.
create or replace function towpath.fn_queue_pause(p_job_kind text, p_actor text, p_reason text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _changed boolean;
    _refusal jsonb := coalesce(towpath._name_refusal(p_job_kind, 'job_kind'), towpath._name_refusal(p_actor, 'actor'),
                               towpath._note_refusal(p_reason, 'reason'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.job_pause (job_kind, paused_at, paused_by, reason)
    values (p_job_kind, towpath.fn_now(), p_actor, coalesce(p_reason, 'paused'))
    on conflict (job_kind) do nothing;
    _changed := found;
    if _changed then
        insert into towpath.job_pause_log (at, job_kind, action, actor, reason)
        values (towpath.fn_now(), p_job_kind, 'pause', p_actor, coalesce(p_reason, 'paused'));
    end if;
    return jsonb_build_object('ok', true, 'job_kind', p_job_kind, 'changed', _changed);
end;
$$;

-- fn_queue_resume: ends a pause and wakes who waits. job_pause_log keeps who did it.
--
-- Answers: {ok, job_kind, changed, by}; invalid.
create or replace function towpath.fn_queue_resume(p_job_kind text, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _changed boolean;
    _refusal jsonb := towpath._name_refusal(p_actor, 'actor');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    delete from towpath.job_pause p where p.job_kind = p_job_kind;
    _changed := found;
    if _changed then
        insert into towpath.job_pause_log (at, job_kind, action, actor)
        values (towpath.fn_now(), p_job_kind, 'resume', p_actor);
        perform towpath._job_wake(array(select l.lane from towpath.job_lane l where l.job_kind = p_job_kind));
    end if;
    return jsonb_build_object('ok', true, 'job_kind', p_job_kind, 'changed', _changed, 'by', p_actor);
end;
$$;

-- fn_queue_paused: the kinds that are paused, by whom and why.
create or replace function towpath.fn_queue_paused() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'paused', coalesce(jsonb_agg(to_jsonb(p) order by p.job_kind), '[]'))
      from towpath.job_pause p
$$;

-- fn_queue_pause_history: who paused and resumed what, newest first; of one kind or of all.
--
-- Answers: {ok, history: [{at, job_kind, action, actor, reason}]}.
create or replace function towpath.fn_queue_pause_history(p_job_kind text default null, p_limit integer default 100)
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'history', coalesce(jsonb_agg(to_jsonb(h) - 'log_id' order by h.log_id desc), '[]'))
      from (select h.* from towpath.job_pause_log h
             where p_job_kind is null or h.job_kind = p_job_kind
             order by h.log_id desc limit least(greatest(coalesce(p_limit, 100), 1), 1000)) h
$$;

-- fn_queue_chart: ended attempts by minute, kind and outcome since a moment, for charts. What is
-- not folded yet is missing from the newest minute.
create or replace function towpath.fn_queue_chart(p_since timestamptz default null, p_job_kind text default null)
    returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _since timestamptz := coalesce(p_since, towpath.fn_now() - interval '1 hour');
    _answer jsonb;
begin
    select jsonb_build_object('ok', true, 'since', _since, 'minutes', coalesce(jsonb_agg(to_jsonb(m)
               order by m.minute_at, m.job_kind, m.outcome), '[]'))
      into _answer
      from (select m.* from towpath.job_minute m
             where m.minute_at >= _since and (p_job_kind is null or m.job_kind = p_job_kind)
             order by m.minute_at desc limit 10000) m;
    return _answer;
end;
$$;

grant execute on function towpath.fn_queue_heartbeat_tick(text, text, text, uuid, text, jsonb, text[]) to worker_service_user;
grant execute on function towpath.fn_queue_worker_list(text) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_queue_heartbeat_end(text, text) to worker_service_user;
grant execute on function towpath.fn_queue_heartbeat_forget(text) to workflow_admin;
grant execute on function towpath.fn_queue_stale_check(integer)
    to workflow_admin, towpath_observer, towpath_maintainer;
grant execute on function towpath.fn_queue_pause(text, text, text) to workflow_admin;
grant execute on function towpath.fn_queue_resume(text, text) to workflow_admin;
grant execute on function towpath.fn_queue_pause_history(text, integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_queue_paused() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_queue_chart(timestamptz, text) to workflow_admin, towpath_observer;
