-- Attempts of kinds with a function or a handler: begun, stepped, suspended and ended, many in one call.
--
-- Each function here locks its processes in a first statement and works in a second, which sees what was
-- committed while the first waited. A call about several processes skips those that somebody else has locked,
-- and returns no row for them: the worker repeats it for each alone, and then it waits. So no process holds up others.

-- _process_lock_many: locks processes; several only as far as nobody else has them locked.
create or replace function towpath._process_lock_many(p_process_ids uuid[]) returns uuid[]
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
begin
    if cardinality(p_process_ids) = 1 then
        return array(select p.process_id from towpath.process p where p.process_id = p_process_ids[1] for update);
    end if;
    return array(select p.process_id from towpath.process p
                  where p.process_id = any (p_process_ids) for update skip locked);
end;
$$;

-- _process_asked: what the calls below need to know of an attempt, under the lock of its process: where its rows are, whether
-- it waits to be begun, and whether the worker holds it. One row, of nulls if there is no such process.
--
-- Inlined. The offsets make every table a lookup by its key: planned as a join, a table that has grown since its statistics
-- were taken would be read whole. For the same reason the callers update rows by their place.
create or replace function towpath._process_asked(p_process_id uuid, p_attempt_no integer, p_worker text)
    returns table (
        process_row tid, attempt_row tid, process_kind text, ref text, input jsonb, parent_id uuid, deadline_at timestamptz,
        runs_as text, db_function text, lease_seconds integer, waits boolean, holds boolean)
    language sql stable
as $$
    select p.ctid, a.ctid, p.process_kind, p.ref, p.input, p.parent_id, p.deadline_at, k.runs_as, k.db_function, k.lease_seconds,
           p.finished_at is null and a.begun_at is null and a.outcome is null and a.attempt_no is not null,
           p.finished_at is null and a.worker = p_worker and a.outcome is null
      from (select 1) one
      left join lateral (select p.*, p.ctid from towpath.process p where p.process_id = p_process_id offset 0) p on true
      left join lateral (select k.* from towpath.process_kind k where k.process_kind = p.process_kind offset 0) k on true
      left join lateral (select a.*, a.ctid from towpath.process_attempt a
                          where a.process_id = p_process_id and a.attempt_no = p_attempt_no offset 0) a on true
$$;

-- _process_begin_many: scheduled -> begun for attempts of kinds that run as p_runs_as, under the lock that the caller
-- has taken. An attempt after the first gets the results of all earlier steps.
create or replace function towpath._process_begin_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured boolean, p_runs_as text, p_now timestamptz)
    returns table (no integer, answer jsonb)
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    -- Of the columns' own types, so that each is checked once and not for every attempt; as below.
    _worker towpath.long_label := p_worker;
    _detail towpath.signal := jsonb_build_object('key_honoured', p_key_honoured);
begin
    return query
    with asked as materialized (
        select distinct on (q.process_id) q.no::integer as no, q.process_id, q.attempt_no, r.*,
               p_now + make_interval(secs => r.lease_seconds) as lease_until
          from unnest(p_process_ids, p_attempt_nos) with ordinality as q(process_id, attempt_no, no)
         cross join lateral towpath._process_asked(q.process_id, q.attempt_no, p_worker) r
         where r.waits and r.deadline_at > p_now and r.runs_as = p_runs_as
         order by q.process_id, q.no),
    begun as (
        update towpath.process_attempt a
           set begun_at = p_now, worker = _worker, key_honoured = p_key_honoured, lease_until = q.lease_until
          from asked q where a.ctid = q.attempt_row),
    fact as (
        insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at)
        select q.process_id, (select max(f.fact_no) + 1 from towpath.process_fact f where f.process_id = q.process_id),
               'begun', q.attempt_no, _detail, _worker, p_now
          from asked q)
    select q.no, jsonb_build_object('ok', true, 'process_id', q.process_id, 'attempt_no', q.attempt_no,
               'process_kind', q.process_kind, 'ref', q.ref, 'input', q.input, 'db_function', q.db_function,
               'lease_until', q.lease_until, 'lease_seconds', q.lease_seconds, 'idempotency_key', q.process_id, 'worker', p_worker,
               'steps', case when q.attempt_no = 1 then '{}' else
                   (select coalesce(jsonb_object_agg(f.name, f.value), '{}') from towpath.process_fact f
                     where f.process_id = q.process_id and f.fact = 'stepped') end)
      from asked q;
