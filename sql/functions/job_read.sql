-- Reading jobs: one job whole, its history, a page of many. None of it needs a gate.

-- fn_job_show: everything known about one job.
--
-- Answers: {ok, job: row of job_queue, runs: [...], dead_letter, parents, children, graph_id}; not_found.
create or replace function towpath.fn_job_show(p_job_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _job jsonb := (select to_jsonb(q) from towpath.job_queue q where q.job_id = p_job_id);
    _letter jsonb := (select to_jsonb(d) from towpath.job_dead_letter d where d.job_id = p_job_id);
begin
    if _job is null and _letter is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id);
    end if;
    return jsonb_build_object('ok', true, 'job', _job,
        'runs', (select coalesce(jsonb_agg(to_jsonb(r) order by r.attempt), '[]') from towpath._job_runs(p_job_id) r),
        'dead_letter', _letter,
        'replay_of', (select d.job_id from towpath.job_dead_letter d where d.replayed_job_id = p_job_id),
        'parents', (select coalesce(jsonb_agg(jsonb_build_object('job_id', e.parent_id, 'on_failure', e.on_failure,
                               'satisfied', e.satisfied) order by e.parent_id), '[]')
                      from towpath.job_edge e where e.child_id = p_job_id),
        'children', (select coalesce(jsonb_agg(jsonb_build_object('job_id', e.child_id, 'on_failure', e.on_failure,
                                'satisfied', e.satisfied) order by e.child_id), '[]')
                       from towpath.job_edge e where e.parent_id = p_job_id),
        'graph_id', (select n.graph_id from towpath.job_graph_node n where n.job_id = p_job_id limit 1));
end;
$$;

-- fn_job_history: what happened to a job, oldest first (Q20): enqueued, claimed, how each attempt
-- ended, moved, triaged, replayed, with who and when.
--
-- login is the one that named another actor than itself.
--
-- Answers: {ok, job_id, events: [{at, event, actor, login, attempt, detail}]}; not_found.
create or replace function towpath.fn_job_history(p_job_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _events jsonb;
begin
    with event as (
        select j.created_at as at, 0 as no, 'enqueued' as event, j.actor, j.login, null::integer as attempt,
               case when j.scheduled_at > j.created_at then format('due at %s', j.scheduled_at) end as detail
          from towpath.job j where j.job_id = p_job_id
        union all
        select d.replayed_at, 1, 'replay_of', d.replayed_by, null, null, format('replay of job %s', d.job_id)
          from towpath.job_dead_letter d where d.replayed_job_id = p_job_id
        union all
        select r.picked_at, r.attempt * 10, 'claimed', r.lease_owner, null, r.attempt, null
          from towpath._job_runs(p_job_id) r where r.picked_at is not null
        union all
        select r.finished_at, r.attempt * 10 + 1, r.outcome, coalesce(r.ended_by, r.lease_owner), null, r.attempt, r.error
          from towpath._job_runs(p_job_id) r
        union all
        select v.picked_at, v.attempts * 10, 'claimed', v.lease_owner, null, v.attempts, format('lease until %s', v.lease_until)
          from towpath._job_now_of(p_job_id) v where v.state in (1, 2)
        union all
        select v.progress_at, v.attempts * 10 + 1, 'progress', v.lease_owner, null, v.attempts,
               concat_ws(' ', v.progress_percent || ' %', v.progress_note)
          from towpath._job_now_of(p_job_id) v where v.progress_at is not null
        union all
        select d.triaged_at, 1000000001, 'triaged', d.triaged_by, null, null, concat_ws(': ', d.triage_status, d.triage_note)
          from towpath.job_dead_letter d where d.job_id = p_job_id and d.triaged_at is not null
        union all
        select d.replayed_at, 1000000002, 'replayed', d.replayed_by, null, null, format('as job %s', d.replayed_job_id)
          from towpath.job_dead_letter d where d.job_id = p_job_id and d.replayed_at is not null)
    select jsonb_agg(jsonb_build_object('at', e.at, 'event', e.event, 'actor', e.actor, 'login', e.login,
                                        'attempt', e.attempt, 'detail', e.detail) order by e.at, e.no)
      into _events from event e;
    if _events is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'events', _events);
end;
$$;

