-- Subscriptions, the registry of consumers, and producer grants: who may claim and enqueue what.
--
-- Only workflow_admin writes these tables, so an executor cannot grant itself anything (R08). An executor is
-- registered first and subscribes then, both as the same kind; without its registration it claims nothing.

-- _executor_unknown: the words for an executor that is not on the whitelist, with the whole
-- list, so that nobody has to look for it. A test compares it with _executor_known.
create or replace function towpath._executor_unknown(p_executor text) returns text
    language sql immutable
as $$
    select format('%s is not on the executor whitelist: DOT, Agent, Hermes, Codex, PG_worker, external_worker, '
                  'future_Kestra_adapter', coalesce(to_jsonb(p_executor)::text, 'null'))
$$;

-- fn_executor_kinds: the executor whitelist, read from the one place where it stands.
--
-- Answers: {ok, kinds: [name]}.
create or replace function towpath.fn_executor_kinds() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'kinds', jsonb_agg(k.words[1] order by k.no))
      from regexp_matches(pg_get_functiondef('towpath._executor_known(text)'::regprocedure), '''([^'']+)''::text', 'g')
           with ordinality as k (words, no)
$$;

-- _executor_lock: registration and subscriptions of one executor change one after the other, so that their kinds
-- agree. The same lock space as the subscription lock, behind it.
create or replace function towpath._executor_lock(p_executor_id text) returns void
    language sql
as $$
    select pg_advisory_xact_lock(7302, hashtext(p_executor_id))
$$;

-- _executor_kind_refusal: why an executor may not subscribe as a kind, given the kind it is registered as (null: it
-- is not registered).
create or replace function towpath._executor_kind_refusal(p_executor_id text, p_kind text, p_registered text) returns jsonb
    language sql immutable
as $$
    select case
        when p_registered is null then jsonb_build_object('ok', false, 'error', 'not_found', 'executor_id', p_executor_id,
            'detail', format('%s is not registered; register it first with: towpath executor add, or fn_consumer_put',
                             p_executor_id))
        when p_registered <> p_kind then jsonb_build_object('ok', false, 'error', 'conflict', 'executor_id', p_executor_id,
            'detail', format('%s is registered as %s, not as %s', p_executor_id, p_registered, p_kind))
    end
$$;

-- fn_job_subscription_put: makes or changes the one subscription of an executor for a kind and a
-- domain (null: any). max_parallel null means no limit.
--
-- Starting to count where nothing was counted takes the subscription lock alone, so that no
-- claim is running, and then counts the leases that are held: the limit is exact from the
-- first claim on. A lowered limit lets running jobs finish.
--
-- Answers: {ok, subscription_id, created}; invalid {field, detail}, not_found (the executor is not registered),
-- conflict (it is registered as another kind).
create or replace function towpath.fn_job_subscription_put(
    p_executor_id text, p_executor_kind text, p_job_kind text default null, p_event_domain text default null,
    p_priority_floor integer default 0, p_max_parallel integer default 1, p_enabled boolean default false,
    p_notes text default null, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _actor text := coalesce(p_actor, session_user);
    _old towpath.job_subscription;
    _new towpath.job_subscription;
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_executor_id, 'executor_id'),
        case when not coalesce(towpath._executor_known(p_executor_kind), false) then
            towpath._invalid('executor_kind', towpath._executor_unknown(p_executor_kind)) end,
        towpath._name_or_null_refusal(p_job_kind, 'job_kind'),
        towpath._name_or_null_refusal(p_event_domain, 'event_domain'),
        case when coalesce(p_priority_floor, -1) not between 0 and 32767 then
            towpath._invalid('priority_floor', 'must be between 0 and 32767') end,
        case when p_max_parallel not between 1 and 1000000 then
            towpath._invalid('max_parallel', 'must be between 1 and 1000000, or null for no limit') end,
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    perform towpath._executor_lock(p_executor_id);
    _refusal := towpath._executor_kind_refusal(p_executor_id, p_executor_kind,
        (select r.executor from towpath.consumer_registry r where r.executor_id = p_executor_id));
    if _refusal is not null then
        return _refusal;
    end if;
    if p_max_parallel is not null and exists (
           select 1 from towpath.job_subscription s
            where s.executor_id = p_executor_id and s.job_kind is not distinct from p_job_kind
              and s.event_domain is not distinct from p_event_domain and s.max_parallel is null) then
        perform pg_advisory_xact_lock(7301, 1);
    end if;
    select * into _old from towpath.job_subscription s
     where s.executor_id = p_executor_id and s.job_kind is not distinct from p_job_kind
       and s.event_domain is not distinct from p_event_domain for update;
    insert into towpath.job_subscription as s (executor_id, executor_kind, job_kind, event_domain, priority_floor,
        max_parallel, enabled, notes, registered_by, registered_at)
    values (p_executor_id, p_executor_kind, p_job_kind, p_event_domain, p_priority_floor, p_max_parallel,
        coalesce(p_enabled, false), p_notes, _actor, _now)
    on conflict on constraint job_subscription_uq do update
       set executor_kind = excluded.executor_kind, priority_floor = excluded.priority_floor,
           max_parallel = excluded.max_parallel, enabled = excluded.enabled,
           notes = coalesce(excluded.notes, s.notes), registered_by = excluded.registered_by,
           registered_at = excluded.registered_at
    returning * into _new;
    if _old.subscription_id is not null and _old.max_parallel is null and _new.max_parallel is not null then
        perform towpath._job_parallel_recount(_new.subscription_no);
    end if;
    if p_job_kind is not null then
        -- The usual lane, so that the first producers do not meet while making it.
        perform towpath._job_lane(p_job_kind, p_executor_kind, 100, p_event_domain);
    end if;
    perform towpath._job_wake(array(select l.lane from towpath.job_lane l
                                     where (l.executor = p_executor_kind or l.executor is null)
                                       and (p_job_kind is null or l.job_kind = p_job_kind)));
    return jsonb_build_object('ok', true, 'subscription_id', _new.subscription_id,
                              'created', _old.subscription_id is null);
end;
$$;

-- _job_parallel_recount: sets the counter of a subscription to the leases it holds, and marks
-- leases it took without counting as counted. Rows and releases are read by one snapshot: an
-- attempt that ends meanwhile has either both its row gone and its release seen, or neither.
-- Leases that only lease entries hold are settled first; no claim adds any under the lock.
-- Returns the difference to what was written down.
create or replace function towpath._job_parallel_recount(p_no integer) returns integer
    language plpgsql
as $$
declare
    _old record;
    _held integer;
begin
    perform 1 from towpath.job_subscription s where s.subscription_no = p_no for no key update;
    perform towpath._job_settle(array(select e.entry_id from towpath.lease_entry e
                                       where e.subscription_no in (p_no, -p_no) and e.attempt is not null));
    select p.held, p.folded_to, p.change_no into _old from towpath.job_parallel p
     where p.subscription_no = p_no order by p.change_no desc limit 1;
    with marked as (
        update towpath.job_live v set subscription_no = p_no
         where v.subscription_no = -p_no and v.state in (1, 2) returning 1),
    gone as (
        delete from towpath.job_parallel_release r where r.subscription_no = p_no returning r.n)
    select (select count(*) from marked)
           + (select count(*) from towpath.job_live v where v.subscription_no = p_no and v.state in (1, 2))
      into _held from (select count(*) from gone) g;
    insert into towpath.job_parallel (subscription_no, held, folded_to)
    values (p_no, _held, coalesce(_old.folded_to, 0));
    delete from towpath.job_parallel p where p.subscription_no = p_no and p.change_no <= _old.change_no;
    return _held - coalesce(_old.held, 0);
end;
$$;

-- fn_job_subscription_delete: forgets a subscription that holds no lease. Disable it first.
--
-- Answers: {ok, subscription_id}; not_found, conflict {held}.
create or replace function towpath.fn_job_subscription_delete(p_subscription_id uuid) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _no integer;
    _held bigint;
begin
    select s.subscription_no into _no from towpath.job_subscription s
     where s.subscription_id = p_subscription_id for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'subscription_id', p_subscription_id);
    end if;
    select count(*) into _held from towpath._job_now v where v.subscription_no in (_no, -_no) and v.state in (1, 2);
    if _held > 0 then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'subscription_id', p_subscription_id,
            'held', _held, 'detail', 'it has leased jobs; disable it and let them finish');
    end if;
    delete from towpath.job_subscription s where s.subscription_id = p_subscription_id;
    delete from towpath.job_parallel p where p.subscription_no = _no;
    delete from towpath.job_parallel_release r where r.subscription_no = _no;
    return jsonb_build_object('ok', true, 'subscription_id', p_subscription_id);
end;
$$;

-- fn_job_subscription_list: the subscriptions, of one executor or of all, with what they hold.
create or replace function towpath.fn_job_subscription_list(p_executor_id text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'subscriptions', coalesce(jsonb_agg(
        to_jsonb(s) - 'subscription_no' || jsonb_build_object('held', case when s.max_parallel is not null then
            coalesce((select p.held from towpath.job_parallel p where p.subscription_no = s.subscription_no
                       order by p.change_no desc limit 1), 0)
            - coalesce((select sum(r.n) from towpath.job_parallel_release r
                         where r.subscription_no = s.subscription_no), 0) end)
        order by s.executor_id, s.job_kind nulls first, s.event_domain nulls first), '[]'))
      from towpath.job_subscription s
     where p_executor_id is null or s.executor_id = p_executor_id
$$;

-- fn_consumer_put: registers an executor: who it is, of which kind, and which login may claim as it; without a
-- login any worker may. Its kind stays while it has subscriptions.
--
-- Answers: {ok, executor_id}; invalid, conflict (it subscribed as another kind).
create or replace function towpath.fn_consumer_put(
    p_executor_id text, p_executor text, p_login_role text default null, p_notes text default null,
    p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _login text := nullif(btrim(p_login_role), '');
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_executor_id, 'executor_id'),
        case when not coalesce(towpath._executor_known(p_executor), false) then
            towpath._invalid('executor', towpath._executor_unknown(p_executor)) end,
        towpath._name_or_null_refusal(_login, 'login_role'),
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    perform towpath._executor_lock(p_executor_id);
    if exists (select 1 from towpath.job_subscription s
                where s.executor_id = p_executor_id and s.executor_kind::text <> p_executor) then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'executor_id', p_executor_id,
            'detail', format('%s has subscriptions with an executor kind other than %s; remove them first', p_executor_id, p_executor));
    end if;
    insert into towpath.consumer_registry as r (executor_id, executor, login_role, notes, registered_by, registered_at)
    values (p_executor_id, p_executor, _login, p_notes, _actor, towpath.fn_now())
    on conflict (executor_id) do update
       set executor = excluded.executor, login_role = excluded.login_role,
           notes = coalesce(excluded.notes, r.notes), registered_by = excluded.registered_by,
           registered_at = excluded.registered_at;
    return jsonb_build_object('ok', true, 'executor_id', p_executor_id);
end;
$$;

-- fn_executor_register: registers an executor and subscribes it to kinds, without a limit on parallel jobs, as a
-- worker does when it starts. What an administrator has set stays: the kind of a registered executor (p_executor is
-- for a new one), and subscriptions that are there, enabled or not. A subscription to every kind covers all.
--
-- Answers: {ok, executor, kinds, added: [kind]}; invalid {field, detail}.
create or replace function towpath.fn_executor_register(
    p_executor_id text, p_kinds text[], p_executor text default 'PG_worker', p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _notes constant text := 'registered by its worker';
    _executor text;
    _kind text;
    _answer jsonb;
    _added jsonb := '[]';
begin
    _answer := coalesce(
        case when p_kinds is null then towpath._invalid('kinds', 'must be 1 to 1000 names') end,
        towpath._names_refusal(p_kinds, 'kinds'));
    if _answer is not null then
        return _answer;
    end if;
    perform towpath._executor_lock(p_executor_id);
    select r.executor into _executor from towpath.consumer_registry r where r.executor_id = p_executor_id;
    if _executor is null then
        _executor := p_executor;
        _answer := towpath.fn_consumer_put(p_executor_id, _executor, null, _notes, p_actor);
        if _answer -> 'ok' = 'false' then
            return _answer;
        end if;
    end if;
    for _kind in
        select distinct k from unnest(p_kinds) k
         where not exists (select 1 from towpath.job_subscription s
                            where s.executor_id = p_executor_id and s.event_domain is null
                              and (s.job_kind = k or s.job_kind is null))
         order by k
    loop
        _answer := towpath.fn_job_subscription_put(p_executor_id, _executor, _kind, p_max_parallel => null,
                                                   p_enabled => true, p_notes => _notes, p_actor => p_actor);
        if _answer -> 'ok' = 'false' then
            -- All kinds or none.
            raise exception using errcode = 'TPX02', message = 'a kind was refused';
        end if;
        _added := _added || to_jsonb(_kind);
    end loop;
    return jsonb_build_object('ok', true, 'executor', p_executor_id, 'kinds', to_jsonb(p_kinds), 'added', _added);
exception when sqlstate 'TPX02' then
    return _answer;
end;
$$;

-- fn_consumer_delete: removes an executor from the registry, which silences it: from the next claim on it gets
-- nothing. What it holds it may finish, and its subscriptions stay for when it is registered again.
create or replace function towpath.fn_consumer_delete(p_executor_id text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.consumer_registry r where r.executor_id = p_executor_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'executor_id', p_executor_id);
    end if;
    return jsonb_build_object('ok', true, 'executor_id', p_executor_id);
end;
$$;

-- fn_consumer_list: the registry.
create or replace function towpath.fn_consumer_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'consumers',
                              coalesce(jsonb_agg(to_jsonb(r) order by r.executor_id), '[]'))
      from towpath.consumer_registry r
$$;

-- fn_producer_grant_put: lets a login role enqueue a kind for an executor; null means any (R09). To grant every kind
-- for every executor takes p_any_kind => true, so that nobody does it by leaving something out. Granting twice is no
-- error.
--
-- Answers: {ok, grant_id, created}; invalid.
create or replace function towpath.fn_producer_grant_put(
    p_producer text, p_job_kind text default null, p_executor text default null, p_actor text default null,
    p_any_kind boolean default false) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _id uuid;
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_producer, 'producer'),
        towpath._name_or_null_refusal(p_job_kind, 'job_kind'),
        case when not towpath._executor_known(p_executor) then
            towpath._invalid('executor', towpath._executor_unknown(p_executor)) end,
        case when p_job_kind is null and p_executor is null and p_any_kind is not true then
            towpath._invalid('job_kind', 'specify a kind or an executor, or grant everything with p_any_kind => true') end,
        case when p_job_kind is not null and p_any_kind then
            towpath._invalid('any_kind', 'cannot be combined with a kind') end,
        towpath._name_refusal(_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.producer_grant (producer, job_kind, executor, granted_by, granted_at)
    values (p_producer, p_job_kind, p_executor, _actor, towpath.fn_now())
    on conflict on constraint producer_grant_uq do nothing
    returning grant_id into _id;
    if found then
        return jsonb_build_object('ok', true, 'grant_id', _id, 'created', true);
    end if;
    select g.grant_id into _id from towpath.producer_grant g
     where g.producer = p_producer and g.job_kind is not distinct from p_job_kind
       and g.executor is not distinct from p_executor;
    return jsonb_build_object('ok', true, 'grant_id', _id, 'created', false);
end;
$$;

-- fn_producer_grant_revoke: revokes one grant.
create or replace function towpath.fn_producer_grant_revoke(p_grant_id uuid) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.producer_grant g where g.grant_id = p_grant_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'grant_id', p_grant_id);
    end if;
    return jsonb_build_object('ok', true, 'grant_id', p_grant_id);
end;
$$;

-- fn_producer_grant_list: what producers may enqueue.
create or replace function towpath.fn_producer_grant_list(p_producer text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'grants', coalesce(jsonb_agg(to_jsonb(g)
               order by g.producer, g.job_kind nulls first, g.executor nulls first), '[]'))
      from towpath.producer_grant g where p_producer is null or g.producer = p_producer
$$;

grant execute on function towpath.fn_executor_kinds() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_subscription_put(text, text, text, text, integer, integer, boolean, text,
    text) to workflow_admin;
grant execute on function towpath.fn_job_subscription_delete(uuid) to workflow_admin;
grant execute on function towpath.fn_job_subscription_list(text) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_consumer_put(text, text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_executor_register(text, text[], text, text) to workflow_admin;
grant execute on function towpath.fn_consumer_delete(text) to workflow_admin;
grant execute on function towpath.fn_consumer_list() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_producer_grant_put(text, text, text, text, boolean) to workflow_admin;
grant execute on function towpath.fn_producer_grant_revoke(uuid) to workflow_admin;
grant execute on function towpath.fn_producer_grant_list(text) to workflow_admin, towpath_observer;
