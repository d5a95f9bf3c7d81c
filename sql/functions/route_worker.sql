-- The route worker: one transactional pass over the events after a cursor (E02).

-- _route_key: the idempotency key of an attempt (E07). No SET clause, so that it is inlined.
create or replace function towpath._route_key(
    p_worker_name text, p_route_name text, p_event_id uuid, p_mode text, p_generation integer) returns text
    language sql stable
as $$ select format('wrk:%s:%s:%s:%s:%s', p_worker_name, p_route_name, p_event_id, p_mode, p_generation) $$;

-- _route_job: the job that a route makes of an event, as _job_enqueue_rows takes it. The event's
-- payload travels along unless the two together are too big; then payload_ref names the event.
--
-- No SET clause, so that it is inlined into _route_write.
create or replace function towpath._route_job(
    p_event jsonb, p_target jsonb, p_event_id uuid, p_event_domain text, p_route_name text, p_key text) returns jsonb
    language sql stable
as $$
    select jsonb_build_object(
            'job_kind', p_target -> 'job_kind', 'executor', p_target -> 'executor',
            'priority', p_target -> 'priority', 'max_attempts', p_target -> 'max_attempts',
            'target_ref', p_target -> 'target_ref', 'event_domain', p_event_domain,
            'source_ref', 'event:' || p_event_id,
            'payload_ref', case when not towpath._payload_small(p_event) then 'event:' || p_event_id end,
            'payload_json', case when towpath._payload_small(p_event) then p_event else p_event - 'payload' end,
            'idempotency_key', p_key, 'actor', 'route:' || p_route_name, 'traceparent', p_event -> 'traceparent')
        || case when p_target ? 'from_payload' then coalesce((
               select jsonb_object_agg(f.key, p_event -> 'payload' -> f.value)
                 from jsonb_each_text(p_target -> 'from_payload') f
                where p_event -> 'payload' ? f.value), '{}') else '{}' end
$$;

-- _route_signal: makes a signal of an event, for the process whose ref the payload names (P15). It happens in the
-- transaction that moves the cursor, and the first signal of a name stays, so exactly once. The payload of the event
-- is that of the signal. A process that has ended needs none; one that does not exist yet raises, and the event
-- becomes a dead letter that can be replayed. Returns the process.
create or replace function towpath._route_signal(p_work towpath._route_work, p_now timestamptz) returns uuid
    language plpgsql
as $$
declare
    _ref text := p_work.event -> 'payload' ->> (p_work.target ->> 'ref_key');
    _process towpath.process := towpath._process_find(p_work.target ->> 'process_kind', _ref);
begin
    if _process.process_id is null then
        raise exception 'there is no process %, named by % of the payload', coalesce(_ref, 'null'), p_work.target ->> 'ref_key'
            using errcode = 'no_data_found';
    end if;
    if _process.finished_at is null then
        perform towpath._process_signal(_process, p_work.target ->> 'signal', p_work.event -> 'payload',
                                        left('route:' || p_work.route_name, 200), p_now);
    end if;
    return _process.process_id;
end;
$$;

-- _route_write: carries decisions out: jobs, signals and deliveries, then one attempt for each. Raises what
-- a target refuses.
create or replace function towpath._route_write(p_work towpath._route_work[], p_now timestamptz) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_nestloop = off
    set enable_mergejoin = off
as $$
declare
    _micros bigint := (date_part('epoch', p_now) * 1000000)::bigint;
    _tail bytea := substring(uuid_send(gen_random_uuid()) from 9);
    _jobs jsonb;
    _positions bigint[];
    _routes integer[];
    _job_ids uuid[];
    _streams towpath._route_work[] := array(
        select w from unnest(p_work) w where w.decision = 'sent' and w.target_kind = 'stream');
    _stream_ids uuid[];
