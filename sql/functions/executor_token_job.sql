-- What the holder of a token may do with jobs that it does not hold, and with events: read, cancel, emit.

-- _executor_token_may_read: whether a token may read jobs of a kind: those it may enqueue, and those its executor
-- is subscribed to, narrowed by the token's kinds.
create or replace function towpath._executor_token_may_read(
    p_token towpath.executor_token, p_job_kind text, p_executor text) returns boolean
    language sql stable
as $$
    select towpath._executor_token_may_enqueue(p_token, p_job_kind, p_executor)
        or ((p_token.kinds is null or p_job_kind = any(p_token.kinds))
            and exists (select 1 from towpath.job_subscription s
                         where s.executor_id = p_token.executor_id
                           and (s.executor_kind = p_executor or p_executor is null and s.job_kind is not null)
                           and (s.job_kind is null or s.job_kind = p_job_kind)))
$$;

-- _executor_token_job: the state of a job that a token may read, or may cancel; otherwise the refusal.
create or replace function towpath._executor_token_job(p_token_hash bytea, p_job_id uuid, p_cancel boolean) returns jsonb
    language plpgsql stable
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
    _job jsonb := towpath._job_state(p_job_id);
    _may boolean;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_refusal(_token);
    if _refusal is not null then
        return _refusal;
    end if;
    if _job is null then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id,
            'detail', format('there is no job %s, or retention dropped it', p_job_id));
    end if;
    _may := case when p_cancel then towpath._executor_token_may_enqueue(_token, _job ->> 'kind', _job ->> 'executor')
                 else towpath._executor_token_may_read(_token, _job ->> 'kind', _job ->> 'executor') end;
    if _may is not true then
        return jsonb_build_object('ok', false, 'error', 'not_authorised', 'job_id', p_job_id, 'detail', case
            when p_cancel then 'this token is not allowed to cancel the job: it may cancel jobs of the kinds it may enqueue'
            else 'this token is not allowed to read the job: it may read jobs of the kinds it may claim or enqueue' end);
    end if;
    return _job;
end;
$$;

-- fn_executor_token_job_state: fn_job_state for the holder of a token. With p_cancel, only if it may cancel the job too.
--
-- Answers: as fn_job_state; not_authorised, not_found.
create or replace function towpath.fn_executor_token_job_state(
    p_token_hash bytea, p_job_id uuid, p_cancel boolean default false) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select towpath._executor_token_job(p_token_hash, p_job_id, coalesce(p_cancel, false))
$$;

-- fn_executor_token_job_cancel: fn_job_cancel for the holder of a token that may enqueue jobs of this kind.
--
-- Answers: {ok, job_id, state}; gate_closed, invalid, not_authorised, not_found, conflict (finished already).
create or replace function towpath.fn_executor_token_job_cancel(
    p_token_hash bytea, p_job_id uuid, p_reason text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _job jsonb := towpath._executor_token_job(p_token_hash, p_job_id, true);
    _refusal jsonb := towpath._note_refusal(p_reason, 'reason');
begin
    if _job -> 'ok' = 'false' or _refusal is not null then
        return case when _job -> 'ok' = 'false' then _job else _refusal end;
    end if;
    return towpath.fn_job_cancel(p_job_id, (select towpath._executor_token_actor(t) from towpath.executor_token t
                                             where t.token_hash = p_token_hash), p_reason);
end;
$$;

-- _executor_token_may_emit: whether a token may emit an event: its own domains, and what event_grant names for the
-- producer "executor:<executor_id>".
create or replace function towpath._executor_token_may_emit(
    p_token towpath.executor_token, p_event_domain text, p_event_type text) returns boolean
    language sql stable
as $$
    select coalesce(p_token.emit && array[p_event_domain, '*'], false)
        or exists (select 1 from towpath.event_grant g
                    where g.producer = 'executor:' || p_token.executor_id
                      and (g.event_domain is null or g.event_domain = p_event_domain)
                      and (g.event_type is null or g.event_type = p_event_type))
$$;

-- fn_executor_token_emit: fn_event_emit_many for the holder of a token, all events or none. Objects are as
-- fn_event_emit_many takes them; the actor is always the token's. At most 1,000 rows.
--
-- Answers: {ok, events: [{ok, event_id, duplicate}], emitted, duplicates}; not_authorised, invalid, with
-- refused: [{index, error, detail}] if it is about rows.
create or replace function towpath.fn_executor_token_emit(p_token_hash bytea, p_events jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
    _done jsonb;
begin
    select * into _token from towpath.executor_token t where t.token_hash = p_token_hash;
    _refusal := towpath._executor_token_refusal(_token);
    if _refusal is not null then
        return _refusal;
    end if;
    if jsonb_typeof(p_events) is distinct from 'array' or jsonb_array_length(p_events) not between 1 and 1000
       or exists (select 1 from jsonb_array_elements(p_events) e where jsonb_typeof(e) <> 'object') then
        return towpath._invalid('events', 'must be an array of 1 to 1000 events');
    end if;
    begin
        _done := towpath.fn_event_emit_many((
            select jsonb_agg(e.event || jsonb_build_object('actor', towpath._executor_token_actor(_token)) order by e.no)
              from jsonb_array_elements(p_events) with ordinality as e(event, no)));
        _refusal := case when _done -> 'ok' = 'false' then _done else towpath._rows_refusal(array(
            select case when towpath._executor_token_may_emit(_token, e.domain, e.type) is not true then
                       jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
                           format('this token is not allowed to emit in the domain %s', coalesce(e.domain, 'null')))
                   when e.done -> 'ok' = 'false' then e.done end
              from (select coalesce(e.event ->> 'event_domain', e.event ->> 'domain') as domain,
                           coalesce(e.event ->> 'event_type', e.event ->> 'type') as type,
                           _done -> 'events' -> (e.no - 1)::integer as done, e.no
                      from jsonb_array_elements(p_events) with ordinality as e(event, no)) e order by e.no), 'events') end;
        if _refusal is not null then
            raise exception using errcode = 'TPX02', message = 'an event was refused';
        end if;
    exception when sqlstate 'TPX02' then
        return _refusal;
    end;
    return _done - 'refused';
end;
$$;

grant execute on function towpath.fn_executor_token_job_state(bytea, uuid, boolean) to workflow_admin;
grant execute on function towpath.fn_executor_token_job_cancel(bytea, uuid, text) to workflow_admin;
grant execute on function towpath.fn_executor_token_emit(bytea, jsonb) to workflow_admin;
