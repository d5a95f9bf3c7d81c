-- Claim: a worker takes due jobs under a lease.

-- _job_lane_set: the lanes an executor may claim from now, highest priority first, and what else decides about a claim.
--
-- For every lane the most specific subscription of the executor decides, even if that row
-- says no: a disabled row for one kind switches the kind off beside a wildcard row. A holder
-- is the subscription's number, negative if it has no max_parallel. login_role is null for an executor that is not
-- registered, and empty for one that any worker may claim as.
--
-- One row. Without settings, so that it becomes part of its caller's query: an idle worker's next job waits for this.
create or replace function towpath._job_lane_set(p_executor text, p_kinds text[])
    returns table (
        substrate text, worker text, login_role text, lease_seconds text,
        lanes integer[], floors timestamptz[], priorities integer[], holders integer[], caps integer[])
    language sql stable
as $$
    select (select c.value from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate'),
           (select c.value from towpath.config c where c.key = 'queue.worker.enabled' and c.kind = 'gate'),
           (select coalesce(r.login_role, '') from towpath.consumer_registry r where r.executor_id = p_executor),
           (select c.value from towpath.config c where c.key = 'queue.lease.duration_sec' and c.kind = 'number'),
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
                    where s.executor_id = p_executor and s.executor_kind = l.executor
                      and (s.job_kind is null or s.job_kind = l.job_kind)
                      and (s.event_domain is null or s.event_domain = l.event_domain)
                    order by s.job_kind nulls last, s.event_domain nulls last
                    limit 1) s
             where (p_kinds is null or l.job_kind = any(p_kinds))
               and l.job_kind <> all(array(select p.job_kind from towpath.job_pause p))
               and s.enabled and l.priority >= s.priority_floor and l.closed_by is null
             order by l.priority desc, l.lane) x
$$;

-- _job_claim_refusal: why an executor may not claim, or null if it may: what _job_lane_set said is only looked
-- into when something about it is unusual. An executor must be registered, and one that is registered with a
-- login_role may be used by that role's members only.
create or replace function towpath._job_claim_refusal(
    p_executor text, p_substrate text, p_worker text, p_login_role text, p_lanes integer[]) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if p_substrate is distinct from 'true' or p_worker is distinct from 'true' then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate',
            case when p_substrate is distinct from 'true' then 'queue.job_substrate.enabled'
                 else 'queue.worker.enabled' end);
    end if;
    if p_login_role is null then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'executor', p_executor,
            'detail', format('%s is not registered; an administrator registers it: towpath executor add', p_executor));
    end if;
    if p_login_role <> '' and not coalesce(
           pg_has_role(session_user, (select r.oid from pg_roles r where r.rolname = p_login_role), 'member'), false) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'executor', p_executor,
            'detail', format('%s is registered for %s only', p_executor, p_login_role));
    end if;
    if p_lanes = '{}' and not exists (
           select 1 from towpath.job_subscription s where s.executor_id = p_executor and s.enabled) then
        return jsonb_build_object('ok', false, 'error', 'no_subscription', 'executor', p_executor,
            'detail', 'no enabled row of job_subscription names this executor');
    end if;
    return null;
end;
$$;

