-- Routes: which events go where, in which mode, signed with what. Only workflow_admin writes.

-- _route_target_refusal: why a target cannot be used, or null.
create or replace function towpath._route_target_refusal(p_target_kind text, p_target jsonb) returns jsonb
    language plpgsql stable
as $$
declare
    _detail text;
    _refusal jsonb;
    _known text[] := case p_target_kind
        when 'job' then array['job_kind', 'executor', 'priority', 'max_attempts', 'target_ref', 'from_payload']
        when 'stream' then array['stream', 'project', 'entity', 'key', 'delete_on']
        when 'process' then array['process_kind', 'ref_key', 'signal']
        else array['url', 'headers', 'timeout_seconds'] end;
begin
    if p_target_kind is null or p_target_kind not in ('job', 'stream', 'webhook', 'process') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'target_kind',
                                  'detail', 'must be one of job, stream, webhook, process');
    elsif jsonb_typeof(p_target) is distinct from 'object' then
        _detail := 'must be a JSON object';
    elsif exists (select 1 from jsonb_object_keys(p_target) k where k <> all (_known)) then
        _detail := format('unknown key %s; known keys: %s',
            (select k from jsonb_object_keys(p_target) k where k <> all (_known) limit 1), array_to_string(_known, ', '));
    elsif towpath._payload_refusal(p_target, 'target') is not null then
        return towpath._payload_refusal(p_target, 'target');
    elsif p_target_kind = 'job' then
        _detail := case
            when coalesce(p_target ->> 'priority', '0') !~ '^[0-9]{1,9}$' then 'priority must be between 0 and 32767'
            when coalesce(p_target ->> 'max_attempts', '1') !~ '^[1-9][0-9]{0,8}$' then 'max_attempts must be between 1 and 1000'
            when jsonb_typeof(coalesce(p_target -> 'from_payload', '{}')) <> 'object'
                 or exists (select 1 from jsonb_each(case when jsonb_typeof(p_target -> 'from_payload') = 'object'
                                                          then p_target -> 'from_payload' else '{}' end) f
                             where f.key not in ('priority', 'scheduled_at', 'target_ref', 'payload_ref', 'run_id')
                                or jsonb_typeof(f.value) <> 'string')
                then 'from_payload must map priority, scheduled_at, target_ref, payload_ref or run_id to a key of the payload'
            end;
        if _detail is null then
            -- What does not come from an event's payload must be valid by itself.
            _refusal := towpath._job_refusal(towpath._job_read(p_target - 'from_payload'));
            _detail := (_refusal ->> 'field') || ' ' || (_refusal ->> 'detail');
        end if;
    elsif p_target_kind = 'stream' then
        _detail := case
            when coalesce(p_target ->> 'stream', '') !~ '^[^/[:space:]][^[:cntrl:]]*$'
                 or octet_length(p_target ->> 'stream') > 512 or not towpath._text_plain(p_target ->> 'stream')
                 or p_target ->> 'stream' ~ '^(__ds|session:)'
                then 'stream must be a stream id that is not reserved by Towpath'
            when coalesce(p_target ->> 'project', 'default') !~ '^[A-Za-z0-9_.-]{1,64}$'
                then 'project must be 1 to 64 letters, digits, _ . and -'
            when p_target ?| array['entity', 'key', 'delete_on'] and not p_target ?& array['entity', 'key']
                then 'entity and key are needed together: what a change is about, and where its key is in the event'
            when p_target ? 'entity' and not coalesce(towpath._key_fits(p_target ->> 'entity'), false)
                then 'entity must be the name of a kind of entity'
            when p_target ? 'key' and coalesce(p_target ->> 'key', '') !~ '^[^.[:cntrl:]]+([.][^.[:cntrl:]]+){0,9}$'
                then 'key must be a path in the event, such as payload.order_id'
            when p_target ? 'delete_on' and (jsonb_typeof(p_target -> 'delete_on') <> 'array'
                 or jsonb_path_exists(p_target, '$.delete_on[*] ? (@.type() != "string")'))
                then 'delete_on must be a list of event types'
            end;
    elsif p_target_kind = 'process' then
        _detail := case
            when not exists (select 1 from towpath.process_kind k where k.process_kind = p_target ->> 'process_kind')
                then 'process_kind must be a registered process kind'
            when coalesce(p_target ->> 'ref_key', '') = '' then 'ref_key must be a key of the payload'
            when towpath._key_fits(p_target ->> 'signal') is not true or p_target ->> 'signal' like 'process:%'
                then 'signal must be the name of a signal'
            end;
    else
        _detail := case
            when coalesce(p_target ->> 'url', '') !~* '^https?://[^/?#@[:space:]\\]+([/?#][^[:space:]]*)?$'
                 or not towpath._ref_fits(p_target ->> 'url')
                then 'url must be http or https, with a host and without a user name'
            when coalesce(p_target ->> 'timeout_seconds', '15') !~ '^([1-9]|[1-5][0-9]|60)$'
                then 'timeout_seconds must be between 1 and 60'
            when jsonb_typeof(coalesce(p_target -> 'headers', '{}')) <> 'object'
                 or exists (select 1 from jsonb_each(case when jsonb_typeof(p_target -> 'headers') = 'object'
                                                          then p_target -> 'headers' else '{}' end) h
                             where h.key !~ '^[A-Za-z0-9-]{1,100}$' or jsonb_typeof(h.value) <> 'string'
                                or not towpath._ref_fits(h.value #>> '{}')
                                or h.key ~* '^(webhook-.*|host|content-length|content-type|transfer-encoding|connection)$')
                then 'headers must be an object of strings, without the headers that the sender sets itself'
            end;
    end if;
    return case when _detail is not null then
        jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'target', 'detail', _detail) end;
