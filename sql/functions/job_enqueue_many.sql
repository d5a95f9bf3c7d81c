-- Enqueue many: a whole batch in one call and one statement.

-- _job_enqueue_rows: the batch itself, without gate or authorisation, for callers inside the
-- database that have answered for both. p_jobs is an array of objects with the parameter names of
-- fn_job_enqueue without p_, or with those of enqueue. Raises what the tables refuse.
--
-- Ids count microseconds up from now, so they keep the order of the batch. Keys go in by their
-- hash, so that two overlapping batches cannot deadlock; a key that is taken is read
-- again in a new statement, because its winner may have committed after this one began. If
-- its holder has finished by then, a batch raises TPX02 and wants to be run again whole.
-- Jobs without a key are not set apart: they go into bundles.
--
-- p_login is the login that named the actors, null if Towpath did; it is stored where it differs.
--
-- Returns ids and duplicate flags in the order of p_jobs.
create or replace function towpath._job_enqueue_rows(
    p_jobs jsonb, p_login text default null, out job_ids uuid[], out duplicates boolean[])
    language plpgsql
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
    -- Of the column's own type, so that it is checked once and not for every job; as in the lanes below.
    _actor towpath.label := session_user;
    _traceparent text := towpath._traceparent();
    _seen record;
    _no integer;
    _holder uuid;
