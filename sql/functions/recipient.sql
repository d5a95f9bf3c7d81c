-- Recipients: who gets an event, by which rule, and how often nobody was named.

-- _resolution_on: whether subscriptions decide (R04). This is the one switch whose closed side is
-- the wider one: off means broadcast. So only the exact word false turns it off; a missing
-- or unreadable value leaves subscriptions in force. Broadcast delivers nothing by itself
-- (a route must be live), and reading events (fn_event_read) never looks at it.
create or replace function towpath._resolution_on() returns boolean
    language plpgsql stable
as $$
begin
    return coalesce((select c.value <> 'false' from towpath.config c
                      where c.key = 'queue.subscription_resolution.enabled' and c.kind = 'gate'), true);
end;
$$;

-- _event_rows_matching: for every recipient with a subscription that fits an event, the row that
-- decides. Steps: 1 exact (type and stream), 2 domain wildcard (stream only), 3 stream
-- wildcard (type only), 4 domain only. The lowest step wins; within a step a row with a
-- subject table before one without, then the filter with more keys, then the older row. If
-- the winner is muted, the recipient does not get the event (R02).
--
-- No SET clause, so that it is inlined into the callers' joins; they fix search_path.
create or replace function towpath._event_rows_matching(
    p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text, p_payload jsonb)
    returns table (recipient_ref text, step smallint, mute boolean, subscription_id uuid)
    language sql stable
as $$
    select distinct on (s.recipient_ref) s.recipient_ref::text,
           case when s.event_type is not null and s.event_stream is not null then 1
                when s.event_stream is not null then 2
                when s.event_type is not null then 3
                else 4 end::smallint,
           s.mute, s.subscription_id
      from towpath.event_subscription s
     where s.event_domain = p_event_domain
       and (s.event_type is null or s.event_type = p_event_type)
       and (s.event_stream is null or s.event_stream = p_event_stream)
       and (s.scope_subject_table is null or s.scope_subject_table = p_subject_table)
       and p_payload @> s.scope_filter
     order by s.recipient_ref, 2, s.scope_subject_table is null,
              (select count(*) from jsonb_object_keys(s.scope_filter)) desc, s.subscription_no
$$;

-- _step_name: the five steps by the names of their contract.
create or replace function towpath._step_name(p_step smallint) returns text
    language sql immutable
as $$ select (array['exact_match', 'domain_wildcard', 'stream_wildcard', 'domain_only', 'broadcast_fallback'])[p_step] $$;

-- fn_resolve_recipients: who gets an event, a stored one or one that is only described (R02).
--
-- p_event is {event_id} of a stored event, or {event_domain, event_type, event_stream,
-- subject_table, payload}. If no one gets it, it is a broadcast: for everybody who is not
-- suppressed. Reads only.
--
-- Answers: {ok, step, broadcast, resolution_enabled, recipients: [{recipient_ref, step,
-- subscription_id}], suppressed: [same]}; invalid, not_found.
create or replace function towpath.fn_resolve_recipients(p_event jsonb) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _on boolean := towpath._resolution_on();
    _event towpath.event_outbox;
    _answer jsonb;
begin
    if jsonb_typeof(p_event) is distinct from 'object' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'event', 'detail', 'must be a JSON object');
    end if;
    if p_event ? 'event_id' and not p_event ? 'event_domain' then
        select * into _event from towpath.event_outbox o where o.event_id = (p_event ->> 'event_id')::uuid;
        if not found then
            return jsonb_build_object('ok', false, 'error', 'not_found', 'event_id', p_event -> 'event_id');
        end if;
    else
        if p_event ->> 'event_domain' is null or p_event ->> 'event_type' is null then
            return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'event',
                                      'detail', 'event_domain and event_type, or the event_id of a stored event, are required');
        end if;
        _answer := towpath._event_refusal(p_event ->> 'event_domain', p_event ->> 'event_type', p_event ->> 'event_stream',
            p_event ->> 'subject_table', null, null, session_user, coalesce(p_event -> 'payload', '{}'), null, null);
        if _answer is not null then
            return _answer;
        end if;
        _event.event_domain := p_event ->> 'event_domain';
        _event.event_type := p_event ->> 'event_type';
        _event.event_stream := p_event ->> 'event_stream';
        _event.subject_table := p_event ->> 'subject_table';
        _event.payload := coalesce(p_event -> 'payload', '{}');
    end if;
    select jsonb_build_object('ok', true,
               'step', towpath._step_name(coalesce(min(m.step) filter (where not m.mute), 5::smallint)),
               'broadcast', count(*) filter (where not m.mute) = 0,
               'resolution_enabled', _on,
               'recipients', coalesce(jsonb_agg(jsonb_build_object('recipient_ref', m.recipient_ref,
                                 'step', towpath._step_name(m.step), 'subscription_id', m.subscription_id)
                                 order by m.recipient_ref) filter (where not m.mute), '[]'),
               'suppressed', coalesce(jsonb_agg(jsonb_build_object('recipient_ref', m.recipient_ref,
                                 'step', towpath._step_name(m.step), 'subscription_id', m.subscription_id)
                                 order by m.recipient_ref) filter (where m.mute), '[]'))
      into _answer
      from towpath._event_rows_matching(_event.event_domain, _event.event_type, _event.event_stream,
                                        _event.subject_table, _event.payload) m
     where _on;
    return _answer;
exception when invalid_text_representation then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'event_id', 'detail', sqlerrm);
end;
$$;

-- _event_count: adds the events between two positions to the hours in which they were emitted. Events
-- that resolve alike are counted together: payloads are distinguished only in domains where a
-- subscription looks into them. The domain towpath is left out, so no warning counts itself.
create or replace function towpath._event_count(p_after bigint, p_to bigint) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    _on boolean := towpath._resolution_on();
    _filtered text[] := array(select distinct s.event_domain from towpath.event_subscription s
                               where s.scope_filter <> '{}');