end;
$$;

-- fn_route_put: makes a route, switched off, or changes one without touching its mode. Its worker
-- and its kind of target are for life. A route of a worker with a domain is for that domain.
--
-- Answers: {ok, route_no, route_name, mode, created}; invalid, not_found (worker), conflict.
create or replace function towpath.fn_route_put(
    p_route_name text, p_target_kind text, p_target jsonb,
    p_event_domain text default null, p_event_type text default null, p_event_stream text default null,
    p_recipient_filter text default null, p_payload_filter jsonb default '{}', p_ordering text default 'none',
    p_retry_seconds integer[] default null, p_rate_limit_per_second numeric default null,
    p_worker_name text default 'default', p_notes text default null, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := coalesce(
        towpath._invalid('route_name', case when coalesce(p_route_name !~ '^[a-z0-9][a-z0-9_.-]{0,99}$', true)
            then 'must be up to 100 lower case letters, digits, . _ and -, and start with a letter or a digit' end),
        towpath._route_target_refusal(p_target_kind, p_target),
        towpath._name_or_null_refusal(p_event_domain, 'event_domain'),
        towpath._name_or_null_refusal(p_event_type, 'event_type'),
        towpath._name_or_null_refusal(p_event_stream, 'event_stream'),
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
    _worker towpath.route_worker;
    _domain text := p_event_domain;
    _target_no integer;
    _old towpath.outbound_route;
    _new towpath.outbound_route;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _worker from towpath.route_worker w where w.worker_name = p_worker_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'worker_name', p_worker_name);
    end if;
    if _worker.event_domain is not null then
        _domain := coalesce(_domain, _worker.event_domain);
        if _domain <> _worker.event_domain then
            return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'event_domain',
                'detail', format('route worker %s handles only the domain %s', p_worker_name, _worker.event_domain));
        end if;
    end if;
    select * into _old from towpath.outbound_route r where r.route_name = p_route_name;
    if _old.retired_at is not null or _old.worker_no <> _worker.worker_no or _old.target_kind <> p_target_kind then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route_name,
            'detail', 'the worker and target kind of a route cannot change, and the name of a retired route cannot be reused');
    end if;
    if p_target_kind = 'webhook' then
        insert into towpath.delivery_target (target_key)
        values (lower(substring(p_target ->> 'url' from '^[^:]+://[^/?#]+')))
        on conflict (target_key) do nothing;
        select t.target_no into _target_no from towpath.delivery_target t
         where t.target_key = lower(substring(p_target ->> 'url' from '^[^:]+://[^/?#]+'));
        update towpath.delivery d set target_no = _target_no
         where d.route_no = _old.route_no and d.target_no <> _target_no;
    end if;
    insert into towpath.outbound_route as r (route_name, worker_no, event_domain, event_type, event_stream,
        recipient_filter, payload_filter, target_kind, target, target_no, ordering, retry_seconds,
        rate_limit_per_second, notes, changed_by, changed_at)
    values (p_route_name, _worker.worker_no, _domain, p_event_type, p_event_stream, p_recipient_filter,
        coalesce(p_payload_filter, '{}'), p_target_kind, p_target, _target_no, coalesce(p_ordering, 'none'),
        coalesce(p_retry_seconds, '{5,300,1500,5400,10800,18000,14400,21600,14400}'),
        p_rate_limit_per_second, p_notes, _actor, towpath.fn_now())
    on conflict (route_name) do update
       set event_domain = excluded.event_domain, event_type = excluded.event_type,
           event_stream = excluded.event_stream, recipient_filter = excluded.recipient_filter,
           payload_filter = excluded.payload_filter, target = excluded.target, target_no = excluded.target_no,
           ordering = excluded.ordering, retry_seconds = coalesce(p_retry_seconds, r.retry_seconds),
           rate_limit_per_second = excluded.rate_limit_per_second, notes = coalesce(excluded.notes, r.notes),
           changed_by = excluded.changed_by, changed_at = excluded.changed_at
    returning * into _new;
    return jsonb_build_object('ok', true, 'route_no', _new.route_no, 'route_name', p_route_name,
                              'mode', _new.mode, 'created', _old.route_no is null);
