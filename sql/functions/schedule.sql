-- Schedules: periodic jobs, exactly once per tick however many nodes run (Q17).
--
-- Cron arithmetic happens outside. A node reads what is due, works out the tick after it and
-- asks to fire; the row's lock and next_at let exactly one of them through.

-- fn_schedule_put: makes or changes a schedule. p_job takes the fields of fn_job_enqueue_many
-- that a template has: job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
-- payload_json, priority, max_attempts. Without an executor each tick goes where an enqueue that names
-- none goes. p_next_at is the first tick.
--
-- Answers: {ok, name, created, next_at}; invalid.
create or replace function towpath.fn_schedule_put(
    p_name text, p_expression text, p_time_zone text, p_job jsonb, p_next_at timestamptz,
    p_catch_up text default 'last', p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _job towpath._job_input;
    _refusal jsonb := coalesce(towpath._name_refusal(p_name, 'name'), towpath._name_refusal(p_expression, 'expression'),
        towpath._name_refusal(_actor, 'actor'), towpath._moment_refusal(p_next_at, 'next_at'));
    _created boolean;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_next_at is null or coalesce(p_catch_up, '') not in ('skip', 'last', 'all')
       or not exists (select 1 from pg_timezone_names z where z.name = p_time_zone) then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'a schedule requires a name, an expression, a known time zone, a next tick and '
                      'a catch-up policy (skip, last, all)');
    end if;
    _job := towpath._job_read(p_job);
    _refusal := towpath._job_refusal(_job);
    if _refusal is not null then
        return _refusal;
    end if;
    -- Without an executor or a number of its own the job gets the default of the day it is made.
    _job.executor := p_job ->> 'executor';
    _job.max_attempts := (p_job ->> 'max_attempts')::integer;
    insert into towpath.schedule as s (name, expression, time_zone, catch_up, job_kind, executor, event_domain,
        source_ref, target_ref, payload_ref, payload_json, priority, max_attempts, next_at, changed_by, changed_at)
    values (p_name, p_expression, p_time_zone, p_catch_up, _job.job_kind, _job.executor, _job.event_domain,
        _job.source_ref, _job.target_ref, _job.payload_ref, _job.payload_json, _job.priority, _job.max_attempts,
        p_next_at, _actor, towpath.fn_now())
    on conflict (name) do update
       set expression = excluded.expression, time_zone = excluded.time_zone, catch_up = excluded.catch_up,
           job_kind = excluded.job_kind, executor = excluded.executor, event_domain = excluded.event_domain,
           source_ref = excluded.source_ref, target_ref = excluded.target_ref, payload_ref = excluded.payload_ref,
           payload_json = excluded.payload_json, priority = excluded.priority, max_attempts = excluded.max_attempts,
           next_at = excluded.next_at, changed_by = excluded.changed_by, changed_at = excluded.changed_at
    returning s.xmax = 0 into _created;
    -- Whatever was wrong with it, it is another one now.
    delete from towpath.loop_fault f where f.loop_name = 'schedules' and f.item = p_name;
    return jsonb_build_object('ok', true, 'name', p_name, 'created', _created, 'next_at', p_next_at);
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'job', 'detail', sqlerrm);
end;
$$;

-- fn_schedule_due: the schedules whose tick has come, without those that are set aside, and when the next one will.
--
-- Answers: {ok, now, due: [schedule], next_at}.
create or replace function towpath.fn_schedule_due(p_limit integer default 100) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    return jsonb_build_object('ok', true, 'now', _now,
        'due', (select coalesce(jsonb_agg(to_jsonb(s) order by s.next_at, s.name), '[]')
                  from (select * from towpath.schedule s
                         where not s.paused and s.next_at <= _now
                           and s.name <> all(towpath._loop_aside('schedules'))
                         order by s.next_at limit least(greatest(coalesce(p_limit, 100), 1), 1000)) s),
        'next_at', (select min(s.next_at) from towpath.schedule s where not s.paused and s.next_at > _now));
end;
$$;

