-- Emit: an event enters the outbox in the transaction that caused it.
--
-- There is no gate: a refused event would be lost while its cause commits. The gates of routing decide
-- what leaves the outbox.

-- _event_producer_may: whether the session may emit this event. The producer is session_user,
-- for the reasons given at _producer_may. Administrators and the owner need no grant.
create or replace function towpath._event_producer_may(p_event_domain text, p_event_type text) returns boolean
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
as $$
begin
    return pg_has_role(session_user, 'workflow_admin', 'member')
        or pg_has_role(session_user, 'towpath_owner', 'member')
        or exists (select 1 from towpath.event_grant g
                    where g.producer = session_user
                      and (g.event_domain is null or g.event_domain = p_event_domain)
                      and (g.event_type is null or g.event_type = p_event_type));
end;
$$;

-- _event_id_fits: whether a producer's own event_id can be taken: a uuid v7 of about now,
-- because events are stored by the day of their id and known twice only while it is kept.
create or replace function towpath._event_id_fits(p_event_id uuid, p_now timestamptz) returns boolean
    language sql stable
as $$
    select substr(p_event_id::text, 15, 1) = '7'
           and towpath._uuid7_at(p_event_id) between p_now - interval '1 day' and p_now + interval '1 hour'
$$;

-- _event_fits: whether the outbox takes an event. The quick check; _event_refusal says why not. No SET
-- clause, so that it is inlined.
create or replace function towpath._event_fits(
    p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text, p_subject_ref text,
    p_ordering_key text, p_actor text, p_payload jsonb) returns boolean
    language sql stable
as $$
    select p_event_domain <> '' and strpos(p_event_domain, ' ') = 0 and octet_length(p_event_domain) <= 200
       and p_event_type <> '' and strpos(p_event_type, ' ') = 0 and octet_length(p_event_type) <= 200
       and (p_event_stream is null or (btrim(p_event_stream) <> '' and octet_length(p_event_stream) <= 200))
       and (p_subject_table is null or (btrim(p_subject_table) <> '' and octet_length(p_subject_table) <= 200))
       and (p_subject_ref is null or (btrim(p_subject_ref) <> '' and octet_length(p_subject_ref) <= 2000))
       and (p_ordering_key is null or (btrim(p_ordering_key) <> '' and octet_length(p_ordering_key) <= 2000))
       and btrim(p_actor) <> '' and octet_length(p_actor) <= 200
       -- In one check: looking for control characters seven times would cost more than the rest.
       and towpath._text_plain(concat(p_event_domain, p_event_type, p_event_stream, p_subject_table, p_subject_ref,
                                      p_ordering_key, p_actor))
       and jsonb_typeof(p_payload) = 'object' and towpath._payload_safe(p_payload) and towpath._payload_small(p_payload)
$$;

-- _event_refusal: why an event is refused, in words, or null if it is not.
create or replace function towpath._event_refusal(
    p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text, p_subject_ref text,
    p_ordering_key text, p_actor text, p_payload jsonb, p_event_id uuid, p_now timestamptz) returns jsonb
    language plpgsql stable
as $$
begin
    return coalesce(
        towpath._name_refusal(p_event_domain, 'event_domain'),
        towpath._name_refusal(p_event_type, 'event_type'),
        towpath._name_or_null_refusal(p_event_stream, 'event_stream'),
        towpath._name_or_null_refusal(p_subject_table, 'subject_table'),
        towpath._key_refusal(p_subject_ref, 'subject_ref'),
        towpath._key_refusal(p_ordering_key, 'ordering_key'),
        towpath._name_refusal(p_actor, 'actor'),
        case when not towpath._event_id_fits(p_event_id, p_now) then
            towpath._invalid('event_id', 'must be null or a uuid v7 made within the last day') end,
        towpath._payload_refusal(p_payload, 'payload'));
end;
$$;