begin
    insert into towpath.event_resolution_hour as h (hour_at, event_domain, event_type, events, broadcasts)
    select e.hour_at, e.event_domain, e.event_type, sum(e.events),
           coalesce(sum(e.events) filter (where not _on or not exists (
               select 1 from towpath._event_rows_matching(e.event_domain, e.event_type, e.event_stream, e.subject_table,
                                                          e.payload) m where not m.mute)), 0)
      from (select date_trunc('hour', o.created_at, 'UTC') as hour_at, o.event_domain, o.event_type, o.event_stream,
                   o.subject_table, case when o.event_domain = any(_filtered) then o.payload else '{}' end as payload,
                   count(*) as events
              from towpath.event_position p
              join lateral (select * from towpath.event_outbox x where x.event_id = p.event_id offset 0) o on true
             where p.position > p_after and p.position <= p_to and o.event_domain <> 'towpath'
             group by 1, 2, 3, 4, 5, 6) e
     group by e.hour_at, e.event_domain, e.event_type
    on conflict (hour_at, event_domain, event_type) do update
       set events = h.events + excluded.events, broadcasts = h.broadcasts + excluded.broadcasts;
end;
$$;

-- _event_count_each: counts events one by one; an event that raises is set aside, and the others are counted.
create or replace function towpath._event_count_each(p_positions bigint[]) returns void
    language plpgsql
as $$
declare
    _position bigint;
    _now timestamptz := towpath.fn_now();
begin
    foreach _position in array p_positions loop
        begin
            perform towpath._event_count(_position - 1, _position);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._loop_fault('event_counting', _position::text, sqlerrm);
        end;
    end loop;
    perform towpath._loop_over('event_counting', _now, p_positions::text[]);
end;
$$;

-- fn_event_counter_fold: counts up to p_limit events that have not been counted, by hour, domain and
-- type, and forgets hours older than two days (R03). The counter has a cursor of its own: each event
-- counts once, however many workers route it, however often a cursor is set back, and whether or
-- not routing is switched on. An event that raises is set aside and counted later (Q22).
--
-- Answers: {ok, folded, more, busy}.
create or replace function towpath.fn_event_counter_fold(p_limit integer default 10000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 10000), 1), 100000);
    _last bigint := towpath._event_last_position();
    _from bigint;
    _to bigint;
begin
    if not pg_try_advisory_xact_lock(7304, 2) then
        return jsonb_build_object('ok', true, 'folded', 0, 'more', false, 'busy', true);
    end if;
    -- What retention has dropped need not be walked over.
    select greatest(c.position, r.kept_from - 1) into _from
      from towpath.event_resolution_cursor c, towpath.event_retention r;
    _to := least(_last, _from + _limit);
    perform towpath._event_count_each(towpath._loop_due('event_counting')::bigint[]);
    if _to > _from then
        begin
            perform towpath._event_count(_from, _to);
        exception when others then
            if towpath._error_common(sqlstate) then
                raise;
            end if;
            perform towpath._event_count_each(array(select n from generate_series(_from + 1, _to) n));
        end;
        update towpath.event_resolution_cursor c set position = _to;
        delete from towpath.event_resolution_hour h where h.hour_at < towpath.fn_now() - interval '2 days';
    end if;
    return jsonb_build_object('ok', true, 'folded', greatest(_to - _from, 0), 'more', _to < _last, 'busy', false);
end;
$$;

-- fn_event_broadcast_check: emits the warning event when too many events of the last 24 hours had
-- to be broadcast (R03), once per 24 hours. Maintenance calls this about once a minute.
--
-- Answers: {ok, events, broadcasts, percent, warned, event_id}.
create or replace function towpath.fn_event_broadcast_check() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _count record;
    _percent numeric;
    _event_id uuid;
begin
    select coalesce(sum(h.events), 0) as events, coalesce(sum(h.broadcasts), 0) as broadcasts
      into _count from towpath.event_resolution_hour h where h.hour_at > _now - interval '25 hours';
    _percent := case when _count.events > 0 then round(100.0 * _count.broadcasts / _count.events, 2) else 0 end;
    if _count.events >= towpath._config_number('event.broadcast.warn_min_events')
       and _percent > towpath._config_number('event.broadcast.warn_percent') then
        update towpath.event_warning w set warned_at = _now
         where w.warning = 'subscription.broadcast_drift' and w.warned_at <= _now - interval '24 hours';
        if found then
            _event_id := towpath._event_emit_own('subscription.broadcast_drift', 'alert', null, null,
                jsonb_build_object('window_hours', 24, 'events', _count.events, 'broadcasts', _count.broadcasts,
                    'percent', _percent, 'resolution_enabled', towpath._resolution_on(),
                    'top', (select coalesce(jsonb_agg(to_jsonb(t) order by t.broadcast_events_24h desc), '[]')
                              from (select h.event_domain, h.event_type, sum(h.broadcasts) as broadcast_events_24h
                                      from towpath.event_resolution_hour h
                                     where h.hour_at > _now - interval '25 hours'
                                     group by h.event_domain, h.event_type
                                    having sum(h.broadcasts) > 0
                                     order by 3 desc limit 10) t)));
        end if;
    end if;
    return jsonb_build_object('ok', true, 'events', _count.events, 'broadcasts', _count.broadcasts,
        'percent', _percent, 'warned', _event_id is not null, 'event_id', _event_id);
end;
$$;

grant execute on function towpath.fn_resolve_recipients(jsonb) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_counter_fold(integer) to towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_event_broadcast_check() to towpath_maintainer, workflow_admin;
