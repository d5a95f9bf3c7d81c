-- Claim: a worker takes due jobs under a lease.

-- _job_lane_set: the lanes an executor may claim from now, highest priority first, and what else decides about a claim.
--
-- For every lane the most specific subscription of the executor decides, even if that row
-- says no: a disabled row for one kind switches the kind off beside a wildcard row. A holder
-- is the subscription's number, negative if it has no max_parallel. login_role is null for an executor that is not
-- registered, and empty for one that any worker may claim as; executor is its kind. A lane without an executor is for
-- those who are subscribed to its job kind by name, whatever their own kind, and for every PG_worker.
--
-- One row. No SET clause, so that it is inlined: this is on the pick-up path of an idle worker.
create or replace function towpath._job_lane_set(p_executor text, p_kinds text[])
    returns table (
        substrate text, worker text, login_role text, executor text,
        lanes integer[], floors timestamptz[], priorities integer[], holders integer[], caps integer[])
    language sql stable
as $$
    select (select c.value from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate'),
           (select c.value from towpath.config c where c.key = 'queue.worker.enabled' and c.kind = 'gate'),
           (select coalesce(r.login_role, '') from towpath.consumer_registry r where r.executor_id = p_executor),
           (select r.executor from towpath.consumer_registry r where r.executor_id = p_executor),
           coalesce(array_agg(x.lane), '{}'), array_agg(x.floor_at), array_agg(x.priority), array_agg(x.holder),
           array_agg(x.max_parallel)
      from (select l.lane, l.priority, s.max_parallel::integer as max_parallel,
                   case when s.max_parallel is null then -s.subscription_no else s.subscription_no end as holder,
                   coalesce((select f.floor_at from towpath.job_floor f where f.lane = l.lane
                              order by f.floor_no desc limit 1), '-infinity') as floor_at
              from towpath.job_lane l
             cross join lateral (
                   select s.subscription_no, s.max_parallel, s.priority_floor, s.enabled
                     from towpath.job_subscription s
                    where s.executor_id = p_executor
                      and (s.executor_kind = l.executor
                           or l.executor is null and (s.job_kind is not null or s.executor_kind = 'PG_worker'))
                      and (s.job_kind is null or s.job_kind = l.job_kind)
                      and (s.event_domain is null or s.event_domain = l.event_domain)
                    order by s.job_kind nulls last, s.event_domain nulls last
                    limit 1) s
             where (p_kinds is null or l.job_kind = any(p_kinds))
               and l.job_kind <> all(array(select p.job_kind from towpath.job_pause p))
               and s.enabled and l.priority >= s.priority_floor and l.closed_by is null
             order by l.priority desc, l.lane) x
$$;

-- _job_claim_refusal: why this claim is refused, or null. Only asked when something about the claim is unusual. An
-- executor must be registered, and one that is registered with a login_role may be used by that role's members only.
create or replace function towpath._job_claim_refusal(
    p_executor text, p_substrate text, p_worker text, p_login_role text, p_lanes integer[]) returns jsonb
    language plpgsql
as $$
begin
    return case
        when p_substrate is distinct from 'true' then
            jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.job_substrate.enabled')
        when p_worker is distinct from 'true' then
            jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.worker.enabled')
        when p_login_role is null then
            jsonb_build_object('ok', false, 'error', 'not_authorised', 'executor', p_executor, 'detail',
                format('%s is not registered; an administrator can register it with: towpath executor add', p_executor))
        when p_login_role <> '' and not coalesce(pg_has_role(session_user,
                 (select r.oid from pg_roles r where r.rolname = p_login_role), 'member'), false) then
            jsonb_build_object('ok', false, 'error', 'not_authorised', 'executor', p_executor,
                'detail', format('%s is registered for %s only', p_executor, p_login_role))
        when p_lanes = '{}' and not exists (
                 select 1 from towpath.job_subscription s where s.executor_id = p_executor and s.enabled) then
            jsonb_build_object('ok', false, 'error', 'no_subscription', 'executor', p_executor,
                'detail', 'this executor has no enabled subscription')
        end;
end;
$$;

-- _job_claim_invalid: what is wrong with the arguments of a claim, or null. p_counted: it is under a max_parallel.
create or replace function towpath._job_claim_invalid(
    p_executor text, p_owner text, p_limit integer, p_lease_seconds integer, p_counted boolean) returns jsonb
    language plpgsql
as $$
declare
    _fits boolean := btrim(p_executor) <> '' and towpath._key_fits(p_owner) and p_limit >= 1
        and coalesce(p_lease_seconds, 1) between 1 and 86400;
begin
    return case
        when _fits is not true then
            jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'a claim needs an executor, an owner of 1 to '
                '2000 bytes without control characters, a limit of 1 or more and a lease of 1 to 86400 seconds')
        when p_counted and current_setting('transaction_isolation') <> 'read committed' then
            jsonb_build_object('ok', false, 'error', 'invalid',
                'detail', 'claims under max_parallel require a read committed transaction')
        end;
