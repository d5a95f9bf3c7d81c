-- Event subscriptions, the registry of recipients, and grants to emit: only workflow_admin
-- writes them, so no one can grant themselves anything (R08).

-- _recipient_refusal: the answer to something that is no recipient, or null.
create or replace function towpath._recipient_refusal(p_recipient_ref text) returns jsonb
    language sql immutable
as $$
    select coalesce(towpath._invalid('recipient_ref',
               case when coalesce(p_recipient_ref !~ '^(role|agency|user|agent):[^[:space:]]+$', true)
                    then 'must be role:, agency:, user: or agent: followed by a name' end),
           towpath._name_refusal(p_recipient_ref, 'recipient_ref'))
$$;

-- fn_event_subscription_put: makes the subscription of a recipient, or changes its mute and notes.
-- It is muted rather than deleted: the row stays and excludes the recipient.
--
-- Answers: {ok, subscription_id, created}; invalid {field, detail}.
create or replace function towpath.fn_event_subscription_put(
    p_recipient_ref text, p_event_domain text, p_event_type text default null, p_event_stream text default null,
    p_scope_subject_table text default null, p_scope_filter jsonb default '{}', p_mute boolean default false,
    p_notes text default null, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _refusal jsonb := coalesce(
        towpath._recipient_refusal(p_recipient_ref),
        towpath._name_refusal(p_event_domain, 'event_domain'),
        towpath._name_or_null_refusal(p_event_type, 'event_type'),
        towpath._name_or_null_refusal(p_event_stream, 'event_stream'),
        towpath._name_or_null_refusal(p_scope_subject_table, 'scope_subject_table'),
        case when jsonb_typeof(p_scope_filter) <> 'object' or pg_column_size(p_scope_filter) > 1024
                  or towpath._payload_deep(p_scope_filter) then
            towpath._invalid('scope_filter', 'must be a JSON object of at most 1024 bytes and 64 levels') end,
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_refusal(_actor, 'actor'));
    _id uuid;
    _created boolean;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.event_subscription as s (recipient_ref, event_domain, event_type, event_stream,
        scope_subject_table, scope_filter, mute, notes, registered_by, registered_at)
    values (p_recipient_ref, p_event_domain, p_event_type, p_event_stream, p_scope_subject_table,
        coalesce(p_scope_filter, '{}'), coalesce(p_mute, false), p_notes, _actor, towpath.fn_now())
    on conflict on constraint event_subscription_uq do update
       set mute = excluded.mute, notes = coalesce(excluded.notes, s.notes),
           registered_by = excluded.registered_by, registered_at = excluded.registered_at
    returning s.subscription_id, s.xmax = 0 into _id, _created;
    return jsonb_build_object('ok', true, 'subscription_id', _id, 'created', _created);
end;
$$;

-- fn_event_subscription_mute: mutes a subscription, or unmutes it.
--
-- Answers: {ok, subscription_id, mute}; not_found, invalid.
create or replace function towpath.fn_event_subscription_mute(
    p_subscription_id uuid, p_mute boolean, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := coalesce(
        case when p_mute is null then towpath._invalid('mute', 'must be true or false') end,
        towpath._name_or_null_refusal(p_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    update towpath.event_subscription s
       set mute = p_mute, registered_by = coalesce(p_actor, session_user), registered_at = towpath.fn_now()
     where s.subscription_id = p_subscription_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'subscription_id', p_subscription_id);
    end if;
    return jsonb_build_object('ok', true, 'subscription_id', p_subscription_id, 'mute', p_mute);
end;
$$;

-- fn_event_subscription_delete: forgets a subscription; broader rows of the recipient decide then.
--
-- Answers: {ok, subscription_id}; not_found.
create or replace function towpath.fn_event_subscription_delete(p_subscription_id uuid) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.event_subscription s where s.subscription_id = p_subscription_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'subscription_id', p_subscription_id);
    end if;
    return jsonb_build_object('ok', true, 'subscription_id', p_subscription_id);
end;
$$;

-- fn_event_subscription_list: the subscriptions, of one recipient or of all.
create or replace function towpath.fn_event_subscription_list(p_recipient_ref text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'subscriptions', coalesce(jsonb_agg(to_jsonb(s) - 'subscription_no'
               order by s.recipient_ref, s.event_domain, s.event_type nulls first, s.event_stream nulls first,
                        s.subscription_no), '[]'))
      from towpath.event_subscription s
     where p_recipient_ref is null or s.recipient_ref = p_recipient_ref
$$;

-- fn_event_actor_put: registers a recipient and who may read events as it (R05): a login role, the
-- tokens of an executor, or both.
--
-- Answers: {ok, recipient_ref}; invalid, not_found (the executor).
create or replace function towpath.fn_event_actor_put(
    p_recipient_ref text, p_login_role text default null, p_notes text default null, p_actor text default null,
    p_executor_id text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _login text := nullif(btrim(p_login_role), '');
    _refusal jsonb := coalesce(
        towpath._recipient_refusal(p_recipient_ref),
        towpath._name_or_null_refusal(_login, 'login_role'),
        towpath._note_refusal(p_notes, 'notes'),
        towpath._name_or_null_refusal(p_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if p_executor_id is not null
       and not exists (select 1 from towpath.consumer_registry r where r.executor_id = p_executor_id) then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'executor_id', p_executor_id,
            'detail', format('there is no executor %s; list them with: towpath executor list', p_executor_id));
    end if;
    insert into towpath.event_actor as a (recipient_ref, login_role, executor_id, notes, registered_by, registered_at)
    values (p_recipient_ref, _login, p_executor_id, p_notes, coalesce(p_actor, session_user), towpath.fn_now())
    on conflict (recipient_ref) do update
       set login_role = excluded.login_role, executor_id = excluded.executor_id,
           notes = coalesce(excluded.notes, a.notes),
           registered_by = excluded.registered_by, registered_at = excluded.registered_at;
    return jsonb_build_object('ok', true, 'recipient_ref', p_recipient_ref);
end;
$$;

-- fn_event_actor_delete: takes a recipient out of the registry, so that no one can read as it.
--
-- Answers: {ok, recipient_ref}; not_found.
create or replace function towpath.fn_event_actor_delete(p_recipient_ref text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.event_actor a where a.recipient_ref = p_recipient_ref;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'recipient_ref', p_recipient_ref);
    end if;
    return jsonb_build_object('ok', true, 'recipient_ref', p_recipient_ref);
end;
$$;

-- fn_event_actor_list: the registry, with how many subscriptions each recipient has.
create or replace function towpath.fn_event_actor_list() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'actors', coalesce(jsonb_agg(to_jsonb(a) || jsonb_build_object(
               'subscriptions', (select count(*) from towpath.event_subscription s
                                  where s.recipient_ref = a.recipient_ref)) order by a.recipient_ref), '[]'))
      from towpath.event_actor a
$$;

-- fn_event_grant_put: lets a login role emit events of a domain and type; null means any.
-- Granting twice is no error.
--
-- Answers: {ok, grant_id, created}; invalid.
create or replace function towpath.fn_event_grant_put(
    p_producer text, p_event_domain text default null, p_event_type text default null, p_actor text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _actor text := coalesce(p_actor, session_user);
    _id uuid;
    _refusal jsonb := coalesce(
        towpath._name_refusal(p_producer, 'producer'),
        towpath._name_or_null_refusal(p_event_domain, 'event_domain'),
        towpath._name_or_null_refusal(p_event_type, 'event_type'),
        towpath._name_refusal(_actor, 'actor'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.event_grant (producer, event_domain, event_type, granted_by, granted_at)
    values (p_producer, p_event_domain, p_event_type, _actor, towpath.fn_now())
    on conflict on constraint event_grant_uq do nothing
    returning grant_id into _id;
    if found then
        return jsonb_build_object('ok', true, 'grant_id', _id, 'created', true);
    end if;
    select g.grant_id into _id from towpath.event_grant g
     where g.producer = p_producer and g.event_domain is not distinct from p_event_domain
       and g.event_type is not distinct from p_event_type;
    return jsonb_build_object('ok', true, 'grant_id', _id, 'created', false);
end;
$$;

-- fn_event_grant_revoke: revokes one grant.
--
-- Answers: {ok, grant_id}; not_found.
create or replace function towpath.fn_event_grant_revoke(p_grant_id uuid) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.event_grant g where g.grant_id = p_grant_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'grant_id', p_grant_id);
    end if;
    return jsonb_build_object('ok', true, 'grant_id', p_grant_id);
end;
$$;

-- fn_event_grant_list: who may emit what.
create or replace function towpath.fn_event_grant_list(p_producer text default null) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'grants', coalesce(jsonb_agg(to_jsonb(g)
               order by g.producer, g.event_domain nulls first, g.event_type nulls first), '[]'))
      from towpath.event_grant g where p_producer is null or g.producer = p_producer
$$;

grant execute on function towpath.fn_event_subscription_put(text, text, text, text, text, jsonb, boolean, text, text)
    to workflow_admin;
grant execute on function towpath.fn_event_subscription_mute(uuid, boolean, text) to workflow_admin;
grant execute on function towpath.fn_event_subscription_delete(uuid) to workflow_admin;
grant execute on function towpath.fn_event_subscription_list(text) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_actor_put(text, text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_event_actor_delete(text) to workflow_admin;
grant execute on function towpath.fn_event_actor_list() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_grant_put(text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_event_grant_revoke(uuid) to workflow_admin;
grant execute on function towpath.fn_event_grant_list(text) to workflow_admin, towpath_observer;
