-- Deciding: which routes an event takes and what becomes of it on each (E05). Nothing here writes.
--
-- The rules, in order, for a route of the worker whose domain, type, stream and payload
-- filter fit the event and which the recipients do not rule out:
--   mode off                       disabled   mode_off
--   its recipient is suppressed    skipped    suppressed
--   mode dry_run                   dry_run
--   mode live                      sent, or failed if the target cannot take it
-- An event for which no route is left is skipped once, with the reason no_route. model mirrors
-- these rules in Rust; a property test holds both to the same answers.

-- _recipient_fits: whether a recipient is meant by a route's filter, which names one recipient or,
-- ending in :*, all of a kind.
create or replace function towpath._recipient_fits(p_recipient text, p_filter text) returns boolean
    language sql immutable parallel safe
as $$
    select case when right(p_filter, 2) = ':*' then left(p_recipient, length(p_filter) - 1) = left(p_filter, -1)
                else p_recipient = p_filter end
$$;

-- _route_decisions: the decision for every route that an event takes. Recipients null is a
-- broadcast: everybody gets it, except a recipient that is suppressed by name.
--
-- No SET clause, so that it is inlined into the callers' joins; they fix search_path.
create or replace function towpath._route_decisions(
    p_worker_no smallint, p_event_domain text, p_event_type text, p_event_stream text, p_payload jsonb,
    p_recipients text[], p_suppressed text[])
    returns table (route_no integer, route_name text, mode text, decision text, reason text, target_kind text,
                   target jsonb, target_no integer, ordering text)
    language sql stable
as $$
    select r.route_no, r.route_name, r.mode,
           case when r.mode = 'off' then 'disabled' when not h.receives then 'skipped'
                when r.mode = 'dry_run' then 'dry_run' else 'sent' end,
           case when r.mode = 'off' then 'mode_off' when not h.receives then 'suppressed' end,
           r.target_kind, r.target, r.target_no, r.ordering
      from towpath.outbound_route r
     cross join lateral (
           select r.recipient_filter is null
                  or case when p_recipients is null then r.recipient_filter <> all (coalesce(p_suppressed, '{}'))
                          else exists (select 1 from unnest(p_recipients) x
                                        where towpath._recipient_fits(x, r.recipient_filter)) end as receives,
                  exists (select 1 from unnest(p_suppressed) x
                           where towpath._recipient_fits(x, r.recipient_filter)) as suppressed) h
     where r.worker_no = p_worker_no and r.retired_at is null
       and (r.event_domain is null or r.event_domain = p_event_domain)
       and (r.event_type is null or r.event_type = p_event_type)
       and (r.event_stream is null or r.event_stream = p_event_stream)
       and p_payload @> r.payload_filter
       and (h.receives or h.suppressed)
$$;

-- _event_envelope: an event as receivers, readers and dead letters see it. No SET clause, as above.
create or replace function towpath._event_envelope(p_event towpath.event_outbox, p_position bigint) returns jsonb
    language sql stable
as $$
    select jsonb_build_object('event_id', p_event.event_id, 'position', p_position,
        'event_domain', p_event.event_domain, 'event_type', p_event.event_type, 'event_stream', p_event.event_stream,
        'subject_table', p_event.subject_table, 'subject_ref', p_event.subject_ref,
        'ordering_key', towpath._event_key(p_event.ordering_key, p_event.subject_table, p_event.subject_ref),
        'actor', p_event.actor, 'created_at', p_event.created_at, 'payload', p_event.payload)
        || case when p_event.traceparent is null then '{}'
                else jsonb_build_object('traceparent', p_event.traceparent) end
$$;

