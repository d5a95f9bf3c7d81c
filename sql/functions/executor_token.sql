-- Tokens for HTTP, without a database login: to work as one executor, or to enqueue and emit as a producer.
--
-- The server hashes the token a client sends and checks it here; the token itself is in no statement and
-- in no table. Looking a hash up by its index needs no constant-time comparison: what an
-- attacker would have to guess byte by byte is the hash of a word he does not know.

-- _executor_token_refusal: why a token is not accepted, or null.
create or replace function towpath._executor_token_refusal(p_token towpath.executor_token) returns jsonb
    language sql stable
as $$
    select jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail', case
               when p_token.token_id is null then 'the token is unknown'
               when p_token.revoked_at is not null then format('the token was revoked at %s', p_token.revoked_at)
               when p_token.expires_at <= n.now then format('the token expired at %s', p_token.expires_at)
               else format('executor %s is no longer registered', p_token.executor_id) end)
      from (select towpath.fn_now() as now) n
     where p_token.token_id is null or p_token.revoked_at is not null or p_token.expires_at <= n.now
        or p_token.executor_id is not null and not exists (select 1 from towpath.consumer_registry r where r.executor_id = p_token.executor_id)
$$;

-- _executor_token_actor: the name under which the holder of a token acts.
create or replace function towpath._executor_token_actor(p_token towpath.executor_token) returns text
    language sql immutable
as $$
    select case when p_token.executor_id is null then towpath._own_actor('token', p_token.token_id::text)
                else towpath._own_actor('executor', p_token.executor_id) end
$$;