begin
    -- The batch is in order, and unnest keeps it.
    select jsonb_agg(towpath._route_job(w.event, w.target, w.event_id, w.event_domain, w.route_name,
               towpath._route_key(w.worker_name, w.route_name, w.event_id, w.mode, w.generation))),
           array_agg(w.position), array_agg(w.route_no)
      into _jobs, _positions, _routes
      from unnest(p_work) w where w.decision = 'sent' and w.target_kind = 'job';
    if _jobs is not null then
        select e.job_ids into _job_ids from towpath._job_enqueue_rows(_jobs) e;
    end if;
    if cardinality(_streams) > 0 then
        _stream_ids := array(select towpath._uuid7(_micros + n, _tail)
                               from generate_series(cardinality(p_work) + 1, cardinality(p_work) + cardinality(_streams)) n);
        perform towpath._stream_queue(_streams, _stream_ids, p_now);
    end if;
    with job as (
        select j.position, j.route_no, j.job_id from unnest(_positions, _routes, _job_ids) as j(position, route_no, job_id)),
    streamed as (
        select w.position, w.route_no, i.id
          from unnest(_streams) with ordinality as w
          join unnest(_stream_ids) with ordinality as i(id, nth) on i.nth = w.ordinality),
    signalled as materialized (
        select w.position, w.route_no, towpath._route_signal(w, p_now) as id
          from unnest(p_work) w where w.decision = 'sent' and w.target_kind = 'process'),
    made as materialized (
        select w.*, towpath._uuid7(_micros + row_number() over (order by w.position, w.route_no), _tail) as delivery_id
          from unnest(p_work) w where w.decision = 'sent' and w.target_kind = 'webhook'),
    queued as (
        insert into towpath.delivery (delivery_id, route_no, target_no, position, event_id, generation, ordering_key,
            event, recipients, next_at, created_at)
        select m.delivery_id, m.route_no, m.target_no, m.position, m.event_id, m.generation, m.ordering_key,
               m.event, m.recipients, p_now, p_now
          from made m)
    insert into towpath.route_attempt (position, worker_no, route_no, mode, generation, event_id, decision, reason,
        step, recipients, suppressed, result_id, attempted_at)
    select w.position, w.worker_no, w.route_no, w.mode, w.generation, w.event_id, w.decision, w.reason,
           w.step, w.recipients, w.suppressed, coalesce(j.job_id, m.delivery_id, s.id, g.id), p_now
      from unnest(p_work) w
      left join job j on j.position = w.position and j.route_no = w.route_no
      left join made m on m.position = w.position and m.route_no = w.route_no
      left join streamed s on s.position = w.position and s.route_no = w.route_no
      left join signalled g on g.position = w.position and g.route_no = w.route_no;
end;
$$;

-- _route_fail: records one event that a target refused: a failed attempt and a dead letter with
-- the whole event.
create or replace function towpath._route_fail(p_work towpath._route_work, p_error text, p_now timestamptz)
    returns void
    language plpgsql
as $$
begin
    insert into towpath.route_attempt (position, worker_no, route_no, mode, generation, event_id, decision, reason,
        step, recipients, suppressed, error, attempted_at)
    values (p_work.position, p_work.worker_no, p_work.route_no, p_work.mode, p_work.generation, p_work.event_id,
        'failed', 'refused', p_work.step, p_work.recipients, p_work.suppressed, towpath._error_text(p_error), p_now);
    insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation,
        position, event_id, event_snapshot, recipients, error, attempts, idempotency_key, created_at)
    values (towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint), 'routing', p_work.worker_no,
        p_work.route_no, p_work.route_name, p_work.mode, p_work.generation, p_work.position, p_work.event_id,
        p_work.event, p_work.recipients, towpath._error_text(p_error), 1,
        towpath._route_key(p_work.worker_name, p_work.route_name, p_work.event_id, p_work.mode, p_work.generation), p_now);
end;
$$;

-- _route_job_problem: what is wrong with the job that a route makes of an event, in words; null if nothing is, or the
-- target is no job.
create or replace function towpath._route_job_problem(p_work towpath._route_work) returns text
    language plpgsql stable
as $$
declare
    _refusal jsonb;
begin
    if p_work.target_kind = 'job' then
        _refusal := towpath._job_refusal(towpath._job_read(
            towpath._route_job(p_work.event, p_work.target, p_work.event_id, p_work.event_domain, p_work.route_name, 'key')));
    end if;
    return (_refusal ->> 'field') || ' ' || (_refusal ->> 'detail');
