-- Executor tokens: the right to work as one executor over HTTP, without a database login.
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
        or not exists (select 1 from towpath.consumer_registry r where r.executor_id = p_token.executor_id)
$$;

-- fn_executor_token_create: a new token for a registered executor. This answer is the only
-- place where the token appears in clear: two random uuids, 244 random bits.
--
-- Answers: {ok, token_id, token, executor_id, expires_at}; invalid {field, detail}, not_found.
create or replace function towpath.fn_executor_token_create(
    p_executor_id text, p_kinds text[] default null, p_may_enqueue boolean default false,
    p_expires_at timestamptz default null, p_notes text default null, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _actor text := coalesce(p_actor, session_user);
    _expires_at timestamptz := coalesce(p_expires_at, _now + interval '90 days');
    _word text := 'tpx_' || replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
    _token_id uuid;
    _refusal jsonb;
begin
    if not exists (select 1 from towpath.consumer_registry r where r.executor_id = p_executor_id) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'executor_id', p_executor_id, 'detail',
            format('there is no executor %s; register it with: towpath executor add', coalesce(to_jsonb(p_executor_id)::text, 'null')));
    end if;
    _refusal := coalesce(
        case when cardinality(p_kinds) not between 1 and 1000 then
            towpath._invalid('kinds', 'must be 1 to 1000 kinds, or null for all subscribed kinds') end,
        (select towpath._name_refusal(k, 'kinds') from unnest(p_kinds) k where towpath._name_fits(k) is not true limit 1),
        towpath._moment_refusal(_expires_at, 'expires_at'),
        case when _expires_at <= _now then towpath._invalid('expires_at', 'must be in the future') end,
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.executor_token (token_hash, executor_id, kinds, may_enqueue, notes, created_at, created_by,
        expires_at)
    values (sha256(convert_to(_word, 'UTF8')), p_executor_id,
        case when p_kinds is not null then array(select distinct k from unnest(p_kinds) k order by k) end,
        coalesce(p_may_enqueue, false), p_notes, _now, _actor, _expires_at)
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
-- Answers: {ok, token_id, executor_id, executor, kinds, may_enqueue, expires_at}; not_authorised.
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
        'kinds', _token.kinds, 'may_enqueue', _token.may_enqueue, 'expires_at', _token.expires_at);
end;
$$;

-- _executor_token_may_enqueue: whether a token may enqueue a kind for an executor (R09): what its
-- executor itself works on, narrowed by the token's kinds, and what producer_grant names for
-- the producer "executor:<executor_id>".
create or replace function towpath._executor_token_may_enqueue(
    p_token towpath.executor_token, p_job_kind text, p_executor text) returns boolean
    language sql stable
as $$
    select p_token.may_enqueue
       and (exists (select 1 from towpath.job_subscription s
                     where s.executor_id = p_token.executor_id and s.enabled and s.executor_kind = p_executor
                       and (s.job_kind is null or s.job_kind = p_job_kind)
                       and (p_token.kinds is null or p_job_kind = any(p_token.kinds)))
            or exists (select 1 from towpath.producer_grant g
                        where g.producer = 'executor:' || p_token.executor_id
                          and (g.job_kind is null or g.job_kind = p_job_kind)
                          and (g.executor is null or g.executor = p_executor)))
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
            format('this token of %s is not allowed to enqueue %s for %s', p_token.executor_id,
                   coalesce(_job.job_kind, 'null'), coalesce(_job.executor, 'null')));
    end if;
    return towpath._job_refusal(_job);
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
end;
$$;

-- fn_executor_token_enqueue: fn_job_enqueue_many for the holder of a token. Rows without an
-- executor are for the one that all enabled subscriptions to their kind name, else for the token's
-- own; the actor is always "executor:<executor_id>". Rows that are refused get the reason, the others go
-- in. At most 1,000 rows.
--
-- Answers: {ok, jobs: [answer of fn_job_enqueue per row], enqueued, duplicates, refused};
-- gate_closed, not_authorised, invalid.
create or replace function towpath.fn_executor_token_enqueue(p_token_hash bytea, p_jobs jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _token towpath.executor_token;
    _own text;
    _rows jsonb;
    _refusals jsonb[];
    _done record;
    _answers jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := coalesce(towpath._executor_token_refusal(_token), _refusal);
    if _refusal is not null then
        return _refusal;
    end if;
    if not _token.may_enqueue then
        return jsonb_build_object('ok', false, 'error', 'not_authorised',
            'detail', format('this token of %s is not allowed to enqueue', _token.executor_id));
    end if;
    if jsonb_typeof(p_jobs) is distinct from 'array' or jsonb_array_length(p_jobs) not between 1 and 1000
       or exists (select 1 from jsonb_array_elements(p_jobs) j where jsonb_typeof(j) <> 'object') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'jobs',
                                  'detail', 'must be an array of 1 to 1000 jobs');
    end if;
    select r.executor into _own from towpath.consumer_registry r where r.executor_id = _token.executor_id;
    select jsonb_agg(jsonb_build_object('executor', coalesce(
                         (select e.executor from towpath.job_kind_executor e where e.job_kind = j.job ->> 'job_kind'), _own))
                     || jsonb_strip_nulls(j.job - 'payload_json')
                     || jsonb_build_object('payload_json', coalesce(j.job -> 'payload_json', '{}'),
                                           'actor', towpath._own_actor('executor', _token.executor_id)) order by j.no)
      into _rows from jsonb_array_elements(p_jobs) with ordinality as j(job, no);
    _refusals := array(select towpath._executor_token_job_refusal(_token, j.job)
                         from jsonb_array_elements(_rows) with ordinality as j(job, no) order by j.no);
    select * into _done from towpath._job_enqueue_rows(coalesce(
        (select jsonb_agg(j.job order by j.no) from jsonb_array_elements(_rows) with ordinality as j(job, no)
          where _refusals[j.no] is null), '[]'));
    select jsonb_agg(coalesce(x.refusal, jsonb_build_object('ok', true, 'job_id', _done.job_ids[x.place],
                         'duplicate', _done.duplicates[x.place])) order by x.no)
      into _answers
      from (select r.refusal, r.no, count(*) filter (where r.refusal is null) over (order by r.no) as place
              from unnest(_refusals) with ordinality as r(refusal, no)) x;
    return jsonb_build_object('ok', true, 'jobs', _answers,
        'enqueued', cardinality(array_positions(_done.duplicates, false)),
        'duplicates', cardinality(array_positions(_done.duplicates, true)),
        'refused', cardinality(_refusals) - cardinality(_done.job_ids));
end;
$$;

grant execute on function towpath.fn_executor_token_create(text, text[], boolean, timestamptz, text, text)
    to workflow_admin;
grant execute on function towpath.fn_executor_token_list(text) to workflow_admin;
grant execute on function towpath.fn_executor_token_revoke(uuid, text) to workflow_admin;
grant execute on function towpath.fn_executor_token_check(bytea) to workflow_admin;
grant execute on function towpath.fn_executor_token_enqueue(bytea, jsonb) to workflow_admin;
