-- Reading events: one whole, a page for operators, and what a consumer may see. None needs a gate.

-- fn_event_show: everything known about one event, and the login that named another actor than itself.
--
-- Answers: {ok, event, attempts: [...], dead_letters: [...], deliveries, recipients}; not_found.
create or replace function towpath.fn_event_show(p_event_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _event towpath.event_outbox;
    _position bigint := (select p.position from towpath.event_position p where p.event_id = p_event_id);
begin
    select * into _event from towpath.event_outbox o where o.event_id = p_event_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'event_id', p_event_id,
                                  'detail', 'there is no such event, or retention dropped it');
    end if;
    return jsonb_build_object('ok', true,
        'event', towpath._event_envelope(_event, _position) || jsonb_build_object('login', _event.login),
        'recipients', towpath.fn_resolve_recipients(jsonb_build_object('event_id', p_event_id)) - 'ok',
        'attempts', (select coalesce(jsonb_agg(jsonb_build_object('worker_name', w.worker_name, 'route_name', r.route_name,
                                'mode', a.mode, 'generation', a.generation, 'decision', a.decision, 'reason', a.reason,
                                'step', towpath._step_name(a.step), 'recipients', a.recipients,
                                'suppressed', a.suppressed, 'result_id', a.result_id, 'error', a.error,
                                'attempted_at', a.attempted_at) order by a.attempted_at, r.route_name, a.generation), '[]')
                       from towpath.route_attempt a
                       join towpath.route_worker w on w.worker_no = a.worker_no
                       left join towpath.outbound_route r on r.route_no = a.route_no
                      where a.position = _position),
        'dead_letters', (select coalesce(jsonb_agg(to_jsonb(d) - 'event_snapshot' - 'worker_no' - 'route_no'
                                                   order by d.dead_letter_id), '[]')
                           from towpath.route_dead_letter d where d.position = _position and d.event_id = p_event_id),
        'deliveries', towpath.fn_delivery_history(null, p_event_id) - 'ok');
end;
$$;

-- _event_filter_refusal: a filter names known keys only.
create or replace function towpath._event_filter_refusal(p_filter jsonb) returns jsonb
    language sql immutable
as $$
    select case
        when jsonb_typeof(p_filter) is distinct from 'object' then
            jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', 'must be an object')
        else (select jsonb_build_object('ok', false, 'error', 'unknown_key', 'key', k)
                from jsonb_object_keys(p_filter) k
               where k not in ('event_domain', 'event_type', 'event_stream', 'subject_table', 'subject_ref', 'actor',
                               'payload') limit 1) end
$$;

-- fn_event_list: events by position, forward from p_after_position (a tail), or newest first if it
-- is null. The filter takes event_domain, event_type, event_stream, subject_table, subject_ref,
-- actor and payload (containment). Events have no index but their position, so a call looks for
-- about a sixth of a second at most; position is where the next call continues, and an empty page with
-- more is not the end.
--
-- Answers: {ok, events: [...], position, last_position, kept_from, more}; invalid, unknown_key.
create or replace function towpath.fn_event_list(
    p_filter jsonb default '{}', p_after_position bigint default null, p_limit integer default 100,
    p_before_position bigint default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _filter jsonb := coalesce(p_filter, '{}');
    _refusal jsonb := towpath._event_filter_refusal(_filter);
    _limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    _last bigint := towpath._event_last_position();
    _kept bigint := (select r.kept_from from towpath.event_retention r);
    _forward boolean := p_after_position is not null;
    _until timestamptz := clock_timestamp() + interval '160 milliseconds';
    _chunk integer := _limit;
    _from bigint;
    _to bigint;
    _page jsonb;
    _events jsonb := '[]';
    _edge bigint;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    -- Within what positions reach, so that a chunk can be added.
    _edge := case when _forward then least(greatest(p_after_position, _kept - 1), greatest(_last, _kept - 1))
                  else greatest(least(coalesce(p_before_position, _last + 1), _last + 1), 0) end;
    while jsonb_array_length(_events) < _limit and clock_timestamp() < _until loop
        _from := case when _forward then _edge + 1 else greatest(_edge - _chunk, _kept) end;
        _to := case when _forward then least(_edge + _chunk, _last) else _edge - 1 end;
        exit when _from > _to;
        select coalesce(jsonb_agg(towpath._event_envelope(e.event, e.position) order by e.place), '[]')
          into _page
          from (select o::towpath.event_outbox as event, p.position,
                       case when _forward then p.position else -p.position end as place
                  from towpath.event_position p
                  join lateral (select * from towpath.event_outbox x where x.event_id = p.event_id offset 0) o on true
                 where p.position between _from and _to
                   and (_filter ->> 'event_domain' is null or o.event_domain = _filter ->> 'event_domain')
                   and (_filter ->> 'event_type' is null or o.event_type = _filter ->> 'event_type')
                   and (_filter ->> 'event_stream' is null or o.event_stream = _filter ->> 'event_stream')
                   and (_filter ->> 'subject_table' is null or o.subject_table = _filter ->> 'subject_table')
                   and (_filter ->> 'subject_ref' is null or o.subject_ref = _filter ->> 'subject_ref')
                   and (_filter ->> 'actor' is null or o.actor = _filter ->> 'actor')
                   and (not _filter ? 'payload' or o.payload @> (_filter -> 'payload'))
                 order by place
                 limit _limit - jsonb_array_length(_events)) e;
        _events := _events || _page;
        _edge := case when jsonb_array_length(_events) >= _limit then (_events -> -1 ->> 'position')::bigint
                      when _forward then _to else _from end;
        _chunk := least(_chunk * 2, 4000);
    end loop;
    return jsonb_build_object('ok', true, 'events', _events, 'position', _edge, 'last_position', _last,
        'kept_from', _kept, 'more', case when _forward then _edge < _last else _edge > _kept end);
end;
$$;

-- _event_consumer_may: whether the session may read events as a recipient (R05): it is a member of
-- the login role registered for it. Administrators and the owner may.
create or replace function towpath._event_consumer_may(p_recipient_ref text) returns boolean
    language sql stable
as $$
    select pg_has_role(session_user, 'workflow_admin', 'member')
        or pg_has_role(session_user, 'towpath_owner', 'member')
        or coalesce((select pg_has_role(session_user, r.oid, 'member')
                       from towpath.event_actor a join pg_roles r on r.rolname = a.login_role
                      where a.recipient_ref = p_recipient_ref), false)
$$;

-- _event_read: the events after a position that a consumer has a subscription for. The caller has
-- checked that the reader may act as this consumer.
--
-- A broadcast gives no right to read, and neither does the switch of R04: only the consumer's own most
-- specific row does, if it is not muted. A call reads at most 10,000 positions.
create or replace function towpath._event_read(p_consumer text, p_after_position bigint, p_limit integer) returns jsonb
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 100), 1), 1000);
    _last bigint := towpath._event_last_position();
    _after bigint := coalesce(p_after_position, _last);
    _kept bigint := (select r.kept_from from towpath.event_retention r);
    _to bigint;
    _events jsonb;
    _count integer;
    _edge bigint;
