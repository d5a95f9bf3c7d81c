-- Route dead letters: what failed, with the whole event, until an operator resolves it.

-- fn_route_dead_letter_replay: a dead letter again, from its snapshot, as the route is now (E06).
-- It is resolved if the route takes it, and stays open with the new error if not. A dry run
-- delivers nothing, so it resolves only what failed in a dry run (E07).
--
-- Answers: {ok, dead_letter_id, decision, generation, resolved, detail}; gate_closed, invalid,
-- not_found, conflict (already resolved, or the route is off).
create or replace function towpath.fn_route_dead_letter_replay(p_dead_letter_id uuid, p_actor text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _letter towpath.route_dead_letter;
    _route towpath.outbound_route;
    _refusal jsonb;
    _done record;
    _resolved boolean;
begin
    select * into _letter from towpath.route_dead_letter d where d.dead_letter_id = p_dead_letter_id for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id);
    end if;
    select * into _route from towpath.outbound_route r where r.route_no = _letter.route_no;
    _refusal := towpath._route_replay_refusal(_route, p_actor);
    if _refusal is null and _letter.resolved_at is not null then
        _refusal := jsonb_build_object('ok', false, 'error', 'conflict', 'dead_letter_id', p_dead_letter_id,
                                       'state', _letter.resolution, 'detail', 'already resolved');
    end if;
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _done from towpath._route_replay_one(_route, _letter.event_snapshot, _letter.recipients, _now);
    _resolved := _done.decision = 'sent' or (_done.decision = 'dry_run' and _letter.mode = 'dry_run');
    update towpath.route_dead_letter d
       set replays = d.replays + 1,
           error = coalesce(_done.error, d.error),
           resolved_at = case when _resolved then _now end,
           resolved_by = case when _resolved then p_actor end,
           resolution = case when _resolved then 'replayed_' || _done.decision end
     where d.dead_letter_id = p_dead_letter_id;
    return jsonb_build_object('ok', true, 'dead_letter_id', p_dead_letter_id, 'decision', _done.decision,
        'generation', _done.generation, 'resolved', _resolved, 'detail', _done.error);
end;
$$;

-- fn_route_dead_letter_replay_many: replays open dead letters, of one route or of all, oldest first,
-- at most p_limit (1,000). A dry run leaves a live dead letter open.
--
-- Answers: {ok, replayed: [dead_letter_id], dry_run: [dead_letter_id], failed: [dead_letter_id],
-- refused: [answer]}; gate_closed, invalid.
create or replace function towpath.fn_route_dead_letter_replay_many(
    p_actor text, p_route_name text default null, p_limit integer default 100) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('event.routing.enabled');
    _id uuid;
    _answer jsonb;
    _replayed jsonb := '[]';
    _dry_run jsonb := '[]';
    _failed jsonb := '[]';
    _refused jsonb := '[]';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    for _id in
        select d.dead_letter_id from towpath.route_dead_letter d
         where d.resolved_at is null and (p_route_name is null or d.route_name = p_route_name)
         order by d.position limit least(greatest(coalesce(p_limit, 100), 1), 1000)
    loop
        _answer := towpath.fn_route_dead_letter_replay(_id, p_actor);
        if not (_answer ->> 'ok')::boolean then
            _refused := _refused || jsonb_build_array(_answer || jsonb_build_object('dead_letter_id', _id));
        elsif (_answer ->> 'resolved')::boolean then
            _replayed := _replayed || to_jsonb(_id);
        elsif _answer ->> 'decision' = 'dry_run' then
            _dry_run := _dry_run || to_jsonb(_id);
        else
            _failed := _failed || to_jsonb(_id);
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'replayed', _replayed, 'dry_run', _dry_run, 'failed', _failed, 'refused', _refused);
end;
$$;

-- fn_route_dead_letter_resolve: closes a dead letter without a replay, with the reason.
--
-- Answers: {ok, dead_letter_id}; invalid, not_found, conflict (already resolved).
create or replace function towpath.fn_route_dead_letter_resolve(
    p_dead_letter_id uuid, p_actor text, p_resolution text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_actor, 'actor'),
        case when coalesce(btrim(p_resolution), '') = '' then towpath._invalid('resolution', 'must not be blank') end,
        towpath._note_refusal(p_resolution, 'resolution'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    update towpath.route_dead_letter d
       set resolved_at = towpath.fn_now(), resolved_by = p_actor, resolution = p_resolution
     where d.dead_letter_id = p_dead_letter_id and d.resolved_at is null;
    if found then
        return jsonb_build_object('ok', true, 'dead_letter_id', p_dead_letter_id);
    end if;
    if exists (select 1 from towpath.route_dead_letter d where d.dead_letter_id = p_dead_letter_id) then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'dead_letter_id', p_dead_letter_id,
                                  'detail', 'already resolved');
    end if;
    return jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id);
end;
$$;

-- fn_route_dead_letter_list: dead letters, open ones unless asked otherwise, oldest first, a page at a time.
--
-- Answers: {ok, dead_letters: [...], cursor}.
create or replace function towpath.fn_route_dead_letter_list(
    p_route_name text default null, p_resolved boolean default false, p_limit integer default 100,
    p_cursor uuid default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'dead_letters', coalesce(jsonb_agg(to_jsonb(d) - 'worker_no' - 'route_no'
               order by d.dead_letter_id), '[]'),
               'cursor', case when count(*) = least(greatest(coalesce(p_limit, 100), 1), 1000)
                              then (array_agg(d.dead_letter_id order by d.dead_letter_id desc))[1] end)
      from (select * from towpath.route_dead_letter d
             where (p_route_name is null or d.route_name = p_route_name)
               and (d.resolved_at is not null) = coalesce(p_resolved, false)
               and (p_cursor is null or d.dead_letter_id > p_cursor)
             order by d.dead_letter_id
             limit least(greatest(coalesce(p_limit, 100), 1), 1000)) d
$$;

-- fn_route_dead_letter_show: one dead letter whole, resolved or not.
--
-- Answers: {ok, dead_letter}; not_found.
create or replace function towpath.fn_route_dead_letter_show(p_dead_letter_id uuid) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        (select jsonb_build_object('ok', true, 'dead_letter', to_jsonb(d) - 'worker_no' - 'route_no')
           from towpath.route_dead_letter d where d.dead_letter_id = p_dead_letter_id),
        jsonb_build_object('ok', false, 'error', 'not_found', 'dead_letter_id', p_dead_letter_id))
$$;

grant execute on function towpath.fn_route_dead_letter_show(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_route_dead_letter_replay(uuid, text) to workflow_admin;
grant execute on function towpath.fn_route_dead_letter_replay_many(text, text, integer) to workflow_admin;
grant execute on function towpath.fn_route_dead_letter_resolve(uuid, text, text) to workflow_admin;
grant execute on function towpath.fn_route_dead_letter_list(text, boolean, integer, uuid)
    to workflow_admin, towpath_observer;
