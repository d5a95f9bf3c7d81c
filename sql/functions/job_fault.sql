-- Job faults: jobs that no claim can take, and faults that end with their job (Q22).

-- fn_job_claim_set_aside: tries every job that this executor could claim now alone, and undoes it; the ones that raise are
-- set aside: they wait without a ready row until their next try. For a worker whose claim raised; the next one goes on.
--
-- Answers: {ok, tried, set_aside: [job_id]}; gate_closed.
create or replace function towpath.fn_job_claim_set_aside(p_executor text, p_kinds text[] default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
    _now timestamptz := towpath.fn_now();
    _set record;
    _row record;
    _job_id uuid;
    _tried integer := 0;
    _faulty uuid[] := '{}';
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select s.* into _set from towpath._job_lane_set(p_executor, p_kinds) s;
    for _row in
        select r.ctid as tid, coalesce(r.job_ids, array[r.job_id]) as job_ids
          from unnest(_set.lanes, _set.floors) with ordinality as l(lane, floor_at, no)
         cross join lateral (
               select r.ctid, r.* from towpath.job_ready r
                where r.lane = l.lane and r.due_at >= l.floor_at and r.due_at <= _now
                order by r.due_at, r.job_id limit 5000 for update skip locked) r
         order by l.no, r.due_at, r.job_id limit 5000
    loop
        foreach _job_id in array _row.job_ids loop
            _tried := _tried + 1;
            begin
                perform towpath._job_claim_try(_job_id, _row.tid, _now);
            exception
                when sqlstate 'TPX03' then
                    null; -- It went well and is undone.
                when others then
                    if towpath._error_common(sqlstate) then
                        raise;
                    end if;
                    perform towpath._loop_fault('claim', _job_id::text, format('%s (SQLSTATE %s)', sqlerrm, sqlstate));
                    _faulty := _faulty || _job_id;
            end;
        end loop;
        if _row.job_ids && _faulty then
            perform towpath._job_ready_take(_row.tid, _faulty);
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'tried', _tried, 'set_aside', to_jsonb(_faulty));
end;
$$;

-- _job_claim_try: does to one ready job what a claim does, then raises TPX03.
create or replace function towpath._job_claim_try(p_job_id uuid, p_tid tid, p_now timestamptz) returns void
    language plpgsql
as $$
declare
    _ready towpath.job_ready;
begin
    delete from towpath.job_ready r where r.ctid = p_tid returning * into _ready;
    insert into towpath.lease_entry (lease_until, job_ids, attempt, refunded, lane, wait_ms, lease_owner, picked_at, bundle)
    values (p_now, array[p_job_id], _ready.attempts + 1, _ready.refunded, _ready.lane,
            (date_part('epoch', p_now) - date_part('epoch', _ready.due_at)) * 1000, 'set aside', p_now, _ready.bundle);
    perform to_jsonb(j) from towpath.job j where j.job_id = p_job_id;
    raise exception using errcode = 'TPX03', message = 'it can be claimed';
end;
$$;

-- _job_faults_follow: jobs whose claim was set aside get their ready row back when their next try is due. Faults of a job
-- that has ended, or of a claim of a job that was claimed since, are over.
create or replace function towpath._job_faults_follow(p_now timestamptz) returns void
    language plpgsql
as $$
declare
    _fault record;
    _lanes integer[] := '{}';
begin
    if not exists (select 1 from towpath.loop_fault) then
        return;
    end if;
    for _fault in
        select f.loop_name, f.item, v.job_id, v.state, v.blocked, v.lane, v.due_at
          from (select f.*, case when f.item ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then f.item::uuid end as job_id
                  from towpath.loop_fault f
                 where f.loop_name in ('claim', 'ack', 'fail', 'release', 'start', 'extend') and f.state = 'waiting'
                   and f.next_try_at <= p_now
                 limit 1000 for update skip locked) f
          left join lateral towpath._job_now_of(f.job_id) v on true
    loop
        if _fault.job_id is null or _fault.loop_name = 'claim' and _fault.state in (1, 2) then
            delete from towpath.loop_fault f where f.loop_name = _fault.loop_name and f.item = _fault.item;
        elsif _fault.loop_name = 'claim' and _fault.blocked = 0 and not exists (
                  select 1 from towpath.job_ready r where r.lane = _fault.lane and r.due_at = _fault.due_at
                     and (r.job_id = _fault.job_id or _fault.job_id = any(r.job_ids))) then
            insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
            select v.lane, v.due_at, v.job_id, v.attempts, v.refunded, false
              from towpath.job_live v where v.job_id = _fault.job_id;
            _lanes := _lanes || _fault.lane;
        end if;
    end loop;
    if _lanes <> '{}' then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

grant execute on function towpath.fn_job_claim_set_aside(text, text[]) to worker_service_user;
