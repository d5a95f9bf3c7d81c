-- Lease: what the holder of an attempt may do with it before it ends.
--
-- Owner and attempt together are the fence (Q08). A worker that lost its lease knows an old
-- attempt, matches no row and gets lease_lost. A lease that has run out but was not yet
-- reaped still counts, so that slow work is not thrown away for nothing.

-- _job_lost: the answer to a caller that does not hold the lease.
create or replace function towpath._job_lost(p_job_id uuid) returns jsonb
    language sql immutable
as $$
    select jsonb_build_object('ok', false, 'error', 'lease_lost', 'job_id', p_job_id)
$$;

-- _job_lock_held: settles and locks those of the given attempts that the owner still holds, in
-- the order of job_id, and returns their ids.
create or replace function towpath._job_lock_held(p_job_ids uuid[], p_lease_owner text, p_attempts integer[])
    returns uuid[]
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
begin
    perform towpath._job_settle_ids(p_job_ids, p_lease_owner);
    return array(
        select v.job_id
          from (select distinct on (a.job_id) a.job_id, a.attempt
                  from unnest(p_job_ids, p_attempts) as a(job_id, attempt)
                 order by a.job_id, a.attempt desc nulls last) a
         cross join lateral (
               select v.job_id from towpath.job_live v
                where v.job_id = a.job_id and v.attempts = a.attempt
                  and v.lease_owner = p_lease_owner and v.state in (1, 2)
                  for update) v);
end;
$$;

-- _job_missing: which of the asked ids are not among the done ones. Only called when some are.
create or replace function towpath._job_missing(p_job_ids uuid[], p_done uuid[]) returns jsonb
    language sql immutable
as $$
    select coalesce(jsonb_agg(m.job_id), '[]')
      from (select unnest(p_job_ids) as job_id except select unnest(p_done)) m
$$;

-- fn_job_start_many: leased -> in_progress for every attempt the owner holds. Starting twice
-- changes nothing.
--
-- Answers: {ok, started, lost: [job_id]}; gate_closed.
create or replace function towpath.fn_job_start_many(p_job_ids uuid[], p_lease_owner text, p_attempts integer[])
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _held uuid[];
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _held := towpath._job_lock_held(p_job_ids, p_lease_owner, p_attempts);
    update towpath.job_live v set state = 2, touched_at = towpath.fn_now() where v.job_id = any(_held) and v.state = 1;
    return jsonb_build_object('ok', true, 'started', cardinality(_held),
                              'lost', towpath._job_missing(p_job_ids, _held));
end;
$$;

-- fn_job_start: leased -> in_progress (Q09).
--
-- Answers: {ok, job_id, state}; gate_closed, lease_lost.
create or replace function towpath.fn_job_start(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    perform towpath._job_settle_ids(array[p_job_id], p_lease_owner);
    update towpath.job_live v
       set state = 2, touched_at = case when v.state = 1 then towpath.fn_now() else v.touched_at end
     where v.job_id = p_job_id and v.lease_owner = p_lease_owner and v.attempts = p_attempt and v.state in (1, 2);
    if not found then
        return towpath._job_lost(p_job_id);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'in_progress');
end;
$$;

-- fn_job_extend_lease_many: the lease of every attempt the owner holds lasts at least
-- p_seconds from now. The lost ones were reaped or cancelled: their work should stop.
--
-- Answers: {ok, extended, lease_until, lost: [job_id]}; gate_closed, invalid.
create or replace function towpath.fn_job_extend_lease_many(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _until timestamptz;
    _held uuid[];
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_seconds not between 1 and 86400 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'seconds',
                                  'detail', 'must be between 1 and 86400');
    end if;
    _until := _now + interval '1 second' * coalesce(p_seconds, towpath._job_lease_seconds());
    _held := towpath._job_lock_held(p_job_ids, p_lease_owner, p_attempts);
    if _held <> '{}' then
        update towpath.job_live v set lease_until = greatest(v.lease_until, _until), touched_at = _now
         where v.job_id = any(_held);
        insert into towpath.lease_entry (lease_until, job_ids) values (_until, _held);
    end if;
    return jsonb_build_object('ok', true, 'extended', cardinality(_held), 'lease_until', _until,
                              'lost', towpath._job_missing(p_job_ids, _held));
end;
$$;

