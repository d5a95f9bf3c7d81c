-- Enqueue: one job from a producer into its lane.

-- _job_refusal: why the tables would refuse a job, in words, or null if they would not. Its defaults are filled in.
create or replace function towpath._job_refusal(p_job towpath._job_input) returns jsonb
    language plpgsql stable
as $$
begin
    return coalesce(
        towpath._name_refusal(p_job.job_kind, 'job_kind'),
        case when not towpath._executor_known(p_job.executor) then
            towpath._invalid('executor', towpath._executor_unknown(p_job.executor)) end,
        towpath._name_or_null_refusal(p_job.event_domain, 'event_domain'),
        case when coalesce(p_job.priority, -1) not between 0 and 32767 then
            towpath._invalid('priority', 'must be between 0 and 32767') end,
        case when coalesce(p_job.max_attempts, 0) not between 1 and 1000 then
            towpath._invalid('max_attempts', 'must be between 1 and 1000') end,
        towpath._moment_refusal(p_job.scheduled_at, 'scheduled_at'),
        towpath._name_refusal(p_job.actor, 'actor'),
        towpath._key_refusal(p_job.idempotency_key, 'idempotency_key'),
        towpath._ref_refusal(p_job.source_ref, 'source_ref'),
        towpath._ref_refusal(p_job.target_ref, 'target_ref'),
        towpath._ref_refusal(p_job.payload_ref, 'payload_ref'),
        towpath._payload_refusal(p_job.payload_json, 'payload_json'));
end;
$$;

-- _job_read: a job from an object with the parameter names of fn_job_enqueue without p_, its defaults filled
-- in. What cannot be read raises a data exception.
create or replace function towpath._job_read(p_job jsonb) returns towpath._job_input
    language plpgsql stable
as $$
declare
    _job towpath._job_input;
begin
    if jsonb_typeof(p_job) is distinct from 'object' then
        raise exception 'each job must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    _job := jsonb_populate_record(null::towpath._job_input, p_job);
    _job.executor := coalesce(_job.executor, (select e.executor from towpath.job_kind_executor e
                                               where e.job_kind = _job.job_kind));
    _job.payload_json := coalesce(_job.payload_json, '{}');
    _job.priority := coalesce(_job.priority, 100);
    _job.max_attempts := coalesce(_job.max_attempts, towpath._job_max_attempts_default());
    _job.actor := coalesce(_job.actor, session_user);
    return _job;
end;
$$;

-- _producer_may: whether the session may enqueue this kind for this executor (R09).
--
-- The producer is session_user, the role that logged in: inside a security definer function
-- current_user is the owner, and a role taken by SET ROLE is the session's own choice. A
-- pool is therefore one producer. Administrators and the owner need no grant.
create or replace function towpath._producer_may(p_job_kind text, p_executor text) returns boolean
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
as $$
begin
    return pg_has_role(session_user, 'workflow_admin', 'member')
        or pg_has_role(session_user, 'towpath_owner', 'member')
        or exists (select 1 from towpath.producer_grant g
                    where g.producer = session_user
                      and (g.job_kind is null or g.job_kind = p_job_kind)
                      and (g.executor is null or g.executor = p_executor));
end;
$$;

-- _producer_refusal: the answer to a producer without a grant, with what the grant has to name. No grant
-- can name a misspelt executor.
create or replace function towpath._producer_refusal(p_job_kind text, p_executor text) returns jsonb
    language sql stable
as $$
    select case when towpath._executor_known(p_executor) then
        jsonb_build_object('ok', false, 'error', 'not_authorised',
            'producer', session_user, 'job_kind', p_job_kind, 'executor', p_executor,
            'detail', format('%s is not allowed to enqueue %s for %s; an administrator can grant it',
                             session_user, p_job_kind, p_executor))
    else
        jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'executor',
                           'detail', towpath._executor_unknown(p_executor))
    end
$$;

-- _job_executor: the executor that a job without one shows, and for which its producer needs the right: the one that
-- all enabled subscriptions to its kind name, else PG_worker. A subscription to every kind says nothing about this one,
-- so it does not count.
create or replace function towpath._job_executor(p_job_kind text) returns text
    language sql stable
as $$
    select coalesce((select e.executor from towpath.job_kind_executor e where e.job_kind = p_job_kind), 'PG_worker')
$$;

-- _job_max_attempts_default: queue.retry.max_attempts_default as a usable number.
create or replace function towpath._job_max_attempts_default() returns integer
    language sql stable
as $$ select greatest(towpath._config_number('queue.retry.max_attempts_default')::integer, 1) $$;

