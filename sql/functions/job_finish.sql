-- Finish: how an attempt ends, well or badly, and what follows for the job.

-- _job_leases_end: counts ended attempts and gives their places under max_parallel back.
-- Called while the rows of job_live still say who held what. Jobs without a lease only count.
create or replace function towpath._job_leases_end(p_job_ids uuid[], p_outcome text, p_now timestamptz) returns void
    language plpgsql
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
-- Two ways: lease entries all of whose jobs are named go whole (_job_ack_whole), everything else is settled and then
-- finished (_job_ack_settled), and so are jobs with results. p_entries are the entry_ids of the claim; without them they
-- are looked up. p_results runs along p_job_ids; payload_store.sql says what becomes of large ones. lease_entry.sql says
-- what an entry is. Acks never wait for max_parallel: they append.
--
-- Answers: {ok, acked, lost: [job_id]}; gate_closed, invalid (a result that cannot be kept).
create or replace function towpath.fn_job_ack_many(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_entries bigint[] default null,
    p_results jsonb[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _gate text;
    _refusal jsonb;
    _ids uuid[] := p_job_ids;
    _attempts integer[] := p_attempts;
    _whole record;
    _done record;
    _acked integer;
    _lost jsonb := '[]';
begin
    select c.value into _gate from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate';
    if _gate is distinct from 'true' then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.job_substrate.enabled');
    end if;
    if p_results is not null then
        if exists (select 1 from unnest(p_results) r where not towpath._result_fits(r)) then
            _refusal := towpath._result_refusal(p_results);
            if _refusal is not null then
                return _refusal;
            end if;
        end if;
        select '{}'::uuid[] as acked, '{}'::uuid[] as parents into _whole;
    else
        if p_entries is null then
            select array_agg(a.job_id order by a.job_id), array_agg(a.attempt order by a.job_id) into _ids, _attempts
              from unnest(p_job_ids, p_attempts) as a(job_id, attempt);
        end if;
        _whole := towpath._job_ack_whole(_ids, p_lease_owner, _attempts, p_entries, _now);
    end if;
    _acked := cardinality(_whole.acked);
    if _acked < cardinality(p_job_ids) then
        if _acked > 0 then
            select coalesce(array_agg(a.job_id), '{}'), array_agg(a.attempt) into _ids, _attempts
              from unnest(_ids, _attempts) as a(job_id, attempt)
             where a.job_id not in (select unnest(_whole.acked));
        end if;
        _done := towpath._job_ack_settled(_ids, p_lease_owner, _attempts, p_results, _now);
        _acked := _acked + cardinality(_done.acked);
        if _acked < cardinality(p_job_ids) then
            _lost := towpath._job_missing(p_job_ids, _whole.acked || _done.acked);
        end if;
        _whole.parents := _whole.parents || _done.parents;
    end if;
    if _whole.parents <> '{}' then
        perform towpath._job_parents_succeeded(_whole.parents, _now);
    end if;
    return jsonb_build_object('ok', true, 'acked', _acked, 'lost', _lost);
end;
$$;

-- _job_ack_whole: leases of entries all of whose jobs are named, next to one another and in the order of their ids, ->
-- succeeded, and the entries are gone. An entry that another call has just settled or ended is left out. Returns the
-- jobs that were acked, and which of them have children.
--
-- No job is handed from one statement to the next, which is a quarter of the work of an ack.
create or replace function towpath._job_ack_whole(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_entries bigint[], p_now timestamptz,
    out acked uuid[], out parents uuid[])
    language plpgsql
    set enable_nestloop = off
    set enable_mergejoin = off
as $$
declare
    _entry record;
    _whole bigint[] := '{}';
    _at integer;
    _to integer;
    _gone record;
begin
    acked := '{}';
    parents := '{}';
    for _entry in
        select e.entry_id, e.job_ids, e.attempt from towpath.lease_entry e
         where e.entry_id = any(coalesce(p_entries, towpath._lease_entries(p_job_ids, p_lease_owner)))
           and e.lease_owner = p_lease_owner
    loop
        _at := array_position(p_job_ids, _entry.job_ids[1]);
        _to := _at + cardinality(_entry.job_ids) - 1;
        if p_job_ids[_at : _to] = _entry.job_ids and _entry.attempt = all (p_attempts[_at : _to]) then
            _whole := _whole || _entry.entry_id;
            acked := acked || _entry.job_ids;
        end if;
    end loop;
    if _whole = '{}' then
        return;
    end if;
    with gone as materialized (
        delete from towpath.lease_entry e where e.entry_id = any(_whole) and e.lease_owner = p_lease_owner
        returning e.*, cardinality(e.job_ids) as n, date_part('epoch', p_now) - date_part('epoch', e.picked_at) as ran),
    run as (
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, job_ids)
        select g.job_ids[g.n], g.attempt, g.refunded, g.picked_at, p_now, 'succeeded', p_lease_owner, g.job_ids
          from gone g where towpath._run_shared(g.job_ids)
        union all
        select unnest(g.job_ids), g.attempt, g.refunded, g.picked_at, p_now, 'succeeded', p_lease_owner, null
          from gone g where not towpath._run_shared(g.job_ids)),
    released as (
        insert into towpath.job_parallel_release (subscription_no, n)
        select g.subscription_no, sum(g.n) from gone g where g.subscription_no > 0 group by g.subscription_no),
    counted as (
        insert into towpath.job_counter_delta (lane, outcome, n, wait_ms, run_ms, counted_at)
        select g.lane, 'succeeded', sum(g.n), sum(g.wait_ms), sum(g.ran * g.n) * 1000, p_now from gone g group by g.lane)
    select count(*) as entries,
           case when count(*) < cardinality(_whole) then array(select unnest(g.job_ids) from gone g) end as acked,
           case when not bool_and(g.bundle) then array(select unnest(g.job_ids) from gone g where not g.bundle) end as apart
      into _gone from gone g;
    acked := coalesce(_gone.acked, acked);
    if _gone.apart is not null then
        with ended as (
            delete from towpath.job_live v where v.job_id = any(_gone.apart) returning v.job_id, v.has_children)
        select coalesce(array_agg(e.job_id) filter (where e.has_children), '{}') into parents from ended e;
    end if;
end;
$$;

-- _job_ack_settled: the same, job by job, after settling them.
create or replace function towpath._job_ack_settled(
    p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_results jsonb[], p_now timestamptz,
    out acked uuid[], out parents uuid[])
    language plpgsql
    set enable_hashjoin = off
    set enable_mergejoin = off
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
        insert into towpath.job_run (job_id, attempt, refunded, picked_at, finished_at, outcome, lease_owner, result)
        select g.job_id, g.attempts, g.refunded, g.picked_at, p_now, 'succeeded', p_lease_owner,
               case when towpath._payload_small(x.result) is not false then x.result else towpath._result_stored(g.job_id, x.result) end
          from gone g cross join lateral (select p_results[array_position(p_job_ids, g.job_id)] as result) x),
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

