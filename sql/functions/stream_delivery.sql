-- Deliveries to streams: claimed a stream at a time, appended in order by a sender, ended here. Unlike
-- a webhook, an append that fails is not given up: a store that is down is lag, never loss. Only what
-- the stream can never take (it has ended, or is no JSON) becomes a dead letter.

-- _stream_state_key: the key of the entity that an event changes, for a route to a State stream; null if the event has
-- no text or number there.
create or replace function towpath._stream_state_key(p_event jsonb, p_target jsonb) returns text
    language sql immutable
as $$
    select v.value #>> '{}' from (select p_event #> string_to_array(p_target ->> 'key', '.') as value) v
     where jsonb_typeof(v.value) in ('string', 'number')
$$;

-- _stream_event_body: an event as a route appends it to a stream: as it is, or as a change of the State Protocol.
create or replace function towpath._stream_event_body(p_event jsonb, p_target jsonb) returns text
    language sql immutable
as $$
    select case when p_target ? 'entity' then
               jsonb_build_object('type', p_target -> 'entity', 'key', towpath._stream_state_key(p_event, p_target),
                   'headers', jsonb_build_object('timestamp', p_event -> 'created_at', 'operation',
                       case when p_target -> 'delete_on' ? (p_event ->> 'event_type') then 'delete' else 'upsert' end))
               || case when p_target -> 'delete_on' ? (p_event ->> 'event_type') then '{}'
                       else jsonb_build_object('value', p_event -> 'payload') end
           else jsonb_build_object('type', (p_event ->> 'event_domain') || '.' || (p_event ->> 'event_type'),
                                   'timestamp', p_event -> 'created_at', 'data', p_event) end::text
$$;

-- _stream_queue: counts and keeps what a pass has for streams. Locks the streams in their order, and
-- the locks last to the commit, so numbers become visible in order. If the store that takes the intake in has the
-- streams of routes, events go there and need no sender. One way must have ended before the other is used for the same
-- stream, or its order would be lost.
create or replace function towpath._stream_queue(p_work towpath._route_work[], p_ids uuid[], p_now timestamptz)
    returns void
    language plpgsql
as $$
declare
    _is_local boolean := exists (select 1 from towpath.stream_intake_store s where s.takes_routes and s.until > p_now);
    _key text;
begin
    select w.target ->> 'key' into _key from unnest(p_work) w
     where w.target ? 'entity' and towpath._stream_state_key(w.event, w.target) is null limit 1;
    if found then
        raise exception 'the event has no text or number at %, which names the entity', _key
            using errcode = 'data_exception';
    end if;
    insert into towpath.route_stream (route_no, project, stream)
    select distinct w.route_no, coalesce(w.target ->> 'project', 'default'), w.target ->> 'stream'
      from unnest(p_work) w order by 1, 2, 3
    on conflict (route_no, project, stream) do nothing;
    perform 1 from towpath.route_stream s
      where (s.route_no, s.project, s.stream) in (
            select w.route_no, coalesce(w.target ->> 'project', 'default'), w.target ->> 'stream' from unnest(p_work) w)
      order by s.route_stream_no for update;
    with work as (
        select w.*, i.id, s.route_stream_no, s.project, s.stream,
               _is_local and not exists (select 1 from towpath.stream_delivery x
                                          where x.route_stream_no = s.route_stream_no and not x.in_intake) as in_intake,
               s.last_number + row_number() over (partition by s.route_stream_no order by w.position) as number
          from unnest(p_work) with ordinality as w
          join unnest(p_ids) with ordinality as i(id, nth) on i.nth = w.ordinality
          join towpath.route_stream s on s.route_no = w.route_no and s.stream = w.target ->> 'stream'
                                     and s.project = coalesce(w.target ->> 'project', 'default')),
    queued as (
        insert into towpath.stream_delivery (route_stream_no, number, delivery_id, route_no, position, event_id,
            generation, event, recipients, created_at, in_intake)
        select w.route_stream_no, w.number, w.id, w.route_no, w.position, w.event_id, w.generation, w.event,
               w.recipients, p_now, w.in_intake
          from work w),
    left_here as (
        insert into towpath.stream_intake (project, stream, is_json, body, created_by, created_at, route_stream_no, number)
        select w.project, w.stream, true, convert_to(towpath._stream_event_body(w.event, w.target), 'UTF8'), session_user, p_now,
               w.route_stream_no, w.number
          from work w where w.in_intake order by w.position, w.route_stream_no)
    update towpath.route_stream s set last_number = w.number
      from (select w.route_stream_no, max(w.number) as number from work w group by w.route_stream_no) w
     where s.route_stream_no = w.route_stream_no;
    if _is_local then
        perform towpath._stream_intake_wake();
    end if;
