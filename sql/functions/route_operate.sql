-- Routes as operators see them: what one of them did last, and its target's circuit.

-- fn_route_attempts: what a route decided and sent last, newest first. Looks at the newest 20,000
-- decisions and webhook attempts of all routes, so it costs the same however many there are.
--
-- Answers: {ok, route_name, decisions: [{position, event_id, mode, generation, decision, reason, step,
-- result_id, error, attempted_at}], deliveries: [row of delivery_attempt]}; not_found.
create or replace function towpath.fn_route_attempts(p_route_name text, p_limit integer default 50) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 500);
    _route_no integer := (select r.route_no from towpath.outbound_route r where r.route_name = p_route_name);
begin
    if _route_no is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    end if;
    return jsonb_build_object('ok', true, 'route_name', p_route_name,
        'decisions', (select coalesce(jsonb_agg(to_jsonb(a) - 'worker_no' - 'route_no' - 'recipients' - 'suppressed'
                                 || jsonb_build_object('step', towpath._step_name(a.step))
                                 order by a.position desc, a.generation desc), '[]')
                        from (select n.* from (select x.* from towpath.route_attempt x
                                                order by x.position desc limit 20000) n
                               where n.route_no = _route_no
                               order by n.position desc, n.generation desc limit _limit) a),
        'deliveries', (select coalesce(jsonb_agg(to_jsonb(d) - 'route_no'
                                  || jsonb_build_object('route_name', p_route_name)
                                  order by d.delivery_id desc, d.attempt desc), '[]')
                         from (select n.* from (select x.* from towpath.delivery_attempt x
                                                 order by x.delivery_id desc limit 20000) n
                                where n.route_no = _route_no
                                order by n.delivery_id desc, n.attempt desc limit _limit) d));
end;
$$;

-- fn_route_circuit_close: forgets the failures of a webhook route's target, so that what waits is sent
-- immediately instead of after the circuit's wait. Routes to the same target share it.
--
-- Answers: {ok, route_name, target_key, old_circuit, changed}; invalid, not_found, conflict (not a webhook).
create or replace function towpath.fn_route_circuit_close(p_route_name text, p_actor text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _target towpath.delivery_target;
    _target_no integer;
    _known boolean;
    _refusal jsonb;
begin
    if coalesce(btrim(p_actor), '') = '' or coalesce(btrim(p_reason), '') = '' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'actor and reason must not be blank');
    end if;
    _refusal := coalesce(towpath._name_refusal(p_actor, 'actor'), towpath._note_refusal(p_reason, 'reason'));
    if _refusal is not null then
        return _refusal;
    end if;
    select r.target_no, true into _target_no, _known
      from towpath.outbound_route r where r.route_name = p_route_name and r.retired_at is null;
    if _known is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    end if;
    select * into _target from towpath.delivery_target t where t.target_no = _target_no for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route_name,
                                  'detail', 'only webhooks have a circuit');
    end if;
    if _target.circuit = 'closed' and _target.failures = 0 and _target.blocked_until <= towpath.fn_now() then
        return jsonb_build_object('ok', true, 'route_name', p_route_name, 'target_key', _target.target_key,
                                  'old_circuit', _target.circuit, 'changed', false);
    end if;
    update towpath.delivery_target t
       set circuit = 'closed', failures = 0, failing_since = null, opened_times = 0, blocked_until = '-infinity',
           last_error = null
     where t.target_no = _target.target_no;
    perform towpath._event_emit_own('route.circuit_closed', 'alert', 'delivery_target', _target.target_key,
        jsonb_build_object('failing_since', _target.failing_since, 'by', p_actor, 'reason', p_reason));
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'target_key', _target.target_key,
                              'old_circuit', _target.circuit, 'changed', true);
end;
$$;

grant execute on function towpath.fn_route_attempts(text, integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_route_circuit_close(text, text, text) to workflow_admin;