-- fn_executor_token_create: a new token for a registered executor; without one, for a producer. This answer is the
-- only place where the token appears in clear: two random uuids, 244 random bits.
--
-- p_may_register lets it subscribe its executor to kinds. p_produce and p_emit are kinds it may enqueue for any
-- executor, and domains it may emit in; * is all.
--
-- Answers: {ok, token_id, token, executor_id, expires_at}; invalid {field, detail}, not_found.
create or replace function towpath.fn_executor_token_create(
    p_executor_id text, p_kinds text[] default null, p_may_enqueue boolean default false,
    p_expires_at timestamptz default null, p_notes text default null, p_actor text default null,
    p_may_register boolean default false, p_produce text[] default null, p_emit text[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _actor text := coalesce(p_actor, session_user);
    _expires_at timestamptz := coalesce(p_expires_at, _now + interval '90 days');
    _word text := case when p_executor_id is null then 'tpp_' else 'tpx_' end
        || replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
    _token_id uuid;
    _refusal jsonb;
begin
    if p_executor_id is not null
       and not exists (select 1 from towpath.consumer_registry r where r.executor_id = p_executor_id) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'executor_id', p_executor_id, 'detail',
            format('there is no executor %s; register it with: towpath executor add', to_jsonb(p_executor_id)::text));
    end if;
    _refusal := coalesce(
        towpath._names_refusal(p_kinds, 'kinds'),
        towpath._names_refusal(p_produce, 'produce'),
        towpath._names_refusal(p_emit, 'emit'),
        case when p_executor_id is null and num_nonnulls(p_produce, p_emit) = 0 then
            towpath._invalid('executor_id', 'must name an executor, unless the token is for a producer: give produce or emit') end,
        case when p_executor_id is null and (p_kinds is not null or p_may_enqueue or p_may_register) then
            towpath._invalid('executor_id', 'a token without an executor can only produce and emit') end,
        towpath._moment_refusal(_expires_at, 'expires_at'),
        case when _expires_at <= _now then towpath._invalid('expires_at', 'must be in the future') end,
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.executor_token (token_hash, executor_id, kinds, may_enqueue, may_register, produce, emit, notes,
        created_at, created_by, expires_at)
    values (sha256(convert_to(_word, 'UTF8')), p_executor_id,
        case when p_kinds is not null then array(select distinct k from unnest(p_kinds) k order by k) end,
        coalesce(p_may_enqueue, false), coalesce(p_may_register, false),
        case when p_produce is not null then array(select distinct k from unnest(p_produce) k order by k) end,
        case when p_emit is not null then array(select distinct d from unnest(p_emit) d order by d) end,
        p_notes, _now, _actor, _expires_at)
    returning token_id into _token_id;
    return jsonb_build_object('ok', true, 'token_id', _token_id, 'token', _word, 'executor_id', p_executor_id,
                              'expires_at', _expires_at);
end;
$$;

-- fn_executor_token_list: the tokens of one executor or of all, without their hashes.
create or replace function towpath.fn_executor_token_list(p_executor_id text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'tokens', coalesce(jsonb_agg(
        to_jsonb(t) - 'token_hash' || jsonb_build_object('state', case
            when t.revoked_at is not null then 'revoked'
            when t.expires_at <= towpath.fn_now() then 'expired' else 'active' end)
        order by t.executor_id, t.created_at, t.token_id), '[]'))
      from towpath.executor_token t
     where p_executor_id is null or t.executor_id = p_executor_id
$$;

-- fn_executor_token_revoke: the token is rejected from now on. Its leases expire and the
-- reaper returns their jobs.
--
-- Answers: {ok, token_id, changed}; invalid, not_found.
create or replace function towpath.fn_executor_token_revoke(p_token_id uuid, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := towpath._name_refusal(_actor, 'actor');
    _was timestamptz;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select t.revoked_at into _was from towpath.executor_token t where t.token_id = p_token_id for update;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'token_id', p_token_id,
            'detail', format('there is no token %s', p_token_id));
    end if;
    if _was is null then
        update towpath.executor_token t set revoked_at = towpath.fn_now(), revoked_by = _actor
         where t.token_id = p_token_id;
    end if;
    return jsonb_build_object('ok', true, 'token_id', p_token_id, 'changed', _was is null);
end;
$$;

-- fn_executor_token_check: what a token opens. Notes its use, at most once a minute.
--
-- Answers: {ok, token_id, executor_id, executor, kinds, may_enqueue, may_register, expires_at}; not_authorised.
create or replace function towpath.fn_executor_token_check(p_token_hash bytea) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_refusal(_token);
    if _refusal is not null then
        return _refusal;
    end if;
    if coalesce(_token.last_used_at, '-infinity') < towpath.fn_now() - interval '1 minute' then
        -- Another session may record the same use; neither waits for the other.
        update towpath.executor_token t set last_used_at = towpath.fn_now()
         where t.token_id in (select x.token_id from towpath.executor_token x
                               where x.token_id = _token.token_id for update skip locked);
    end if;
    return jsonb_build_object('ok', true, 'token_id', _token.token_id, 'executor_id', _token.executor_id,
        'executor', (select r.executor from towpath.consumer_registry r where r.executor_id = _token.executor_id),
        'kinds', _token.kinds, 'may_enqueue', _token.may_enqueue, 'may_register', _token.may_register, 'expires_at', _token.expires_at);
end;
$$;

-- _executor_token_may_enqueue: whether a token may enqueue a kind for an executor (R09): the kinds it produces; and if
-- it may enqueue, what its executor itself works on, narrowed by the token's kinds, and what producer_grant names for
-- the producer "executor:<executor_id>". No executor: for any that is subscribed to the kind.
create or replace function towpath._executor_token_may_enqueue(
    p_token towpath.executor_token, p_job_kind text, p_executor text) returns boolean
    language sql stable
as $$
    select coalesce(p_token.produce && array[p_job_kind, '*'], false)
       or p_token.may_enqueue
       and (exists (select 1 from towpath.job_subscription s
                     where s.executor_id = p_token.executor_id and s.enabled
                       and (s.executor_kind = p_executor or p_executor is null and s.job_kind is not null)
                       and (s.job_kind is null or s.job_kind = p_job_kind)
                       and (p_token.kinds is null or p_job_kind = any(p_token.kinds)))
            or exists (select 1 from towpath.producer_grant g
                        where g.producer = 'executor:' || p_token.executor_id
                          and (g.job_kind is null or g.job_kind = p_job_kind)
                          and (g.executor is null or g.executor = coalesce(p_executor, 'PG_worker'))))
$$;

-- _executor_token_job_refusal: why one object of a batch is not enqueued, or null.
create or replace function towpath._executor_token_job_refusal(p_token towpath.executor_token, p_job jsonb)
    returns jsonb
    language plpgsql stable
as $$
declare
    _job towpath._job_input;
begin
    _job := towpath._job_read(p_job);
    if not towpath._executor_token_may_enqueue(p_token, _job.job_kind, _job.executor) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
            format('this token of %s is not allowed to enqueue %s for %s', coalesce(p_token.executor_id, 'a producer'),
                   coalesce(_job.job_kind, 'null'), coalesce(_job.executor, 'any executor')));
    end if;
    return towpath._job_refusal(_job);
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
end;
$$;

-- _rows_refusal: the answer to a batch some of whose rows are refused, and therefore all of them: the first reason, and
-- every refused row with its index, counted from 0. Null if none is.
create or replace function towpath._rows_refusal(p_refusals jsonb[], p_field text) returns jsonb
    language sql immutable
as $$
    select jsonb_build_object('ok', false, 'error', min(r.refusal ->> 'error') filter (where r.place = 1),
               'detail', format('%s[%s]: %s; %s of %s were refused, and so were all', p_field, min(r.no) - 1,
                   min(r.refusal ->> 'detail') filter (where r.place = 1), count(*), cardinality(p_refusals)),
               'refused', jsonb_agg(r.refusal - 'ok' || jsonb_build_object('index', r.no - 1) order by r.no))
      from (select r.refusal, r.no, row_number() over (order by r.no) as place
              from unnest(p_refusals) with ordinality as r(refusal, no) where r.refusal is not null) r
    having count(*) > 0
$$;

-- fn_executor_token_enqueue: a batch of jobs for the holder of a token, all of them or none; the actor is always the
-- token's. At most 1,000 rows.
--
-- Rows without an executor are for the one that all enabled subscriptions to their kind name, else for the token's own
-- if that is subscribed to every kind, else for any that is subscribed to the kind when they are claimed.
--
-- Answers: {ok, jobs: [{ok, job_id, duplicate}], enqueued, duplicates}; gate_closed; not_authorised, invalid, with
-- refused: [{index, error, detail}] if it is about rows.
create or replace function towpath.fn_executor_token_enqueue(p_token_hash bytea, p_jobs jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _token towpath.executor_token;
    _own text;
    _rows jsonb;
    _done record;
    _why text := 'another call freed a key at the same time; try again';
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := coalesce(towpath._executor_token_refusal(_token), _refusal);
    if _refusal is not null then
        return _refusal;
    end if;
    if not _token.may_enqueue and _token.produce is null then
        return jsonb_build_object('ok', false, 'error', 'not_authorised',
            'detail', format('this token of %s is not allowed to enqueue', coalesce(_token.executor_id, 'a producer')));
    end if;
    if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) not between 1 and 1000
       or exists (select 1 from jsonb_array_elements(p_jobs) j where jsonb_typeof(j) <> 'object') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'jobs',
                                  'detail', 'must be an array of 1 to 1000 jobs');
    end if;
    select min(s.executor_kind) into _own from towpath.job_subscription s
     where s.executor_id = _token.executor_id and s.enabled and s.job_kind is null;
    select jsonb_agg(jsonb_build_object('executor', coalesce(
                         (select e.executor from towpath.job_kind_executor e where e.job_kind = j.job ->> 'job_kind'), _own))
                     || jsonb_strip_nulls(j.job - 'payload_json')
                     || jsonb_build_object('payload_json', coalesce(j.job -> 'payload_json', '{}'),
                                           'actor', towpath._executor_token_actor(_token)) order by j.no)
      into _rows from jsonb_array_elements(p_jobs) with ordinality as j(job, no);
    for _try in 1 .. 100 loop
        begin
            exit when exists (select 1 from (select distinct r.job_kind, r.executor
                                               from jsonb_to_recordset(_rows) as r(job_kind text, executor text)) r
                               where not towpath._executor_token_may_enqueue(_token, r.job_kind, r.executor));
            select * into _done from towpath._job_enqueue_rows(_rows);
            return jsonb_build_object('ok', true,
                'jobs', (select jsonb_agg(jsonb_build_object('ok', true, 'job_id', d.job_id, 'duplicate', d.duplicate)
                                          order by d.no)
                           from unnest(_done.job_ids, _done.duplicates) with ordinality as d(job_id, duplicate, no)),
                'enqueued', cardinality(array_positions(_done.duplicates, false)),
                'duplicates', cardinality(array_positions(_done.duplicates, true)));
        exception
            when sqlstate 'TPX02' then
                null; -- A key became free: again.
            when check_violation or not_null_violation or data_exception then
                _why := sqlerrm;
                exit;
        end;
    end loop;
    return coalesce(
        towpath._rows_refusal(array(select towpath._executor_token_job_refusal(_token, j.job)
                                      from jsonb_array_elements(_rows) with ordinality as j(job, no) order by j.no), 'jobs'),
        towpath._invalid('jobs', _why));