end;
$$;

-- _process_begin_refusal: why an attempt could not be begun, under the lock of its process.
create or replace function towpath._process_begin_refusal(
    p_process_id uuid, p_attempt_no integer, p_runs_as text, p_now timestamptz) returns jsonb
    language plpgsql
as $$
declare
    _process towpath.process;
    _runs_as text;
begin
    select * into _process from towpath.process p where p.process_id = p_process_id;
    select k.runs_as into _runs_as from towpath.process_kind k where k.process_kind = _process.process_kind;
    if _runs_as <> p_runs_as then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'process_id', p_process_id,
            'detail', format('processes of kind %s run as a %s', _process.process_kind, _runs_as));
    end if;
    return towpath._process_attempt_begin(_process, p_attempt_no, '-', false, p_now);
end;
$$;

-- fn_process_begin_many: a worker's handlers take attempts, each once. It needs the job of the attempt no more than a
-- task does: the number is the fence.
--
-- Returns, per attempt, {ok, process_id, attempt_no, process_kind, ref, input, steps: {name: result}, lease_until,
-- idempotency_key}; or gate_closed, not_found, not_authorised, conflict (the process has ended), lease_lost (begun
-- already, or lost); or no row if several were asked for and this one is locked: ask for it alone.
create or replace function towpath.fn_process_begin_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured boolean default false)
    returns table (no integer, answer jsonb)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query select * from towpath._process_take_many(p_process_ids, p_attempt_nos, p_worker, p_key_honoured, 'handler');
end;
$$;

-- _process_take_many: locks and begins attempts, and says why others could not be.
create or replace function towpath._process_take_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured boolean, p_runs_as text)
    returns table (no integer, answer jsonb)
    language plpgsql
as $$
declare
    _refusal jsonb := coalesce(towpath._gate_refusal('process.enabled'), towpath._owner_refusal(p_worker, 'worker'));
    _now timestamptz := towpath.fn_now();
    _locked uuid[];
    _asked record;
    _done integer[] := '{}';
begin
    if _refusal is not null then
        return query select g, _refusal from generate_series(1, cardinality(p_process_ids)) g;
        return;
    end if;
    _locked := towpath._process_lock_many(p_process_ids);
    for no, answer in
        select b.no, b.answer from towpath._process_begin_many(
            case when cardinality(_locked) = cardinality(p_process_ids) then p_process_ids
                 else array(select case when i = any (_locked) then i end from unnest(p_process_ids) i) end,
            p_attempt_nos, p_worker, coalesce(p_key_honoured, false), p_runs_as, _now) b
    loop
        _done := _done || no;
        return next;
    end loop;
    if cardinality(_done) = cardinality(p_process_ids) then
        return;
    end if;
    for _asked in
        select i.no, i.process_id, i.attempt_no, i.process_id = any (_locked) as is_locked
          from unnest(p_process_ids, p_attempt_nos) with ordinality as i(process_id, attempt_no, no)
         where i.no <> all (_done)
    loop
        no := _asked.no;
        if _asked.is_locked then
            answer := towpath._process_begin_refusal(_asked.process_id, _asked.attempt_no, p_runs_as, _now);
            return next;
        elsif not exists (select 1 from towpath.process p where p.process_id = _asked.process_id) then
            answer := jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', _asked.process_id,
                                         'detail', 'there is no such process');
            return next;
        end if;
    end loop;
end;
$$;

-- _process_fence: null if the worker holds this attempt, under the lock of its process; otherwise the refusal.
create or replace function towpath._process_fence(p_process towpath.process, p_attempt_no integer, p_worker text)
    returns jsonb
    language plpgsql stable
