-- The payload store: data that jobs and events name instead of carrying it (Q25).
--
-- Who may read a payload: the login that stored it, an administrator, and the executor that holds the lease of a
-- job whose payload_ref names it; and if it is the result of a job, who may read the job. A project that has a key
-- stores nothing unencrypted. Its cipher is in the programs (docs/decisions/0014): PostgreSQL has none without an
-- extension, and the master key that wraps the keys of projects is in no database.

-- _payload_bytes_max: a payload is held in memory whole, here and in every program that passes it on.
create or replace function towpath._payload_bytes_max() returns integer
    language sql immutable parallel safe
    return 16777216;

-- _payload_id: the id in a reference to a stored payload; null for any other reference.
create or replace function towpath._payload_id(p_ref text) returns uuid
    language sql immutable parallel safe
    return case when p_ref ~ '^payload:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then substr(p_ref, 9)::uuid end;

-- _payload_key: the newest key of a project; null where nothing is encrypted. Reading it holds off an erasure
-- until the transaction ends.
create or replace function towpath._payload_key(p_project text) returns towpath.payload_key
    language sql stable
as $$ select k from towpath.payload_key k where k.project = p_project order by k.key_id desc limit 1 $$;

-- _payload_place_refusal: why nothing can be stored for a project, or null.
create or replace function towpath._payload_place_refusal(p_project text, p_key towpath.payload_key) returns jsonb
    language plpgsql stable
as $$
begin
    if coalesce(p_project, '') !~ '^[A-Za-z0-9_.-]{1,64}$' then
        return towpath._invalid('project', 'must be 1 to 64 letters, digits, _ . and -');
    elsif p_key.erased_at is not null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'project', p_project, 'detail',
            format('the key of project %s was erased at %s; an administrator can create a new one with: '
                   'towpath payload key rotate %s', p_project, p_key.erased_at, p_project));
    end if;
    return null;
end;
$$;

-- _payload_put: nothing -> a payload, in the caller's own transaction. p_payload_id and p_key_id come from
-- fn_payload_prepare, for data that is encrypted already.
create or replace function towpath._payload_put(
    p_data bytea, p_content_type text, p_project text, p_created_by text, p_payload_id uuid, p_key_id bigint)
    returns jsonb
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
    _id uuid := coalesce(p_payload_id, towpath._uuid7((date_part('epoch', _now) * 1000000)::bigint));
    _key towpath.payload_key := towpath._payload_key(p_project);
    _refusal jsonb := towpath._payload_place_refusal(p_project, _key);
    -- What the cipher adds: a nonce and a tag.
    _bytes integer := octet_length(p_data) - case when p_key_id is null then 0 else 28 end;
    _field text;
    _detail text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if _bytes is null then
        _field := 'data'; _detail := 'must not be null';
    elsif _bytes > towpath._payload_bytes_max() then
        _field := 'data';
        _detail := format('%s bytes exceed the limit of %s; store them in an object store and pass a reference', _bytes,
                          towpath._payload_bytes_max());
    elsif coalesce(p_content_type, '') !~ '^[!-~][ -~]{0,199}$' then
        _field := 'content_type'; _detail := 'must be 1 to 200 printable characters';
    elsif towpath._uuid7_at(_id) not between _now - interval '1 hour' and _now + interval '1 hour' then
        _field := 'payload_id'; _detail := 'must be an id from fn_payload_prepare, less than an hour old';
    end if;
    if _field is not null then
        return towpath._invalid(_field, _detail);
    end if;
    if _key.key_id is not null and p_key_id is null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'project', p_project, 'detail',
            format('project %s encrypts its payloads, which the database cannot do; '
                   'store it over HTTP, with the Rust library or with: towpath payload put --project %s', p_project, p_project));
    elsif p_key_id is not null and not exists (
            select 1 from towpath.payload_key k
             where k.key_id = p_key_id and k.project = p_project and k.erased_at is null) then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'project', p_project,
            'detail', format('key %s of project %s is gone; encrypt the payload with the current key', p_key_id, p_project));
    end if;
    insert into towpath.payload (payload_id, project, key_id, content_type, data, created_at, created_by)
    values (_id, p_project, p_key_id, p_content_type, p_data, _now, p_created_by)
    on conflict do nothing;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'detail', format('payload:%s already exists', _id));
    end if;
    return jsonb_build_object('ok', true, 'payload_ref', 'payload:' || _id);
