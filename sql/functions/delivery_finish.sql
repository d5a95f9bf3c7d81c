-- How an attempt to send a webhook ends: delivered, retried, or dead; and what that means for its target.

-- _delivery_hold: the delivery and its locked target, if the caller still holds the attempt. The
-- target comes first, as the lock order demands. If the end that follows raises, all of it is undone.
create or replace function towpath._delivery_hold(
    p_delivery_id uuid, p_lease_owner text, p_attempt integer,
    out delivery towpath.delivery, out target towpath.delivery_target)
    language plpgsql
as $$
begin
    select t.* into target from towpath.delivery_target t
     where t.target_no = (select d.target_no from towpath.delivery d where d.delivery_id = p_delivery_id)
       for update;
    select d.* into delivery from towpath.delivery d
     where d.delivery_id = p_delivery_id and d.lease_owner = p_lease_owner and d.attempts = p_attempt
       for update;
    -- The delivery ended, so what made it raise is over.
    delete from towpath.loop_fault f where f.loop_name = 'webhook_delivery' and f.item = p_delivery_id::text;
end;
$$;

-- _delivery_next: the next delivery of an ordering key becomes due now.
create or replace function towpath._delivery_next(p_delivery towpath.delivery, p_now timestamptz) returns void
    language plpgsql
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
    if p_status_code not between 100 and 999 then
        return towpath._invalid('status_code', 'must be between 100 and 999');
    end if;
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

-- _delivery_end: deletes a finished delivery and records how its last attempt ended.
create or replace function towpath._delivery_end(
    p_delivery towpath.delivery, p_outcome text, p_status_code integer, p_duration_ms integer, p_address text,
    p_error text, p_answer text, p_now timestamptz) returns void
    language plpgsql
as $$
begin
    delete from towpath.delivery d where d.delivery_id = p_delivery.delivery_id;
    insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at,
        outcome, status_code, duration_ms, address, error, answer)
    values (p_delivery.delivery_id, p_delivery.attempts, p_delivery.route_no, p_delivery.position, p_delivery.event_id,
        p_delivery.lease_owner, p_now, p_outcome, p_status_code, p_duration_ms, p_address, p_error,
        left(towpath._text_masked(left(p_answer, 2000)), 2000));
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
    if p_status_code not between 100 and 999 then
        return towpath._invalid('status_code', 'must be between 100 and 999');
    end if;
    if p_class is null or p_class not in ('status', 'timeout', 'connect', 'tls', 'forbidden', 'setup') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'class',
                                  'detail', 'must be one of status, timeout, connect, tls, forbidden, setup');
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
        when _verdict.gone then 'the receiver responded with 410 Gone'
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

grant execute on function towpath.fn_delivery_succeed(uuid, text, integer, integer, integer, text, text)
    to towpath_router;
grant execute on function towpath.fn_delivery_fail(uuid, text, integer, text, text, integer, double precision, integer,
    text, text) to towpath_router;
