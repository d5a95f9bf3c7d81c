-- Deliveries: webhooks to be sent. Claimed under a lease, sent outside any transaction by a
-- sender, ended here. Owner and attempt together are the fence, as with jobs.
--
-- A target is scheme, host and port. Its row is locked while anything about it is decided, so
-- circuit, pause and rate hold however many senders there are; one target that is down is
-- skipped and slows down no other. Routes to one target take turns.

-- _delivery_gate: null while webhooks may be sent.
create or replace function towpath._delivery_gate() returns jsonb
    language sql stable
as $$
    select coalesce(towpath._gate_refusal('event.routing.enabled'), towpath._gate_refusal('event.delivery.enabled'))
$$;

-- _delivery_lost: deliveries whose lease expired become due again; the lost attempt is recorded and counts. What is
-- set aside is skipped; with p_only only that delivery is considered.
create or replace function towpath._delivery_lost(
    p_now timestamptz, p_limit integer, p_aside text[], p_only uuid default null) returns integer
    language plpgsql
as $$
declare
    _lost integer;
begin
    with lost as (
        select d.* from towpath.delivery d
         where d.lease_owner is not null and d.lease_until <= p_now and (p_only is null or d.delivery_id = p_only)
           and (p_aside = '{}' or d.delivery_id::text <> all (p_aside))
         order by d.lease_until limit p_limit for update skip locked),
    told as (
        insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner,
            ended_at, outcome, error, next_at)
        select l.delivery_id, l.attempts, l.route_no, l.position, l.event_id, l.lease_owner, p_now, 'lost',
               'the lease expired before the sender reported an outcome', p_now
          from lost l)
    update towpath.delivery d
       set lease_owner = null, lease_until = null, next_at = p_now, last_error = 'lease expired'
      from lost l where d.delivery_id = l.delivery_id;
    get diagnostics _lost = row_count;
    return _lost;
end;
$$;

-- _delivery_room: how many deliveries a locked target may take now, after filling its bucket.
-- Half open lets one probe through; a rate holds a second's worth of tokens at most.
create or replace function towpath._delivery_room(p_target towpath.delivery_target, p_now timestamptz,
    out room integer, out tokens double precision, out rate double precision)
    language plpgsql stable
as $$
begin
    rate := (select min(r.rate_limit_per_second) from towpath.outbound_route r
              where r.target_no = p_target.target_no and r.retired_at is null);
    tokens := case when rate is null then 0 else least(greatest(rate, 1), p_target.tokens
        + rate * greatest(extract(epoch from p_now - greatest(p_target.refilled_at, p_now - interval '1 hour')), 0)) end;
    room := case when rate is null then 1000 else floor(tokens)::integer end;
    if p_target.circuit <> 'closed' then
        room := least(room, case when exists (select 1 from towpath.delivery d
                                               where d.target_no = p_target.target_no and d.lease_owner is not null)
                                 then 0 else 1 end);
    end if;
end;
$$;

-- _delivery_lines: per target and route, when the first waiting delivery is due. One probe of
-- delivery_due_idx for each, however many deliveries wait.
create or replace function towpath._delivery_lines()
    returns table (target_no integer, route_no integer, next_at timestamptz)
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
begin
    return query
    with recursive line as (
        (select d.target_no, d.route_no, d.next_at from towpath.delivery d where d.lease_owner is null
          order by d.target_no, d.route_no, d.next_at limit 1)
        union all
        select n.target_no, n.route_no, n.next_at
          from line l
         cross join lateral (select d.target_no, d.route_no, d.next_at from towpath.delivery d
                              where d.lease_owner is null and (d.target_no, d.route_no) > (l.target_no, l.route_no)
                              order by d.target_no, d.route_no, d.next_at limit 1) n)
    select l.target_no, l.route_no, l.next_at from line l;
end;
$$;