as $$
begin
    if p_process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail', 'there is no such process');
    end if;
    if p_process.finished_at is not null or not exists (
        select 1 from towpath.process_attempt a where a.process_id = p_process.process_id and a.attempt_no = p_attempt_no
           and a.worker = p_worker and a.outcome is null) then
        return jsonb_build_object('ok', false, 'error', 'lease_lost', 'process_id', p_process.process_id,
            'attempt_no', p_attempt_no, 'detail', 'the attempt has ended, or another worker has it');
    end if;
    return null;
end;
$$;

-- fn_process_step_many: records results of steps, each under the fence of its attempt (P13). The first result that was
-- recorded under a name stays: a second one is not kept, and the answer has the first.
--
-- Returns, per step, {ok, value}; or lease_lost, not_found, invalid; or no row, as fn_process_begin_many.
create or replace function towpath.fn_process_step_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_names text[], p_values jsonb[])
    returns table (no integer, answer jsonb)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _locked uuid[] := towpath._process_lock_many(p_process_ids);
    -- Looking each up in the other list costs more than all the rest.
    _all boolean := cardinality(_locked) = cardinality(p_process_ids);
    _worker towpath.long_label := case when towpath._key_fits(p_worker) then p_worker end;
    _none towpath.signal := '{}';
begin
    return query
    with asked as materialized (
        select q.no, q.process_id, q.attempt_no, q.name, q.value, r.process_row is not null as is_there, r.holds,
               f.name is not null as is_recorded, f.value as recorded,
               towpath._key_fits(q.name) and (q.value is null or towpath._result_fits(q.value)) as fits
          from unnest(p_process_ids, p_attempt_nos, p_names, p_values) with ordinality
               as q(process_id, attempt_no, name, value, no)
         cross join lateral towpath._process_asked(q.process_id, q.attempt_no, p_worker) r
          left join lateral (select f.name, f.value from towpath.process_fact f
                              where f.process_id = q.process_id and f.fact = 'stepped' and f.name = q.name offset 0) f on true
         where _all or r.process_row is null or q.process_id = any (_locked)),
    -- Of several results under one name in this call, the first.
    new as materialized (
        select distinct on (q.process_id, q.name) q.no, q.process_id, q.attempt_no, q.name, q.value
          from asked q where q.holds and q.fits and not q.is_recorded order by q.process_id, q.name, q.no),
    fact as (
        insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at, name, value)
        select n.process_id, (select max(f.fact_no) from towpath.process_fact f where f.process_id = n.process_id)
                             + row_number() over (partition by n.process_id order by n.no),
               'stepped', n.attempt_no, _none, _worker, _now, n.name, n.value
          from new n)
    select q.no::integer, case
        -- An attempt that ended may do nothing more, not even read.
        when q.holds is not true then jsonb_build_object('ok', false,
            'error', case when q.is_there then 'lease_lost' else 'not_found' end,
            'process_id', q.process_id, 'attempt_no', q.attempt_no,
            'detail', case when q.is_there then 'the attempt has ended, or another worker has it'
                           else 'there is no such process' end)
        when q.is_recorded then jsonb_build_object('ok', true, 'value', q.recorded)
        when q.fits is not true then
            coalesce(towpath._key_refusal(q.name, 'name'), towpath._process_value_refusal(q.value, 'value'))
        else jsonb_build_object('ok', true, 'value', first_value(q.value) over (
                 partition by q.process_id, q.name, q.holds, q.fits order by q.no)) end
      from asked q;
end;
$$;

-- _process_step: records one result under the lock of the process; answers the one that was recorded first.
create or replace function towpath._process_step(
    p_process_id uuid, p_attempt_no integer, p_worker text, p_name text, p_value jsonb, p_now timestamptz) returns jsonb
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
declare
    _value jsonb;
begin
    select f.value into _value from towpath.process_fact f
     where f.process_id = p_process_id and f.fact = 'stepped' and f.name = p_name;
    if found then
        return _value;
    end if;
    insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, actor, recorded_at, name, value)
    select p_process_id, max(f.fact_no) + 1, 'stepped', p_attempt_no, p_worker, p_now, p_name, p_value
      from towpath.process_fact f where f.process_id = p_process_id;
    return p_value;
end;
$$;