-- fn_event_emit: nothing -> an event, in the caller's own transaction (E01).
--
-- A producer that may have to repeat itself gives its own event_id; the second time answers
-- duplicate. The domain towpath is for Towpath's own warnings. p_actor is what the caller says of itself;
-- if it is not the login, the login is kept beside it.
--
-- Answers: {ok, event_id, duplicate}; not_authorised, invalid {field, detail}.
create or replace function towpath.fn_event_emit(
    p_event_domain  text,
    p_event_type    text,
    p_event_stream  text  default null,
    p_subject_table text  default null,
    p_subject_ref   text  default null,
    p_payload       jsonb default '{}',
    p_actor         text  default null,
    p_ordering_key  text  default null,
    p_event_id      uuid  default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _actor text := coalesce(p_actor, session_user);
    _payload jsonb := coalesce(p_payload, '{}');
    _event_id uuid := p_event_id;
begin
    if p_event_domain = 'towpath' or not (pg_has_role(session_user, 'workflow_admin', 'member')
                                          or towpath._event_producer_may(p_event_domain, p_event_type)) then
        return jsonb_build_object('ok', false, 'error', 'not_authorised',
            'producer', session_user, 'event_domain', p_event_domain, 'event_type', p_event_type,
            'detail', format('%s is not allowed to emit %s/%s; an administrator can grant it, except in the domain towpath',
                             session_user, p_event_domain, p_event_type));
    end if;
    if towpath._event_fits(p_event_domain, p_event_type, p_event_stream, p_subject_table, p_subject_ref,
                           p_ordering_key, _actor, _payload) is not true
       or (p_event_id is not null and not towpath._event_id_fits(p_event_id, _now)) then
        return towpath._event_refusal(p_event_domain, p_event_type, p_event_stream, p_subject_table, p_subject_ref,
                                      p_ordering_key, _actor, _payload, p_event_id, _now);
    end if;
    if _event_id is null then
        _event_id := towpath._uuid7((date_part('epoch', _now) * 1000000)::bigint);
    end if;
    insert into towpath.event_outbox (event_id, event_domain, event_type, event_stream, subject_table, subject_ref,
        ordering_key, actor, created_at, payload, login)
    values (_event_id, p_event_domain, p_event_type, p_event_stream, p_subject_table, p_subject_ref,
        p_ordering_key, _actor, _now, _payload, nullif(session_user::text, _actor))
    on conflict (event_id) do nothing;
    return jsonb_build_object('ok', true, 'event_id', _event_id, 'duplicate', not found);
end;
$$;

-- _event_emit_own: an event of Towpath itself, in the domain towpath. Its types are stable:
-- subscription.broadcast_drift, route.disabled, route.circuit_opened, route.circuit_closed.
create or replace function towpath._event_emit_own(
    p_event_type text, p_event_stream text, p_subject_table text, p_subject_ref text, p_payload jsonb) returns uuid
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
    _event_id uuid := towpath._uuid7((date_part('epoch', _now) * 1000000)::bigint);
begin
    insert into towpath.event_outbox (event_id, event_domain, event_type, event_stream, subject_table, subject_ref,
        actor, created_at, payload)
    values (_event_id, 'towpath', p_event_type, p_event_stream, p_subject_table, p_subject_ref, 'towpath', _now, p_payload);
    return _event_id;
end;
$$;

-- fn_event_emit_many: the rules of fn_event_emit for every row of a batch, in its order.
--
-- p_events is an array of objects with the parameter names of fn_event_emit without p_, or with those of
-- towpath.emit. If no
-- row can be refused one statement inserts them all; otherwise each is inserted by itself, so that
-- good rows are stored and each bad one gets its reason. At most 10,000 rows.
--
-- Answers: {ok, events: [answer of fn_event_emit per row], emitted, duplicates, refused}; invalid.
create or replace function towpath.fn_event_emit_many(p_events jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _micros bigint := (date_part('epoch', _now) * 1000000)::bigint;
    _tail bytea := substring(uuid_send(gen_random_uuid()) from 9);
    _admin boolean := pg_has_role(session_user, 'workflow_admin', 'member');
    _ids uuid[];
    _answers jsonb;
begin
    if jsonb_typeof(p_events) is distinct from 'array' or jsonb_array_length(p_events) > 10000 then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'events',
                                  'detail', 'must be an array of at most 10000 events');
    end if;
    begin
        if not exists (
               select 1 from jsonb_to_recordset(p_events) as r(
                   event_domain text, event_type text, event_stream text, subject_table text, subject_ref text,
                   payload jsonb, actor text, ordering_key text, event_id uuid, domain text, type text, stream text)
                where coalesce(r.event_domain, r.domain) = 'towpath' or r.event_id is not null
                   or not (_admin or towpath._event_producer_may(coalesce(r.event_domain, r.domain),
                                                                 coalesce(r.event_type, r.type)))
                   or towpath._event_fits(coalesce(r.event_domain, r.domain), coalesce(r.event_type, r.type),
                          coalesce(r.event_stream, r.stream), r.subject_table, r.subject_ref, r.ordering_key, coalesce(r.actor, session_user),
                          coalesce(r.payload, '{}')) is not true) then
            _ids := array(select towpath._uuid7(_micros + n, _tail)
                            from generate_series(1, jsonb_array_length(p_events)) n);
            insert into towpath.event_outbox (event_id, event_domain, event_type, event_stream, subject_table,
                subject_ref, ordering_key, actor, created_at, payload, login)
            select _ids[r.no], coalesce(r.event_domain, r.domain), coalesce(r.event_type, r.type),
                   coalesce(r.event_stream, r.stream), r.subject_table, r.subject_ref, r.ordering_key,
                   coalesce(r.actor, session_user), _now, coalesce(r.payload, '{}'),
                   case when r.actor <> session_user then session_user end
              from rows from (jsonb_to_recordset(p_events) as (
                       event_domain text, event_type text, event_stream text, subject_table text, subject_ref text,
                       payload jsonb, actor text, ordering_key text, event_id uuid, domain text, type text,
                       stream text))
                   with ordinality as r(event_domain, event_type, event_stream, subject_table, subject_ref, payload,
                       actor, ordering_key, event_id, domain, type, stream, no)
             order by r.no;
            return jsonb_build_object('ok', true, 'events', (
                       select coalesce(jsonb_agg(jsonb_build_object('ok', true, 'event_id', i.id, 'duplicate', false)
                                                 order by i.no), '[]')
                         from unnest(_ids) with ordinality as i(id, no)),
                'emitted', cardinality(_ids), 'duplicates', 0, 'refused', 0);
        end if;
    exception when data_exception then
        null; -- a row that cannot be read: each by itself
    end;
    select coalesce(jsonb_agg(towpath._event_emit_object(e.event) order by e.no), '[]') into _answers
      from jsonb_array_elements(p_events) with ordinality as e(event, no);
    return jsonb_build_object('ok', true, 'events', _answers,
        'emitted', (select count(*) from jsonb_array_elements(_answers) a where a -> 'duplicate' = 'false'),
        'duplicates', (select count(*) from jsonb_array_elements(_answers) a where a -> 'duplicate' = 'true'),
        'refused', (select count(*) from jsonb_array_elements(_answers) a where a -> 'ok' = 'false'));
end;
$$;

-- _event_emit_object: fn_event_emit for one object of a batch; what cannot be read is invalid.
create or replace function towpath._event_emit_object(p_event jsonb) returns jsonb
    language plpgsql
as $$
declare
    _answer jsonb;
begin
    if jsonb_typeof(p_event) is distinct from 'object' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', 'each event must be a JSON object');
    end if;
    select towpath.fn_event_emit(coalesce(r.event_domain, r.domain), coalesce(r.event_type, r.type),
               coalesce(r.event_stream, r.stream), r.subject_table, r.subject_ref, r.payload, r.actor, r.ordering_key, r.event_id)
      into _answer
      from jsonb_to_record(p_event) as r(
           event_domain text, event_type text, event_stream text, subject_table text, subject_ref text,
           payload jsonb, actor text, ordering_key text, event_id uuid, domain text, type text, stream text);
    return _answer;
exception when data_exception then
    return jsonb_build_object('ok', false, 'error', 'invalid', 'detail', sqlerrm);
end;
$$;

grant execute on function towpath.fn_event_emit(text, text, text, text, text, jsonb, text, text, uuid)
    to towpath_producer, workflow_admin;
grant execute on function towpath.fn_event_emit_many(jsonb) to towpath_producer, workflow_admin;