-- fn_job_enqueue: nothing -> queued, in the caller's own transaction (Q04, Q19).
--
-- Without an idempotency key the job's own id is shown as its key. A key is unique among unfinished
-- jobs, whatever their kinds: a second enqueue with it writes nothing and answers the first job, even
-- if kind or payload differ. The unique index on its hash decides: the loser waits for the winner's
-- commit, then reads the winner's id in a new snapshot; if that job has meanwhile finished, the
-- key is free and the loop tries again.
--
-- p_actor is what the caller says of itself; if it is not the login, the login is kept beside it.
--
-- Without p_executor the job goes to the executor that all enabled subscriptions to its kind name. If there are none,
-- or they name several, it goes into a lane without an executor, and an executor that is subscribed by then claims
-- it: a job may come before the first worker of its kind.
--
-- A due time below the lane's floor is raised to it, or no claim would see the job.
-- Straight-line on purpose: a batch of one costs a third more.
--
-- Answers: {ok, job_id, duplicate}; gate_closed, not_authorised, invalid {field, detail}.
create or replace function towpath.fn_job_enqueue(
    p_job_kind        text,
    p_source_ref      text        default null,
    p_target_ref      text        default null,
    p_payload_ref     text        default null,
    p_payload_json    jsonb       default '{}',
    p_priority        integer     default 100,
    p_scheduled_at    timestamptz default null,
    p_max_attempts    integer     default null,
    p_idempotency_key text        default null,
    p_actor           text        default null,
    p_run_id          uuid        default null,
    p_executor        text        default null,
    p_event_domain    text        default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _priority integer := coalesce(p_priority, 100);
    _gate text;
    _default text;
    _executor text;
    _named text;
    _lane integer;
    _floor timestamptz;
    _armed boolean;
    _actor text := coalesce(p_actor, session_user);
    _payload jsonb := coalesce(p_payload_json, '{}');
    _scheduled_at timestamptz := coalesce(p_scheduled_at, _now);
    _due timestamptz;
    _max integer := p_max_attempts;
    _job_id uuid;
    _hash uuid;
    _holder uuid;
    _refusal jsonb;
    _none text;
begin
    select (select c.value from towpath.config c where c.key = 'queue.job_substrate.enabled' and c.kind = 'gate'),
           (select c.value from towpath.config c
             where c.key = 'queue.retry.max_attempts_default' and c.kind = 'number'),
           coalesce(p_executor, e.executor, 'PG_worker'), coalesce(p_executor, e.executor),
           case when l.closed_by is null then l.lane end,
           (select f.floor_at from towpath.job_floor f where f.lane = l.lane order by f.floor_no desc limit 1),
           (select w.armed from towpath.job_wake w where w.job_kind = l.job_kind order by w.wake_no desc limit 1)
      into _gate, _default, _executor, _named, _lane, _floor, _armed
      from (select 1) one
      left join towpath.job_kind_executor e on e.job_kind = p_job_kind
      left join towpath.job_lane l
        on l.job_kind = p_job_kind and l.priority = _priority
       and l.executor is not distinct from coalesce(p_executor, e.executor)
       and l.event_domain is not distinct from p_event_domain;
    if _gate is distinct from 'true' then
        return jsonb_build_object('ok', false, 'error', 'gate_closed', 'gate', 'queue.job_substrate.enabled');
    end if;
    if not pg_has_role(session_user, 'workflow_admin', 'member')
       and not towpath._producer_may(p_job_kind, _executor) then
        return towpath._producer_refusal(p_job_kind, _executor);
    end if;
    if _max is null then
        _max := case when _default ~ '^[1-9][0-9]{0,2}$' then _default::integer
                     else towpath._job_max_attempts_default() end;
    end if;
    -- A lane that exists has a good kind, executor, priority and domain. Texts that fit together fit one by one.
    if (_lane is not null and current_setting('transaction_isolation') = 'read committed' and _max between 1 and 1000
        and (p_scheduled_at is null or towpath._moment_fits(p_scheduled_at))
        and octet_length(_actor) <= 200 and btrim(_actor) <> ''
        and (p_idempotency_key is null or btrim(p_idempotency_key) <> '')
        and towpath._ref_fits(concat(_actor, p_idempotency_key, p_source_ref, p_target_ref, p_payload_ref))
        and jsonb_typeof(_payload) = 'object' and towpath._payload_safe(_payload)
        and towpath._payload_small(_payload)) is not true then
        _refusal := towpath._job_refusal(row(null, p_job_kind, _executor, p_event_domain, p_source_ref, p_target_ref,
            p_payload_ref, _payload, _priority, p_scheduled_at, _max, p_idempotency_key, _actor, p_run_id, null));
        if _refusal is not null then
            return _refusal;
        end if;
        _lane := towpath._job_lane(p_job_kind, _named, _priority, p_event_domain);
        _armed := true; -- no worker can have armed a lane that did not exist
    end if;

    _job_id := towpath._uuid7((date_part('epoch', _now) * 1000000)::bigint);
    _due := greatest(_scheduled_at, _floor);
    if p_idempotency_key is not null then
        _hash := towpath._key_hash(p_idempotency_key);
        loop
            insert into towpath.job_live (job_id, key_hash, due_at, lane, max_attempts)
            values (_job_id, _hash, _due, _lane, _max)
            on conflict (key_hash) where key_hash is not null do nothing;
            exit when found;
            select v.job_id into _holder from towpath.job_live v where v.key_hash = _hash;
            if found then
                return jsonb_build_object('ok', true, 'job_id', _holder, 'duplicate', true);
            end if;
        end loop;
    end if;
    with ready as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
        values (_lane, _due, _job_id, 0, 0, p_idempotency_key is null))
    insert into towpath.job (job_id, job_kind, executor, event_domain, source_ref, target_ref, payload_ref,
        payload_json, priority, scheduled_at, max_attempts, idempotency_key, actor, run_id, created_at, login)
    values (_job_id, p_job_kind, _named, p_event_domain, p_source_ref, p_target_ref, p_payload_ref,
        _payload, _priority, _scheduled_at, _max, p_idempotency_key, _actor, p_run_id, _now, nullif(session_user::text, _actor));
    if _armed and _due <= _now and towpath._gate_open('queue.notify.enabled') then
        -- As _job_wake does, with what is known here.
        insert into towpath.job_wake (job_kind, armed) values (p_job_kind, false);
        _none := pg_notify('towpath_job', left(p_job_kind, 1000));
    end if;
    return jsonb_build_object('ok', true, 'job_id', _job_id, 'duplicate', false);
end;
$$;

grant execute on function towpath.fn_job_enqueue(text, text, text, text, jsonb, integer, timestamptz, integer,
    text, text, uuid, text, text) to towpath_producer, workflow_admin;