end;
$$;

-- _stream_delivery_lease: leases up to p_limit streams that are owed something by a sender; leases that ran out are
-- taken over. While the intake has events for a stream, a sender owes it nothing. What is set aside is skipped; with
-- p_only only that stream is considered. Returns their numbers.
create or replace function towpath._stream_delivery_lease(
    p_lease_owner text, p_limit integer, p_until timestamptz, p_now timestamptz, p_aside text[],
    p_only integer default null) returns integer[]
    language plpgsql
as $$
declare
    _claimed integer[];
begin
    with due as (
        select s.route_stream_no from towpath.route_stream s
          join towpath.outbound_route r on r.route_no = s.route_no and r.mode = 'live'
         where s.next_at <= p_now and (s.lease_owner is null or s.lease_until <= p_now)
           and (p_only is null or s.route_stream_no = p_only) and s.route_stream_no::text <> all (p_aside)
           and exists (select 1 from towpath.stream_delivery d where d.route_stream_no = s.route_stream_no)
           and not exists (select 1 from towpath.stream_delivery d
                            where d.route_stream_no = s.route_stream_no and d.in_intake)
         order by s.next_at
         limit p_limit
           for update of s skip locked),
    leased as (
        update towpath.route_stream s
           set lease_owner = p_lease_owner, lease_until = p_until, attempts = s.attempts + 1, next_at = p_now
          from due d where s.route_stream_no = d.route_stream_no
        returning s.route_stream_no)
    select coalesce(array_agg(l.route_stream_no), '{}') into _claimed from leased l;
    return _claimed;
end;
$$;

-- _stream_delivery_lease_each: the same, one stream at a time, after it raised for all: a stream that raises is set
-- aside, and the others are leased (Q22).
create or replace function towpath._stream_delivery_lease_each(
    p_lease_owner text, p_limit integer, p_until timestamptz, p_now timestamptz, p_aside text[]) returns integer[]
    language plpgsql
as $$
declare
    _no integer;
    _claimed integer[] := '{}';
begin
    for _no in
        select s.route_stream_no from towpath.route_stream s
         where s.next_at <= p_now and s.route_stream_no::text <> all (p_aside) order by s.next_at
    loop
        exit when cardinality(_claimed) >= p_limit;
        begin
            _claimed := _claimed || towpath._stream_delivery_lease(p_lease_owner, 1, p_until, p_now, '{}', _no);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('stream_delivery', _no::text, sqlerrm);
        end;
    end loop;
    return _claimed;
end;
$$;

