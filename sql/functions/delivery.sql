-- Deliveries: webhooks on their way out. Claimed under a lease, sent outside any transaction by a
-- sender, ended here. Owner and attempt together are the fence, as with jobs.
--
-- A target is scheme, host and port. Its row is locked while anything about it is decided, so
-- circuit, pause and rate hold however many senders there are; one target that is down is
-- skipped whole and slows nobody else.

-- _delivery_gate: null while webhooks may be sent.
create or replace function towpath._delivery_gate() returns jsonb
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(towpath._gate_refusal('event.routing.enabled'), towpath._gate_refusal('event.delivery.enabled'))
$$;

-- _delivery_lost: leases that ran out become due again; the lost attempt is told and counts.
create or replace function towpath._delivery_lost(p_now timestamptz, p_limit integer) returns integer
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _lost integer;
begin
    with lost as (
        select d.* from towpath.delivery d
         where d.lease_owner is not null and d.lease_until <= p_now
         order by d.lease_until limit p_limit for update skip locked),
    told as (
        insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner,
            ended_at, outcome, error, next_at)
        select l.delivery_id, l.attempts, l.route_no, l.position, l.event_id, l.lease_owner, p_now, 'lost',
               'the lease ran out before the sender said how it ended', p_now
          from lost l)
    update towpath.delivery d
       set lease_owner = null, lease_until = null, next_at = p_now, last_error = 'lease ran out'
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
    set search_path = pg_catalog, pg_temp
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