end;
$$;

-- _payload_gone: the answer to a reference that names nothing.
create or replace function towpath._payload_gone(p_ref text) returns jsonb
    language sql stable
    return jsonb_build_object('ok', false, 'error', 'not_found', 'detail',
        format('there is no payload %s: it was deleted, or dropped after payload.retention.drop_after_days', p_ref));

-- _payload_read: a payload as programs take it: data and, where it is encrypted, the wrapped key.
create or replace function towpath._payload_read(p_ref text) returns jsonb
    language plpgsql stable
as $$
declare
    _payload towpath.payload;
    _key towpath.payload_key;
begin
    select * into _payload from towpath.payload p where p.payload_id = towpath._payload_id(p_ref);
    if not found then
        return towpath._payload_gone(p_ref);
    end if;
    if _payload.key_id is not null then
        select * into _key from towpath.payload_key k where k.key_id = _payload.key_id;
        if _key.wrapped is null then
            return jsonb_build_object('ok', false, 'error', 'not_found', 'detail',
                format('%s can no longer be read: the key of project %s was erased', p_ref, _payload.project));
        end if;
    end if;
    return jsonb_build_object('ok', true, 'payload_ref', p_ref, 'project', _payload.project,
        'content_type', _payload.content_type, 'created_at', _payload.created_at, 'created_by', _payload.created_by,
        'key_id', _payload.key_id, 'wrapped', translate(encode(_key.wrapped, 'base64'), E'\n', ''),
        'data', translate(encode(_payload.data, 'base64'), E'\n', ''));
end;
$$;

-- payload_put: stores JSON and returns its reference, in the caller's own transaction.
--
-- Raises TP002 (larger than 16 MiB, no project name), TP007 (the project stores encrypted payloads only).
create or replace function towpath.payload_put(data jsonb, project text default 'default') returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return towpath.payload_put_bytes(convert_to(data::text, 'UTF8'), 'application/json', project);
end;
$$;

-- payload_put_bytes: the same for any other data.
create or replace function towpath.payload_put_bytes(
    data bytea, content_type text default 'application/octet-stream', project text default 'default') returns text
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath._payload_put(data, content_type, project, session_user, null, null);
begin
    if _answer -> 'ok' <> 'true' then
        perform towpath._raise_refusal(_answer, 'payload_put');
    end if;
    return _answer ->> 'payload_ref';
end;
$$;

