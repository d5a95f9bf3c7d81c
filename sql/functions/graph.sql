-- Graphs: jobs that wait for jobs. MOT emits them and never executes (Q18).

-- _job_parents_succeeded: the children of these jobs wait for one parent less; those that
-- wait for none any more become ready now.
create or replace function towpath._job_parents_succeeded(p_parents uuid[], p_now timestamptz) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _child record;
    _live towpath.job_live;
    _lanes integer[] := '{}';
begin
    for _child in
        with met as (
            update towpath.job_edge e set satisfied = true
             where e.parent_id = any(p_parents) and not e.satisfied
            returning e.child_id)
        select m.child_id, count(*)::integer as n from met m group by m.child_id order by m.child_id
    loop
        update towpath.job_live v
           set blocked = v.blocked - _child.n,
               due_at = case when v.blocked = _child.n then greatest(v.due_at, p_now) else v.due_at end
         where v.job_id = _child.child_id
        returning * into _live;
        if found and _live.blocked = 0 then
            insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
            values (_live.lane, _live.due_at, _live.job_id, _live.attempts, _live.refunded, false);
            _lanes := _lanes || _live.lane;
        end if;
    end loop;
    if _lanes <> '{}' then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

-- _job_parents_failed: children that the edge wants cancelled are cancelled, and so are
-- theirs, level by level; the others stay blocked until the parent is replayed.
create or replace function towpath._job_parents_failed(p_parents uuid[], p_now timestamptz) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _parents uuid[] := p_parents;
    _children uuid[];
begin
    while _parents <> '{}' loop
        _children := array(
            select distinct e.child_id from towpath.job_edge e
             where e.parent_id = any(_parents) and e.on_failure = 'cancel' and not e.satisfied
             order by e.child_id);
        _children := array(select v.job_id from towpath.job_live v
                            where v.job_id = any(_children) and v.blocked > 0 order by v.job_id for update);
        exit when _children = '{}';
        perform towpath._job_close(_children, 'cancelled', array['a job it depends on did not succeed'], 'graph', p_now);
        _parents := _children;
    end loop;
end;
$$;

-- _graph_refusal: what is wrong with a graph, or null. Nodes are peeled off in topological
-- order; whatever cannot be peeled is on a cycle or behind one.
create or replace function towpath._graph_refusal(p_graph jsonb, out refusal jsonb, out sorted text[])
    language plpgsql immutable
as $$
declare
    _nodes text[];
    _from text[];
    _to text[];
    _left text[];
    _free text[];
    _bad text;
begin
    sorted := '{}';
    if jsonb_typeof(p_graph) is distinct from 'object' or jsonb_typeof(p_graph -> 'nodes') is distinct from 'array'
       or jsonb_typeof(coalesce(p_graph -> 'edges', '[]')) <> 'array' then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'graph',
            'detail', 'a graph must be {name, nodes: [{node, job_kind, ...}], edges: [{from, to, on_failure}]}');
        return;
    end if;
    if jsonb_array_length(p_graph -> 'nodes') not between 1 and 1000
       or jsonb_array_length(coalesce(p_graph -> 'edges', '[]')) > 10000 then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'graph',
            'detail', 'a graph must have 1 to 1000 nodes and at most 10000 edges');
        return;
    end if;
    if p_graph ->> 'run_id' !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'run_id', 'detail', 'must be a uuid');
        return;
    end if;
    refusal := coalesce(towpath._name_or_null_refusal(p_graph ->> 'name', 'name'),
                        towpath._name_or_null_refusal(p_graph ->> 'actor', 'actor'),
                        towpath._key_refusal(p_graph ->> 'idempotency_key', 'idempotency_key'));
    if refusal is not null then
        return;
    end if;
    _nodes := array(select n ->> 'node' from jsonb_array_elements(p_graph -> 'nodes') n);
    select n into _bad from unnest(_nodes) n group by n having count(*) > 1 or coalesce(btrim(n), '') = '' limit 1;
    if found then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'nodes',
            'detail', format('node names must be unique and non-blank, %s is not', coalesce(to_jsonb(_bad)::text, 'null')));
        return;
    end if;
    select towpath._name_refusal(n, 'node') into refusal from unnest(_nodes) n where not towpath._name_fits(n) limit 1;
    if found then
        return;
    end if;
    _from := array(select e ->> 'from' from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e);
    _to := array(select e ->> 'to' from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e);
    select x into _bad from unnest(_from || _to) x where x is null or x not in (select unnest(_nodes)) limit 1;
    if found then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'edges',
            'detail', format('unknown node %s', coalesce(to_jsonb(_bad)::text, 'null')));
        return;
    end if;
    if exists (select 1 from unnest(_from, _to) as e(f, t) group by f, t having count(*) > 1) then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'edges',
            'detail', 'the same edge occurs twice');
        return;
    end if;
    select e ->> 'on_failure' into _bad from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e
     where coalesce(e ->> 'on_failure', 'cancel') not in ('cancel', 'hold') limit 1;
    if found then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'edges',
            'detail', format('on_failure must be cancel or hold, not %s', to_jsonb(_bad)));
        return;
    end if;
    _left := _nodes;
    loop
        -- "not in" is a hash here; the edges of what has been peeled off go with it.
        _free := array(select u.n from unnest(_left) with ordinality as u(n, no)
                        where u.n not in (select unnest(_to)) order by u.no);
        exit when _free = '{}';
        sorted := sorted || _free;
        _left := array(select u.n from unnest(_left) with ordinality as u(n, no)
                        where u.n not in (select unnest(_free)) order by u.no);
        select coalesce(array_agg(e.f), '{}'), coalesce(array_agg(e.t), '{}') into _from, _to
          from unnest(_from, _to) as e(f, t) where e.f not in (select unnest(_free));
    end loop;
    if cardinality(sorted) < cardinality(_nodes) then
        refusal := jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'edges',
            'detail', 'the graph has a cycle',
            'nodes', to_jsonb(_left));
    end if;