-- fn_delivery_claim: waiting -> leased, up to p_limit webhooks, with everything needed to send them.
--
-- Targets take turns, the one served longest ago first. A delivery whose route is not live, or
-- which waits for an earlier one of its ordering key, is moved back in time instead of being
-- looked at again and again. body is what to send, byte for byte the same at each attempt;
-- signing_keys are the current one and, during a rotation, the previous one.
--
-- Answers: {ok, deliveries: [{delivery_id, attempt, webhook_id, route_name, url, headers,
-- timeout_seconds, body, signing_keys, generation, lease_until}], lost, next_at}; gate_closed, invalid.
create or replace function towpath.fn_delivery_claim(
    p_lease_owner text, p_limit integer default 10, p_lease_seconds integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _refusal jsonb := towpath._delivery_gate();
    _left integer := least(greatest(coalesce(p_limit, 10), 1), 1000);
    _until timestamptz := _now + interval '1 second'
        * coalesce(p_lease_seconds, towpath._config_number('event.delivery.lease_sec'));
    _lost integer;
    _target towpath.delivery_target;
    _room record;
    _taken uuid[];
    _claimed uuid[] := '{}';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if coalesce(btrim(p_lease_owner), '') = '' or p_lease_seconds not between 1 and 3600 then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'lease_owner must not be blank, lease_seconds must lie between 1 and 3600');
    end if;
    _lost := towpath._delivery_lost(_now, 100);
    for _target in
        select t.* from towpath.delivery_target t
         where t.blocked_until <= _now
           and exists (select 1 from towpath.delivery d
                        where d.target_no = t.target_no and d.lease_owner is null and d.next_at <= _now)
         order by t.served_at
         limit 100
           for update of t skip locked
    loop
        exit when _left <= 0;
        select * into _room from towpath._delivery_room(_target, _now);
        _taken := '{}';
        if _room.room > 0 then
            with due as (
                select d.delivery_id, d.route_no, d.ordering_key, d.position, d.next_at
                  from towpath.delivery d
                 where d.target_no = _target.target_no and d.lease_owner is null and d.next_at <= _now
                 order by d.next_at
                 limit least(_room.room, _left) * 4 + 16
                   for update skip locked),
            judged as (
                select d.*, r.mode = 'live' as live, d.ordering_key is not null and e.position is not null as behind,
                       coalesce(e.lease_until, e.next_at) as head_at
                  from due d
                  join towpath.outbound_route r on r.route_no = d.route_no
                  left join lateral (select e.position, e.next_at, e.lease_until from towpath.delivery e
                                      where e.route_no = d.route_no and e.ordering_key = d.ordering_key
                                        and e.position < d.position
                                      order by e.position limit 1) e on d.ordering_key is not null),
            pick as (
                select j.delivery_id from judged j where j.live and not j.behind
                 order by j.next_at limit least(_room.room, _left)),
            back as (
                update towpath.delivery d
                   set next_at = case when j.live then greatest(j.head_at, _now + interval '1 second')
                                      else _now + interval '1 minute' end
                  from judged j
                 where d.delivery_id = j.delivery_id and (j.behind or not j.live)),
            leased as (
                update towpath.delivery d
                   set lease_owner = p_lease_owner, lease_until = _until, attempts = d.attempts + 1
                 where d.delivery_id in (select p.delivery_id from pick p)
                returning d.delivery_id)
            select coalesce(array_agg(l.delivery_id), '{}') into _taken from leased l;
        end if;
        update towpath.delivery_target t
           set served_at = _now, refilled_at = _now,
               tokens = case when _room.rate is null then 0 else _room.tokens - cardinality(_taken) end,
               -- Without a whole token left there is nothing to look for before the next one.
               blocked_until = case when _room.tokens - cardinality(_taken) < 1 and _room.rate is not null
                   then _now + interval '1 second' * (1 - _room.tokens + cardinality(_taken)) / _room.rate
                   else t.blocked_until end,
               circuit = case when t.circuit = 'open' and _taken <> '{}' then 'half_open' else t.circuit end
         where t.target_no = _target.target_no;
        _claimed := _claimed || _taken;
        _left := _left - cardinality(_taken);
    end loop;
    return jsonb_build_object('ok', true, 'lost', _lost, 'deliveries', coalesce((
        select jsonb_agg(jsonb_build_object('delivery_id', d.delivery_id, 'attempt', d.attempts,
                   'webhook_id', format('wh_%s_%s', replace(d.event_id::text, '-', ''), d.route_no),
                   'route_name', r.route_name, 'position', d.position, 'event_id', d.event_id,
                   'generation', d.generation, 'lease_until', d.lease_until,
                   'url', r.target -> 'url', 'headers', coalesce(r.target -> 'headers', '{}'),
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
        'next_at', (select min(d.next_at) from towpath.delivery_target t
                     cross join lateral (select greatest(d.next_at, t.blocked_until) as next_at from towpath.delivery d
                                          where d.target_no = t.target_no and d.lease_owner is null
                                          order by d.next_at limit 1) d));
end;
$$;

-- _delivery_hold: the delivery and its locked target, if the caller still holds the attempt. The
-- target comes first, as the lock order demands.
create or replace function towpath._delivery_hold(
    p_delivery_id uuid, p_lease_owner text, p_attempt integer,
    out delivery towpath.delivery, out target towpath.delivery_target)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    select t.* into target from towpath.delivery_target t
     where t.target_no = (select d.target_no from towpath.delivery d where d.delivery_id = p_delivery_id)
       for update;
    select d.* into delivery from towpath.delivery d
     where d.delivery_id = p_delivery_id and d.lease_owner = p_lease_owner and d.attempts = p_attempt
       for update;
end;
$$;

-- _delivery_next: the next delivery of an ordering key need not wait any longer.
create or replace function towpath._delivery_next(p_delivery towpath.delivery, p_now timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if p_delivery.ordering_key is not null then
        update towpath.delivery d set next_at = p_now
         where d.delivery_id = (
               select e.delivery_id from towpath.delivery e
                where e.route_no = p_delivery.route_no and e.ordering_key = p_delivery.ordering_key
                  and e.position > p_delivery.position
                order by e.position limit 1 for update skip locked)
           and d.lease_owner is null and d.attempts = 0 and d.next_at > p_now;
    end if;
end;
$$;

-- fn_delivery_succeed: leased -> delivered. The receiver answered 2xx; its circuit closes.
--
-- Answers: {ok, delivery_id, state}; lease_lost.
create or replace function towpath.fn_delivery_succeed(
    p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_status_code integer default 200,
    p_duration_ms integer default null, p_address text default null, p_answer text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _hold record;
begin
    select * into _hold from towpath._delivery_hold(p_delivery_id, p_lease_owner, p_attempt);
    if (_hold.delivery).delivery_id is null then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'delivery_id', p_delivery_id);
    end if;
    perform towpath._delivery_end(_hold.delivery, 'delivered', p_status_code, p_duration_ms, p_address, null, p_answer,
                                  _now);
    if (_hold.target).circuit <> 'closed' or (_hold.target).failures > 0 or (_hold.target).opened_times > 0 then
        update towpath.delivery_target t
           set circuit = 'closed', failures = 0, failing_since = null, opened_times = 0, blocked_until = '-infinity',
               last_error = null
         where t.target_no = (_hold.target).target_no;
        if (_hold.target).circuit <> 'closed' then
            perform towpath._event_emit_own('route.circuit_closed', 'alert', 'delivery_target',
                (_hold.target).target_key, jsonb_build_object('failing_since', (_hold.target).failing_since));
        end if;
    end if;
    return jsonb_build_object('ok', true, 'delivery_id', p_delivery_id, 'state', 'delivered');
end;
$$;

-- _delivery_end: takes a finished delivery out and tells how its last attempt ended.
create or replace function towpath._delivery_end(
    p_delivery towpath.delivery, p_outcome text, p_status_code integer, p_duration_ms integer, p_address text,
    p_error text, p_answer text, p_now timestamptz) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.delivery d where d.delivery_id = p_delivery.delivery_id;
    insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at,
        outcome, status_code, duration_ms, address, error, answer)
    values (p_delivery.delivery_id, p_delivery.attempts, p_delivery.route_no, p_delivery.position, p_delivery.event_id,
        p_delivery.lease_owner, p_now, p_outcome, p_status_code, p_duration_ms, p_address, p_error, left(p_answer, 2000));
    perform towpath._delivery_next(p_delivery, p_now);
end;
$$;

-- _delivery_verdict: what a failure means. class is how it failed: status (an answer came),
-- timeout, connect, tls, forbidden (the address is not allowed), setup (no request could be made).
--   permanent  trying again cannot help: forbidden, setup, 3xx, most of 4xx
--   gone       410: the receiver wants no more of this route
--   sick       the target itself is in trouble, which its circuit counts: no answer, 429, 5xx
create or replace function towpath._delivery_verdict(p_class text, p_status_code integer,
    out permanent boolean, out gone boolean, out sick boolean)
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select p_class in ('forbidden', 'setup')
               or (p_status_code between 300 and 499 and p_status_code not in (408, 409, 425, 429)),
           coalesce(p_status_code = 410, false),
           p_class in ('timeout', 'connect', 'tls') or coalesce(p_status_code >= 500 or p_status_code in (408, 429), false)
$$;

-- fn_delivery_fail: leased -> waiting, or dead after a permanent failure or the last wait.
--
-- The wait is the route's own, or what the receiver asked for if that is longer, up to a day;
-- a 429 or 503 that asks for a pause gets it for the whole target. Enough failures in a row
-- open the target's circuit. 410 switches the route off, and so does a target that has failed
-- for event.webhook.disable_after_hours; both emit a warning event.
--
-- Answers: {ok, delivery_id, state: waiting | dead, next_at, circuit, route_disabled}; invalid, lease_lost.
create or replace function towpath.fn_delivery_fail(
    p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_class text, p_error text,
    p_status_code integer default null, p_retry_after_seconds double precision default null,
    p_duration_ms integer default null, p_address text default null, p_answer text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _error text := towpath._error_text(p_error);
    _hold record;
    _route towpath.outbound_route;
    _verdict record;
    _pause interval := least(greatest(p_retry_after_seconds, 0), 86400) * interval '1 second';
    _target towpath.delivery_target;
    _next timestamptz;
    _disabled text;
begin
    if p_class is null or p_class not in ('status', 'timeout', 'connect', 'tls', 'forbidden', 'setup') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'class',
                                  'detail', 'one of status, timeout, connect, tls, forbidden, setup');
    end if;
    select * into _hold from towpath._delivery_hold(p_delivery_id, p_lease_owner, p_attempt);
    if (_hold.delivery).delivery_id is null then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'delivery_id', p_delivery_id);
    end if;
    select * into _route from towpath.outbound_route r where r.route_no = (_hold.delivery).route_no;
    select * into _verdict from towpath._delivery_verdict(p_class, p_status_code);
    _target := towpath._delivery_sick(_hold.target, _verdict.sick,
        case when p_status_code in (429, 503) then _pause end, _error, _now);

    if _verdict.permanent or p_attempt > cardinality(_route.retry_seconds) then
        perform towpath._delivery_end(_hold.delivery, 'dead', p_status_code, p_duration_ms, p_address, _error, p_answer,
                                      _now);
        insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation,
            position, event_id, event_snapshot, recipients, error, attempts, idempotency_key, created_at)
        select towpath._uuid7((date_part('epoch', _now) * 1000000)::bigint), 'delivery', _route.worker_no,
               _route.route_no, _route.route_name, 'live', (_hold.delivery).generation, (_hold.delivery).position,
               (_hold.delivery).event_id, (_hold.delivery).event, (_hold.delivery).recipients, _error, p_attempt,
               towpath._route_key(w.worker_name, _route.route_name, (_hold.delivery).event_id, 'live',
                                  (_hold.delivery).generation), _now
          from towpath.route_worker w where w.worker_no = _route.worker_no;
    else
        _next := _now + greatest(_pause, _route.retry_seconds[p_attempt] * interval '1 second'
            * (1 + random() * towpath._config_number('event.delivery.jitter_ratio')::double precision));
        update towpath.delivery d
           set lease_owner = null, lease_until = null, next_at = _next, last_error = _error
         where d.delivery_id = p_delivery_id;
        insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at,
            outcome, status_code, duration_ms, address, error, answer, next_at)
        values (p_delivery_id, p_attempt, _route.route_no, (_hold.delivery).position, (_hold.delivery).event_id,
            p_lease_owner, _now, 'retry', p_status_code, p_duration_ms, p_address, _error, left(p_answer, 2000), _next);
    end if;

    _disabled := case when _route.mode <> 'live' then null
        when _verdict.gone then 'the receiver answered 410 Gone'
        when _target.failing_since <= _now
             - towpath._config_number('event.webhook.disable_after_hours')::double precision * interval '1 hour'
        then format('no success since %s', _target.failing_since) end;
    if _disabled is not null then
        update towpath.outbound_route r
           set mode = 'off', mode_reason = _disabled, changed_by = 'towpath', changed_at = _now
         where r.route_no = _route.route_no and r.mode = 'live';
        if found then
            perform towpath._event_emit_own('route.disabled', 'alert', 'outbound_route', _route.route_name,
                jsonb_build_object('reason', _disabled, 'target', _target.target_key, 'event_id', (_hold.delivery).event_id,
                                   'event_type', (_hold.delivery).event ->> 'event_type', 'last_error', left(_error, 500)));
        end if;
    end if;
    return jsonb_build_object('ok', true, 'delivery_id', p_delivery_id, 'state',
        case when _next is null then 'dead' else 'waiting' end, 'next_at', _next, 'circuit', _target.circuit,
        'route_disabled', _disabled is not null);
end;
$$;

-- _delivery_sick: what a failure does to its target. An answer that only refuses this event is a
-- sign of life: it ends a half-open probe well, and counts as no failure.
create or replace function towpath._delivery_sick(
    p_target towpath.delivery_target, p_sick boolean, p_pause interval, p_error text, p_now timestamptz)
    returns towpath.delivery_target
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _failures integer := case when p_sick then p_target.failures + 1 else 0 end;
    _open boolean := p_sick and (p_target.circuit <> 'closed'
        or _failures >= towpath._config_number('event.circuit.failure_threshold'));
    _times integer := case when _open then p_target.opened_times + 1 when p_sick then p_target.opened_times else 0 end;
    _new towpath.delivery_target;
begin
    update towpath.delivery_target t
       set failures = _failures, opened_times = _times, last_error = left(p_error, 500),
           circuit = case when _open then 'open' else 'closed' end,
           failing_since = case when p_sick then coalesce(t.failing_since, p_now) end,
           blocked_until = greatest(case when _open then p_now + interval '1 second' * least(3600,
                   towpath._config_number('event.circuit.open_sec')::double precision * power(2, least(_times - 1, 12))) end,
               p_now + p_pause, '-infinity')
     where t.target_no = p_target.target_no
    returning * into _new;
    if _open and p_target.circuit = 'closed' then
        perform towpath._event_emit_own('route.circuit_opened', 'alert', 'delivery_target', p_target.target_key,
            jsonb_build_object('failures', _failures, 'last_error', left(p_error, 500), 'until', _new.blocked_until));
    end if;
    return _new;
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
begin
    if (p_delivery_id is null) = (p_event_id is null) then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'name a delivery_id or an event_id');
    end if;
    if p_event_id is not null then
        -- An attempt that was sent by webhook has the delivery as its result.
        _ids := array(select a.result_id from towpath.event_position p
                        join towpath.route_attempt a on a.position = p.position
                       where p.event_id = p_event_id and a.result_id is not null);
    end if;
    return jsonb_build_object('ok', true,
        'attempts', (select coalesce(jsonb_agg(to_jsonb(a) - 'route_no' || jsonb_build_object('route_name', r.route_name)
                                               order by a.ended_at, a.attempt), '[]')
                       from (select * from towpath.delivery_attempt x where x.delivery_id = any(_ids)
                              order by x.ended_at desc limit least(greatest(coalesce(p_limit, 200), 1), 1000)) a
                       join towpath.outbound_route r on r.route_no = a.route_no),
        'waiting', (select coalesce(jsonb_agg(to_jsonb(d) - 'event' - 'route_no' - 'target_no'
                               || jsonb_build_object('route_name', r.route_name) order by d.delivery_id), '[]')
                      from towpath.delivery d join towpath.outbound_route r on r.route_no = d.route_no
                     where d.delivery_id = any(_ids)));
end;
$$;

grant execute on function towpath.fn_delivery_claim(text, integer, integer) to worker_service_user;
grant execute on function towpath.fn_delivery_succeed(uuid, text, integer, integer, integer, text, text)
    to worker_service_user;
grant execute on function towpath.fn_delivery_fail(uuid, text, integer, text, text, integer, double precision, integer,
    text, text) to worker_service_user;
grant execute on function towpath.fn_delivery_extend(uuid, text, integer, integer) to worker_service_user;
grant execute on function towpath.fn_delivery_release(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_delivery_history(uuid, uuid, integer) to workflow_admin, towpath_observer;