-- fn_job_extend_lease: the same for one job (Q09).
--
-- Answers: {ok, job_id, lease_until}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_extend_lease(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    _answer := towpath.fn_job_extend_lease_many(array[p_job_id], p_lease_owner, array[p_attempt], p_seconds);
    if _answer -> 'extended' = '0' then
        return towpath._job_lost(p_job_id);
    end if;
    return case when (_answer ->> 'ok')::boolean
        then jsonb_build_object('ok', true, 'job_id', p_job_id, 'lease_until', _answer -> 'lease_until')
        else _answer end;
end;
$$;

-- fn_job_progress: stores how far a job is (Q09). A null leaves the old value.
--
-- Answers: {ok, job_id}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_progress(
    p_job_id uuid, p_lease_owner text, p_attempt integer,
    p_percent integer default null, p_message text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_percent not between 0 and 100 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'percent',
                                  'detail', 'must be between 0 and 100');
    end if;
    perform towpath._job_settle_ids(array[p_job_id], p_lease_owner);
    update towpath.job_live v
       set progress_percent = coalesce(p_percent, v.progress_percent),
           progress_note = coalesce(left(p_message, 1000), v.progress_note),
           progress_at = _now
     where v.job_id = p_job_id and v.lease_owner = p_lease_owner and v.attempts = p_attempt and v.state in (1, 2);
    if not found then
        return towpath._job_lost(p_job_id);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id);
end;
$$;

-- _job_give_back: leased | in_progress -> queued | retry_waiting without counting the attempt.
-- The rows are locked by the caller. The attempt's number stays used, because it is the fence.
create or replace function towpath._job_give_back(
    p_job_ids uuid[], p_outcome text, p_note text, p_due_at timestamptz) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _lanes integer[];
begin
    insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, error)
    select v.job_id, v.attempts, v.refunded + 1, v.picked_at, _now, p_outcome, v.lease_owner, p_note
      from towpath.job_live v where v.job_id = any(p_job_ids);
    perform towpath._job_leases_end(p_job_ids, p_outcome, _now);
    with back as (
        update towpath.job_live v
           set state = case when v.attempts - v.refunded > 1 then 3 else 0 end, refunded = v.refunded + 1,
               lease_owner = null, lease_until = null,
               due_at = greatest(coalesce(p_due_at, v.due_at),
                   (select f.floor_at from towpath.job_floor f where f.lane = v.lane
                     order by f.floor_no desc limit 1))
         where v.job_id = any(p_job_ids)
        returning v.lane, v.due_at, v.job_id, v.attempts, v.refunded),
    ready as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
        select b.lane, b.due_at, b.job_id, b.attempts, b.refunded, false from back b)
    select array_agg(distinct b.lane) filter (where b.due_at <= _now) into _lanes from back b;
    if _lanes is not null then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

-- fn_job_release: gives back jobs that were claimed and not started, as if never claimed.
-- A job that has started is not given back: fail or snooze it.
--
-- Answers: {ok, released, lost: [job_id]}; gate_closed.
create or replace function towpath.fn_job_release(p_job_ids uuid[], p_lease_owner text, p_attempts integer[])
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _held uuid[];
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _held := towpath._job_lock_held(p_job_ids, p_lease_owner, p_attempts);
    _held := array(select v.job_id from towpath.job_live v where v.job_id = any(_held) and v.state = 1);
    if _held <> '{}' then
        perform towpath._job_give_back(_held, 'released', null, null);
    end if;
    return jsonb_build_object('ok', true, 'released', cardinality(_held),
                              'lost', towpath._job_missing(p_job_ids, _held));
end;
$$;

-- fn_job_snooze: the holder wants to be asked again later; the attempt does not count.
--
-- Answers: {ok, job_id, scheduled_at}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_snooze(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer, p_note text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _due timestamptz := towpath.fn_now() + p_seconds * interval '1 second';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if coalesce(p_seconds, -1) not between 0 and 31536000 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'seconds',
                                  'detail', 'must be between 0 and 31536000');
    end if;
    if towpath._job_lock_held(array[p_job_id], p_lease_owner, array[p_attempt]) = '{}' then
        return towpath._job_lost(p_job_id);
    end if;
    perform towpath._job_give_back(array[p_job_id], 'snoozed', left(p_note, 1000), _due);
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'scheduled_at', _due);
end;
$$;

grant execute on function towpath.fn_job_start(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_start_many(uuid[], text, integer[]) to worker_service_user;
grant execute on function towpath.fn_job_extend_lease(uuid, text, integer, integer) to worker_service_user;
grant execute on function towpath.fn_job_extend_lease_many(uuid[], text, integer[], integer) to worker_service_user;
grant execute on function towpath.fn_job_progress(uuid, text, integer, integer, text) to worker_service_user;
grant execute on function towpath.fn_job_release(uuid[], text, integer[]) to worker_service_user;
grant execute on function towpath.fn_job_snooze(uuid, text, integer, integer, text) to worker_service_user;