-- _route_batch: the work of a slice between two positions, in order. What has been attempted in
-- the same mode is left out, so a cursor that was set back delivers nothing twice (E07).
create or replace function towpath._route_batch(
    p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint)
    returns towpath._route_work[]
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    _on boolean := towpath._resolution_on();
begin
    return array(
        select row(p.position, o.event_id, o.event_domain, o.event_type, p_worker.worker_no, p_worker.worker_name,
                   coalesce(d.route_no, 0), d.route_name, coalesce(d.mode, 'off'), 0,
                   coalesce(d.decision, 'skipped'), case when d.route_no is null then 'no_route' else d.reason end,
                   coalesce(h.step, 5::smallint), h.recipients, h.suppressed, d.target_kind, d.target, d.target_no,
                   case when d.ordering = 'key'
                        then towpath._event_key(o.ordering_key, o.subject_table, o.subject_ref) end,
                   case when d.decision = 'sent' then towpath._event_envelope(o, p.position) end)::towpath._route_work
          from towpath.event_position p
          -- The offset pins the order of joins: from the few positions to their events, never from all events.
          join lateral (select * from towpath.event_outbox x where x.event_id = p.event_id offset 0) o on true
         cross join lateral (
               select array_agg(m.recipient_ref order by m.recipient_ref) filter (where not m.mute) as recipients,
                      array_agg(m.recipient_ref order by m.recipient_ref) filter (where m.mute) as suppressed,
                      min(m.step) filter (where not m.mute) as step
                 from towpath._event_rows_matching(o.event_domain, o.event_type, o.event_stream, o.subject_table,
                                                   o.payload) m
                where _on) h
          left join lateral towpath._route_decisions(p_worker.worker_no, o.event_domain, o.event_type, o.event_stream,
                                                     o.payload, h.recipients, h.suppressed) d on true
         where p.position > p_after and p.position <= p_to
           and (p_worker.event_domain is null or o.event_domain = p_worker.event_domain)
           and (p_worker.slices = 1 or abs(p.key_hash::bigint) % p_worker.slices = p_slice)
           and not exists (select 1 from towpath.route_attempt a
                            where a.position = p.position and a.worker_no = p_worker.worker_no
                              and a.route_no = coalesce(d.route_no, 0) and a.mode = coalesce(d.mode, 'off')
                              and a.generation = 0
                            -- Keeps it a probe per event: as a join it would read every attempt.
                            offset 0)
         order by p.position, d.route_no);
end;
$$;

-- fn_route_explain: what a worker would decide about an event, stored or only thought of. Reads only.
--
-- Answers: the answer of fn_resolve_recipients with decisions: [{route_name, mode, decision, reason,
-- target_kind}]; invalid, not_found.
create or replace function towpath.fn_route_explain(p_event jsonb, p_worker_name text default 'default') returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _resolved jsonb := towpath.fn_resolve_recipients(p_event);
    _event towpath.event_outbox;
    _worker_no smallint;
begin
    if not (_resolved ->> 'ok')::boolean then
        return _resolved;
    end if;
    select w.worker_no into _worker_no from towpath.route_worker w where w.worker_name = p_worker_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'worker_name', p_worker_name);
    end if;
    if p_event ? 'event_domain' then
        _event.event_domain := p_event ->> 'event_domain';
        _event.event_type := p_event ->> 'event_type';
        _event.event_stream := p_event ->> 'event_stream';
        _event.payload := coalesce(p_event -> 'payload', '{}');
    else
        select * into _event from towpath.event_outbox o where o.event_id = (p_event ->> 'event_id')::uuid;
    end if;
    return _resolved || jsonb_build_object('worker_name', p_worker_name, 'decisions', coalesce((
        select jsonb_agg(jsonb_build_object('route_name', d.route_name, 'mode', d.mode, 'decision', d.decision,
                   'reason', d.reason, 'target_kind', d.target_kind) order by d.route_name)
          from towpath._route_decisions(_worker_no, _event.event_domain, _event.event_type, _event.event_stream,
                   _event.payload,
                   case when not (_resolved ->> 'broadcast')::boolean then
                       array(select r ->> 'recipient_ref' from jsonb_array_elements(_resolved -> 'recipients') r) end,
                   array(select r ->> 'recipient_ref' from jsonb_array_elements(_resolved -> 'suppressed') r)) d),
        jsonb_build_array(jsonb_build_object('route_name', null, 'decision', 'skipped', 'reason', 'no_route'))));
end;
$$;

grant execute on function towpath.fn_route_explain(jsonb, text) to workflow_admin, towpath_observer;
