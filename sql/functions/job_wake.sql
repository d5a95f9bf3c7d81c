-- Wake-ups: an idle consumer arms a flag, the next enqueue of that kind notifies once.
--
-- A flag is for a kind, whatever the executor: a kind is nearly always one executor's, and who wakes up for another's
-- job claims in vain and arms again.
--
-- Producers do not notify while everybody is busy, so they do not meet at PostgreSQL's
-- notification lock. Nothing depends on a wake-up: a consumer that misses one (it armed
-- between a producer's look and that producer's commit) finds the job when it polls. The
-- protocol of a consumer: claim; if empty, arm; claim again; if empty, sleep until notified,
-- until next_due_at, or until its poll interval.

-- _job_wake: notifies the sleepers of some lanes, if there are any, and takes their flags
-- down. It takes no lock: until the flag's end has committed, others notify as well.
create or replace function towpath._job_wake(p_lanes integer[]) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
declare
    _kind text;
begin
    if not towpath._gate_open('queue.notify.enabled') then
        return;
    end if;
    for _kind in select distinct l.job_kind from towpath.job_lane l where l.lane = any(p_lanes) loop
        if coalesce((select w.armed from towpath.job_wake w where w.job_kind = _kind order by w.wake_no desc limit 1),
                    true) then
            insert into towpath.job_wake (job_kind, armed) values (_kind, false);
            -- The kind is a hint, cut to stay below the limit of a notification.
            perform pg_notify('towpath_job', left(_kind, 1000));
        end if;
    end loop;
end;
$$;

-- fn_job_arm: asks for a wake-up by the next job of the kinds this executor may claim.
--
-- Answers: {ok, armed: how many flags it put up, next_due_at: when a job already waiting
-- becomes due, or null}; gate_closed, not_authorised, no_subscription.
create or replace function towpath.fn_job_arm(p_executor text, p_kinds text[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _set record;
    _refusal jsonb;
    _armed integer;
    _next timestamptz;
begin
    select s.* into _set from towpath._job_lane_set(p_executor, p_kinds) s;
    _refusal := towpath._job_claim_refusal(p_executor, _set.substrate, _set.worker, _set.login_role, _set.lanes);
    if _refusal is not null then
        return _refusal;
    end if;
    -- A kind that is subscribed by name gets its flag before its first job exists.
    with wanted as (
        select l.job_kind from towpath.job_lane l where l.lane = any(_set.lanes)
        union
        select s.job_kind from towpath.job_subscription s
         where s.executor_id = p_executor and s.enabled and s.job_kind is not null
           and (p_kinds is null or s.job_kind = any(p_kinds))),
    up as (
        insert into towpath.job_wake (job_kind, armed)
        select w.job_kind, true from wanted w
         where not coalesce((select x.armed from towpath.job_wake x where x.job_kind = w.job_kind
                              order by x.wake_no desc limit 1), false)
        returning 1)
    select count(*) into _armed from up;
    select min(r.due_at) into _next
      from unnest(_set.lanes) as l(lane)
     cross join lateral (select r.due_at from towpath.job_ready r
                          where r.lane = l.lane and r.due_at > _now order by r.due_at limit 1) r;
    return jsonb_build_object('ok', true, 'armed', _armed, 'next_due_at', _next);
end;
$$;

grant execute on function towpath.fn_job_arm(text, text[]) to worker_service_user;
