-- Enqueue many: a whole batch in one call and a few statements.

-- _job_input_lanes: the lanes of a batch with their floors; missing ones are made, in one order.
create or replace function towpath._job_input_lanes(p_rows towpath._job_input[])
    returns table (job_kind text, executor text, priority integer, event_domain text, lane integer,
                   floor_at timestamptz)
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
begin
    for job_kind, executor, priority, event_domain in
        select distinct r.job_kind, r.executor, r.priority, r.event_domain from unnest(p_rows) r order by 1, 2, 3, 4
    loop
        lane := towpath._job_lane(job_kind, executor, priority, event_domain);
        floor_at := (select f.floor_at from towpath.job_floor f where f.lane = _job_input_lanes.lane
                      order by f.floor_no desc limit 1);
        return next;
    end loop;
end;
$$;

-- _ready_jobs_max: how many jobs share a ready row at most. Fewer than a claim usually takes, so that what it puts back
-- is little; a multiple gains nothing more.
create or replace function towpath._ready_jobs_max() returns integer
    language sql immutable parallel safe
    return 16;

-- _job_enqueue_rows: the batch itself, without gate or authorisation, for callers inside the
-- database that have answered for both. Raises what the tables refuse. p_jobs is an array of
-- objects with the parameter names of fn_job_enqueue without p_, or with those of enqueue.
--
-- Ids count microseconds up from now, so they keep the order of the batch. Rows go in by
-- key hash, so that two overlapping batches cannot deadlock; a key that is taken is read
-- again in a new statement, because its winner may have committed after this one began. If
-- its holder has finished by then, a batch raises TPX02 and wants to be run again whole.
--
-- p_login is the login whose word the actors are, if they are somebody's; it is kept where it differs.
--
-- Returns ids and duplicate flags in the order of p_jobs.
create or replace function towpath._job_enqueue_rows(
    p_jobs jsonb, p_login text default null, out job_ids uuid[], out duplicates boolean[])
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_mergejoin = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _micros bigint := (date_part('epoch', _now) * 1000000)::bigint;
    _max integer := towpath._job_max_attempts_default();
    _tail bytea := substring(uuid_send(gen_random_uuid()) from 9);
    _rows towpath._job_input[];
    _seen record;
    _lanes integer[];
    _inserted uuid[];
    _missing uuid[];
    _row record;
    _holder uuid;
    _again record;