end;
$$;

-- fn_mot_graph_emit: a whole graph of jobs, or nothing (Q18).
--
-- graph: {name, actor, run_id, idempotency_key, nodes: [{node, job_kind, executor, ...}],
-- edges: [{from, to, on_failure: cancel | hold}]}. A node takes the fields of
-- fn_job_enqueue_many; actor and run_id of the graph are the default. A node runs once all
-- nodes with an edge to it have succeeded. The ids follow the topological order, so that
-- parents are always locked before children.
--
-- A graph whose idempotency_key was emitted before is not emitted again. A node whose own
-- key belongs to an unfinished job is a conflict, because that job has other edges.
--
-- Answers: {ok, graph_id, duplicate, jobs: {node: job_id}}; gate_closed, not_authorised, conflict,
-- invalid {field, detail, node}.
create or replace function towpath.fn_mot_graph_emit(p_graph jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _micros bigint := (date_part('epoch', _now) * 1000000)::bigint;
    _graph_id uuid;
    _sorted text[];
    _from text[];
    _to text[];
    _actor text := coalesce(p_graph ->> 'actor', session_user);
    _node jsonb;
    _no integer := 0;
    _answer jsonb;
    _ids jsonb := '{}';
    _lanes integer[] := '{}';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select g.refusal, g.sorted into _refusal, _sorted from towpath._graph_refusal(p_graph) g;
    if _refusal is not null then
        return _refusal;
    end if;
    _graph_id := towpath._uuid7(_micros);
    _from := array(select e ->> 'from' from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e);
    _to := array(select e ->> 'to' from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e);
    begin
        insert into towpath.job_graph (graph_id, name, idempotency_key, actor, created_at)
        values (_graph_id, coalesce(p_graph ->> 'name', 'graph'), p_graph ->> 'idempotency_key', _actor, _now)
        on conflict (idempotency_key) do nothing;
        if not found then
            select jsonb_build_object('ok', true, 'graph_id', g.graph_id, 'duplicate', true, 'jobs',
                       (select jsonb_object_agg(n.node, n.job_id) from towpath.job_graph_node n
                         where n.graph_id = g.graph_id))
              into _answer from towpath.job_graph g where g.idempotency_key = p_graph ->> 'idempotency_key';
            return _answer;
        end if;
        for _node in
            select n.node from jsonb_array_elements(p_graph -> 'nodes') as n(node)
             order by array_position(_sorted, n.node ->> 'node')
        loop
            _no := _no + 1;
            _answer := towpath._graph_node(_node, cardinality(array_positions(_to, _node ->> 'node')),
                array_position(_from, _node ->> 'node') is not null, _actor, (p_graph ->> 'run_id')::uuid,
                _now, _micros + _no);
            -- Everything or nothing: leave the block, take the inserts back, keep the answer.
            if not (_answer ->> 'ok')::boolean then
                raise exception using errcode = 'TPX01';
            end if;
            _ids := _ids || jsonb_build_object(_node ->> 'node', _answer ->> 'job_id');
            if (_answer ->> 'ready')::boolean then
                _lanes := _lanes || (_answer ->> 'lane')::integer;
            end if;
        end loop;
        insert into towpath.job_graph_node (graph_id, node, job_id)
        select _graph_id, i.key, i.value::uuid from jsonb_each_text(_ids) i;
        insert into towpath.job_edge (parent_id, child_id, on_failure)
        select (_ids ->> (e ->> 'from'))::uuid, (_ids ->> (e ->> 'to'))::uuid, coalesce(e ->> 'on_failure', 'cancel')
          from jsonb_array_elements(coalesce(p_graph -> 'edges', '[]')) e;
    exception when sqlstate 'TPX01' then
        return _answer || jsonb_build_object('node', _node ->> 'node');
    end;
    perform towpath._job_wake(_lanes);
    return jsonb_build_object('ok', true, 'graph_id', _graph_id, 'duplicate', false, 'jobs', _ids);
end;
$$;

-- _graph_node: one node's job, blocked by as many parents as it has edges.
create or replace function towpath._graph_node(
    p_node jsonb, p_blocked integer, p_parent boolean, p_actor text, p_run_id uuid, p_now timestamptz,
    p_micros bigint) returns jsonb
    language plpgsql
as $$
declare
    _job towpath._job_input;
    _refusal jsonb;
    _job_id uuid := towpath._uuid7(p_micros);
    _lane integer;
    _due timestamptz;
begin
    begin
        _job := towpath._job_read(jsonb_build_object('actor', p_actor, 'run_id', p_run_id, 'scheduled_at', p_now)
                                  || jsonb_strip_nulls(p_node - 'payload_json')
                                  || jsonb_build_object('payload_json', p_node -> 'payload_json'));
    exception when data_exception then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
    end;
    _refusal := towpath._job_refusal(_job);
    if _refusal is not null then
        return _refusal;
    end if;
    if not towpath._producer_may(_job.job_kind, coalesce(_job.executor, 'PG_worker')) then
        return towpath._producer_refusal(_job.job_kind, coalesce(_job.executor, 'PG_worker'));
    end if;
    _lane := towpath._job_lane(_job.job_kind, _job.executor, _job.priority, _job.event_domain);
    _due := greatest(_job.scheduled_at, (select f.floor_at from towpath.job_floor f where f.lane = _lane
                                          order by f.floor_no desc limit 1));
    insert into towpath.job_live (job_id, key_hash, due_at, lane, max_attempts, blocked, has_children)
    values (_job_id, towpath._key_hash(_job.idempotency_key), _due, _lane, _job.max_attempts,
            p_blocked, p_parent)
    on conflict (key_hash) where key_hash is not null do nothing;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'conflict',
            'detail', format('an unfinished job has the key %s', _job.idempotency_key));
    end if;
    if p_blocked = 0 then
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
        values (_lane, _due, _job_id, 0, 0, false);
    end if;
    insert into towpath.job (job_id, job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
        payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, created_at, login)
    values (_job_id, _job.job_kind, _job.executor, _job.event_domain, _job.source_ref, _job.target_ref,
        _job.payload_ref, _job.payload_json, _job.priority, _job.scheduled_at, _job.max_attempts,
        _job.idempotency_key, _job.actor, _job.run_id, p_now,
        nullif(session_user::text, _job.actor));
    return jsonb_build_object('ok', true, 'job_id', _job_id, 'lane', _lane, 'ready', p_blocked = 0 and _due <= p_now);