end;
$$;

-- _job_lanes_due: of a lane set with many lanes, those that have something due now. One statement instead of one for
-- each priority: most of so many lanes have nothing. The limit keeps it a probe for each lane, and no join.
create or replace function towpath._job_lanes_due(
    inout lanes integer[], inout floors timestamptz[], inout priorities integer[], inout holders integer[],
    inout caps integer[])
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    select coalesce(array_agg(l.lane order by l.no), '{}'), array_agg(l.floor_at order by l.no),
           array_agg(l.priority order by l.no), array_agg(l.holder order by l.no), array_agg(l.cap order by l.no)
      into lanes, floors, priorities, holders, caps
      from unnest(lanes, floors, priorities, holders, caps) with ordinality
           as l(lane, floor_at, priority, holder, cap, no)
     where (select true from towpath.job_ready r
             where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= _now limit 1);
end;
$$;

-- _job_group_add: adds jobs to the group they can share a lease entry with, or as a group of their own.
create or replace function towpath._job_group_add(p_groups towpath._job_group[], p_jobs towpath._job_group)
    returns towpath._job_group[]
    language plpgsql immutable
as $$
begin
    for _i in reverse cardinality(p_groups)..1 loop
        if (p_groups[_i].lane, p_groups[_i].attempts, p_groups[_i].refunded, p_groups[_i].bundle)
           = (p_jobs.lane, p_jobs.attempts, p_jobs.refunded, p_jobs.bundle) then
            p_groups[_i].job_ids := p_groups[_i].job_ids || p_jobs.job_ids;
            p_groups[_i].due_sum := p_groups[_i].due_sum + p_jobs.due_sum;
            return p_groups;
        end if;
    end loop;
    return p_groups || p_jobs;
end;
$$;

-- _job_pick: takes up to p_limit due jobs out of their ready rows: the highest priority first, within one the oldest
-- due first, across lanes. Of a counted subscription (p_nos) no more than its room (p_rooms). Answers groups of jobs that
-- can share a lease entry.
--
-- Ready rows are locked as they are read, and rows that others have locked are skipped: no job goes twice. The limit of
-- the innermost query counts jobs, so that little is locked that is not taken; the first job stands for its row.
create or replace function towpath._job_pick(
    p_lanes integer[], p_floors timestamptz[], p_priorities integer[], p_holders integer[],
    p_nos integer[], p_rooms integer[], p_limit integer, p_now timestamptz) returns towpath._job_group[]
    language plpgsql
as $$
declare
    _need integer := p_limit;
    _rooms integer[] := p_rooms;
    _from integer := 1;
    _to integer;
    _row record;
    _no integer;
    _take integer;
    _ids uuid[];
    _whole tid[] := '{}';
    _groups towpath._job_group[] := '{}';
begin
    while _from <= cardinality(p_lanes) and _need > 0 loop
        _to := _from;
        while p_priorities[_to + 1] = p_priorities[_from] loop
            _to := _to + 1;
        end loop;
        for _row in
            select l.holder, r.*
              from unnest(p_lanes[_from : _to], p_floors[_from : _to], p_holders[_from : _to])
                   as l(lane, floor_at, holder)
             cross join lateral (
                   select r.*, generate_series(1, r.jobs) as no
                     from (select r.ctid as tid, r.*, coalesce(cardinality(r.job_ids), 1) as jobs
                             from towpath.job_ready r
                            where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= p_now
                            order by r.due_at, r.job_id for update skip locked) r
                    limit greatest(least(_need, _rooms[array_position(p_nos, l.holder)]), 0)) r
             where r.no = 1
             order by r.due_at, r.job_id
        loop
            _no := array_position(p_nos, _row.holder);
            _take := least(_row.jobs, _need, _rooms[_no]);
            continue when _take <= 0;
            _need := _need - _take;
            if _no is not null then
                _rooms[_no] := _rooms[_no] - _take;
            end if;
            _ids := coalesce(_row.job_ids[: _take], array[_row.job_id]);
            if _take = _row.jobs then
                _whole := _whole || _row.tid;
            else
                perform towpath._job_ready_split(_row.tid, _ids);
            end if;
            _groups := towpath._job_group_add(_groups, row(_row.lane, _row.holder, _row.attempts, _row.refunded,
                                                           _row.bundle, _ids, _take * date_part('epoch', _row.due_at)));
        end loop;
        _from := _to + 1;
    end loop;
    delete from towpath.job_ready r where r.ctid = any(_whole);
    return _groups;
end;
$$;

