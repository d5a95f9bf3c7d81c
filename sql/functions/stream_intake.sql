-- The intake: messages that any transaction leaves for streams (S07). A commit makes them visible to the store, a
-- rollback leaves nothing. The store appends them in the order of the calls and exactly once: the commit that appends
-- rows also notes their ids, under a number that the next batch must know.

-- _stream_intake_wake: notifies the store, if it sleeps. Takes no lock: until the flag's end has committed, others
-- notify as well.
create or replace function towpath._stream_intake_wake() returns void
    language plpgsql
as $$
begin
    if (select w.armed from towpath.stream_intake_wake w order by w.wake_no desc limit 1) then
        insert into towpath.stream_intake_wake (armed) values (false);
        perform pg_notify('towpath_stream_intake', '');
    end if;
end;
$$;

-- _stream_intake_put: leaves one message.
--
-- Answers: {ok, intake_id}; invalid {field, detail}.
create or replace function towpath._stream_intake_put(p_project text, p_stream text, p_is_json boolean, p_body bytea)
    returns jsonb
    language plpgsql
as $$
declare
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_project, 'project'),
        towpath._key_refusal(p_stream, 'stream'),
        case when p_stream is null then towpath._invalid('stream', 'must be given') end,
        case when p_is_json and p_body = '[]' then towpath._invalid('data', 'must hold a message') end,
        case when coalesce(length(p_body), 0) not between 1 and 1048576 then
            towpath._invalid('data', 'must have 1 to 1048576 bytes') end);
    _id bigint;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.stream_intake (project, stream, is_json, body, created_by, created_at)
    values (p_project, p_stream, p_is_json, p_body, session_user, towpath.fn_now())
    returning intake_id into _id;
    perform towpath._stream_intake_wake();
    return jsonb_build_object('ok', true, 'intake_id', _id);
end;
$$;

-- publish: a JSON message for a stream, in the caller's own transaction. It becomes visible after the commit, once, in
-- the order of the calls; readers and the sessions that follow the stream get it. The stream is created if there is
-- none. An array is several messages, as over HTTP.
--
--     select towpath.publish('orders/7', '{"paid": true}');
--
-- Returns the number of the message in the intake. Raises TP002.
create or replace function towpath.publish(stream text, data jsonb, project text default 'default') returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath._stream_intake_put(project, stream, true, convert_to(data::text, 'UTF8'));
begin
    if not _answer ? 'intake_id' then
        perform towpath._raise_refusal(_answer, format('publish to %s', stream));
    end if;
    return _answer ->> 'intake_id';
end;
$$;

-- append: bytes for a stream, in the caller's own transaction; the same for streams that hold no JSON. The stream must
-- exist when the store takes the bytes in.
--
--     select towpath.append('build/7/log', 'compiled\n'::bytea);
--
-- Returns the number of the message in the intake. Raises TP002.
create or replace function towpath.append(stream text, data bytea, project text default 'default') returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _answer jsonb := towpath._stream_intake_put(project, stream, false, data);
begin
    if not _answer ? 'intake_id' then
        perform towpath._raise_refusal(_answer, format('append to %s', stream));
    end if;
    return _answer ->> 'intake_id';
end;
$$;

-- fn_stream_intake_hold: a store says that it takes the intake in, for p_seconds from now. Of several stores one may:
-- messages must not be divided among them. A store that stopped gives its place up after that time. With p_takes_routes,
-- routes to streams leave their events in the intake too.
--
-- Answers: {ok, held: true}, or {ok, held: false, store_id, address, until}; invalid.
create or replace function towpath.fn_stream_intake_hold(
    p_store_id uuid, p_address text, p_seconds integer default 15, p_takes_routes boolean default false) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _until timestamptz := _now + p_seconds * interval '1 second';
begin
    if p_store_id is null or coalesce(p_seconds, 0) not between 1 and 3600 then
        return towpath._invalid('seconds', 'a store and 1 to 3600 seconds must be given');
    end if;
    insert into towpath.stream_intake_store as s (store_id, address, until, takes_routes)
    values (p_store_id, coalesce(p_address, ''), _until, coalesce(p_takes_routes, false))
    on conflict (is_only) do update set store_id = excluded.store_id, address = excluded.address,
           until = excluded.until, takes_routes = excluded.takes_routes
     where s.store_id = p_store_id or s.until <= _now;
    if found then
        return '{"ok": true, "held": true}';
    end if;
    return (select jsonb_build_object('ok', true, 'held', false, 'store_id', s.store_id, 'address', s.address,
                                      'until', s.until) from towpath.stream_intake_store s);
