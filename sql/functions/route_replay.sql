-- Replays: sending stored events through a route again, or for the first time.
--
-- A replay is a new generation of the attempt, so it has a key of its own and is recorded
-- beside the first. Receivers of webhooks see the same webhook id as before.

-- _route_generation: the generation a replay gets.
create or replace function towpath._route_generation(
    p_position bigint, p_worker_no smallint, p_route_no integer, p_mode text) returns integer
    language sql stable
as $$
    select coalesce(max(a.generation) + 1, 0) from towpath.route_attempt a
     where a.position = p_position and a.worker_no = p_worker_no and a.route_no = p_route_no and a.mode = p_mode
$$;

-- _route_replay_one: one event on one route again, as the route is now. The caller holds what
-- keeps two replays of it apart. Returns the decision: dry_run, sent or failed, with the error.
create or replace function towpath._route_replay_one(
    p_route towpath.outbound_route, p_event jsonb, p_recipients text[], p_now timestamptz,
    out decision text, out generation integer, out error text)
    language plpgsql
as $$
declare
    _work towpath._route_work;
    _state text;
begin
    _work.position := (p_event ->> 'position')::bigint;
    _work.event_id := (p_event ->> 'event_id')::uuid;
    _work.event_domain := p_event ->> 'event_domain';
    _work.event_type := p_event ->> 'event_type';
    _work.worker_no := p_route.worker_no;
    _work.worker_name := (select w.worker_name from towpath.route_worker w where w.worker_no = p_route.worker_no);
    _work.route_no := p_route.route_no;
    _work.route_name := p_route.route_name;
    _work.mode := p_route.mode;
    _work.decision := case p_route.mode when 'live' then 'sent' else 'dry_run' end;
    _work.reason := 'replay';
    _work.step := case when p_recipients is null then 5 else 1 end;
    _work.recipients := p_recipients;
    _work.target_kind := p_route.target_kind;
    _work.target := p_route.target;
    _work.target_no := p_route.target_no;
    _work.ordering_key := case when p_route.ordering = 'key' then p_event ->> 'ordering_key' end;
    _work.event := p_event;
    generation := towpath._route_generation(_work.position, _work.worker_no, _work.route_no, _work.mode);
    _work.generation := generation;
    begin
        perform towpath._route_write(array[_work], p_now);
        decision := _work.decision;
    exception when others then
        get stacked diagnostics error = message_text, _state = returned_sqlstate;
        if towpath._route_trouble(_state) then
            raise;
        end if;
        decision := 'failed';
        error := format('%s (%s)', error, _state);
        insert into towpath.route_attempt (position, worker_no, route_no, mode, generation, event_id, decision,
            reason, step, recipients, error, attempted_at)
        values (_work.position, _work.worker_no, _work.route_no, _work.mode, _work.generation, _work.event_id,
            'failed', 'replay', _work.step, _work.recipients, towpath._error_text(error), p_now);
    end;
end;
$$;

-- _route_replay_refusal: why a route cannot be replayed on now, or null. Replays go through the
-- same gates as passes.
create or replace function towpath._route_replay_refusal(p_route towpath.outbound_route, p_actor text) returns jsonb
    language sql stable
as $$
    select coalesce(towpath._gate_refusal('event.routing.enabled'),
        case when p_route.target_kind = 'job' and p_route.mode = 'live'
             then towpath._gate_refusal('queue.job_substrate.enabled') end,
        case when coalesce(btrim(p_actor), '') = '' then
            jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'actor', 'detail', 'must not be blank')
        when p_route.mode = 'off' then
            jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route.route_name,
                               'detail', 'the route is off; set it to dry_run or live first') end)
$$;

-- _route_replay_failed: the dead letter of a replay that had none yet.
create or replace function towpath._route_replay_failed(
    p_route towpath.outbound_route, p_event jsonb, p_recipients text[], p_generation integer, p_error text,
    p_now timestamptz) returns void
    language sql
as $$
    insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation,
        position, event_id, event_snapshot, recipients, error, attempts, idempotency_key, created_at)
    select towpath._uuid7((date_part('epoch', p_now) * 1000000)::bigint), 'routing', p_route.worker_no, p_route.route_no,
           p_route.route_name, p_route.mode, p_generation, (p_event ->> 'position')::bigint,
           (p_event ->> 'event_id')::uuid, p_event, p_recipients, towpath._error_text(p_error), 1,
           towpath._route_key(w.worker_name, p_route.route_name, (p_event ->> 'event_id')::uuid, p_route.mode,
                              p_generation), p_now
      from towpath.route_worker w where w.worker_no = p_route.worker_no
$$;