exception when check_violation or not_null_violation then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
end;
$$;

-- fn_route_mode_set: off | dry_run | live. Off also holds what is waiting to be sent; live lets it
-- go on at once. Events a cursor has passed are not looked at again: see fn_route_replay.
--
-- Answers: {ok, route_name, mode, old_mode}; invalid, not_found, conflict (retired).
create or replace function towpath.fn_route_mode_set(
    p_route_name text, p_mode text, p_actor text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _refusal jsonb;
    _route towpath.outbound_route;
begin
    if p_mode is null or p_mode not in ('off', 'dry_run', 'live')
       or coalesce(btrim(p_actor), '') = '' or coalesce(btrim(p_reason), '') = '' then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'mode must be off, dry_run or live; actor and reason are required');
    end if;
    _refusal := coalesce(towpath._name_refusal(p_actor, 'actor'), towpath._note_refusal(p_reason, 'reason'));
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _route from towpath.outbound_route r where r.route_name = p_route_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    elsif _route.retired_at is not null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route_name, 'detail', 'retired');
    end if;
    if p_mode = 'live' and _route.target_kind = 'webhook' then
        if not exists (select 1 from towpath.route_secret s where s.route_no = _route.route_no) then
            return jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route_name,
                'detail', 'webhooks are signed; create a signing key with fn_route_secret_rotate first');
        end if;
        update towpath.delivery d set next_at = _now
         where d.delivery_id = any(array(
               select x.delivery_id from towpath.delivery x
                where x.route_no = _route.route_no and x.lease_owner is null and x.attempts = 0 and x.next_at > _now
                order by x.delivery_id for update skip locked));
    end if;
    update towpath.outbound_route r
       set mode = p_mode, mode_reason = p_reason, changed_by = p_actor, changed_at = _now
     where r.route_no = _route.route_no;
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'mode', p_mode, 'old_mode', _route.mode);
end;
$$;