begin
    _rows := array(
        select row(towpath._uuid7(_micros + r.no, _tail), coalesce(r.job_kind, r.kind),
                   coalesce(r.executor, (select e.executor from towpath.job_kind_executor e
                                          where e.job_kind = coalesce(r.job_kind, r.kind)), 'PG_worker'),
                   coalesce(r.event_domain, r.domain), r.source_ref, r.target_ref, r.payload_ref,
                   coalesce(r.payload_json, r.payload, '{}'), coalesce(r.priority, 100),
                   coalesce(r.scheduled_at, r.run_at, _now), coalesce(r.max_attempts, _max),
                   coalesce(r.idempotency_key, r.key), coalesce(r.actor, session_user), r.run_id,
                   r.traceparent)::towpath._job_input
          from rows from (jsonb_to_recordset(p_jobs) as (
                   job_kind text, executor text, event_domain text, source_ref text, target_ref text,
                   payload_ref text, payload_json jsonb, priority integer, scheduled_at timestamptz,
                   max_attempts integer, idempotency_key text, actor text, run_id uuid, traceparent text,
                   kind text, payload jsonb, run_at timestamptz, key text, domain text))
               with ordinality as r(job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
                   payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, traceparent,
                   kind, payload, run_at, key, domain, no));
    job_ids := array(select r.job_id from unnest(_rows) r);
    duplicates := array_fill(false, array[cardinality(job_ids)]);

    select bool_or(r.idempotency_key is not null) as keys,
           bool_and(towpath._ref_fits(concat(r.source_ref, r.target_ref, r.payload_ref))
                    or (coalesce(towpath._ref_fits(r.source_ref), true) and coalesce(towpath._ref_fits(r.target_ref), true)
                        and coalesce(towpath._ref_fits(r.payload_ref), true))) as refs_fit
      into _seen from unnest(_rows) r;
    if not _seen.refs_fit then
        raise exception 'a reference has more than 2000 bytes, or control characters' using errcode = 'check_violation';
    end if;
    -- Twice the same, because "on conflict" costs every row an extra record and a check.
    if _seen.keys then
        with lane as materialized (
            select * from towpath._job_input_lanes(_rows)),
        live as (
            insert into towpath.job_live (job_id, key_hash, due_at, lane, max_attempts)
            select r.job_id, towpath._key_hash(r.idempotency_key) as key_hash,
                   greatest(r.scheduled_at, l.floor_at), l.lane, r.max_attempts
              from unnest(_rows) r
              join lane l on l.job_kind = r.job_kind and l.executor = r.executor and l.priority = r.priority
                         and l.event_domain is not distinct from r.event_domain
             order by key_hash, r.job_id
            on conflict (key_hash) where key_hash is not null do nothing
            returning job_id, due_at, lane),
        ready as (
            insert into towpath.job_ready (lane, due_at, job_id, job_ids, attempts, refunded, moved)
            select g.lane, g.due_at, g.job_ids[1], case when cardinality(g.job_ids) > 1 then g.job_ids end, 0, 0,
                   case when g.due_at <= (select max(l.floor_at) from lane l) then true end
              from (select v.lane, v.due_at, array_agg(v.job_id) as job_ids
                      from (select v.*, (row_number() over (partition by v.lane, v.due_at order by v.job_id) - 1)
                                       / towpath._ready_jobs_max() as part
                              from live v) v
                     group by v.lane, v.due_at, v.part) g)
        select coalesce(array_agg(v.job_id), '{}'), array_agg(distinct v.lane) filter (where v.due_at <= _now)
          into _inserted, _lanes from live v;
    else
        with lane as materialized (
            select * from towpath._job_input_lanes(_rows)),
        live as (
            insert into towpath.job_live (job_id, due_at, lane, max_attempts)
            select r.job_id, greatest(r.scheduled_at, l.floor_at), l.lane, r.max_attempts
              from unnest(_rows) r
              join lane l on l.job_kind = r.job_kind and l.executor = r.executor and l.priority = r.priority
                         and l.event_domain is not distinct from r.event_domain
             order by r.job_id
            returning job_id, due_at, lane),
        ready as (
            insert into towpath.job_ready (lane, due_at, job_id, job_ids, attempts, refunded, moved)
            select g.lane, g.due_at, g.job_ids[1], case when cardinality(g.job_ids) > 1 then g.job_ids end, 0, 0,
                   case when g.due_at <= (select max(l.floor_at) from lane l) then true end
              from (select v.lane, v.due_at, array_agg(v.job_id) as job_ids
                      from (select v.*, (row_number() over (partition by v.lane, v.due_at order by v.job_id) - 1)
                                       / towpath._ready_jobs_max() as part
                              from live v) v
                     group by v.lane, v.due_at, v.part) g)
        select coalesce(array_agg(v.job_id), '{}'), array_agg(distinct v.lane) filter (where v.due_at <= _now)
          into _inserted, _lanes from live v;
    end if;

    _missing := case when cardinality(_inserted) < cardinality(job_ids)
        then array(select unnest(job_ids) except select unnest(_inserted)) else '{}' end;
    insert into towpath.job (job_id, job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
        payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, created_at, traceparent,
        login)
    select r.job_id, r.job_kind, r.executor, r.event_domain, r.source_ref, r.target_ref, r.payload_ref,
           r.payload_json, r.priority, r.scheduled_at, r.max_attempts,
           coalesce(r.idempotency_key, r.job_id::text), r.actor, r.run_id, _now, towpath._traceparent(r.traceparent),
           nullif(p_login, r.actor)
      from unnest(_rows) r
     -- "not in" becomes a hash of the few; a join would be planned for one row and nest loops.
     where _missing = '{}' or r.job_id not in (select unnest(_missing));

    if _missing <> '{}' then
        for _row in
            select r.no, r.job_id, towpath._key_hash(r.idempotency_key) as key_hash
              from unnest(_rows) with ordinality as r(job_id, job_kind, executor, event_domain, source_ref,
                   target_ref, payload_ref, payload_json, priority, scheduled_at, max_attempts, idempotency_key,
                   actor, run_id, traceparent, no)
             where r.job_id = any(_missing)
             order by 3, 2
        loop
            select v.job_id into _holder from towpath.job_live v where v.key_hash = _row.key_hash;
            if found then
                job_ids[_row.no] := _holder;
                duplicates[_row.no] := true;
            elsif cardinality(job_ids) > 1 then
                -- The holder finished in between, so the key is free; but taking it now, after
                -- keys that come later in the order, could deadlock.
                raise exception 'key freed' using errcode = 'TPX02';
            else
                select * into _again
                  from towpath._job_enqueue_rows(jsonb_build_array(p_jobs -> (_row.no - 1)::integer), p_login) e;
                job_ids[_row.no] := _again.job_ids[1];
                duplicates[_row.no] := _again.duplicates[1];
            end if;
        end loop;
    end if;
    if _lanes is not null then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