-- _job_answer: what a claim answers about the jobs of one lease entry; and about all others whose ids lie between theirs,
-- which the caller leaves out. The bounds let the statement open the partitions of these days only. A job that is set
-- apart may be due at another time than its wide row says. A job without an executor gets the claimer's.
--
-- No SET clause, so that it is inlined.
create or replace function towpath._job_answer(p_entry towpath.lease_entry, p_executor text)
    returns setof towpath._claimed_job
    language sql stable
as $$
    select j.job_id, p_entry.attempt, j.max_attempts + p_entry.refunded, j.job_kind::text,
           coalesce(j.executor::text, p_executor), j.event_domain, j.source_ref, j.target_ref, j.payload_ref,
           j.payload_json::jsonb, j.priority::integer,
           case when p_entry.bundle then j.scheduled_at::timestamptz
                else (select v.due_at from towpath.job_live v where v.job_id = j.job_id)::timestamptz end,
           j.idempotency_key::text, j.actor::text, j.run_id, j.created_at, p_entry.lease_owner, p_entry.lease_until,
           p_entry.entry_id, null::jsonb, j.traceparent
      from towpath.job j
     where j.job_id >= p_entry.job_ids[1] and j.job_id <= p_entry.job_ids[cardinality(p_entry.job_ids)]
$$;

-- fn_job_claim_rows: queued | retry_waiting -> leased, up to p_limit jobs (Q07). What it takes, and in what order, as one
-- would write it without ready rows and lease entries; a test takes this query from here and compares random claims
-- with it, job by job:
--
--   select v.job_id
--     from (select v.job_id, v.due_at, l.priority, s.subscription_no, s.max_parallel, row_number() over (
--                  partition by s.subscription_no order by l.priority desc, v.due_at, v.job_id) as place
--             from towpath._job_now v
--             join towpath.job_lane l on l.lane = v.lane and (p_kinds is null or l.job_kind = any(p_kinds))
--            cross join lateral (select * from towpath.job_subscription s
--                                 where s.executor_id = p_executor
--                                   and (s.executor_kind = l.executor or l.executor is null
--                                        and (s.job_kind is not null or s.executor_kind = 'PG_worker'))
--                                   and (s.job_kind is null or s.job_kind = l.job_kind)
--                                   and (s.event_domain is null or s.event_domain = l.event_domain)
--                                 order by s.job_kind nulls last, s.event_domain nulls last limit 1) s
--            where v.state in (0, 3) and v.blocked = 0 and v.due_at <= towpath.fn_now()
--              and s.enabled and l.priority >= s.priority_floor
--              and l.job_kind not in (select p.job_kind from towpath.job_pause p)) v
--    where v.max_parallel is null or v.place <= v.max_parallel - (
--              select count(*) from towpath._job_now n where n.subscription_no = v.subscription_no and n.state in (1, 2))
--    order by v.priority desc, v.due_at, v.job_id limit p_limit
--
-- (Jobs of one due time in several lanes are the exception: they come ready row by ready row.)
--
-- The way it is done: pick jobs out of their ready rows (_job_pick), write lease entries for them, answer with their
-- wide rows (_job_answer). The lease is fenced by owner and attempt (lease_entry.sql).
--
-- max_parallel is exact (R06): the subscription's row is locked before anything is picked, so the next claimer of the
-- subscription waits for this transaction and then reads the new number. That needs a fresh snapshot per statement,
-- hence read committed.
--
-- One row per job, in no order: priority, scheduled_at and job_id say which to run first. Its entry_id makes the ack
-- cheaper. Without a key of its own a job's key is its id, and the column null. A refusal is one row with nothing but
-- the column refusal, which holds the answer of fn_job_claim.
create or replace function towpath.fn_job_claim_rows(
    p_executor text, p_kinds text[] default null, p_limit integer default 1,
    p_lease_owner text default null, p_lease_seconds integer default null) returns setof towpath._claimed_job
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _now timestamptz;
    _owner text := coalesce(p_lease_owner, p_executor);
    _until timestamptz;
    _set record;
    _executor text;
    _counted boolean;
    _held record;
    _nos integer[];
    _rooms integer[];
    _group towpath._job_group;
    _groups towpath._job_group[];
    _ids uuid[];
    _wait_ms double precision;
    _entry towpath.lease_entry;
    _refused towpath._claimed_job;
    _none text;