exception when data_exception then
    return sqlerrm;
end;
$$;

-- _route_trouble: whether an error is not about the event: conflicts with others, a lack of
-- resources, an operator, a bug. The pass ends with it and is tried again whole.
create or replace function towpath._route_trouble(p_sqlstate text) returns boolean
    language sql immutable
as $$ select left(p_sqlstate, 2) in ('08', '25', '40', '42', '53', '55', '57', '58', 'XX') $$;

-- _route_apply: carries out a batch, and what cannot be carried out is dead-lettered (E06). The
-- batch is tried as a whole; if it fails, its halves are, down to the one event that is to
-- blame: one subtransaction when all is well, a few dozen when one of a thousand is not. If not
-- even the dead letter can be written, the event is set aside (Q22).
--
-- Returns how many failed.
create or replace function towpath._route_apply(p_work towpath._route_work[], p_now timestamptz) returns integer
    language plpgsql
as $$
declare
    _half integer := cardinality(p_work) / 2;
    _error text;
    _state text;
begin
    begin
        perform towpath._route_write(p_work, p_now);
        return 0;
    exception when others then
        get stacked diagnostics _error = message_text, _state = returned_sqlstate;
        if towpath._route_trouble(_state) then
            raise;
        end if;
    end;
    if cardinality(p_work) = 1 then
        begin
            perform towpath._route_fail(p_work[1], format('%s (%s)',
                coalesce(towpath._route_job_problem(p_work[1]), _error), _state), p_now);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('routing', towpath._route_item(p_work[1].worker_name, p_work[1].position),
                                        format('%s; no dead letter: %s', _error, sqlerrm));
        end;
        return 1;
    end if;
    return towpath._route_apply(p_work[1:_half], p_now) + towpath._route_apply(p_work[_half + 1:], p_now);
end;
$$;

-- _route_item: what a set aside event is called: the worker and the position.
create or replace function towpath._route_item(p_worker_name text, p_position bigint) returns text
    language sql immutable
    return p_worker_name || '/' || p_position;

-- _route_span: decides about the events of a slice between two positions, carries the decisions out and
-- records each. The gate of the job substrate stops it before it writes anything. counts are, in this
-- order: events, broadcasts, sent, dry_run, disabled, skipped, failed, and what is to be delivered.
create or replace function towpath._route_span(
    p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint, p_now timestamptz,
    out counts bigint[], out refusal jsonb)
    language plpgsql
as $$
declare
    _work towpath._route_work[] := towpath._route_batch(p_worker, p_slice, p_after, p_to);
    _jobs bigint;
begin
    select count(*) filter (where w.decision = 'sent' and w.target_kind = 'job'),
           array[count(distinct w.position), count(distinct w.position) filter (where w.step = 5),
                 count(*) filter (where w.decision = 'sent'), count(*) filter (where w.decision = 'dry_run'),
                 count(*) filter (where w.decision = 'disabled'), count(*) filter (where w.decision = 'skipped'),
                 0, count(*) filter (where w.decision = 'sent' and w.target_kind not in ('job', 'process'))]
      into _jobs, counts from unnest(_work) w;
    if _jobs > 0 then
        refusal := towpath._gate_refusal('queue.job_substrate.enabled');
    end if;
    if refusal is null and counts[1] > 0 then
        counts[7] := towpath._route_apply(_work, p_now);
        counts[3] := counts[3] - counts[7];
    end if;
end;
$$;

-- _route_each: _route_span event by event, after it raised for all: an event that raises is set aside, and the
-- others are routed (Q22). reached is the last position that was decided, before a gate was found closed.
create or replace function towpath._route_each(
    p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint, p_now timestamptz,
    out counts bigint[], out reached bigint)
    language plpgsql
as $$
declare
    _position bigint;
    _one record;
begin
    counts := '{0,0,0,0,0,0,0,0}';
    reached := p_to;
    for _position in
        select p.position from towpath.event_position p
         where p.position > p_after and p.position <= p_to
           and (p_worker.slices = 1 or abs(p.key_hash::bigint) % p_worker.slices = p_slice)
         order by p.position
    loop
        begin
            select * into _one from towpath._route_span(p_worker, p_slice, _position - 1, _position, p_now);
            if _one.refusal is not null then
                reached := _position - 1;
                return;
            end if;
            counts := array(select c.a + c.b from unnest(counts, _one.counts) with ordinality as c(a, b, nth) order by c.nth);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('routing', towpath._route_item(p_worker.worker_name, _position), sqlerrm);
        end;
    end loop;