-- _job_unfinished_page: the ids of unfinished jobs below p_cursor, newest first: p_limit of them (jobs), if there are as
-- many, down to oldest. Rows are read in pieces of p_limit, and none below the piece that ends first counts.
create or replace function towpath._job_unfinished_page(
    p_cursor uuid, p_limit integer, out job_ids uuid[], out oldest uuid, out jobs integer)
    language plpgsql stable
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _low uuid := greatest(
        (select v.job_id from towpath.job_live v where v.job_id < p_cursor order by v.job_id desc offset p_limit - 1 limit 1),
        (select r.job_id from towpath.job_ready r where r.bundle and r.job_id < p_cursor
          order by r.job_id desc offset p_limit - 1 limit 1),
        '00000000-0000-0000-0000-000000000000');
    -- A bundle that begins below may reach into the piece.
    _reach uuid := towpath._uuid7_floor(greatest(towpath._uuid7_at(_low) - towpath._ready_ids_span(), '1970-01-01Z'));
begin
    job_ids := array(
        select i.job_id
          from (select v.job_id from towpath.job_live v where v.job_id < p_cursor and v.job_id >= _low
                union all
                select unnest(coalesce(r.job_ids, array[r.job_id])) from towpath.job_ready r
                 where r.bundle and r.job_id < p_cursor and r.job_id >= _reach
                union all
                select unnest(e.job_ids) from towpath.lease_entry e where e.bundle) i
         where i.job_id < p_cursor and i.job_id >= _low
         order by i.job_id desc limit p_limit);
    jobs := cardinality(job_ids);
    oldest := coalesce(job_ids[p_limit], _low);
    if _low <> '00000000-0000-0000-0000-000000000000' then
        jobs := p_limit;
    end if;
end;
$$;