-- _delivery_take: leases up to p_room due deliveries of a locked target. Its routes take turns, the
-- one after the last that was served first, so a route with a long backlog holds up no other. A
-- delivery whose route is not live, or which waits for an earlier one of its ordering key, is moved
-- to a later time instead of being read in every call. What is set aside is skipped, and the later
-- ones of its key wait until it is sent or an operator drops the fault: the route promises their order.
-- With p_only only that delivery is considered.
create or replace function towpath._delivery_take(
    p_target towpath.delivery_target, p_routes integer[], p_room integer, p_lease_owner text, p_until timestamptz,
    p_now timestamptz, p_aside text[], p_only uuid default null, out taken uuid[], out served_route_no integer)
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
begin
    taken := '{}';
    if p_room <= 0 then
        return;
    end if;
    with due as (
        select d.*, r.mode = 'live' as live
          from unnest(p_routes) n
          join towpath.outbound_route r on r.route_no = n
         cross join lateral (
               select d.delivery_id, d.route_no, d.ordering_key, d.position, d.next_at
                 from towpath.delivery d
                where d.target_no = p_target.target_no and d.route_no = n and d.lease_owner is null and d.next_at <= p_now
                  and (p_only is null or d.delivery_id = p_only)
                  and (p_aside = '{}' or d.delivery_id::text <> all (p_aside))
                order by d.next_at
                limit case when r.mode = 'live' and r.ordering = 'none' then p_room else p_room * 4 + 16 end) d),
    judged as (
        select d.*, d.ordering_key is not null and e.position is not null as behind,
               coalesce(e.lease_until, e.next_at) as head_at
          from due d
          left join lateral (select e.position, e.next_at, e.lease_until from towpath.delivery e
                              where e.route_no = d.route_no and e.ordering_key = d.ordering_key
                                and e.position < d.position
                                and not exists (select 1 from towpath.loop_fault f
                                                 where f.loop_name = 'webhook_delivery' and f.item = e.delivery_id::text
                                                   and f.state = 'dropped')
                              order by e.position limit 1) e on d.ordering_key is not null),
    turn as (
        select t.delivery_id, row_number() over (order by t.nth, t.route_no <= p_target.served_route_no, t.route_no) as turn
          from (select j.delivery_id, j.route_no, row_number() over (partition by j.route_no order by j.next_at) as nth
                  from judged j where j.live and not j.behind) t
         order by 2
         limit p_room),
    held as (
        select d.delivery_id from towpath.delivery d
         where d.lease_owner is null
           and d.delivery_id in (select t.delivery_id from turn t
                                 union all
                                 select j.delivery_id from judged j where j.behind or not j.live)
           for update skip locked),
    back as (
        update towpath.delivery d
           set next_at = case when j.live then greatest(j.head_at, p_now + interval '1 second')
                              else p_now + interval '1 minute' end
          from judged j
         where d.delivery_id = j.delivery_id and (j.behind or not j.live)
           and d.delivery_id in (select h.delivery_id from held h)),
    leased as (
        update towpath.delivery d
           set lease_owner = p_lease_owner, lease_until = p_until, attempts = d.attempts + 1
          from turn t
         where d.delivery_id = t.delivery_id and d.delivery_id in (select h.delivery_id from held h)
        returning d.delivery_id, d.route_no, t.turn)
    select coalesce(array_agg(l.delivery_id), '{}'), (array_agg(l.route_no order by l.turn desc))[1]
      into taken, served_route_no from leased l;
end;
$$;

-- _delivery_take_each: _delivery_take for one delivery at a time, after it raised for all: a delivery that raises is
-- set aside, and the others are leased (Q22).
create or replace function towpath._delivery_take_each(
    p_target towpath.delivery_target, p_routes integer[], p_room integer, p_lease_owner text, p_until timestamptz,
    p_now timestamptz, p_aside text[], out taken uuid[], out served_route_no integer)
    language plpgsql
as $$
declare
    _id uuid;
    _one record;
begin
    taken := '{}';
    for _id in
        select d.delivery_id from towpath.delivery d
         where d.target_no = p_target.target_no and d.lease_owner is null and d.next_at <= p_now
           and d.delivery_id::text <> all (p_aside)
         order by d.next_at limit p_room + 100
    loop
        exit when cardinality(taken) >= p_room;
        begin
            select * into _one from towpath._delivery_take(p_target, p_routes, 1, p_lease_owner, p_until, p_now, '{}', _id);
            taken := taken || _one.taken;
            served_route_no := coalesce(_one.served_route_no, served_route_no);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('webhook_delivery', _id::text, sqlerrm);
        end;
    end loop;
end;
$$;

-- _delivery_lease: leases what is due, target by target; with p_each one delivery at a time. Returns
-- their ids.
create or replace function towpath._delivery_lease(
    p_lease_owner text, p_limit integer, p_until timestamptz, p_now timestamptz, p_each boolean) returns uuid[]
    language plpgsql
    set jit = off
as $$
declare
    _left integer := p_limit;
    _aside text[] := towpath._loop_aside('webhook_delivery');
    _due record;
    _room record;
    _take record;
    _claimed uuid[] := '{}';