begin
    -- Shared by all claims; fn_job_subscription_put takes it alone when it starts to count. An assignment rather than
    -- a query, because that skips the executor.
    _none := pg_advisory_xact_lock_shared(7301, 1);
    select s.* into _set from towpath._job_lane_set(p_executor, p_kinds) s;
    _executor := _set.executor;
    _counted := array_remove(_set.caps, null) <> '{}';
    if (_set.substrate = 'true' and _set.worker = 'true' and _set.login_role = '' and _set.lanes <> '{}' and not _counted
        and p_limit >= 1 and towpath._key_fits(_owner) and p_lease_seconds between 1 and 86400) is not true then
        _refused.refusal := coalesce(
            towpath._job_claim_invalid(p_executor, _owner, p_limit, p_lease_seconds, _counted),
            towpath._job_claim_refusal(p_executor, _set.substrate, _set.worker, _set.login_role, _set.lanes));
        if _refused.refusal is not null then
            return next _refused;
            return;
        end if;
    end if;
    if cardinality(_set.lanes) > towpath._claim_lanes_max() then
        _set := towpath._job_lanes_due(_set.lanes, _set.floors, _set.priorities, _set.holders, _set.caps);
    end if;
    if _counted then
        _held := towpath._job_parallel_enter(_set.holders, _set.caps);
        _nos := _held.nos;
        _rooms := _held.rooms;
    end if;
    -- After the counter's lock, so that a long wait for it does not age the lease.
    _now := towpath.fn_now();
    _until := _now + interval '1 second' * coalesce(p_lease_seconds, towpath._job_lease_seconds());
    _groups := towpath._job_pick(_set.lanes, _set.floors, _set.priorities, _set.holders, _nos, _rooms,
                                 least(p_limit, 5000), _now);
    foreach _group in array _groups loop
        if cardinality(_group.job_ids) > 1 then
            _group.job_ids := array(select unnest(_group.job_ids) order by 1);
        end if;
        _wait_ms := (date_part('epoch', _now) - _group.due_sum / cardinality(_group.job_ids)) * 1000;
        for _i in 1..cardinality(_group.job_ids) by towpath._entry_jobs_max() loop
            _ids := _group.job_ids[_i : _i + towpath._entry_jobs_max() - 1];
            insert into towpath.lease_entry (lease_until, job_ids, attempt, refunded, lane, wait_ms, lease_owner,
                picked_at, subscription_no, bundle)
            values (_until, _ids, _group.attempts + 1, _group.refunded, _group.lane, _wait_ms * cardinality(_ids),
                _owner, _now, _group.holder, _group.bundle)
            returning * into _entry;
            -- Ids that lie close together are read as a range, others are looked up one by one.
            if cardinality(_ids) > 1 and towpath._ids_dense(_ids) then
                return query
                select a.* from towpath._job_answer(_entry, _executor) a
                 where a.job_id in (select unnest(_ids));
            else
                return query
                select a.* from towpath._job_answer(_entry, _executor) a where a.job_id = any(_ids);
            end if;
        end loop;
    end loop;
    if _counted then
        perform towpath._job_parallel_leave(_held.nos, _held.held, _held.folded_to, _held.change_no, _held.changed,
                                            _groups);
    end if;
end;
$$;

-- _job_lease_seconds: queue.lease.duration_sec as a usable number.
create or replace function towpath._job_lease_seconds() returns double precision
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
as $$
declare
    _value text;
begin
    select c.value into _value from towpath.config c
     where c.key = 'queue.lease.duration_sec' and c.kind = 'number';
    if _value ~ '^[1-9][0-9]{0,3}$' then
        return _value::double precision;
    end if;
    return towpath._config_number('queue.lease.duration_sec');
end;
$$;

-- fn_job_claim: the same as one jsonb answer, for callers without typed rows. If a job makes it raise, that is set aside and
-- the claim made again (Q22); who calls fn_job_claim_rows asks fn_job_claim_set_aside for that.
--
-- Answers: {ok, jobs: [{job_id, attempt, ...}]}; gate_closed {gate}, no_subscription,
-- not_authorised, invalid.
create or replace function towpath.fn_job_claim(
    p_executor text, p_kinds text[] default null, p_limit integer default 1,
    p_lease_owner text default null, p_lease_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    for _try in 1..2 loop
        begin
            select coalesce((array_agg(c.refusal) filter (where c.refusal is not null))[1],
                            jsonb_build_object('ok', true, 'jobs',
                                coalesce(jsonb_agg(to_jsonb(c) - 'refusal' || jsonb_build_object(
                                                       'idempotency_key', coalesce(c.idempotency_key, c.job_id::text))
                                                   order by c.priority desc, c.scheduled_at, c.job_id)
                                         filter (where c.refusal is null), '[]')))
              into _answer
              from towpath.fn_job_claim_rows(p_executor, p_kinds, p_limit, p_lease_owner, p_lease_seconds) c;
            exit;
        exception when others then
            if _try = 2 or towpath._error_common(sqlstate)
               or towpath.fn_job_claim_set_aside(p_executor, p_kinds) -> 'set_aside' = '[]' then
                raise;
            end if;
        end;
    end loop;
    return _answer;
end;
$$;

grant execute on function towpath.fn_job_claim(text, text[], integer, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_claim_rows(text, text[], integer, text, integer) to worker_service_user;