end;
$$;

-- fn_mot_graph_show: a graph with its nodes' states and its edges.
--
-- Answers: {ok, graph_id, name, actor, created_at, nodes: [...], edges: [...]}; not_found.
create or replace function towpath.fn_mot_graph_show(p_graph_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb;
begin
    select jsonb_build_object('ok', true, 'graph_id', g.graph_id, 'name', g.name, 'actor', g.actor,
               'created_at', g.created_at, 'nodes',
               (select jsonb_agg(jsonb_build_object('node', n.node, 'job_id', n.job_id,
                           'job_kind', q.job_kind, 'state', coalesce(q.state, 'cleaned')) order by n.job_id)
                  from towpath.job_graph_node n left join towpath.job_queue q on q.job_id = n.job_id
                 where n.graph_id = g.graph_id),
               'edges',
               (select coalesce(jsonb_agg(jsonb_build_object('from', e.parent_id, 'to', e.child_id,
                           'on_failure', e.on_failure, 'satisfied', e.satisfied) order by e.parent_id, e.child_id), '[]')
                  from towpath.job_graph_node n join towpath.job_edge e on e.child_id = n.job_id
                 where n.graph_id = g.graph_id))
      into _answer
      from towpath.job_graph g where g.graph_id = p_graph_id;
    return coalesce(_answer, jsonb_build_object('ok', false, 'error', 'not_found', 'graph_id', p_graph_id));
end;
$$;

grant execute on function towpath.fn_mot_graph_emit(jsonb) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_mot_graph_show(uuid) to towpath_observer, workflow_admin;