end;
$$;

-- fn_stream_intake_read: the next messages in the order of the calls, after those of the batch before are deleted and
-- those that a stream refused are marked. p_done are the ids that the store has noted as appended, p_refused is
-- [{intake_id, error}]. A delivery of a route ends with its message, or becomes a dead letter. Only the store that holds
-- the intake may call it.
create or replace function towpath.fn_stream_intake_read(
    p_store_id uuid, p_done bigint[], p_refused jsonb, p_limit integer)
    returns table (intake_id bigint, project text, stream text, is_json boolean, body bytea)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    rows 100
as $$
declare
    _now timestamptz := towpath.fn_now();
    _refused record;
begin
    perform 1 from towpath.stream_intake_store s where s.store_id = p_store_id for update;
    if not found then
        raise exception 'another store takes the intake in' using errcode = 'TP007';
    end if;
    if jsonb_typeof(p_refused) <> 'array' then
        perform towpath._raise_refusal(towpath._invalid('refused', 'must be an array'), 'the intake');
    end if;
    perform towpath._stream_delivery_taken(p_done, p_refused, _now);
    delete from towpath.stream_intake i where i.intake_id = any(p_done);
    for _refused in
        update towpath.stream_intake i set error = left(coalesce(r.error, 'refused'), 2000), refused_at = _now
          from jsonb_to_recordset(p_refused) as r(intake_id bigint, error text)
         where i.intake_id = r.intake_id and i.refused_at is null
        returning i.*
    loop
        perform towpath._event_emit_own('stream.intake_refused', 'alert', 'stream_intake', _refused.intake_id::text,
            jsonb_build_object('project', _refused.project, 'stream', left(_refused.stream, 500),
                               'error', left(_refused.error, 500)));
    end loop;
    return query
        select i.intake_id, i.project, i.stream, i.is_json, i.body from towpath.stream_intake i
         where i.refused_at is null order by i.intake_id limit least(greatest(coalesce(p_limit, 100), 1), 1000);
end;
$$;

-- fn_stream_intake_arm: asks for a notification by the next message, and forgets earlier requests.
--
-- Answers: {ok}.
create or replace function towpath.fn_stream_intake_arm() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _no bigint;
begin
    insert into towpath.stream_intake_wake (armed) values (true) returning wake_no into _no;
    delete from towpath.stream_intake_wake w where w.wake_no < _no;
    return '{"ok": true}';
end;
$$;

-- fn_stream_intake_refused: messages that their stream refused, oldest first.
--
-- Answers: {ok, refused: [{intake_id, project, stream, bytes, created_by, created_at, error, refused_at}]}.
create or replace function towpath.fn_stream_intake_refused(p_limit integer default 100) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'refused', coalesce(jsonb_agg(jsonb_build_object(
               'intake_id', i.intake_id, 'project', i.project, 'stream', i.stream, 'bytes', length(i.body),
               'created_by', i.created_by, 'created_at', i.created_at, 'error', i.error, 'refused_at', i.refused_at)
               order by i.intake_id), '[]'))
      from (select * from towpath.stream_intake x where x.refused_at is not null
             order by x.intake_id limit least(greatest(coalesce(p_limit, 100), 1), 1000)) i
$$;

-- fn_stream_intake_end: what becomes of a refused message: it is tried again, or discarded.
--
-- Answers: {ok, intake_id}; invalid, not_found.
create or replace function towpath.fn_stream_intake_end(p_intake_id bigint, p_action text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if p_action = 'retry' then
        update towpath.stream_intake i set error = null, refused_at = null
         where i.intake_id = p_intake_id and i.refused_at is not null;
    elsif p_action = 'discard' then
        delete from towpath.stream_intake i where i.intake_id = p_intake_id and i.refused_at is not null;
    else
        return towpath._invalid('action', 'must be retry or discard');
    end if;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'intake_id', p_intake_id);
    end if;
    return jsonb_build_object('ok', true, 'intake_id', p_intake_id);
end;
$$;

grant execute on function towpath.publish(text, jsonb, text) to towpath_producer, workflow_admin;
grant execute on function towpath.append(text, bytea, text) to towpath_producer, workflow_admin;
grant execute on function towpath.fn_stream_intake_hold(uuid, text, integer, boolean) to workflow_admin;
grant execute on function towpath.fn_stream_intake_read(uuid, bigint[], jsonb, integer) to workflow_admin;
grant execute on function towpath.fn_stream_intake_arm() to workflow_admin;
grant execute on function towpath.fn_stream_intake_refused(integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_stream_intake_end(bigint, text) to workflow_admin;