-- fn_stream_delivery_claim: up to p_limit streams that are owed something, each with its next events
-- in order (100 at most), under one lease each. Leases that ran out are taken over. A stream that raises
-- is set aside and tried again later (Q22).
--
-- Answers: {ok, streams: [{route_stream_no, attempt, route_name, project, stream, producer, last_number,
-- events: [{number, body}]}], next_at}; gate_closed, invalid.
create or replace function towpath.fn_stream_delivery_claim(
    p_lease_owner text, p_limit integer default 10, p_lease_seconds integer default 30) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _refusal jsonb := towpath._delivery_gate();
    _limit integer := least(greatest(coalesce(p_limit, 10), 1), 100);
    _until timestamptz := _now + p_lease_seconds * interval '1 second';
    _aside text[] := towpath._loop_aside('stream_delivery');
    _claimed integer[];
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := coalesce(
        towpath._owner_refusal(p_lease_owner, 'lease_owner'),
        case when coalesce(p_lease_seconds, 0) not between 1 and 3600 then
            towpath._invalid('lease_seconds', 'must be between 1 and 3600') end);
    if _refusal is not null then
        return _refusal;
    end if;
    begin
        _claimed := towpath._stream_delivery_lease(p_lease_owner, _limit, _until, _now, _aside);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
        _claimed := towpath._stream_delivery_lease_each(p_lease_owner, _limit, _until, _now, _aside);
    end;
    return jsonb_build_object('ok', true, 'streams', coalesce((
        select jsonb_agg(jsonb_build_object('route_stream_no', s.route_stream_no, 'attempt', s.attempts,
                   'route_name', r.route_name, 'project', s.project, 'stream', s.stream, 'producer', s.producer,
                   'last_number', s.last_number, 'events', e.events))
          from towpath.route_stream s
          join towpath.outbound_route r on r.route_no = s.route_no
         cross join lateral (
               select jsonb_agg(jsonb_build_object('number', d.number, 'body', towpath._stream_event_body(d.event, r.target))
                                order by d.number) as events
                 from (select * from towpath.stream_delivery x where x.route_stream_no = s.route_stream_no
                        order by x.number limit 100) d) e
         where s.route_stream_no = any(_claimed)), '[]'),
        -- A stream that was never appended to is due at -infinity, and one whose route is off is not due at all.
        'next_at', (select min(greatest(s.next_at, s.lease_until, _now)) from towpath.route_stream s
                      join towpath.outbound_route r on r.route_no = s.route_no and r.mode = 'live'
                     where s.route_stream_no <> all (_claimed) and s.route_stream_no::text <> all (_aside)
                       and exists (select 1 from towpath.stream_delivery d where d.route_stream_no = s.route_stream_no)
                       and not exists (select 1 from towpath.stream_delivery d
                                        where d.route_stream_no = s.route_stream_no and d.in_intake)));
end;
$$;

-- _stream_delivery_end: takes events of a stream out up to a number, or the one, and tells how they ended.
create or replace function towpath._stream_delivery_end(
    p_stream towpath.route_stream, p_from bigint, p_to bigint, p_outcome text, p_error text, p_now timestamptz)
    returns bigint
    language plpgsql
as $$
declare
    _ended bigint;
begin
    with gone as (
        delete from towpath.stream_delivery d
         where d.route_stream_no = p_stream.route_stream_no and d.number between p_from and p_to
        returning d.*),
    told as (
        insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at,
            outcome, address, error)
        select g.delivery_id, p_stream.attempts, g.route_no, g.position, g.event_id,
               coalesce(p_stream.lease_owner, 'nobody'), p_now, p_outcome,
               format('stream %s/%s %s', p_stream.project, p_stream.stream, g.number), p_error
          from gone g),
    letters as (
        insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation,
            position, event_id, event_snapshot, recipients, error, attempts, idempotency_key, created_at)
        select towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint + g.number % 1000), 'delivery', r.worker_no,
               r.route_no, r.route_name, 'live', g.generation, g.position, g.event_id, g.event, g.recipients,
               towpath._error_text(p_error), 1,
               towpath._route_key(w.worker_name, r.route_name, g.event_id, 'live', g.generation), p_now
          from gone g
          join towpath.outbound_route r on r.route_no = g.route_no
          join towpath.route_worker w on w.worker_no = r.worker_no
         where p_outcome = 'dead')
    select count(*) into _ended from gone g;
    return _ended;
end;
$$;

-- _stream_delivery_taken: ends the deliveries of routes that a store has taken in, or whose stream refused them.
create or replace function towpath._stream_delivery_taken(p_done bigint[], p_refused jsonb, p_now timestamptz)
    returns void
    language plpgsql