end;
$$;

-- fn_executor_token_register: fn_executor_register for the holder of a token. p_lease_owner is the process that handles
-- the kinds, p_concurrency how many jobs it runs at once. Kinds whose subscription an operator disabled are named in the
-- answer.
--
-- Answers: {ok, executor, kinds, added: [kind], disabled: [kind]}; not_authorised, invalid.
create or replace function towpath.fn_executor_token_register(
    p_token_hash bytea, p_kinds text[], p_lease_owner text default null, p_concurrency integer default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
    _answer jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := coalesce(
        towpath._executor_token_refusal(_token),
        case when not _token.may_register then jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
            'this token is not allowed to register kinds; create one with: towpath executor token create NAME --register') end,
        case when p_kinds is null then towpath._invalid('kinds', 'must be 1 to 1000 names') end,
        towpath._names_refusal(p_kinds, 'kinds'),
        case when not p_kinds <@ _token.kinds then jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
            format('this token of %s covers only %s', _token.executor_id, array_to_string(_token.kinds, ', '))) end,
        towpath._key_refusal(p_lease_owner, 'lease_owner'),
        case when p_concurrency not between 1 and 1000000 then
            towpath._invalid('concurrency', 'must be between 1 and 1000000') end);
    if _refusal is not null then
        return _refusal;
    end if;
    _answer := towpath.fn_executor_register(_token.executor_id, p_kinds, p_actor => towpath._executor_token_actor(_token));
    if _answer -> 'ok' = 'false' then
        return _answer;
    end if;
    if p_lease_owner is not null then
        perform towpath._queue_worker_see(p_lease_owner, _token.executor_id, p_kinds, p_concurrency, towpath.fn_now());
    end if;
    return _answer || jsonb_build_object('disabled', (
            select coalesce(jsonb_agg(s.job_kind order by s.job_kind), '[]') from towpath.job_subscription s
             where s.executor_id = _token.executor_id and s.job_kind = any(p_kinds) and not s.enabled));
end;
$$;

grant execute on function towpath.fn_executor_token_register(bytea, text[], text, integer) to workflow_admin;
grant execute on function towpath.fn_executor_token_create(text, text[], boolean, timestamptz, text, text, boolean, text[],
    text[]) to workflow_admin;
grant execute on function towpath.fn_executor_token_list(text) to workflow_admin;
grant execute on function towpath.fn_executor_token_revoke(uuid, text) to workflow_admin;
grant execute on function towpath.fn_executor_token_check(bytea) to workflow_admin;
grant execute on function towpath.fn_executor_token_enqueue(bytea, jsonb) to workflow_admin;