-- _job_enqueue_object: fn_job_enqueue for one object of a batch; what cannot be read is invalid. Its
-- traceparent is the setting's for as long as that takes.
create or replace function towpath._job_enqueue_object(p_job jsonb) returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _trace text := current_setting('towpath.traceparent', true);
    _answer jsonb;
begin
    if jsonb_typeof(p_job) is distinct from 'object' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'a job is a json object');
    end if;
    if p_job ? 'traceparent' then
        perform set_config('towpath.traceparent', p_job ->> 'traceparent', true);
    end if;
    select towpath.fn_job_enqueue(coalesce(r.job_kind, r.kind), r.source_ref, r.target_ref, r.payload_ref,
               coalesce(r.payload_json, r.payload), r.priority, coalesce(r.scheduled_at, r.run_at), r.max_attempts,
               coalesce(r.idempotency_key, r.key), r.actor, r.run_id, r.executor, coalesce(r.event_domain, r.domain))
      into _answer
      from jsonb_to_record(p_job) as r(
           job_kind text, executor text, event_domain text, source_ref text, target_ref text, payload_ref text,
           payload_json jsonb, priority integer, scheduled_at timestamptz, max_attempts integer,
           idempotency_key text, actor text, run_id uuid,
           kind text, payload jsonb, run_at timestamptz, key text, domain text);
    if p_job ? 'traceparent' then
        perform set_config('towpath.traceparent', coalesce(_trace, ''), true);
    end if;
    return _answer;
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
end;
$$;

-- fn_job_enqueue_many: the rules of fn_job_enqueue for every row of a batch (Q05), in an array of objects
-- with its parameter names without p_. The names of towpath.enqueue are understood too.
--
-- The batch is tried as a whole. If any row is refused, the whole is taken back and every
-- row tried by itself, so that good rows get in and each bad one hears why: slower, and
-- rare. At most 10,000 rows.
--
-- Answers: {ok, jobs: [answer of fn_job_enqueue per row], enqueued, duplicates, refused};
-- gate_closed, invalid.
create or replace function towpath.fn_job_enqueue_many(p_jobs jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _done record;
    _answers jsonb;
    _try integer := 1;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) > 10000 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'jobs',
                                  'detail', 'must be an array of at most 10000 jobs');
    end if;
    while _try <= 100 loop
        begin
            if not pg_has_role(session_user, 'workflow_admin', 'member') and exists (
                   select 1 from (select distinct coalesce(r.job_kind, r.kind) as job_kind, r.executor
                                    from jsonb_to_recordset(p_jobs) as r(job_kind text, kind text, executor text)) r
                    where not towpath._producer_may(r.job_kind,
                                                    coalesce(r.executor, towpath._job_executor(r.job_kind)))) then
                exit; -- row by row
            end if;
            select * into _done from towpath._job_enqueue_rows(p_jobs, session_user);
            select jsonb_agg(jsonb_build_object('ok', true, 'job_id', d.job_id, 'duplicate', d.duplicate)) into _answers
              from unnest(_done.job_ids, _done.duplicates) as d(job_id, duplicate);
            return jsonb_build_object('ok', true, 'jobs', coalesce(_answers, '[]'),
                'enqueued', cardinality(array_positions(_done.duplicates, false)),
                'duplicates', cardinality(array_positions(_done.duplicates, true)), 'refused', 0);
        exception
            when sqlstate 'TPX02' then
                _try := _try + 1;
            when check_violation or not_null_violation or data_exception then
                exit; -- row by row
        end;
    end loop;
    select jsonb_agg(a.answer order by a.no) into _answers
      from (select j.no, towpath._job_enqueue_object(j.job) as answer
              from (select j.no, j.job from jsonb_array_elements(p_jobs) with ordinality as j(job, no)
                     order by towpath._key_hash(coalesce(j.job ->> 'idempotency_key', j.job ->> 'key')), j.no offset 0) j
            offset 0) a;
    return jsonb_build_object('ok', true, 'jobs', _answers,
        'enqueued', (select count(*) from jsonb_array_elements(_answers) a where a -> 'duplicate' = 'false'),
        'duplicates', (select count(*) from jsonb_array_elements(_answers) a where a -> 'duplicate' = 'true'),
        'refused', (select count(*) from jsonb_array_elements(_answers) a where a -> 'ok' = 'false'));
end;
$$;

grant execute on function towpath.fn_job_enqueue_many(jsonb) to towpath_producer, workflow_admin;