end;
$$;

-- _route_again: tries the events again that were set aside and whose next try is due. What was decided
-- about them already is left alone.
create or replace function towpath._route_again(p_worker towpath.route_worker, p_due text[], p_now timestamptz)
    returns void
    language plpgsql
as $$
declare
    _item text;
    _position bigint;
    _done record;
begin
    -- Whatever slice it belongs to.
    p_worker.slices := 1;
    for _item in
        select f.item from towpath.loop_fault f
         where f.loop_name = 'routing' and f.item = any(p_due) for update skip locked
    loop
        _position := split_part(_item, '/', 2)::bigint;
        select * into _done from towpath._route_each(p_worker, 0, _position - 1, _position, p_now);
        if _done.reached = _position then
            perform towpath._loop_over('routing', p_now, array[_item]);
        end if;
    end loop;
end;
$$;

-- fn_route_worker_run: one pass: lock a cursor, decide about the events after it, carry the
-- decisions out, record each, move the cursor; all or nothing (E02).
--
-- Without p_slice it takes the slice that lags most and that nobody works on, so any number of
-- callers share the work (E09); after an error name the slices in turn, or one that cannot be
-- worked on is taken again and again. Positions are dense, so a pass looks at p_batch_limit times the
-- number of slices and finds about p_batch_limit of its own. Both gates are read here (E04);
-- the gate of the job substrate stops a pass that would write jobs, before it writes anything.
-- An event that makes the pass raise is set aside and retried later; the others are routed (Q22). In
-- the answer, more is about this slice only.
--
-- Answers: {ok, worker_name, slice, slices, from_position, position, last_position, events,
-- decisions: {sent, dry_run, disabled, skipped, failed}, broadcasts, more, busy}; gate_closed,
-- not_found, invalid, conflict (slices differ; not read committed).
create or replace function towpath.fn_route_worker_run(
    p_worker_name text, p_batch_limit integer default 500, p_slice integer default null, p_slices integer default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _limit integer := least(greatest(coalesce(p_batch_limit, 500), 1), 10000);
    _refusal jsonb := coalesce(towpath._gate_refusal('event.routing.enabled'),
                               towpath._gate_refusal('event.route_worker.enabled'));
    _worker towpath.route_worker;
    _last bigint;
    _cursor towpath.route_worker_cursor;
    _mark towpath.route_cursor_mark;
    _from bigint;
    _to bigint;
    _due text[];
    _done record;
    _summary jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        return jsonb_build_object('ok', false, 'error', 'conflict',
            'detail', 'routing requires a read committed transaction');
    end if;
    select * into _worker from towpath.route_worker w where w.worker_name = p_worker_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'worker_name', p_worker_name,
            'detail', 'register it with fn_route_worker_put');
    end if;
    if p_slices <> _worker.slices or p_slice not between 0 and _worker.slices - 1 then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'worker_name', p_worker_name,
            'slices', _worker.slices, 'detail', format('the worker has %s slices', _worker.slices));
    end if;
    _due := array(select d from unnest(towpath._loop_due('routing')) d where starts_with(d, p_worker_name || '/'));
    if _due <> '{}' then
        perform towpath._route_again(_worker, _due, _now);
    end if;
    _last := towpath._event_last_position();
    -- A look without a lock first: a lock writes, and an idle worker should not.
    if not exists (select 1 from towpath.route_worker_cursor c
                    where c.worker_no = _worker.worker_no and (p_slice is null or c.slice = p_slice)
                      and _last > (select m.position from towpath.route_cursor_mark m where m.cursor_no = c.cursor_no
                                    order by m.mark_no desc limit 1)) then
        return towpath._route_idle(_worker, p_slice, _last, false);
    end if;
    select c.* into _cursor
      from towpath.route_worker_cursor c
     cross join lateral (select m.position from towpath.route_cursor_mark m where m.cursor_no = c.cursor_no
                          order by m.mark_no desc limit 1) m
     where c.worker_no = _worker.worker_no and (p_slice is null or c.slice = p_slice) and m.position < _last
     order by m.position
     limit 1
       for update of c skip locked;
    if not found then
        return towpath._route_idle(_worker, p_slice, _last, true);
    end if;
    -- Only now: another session may have moved the cursor, or changed the slices, before the lock.
    select * into _worker from towpath.route_worker w where w.worker_no = _worker.worker_no;
    select * into _mark from towpath.route_cursor_mark m where m.cursor_no = _cursor.cursor_no
     order by m.mark_no desc limit 1;
    _last := towpath._event_last_position();
    -- What retention has dropped need not be walked over.
    _from := greatest(_mark.position, (select r.kept_from - 1 from towpath.event_retention r));
    _to := least(_last, _from + _limit::bigint * _worker.slices);
    if _to <= _mark.position then
        return towpath._route_idle(_worker, _cursor.slice, _last, false);
    end if;

    begin
        select s.counts, s.refusal, _to as reached into _done
          from towpath._route_span(_worker, _cursor.slice, _from, _to, _now) s;
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
        select e.counts, null::jsonb as refusal, e.reached into _done
          from towpath._route_each(_worker, _cursor.slice, _from, _to, _now) e;
    end;
    if _done.refusal is not null then
        return _done.refusal;
    end if;
    _to := _done.reached;
    _summary := jsonb_build_object('from_position', _mark.position, 'position', _to, 'events', _done.counts[1],
        'decisions', jsonb_build_object('sent', _done.counts[3], 'dry_run', _done.counts[4],
            'disabled', _done.counts[5], 'skipped', _done.counts[6], 'failed', _done.counts[7]),
        'broadcasts', _done.counts[2]);
    insert into towpath.route_cursor_mark (cursor_no, position, runs, events, last_run_at, last_summary)
    values (_cursor.cursor_no, _to, _mark.runs + 1, _mark.events + _done.counts[1], _now, _summary);
    delete from towpath.route_cursor_mark m where m.cursor_no = _cursor.cursor_no and m.mark_no = _mark.mark_no;
    if _done.counts[8] > 0 and towpath._gate_open('queue.notify.enabled') then
        perform pg_notify('towpath_delivery', '');
    end if;
    return jsonb_build_object('ok', true, 'worker_name', p_worker_name, 'slice', _cursor.slice,
        'slices', _worker.slices, 'last_position', _last, 'more', _to < _last, 'busy', false) || _summary;