-- payload_get: JSON by its reference, for the login that stored it and for administrators.
--
-- Raises TP005, TP006 (no such payload, not any more, its key was erased), TP007 (encrypted, or no JSON).
create or replace function towpath.payload_get(ref text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath.fn_payload_get(ref);
begin
    if _answer -> 'ok' = 'true' and _answer ->> 'key_id' is not null then
        _answer := jsonb_build_object('ok', false, 'error', 'conflict', 'detail',
            format('%s is encrypted, and the database cannot decrypt it; read it with: towpath payload get %s', ref, ref));
    elsif _answer -> 'ok' = 'true' and _answer ->> 'content_type' <> 'application/json' then
        _answer := jsonb_build_object('ok', false, 'error', 'conflict', 'detail',
            format('%s is %s, not JSON; read it with: towpath payload get %s', ref, _answer ->> 'content_type', ref));
    end if;
    if _answer -> 'ok' <> 'true' then
        perform towpath._raise_refusal(_answer, 'payload_get');
    end if;
    return convert_from(decode(_answer ->> 'data', 'base64'), 'UTF8')::jsonb;
end;
$$;

-- fn_payload_prepare: what a program needs before it stores a payload: an id, and the project's key where
-- it has one. The id is part of what the cipher seals, so a row's data fits no other row.
--
-- Answers: {ok, payload_id, key_id, wrapped}; invalid, conflict (the key was erased).
create or replace function towpath.fn_payload_prepare(p_project text default 'default') returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _key towpath.payload_key := towpath._payload_key(p_project);
begin
    return coalesce(towpath._payload_place_refusal(p_project, _key), jsonb_build_object('ok', true,
        'payload_id', towpath._uuid7((date_part('epoch', towpath.fn_now()) * 1000000)::bigint),
        'key_id', _key.key_id, 'wrapped', translate(encode(_key.wrapped, 'base64'), E'\n', '')));
end;
$$;

-- fn_payload_put: stores a payload for a program, with the id and the key of fn_payload_prepare.
--
-- Answers: {ok, payload_ref}; invalid {field, detail}, conflict.
create or replace function towpath.fn_payload_put(
    p_data bytea, p_content_type text, p_project text default 'default', p_payload_id uuid default null,
    p_key_id bigint default null) returns jsonb
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$ select towpath._payload_put(p_data, p_content_type, p_project, session_user, p_payload_id, p_key_id) $$;

-- fn_executor_token_payload_put: the same for the holder of a token that may enqueue.
--
-- Answers: {ok, payload_ref}; not_authorised, invalid {field, detail}, conflict.
create or replace function towpath.fn_executor_token_payload_put(
    p_token_hash bytea, p_data bytea, p_content_type text, p_project text default 'default',
    p_payload_id uuid default null, p_key_id bigint default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_refusal(_token);
    if _refusal is null and not _token.may_enqueue and _token.produce is null then
        _refusal := jsonb_build_object('ok', false, 'error', 'not_authorised',
            'detail', format('this token of %s is not allowed to enqueue, and therefore not to store payloads',
                             coalesce(_token.executor_id, 'a producer')));
    end if;
    return coalesce(_refusal, towpath._payload_put(p_data, p_content_type, p_project, towpath._executor_token_actor(_token),
                                                   p_payload_id, p_key_id));
end;
$$;

-- fn_payload_get: a payload by its reference, for the login that stored it and for administrators, whose
-- reads are audited.
--
-- Answers: {ok, payload_ref, project, content_type, created_at, created_by, key_id, wrapped, data}, where
-- data and wrapped are base64; invalid, not_authorised, not_found.
create or replace function towpath.fn_payload_get(p_ref text, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _answer jsonb := coalesce(towpath._name_refusal(_actor, 'actor'), towpath._payload_read(p_ref));
begin
    if _answer -> 'ok' <> 'true' then
        return _answer;
    elsif pg_has_role(session_user, 'workflow_admin', 'member') then
        perform towpath.fn_audit_record(_actor, 'payload get', p_ref, null, 'ok');
    elsif _answer ->> 'created_by' <> session_user then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
            format('%s is not allowed to read %s; only its producer, an administrator and the worker of a job that references it are',
                   session_user, p_ref));
    end if;
    return _answer;
end;
$$;

-- fn_payload_delete: deletes one payload, for the login that stored it and for administrators; audited. A job that still
-- names it fails with the reason when it asks for the data.
--
-- Answers: {ok, payload_ref}; invalid, not_authorised, not_found.
create or replace function towpath.fn_payload_delete(p_ref text, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := towpath._name_refusal(_actor, 'actor');
    _owner text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select p.created_by into _owner from towpath.payload p where p.payload_id = towpath._payload_id(p_ref) for update;
    if not found then
        return towpath._payload_gone(p_ref);
    elsif _owner <> session_user and not pg_has_role(session_user, 'workflow_admin', 'member') then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
            format('%s may not delete %s; the login that stored it may, and an administrator', session_user, p_ref));
    end if;
    delete from towpath.payload p where p.payload_id = towpath._payload_id(p_ref);
    perform towpath.fn_audit_record(_actor, 'payload delete', p_ref, null, 'ok');
    return jsonb_build_object('ok', true, 'payload_ref', p_ref);
end;
$$;

-- fn_job_payload: the payload that a job names in payload_ref, for the executor that holds its lease.
--
-- Answers: as fn_payload_get; gate_closed, lease_lost, not_found (the job names none, or it is gone).
create or replace function towpath.fn_job_payload(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _ref text;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if towpath._job_lock_held(array[p_job_id], p_lease_owner, array[p_attempt]) = '{}' then
        return towpath._job_lost(p_job_id);
    end if;
    select j.payload_ref into _ref from towpath.job j where j.job_id = p_job_id;
    if towpath._payload_id(_ref) is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'detail',
            format('job %s references no stored payload: its payload_ref is %s', p_job_id, coalesce(to_jsonb(_ref)::text, 'null')));
    end if;
    return towpath._payload_read(_ref);
end;
$$;

-- _result_refusal: why results cannot be kept, or null. One that does not fit into its run becomes a payload.
create or replace function towpath._result_refusal(p_results jsonb[]) returns jsonb
    language plpgsql stable
as $$
declare
    -- With its type, because a literal would be cast to an array of the table's type, which has the same name.
    _key towpath.payload_key := towpath._payload_key('default'::text);
begin
    if exists (select 1 from unnest(p_results) r where towpath._payload_deep(r) or towpath._number_huge(r)) then
        return towpath._invalid('result', 'must be at most 64 levels deep, and have no number beyond 1e308');
    end if;
    if exists (select 1 from unnest(p_results) r where octet_length(r::text) > towpath._payload_bytes_max()) then
        return towpath._invalid('result', 'must be at most 16 MiB; store it in an object store and return a reference');
    end if;
    return case when _key.key_id is not null then towpath._invalid('result',
        'must be at most 64 KiB: a larger one becomes a payload of the project default, which stores encrypted ones only') end;
end;
$$;

-- _result_stored: what a run keeps of a large result: {payload_ref} of a payload that belongs to the job.
create or replace function towpath._result_stored(p_job_id uuid, p_result jsonb) returns jsonb
    language plpgsql
as $$
begin
    return jsonb_build_object('payload_ref', towpath._payload_put(convert_to(p_result::text, 'UTF8'), 'application/json', 'default',
        towpath._own_actor('job', p_job_id::text), null, null) ->> 'payload_ref');
end;
$$;

-- fn_job_result_payload: the payload that the result of a job became, for who may read the job. A reference that a handler
-- returned by itself gives no access.
--
-- Answers: as fn_payload_get; not_authorised, not_found.
create or replace function towpath.fn_job_result_payload(p_job_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _ref text := towpath._job_state(p_job_id) -> 'result' ->> 'payload_ref';
    _answer jsonb;
begin
    if towpath._payload_id(_ref) is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id,
            'detail', format('the result of job %s is not a payload', p_job_id));
    end if;
    _answer := towpath._payload_read(_ref);
    if _answer -> 'ok' = 'true' and _answer ->> 'created_by' <> towpath._own_actor('job', p_job_id::text) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'job_id', p_job_id,
            'detail', format('job %s returned a reference to %s, which it did not store', p_job_id, _ref));
    end if;
    return _answer;
end;
$$;

grant execute on function towpath.payload_put(jsonb, text) to towpath_producer, workflow_admin;
grant execute on function towpath.payload_put_bytes(bytea, text, text) to towpath_producer, workflow_admin;
grant execute on function towpath.payload_get(text) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_payload_prepare(text) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_payload_put(bytea, text, text, uuid, bigint) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_executor_token_payload_put(bytea, bytea, text, text, uuid, bigint)
    to workflow_admin;
grant execute on function towpath.fn_payload_get(text, text) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_payload_delete(text, text) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_job_payload(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_result_payload(uuid) to towpath_observer, workflow_admin;