begin
    if _after < 0 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'after', 'detail', 'must be 0 or more');
    end if;
    if not exists (select 1 from towpath.event_subscription s where s.recipient_ref = p_consumer and not s.mute) then
        return jsonb_build_object('ok', false, 'error', 'no_subscription', 'consumer', p_consumer,
            'detail', 'this consumer has no unmuted event subscription');
    end if;
    if _after > 0 and _after < _kept - 1 then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'consumer', p_consumer, 'kept_from', _kept,
            'detail', format('retention dropped events before position %s; continue after %s', _kept, _kept - 1));
    end if;
    _to := least(greatest(least(_after, _last), _kept - 1) + 10000, _last);
    select coalesce(jsonb_agg(towpath._event_envelope(e.event, e.position) order by e.position), '[]'),
           count(*), max(e.position)
      into _events, _count, _edge
      from (select o::towpath.event_outbox as event, p.position
              from towpath.event_position p
              join lateral (select * from towpath.event_outbox x where x.event_id = p.event_id offset 0) o on true
              join lateral towpath._event_rows_matching(o.event_domain, o.event_type, o.event_stream,
                                                        o.subject_table, o.payload) m
                on m.recipient_ref = p_consumer and not m.mute
             where p.position > _after and p.position <= _to
             order by p.position
             limit _limit) e;
    if _count < _limit then
        _edge := greatest(_to, _after);
    end if;
    return jsonb_build_object('ok', true, 'consumer', p_consumer, 'events', _events, 'position', _edge,
                              'last_position', _last, 'more', _edge < _last);
end;
$$;

-- fn_event_read: the events after a position that a consumer has a subscription for (R05), for a login
-- that may read as it. The consumer keeps its position; null is the end.
--
-- Answers: {ok, consumer, events: [...], position, last_position, more}; invalid, not_authorised,
-- no_subscription, not_found (the position was dropped by retention: kept_from).
create or replace function towpath.fn_event_read(
    p_consumer text, p_after_position bigint default 0, p_limit integer default 100) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._recipient_refusal(p_consumer);
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._event_consumer_may(p_consumer) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'consumer', p_consumer,
            'detail', format('%s is not allowed to read as %s; an administrator can register it', session_user, p_consumer));
    end if;
    return towpath._event_read(p_consumer, p_after_position, p_limit);
end;
$$;

-- fn_executor_token_event_read: fn_event_read for the holder of a token (R05). It reads as the
-- recipients that are registered for its executor, and as no other; if there is one only, it
-- need not be named.
--
-- Answers: those of fn_event_read.
create or replace function towpath.fn_executor_token_event_read(
    p_token_hash bytea, p_consumer text default null, p_after_position bigint default null,
    p_limit integer default 100) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
    _consumers text[];
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_refusal(_token);
    if _refusal is not null then
        return _refusal;
    end if;
    _consumers := array(select a.recipient_ref from towpath.event_actor a
                         where a.executor_id = _token.executor_id order by a.recipient_ref);
    if _consumers = '{}' or (p_consumer is not null and p_consumer <> all (_consumers)) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'consumer', p_consumer,
            'detail', format('tokens of %s are not allowed to read events as %s; an administrator can register it',
                             coalesce(_token.executor_id, 'a producer'), coalesce(p_consumer, 'anybody')));
    elsif p_consumer is null and cardinality(_consumers) > 1 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'as',
            'detail', format('name the recipient to read as: %s', array_to_string(_consumers, ', ')));
    end if;
    return towpath._event_read(coalesce(p_consumer, _consumers[1]), p_after_position, p_limit);
end;
$$;

grant execute on function towpath.fn_event_show(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_list(jsonb, bigint, integer, bigint) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_read(text, bigint, integer)
    to towpath_consumer, workflow_admin;
grant execute on function towpath.fn_executor_token_event_read(bytea, text, bigint, integer) to workflow_admin;