-- fn_route_retire: ends a route permanently. Waiting deliveries are cancelled; those that are being sent
-- finish.
--
-- Answers: {ok, route_name, cancelled}; invalid, not_found, conflict (retired already).
create or replace function towpath.fn_route_retire(p_route_name text, p_actor text, p_reason text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _answer jsonb := towpath.fn_route_mode_set(p_route_name, 'off', p_actor, p_reason);
    _cancelled bigint;
begin
    if not (_answer ->> 'ok')::boolean then
        return _answer;
    end if;
    with gone as (
        delete from towpath.delivery d
         where d.delivery_id = any(array(
               select x.delivery_id from towpath.delivery x
                 join towpath.outbound_route r on r.route_no = x.route_no
                where r.route_name = p_route_name and x.lease_owner is null
                order by x.delivery_id for update of x skip locked))
        returning d.*),
    told as (
        insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner,
            ended_at, outcome, error)
        select g.delivery_id, g.attempts + 1, g.route_no, g.position, g.event_id, p_actor, _now, 'cancelled', p_reason
          from gone g)
    select count(*) into _cancelled from gone;
    _cancelled := _cancelled + towpath._stream_delivery_cancel(r.route_no, p_reason, _now)
      from towpath.outbound_route r where r.route_name = p_route_name;
    update towpath.outbound_route r set retired_at = _now, changed_at = _now where r.route_name = p_route_name;
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'cancelled', _cancelled);
end;
$$;

-- fn_route_secret_rotate: a new signing key for a webhook route. It is answered here and never
-- again; the old one keeps signing beside it for the overlap, so that receivers can change over.
--
-- Answers: {ok, route_name, signing_key, previous_until}; invalid, not_found.
create or replace function towpath.fn_route_secret_rotate(
    p_route_name text, p_signing_key text default null, p_overlap_seconds integer default 86400,
    p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    -- 366 random bits through sha256: 32 bytes without the fixed bits of a uuid.
    _key text := coalesce(p_signing_key, 'whsec_' || encode(sha256(uuid_send(gen_random_uuid())
        || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'base64'));
    _route_no integer;
    _secret towpath.route_secret;
begin
    if _key !~ '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$' or coalesce(p_overlap_seconds, -1) not between 0 and 2592000 then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'a signing key must be whsec_ and 24 to 64 bytes in base64; the overlap must be 0 to 2592000 seconds');
    end if;
    if towpath._name_or_null_refusal(p_actor, 'actor') is not null then
        return towpath._name_or_null_refusal(p_actor, 'actor');
    end if;
    select r.route_no into _route_no from towpath.outbound_route r
     where r.route_name = p_route_name and r.target_kind = 'webhook' and r.retired_at is null;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name,
                                  'detail', 'there is no such webhook route');
    end if;
    insert into towpath.route_secret as s (route_no, secret, changed_by, changed_at)
    values (_route_no, _key, coalesce(p_actor, session_user), _now)
    on conflict (route_no) do update
       set previous = case when p_overlap_seconds > 0 then s.secret end,
           previous_until = case when p_overlap_seconds > 0 then _now + p_overlap_seconds * interval '1 second' end,
           secret = excluded.secret, changed_by = excluded.changed_by, changed_at = excluded.changed_at
    returning * into _secret;
    return jsonb_build_object('ok', true, 'route_name', p_route_name, 'signing_key', _key,
                              'previous_until', _secret.previous_until);
end;
$$;