-- fn_route_replay: sends stored events through one route again, or for the first time: what it
-- would take between two positions, as a new generation. With p_dry_count it only counts.
-- A call reads at most 10,000 positions; position is where the next call continues.
--
-- Answers: {ok, route_name, matched, sent, dry_run, failed, position, more}; gate_closed, invalid,
-- not_found, conflict (the route is off).
create or replace function towpath.fn_route_replay(
    p_route_name text, p_after_position bigint, p_to_position bigint, p_actor text, p_dry_count boolean default true,
    p_limit integer default 1000) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _last bigint := towpath._event_last_position();
    _to bigint := least(p_to_position, least(p_after_position, _last) + 10000, _last);
    _limit integer := least(greatest(coalesce(p_limit, 1000), 1), 1000);
    _route towpath.outbound_route;
    _refusal jsonb;
    _event record;
    _done record;
    _count integer[] := '{0,0,0,0}';
    _position bigint := p_after_position;
begin
    select * into _route from towpath.outbound_route r where r.route_name = p_route_name for no key update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    end if;
    _refusal := towpath._route_replay_refusal(_route, p_actor);
    if _refusal is not null then
        return _refusal;
    end if;
    if p_after_position is null or p_to_position is null or p_after_position < 0 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'after_position and to_position are required');
    end if;
    for _event in
        select p.position, o::towpath.event_outbox as event, h.recipients
          from towpath.event_position p
          join lateral (select * from towpath.event_outbox x where x.event_id = p.event_id offset 0) o on true
         cross join lateral (
               select array_agg(m.recipient_ref order by m.recipient_ref) filter (where not m.mute) as recipients,
                      array_agg(m.recipient_ref order by m.recipient_ref) filter (where m.mute) as suppressed
                 from towpath._event_rows_matching(o.event_domain, o.event_type, o.event_stream, o.subject_table,
                                                   o.payload) m
                where towpath._resolution_on()) h
         cross join lateral towpath._route_decisions(_route.worker_no, o.event_domain, o.event_type, o.event_stream,
                                                     o.payload, h.recipients, h.suppressed) d
         where p.position > p_after_position and p.position <= _to
           and d.route_no = _route.route_no and d.decision in ('sent', 'dry_run')
         order by p.position
         limit _limit
    loop
        _count[1] := _count[1] + 1;
        _position := _event.position;
        continue when coalesce(p_dry_count, true);
        select * into _done from towpath._route_replay_one(_route, towpath._event_envelope(_event.event, _event.position),
                                                           _event.recipients, _now);
        if _done.decision = 'failed' then
            perform towpath._route_replay_failed(_route, towpath._event_envelope(_event.event, _event.position),
                                                 _event.recipients, _done.generation, _done.error, _now);
        end if;
        _count[2] := _count[2] + (_done.decision = 'sent')::integer;
        _count[3] := _count[3] + (_done.decision = 'dry_run')::integer;
        _count[4] := _count[4] + (_done.decision = 'failed')::integer;
    end loop;
    if _count[1] < _limit then
        _position := greatest(_to, p_after_position);
    end if;
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'matched', _count[1], 'sent', _count[2],
        'dry_run', _count[3], 'failed', _count[4], 'position', _position,
        'more', _position < least(p_to_position, towpath._event_last_position()));
end;
$$;

-- fn_route_send: one stored event through one route, whether or not the route would take it: to try a
-- route out, or to repeat a single event.
--
-- Answers: {ok, route_name, event_id, decision, generation, detail}; gate_closed, invalid, not_found (the
-- route, or an event that is stored and has a position), conflict (the route is off).
create or replace function towpath.fn_route_send(p_route_name text, p_event_id uuid, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _route towpath.outbound_route;
    _refusal jsonb;
    _event jsonb;
    _done record;
begin
    select * into _route from towpath.outbound_route r where r.route_name = p_route_name for no key update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    end if;
    _refusal := towpath._route_replay_refusal(_route, p_actor);
    if _refusal is not null then
        return _refusal;
    end if;
    select towpath._event_envelope(o, p.position) into _event
      from towpath.event_position p
      join towpath.event_outbox o on o.event_id = p.event_id
     where p.event_id = p_event_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'event_id', p_event_id,
                                  'detail', 'there is no such event, or it has no position yet');
    end if;
    select * into _done from towpath._route_replay_one(_route, _event, null, _now);
    if _done.decision = 'failed' then
        perform towpath._route_replay_failed(_route, _event, null, _done.generation, _done.error, _now);
    end if;
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'event_id', p_event_id,
        'decision', _done.decision, 'generation', _done.generation, 'detail', _done.error);
end;
$$;

grant execute on function towpath.fn_route_replay(text, bigint, bigint, text, boolean, integer) to workflow_admin;
grant execute on function towpath.fn_route_send(text, uuid, text) to workflow_admin;