-- fn_job_list: jobs by filter, newest first, a page at a time.
--
-- The filter takes state, job_kind, executor, event_domain, actor, run_id, idempotency_key,
-- lease_owner, created_after, created_before, payload (what payload_json must contain) and
-- error_contains (part of the last error, in any letter case). Jobs have no index but their
-- id, so a page looks for about a sixth of a second at most: if it ends early, cursor says where to
-- go on, and an empty page with a cursor is not the end. Filters on an unfinished state read
-- unfinished jobs only.
--
-- Answers: {ok, jobs: [row of job_queue], cursor, scanned}; invalid, unknown_key.
create or replace function towpath.fn_job_list(
    p_filter jsonb default '{}', p_limit integer default 50, p_cursor uuid default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 1000);
    _filter jsonb := coalesce(p_filter, '{}');
    _live_only boolean := coalesce(_filter ->> 'state' in ('queued', 'leased', 'in_progress', 'retry_waiting'), false)
                          or _filter ->> 'lease_owner' is not null;
    -- An attempt must have ended like this for the state, or with this for the error.
    _outcome text := case when _filter ->> 'state' in ('succeeded', 'dead_letter', 'cancelled') then _filter ->> 'state' end;
    _error text := lower(_filter ->> 'error_contains');
    _run_id uuid;
    _cursor uuid := coalesce(p_cursor, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    _until timestamptz := clock_timestamp() + interval '160 milliseconds';
    _chunk integer := 1000;
    _read integer;
    _oldest uuid;
    _ids uuid[];
    _page jsonb;
    _jobs jsonb := '[]';
    _scanned integer := 0;
    _done boolean := false;
    _unknown text;
    _refusal jsonb;
begin
    select k into _unknown from jsonb_object_keys(_filter) k
     where k not in ('state', 'job_kind', 'executor', 'event_domain', 'actor', 'run_id', 'idempotency_key',
                     'lease_owner', 'created_after', 'created_before', 'payload', 'error_contains') limit 1;
    if found then
        return jsonb_build_object('ok', false, 'error', 'unknown_key', 'key', _unknown);
    end if;
    _refusal := coalesce(towpath._moment_refusal((_filter ->> 'created_after')::timestamptz, 'created_after'),
                         towpath._moment_refusal((_filter ->> 'created_before')::timestamptz, 'created_before'));
    if _refusal is not null then
        return _refusal;
    end if;
    _run_id := (_filter ->> 'run_id')::uuid;
    if _filter ->> 'created_before' is not null then
        _cursor := least(_cursor::text,
            towpath._uuid7_floor((_filter ->> 'created_before')::timestamptz + interval '1 millisecond')::text)::uuid;
    end if;
    while not _done and jsonb_array_length(_jobs) < _limit and clock_timestamp() < _until loop
        -- What the wide row can tell is told first, on many rows at once; the view then joins few.
        select count(*), min(c.job_id::text)::uuid,
               coalesce(array_agg(c.job_id order by c.job_id desc) filter (
                   where (_filter ->> 'job_kind' is null or c.job_kind = _filter ->> 'job_kind')
                     and (_filter ->> 'executor' is null
                          or coalesce(c.executor, towpath._job_executor(c.job_kind)) = _filter ->> 'executor')
                     and (_filter ->> 'event_domain' is null or c.event_domain = _filter ->> 'event_domain')
                     and (_filter ->> 'actor' is null or c.actor = _filter ->> 'actor')
                     and (_run_id is null or c.run_id = _run_id)
                     and (_filter ->> 'idempotency_key' is null or coalesce(c.idempotency_key, c.job_id::text) = _filter ->> 'idempotency_key')
                     and (_filter -> 'payload' is null or c.payload_json @> (_filter -> 'payload'))
                     and (_filter ->> 'created_after' is null
                          or c.created_at >= (_filter ->> 'created_after')::timestamptz)
                     and (_filter ->> 'created_before' is null
                          or c.created_at < (_filter ->> 'created_before')::timestamptz)), '{}')
          into _read, _oldest, _ids
          from (select j.* from towpath.job j
                 where j.job_id < _cursor and not _live_only
                 order by j.job_id desc limit _chunk) c;
        if _live_only then
            select p.job_ids, p.oldest, p.jobs into _ids, _oldest, _read
              from towpath._job_unfinished_page(_cursor, _chunk) p;
        end if;
        exit when _read = 0;
        if _ids <> '{}' and (_outcome is not null or _error is not null) then
            _ids := array(select i from unnest(_ids) i
                          intersect
                          (select r.job_id from towpath.job_run r
                            where r.job_id >= _oldest and r.job_id < _cursor and r.job_ids is null
                              and (_outcome is null or r.outcome = _outcome)
                              and (_error is null or strpos(lower(r.error), _error) > 0)
                           union all
                           -- Successes, which have no error.
                           select unnest(r.job_ids) from towpath.job_run r
                            where r.job_ids is not null and _error is null and _outcome = 'succeeded'
                              and r.job_id >= _oldest and r.job_id <= towpath._run_reach(_cursor)
                              and r.job_ids[1] < _cursor));
        end if;
        if _ids <> '{}' then
            select coalesce(jsonb_agg(to_jsonb(q) order by q.job_id desc), '[]') into _page
              from (select q.* from towpath.job_queue q
                     where q.job_id = any(_ids)
                       and (_filter ->> 'state' is null or q.state = _filter ->> 'state')
                       and (_filter ->> 'lease_owner' is null or q.lease_owner = _filter ->> 'lease_owner')
                       and (_filter ->> 'error_contains' is null
                            or strpos(lower(q.last_error), _error) > 0)
                       and (not _live_only or (
                           (_filter ->> 'job_kind' is null or q.job_kind = _filter ->> 'job_kind')
                           and (_filter ->> 'executor' is null or q.executor = _filter ->> 'executor')
                           and (_filter ->> 'event_domain' is null or q.event_domain = _filter ->> 'event_domain')
                           and (_filter ->> 'actor' is null or q.actor = _filter ->> 'actor')
                           and (_run_id is null or q.run_id = _run_id)
                           and (_filter ->> 'idempotency_key' is null
                                or q.idempotency_key = _filter ->> 'idempotency_key')
                           and (_filter -> 'payload' is null or q.payload_json @> (_filter -> 'payload'))
                           and (_filter ->> 'created_after' is null
                                or q.created_at >= (_filter ->> 'created_after')::timestamptz)
                           and (_filter ->> 'created_before' is null
                                or q.created_at < (_filter ->> 'created_before')::timestamptz)))
                     order by q.job_id desc
                     limit _limit - jsonb_array_length(_jobs)) q;
            _jobs := _jobs || _page;
            if jsonb_array_length(_jobs) >= _limit then
                _cursor := (_jobs -> -1 ->> 'job_id')::uuid;
                exit;
            end if;
        end if;
        _scanned := _scanned + _read;
        _cursor := _oldest;
        _done := _read < _chunk
            or (_filter ->> 'created_after' is not null
                and towpath._uuid7_at(_cursor) < (_filter ->> 'created_after')::timestamptz - interval '1 second');
        -- Few of many match: read on in larger pieces.
        if cardinality(_ids) * 4 < _read then
            _chunk := least(_chunk * 2, 8000);
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'jobs', _jobs, 'scanned', _scanned,
        'cursor', case when not _done and coalesce(_read <> 0, true) then _cursor end);
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'filter', 'detail', sqlerrm);
end;
$$;

grant execute on function towpath.fn_job_show(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_history(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_list(jsonb, integer, uuid) to workflow_admin, towpath_observer;
