-- Finish: how an attempt ends, well or badly, and what follows for the job.

-- _job_leases_end: counts ended attempts and gives their places under max_parallel back.
-- Called while the rows of job_live still say who held what. Jobs without a lease only count.
create or replace function towpath._job_leases_end(p_job_ids uuid[], p_outcome text, p_now timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
begin
    insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
    select v.lane, p_outcome, count(*),
           coalesce(sum(date_part('epoch', v.picked_at) - date_part('epoch', v.due_at))
                    filter (where v.state in (1, 2)), 0) * 1000,
           coalesce(sum(date_part('epoch', p_now) - date_part('epoch', v.picked_at))
                    filter (where v.state in (1, 2)), 0) * 1000,
           p_now
      from towpath.job_live v where v.job_id = any(p_job_ids) group by v.lane;
    insert into towpath.job_parallel_release (subscription_no, n)
    select v.subscription_no, count(*) from towpath.job_live v
     where v.job_id = any(p_job_ids) and v.subscription_no > 0 and v.state in (1, 2)
     group by v.subscription_no;
end;
$$;

-- fn_job_ack_many: leased | in_progress -> succeeded for every attempt the owner holds (Q10).
--
-- Three ways, because a lease stands in the ledger until it is settled. An entry all of whose
-- jobs are named here, one after the other in the order of their ids, goes whole; what else the
-- ledger says goes by job; the rest is looked for in job_live. p_batches are the batch_ids of
-- the claim; without them the ledger is searched, newest entries first. What is left of an
-- entry that was acked in parts is the reaper's. Acks never wait for max_parallel: they append.
--
-- Answers: {ok, acked, lost: [job_id]}; gate_closed.
create or replace function towpath.fn_job_ack_many(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_batches bigint[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _gate text;
    _done record;
    _acked uuid[] := '{}';
    _parents uuid[] := '{}';
    _left_ids uuid[] := p_job_ids;
    _left_attempts integer[] := p_attempts;
    _lost jsonb := '[]';
begin
    select c.value into _gate from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate';
    if _gate is distinct from 'true' then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.job_substrate.enabled');
    end if;
    if p_batches <> '{}' then
        _acked := towpath._job_ack_entries(p_job_ids, p_lease_owner, p_attempts, p_batches, _now);
    end if;
    if cardinality(_acked) < cardinality(p_job_ids) then
        if _acked <> '{}' then
            select coalesce(array_agg(a.job_id), '{}'), array_agg(a.attempt) into _left_ids, _left_attempts
              from unnest(p_job_ids, p_attempts) as a(job_id, attempt)
             where a.job_id not in (select unnest(_acked));
        end if;
        _done := towpath._job_ack_members(_left_ids, p_lease_owner, _left_attempts, p_batches, _now);
        _acked := _acked || _done.acked;
        _parents := _done.parents;
    end if;
    if cardinality(_acked) < cardinality(p_job_ids) then
        _done := towpath._job_ack_settled(_left_ids, p_lease_owner, _left_attempts, _now);
        _acked := _acked || _done.acked;
        _parents := _parents || _done.parents;
        if cardinality(_acked) < cardinality(p_job_ids) then
            _lost := towpath._job_missing(p_job_ids, _acked);
        end if;
    end if;
    if _parents <> '{}' then
        perform towpath._job_parents_succeeded(_parents, _now);
    end if;
    return jsonb_build_object('ok', true, 'acked', cardinality(_acked), 'lost', _lost);
end;
$$;

-- _job_ack_entries: entries of the ledger all of whose jobs are named -> succeeded, and gone.
-- Returns the jobs that were acked.
--
-- Entries of one claim follow one another; they are acked together. The null row at the end
-- flushes the last of them.
create or replace function towpath._job_ack_entries(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_batches bigint[], p_now timestamptz) returns uuid[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _entry record;
    _at integer;
    _to integer;
    _group towpath.lease_batch;
    _ids uuid[] := '{}';
    _batches bigint[] := '{}';
    _shared bigint[] := '{}';
    _alone uuid[] := '{}';
    _wait_ms double precision := 0;
    _acked uuid[] := '{}';
    _whole bigint[] := '{}';
begin
    for _entry in
        select b.* from (select b.* from towpath.lease_batch b
                          where b.batch_id = any(p_batches) and b.lease_owner = p_lease_owner and b.lane is not null
                          order by b.batch_id for share) b
        union all
        select (null::towpath.lease_batch).*
    loop
        if _entry.batch_id is not null then
            _at := array_position(p_job_ids, _entry.job_ids[1]);
            _to := _at + cardinality(_entry.job_ids) - 1;
            continue when (p_job_ids[_at : _to] = _entry.job_ids
                           and _entry.attempt = all (p_attempts[_at : _to])) is not true;
        end if;
        if _ids <> '{}' and (_entry.attempt = _group.attempt and _entry.refunded = _group.refunded
                             and _entry.lane = _group.lane and _entry.picked_at = _group.picked_at) is not true then
            if towpath._job_ack_whole(_ids, _shared, _alone, _group, _wait_ms, p_now) then
                _acked := _acked || _ids;
                _whole := _whole || _batches;
            end if;
            _ids := '{}';
            _batches := '{}';
            _shared := '{}';
            _alone := '{}';
            _wait_ms := 0;
        end if;
        _group := _entry;
        _ids := _ids || _entry.job_ids;
        _batches := _batches || _entry.batch_id;
        if towpath._run_shared(_entry.job_ids) then
            _shared := _shared || _entry.batch_id;
        else
            _alone := _alone || _entry.job_ids;
        end if;
        _wait_ms := _wait_ms + _entry.wait_ms;
    end loop;
    if _whole <> '{}' then
        delete from towpath.lease_batch b where b.batch_id = any(_whole);
    end if;
    return _acked;
end;
$$;

-- _job_ack_whole: jobs of entries that are alike -> succeeded, or none of them: if one is settled, has
-- ended or has children, false, and nothing has happened. Jobs of the entries p_shared share their entry's
-- run row, p_alone are the others.
--
-- No row is handed from the delete to the insert, which is a quarter of the work of an ack.
create or replace function towpath._job_ack_whole(
    p_job_ids uuid[], p_shared bigint[], p_alone uuid[], p_entry towpath.lease_batch, p_wait_ms double precision,
    p_now timestamptz) returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    -- Of the columns' own types: otherwise every row is checked again.
    _attempt towpath.natural_number := p_entry.attempt;
    _refunded towpath.natural_number := p_entry.refunded;
    _outcome towpath.run_outcome := 'succeeded';
    _low uuid := p_job_ids[1];
    _high uuid := p_job_ids[cardinality(p_job_ids)];
    _deleted bigint;
begin
    if towpath._ids_dense(p_job_ids) then
        delete from towpath.job_live v using unnest(p_job_ids) x
         where v.job_id = x and v.job_id >= _low and v.job_id <= _high
           and v.attempts = p_entry.attempt - 1 and v.refunded = p_entry.refunded
           and v.state in (0, 3) and v.blocked = 0 and not v.has_children;
    else
        delete from towpath.job_live v
         where v.job_id = any(p_job_ids) and v.attempts = p_entry.attempt - 1 and v.refunded = p_entry.refunded
           and v.state in (0, 3) and v.blocked = 0 and not v.has_children;
    end if;
    get diagnostics _deleted = row_count;
    if _deleted < cardinality(p_job_ids) then
        -- Undoes the delete: the block is a subtransaction.
        raise exception using errcode = 'TPX01', message = 'not all of them';
    end if;
    if p_shared <> '{}' then
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, job_ids)
        select b.job_ids[cardinality(b.job_ids)], _attempt, _refunded, p_entry.picked_at, p_now, _outcome,
               p_entry.lease_owner, b.job_ids
          from towpath.lease_batch b where b.batch_id = any(p_shared);
    end if;
    if p_alone <> '{}' then
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner)
        select x, _attempt, _refunded, p_entry.picked_at, p_now, _outcome, p_entry.lease_owner from unnest(p_alone) x;
    end if;
    insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
    values (p_entry.lane, 'succeeded', _deleted, p_wait_ms,
            (date_part('epoch', p_now) - date_part('epoch', p_entry.picked_at)) * 1000 * _deleted, p_now);
    if p_entry.subscription_no > 0 then
        insert into towpath.job_parallel_release (subscription_no, n) values (p_entry.subscription_no, _deleted);
    end if;
    return true;
exception when sqlstate 'TPX01' then
    return false;
end;
$$;

-- _job_ack_members: jobs of which the ledger says that the owner holds them -> succeeded, job by job.
create or replace function towpath._job_ack_members(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_batches bigint[], p_now timestamptz,
    out acked uuid[], out parents uuid[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _lease record;
    _attempt integer;
    _picked_at timestamptz;
    _subscription_no integer;
    _ids uuid[] := '{}';
    _whole bigint[] := '{}';
    _done record;
begin
    acked := '{}';
    parents := '{}';
    -- Entries of one claim follow one another; they are acked together. The null row at the
    -- end flushes the last of them.
    for _lease in
        with lease as materialized (
            select b.batch_id, b.job_ids, b.attempt, b.picked_at, b.subscription_no from towpath.lease_batch b
             where b.batch_id = any(coalesce(p_batches, towpath._job_batches(p_job_ids, p_lease_owner)))
               and b.lease_owner = p_lease_owner and b.attempt is not null
             order by b.batch_id for share)
        select m.batch_id, m.attempt, m.picked_at, m.subscription_no, array_agg(m.job_id) as job_ids,
               count(*) = max(m.jobs) as is_whole
          -- Unnested in the list: a join would be a nested loop, and so would the next one.
          from (select l.batch_id, l.attempt, l.picked_at, l.subscription_no, cardinality(l.job_ids) as jobs,
                       unnest(l.job_ids) as job_id
                  from lease l) m
          join unnest(p_job_ids, p_attempts) as a(job_id, attempt)
            on a.job_id = m.job_id and a.attempt = m.attempt
         group by m.batch_id, m.attempt, m.picked_at, m.subscription_no
        union all
        select null, null, null, null, null, false
         order by batch_id
    loop
        if _ids <> '{}' and (_lease.attempt = _attempt and _lease.picked_at = _picked_at
                             and _lease.subscription_no = _subscription_no) is not true then
            _done := towpath._job_ack_leased(_ids, p_lease_owner, _attempt, _picked_at, _subscription_no, p_now);
            acked := acked || _done.acked;
            parents := parents || _done.parents;
            _ids := '{}';
        end if;
        _attempt := _lease.attempt;
        _picked_at := _lease.picked_at;
        _subscription_no := _lease.subscription_no;
        _ids := _ids || _lease.job_ids;
        if _lease.is_whole then
            _whole := _whole || _lease.batch_id;
        end if;
    end loop;
    if _whole <> '{}' then
        delete from towpath.lease_batch b where b.batch_id = any(_whole);
    end if;
end;
$$;

-- _job_ack_leased: jobs of one claim that the ledger says the owner holds -> succeeded, unless
-- they are settled or have ended.
create or replace function towpath._job_ack_leased(
    p_job_ids uuid[], p_lease_owner text, p_attempt integer, p_picked_at timestamptz, p_subscription_no integer,
    p_now timestamptz, out acked uuid[], out parents uuid[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _picked double precision := date_part('epoch', p_picked_at);
    _run_ms double precision := (date_part('epoch', p_now) - _picked) * 1000;
begin
    with gone as (
        delete from towpath.job_live v
         where v.job_id = any(p_job_ids) and v.attempts = p_attempt - 1 and v.state in (0, 3) and v.blocked = 0
        returning v.job_id, v.refunded, v.due_at, v.lane, v.has_children),
    run as (
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner)
        select g.job_id, p_attempt, g.refunded, p_picked_at, p_now, 'succeeded', p_lease_owner from gone g),
    counted as (
        insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
        select g.lane, 'succeeded', count(*), (_picked * count(*) - sum(date_part('epoch', g.due_at))) * 1000,
               _run_ms * count(*), p_now
          from gone g group by g.lane)
    select coalesce(array_agg(g.job_id), '{}'), coalesce(array_agg(g.job_id) filter (where g.has_children), '{}')
      into acked, parents from gone g;
    if p_subscription_no > 0 and acked <> '{}' then
        insert into towpath.job_parallel_release (subscription_no, n) values (p_subscription_no, cardinality(acked));
    end if;
end;
$$;

-- _job_ack_settled: the same for attempts that stand in job_live.
create or replace function towpath._job_ack_settled(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_now timestamptz,
    out acked uuid[], out parents uuid[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _epoch double precision := date_part('epoch', p_now);
    _held uuid[];
begin
    _held := towpath._job_lock_held(p_job_ids, p_lease_owner, p_attempts);
    with gone as (
        delete from towpath.job_live v where v.job_id = any(_held)
        returning v.job_id, v.attempts, v.refunded, v.picked_at, v.due_at, v.lane, v.subscription_no, v.has_children),
    run as (
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner)
        select g.job_id, g.attempts, g.refunded, g.picked_at, p_now, 'succeeded', p_lease_owner from gone g),
    counted as (
        insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
        select g.lane, 'succeeded', count(*),
               sum(date_part('epoch', g.picked_at) - date_part('epoch', g.due_at)) * 1000,
               sum(_epoch - date_part('epoch', g.picked_at)) * 1000, p_now
          from gone g group by g.lane),
    released as (
        insert into towpath.job_parallel_release (subscription_no, n)
        select g.subscription_no, count(*) from gone g where g.subscription_no > 0 group by g.subscription_no)
    select coalesce(array_agg(g.job_id), '{}'), coalesce(array_agg(g.job_id) filter (where g.has_children), '{}')
      into acked, parents from gone g;
end;
$$;

-- fn_job_ack: leased | in_progress -> succeeded, straight-line for one settled job.
--
-- Answers: {ok, job_id, state}; gate_closed, lease_lost.
create or replace function towpath.fn_job_ack(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _gate text;
    _live towpath.job_live;
begin
    select c.value into _gate from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate';
    if _gate is distinct from 'true' then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.job_substrate.enabled');
    end if;
    delete from towpath.job_live v
     where v.job_id = p_job_id and v.lease_owner = p_lease_owner and v.attempts = p_attempt and v.state in (1, 2)
    returning * into _live;
    if not found then
        if towpath.fn_job_ack_many(array[p_job_id], p_lease_owner, array[p_attempt]) -> 'acked' = '1' then
            return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'succeeded');
        end if;
        return towpath._job_lost(p_job_id);
    end if;
    insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner)
    values (p_job_id, _live.attempts, _live.refunded, _live.picked_at, _now, 'succeeded', p_lease_owner);
    insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
    values (_live.lane, 'succeeded', 1,
            (date_part('epoch', _live.picked_at) - date_part('epoch', _live.due_at)) * 1000,
            (date_part('epoch', _now) - date_part('epoch', _live.picked_at)) * 1000, _now);
    if _live.subscription_no > 0 then
        insert into towpath.job_parallel_release (subscription_no, n) values (_live.subscription_no, 1);
    end if;
    if _live.has_children then
        perform towpath._job_parents_succeeded(array[p_job_id], _now);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'succeeded');
end;
$$;

-- _job_close: any live state -> cancelled | dead_letter. The rows of job_live are locked and
-- their ready rows gone. Does not look at children; its callers do.
--
-- A job without a lease is recorded under the next attempt number as a refunded one.
create or replace function towpath._job_close(
    p_job_ids uuid[], p_outcome text, p_errors text[], p_ended_by text, p_now timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _same text := case when cardinality(p_errors) = 1 then p_errors[1] end;
begin
    insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, ended_by,
            error)
    select v.job_id, v.attempts + case when v.state in (1, 2) then 0 else 1 end,
           v.refunded + case when v.state in (1, 2) then 0 else 1 end,
           case when v.state in (1, 2) then v.picked_at end, p_now, p_outcome, v.lease_owner, p_ended_by,
           coalesce(_same, p_errors[array_position(p_job_ids, v.job_id)])
      from towpath.job_live v where v.job_id = any(p_job_ids);
    perform towpath._job_leases_end(p_job_ids, p_outcome, p_now);
    if p_outcome = 'dead_letter' then
        insert into towpath.job_dead_letter (dead_letter_id, job_id, job_kind, executor, event_domain, source_ref,
            target_ref, payload_ref, payload_json, priority, max_attempts, final_error, attempts, actor, run_id,
            idempotency_key, created_at, moved_at, moved_by)
        select towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint), j.job_id, j.job_kind, j.executor,
               j.event_domain, j.source_ref, j.target_ref, j.payload_ref, j.payload_json, j.priority, j.max_attempts,
               coalesce(_same, p_errors[array_position(p_job_ids, v.job_id)]), v.attempts - v.refunded, j.actor,
               j.run_id, j.idempotency_key, j.created_at, p_now, coalesce(p_ended_by, v.lease_owner)
          from towpath.job_live v
         cross join lateral (select * from towpath.job j where j.job_id = v.job_id offset 0) j
         where v.job_id = any(p_job_ids);
    end if;
    delete from towpath.job_live v where v.job_id = any(p_job_ids);
end;
$$;

-- _job_fail_rows: leased | in_progress -> retry_waiting, or dead_letter after a permanent
-- error or the last attempt. The rows are locked. Arrays run along p_job_ids; a single
-- error stands for all. p_outcome says what the attempt was: failed or lost.
create or replace function towpath._job_fail_rows(
    p_job_ids uuid[], p_errors text[], p_permanent boolean[], p_delays double precision[],
    p_jitter double precision, p_outcome text, p_ended_by text, p_now timestamptz,
    out retried uuid[], out dead uuid[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _base double precision := towpath._config_number('queue.retry.backoff_base_sec');
    -- Rounded, because a product with the smallest of numbers underflows.
    _jitter double precision := round(coalesce(p_jitter::numeric, towpath._config_number('queue.retry.jitter_ratio')), 6);
    _same text := case when cardinality(p_errors) = 1 then p_errors[1] end;
    _dead_errors text[];
    _parents uuid[];
    _soon integer[];
begin
    select coalesce(array_agg(v.job_id order by v.job_id) filter (where v.over), '{}'),
           coalesce(array_agg(v.job_id order by v.job_id) filter (where not v.over), '{}'),
           array_agg(v.job_id) filter (where v.over and v.has_children)
      into dead, retried, _parents
      from (select v.job_id, v.has_children, v.attempts - v.refunded >= v.max_attempts
                   or coalesce(p_permanent[array_position(p_job_ids, v.job_id)], false) as over
              from towpath.job_live v where v.job_id = any(p_job_ids)) v;
    if retried <> '{}' then
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, ended_by,
            error)
        select v.job_id, v.attempts, v.refunded, v.picked_at, p_now, p_outcome, v.lease_owner, p_ended_by,
               coalesce(_same, p_errors[array_position(p_job_ids, v.job_id)])
          from towpath.job_live v where v.job_id = any(retried);
        perform towpath._job_leases_end(retried, p_outcome, p_now);
        with back as (
            update towpath.job_live v
               set state = 3, lease_owner = null, lease_until = null,
                   due_at = p_now + interval '1 second' * (1 + random() * _jitter)
                       * coalesce(p_delays[array_position(p_job_ids, v.job_id)],
                                  _base * (1 << least(v.attempts - v.refunded - 1, 10)))
             where v.job_id = any(retried)
            returning v.lane, v.due_at, v.job_id, v.attempts, v.refunded),
        ready as (
            insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, moved)
            select b.lane, b.due_at, b.job_id, b.attempts, b.refunded, true from back b)
        select array_agg(distinct b.lane) filter (where b.due_at <= p_now) into _soon from back b;
        if _soon is not null then
            perform towpath._job_wake(_soon);
        end if;
    end if;
    if dead <> '{}' then
        if _same is null then
            _dead_errors := array(select p_errors[array_position(p_job_ids, d)] from unnest(dead) d);
        end if;
        perform towpath._job_close(dead, 'dead_letter', coalesce(_dead_errors, p_errors), p_ended_by, p_now);
        if _parents is not null then
            perform towpath._job_parents_failed(_parents, p_now);
        end if;
    end if;
end;
$$;

-- fn_job_fail_or_retry_many: ends many attempts badly. p_failures is an array of objects
-- {job_id, attempt, error, permanent, retry_delay_seconds}, at most 1,000.
--
-- Answers: {ok, retried: [job_id], dead_letter: [job_id], lost: [job_id]}; gate_closed, invalid.
create or replace function towpath.fn_job_fail_or_retry_many(
    p_lease_owner text, p_failures jsonb, p_jitter double precision default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _ids uuid[];
    _attempts integer[];
    _errors text[];
    _permanent boolean[];
    _delays double precision[];
    _held uuid[];
    _ended record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if jsonb_typeof(p_failures) is distinct from 'array' or jsonb_array_length(p_failures) > 1000
       or p_jitter not between 0 and 1 then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'failures is an array of at most 1000 objects, jitter lies between 0 and 1');
    end if;
    begin
        select array_agg(f.job_id), array_agg(f.attempt), array_agg(towpath._error_text(f.error)),
               array_agg(coalesce(f.permanent, false)),
               -- greatest() passes over nulls: without the case, no delay named would be a delay of nothing.
               array_agg(case when f.retry_delay_seconds is not null
                              then least(greatest(f.retry_delay_seconds, 0), 31536000) end)
          into _ids, _attempts, _errors, _permanent, _delays
          from jsonb_to_recordset(p_failures)
            as f(job_id uuid, attempt integer, error text, permanent boolean, retry_delay_seconds double precision);
    exception when data_exception then
        return towpath._invalid('failures', sqlerrm);
    end;
    _held := towpath._job_lock_held(_ids, p_lease_owner, _attempts);
    -- The arrays again, for the rows that were still held: two failures of one job count once.
    select array_agg(f.job_id), array_agg(f.error), array_agg(f.permanent), array_agg(f.delay)
      into _held, _errors, _permanent, _delays
      from (select distinct on (f.job_id) f.job_id, f.error, f.permanent, f.delay
              from unnest(_ids, _attempts, _errors, _permanent, _delays)
                as f(job_id, attempt, error, permanent, delay)
             where f.job_id = any(_held)
             order by f.job_id, f.attempt desc) f;
    select * into _ended from towpath._job_fail_rows(coalesce(_held, '{}'), _errors, _permanent, _delays, p_jitter,
                                                     'failed', null, _now);
    return jsonb_build_object('ok', true, 'retried', to_jsonb(_ended.retried), 'dead_letter', to_jsonb(_ended.dead),
                              'lost', towpath._job_missing(_ids, coalesce(_held, '{}')));
end;
$$;

-- fn_job_fail_or_retry: the same for one job (Q10). The delay is backoff_base * 2^min(n-1, 10)
-- seconds after the nth attempt that counted, unless the caller names one.
--
-- Answers: {ok, job_id, state: retry_waiting | dead_letter, scheduled_at}; gate_closed, invalid,
-- lease_lost.
create or replace function towpath.fn_job_fail_or_retry(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_error text, p_permanent boolean default false,
    p_retry_delay_seconds double precision default null, p_jitter double precision default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _ended record;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_jitter not between 0 and 1 or p_retry_delay_seconds not between 0 and 31536000 then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'jitter lies between 0 and 1, retry_delay_seconds between 0 and 31536000');
    end if;
    if towpath._job_lock_held(array[p_job_id], p_lease_owner, array[p_attempt]) = '{}' then
        return towpath._job_lost(p_job_id);
    end if;
    select * into _ended from towpath._job_fail_rows(array[p_job_id], array[towpath._error_text(p_error)],
        array[coalesce(p_permanent, false)], array[p_retry_delay_seconds], p_jitter, 'failed', null, _now);
    if _ended.dead <> '{}' then
        return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'dead_letter');
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'retry_waiting', 'scheduled_at',
        (select v.due_at from towpath.job_live v where v.job_id = p_job_id));
end;
$$;

grant execute on function towpath.fn_job_ack(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_ack_many(uuid[], text, integer[], bigint[]) to worker_service_user;
grant execute on function towpath.fn_job_fail_or_retry(uuid, text, integer, text, boolean, double precision,
    double precision) to worker_service_user;
grant execute on function towpath.fn_job_fail_or_retry_many(text, jsonb, double precision) to worker_service_user;