-- fn_route_test: one made-up webhook for the receiver of a route, signed like a real one, whatever the
-- route's mode. The caller sends it; nothing is recorded, and the event has no position.
--
-- Answers: {ok, route_name, webhook_id, url, headers, timeout_seconds, body, signing_keys};
-- not_found, conflict (not a webhook, retired, or without a signing key).
create or replace function towpath.fn_route_test(p_route_name text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _event_id uuid := gen_random_uuid();
    _route towpath.outbound_route;
    _secret towpath.route_secret;
    _event towpath.event_outbox;
begin
    select * into _route from towpath.outbound_route r where r.route_name = p_route_name;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'route_name', p_route_name);
    end if;
    select * into _secret from towpath.route_secret s where s.route_no = _route.route_no;
    if _route.retired_at is not null or _route.target_kind <> 'webhook' or _secret.secret is null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'route_name', p_route_name, 'detail', case
            when _route.retired_at is not null then 'retired'
            when _route.target_kind <> 'webhook' then 'only webhooks can be tested; for other routes use: towpath events explain'
            else format('the route has no signing key; create one with: towpath routes rotate %s', p_route_name) end);
    end if;
    _event.event_id := _event_id;
    _event.event_domain := coalesce(_route.event_domain, 'towpath');
    _event.event_type := coalesce(_route.event_type, 'route.test');
    _event.event_stream := _route.event_stream;
    _event.actor := session_user;
    _event.created_at := _now;
    _event.payload := _route.payload_filter;
    return jsonb_build_object('ok', true, 'route_name', p_route_name,
        'webhook_id', format('wh_test_%s', replace(_event_id::text, '-', '')),
        'url', _route.target ->> 'url',
        'headers', coalesce(_route.target -> 'headers', '{}'),
        'timeout_seconds', coalesce((_route.target ->> 'timeout_seconds')::integer, 15),
        'body', jsonb_build_object('type', _event.event_domain || '.' || _event.event_type,
            'timestamp', _now, 'test', true, 'data', towpath._event_envelope(_event, null))::text,
        'signing_keys', to_jsonb(array_remove(array[_secret.secret,
            case when _secret.previous_until > _now then _secret.previous end], null)));
end;
$$;

-- fn_route_list: the routes with their health, without signing keys.
create or replace function towpath.fn_route_list(p_route_name text default null, p_retired boolean default false)
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'routes', coalesce(jsonb_agg(
        to_jsonb(r) - 'worker_no' - 'target_no' || jsonb_build_object(
            'worker_name', w.worker_name, 'target_key', t.target_key, 'circuit', t.circuit,
            'blocked_until', case when t.blocked_until > towpath.fn_now() then t.blocked_until end,
            'signed', s.route_no is not null, 'previous_key_until', s.previous_until,
            'last_error', coalesce(t.last_error, (select max(x.last_error) from towpath.route_stream x
                                                   where x.route_no = r.route_no and x.failures > 0)),
            'deliveries_waiting', (select count(*) from towpath.delivery d where d.route_no = r.route_no)
                + (select count(*) from towpath.stream_delivery d where d.route_no = r.route_no),
            'dead_letters_open', (select count(*) from towpath.route_dead_letter l
                                   where l.route_no = r.route_no and l.resolved_at is null))
        order by r.route_name), '[]'))
      from towpath.outbound_route r
      join towpath.route_worker w on w.worker_no = r.worker_no
      left join towpath.delivery_target t on t.target_no = r.target_no
      left join towpath.route_secret s on s.route_no = r.route_no
     where (p_route_name is null or r.route_name = p_route_name) and (p_retired or r.retired_at is null)
$$;

grant execute on function towpath.fn_route_put(text, text, jsonb, text, text, text, text, jsonb, text, integer[],
    numeric, text, text, text) to workflow_admin;
grant execute on function towpath.fn_route_mode_set(text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_route_retire(text, text, text) to workflow_admin;
grant execute on function towpath.fn_route_secret_rotate(text, text, integer, text) to workflow_admin;
grant execute on function towpath.fn_route_list(text, boolean) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_route_test(text) to workflow_admin;