-- _job_parallel_enter: locks the counted subscriptions among the holders and says how many
-- more jobs each may hold (room, negative after a limit was lowered). change_no is the row
-- that said so far what is held, released what has been given back since.
--
-- Only releases near the newest are folded, so that a held snapshot cannot make this slow;
-- one that committed late waits for fn_job_parallel_recount, which means fewer jobs in the
-- meantime, never more.
create or replace function towpath._job_parallel_enter(
    p_holders integer[], p_caps integer[],
    out nos integer[], out room integer[], out held integer[], out released integer[],
    out folded_to bigint[], out change_no bigint[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _held integer;
    _released integer;
    _folded_to bigint;
    _top bigint;
    _change_no bigint;
begin
    nos := array(select distinct h from unnest(p_holders) h where h > 0 order by h);
    perform 1 from towpath.job_subscription s where s.subscription_no = any(nos)
      order by s.subscription_no for no key update;
    for _i in 1..cardinality(nos) loop
        select p.held, p.folded_to, p.change_no into _held, _folded_to, _change_no
          from towpath.job_parallel p
         where p.subscription_no = nos[_i] order by p.change_no desc limit 1;
        _folded_to := coalesce(_folded_to, 0);
        with gone as (
            delete from towpath.job_parallel_release r
             where r.subscription_no = nos[_i] and r.release_no > _folded_to - 2000
            returning r.n, r.release_no)
        select coalesce(sum(g.n), 0), max(g.release_no) into _released, _top from gone g;
        held[_i] := coalesce(_held, 0) - _released;
        released[_i] := _released;
        room[_i] := p_caps[array_position(p_holders, nos[_i])] - held[_i];
        folded_to[_i] := greatest(_folded_to, _top);
        change_no[_i] := _change_no;
    end loop;
end;
$$;

-- _job_parallel_leave: writes down what is held now and what has been folded.
create or replace function towpath._job_parallel_leave(
    p_no integer, p_held integer, p_folded_to bigint, p_change_no bigint) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
begin
    insert into towpath.job_parallel (subscription_no, held, folded_to) values (p_no, p_held, p_folded_to);
    -- The one row that counted before: looking for older ones would walk over dead entries.
    delete from towpath.job_parallel p where p.subscription_no = p_no and p.change_no = p_change_no;
end;
$$;

-- _job_ready_spread: of ready rows some of whose jobs are taken, the others are ready one by one. Other claimers had to
-- pass by these rows and may sleep by now.
create or replace function towpath._job_ready_spread(p_tids tid[], p_taken uuid[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _lanes integer[];
begin
    with spare as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, moved)
        select r.lane, r.due_at, r.job_id, r.attempts, r.refunded, r.moved
          from (select r.lane, r.due_at, unnest(r.job_ids) as job_id, r.attempts, r.refunded, r.moved
                  from towpath.job_ready r where r.ctid = any(p_tids)) r
         where r.job_id not in (select unnest(p_taken))
        returning lane)
    select array_agg(distinct s.lane) into _lanes from spare s;
    perform towpath._job_wake(_lanes);
end;
$$;

-- _ids_dense: whether ids, in their order, lie so close that reading all rows between the first and the last
-- is cheaper than looking each of them up: 20,000 or more for a second in which ids were made.
create or replace function towpath._ids_dense(p_ids uuid[]) returns boolean
    language sql immutable parallel safe
    return towpath._uuid7_at(p_ids[cardinality(p_ids)]) - towpath._uuid7_at(p_ids[1])
        <= cardinality(p_ids) * interval '50 microseconds';

-- fn_job_claim_rows: queued | retry_waiting -> leased, up to p_limit jobs (Q07).
--
-- Priorities are served from the highest down, within one the oldest due first, across
-- lanes. A claimer locks what it considers and skips what others hold, so no job goes
-- twice; what it locked and did not take is free again at its commit. The lease is fenced
-- by owner and attempt, and stands in lease_batch only until somebody but an ack needs it.
--
-- max_parallel is exact (R06): the subscription's row is locked before anything is taken,
-- so the next claimer of the subscription waits for this transaction and then reads the
-- new number. That needs a fresh snapshot per statement, hence read committed.
--
-- One row per job, in no order: priority, scheduled_at and job_id say which to run first. Its
-- batch_id makes the ack cheaper. A refusal is one row with nothing but the column refusal,
-- which holds the answer of fn_job_claim.
create or replace function towpath.fn_job_claim_rows(
    p_executor text, p_kinds text[] default null, p_limit integer default 1,
    p_lease_owner text default null, p_lease_seconds integer default null)
    returns table (
        job_id uuid, attempt integer, max_attempts integer, job_kind text, executor text, event_domain text,
        source_ref text, target_ref text, payload_ref text, payload_json jsonb, priority integer,
        scheduled_at timestamptz, idempotency_key text, actor text, run_id uuid, created_at timestamptz,
        lease_owner text, lease_until timestamptz, batch_id bigint, refusal jsonb, traceparent text)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    _now timestamptz;
    _owner text := coalesce(p_lease_owner, p_executor);
    _limit integer := least(p_limit, 5000);
    _until timestamptz;
    _none text;
    _set record;
    _par record;
    _room integer[];
    _from integer := 1;
    _to integer;
    _need integer;
    _lane integer;
    _floor timestamptz;
    _tids tid[] := '{}';
    _whole bigint := 0;
    _sorted boolean := false;
    _found record;
    _ids uuid[] := '{}';
    _first_lane integer;
    _last_lane integer;
    _attempted integer := 0;
    _moved bigint := 0;
    _due_sum double precision := 0;
    _dues timestamptz[];
    _attempts integer[];
    _refunds integer[];
    _lanes integer[];
    _batch bigint;
    _batches bigint[];
    _slice uuid[];
    _low uuid;
    _high uuid;
    _dense boolean;
    _taken integer;
begin
    if coalesce(btrim(p_executor), '') = '' or not towpath._key_fits(_owner) or coalesce(_limit, 0) < 1
       or p_lease_seconds not between 1 and 86400 then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'a claim needs an executor, an owner of 1 to 2000 bytes without control characters, a limit of '
                      '1 or more and a lease of 1 to 86400 seconds');
        return next;
        return;
    end if;
    -- Shared by all claims; fn_job_subscription_put takes it alone when it starts to count.
    -- Assignments rather than queries, here and below: they skip the executor.
    _none := pg_advisory_xact_lock_shared(7301, 1);
    select s.* into _set from towpath._job_lane_set(p_executor, p_kinds) s;
    if (_set.substrate = 'true' and _set.worker = 'true' and _set.login_role = '' and _set.lanes <> '{}') is not true then
        refusal := towpath._job_claim_refusal(p_executor, _set.substrate, _set.worker, _set.login_role, _set.lanes);
        if refusal is not null then
            return next;
            return;
        end if;
    end if;
    if cardinality(_set.lanes) > 32 then
        -- One statement instead of one for each priority: most of so many lanes have nothing that is due. The limit
        -- keeps it a probe for each lane, and no join.
        _now := towpath.fn_now();
        select _set.lease_seconds as lease_seconds, coalesce(array_agg(l.lane order by l.no), '{}') as lanes,
               array_agg(l.floor_at order by l.no) as floors, array_agg(l.priority order by l.no) as priorities,
               array_agg(l.holder order by l.no) as holders, array_agg(l.cap order by l.no) as caps
          into _set
          from unnest(_set.lanes, _set.floors, _set.priorities, _set.holders, _set.caps)
               with ordinality as l(lane, floor_at, priority, holder, cap, no)
         where (select true from towpath.job_ready r
                 where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= _now limit 1);
    end if;
    if array_remove(_set.caps, null) <> '{}' then
        if current_setting('transaction_isolation') <> 'read committed' then
            refusal := jsonb_build_object('ok', false, 'error', 'invalid',
                'detail', 'claims under max_parallel need a read committed transaction');
            return next;
            return;
        end if;
        _par := towpath._job_parallel_enter(_set.holders, _set.caps);
        _room := _par.room;
    end if;

    -- After the counter's lock, so that a long wait for it does not age the lease.
    _now := towpath.fn_now();
    while _from <= cardinality(_set.lanes) and cardinality(_ids) < _limit loop
        _to := _from;
        while _set.priorities[_to + 1] = _set.priorities[_from] loop
            _to := _to + 1;
        end loop;
        _need := _limit - cardinality(_ids);
        _sorted := _sorted or _room is not null or _from < _to;
        if not _sorted then
            -- One lane, as is usual: what comes from the index is in order, row by row.
            _lane := _set.lanes[_from];
            _floor := _set.floors[_from];
            select coalesce(array_agg(c.tid) filter (where c.no = 1), '{}') as tids,
                   count(*) filter (where c.no = c.jobs) as whole, array_agg(c.job_id) as ids,
                   _lane as first_lane, _lane as last_lane, max(c.attempts) as attempted, count(c.moved) as moved,
                   sum(date_part('epoch', c.due_at)) as due_sum, null::integer[] as holders
              into _found
              from (select r.tid, r.due_at, r.attempts, r.moved, cardinality(r.job_ids) as jobs,
                           unnest(r.job_ids) as job_id, generate_subscripts(r.job_ids, 1) as no
                      from (select r.ctid as tid, r.due_at, coalesce(r.job_ids, array[r.job_id]) as job_ids, r.attempts,
                                   r.moved
                              from towpath.job_ready r
                             where r.lane = _lane and r.due_at >= _floor and r.due_at <= _now
                             order by r.due_at, r.job_id for update skip locked) r
                     limit _need) c;
        elsif _room is null then
            -- Jobs of one due time are in the order of their ids here, so that several rows may be cut.
            select coalesce(array_agg(c.tid) filter (where c.no = 1), '{}') as tids,
                   count(*) filter (where c.no = c.jobs) as whole, array_agg(c.job_id) as ids,
                   min(c.lane) as first_lane, max(c.lane) as last_lane, max(c.attempts) as attempted,
                   count(c.moved) as moved, sum(date_part('epoch', c.due_at)) as due_sum, null::integer[] as holders
              into _found
              from (select c.*
                  from unnest(_set.lanes[_from:_to], _set.floors[_from:_to]) as l(lane, floor_at)
                 cross join lateral (
                       select r.tid, r.due_at, r.lane, r.attempts, r.moved, cardinality(r.job_ids) as jobs,
                              unnest(r.job_ids) as job_id, generate_subscripts(r.job_ids, 1) as no
                         from (select r.ctid as tid, r.due_at, r.lane, coalesce(r.job_ids, array[r.job_id]) as job_ids,
                                      r.attempts, r.moved
                                 from towpath.job_ready r
                                where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= _now
                                order by r.due_at, r.job_id for update skip locked) r
                        limit _need) c
                 order by c.due_at, c.job_id
                 limit _need) c;
        else
            -- The same, but a job counts only up to its place in its own subscription's room.
            select coalesce(array_agg(c.tid) filter (where c.no = 1), '{}') as tids,
                   count(*) filter (where c.no = c.jobs) as whole, array_agg(c.job_id) as ids,
                   min(c.lane) as first_lane, max(c.lane) as last_lane, max(c.attempts) as attempted,
                   count(c.moved) as moved, sum(date_part('epoch', c.due_at)) as due_sum, array_agg(c.holder) as holders
              into _found
              from (select c.*
                      from (select c.*, l.holder, l.room,
                                   row_number() over (partition by l.holder order by c.due_at, c.job_id) as place
                              from (select l.lane, l.floor_at, l.holder,
                                           coalesce(_room[array_position(_par.nos, l.holder)], _need) as room
                                      from unnest(_set.lanes[_from:_to], _set.floors[_from:_to],
                                                  _set.holders[_from:_to]) as l(lane, floor_at, holder)) l
                             cross join lateral (
                                   select r.tid, r.due_at, r.lane, r.attempts, r.moved, cardinality(r.job_ids) as jobs,
                                          unnest(r.job_ids) as job_id, generate_subscripts(r.job_ids, 1) as no
                                     from (select r.ctid as tid, r.due_at, r.lane,
                                                  coalesce(r.job_ids, array[r.job_id]) as job_ids, r.attempts, r.moved
                                             from towpath.job_ready r
                                            where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= _now
                                            order by r.due_at, r.job_id for update skip locked) r
                                    limit greatest(least(_need, l.room), 0)) c) c
                     where c.place <= c.room
                     order by c.due_at, c.job_id
                     limit _need) c;
            for _i in 1..cardinality(_par.nos) loop
                _taken := cardinality(array_positions(_found.holders, _par.nos[_i]));
                _room[_i] := _room[_i] - coalesce(_taken, 0);
            end loop;
        end if;
        if _found.tids <> '{}' then
            _tids := _tids || _found.tids;
            _whole := _whole + _found.whole;
            _ids := _ids || _found.ids;
            _first_lane := least(_first_lane, _found.first_lane);
            _last_lane := greatest(_last_lane, _found.last_lane);
            _attempted := greatest(_attempted, _found.attempted);
            _moved := _moved + _found.moved;
            _due_sum := _due_sum + _found.due_sum;
        end if;
        _from := _to + 1;
    end loop;
    for _i in 1..coalesce(cardinality(_room), 0) loop
        if _room[_i] <> _par.room[_i] or _par.released[_i] > 0 then
            perform towpath._job_parallel_leave(_par.nos[_i], _par.held[_i] + _par.room[_i] - _room[_i],
                                                _par.folded_to[_i], _par.change_no[_i]);
        end if;
    end loop;
    if _tids = '{}' then
        return;
    end if;
    if _whole < cardinality(_tids) then
        if _sorted then
            _none := towpath._job_ready_spread(_tids, _ids);
        else
            -- Only the last row can be cut, and the last ids are its jobs.
            _none := towpath._job_ready_spread(_tids[cardinality(_tids):],
                                               _ids[cardinality(_ids) - towpath._ready_jobs_max() + 1:]);
        end if;
    end if;

    _until := _now + interval '1 second' * coalesce(p_lease_seconds,
        case when _set.lease_seconds ~ '^[1-9][0-9]{0,3}$' then _set.lease_seconds::double precision
             else towpath._job_lease_seconds() end);
    if _first_lane = _last_lane and _attempted = 0 and _moved = 0 then
        -- The usual claim: new jobs of one lane, due when they were scheduled. Nothing has to be carried from
        -- the ready rows to the answer, and that is a third of the work.
        if cardinality(_ids) = 1 then
            -- One job, for which somebody may have been waiting: one statement instead of three.
            _low := _ids[1];
            return query
            with gone as (delete from towpath.job_ready r where r.ctid = any(_tids)),
            entry as (
                insert into towpath.lease_batch (lease_until, job_ids, attempt, refunded, lane, wait_ms, lease_owner,
                    picked_at, subscription_no)
                values (_until, _ids, 1, 0, _first_lane, (date_part('epoch', _now) - _due_sum) * 1000, _owner, _now,
                        _set.holders[array_position(_set.lanes, _first_lane)])
                returning batch_id)
            select j.job_id, 1, j.max_attempts::integer, j.job_kind::text, j.executor::text, j.event_domain,
                   j.source_ref, j.target_ref, j.payload_ref, j.payload_json::jsonb, j.priority::integer,
                   j.scheduled_at::timestamptz, j.idempotency_key::text, j.actor::text, j.run_id, j.created_at, _owner, _until,
                   (select e.batch_id from entry e), null::jsonb, j.traceparent
              from towpath.job j where j.job_id = _low;
            return;
        end if;
        delete from towpath.job_ready r where r.ctid = any(_tids);
        _ids := array(select x from unnest(_ids) x order by x);
        _dense := towpath._ids_dense(_ids);
        for _i in 1..cardinality(_ids) by 240 loop
            _slice := _ids[_i : _i + 239];
            _low := _slice[1];
            _high := _slice[cardinality(_slice)];
            insert into towpath.lease_batch (lease_until, job_ids, attempt, refunded, lane, wait_ms, lease_owner,
                picked_at, subscription_no)
            values (_until, _slice, 1, 0, _first_lane,
                    (date_part('epoch', _now) - _due_sum / cardinality(_ids)) * 1000 * cardinality(_slice), _owner, _now,
                    _set.holders[array_position(_set.lanes, _first_lane)])
            returning batch_id into _batch;
            if _dense then
                _batches := _batches || array_fill(_batch, array[cardinality(_slice)]);
                continue;
            end if;
            return query
            select j.job_id, 1, j.max_attempts::integer, j.job_kind::text, j.executor::text, j.event_domain,
                   j.source_ref, j.target_ref, j.payload_ref, j.payload_json::jsonb, j.priority::integer,
                   j.scheduled_at::timestamptz, j.idempotency_key::text, j.actor::text, j.run_id, j.created_at, _owner, _until,
                   _batch, null::jsonb, j.traceparent
              from towpath.job j
             -- The bounds are known before the statement starts and let it open the partitions of these days only.
             where j.job_id = any(_slice) and j.job_id >= _low and j.job_id <= _high;
        end loop;
        if _dense then
            _low := _ids[1];
            _high := _ids[cardinality(_ids)];
            return query
            select j.job_id, 1, j.max_attempts::integer, j.job_kind::text, j.executor::text, j.event_domain,
                   j.source_ref, j.target_ref, j.payload_ref, j.payload_json::jsonb, j.priority::integer,
                   j.scheduled_at::timestamptz, j.idempotency_key::text, j.actor::text, j.run_id, j.created_at, _owner, _until,
                   t.batch_id, null::jsonb, j.traceparent
              from unnest(_ids, _batches) as t(job_id, batch_id)
              join towpath.job j on j.job_id = t.job_id
             where j.job_id >= _low and j.job_id <= _high;
        end if;
        return;
    end if;
    with gone as (
        delete from towpath.job_ready r where r.ctid = any(_tids)
        returning coalesce(r.job_ids, array[r.job_id]) as job_ids, r.due_at, r.attempts, r.refunded, r.lane)
    select array_agg(t.job_id), array_agg(t.due_at), array_agg(t.attempts), array_agg(t.refunded), array_agg(t.lane)
      into _ids, _dues, _attempts, _refunds, _lanes
      from (select t.* from (select unnest(g.job_ids) as job_id, g.due_at, g.attempts, g.refunded, g.lane from gone g) t
             where t.job_id in (select unnest(_ids)) order by t.job_id) t;
    _batches := towpath._job_ledger_enter(_ids, _dues, _attempts, _refunds, _lanes, _set.lanes, _set.holders,
                                          _owner, _now, _until);
    _low := _ids[1];
    _high := _ids[cardinality(_ids)];
    return query
    select j.job_id, t.attempts + 1, least(j.max_attempts::bigint + t.refunded, 2147483647)::integer, j.job_kind::text,
           j.executor::text, j.event_domain,
           j.source_ref, j.target_ref, j.payload_ref, j.payload_json::jsonb, j.priority::integer,
           t.due_at, j.idempotency_key::text, j.actor::text, j.run_id, j.created_at, _owner, _until, t.batch_id,
           null::jsonb, j.traceparent
      from unnest(_ids, _dues, _attempts, _refunds, _batches) as t(job_id, due_at, attempts, refunded, batch_id)
      join towpath.job j on j.job_id = t.job_id
     where j.job_id = any(_ids) and j.job_id >= _low and j.job_id <= _high;
end;
$$;

-- _job_ledger_enter: writes the leases of a claim down and says which entry has each job. The
-- jobs come in the order of their ids; an entry has one attempt number, one number of refunds,
-- one lane and at most 240 jobs, so that most entries are acked whole and then gone.
create or replace function towpath._job_ledger_enter(
    p_job_ids uuid[], p_dues timestamptz[], p_attempts integer[], p_refunds integer[], p_lanes integer[],
    p_set_lanes integer[], p_set_holders integer[], p_owner text, p_now timestamptz, p_until timestamptz)
    returns bigint[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _batch bigint;
    _batches bigint[] := array_fill(null::bigint, array[cardinality(p_job_ids)]);
    _group record;
begin
    for _group in
        select x.attempt, x.refunded, x.lane, array_agg(x.job_id order by x.no) as job_ids, array_agg(x.no) as nos,
               sum(date_part('epoch', p_now) - date_part('epoch', x.due_at)) * 1000 as wait_ms
          from (select a.*, (row_number() over (partition by a.attempt, a.refunded, a.lane order by a.no) - 1) / 240 as part
                  from unnest(p_job_ids, p_dues, p_attempts, p_refunds, p_lanes)
                       with ordinality as a(job_id, due_at, attempt, refunded, lane, no)) x
         group by x.attempt, x.refunded, x.lane, x.part
    loop
        insert into towpath.lease_batch (lease_until, job_ids, attempt, refunded, lane, wait_ms, lease_owner, picked_at,
            subscription_no)
        values (p_until, _group.job_ids, _group.attempt + 1, _group.refunded, _group.lane, _group.wait_ms, p_owner, p_now,
                p_set_holders[array_position(p_set_lanes, _group.lane)])
        returning batch_id into _batch;
        for _i in 1..cardinality(_group.nos) loop
            _batches[_group.nos[_i]] := _batch;
        end loop;
    end loop;
    return _batches;
end;
$$;

-- _job_lease_seconds: queue.lease.duration_sec as a usable number.
create or replace function towpath._job_lease_seconds() returns double precision
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
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
                                coalesce(jsonb_agg(to_jsonb(c) - 'refusal' order by c.priority desc, c.scheduled_at, c.job_id)
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