as $$
declare
    _end record;
begin
    for _end in
        select s, i.number, e.error
          from (select d.id, null::text as error from unnest(p_done) as d(id)
                 union all
                select r.intake_id, r.error from jsonb_to_recordset(p_refused) as r(intake_id bigint, error text)) e
          join towpath.stream_intake i on i.intake_id = e.id
          join towpath.route_stream s on s.route_stream_no = i.route_stream_no
         order by s.route_stream_no, i.number
           for update of s
    loop
        perform towpath._stream_delivery_end(_end.s, _end.number, _end.number,
            case when _end.error is null then 'delivered' else 'dead' end, _end.error, p_now);
    end loop;
end;
$$;

-- fn_stream_delivery_end: ends a lease. p_appended is the highest number the stream has now, null if it
-- got none. With p_error the number after it failed: for good if p_permanent, else it is tried again
-- after a wait that doubles up to a minute. p_restored says that the stream knows a higher number than
-- there is: the route goes on as a new producer, and a warning event says so.
--
-- Answers: {ok, appended, dead, next_at}; lease_lost.
create or replace function towpath.fn_stream_delivery_end(
    p_route_stream_no integer, p_lease_owner text, p_attempt integer, p_appended bigint default null,
    p_error text default null, p_permanent boolean default false, p_restored boolean default false) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _error text := case when p_error is not null then towpath._error_text(p_error) end;
    _stream towpath.route_stream;
    _appended bigint;
    _dead bigint := 0;
    _next timestamptz := _now;
    _failures integer := 0;
begin
    select * into _stream from towpath.route_stream s
     where s.route_stream_no = p_route_stream_no and s.lease_owner = p_lease_owner and s.attempts = p_attempt
       for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'route_stream_no', p_route_stream_no);
    end if;
    _appended := towpath._stream_delivery_end(_stream, 0, coalesce(p_appended, 0), 'delivered', null, _now);
    if _error is not null and p_permanent then
        _dead := towpath._stream_delivery_end(_stream, first.number, first.number, 'dead', _error, _now)
            from (select min(d.number) as number from towpath.stream_delivery d
                   where d.route_stream_no = p_route_stream_no) first;
    elsif _error is not null then
        _failures := case when _appended > 0 then 1 else _stream.failures + 1 end;
        _next := _now + least(power(2, least(_failures, 10) - 1), 60) * interval '1 second';
    end if;
    if p_restored then
        perform towpath._event_emit_own('route.stream_restored', 'alert', 'route_stream', p_route_stream_no::text,
            jsonb_build_object('project', _stream.project, 'stream', _stream.stream, 'error', left(_error, 500)));
    end if;
    update towpath.route_stream s
       set producer = case when p_restored then gen_random_uuid() else s.producer end, lease_owner = null,
           lease_until = null, next_at = _next, failures = _failures, last_error = _error
     where s.route_stream_no = p_route_stream_no;
    -- The delivery ended, so what made it raise is over.
    delete from towpath.loop_fault f where f.loop_name = 'stream_delivery' and f.item = p_route_stream_no::text;
    return jsonb_build_object('ok', true, 'appended', _appended, 'dead', _dead, 'next_at', _next);
end;
$$;

-- _stream_delivery_cancel: what a retired route still had for streams and nobody is sending.
create or replace function towpath._stream_delivery_cancel(p_route_no integer, p_reason text, p_now timestamptz)
    returns bigint
    language sql
as $$
    select coalesce(sum(towpath._stream_delivery_end(s, 0, s.last_number, 'cancelled', p_reason, p_now)), 0)
      from (select * from towpath.route_stream x where x.route_no = p_route_no order by x.route_stream_no for update) s
$$;

grant execute on function towpath.fn_stream_delivery_claim(text, integer, integer) to towpath_router;
grant execute on function towpath.fn_stream_delivery_end(integer, text, integer, bigint, text, boolean, boolean)
    to towpath_router;
