-- The stream of a job, job/{job_id}, as far as the database knows it: where the job stands, what a handler with a
-- database connection appended, and tokens to follow one job.
--
-- The server writes the stream, and only for jobs that somebody follows. It asks fn_job_watch about all of them in one
-- query and copies what is new, so a job that nobody follows costs nothing.

-- _job_state: what a client wants to know of one job; null if there is none. A dead letter outlives its job.
create or replace function towpath._job_state(p_job_id uuid) returns jsonb
    language plpgsql stable
as $$
begin
    return coalesce(
        (select jsonb_build_object('ok', true, 'job_id', q.job_id, 'kind', q.job_kind, 'executor', q.executor,
                    'state', q.state, 'attempt', q.attempts, 'max_attempts', q.max_attempts,
                    'percent', q.progress_percent, 'message', q.progress_message, 'result', q.result,
                    'error', q.last_error,
                    'scheduled_at', q.scheduled_at, 'created_at', q.created_at, 'finished_at', q.finished_at)
           from towpath.job_queue q where q.job_id = p_job_id),
        (select jsonb_build_object('ok', true, 'job_id', d.job_id, 'kind', d.job_kind, 'executor', d.executor,
                    'state', 'dead_letter', 'attempt', d.attempts, 'max_attempts', d.max_attempts,
                    'percent', null, 'message', null, 'result', null, 'error', d.final_error,
                    'scheduled_at', null, 'created_at', d.created_at, 'finished_at', d.moved_at)
           from towpath.job_dead_letter d where d.job_id = p_job_id));
end;
$$;

-- fn_job_state: where one job stands.
--
-- Answers: {ok, job_id, kind, executor, state, attempt, max_attempts, percent, message, result, error, scheduled_at,
-- created_at, finished_at}; not_found.
create or replace function towpath.fn_job_state(p_job_id uuid) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(towpath._job_state(p_job_id),
                    jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id,
                        'detail', format('there is no job %s, or retention dropped it', p_job_id)))
$$;

-- fn_job_watch: for each of these jobs whether it has ended or is gone, and a mark that changes with everything its
-- stream shows. At most 1,000.
--
-- Answers: {ok, jobs: [{job_id, ended, mark}]}; invalid.
create or replace function towpath.fn_job_watch(p_job_ids uuid[]) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
begin
    if coalesce(cardinality(p_job_ids), 0) > 1000 then
        return towpath._invalid('job_ids', 'must be at most 1000 ids');
    end if;
    return jsonb_build_object('ok', true, 'jobs', (
        select coalesce(jsonb_agg(jsonb_build_object('job_id', a.job_id,
                   'ended', coalesce(q.state, '') not in ('queued', 'leased', 'in_progress', 'retry_waiting'),
                   'mark', concat_ws(' ', q.state, q.attempts, q.progress_percent, q.progress_at, c.attempt, c.chunk_no))), '[]')
          from unnest(p_job_ids) as a(job_id)
          left join lateral (select q.state, q.attempts, q.progress_percent, q.progress_at from towpath.job_queue q
                              where q.job_id = a.job_id) q on true
          left join lateral (select c.attempt, c.chunk_no from towpath.job_chunk c where c.job_id = a.job_id
                              order by c.attempt desc, c.chunk_no desc limit 1) c on true));
end;
$$;

-- fn_job_held: whether the owner holds this attempt. Changes nothing: for what a holder does outside of the database.
--
-- Answers: {ok, job_id}; lease_lost.
create or replace function towpath.fn_job_held(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
begin
    if not exists (select 1 from towpath._job_now v
                    where v.job_id = p_job_id and v.state in (1, 2) and v.lease_owner = p_lease_owner
                      and v.attempts = p_attempt) then
        return towpath._job_lost(p_job_id);
    end if;
    return jsonb_build_object('ok', true, 'job_id', p_job_id);
end;
$$;

-- fn_job_append: keeps a value for the stream of a job that the owner holds. The live row is locked, so the lease is
-- held until this commits, and numbers have no gaps. At most 10,000 for an attempt.
--
-- Answers: {ok, job_id, key}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_append(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_data jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _refusal jsonb := coalesce(
        towpath._gate_refusal('queue.job_substrate.enabled'),
        case when p_data is null or not towpath._result_fits(p_data) then towpath._invalid('data',
            'must be at most 64 KiB, 64 levels deep, and have no number beyond 1e308; store more with: payload_put') end);
    _no integer;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if towpath._job_lock_held(array[p_job_id], p_lease_owner, array[p_attempt]) = '{}' then
        return towpath._job_lost(p_job_id);
    end if;
    select coalesce(max(c.chunk_no) + 1, 0) into _no from towpath.job_chunk c
     where c.job_id = p_job_id and c.attempt = p_attempt;
    if _no >= 10000 then
        return towpath._invalid('data', 'this attempt has appended 10000 values; append fewer, larger ones');
    end if;
    insert into towpath.job_chunk (job_id, attempt, chunk_no, data) values (p_job_id, p_attempt, _no, p_data);
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'key', format('%s.%s', p_attempt, _no));
end;
$$;

-- fn_job_chunks: what was appended to a job after this one, in order, up to 100.
--
-- Answers: {ok, chunks: [{attempt, no, data}]}.
create or replace function towpath.fn_job_chunks(p_job_id uuid, p_attempt integer, p_no integer) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'chunks', coalesce(jsonb_agg(
               jsonb_build_object('attempt', c.attempt, 'no', c.chunk_no, 'data', c.data) order by c.attempt, c.chunk_no), '[]'))
      from (select * from towpath.job_chunk c
             where c.job_id = p_job_id and (c.attempt, c.chunk_no) > (coalesce(p_attempt, -1), coalesce(p_no, -1))
             order by c.attempt, c.chunk_no limit 100) c