begin
    for _due in
        select t as target, l.routes
          from towpath.delivery_target t
          join (select l.target_no, array_agg(l.route_no) as routes from towpath._delivery_lines() l
                 where l.next_at <= p_now group by l.target_no) l on l.target_no = t.target_no
         where t.blocked_until <= p_now
         order by t.served_at
         limit 100
           for update of t skip locked
    loop
        exit when _left <= 0;
        select * into _room from towpath._delivery_room(_due.target, p_now);
        if p_each then
            select * into _take from towpath._delivery_take_each(_due.target, _due.routes, least(_room.room, _left),
                                                                 p_lease_owner, p_until, p_now, _aside);
        else
            select * into _take from towpath._delivery_take(_due.target, _due.routes, least(_room.room, _left),
                                                            p_lease_owner, p_until, p_now, _aside);
        end if;
        update towpath.delivery_target t
           set served_at = p_now, refilled_at = p_now,
               served_route_no = coalesce(_take.served_route_no, t.served_route_no),
               tokens = case when _room.rate is null then 0 else _room.tokens - cardinality(_take.taken) end,
               -- Without a whole token left there is nothing to look for before the next one.
               blocked_until = case when _room.tokens - cardinality(_take.taken) < 1 and _room.rate is not null
                   then p_now + interval '1 second' * (1 - _room.tokens + cardinality(_take.taken)) / _room.rate
                   else t.blocked_until end,
               circuit = case when t.circuit = 'open' and _take.taken <> '{}' then 'half_open' else t.circuit end
         where t.target_no = (_due.target).target_no;
        _claimed := _claimed || _take.taken;
        _left := _left - cardinality(_take.taken);
    end loop;
    return _claimed;
end;
$$;

-- _delivery_reap: _delivery_lost for all, and one at a time if that raises (Q22). Returns how many leases had
-- expired.
create or replace function towpath._delivery_reap(p_now timestamptz) returns integer
    language plpgsql
as $$
declare
    _aside text[] := towpath._loop_aside('webhook_delivery');
    _lost integer := 0;
    _id uuid;
begin
    if not exists (select 1 from towpath.delivery d where d.lease_owner is not null and d.lease_until <= p_now) then
        return 0;
    end if;
    begin
        return towpath._delivery_lost(p_now, 100, _aside);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
    end;
    for _id in
        select d.delivery_id from towpath.delivery d
         where d.lease_owner is not null and d.lease_until <= p_now and d.delivery_id::text <> all (_aside)
         order by d.lease_until limit 100
    loop
        begin
            _lost := _lost + towpath._delivery_lost(p_now, 1, '{}', _id);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('webhook_delivery', _id::text, sqlerrm);
        end;
    end loop;
    return _lost;
end;
$$;

-- fn_delivery_claim: waiting -> leased, up to p_limit webhooks, with everything needed to send them.
--
-- Targets take turns, the one served longest ago first, and so do the routes of a target. The lease is
-- event.delivery.lease_sec long unless the caller says otherwise. A delivery that raises is set aside
-- and tried again later (Q22). body is what to send, byte for byte the same at each attempt;
-- signing_keys are the current one and, during a rotation, the previous one.
--
-- Answers: {ok, deliveries: [{delivery_id, attempt, webhook_id, route_name, url, headers,
-- timeout_seconds, body, signing_keys, generation, lease_until}], lease_seconds, lost, next_at};
-- gate_closed, invalid.
create or replace function towpath.fn_delivery_claim(
    p_lease_owner text, p_limit integer default 10, p_lease_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _refusal jsonb := towpath._delivery_gate();
    _limit integer := least(greatest(coalesce(p_limit, 10), 1), 1000);
    _lease_seconds numeric := coalesce(p_lease_seconds, towpath._config_number('event.delivery.lease_sec'));
    _until timestamptz := _now + interval '1 second' * _lease_seconds;
    _lost integer;
    _claimed uuid[];
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _refusal := coalesce(
        towpath._owner_refusal(p_lease_owner, 'lease_owner'),
        case when p_lease_seconds not between 1 and 3600 then
            towpath._invalid('lease_seconds', 'must be between 1 and 3600') end);
    if _refusal is not null then
        return _refusal;
    end if;
    _lost := towpath._delivery_reap(_now);
    begin
        _claimed := towpath._delivery_lease(p_lease_owner, _limit, _until, _now, false);
    exception when others then
        if towpath._error_common(sqlstate) then
            raise;
        end if;
        _claimed := towpath._delivery_lease(p_lease_owner, _limit, _until, _now, true);
    end;
    return jsonb_build_object('ok', true, 'lost', _lost, 'lease_seconds', _lease_seconds, 'deliveries', coalesce((
        select jsonb_agg(jsonb_build_object('delivery_id', d.delivery_id, 'attempt', d.attempts,
                   'webhook_id', format('wh_%s_%s', replace(d.event_id::text, '-', ''), d.route_no),
                   'route_name', r.route_name, 'position', d.position, 'event_id', d.event_id,
                   'generation', d.generation, 'lease_until', d.lease_until,
                   'url', r.target -> 'url', 'headers', coalesce(r.target -> 'headers', '{}')
                       || jsonb_strip_nulls(jsonb_build_object('traceparent', d.event -> 'traceparent')),
                   'timeout_seconds', coalesce(r.target -> 'timeout_seconds', '15'),
                   'body', jsonb_build_object('type', (d.event ->> 'event_domain') || '.' || (d.event ->> 'event_type'),
                               'timestamp', d.event -> 'created_at', 'data', d.event)::text,
                   'signing_keys', to_jsonb(array_remove(array[s.secret,
                               case when s.previous_until > _now then s.previous end], null)))
                   order by d.position)
          from towpath.delivery d
          join towpath.outbound_route r on r.route_no = d.route_no
          left join towpath.route_secret s on s.route_no = d.route_no
         where d.delivery_id = any(_claimed)), '[]'),
        -- A caller that got as many as it asked for claims again immediately.
        'next_at', case when cardinality(_claimed) = _limit then _now else (
            select min(greatest(l.next_at, t.blocked_until, _now)) from towpath._delivery_lines() l
              join towpath.delivery_target t on t.target_no = l.target_no) end);
end;
$$;

-- fn_delivery_extend: the lease of a delivery lasts at least p_seconds from now.
--
-- Answers: {ok, delivery_id, lease_until}; invalid, lease_lost.
create or replace function towpath.fn_delivery_extend(
    p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer default 60) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _until timestamptz;
begin
    if coalesce(p_seconds, 0) not between 1 and 3600 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'seconds', 'detail', '1 to 3600');
    end if;
    update towpath.delivery d
       set lease_until = greatest(d.lease_until, towpath.fn_now() + p_seconds * interval '1 second')
     where d.delivery_id = p_delivery_id and d.lease_owner = p_lease_owner and d.attempts = p_attempt
    returning d.lease_until into _until;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'delivery_id', p_delivery_id);
    end if;
    return jsonb_build_object('ok', true, 'delivery_id', p_delivery_id, 'lease_until', _until);