-- fn_job_ack: leased | in_progress -> succeeded for one attempt (Q10), with what the handler returned.
--
-- Answers: {ok, job_id, state}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_ack(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_result jsonb default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_job_ack_many(array[p_job_id], p_lease_owner, array[p_attempt], null,
                                             case when p_result is not null then array[p_result] end);
begin
    return case
        when _answer -> 'ok' = 'false' then _answer
        when _answer -> 'acked' = '0' then towpath._job_lost(p_job_id)
        else jsonb_build_object('ok', true, 'job_id', p_job_id, 'state', 'succeeded') end;
end;
$$;

-- _job_close: any live state -> cancelled | dead_letter. The rows of job_live are locked and
-- their ready rows gone. Does not look at children; its callers do.
--
-- A job without a lease is recorded under the next attempt number as a refunded one.
create or replace function towpath._job_close(
    p_job_ids uuid[], p_outcome text, p_errors text[], p_ended_by text, p_now timestamptz) returns void
    language plpgsql
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
        select towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint), j.job_id, j.job_kind,
               coalesce(j.executor, towpath._job_executor(j.job_kind)), j.event_domain, j.source_ref, j.target_ref, j.payload_ref, j.payload_json, j.priority, j.max_attempts,
               coalesce(_same, p_errors[array_position(p_job_ids, v.job_id)]), v.attempts - v.refunded, j.actor,
               j.run_id, coalesce(j.idempotency_key, j.job_id::text), j.created_at, p_now, coalesce(p_ended_by, v.lease_owner)
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
            insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
            select b.lane, b.due_at, b.job_id, b.attempts, b.refunded, false from back b)
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
            'detail', 'failures must be an array of at most 1000 objects, jitter must be between 0 and 1');
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
            'detail', 'jitter must be between 0 and 1, retry_delay_seconds between 0 and 31536000');
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

grant execute on function towpath.fn_job_ack(uuid, text, integer, jsonb) to worker_service_user;
grant execute on function towpath.fn_job_ack_many(uuid[], text, integer[], bigint[], jsonb[]) to worker_service_user;
grant execute on function towpath.fn_job_fail_or_retry(uuid, text, integer, text, boolean, double precision,
    double precision) to worker_service_user;
grant execute on function towpath.fn_job_fail_or_retry_many(text, jsonb, double precision) to worker_service_user;