$$;

-- _base64url: bytes as a token writes them.
create or replace function towpath._base64url(p_data bytea) returns text
    language sql immutable
as $$
    select translate(encode(p_data, 'base64'), E'+/=\n', '-_')
$$;

-- _hmac_sha256: RFC 2104, for a key of at most 64 bytes.
create or replace function towpath._hmac_sha256(p_key bytea, p_data bytea) returns bytea
    language plpgsql immutable
as $$
declare
    _inner bytea := decode(repeat('36', 64), 'hex');
    _outer bytea := decode(repeat('5c', 64), 'hex');
begin
    for _at in 0 .. length(p_key) - 1 loop
        _inner := set_byte(_inner, _at, get_byte(_inner, _at) # get_byte(p_key, _at));
        _outer := set_byte(_outer, _at, get_byte(_outer, _at) # get_byte(p_key, _at));
    end loop;
    return sha256(_outer || sha256(_inner || p_data));
end;
$$;

-- fn_job_token_key: the key that signs tokens of jobs, for the server that verifies them. Its name tells it from keys
-- that an operator adds to the project of jobs.
--
-- Answers: {ok, kid, secret}, the secret in base64.
create or replace function towpath.fn_job_token_key() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'kid', 'database-' || left(encode(sha256(k.secret), 'hex'), 16), 'secret', towpath._base64url(k.secret))
      from towpath.job_token_key k
$$;

-- fn_job_token_key_rotate: a new key in place of the old one; audited. Servers refuse tokens of the old one within seconds.
--
-- Answers: {ok, kid}; invalid.
create or replace function towpath.fn_job_token_key_rotate(p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := towpath._name_refusal(_actor, 'actor');
    _kid text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    update towpath.job_token_key set secret = default;
    _kid := towpath.fn_job_token_key() ->> 'kid';
    perform towpath.fn_audit_record(_actor, 'job key rotate', 'jobs', _kid, 'ok');
    return jsonb_build_object('ok', true, 'kid', _kid);
end;
$$;

-- fn_job_token: a token for a page in a browser that follows one job: it may read the job and its stream, and cancel it.
-- Who may enqueue the job may make one. A JSON Web Token, signed here: the key does not leave the database for it.
--
-- Answers: {ok, job_id, token, expires_at}; invalid, not_authorised, not_found.
create or replace function towpath.fn_job_token(p_job_id uuid, p_seconds integer default 3600) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _job jsonb := towpath._job_state(p_job_id);
    _expires_at timestamptz := date_trunc('second', towpath.fn_now()) + make_interval(secs => p_seconds);
    _signed text;
begin
    if coalesce(p_seconds, 0) not between 1 and 604800 then
        return towpath._invalid('seconds', 'must be between 1 and 604800, a week');
    end if;
    if _job is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id,
            'detail', format('there is no job %s, or retention dropped it', p_job_id));
    end if;
    if not towpath._producer_may(_job ->> 'kind', _job ->> 'executor') then
        return towpath._producer_refusal(_job ->> 'kind', _job ->> 'executor');
    end if;
    _signed := towpath._base64url(convert_to(
                   jsonb_build_object('alg', 'HS256', 'typ', 'JWT', 'kid', towpath.fn_job_token_key() -> 'kid')::text, 'UTF8'))
        || '.' || towpath._base64url(convert_to(
                   jsonb_build_object('sub', 'jobs', 'scope', 'read', 'exp', extract(epoch from _expires_at)::bigint,
                       'stream_id', jsonb_build_array('job/' || p_job_id), 'job_id', p_job_id)::text, 'UTF8'));
    return jsonb_build_object('ok', true, 'job_id', p_job_id, 'expires_at', _expires_at, 'token', _signed || '.'
        || towpath._base64url(towpath._hmac_sha256((select k.secret from towpath.job_token_key k), convert_to(_signed, 'UTF8'))));
end;
$$;

grant execute on function towpath.fn_job_state(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_watch(uuid[]) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_held(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_append(uuid, text, integer, jsonb) to worker_service_user;
grant execute on function towpath.fn_job_chunks(uuid, integer, integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_token_key() to workflow_admin;
grant execute on function towpath.fn_job_token_key_rotate(text) to workflow_admin;
grant execute on function towpath.fn_job_token(uuid, integer) to towpath_producer, workflow_admin;