end;
$$;

-- _route_cursors: the cursors of a worker with their positions.
create or replace function towpath._route_cursors(p_worker_no smallint)
    returns table (cursor_no integer, slice integer, "position" bigint)
    language sql stable
as $$
    select c.cursor_no, c.slice, m.position
      from towpath.route_worker_cursor c
     cross join lateral (select m.position from towpath.route_cursor_mark m where m.cursor_no = c.cursor_no
                          order by m.mark_no desc limit 1) m
     where c.worker_no = p_worker_no
$$;

-- _route_idle: the answer of a pass that found nothing to do, or nothing that others did not hold: busy.
-- Either way there is no reason to call again immediately.
create or replace function towpath._route_idle(
    p_worker towpath.route_worker, p_slice integer, p_last bigint, p_busy boolean) returns jsonb
    language sql stable
as $$
    select jsonb_build_object('ok', true, 'worker_name', p_worker.worker_name, 'slice', p_slice,
        'slices', p_worker.slices, 'last_position', p_last, 'events', 0, 'more', false, 'busy', p_busy)
$$;

-- fn_route_worker_put: registers a worker, or cuts its work into another number of slices. A worker may be
-- registered for one event domain; that is for life.
--
-- A new worker starts at p_from_position, or at now. New slices start where the last of the old
-- ones was; what the others had already done is recorded, so it is not done again.
--
-- Answers: {ok, worker_name, slices, event_domain, position, created}; invalid, conflict (another domain).
create or replace function towpath.fn_route_worker_put(
    p_worker_name text, p_slices integer default 1, p_from_position bigint default null, p_actor text default null,
    p_event_domain text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb;
    _worker towpath.route_worker;
    _position bigint;
    _created boolean := false;
begin
    if p_worker_name is null or p_worker_name !~ '^[a-z0-9][a-z0-9_.-]{0,99}$'
       or coalesce(p_slices, 0) not between 1 and 64 or p_from_position < 0 then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'worker_name must be lower-case letters, digits, . _ and -; slices must be between 1 and 64');
    end if;
    _refusal := coalesce(towpath._name_or_null_refusal(p_actor, 'actor'),
                         towpath._name_or_null_refusal(p_event_domain, 'event_domain'));
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _worker from towpath.route_worker w where w.worker_name = p_worker_name for update;
    if not found then
        _created := true;
        _position := coalesce(p_from_position, towpath._event_last_position());
        insert into towpath.route_worker (worker_name, slices, event_domain, registered_by)
        values (p_worker_name, p_slices, p_event_domain, coalesce(p_actor, session_user))
        returning * into _worker;
    elsif p_event_domain is not null and p_event_domain is distinct from _worker.event_domain then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'worker_name', p_worker_name,
            'detail', format('the worker handles %s, which cannot change; register another one',
                             coalesce('the domain ' || _worker.event_domain, 'every domain')));
    else
        perform 1 from towpath.route_worker_cursor c where c.worker_no = _worker.worker_no order by c.slice for update;
        _position := coalesce(p_from_position,
                              (select min(c.position) from towpath._route_cursors(_worker.worker_no) c));
        delete from towpath.route_worker_cursor c where c.worker_no = _worker.worker_no;
        update towpath.route_worker w set slices = p_slices where w.worker_no = _worker.worker_no;
    end if;
    with slice as (
        insert into towpath.route_worker_cursor (worker_no, slice)
        select _worker.worker_no, n from generate_series(0, p_slices - 1) n
        returning cursor_no)
    insert into towpath.route_cursor_mark (cursor_no, position, last_summary)
    select s.cursor_no, _position, jsonb_build_object('set_by', coalesce(p_actor, session_user)) from slice s;
    return jsonb_build_object('ok', true, 'worker_name', p_worker_name, 'slices', p_slices,
                              'event_domain', _worker.event_domain, 'position', _position, 'created', _created);