-- fn_process_wait: waits for a signal, or until a moment, or both: whichever comes first (P14, P15). If it has come, that
-- is recorded as the result of the step p_name, and later attempts get the same. If not, the attempt ends as suspended:
-- no failure, and it does not count. The next one begins when the signal or the moment comes, and waits under the same
-- name to no later moment than the first did. p_child starts a process of its own and waits for its end: {kind, ref, input}.
--
-- Answers: {ok, ready: true, value: {signal: payload} | {timed_out: true} | {process_id, state, result}};
-- {ok, ready: false, until_at}; not_found, invalid, lease_lost, conflict (the child belongs to another process).
create or replace function towpath.fn_process_wait(
    p_process_id uuid, p_attempt_no integer, p_worker text, p_name text, p_signal text default null,
    p_until_at timestamptz default null, p_seconds double precision default null, p_child jsonb default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz;
    _process towpath.process;
    _refusal jsonb := coalesce(towpath._key_refusal(p_name, 'name'),
        case when p_name is null then towpath._invalid('name', 'is required') end,
        case when p_signal is not null then towpath._key_refusal(p_signal, 'signal') end,
        towpath._moment_refusal(p_until_at, 'until_at'),
        case when p_seconds < 0 or p_seconds > 31536000 then towpath._invalid('seconds', 'must be between 0 and 31536000') end,
        case when p_signal is null and p_until_at is null and p_seconds is null and p_child is null then
            towpath._invalid('signal', 'a wait needs a signal, a moment, a number of seconds or a child') end);
    _child jsonb;
    _signal text := p_signal;
    _value jsonb;
    _until timestamptz;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    _process := towpath._process_lock(p_process_id);
    _now := towpath.fn_now();
    _refusal := towpath._process_fence(_process, p_attempt_no, p_worker);
    if _refusal is not null then
        return _refusal;
    end if;
    select f.value into _value from towpath.process_fact f
     where f.process_id = p_process_id and f.fact = 'stepped' and f.name = p_name;
    if found then
        return jsonb_build_object('ok', true, 'ready', true, 'value', _value);
    end if;
    if p_child is not null then
        _child := towpath._process_child(_process, p_child, _now);
        if _child->'ok' = 'false' then
            return _child;
        end if;
        _signal := 'process:' || (_child->>'process_id');
    end if;
    select f.value into _value from towpath.process_fact f
     where f.process_id = p_process_id and f.fact = 'signalled' and f.name = _signal;
    if found then
        _value := case when p_child is null then jsonb_build_object('signal', _value) else _value end;
        return jsonb_build_object('ok', true, 'ready', true, 'value',
            towpath._process_step(p_process_id, p_attempt_no, p_worker, p_name, _value, _now));
    end if;
    -- The first wait under this name decided until when.
    select (f.detail->>'until_at')::timestamptz into _until from towpath.process_fact f
     where f.process_id = p_process_id and f.fact = 'suspended' and f.name = p_name order by f.fact_no limit 1;
    if not found then
        _until := least(p_until_at, _now + make_interval(secs => p_seconds));
    end if;
    if _until <= _now then
        return jsonb_build_object('ok', true, 'ready', true, 'value',
            towpath._process_step(p_process_id, p_attempt_no, p_worker, p_name, jsonb_build_object('timed_out', true), _now));
    end if;
    if _until >= _process.deadline_at then
        return towpath._invalid('until_at', format('%s waits until %s, after the deadline of the process, %s: start it with a later deadline, or '
            'register its kind with a longer deadline_seconds', p_name, _until, _process.deadline_at));
    end if;
    update towpath.process_attempt a set outcome = 'suspended', ended_at = _now, retry_at = _until
     where a.process_id = p_process_id and a.attempt_no = p_attempt_no;
    update towpath.process p set waits_for = _signal, next_check_at = coalesce(_until, p.deadline_at)
     where p.process_id = p_process_id;
    insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at, name)
    select p_process_id, max(f.fact_no) + 1, 'suspended', p_attempt_no,
           jsonb_strip_nulls(jsonb_build_object('until_at', _until, 'signal', _signal)), p_worker, _now, p_name
      from towpath.process_fact f where f.process_id = p_process_id;
    return jsonb_build_object('ok', true, 'ready', false, 'until_at', _until, 'signal', _signal);