end;
$$;

-- fn_delivery_release: gives back a delivery that was claimed and not sent. The attempt's number is
-- used up, so that the fence holds; it moves the delivery one wait on only if it fails later.
--
-- Answers: {ok, delivery_id}; lease_lost.
create or replace function towpath.fn_delivery_release(p_delivery_id uuid, p_lease_owner text, p_attempt integer)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _old towpath.delivery;
begin
    update towpath.delivery d set lease_owner = null, lease_until = null, next_at = _now
     where d.delivery_id = p_delivery_id and d.lease_owner = p_lease_owner and d.attempts = p_attempt
    returning d.* into _old;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'delivery_id', p_delivery_id);
    end if;
    insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at,
        outcome, next_at)
    values (p_delivery_id, p_attempt, _old.route_no, _old.position, _old.event_id, p_lease_owner, _now, 'released', _now);
    return jsonb_build_object('ok', true, 'delivery_id', p_delivery_id);
end;
$$;

-- fn_delivery_history: how the attempts of one delivery, or of all deliveries of one event, ended.
--
-- Answers: {ok, attempts: [...], waiting: [...]}; invalid.
create or replace function towpath.fn_delivery_history(
    p_delivery_id uuid default null, p_event_id uuid default null, p_limit integer default 200) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _ids uuid[] := array[p_delivery_id];
    _position bigint;
begin
    if (p_delivery_id is null) = (p_event_id is null) then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'a delivery_id or an event_id is required');
    end if;
    if p_event_id is not null then
        _position := (select p.position from towpath.event_position p where p.event_id = p_event_id);
        -- An attempt that was sent by webhook or to a stream has the delivery as its result.
        _ids := array(select a.result_id from towpath.route_attempt a
                       where a.position = _position and a.result_id is not null);
    end if;
    return jsonb_build_object('ok', true,
        'attempts', (select coalesce(jsonb_agg(to_jsonb(a) - 'route_no' || jsonb_build_object('route_name', r.route_name)
                                               order by a.ended_at, a.attempt), '[]')
                       from (select * from towpath.delivery_attempt x where x.delivery_id = any(_ids)
                              order by x.ended_at desc limit least(greatest(coalesce(p_limit, 200), 1), 1000)) a
                       join towpath.outbound_route r on r.route_no = a.route_no),
        'waiting', (select coalesce(jsonb_agg(to_jsonb(d) - 'route_no'
                               || jsonb_build_object('route_name', r.route_name) order by d.delivery_id), '[]')
                      from towpath._delivery_now d join towpath.outbound_route r on r.route_no = d.route_no
                     where d.delivery_id = any(_ids) and (_position is null or d.position = _position)));
end;
$$;

grant execute on function towpath.fn_delivery_claim(text, integer, integer) to towpath_router;
grant execute on function towpath.fn_delivery_extend(uuid, text, integer, integer) to towpath_router;
grant execute on function towpath.fn_delivery_release(uuid, text, integer) to towpath_router;
grant execute on function towpath.fn_delivery_history(uuid, uuid, integer) to workflow_admin, towpath_observer;