end;
$$;

-- _lock_holder: which session holds the lock on a row, by the transaction in its xmax.
create or replace function towpath._lock_holder(p_xmax xid) returns jsonb
    language sql stable
as $$
    select jsonb_build_object('pid', l.pid, 'user', a.usename, 'application', a.application_name,
                              'since', a.xact_start, 'state', a.state)
      from pg_locks l left join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'transactionid' and l.granted and l.transactionid = p_xmax
     limit 1
$$;

-- fn_route_worker_list: the workers, their slices, how far each lags, and who holds its lock now.
create or replace function towpath.fn_route_worker_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'last_position', towpath._event_last_position(), 'workers',
               coalesce(jsonb_agg(jsonb_build_object('worker_name', w.worker_name, 'slices', w.slices,
                   'event_domain', w.event_domain, 'cursors',
                   (select jsonb_agg(jsonb_build_object('slice', c.slice, 'position', m.position,
                               'lag', greatest(towpath._event_last_position() - m.position, 0),
                               'held_by', towpath._lock_holder(c.xmax), 'runs', m.runs,
                               'events', m.events, 'last_run_at', m.last_run_at, 'last_summary', m.last_summary)
                               order by c.slice)
                      from towpath.route_worker_cursor c
                     cross join lateral (select * from towpath.route_cursor_mark m where m.cursor_no = c.cursor_no
                                          order by m.mark_no desc limit 1) m
                     where c.worker_no = w.worker_no)) order by w.worker_name), '[]'))
      from towpath.route_worker w
$$;

grant execute on function towpath.fn_route_worker_run(text, integer, integer, integer) to towpath_router;
grant execute on function towpath.fn_route_worker_put(text, integer, bigint, text, text) to workflow_admin;
grant execute on function towpath.fn_route_worker_list() to workflow_admin, towpath_observer, towpath_router;