end;
$$;

-- _process_child: starts the process {kind, ref, input} as a child of one that is locked, or finds it.
create or replace function towpath._process_child(p_process towpath.process, p_child jsonb, p_now timestamptz) returns jsonb
    language plpgsql
as $$
declare
    _refusal jsonb;
    _started jsonb;
    _parent uuid;
begin
    if not exists (select 1 from towpath.process_kind k where k.process_kind = p_child->>'kind') then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_kind', p_child->>'kind',
                                  'detail', 'there is no such process kind');
    end if;
    _refusal := coalesce(towpath._key_refusal(p_child->>'ref', 'ref'),
        case when p_child->>'ref' is null or octet_length(p_child->>'ref') > 500 then
            towpath._invalid('ref', 'must have 1 to 500 bytes') end,
        towpath._process_value_refusal(p_child->'input', 'input'));
    if _refusal is not null then
        return _refusal;
    end if;
    -- The worker that runs the parent needs no grant: its kind was registered by an administrator.
    _started := towpath._process_start(p_child->>'kind', p_child->>'ref', null, null, null,
        towpath._own_actor('process', p_process.process_kind), nullif(p_child->'input', 'null'), p_process.process_id, p_now);
    select p.parent_id into _parent from towpath.process p where p.process_id = (_started->>'process_id')::uuid;
    if _parent is distinct from p_process.process_id then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'process_id', _started->'process_id',
            'detail', format('process %s of kind %s exists and is not a child of this one', p_child->>'ref', p_child->>'kind'));
    end if;
    return _started;
end;
$$;

-- fn_process_end_many: how attempts ended, from the worker that holds them. p_ends is an array of {outcome, result} or
-- {outcome, detail} with the outcomes accepted, transient, permanent and uncertain.
--
-- Returns, per attempt, {ok, process_id, attempt_no, state, late}; or not_found, not_authorised, invalid, lease_lost
-- (ended already); or no row, as fn_process_begin_many.
create or replace function towpath.fn_process_end_many(
    p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_ends jsonb)
    returns table (no integer, answer jsonb)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _locked uuid[] := towpath._process_lock_many(p_process_ids);
    _all boolean := cardinality(_locked) = cardinality(p_process_ids);
    _ends jsonb[] := array(
        select e from jsonb_array_elements(case jsonb_typeof(p_ends) when 'array' then p_ends else '[]' end) e);
    _worker towpath.long_label := case when towpath._key_fits(p_worker) then p_worker end;
    _none towpath.signal := '{}';
    _done integer[] := '{}';
    _asked record;
begin
    for no, answer in
        -- In one order, as fn_process_extend_many.
        with asked as materialized (
            select distinct on (q.process_id) q.no::integer as no, q.process_id, q.attempt_no, q.ended -> 'result' as result,
                   r.process_row, r.attempt_row
              from unnest(p_process_ids, p_attempt_nos, _ends) with ordinality as q(process_id, attempt_no, ended, no)
             cross join lateral towpath._process_asked(q.process_id, q.attempt_no, p_worker) r
             where (_all or q.process_id = any (_locked)) and q.ended ->> 'outcome' = 'accepted'
               and r.holds and r.parent_id is null and r.runs_as <> 'task'
               and (q.ended -> 'result' is null or towpath._result_fits(q.ended -> 'result'))
               and coalesce(q.ended -> 'detail', 'null') in ('null', '{}')
             order by q.process_id, q.no),
        ended as (
            update towpath.process_attempt a set outcome = 'accepted', ended_at = _now
              from asked q where a.ctid = q.attempt_row),
        over as (
            update towpath.process p set state = 'succeeded', finished_at = _now, next_check_at = null
              from asked q where p.ctid = q.process_row),
        fact as (
            insert into towpath.process_fact (process_id, fact_no, fact, attempt_no, detail, actor, recorded_at, value)
            select q.process_id, (select max(f.fact_no) + 1 from towpath.process_fact f where f.process_id = q.process_id),
                   'succeeded', q.attempt_no, _none, _worker, _now, q.result
              from asked q)
        select q.no, jsonb_build_object('ok', true, 'process_id', q.process_id, 'attempt_no', q.attempt_no,
                                        'state', 'succeeded', 'late', false)
          from asked q
    loop
        _done := _done || no;
        return next;
    end loop;
    if cardinality(_done) = cardinality(p_process_ids) then
        return;
    end if;
    for _asked in
        select i.no, i.process_id, i.attempt_no, i.ended
          from unnest(p_process_ids, p_attempt_nos, _ends) with ordinality as i(process_id, attempt_no, ended, no)
         where i.no <> all (_done) and (i.process_id = any (_locked) or not exists (
               select 1 from towpath.process p where p.process_id = i.process_id))
    loop
        no := _asked.no;
        answer := towpath._process_end_one(_asked.process_id, _asked.attempt_no, p_worker, _asked.ended, _now);
        return next;
    end loop;
