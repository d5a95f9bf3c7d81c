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
                         where s.executor_id = p_token.executor_id and s.executor_kind = p_executor
                           and (s.job_kind is null or s.job_kind = p_job_kind)))
$$;

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
                    jsonb_build_object('ok', false, 'error', 'not_found', 'job_id', p_job_id))
$$;

-- fn_job_ended: which of these jobs have ended or are gone. At most 1,000.
--
-- Answers: {ok, ended: [job_id]}; invalid.
create or replace function towpath.fn_job_ended(p_job_ids uuid[]) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
begin
    if coalesce(cardinality(p_job_ids), 0) > 1000 then
        return towpath._invalid('job_ids', 'must be at most 1000 ids');
    end if;
    return jsonb_build_object('ok', true, 'ended', (
        select coalesce(jsonb_agg(a.job_id), '[]')
          from unnest(p_job_ids) as a(job_id)
         where not exists (select 1 from towpath.job_queue q where q.job_id = a.job_id
                              and q.state in ('queued', 'leased', 'in_progress', 'retry_waiting'))));
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

-- fn_executor_token_emit: fn_event_emit_many for the holder of a token. Objects are as fn_event_emit_many takes
-- them; the actor is always the token's. Refused rows get the reason, the others are stored. At most 1,000 rows.
--
-- Answers: {ok, events: [answer of fn_event_emit per row], emitted, duplicates, refused}; not_authorised, invalid.
create or replace function towpath.fn_executor_token_emit(p_token_hash bytea, p_events jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _token towpath.executor_token;
    _refusal jsonb;
    _refusals jsonb[];
    _done jsonb;
    _answers jsonb;
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
    _refusals := array(
        select case when towpath._executor_token_may_emit(_token, e.domain, e.type) is not true then
                   jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
                       format('this token is not allowed to emit in the domain %s', coalesce(e.domain, 'null'))) end
          from (select coalesce(e.event ->> 'event_domain', e.event ->> 'domain') as domain,
                       coalesce(e.event ->> 'event_type', e.event ->> 'type') as type, e.no
                  from jsonb_array_elements(p_events) with ordinality as e(event, no)) e order by e.no);
    _done := towpath.fn_event_emit_many(coalesce(
        (select jsonb_agg(e.event || jsonb_build_object('actor', towpath._executor_token_actor(_token)) order by e.no)
           from jsonb_array_elements(p_events) with ordinality as e(event, no) where _refusals[e.no] is null), '[]'));
    if _done -> 'ok' = 'false' then
        return _done;
    end if;
    select jsonb_agg(coalesce(x.refusal, _done -> 'events' -> (x.place - 1)::integer) order by x.no)
      into _answers
      from (select r.refusal, r.no, count(*) filter (where r.refusal is null) over (order by r.no) as place
              from unnest(_refusals) with ordinality as r(refusal, no)) x;
    return jsonb_build_object('ok', true, 'events', _answers, 'emitted', _done -> 'emitted',
        'duplicates', _done -> 'duplicates',
        'refused', (_done ->> 'refused')::integer + cardinality(array_remove(_refusals, null)));
end;
$$;

grant execute on function towpath.fn_job_state(uuid) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_job_held(uuid, text, integer) to worker_service_user;
grant execute on function towpath.fn_job_ended(uuid[]) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_executor_token_job_state(bytea, uuid, boolean) to workflow_admin;
grant execute on function towpath.fn_executor_token_job_cancel(bytea, uuid, text) to workflow_admin;
grant execute on function towpath.fn_executor_token_emit(bytea, jsonb) to workflow_admin;