begin
    with input as materialized (
        select r.no, towpath._uuid7(_micros + r.no, _tail) as job_id, coalesce(r.job_kind, r.kind) as job_kind, r.executor,
               coalesce(r.event_domain, r.domain) as event_domain, r.source_ref, r.target_ref, r.payload_ref,
               coalesce(r.payload_json, r.payload, '{}') as payload_json, coalesce(r.priority, 100) as priority,
               coalesce(r.scheduled_at, r.run_at, _now) as scheduled_at, coalesce(r.max_attempts, _max) as max_attempts,
               coalesce(r.idempotency_key, r.key) as idempotency_key, r.actor, r.run_id, r.traceparent
          from rows from (jsonb_to_recordset(p_jobs) as (
                   job_kind text, executor text, event_domain text, source_ref text, target_ref text,
                   payload_ref text, payload_json jsonb, priority integer, scheduled_at timestamptz,
                   max_attempts integer, idempotency_key text, actor text, run_id uuid, traceparent text,
                   kind text, payload jsonb, run_at timestamptz, key text, domain text))
               with ordinality as r(job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
                   payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, traceparent,
                   kind, payload, run_at, key, domain, no)),
    -- Lanes that are missing are made, in one order.
    lane as materialized (
        select l.job_kind, l.executor, l.priority, l.event_domain, l.lane, l.job_kind::towpath.label as its_kind, l.its_executor::towpath.executor_kind as its_executor,
               l.priority::towpath.priority as its_priority,
               (select f.floor_at from towpath.job_floor f where f.lane = l.lane
                 order by f.floor_no desc limit 1) as floor_at
          from (select i.*, towpath._job_lane(i.job_kind, i.its_executor, i.priority, i.event_domain) as lane
                  from (select i.*, coalesce(i.executor, (select e.executor from towpath.job_kind_executor e
                                                           where e.job_kind = i.job_kind)) as its_executor
                          from (select distinct i.job_kind, i.executor, i.priority, i.event_domain from input i
                                 order by 1, 2, 3, 4) i offset 0) i offset 0) l),
    job as materialized (
        select i.*, l.its_kind, l.its_executor, l.its_priority, l.lane, greatest(i.scheduled_at, l.floor_at) as due_at
          from input i
          join lane l on l.job_kind = i.job_kind and l.priority = i.priority and l.executor is not distinct from i.executor
                     and l.event_domain is not distinct from i.event_domain),
    keyed as (
        insert into towpath.job_live (job_id, key_hash, due_at, lane, max_attempts)
        select j.job_id, towpath._key_hash(j.idempotency_key) as key_hash, j.due_at, j.lane, j.max_attempts
          from job j where j.idempotency_key is not null order by key_hash, j.job_id
        on conflict (key_hash) where key_hash is not null do nothing
        returning job_id, due_at, lane),
    place as materialized (
        select j.lane, j.due_at, array_agg(j.job_id order by j.job_id) as job_ids
          from job j where j.idempotency_key is null group by j.lane, j.due_at),
    ready as (
        insert into towpath.job_ready (lane, due_at, job_id, job_ids, attempts, refunded, bundle)
        select p.lane, p.due_at, p.job_ids[1], case when cardinality(p.job_ids) > 1 then p.job_ids end, 0, 0, true
          from (select p.lane, p.due_at, p.job_ids[n : n + towpath._ready_jobs_max() - 1] as job_ids
                  from place p
                 cross join generate_series(1, cardinality(p.job_ids), towpath._ready_jobs_max()) n) p
        union all
        select k.lane, k.due_at, k.job_id, null, 0, 0, false from keyed k),
    wide as (
        insert into towpath.job (job_id, job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
            payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, created_at,
            traceparent, login)
        select j.job_id, j.its_kind, j.its_executor, j.event_domain, j.source_ref, j.target_ref, j.payload_ref,
               j.payload_json, j.its_priority, j.scheduled_at, j.max_attempts, j.idempotency_key,
               case when j.actor is null then _actor else j.actor::towpath.label end, j.run_id, _now,
               case when j.traceparent is null then _traceparent else towpath._traceparent(j.traceparent) end,
               nullif(p_login, coalesce(j.actor, _actor))
          from job j
         where j.idempotency_key is null or j.job_id in (select k.job_id from keyed k))
    select array(select i.job_id from input i) as job_ids,
           (select array_agg(distinct p.lane) from (select lane, due_at from place union select lane, due_at from keyed) p
             where p.due_at <= _now) as lanes,
           array(select i.no::integer from input i
                  where i.idempotency_key is not null and i.job_id not in (select k.job_id from keyed k)
                  order by towpath._key_hash(i.idempotency_key), i.job_id) as taken,
           not exists (select 1 from input i
                        where not towpath._ref_fits(i.source_ref) or not towpath._ref_fits(i.target_ref)
                           or not towpath._ref_fits(i.payload_ref)) as refs_fit
      into _seen;
    if not _seen.refs_fit then
        raise exception 'a reference has more than 2000 bytes, or control characters' using errcode = 'check_violation';
    end if;
    job_ids := _seen.job_ids;
    duplicates := array_fill(false, array[cardinality(job_ids)]);
    foreach _no in array _seen.taken loop
        select v.job_id into _holder from towpath.job_live v
         where v.key_hash = towpath._key_hash(coalesce(p_jobs -> (_no - 1) ->> 'idempotency_key', p_jobs -> (_no - 1) ->> 'key'));
        if found then
            job_ids[_no] := _holder;
            duplicates[_no] := true;
        elsif cardinality(job_ids) > 1 then
            -- The holder finished in between, so the key is free; but taking it now, after
            -- keys that come later in the order, could deadlock.
            raise exception 'key freed' using errcode = 'TPX02';
        else
            select * into job_ids, duplicates from towpath._job_enqueue_rows(p_jobs, p_login);
        end if;
    end loop;
    if _seen.lanes is not null then
        perform towpath._job_wake(_seen.lanes);
    end if;
end;
$$;

-- _job_enqueue_object: fn_job_enqueue for one object of a batch; what cannot be read is invalid. Its
-- traceparent is the setting's for as long as that takes.
create or replace function towpath._job_enqueue_object(p_job jsonb) returns jsonb
    language plpgsql
as $$
declare
    _trace text := current_setting('towpath.traceparent', true);
    _answer jsonb;
begin
    if jsonb_typeof(p_job) is distinct from 'object' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'each job must be a JSON object');
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
-- The batch is tried as a whole. If any row is refused, the whole is rolled back and every
-- row tried by itself, so that good rows get in and each bad one gets its reason: slower, and
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
            -- As text: half the work of building the objects.
            select format('[%s]', string_agg(concat('{"ok":true,"job_id":"', d.job_id, '","duplicate":',
                                                    case when d.duplicate then 'true}' else 'false}' end), ','))
              into _answers from unnest(_done.job_ids, _done.duplicates) as d(job_id, duplicate);
            return jsonb_build_object('ok', true, 'jobs', _answers,
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