end;
$$;

-- _process_end_one: one of them that is not just accepted in time, without a parent or details.
create or replace function towpath._process_end_one(
    p_process_id uuid, p_attempt_no integer, p_worker text, p_end jsonb, p_now timestamptz) returns jsonb
    language plpgsql
as $$
declare
    _process towpath.process := towpath._process_lock(p_process_id);
    _kind towpath.process_kind;
    _refusal jsonb;
begin
    if _process.process_id is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id,
                                  'detail', 'there is no such process');
    end if;
    select * into _kind from towpath.process_kind k where k.process_kind = _process.process_kind;
    _refusal := case
        when _kind.runs_as = 'task' then jsonb_build_object('ok', false, 'error', 'not_authorised',
            'process_id', p_process_id, 'detail', format('processes of kind %s run as a task', _process.process_kind))
        when coalesce(p_end->>'outcome', '') not in ('accepted', 'transient', 'permanent', 'uncertain') then
            towpath._invalid('outcome', 'must be one of accepted, transient, permanent, uncertain')
        when not exists (select 1 from towpath.process_attempt a where a.process_id = p_process_id
                            and a.attempt_no = p_attempt_no and a.worker = p_worker) then
            jsonb_build_object('ok', false, 'error', 'lease_lost', 'process_id', p_process_id, 'attempt_no', p_attempt_no,
                               'detail', 'another worker has the attempt')
        end;
    _refusal := coalesce(_refusal, towpath._process_value_refusal(p_end->'result', 'result'),
                         towpath._payload_refusal(coalesce(nullif(p_end->'detail', 'null'), '{}'), 'detail'));
    return coalesce(_refusal, towpath._process_attempt_end(_process, p_attempt_no, p_end->>'outcome',
        coalesce(nullif(p_end->'detail', 'null'), '{}'), p_now, p_end->'result'));
end;
$$;

-- fn_process_extend_many: the worker needs its attempts for another lease of their kinds, but not beyond one lease
-- after the deadline.
--
-- Returns the number of each attempt that the worker still holds.
create or replace function towpath.fn_process_extend_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text)
    returns table (no integer)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    return query
    with asked as materialized (
        select q.no, r.attempt_row, r.deadline_at, make_interval(secs => r.lease_seconds) as lease
          from unnest(p_process_ids, p_attempt_nos) with ordinality as q(process_id, attempt_no, no)
         cross join lateral towpath._process_asked(q.process_id, q.attempt_no, p_worker) r
         where r.holds
         -- In one order, as everybody who takes several.
         order by q.process_id)
    update towpath.process_attempt a set lease_until = greatest(a.lease_until, least(_now, q.deadline_at) + q.lease)
      from asked q
     -- It may have ended meanwhile. Not as "is null": the index of outstanding attempts would be read whole.
     where a.ctid = q.attempt_row and coalesce(a.outcome, '') = ''
    returning q.no::integer;
end;
$$;

grant execute on function towpath.fn_process_begin_many(uuid[], integer[], text, boolean),
    towpath.fn_process_step_many(uuid[], integer[], text, text[], jsonb[]),
    towpath.fn_process_wait(uuid, integer, text, text, text, timestamptz, double precision, jsonb),
    towpath.fn_process_end_many(uuid[], integer[], text, jsonb),
    towpath.fn_process_extend_many(uuid[], integer[], text) to worker_service_user;