-- fn_schedule_fire: enqueues the job of one tick and moves on to the next, once (Q17).
--
-- p_tick_at must be the tick the row waits for, or lie after it when ticks in between are
-- skipped. Another node that comes later finds next_at moved and gets fired: false. The tick
-- is part of the job's idempotency key as well.
--
-- Answers: {ok, fired, job_id, next_at}; gate_closed, not_found, paused, invalid.
create or replace function towpath.fn_schedule_fire(p_name text, p_tick_at timestamptz, p_next_at timestamptz)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _schedule towpath.schedule;
    _done record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := coalesce(towpath._moment_refusal(p_tick_at, 'tick_at'), towpath._moment_refusal(p_next_at, 'next_at'));
    if _refusal is not null then
        return _refusal;
    end if;
    if p_tick_at is null or p_next_at is null or p_next_at <= p_tick_at or p_tick_at > towpath.fn_now() then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'the tick must be due, and the next one must be after it');
    end if;
    select * into _schedule from towpath.schedule s where s.name = p_name for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'name', p_name);
    end if;
    if _schedule.paused then
        return jsonb_build_object('ok', false, 'error', 'paused', 'name', p_name);
    end if;
    if p_tick_at < _schedule.next_at or p_tick_at <= _schedule.last_tick_at then
        return jsonb_build_object('ok', true, 'fired', false, 'name', p_name, 'next_at', _schedule.next_at);
    end if;
    select * into _done from towpath._job_enqueue_rows(jsonb_build_array(jsonb_build_object(
        'job_kind', _schedule.job_kind, 'executor', _schedule.executor, 'event_domain', _schedule.event_domain,
        'source_ref', _schedule.source_ref, 'target_ref', _schedule.target_ref, 'payload_ref', _schedule.payload_ref,
        'payload_json', _schedule.payload_json, 'priority', _schedule.priority,
        'max_attempts', _schedule.max_attempts, 'actor', towpath._own_actor('schedule', p_name),
        'idempotency_key', format('schedule:%s:%s', p_name,
            to_char(p_tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))));
    update towpath.schedule s
       set last_tick_at = p_tick_at, last_job_id = _done.job_ids[1], next_at = p_next_at where s.name = p_name;
    delete from towpath.loop_fault f where f.loop_name = 'schedules' and f.item = p_name;
    return jsonb_build_object('ok', true, 'fired', true, 'name', p_name, 'job_id', _done.job_ids[1],
                              'next_at', p_next_at);
end;
$$;

-- fn_schedule_skip: moves next_at on without a job, if it still is what the caller saw.
--
-- Answers: {ok, skipped, next_at}; not_found, invalid.
create or replace function towpath.fn_schedule_skip(p_name text, p_seen_next_at timestamptz, p_next_at timestamptz)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _next timestamptz;
begin
    if (p_next_at > p_seen_next_at and towpath._moment_fits(p_next_at)) is not true then
        return coalesce(towpath._moment_refusal(p_next_at, 'next_at'),
                        towpath._invalid('next_at', 'must be after the skipped tick'));
    end if;
    update towpath.schedule s set next_at = p_next_at where s.name = p_name and s.next_at = p_seen_next_at;
    if found then
        return jsonb_build_object('ok', true, 'skipped', true, 'name', p_name, 'next_at', p_next_at);
    end if;
    select s.next_at into _next from towpath.schedule s where s.name = p_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'name', p_name);
    end if;
    return jsonb_build_object('ok', true, 'skipped', false, 'name', p_name, 'next_at', _next);
end;
$$;

-- fn_schedule_pause: no ticks until resumed. Answers: {ok, name, changed}; invalid, not_found.
create or replace function towpath.fn_schedule_pause(p_name text, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._schedule_set_paused(p_name, true, null, p_actor);
end;
$$;

-- fn_schedule_resume: ticks again, from p_next_at on. Answers: {ok, name, changed}; invalid, not_found.
create or replace function towpath.fn_schedule_resume(
    p_name text, p_next_at timestamptz default null, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath._schedule_set_paused(p_name, false, p_next_at, p_actor);
end;
$$;

-- _schedule_set_paused: the common part of the two above.
create or replace function towpath._schedule_set_paused(
    p_name text, p_paused boolean, p_next_at timestamptz, p_actor text) returns jsonb
    language plpgsql
as $$
declare
    _refusal jsonb := coalesce(towpath._moment_refusal(p_next_at, 'next_at'), towpath._name_or_null_refusal(p_actor, 'actor'));
    _was boolean;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select s.paused into _was from towpath.schedule s where s.name = p_name for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'name', p_name);
    end if;
    update towpath.schedule s
       set paused = p_paused, next_at = coalesce(p_next_at, s.next_at),
           changed_by = coalesce(p_actor, session_user), changed_at = towpath.fn_now()
     where s.name = p_name;
    return jsonb_build_object('ok', true, 'name', p_name, 'changed', _was <> p_paused);
end;
$$;

-- fn_schedule_delete: forgets a schedule; jobs it made stay. Answers: {ok, name}; not_found.
create or replace function towpath.fn_schedule_delete(p_name text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.loop_fault f where f.loop_name = 'schedules' and f.item = p_name;
    delete from towpath.schedule s where s.name = p_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'name', p_name);
    end if;
    return jsonb_build_object('ok', true, 'name', p_name);
end;
$$;

-- fn_schedule_list: every schedule.
create or replace function towpath.fn_schedule_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'schedules', coalesce(jsonb_agg(to_jsonb(s) order by s.name), '[]'))
      from towpath.schedule s
$$;

grant execute on function towpath.fn_schedule_put(text, text, text, jsonb, timestamptz, text, text) to workflow_admin;
grant execute on function towpath.fn_schedule_due(integer) to workflow_admin, towpath_maintainer;
grant execute on function towpath.fn_schedule_fire(text, timestamptz, timestamptz)
    to workflow_admin, towpath_maintainer;
grant execute on function towpath.fn_schedule_skip(text, timestamptz, timestamptz)
    to workflow_admin, towpath_maintainer;
grant execute on function towpath.fn_schedule_pause(text, text) to workflow_admin;
grant execute on function towpath.fn_schedule_resume(text, timestamptz, text) to workflow_admin;
grant execute on function towpath.fn_schedule_delete(text) to workflow_admin;
grant execute on function towpath.fn_schedule_list() to workflow_admin, towpath_observer;
