-- Ready rows: one job's place in its lane, or that of several that were enqueued by one call and differ in nothing but
-- the id. To take some jobs out of a shared row is to split it.

-- _job_ready_split: takes ready rows apart: each of their jobs that is not taken gets a row of its own. Claimers pass by
-- these rows until this transaction has committed and may sleep by then, so they are woken.
create or replace function towpath._job_ready_split(p_tids tid[], p_taken uuid[]) returns void
    language plpgsql
as $$
declare
    _lanes integer[];
begin
    with gone as (
        delete from towpath.job_ready r where r.ctid = any(p_tids) returning r.*),
    alone as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, moved)
        select g.lane, g.due_at, g.each_id, g.attempts, g.refunded, g.moved
          from (select g.*, unnest(g.job_ids) as each_id from gone g) g
         where g.each_id not in (select unnest(p_taken))
        returning lane, due_at)
    select array_agg(distinct a.lane) filter (where a.due_at <= towpath.fn_now()) into _lanes from alone a;
    if _lanes is not null then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

-- _job_ready_free: gives a job of a shared ready row a row of its own, and the others too; false if it shares none.
create or replace function towpath._job_ready_free(p_job_id uuid, p_lane integer, p_due_at timestamptz) returns boolean
    language plpgsql
as $$
declare
    _low uuid := towpath._uuid7_floor(towpath._uuid7_at(p_job_id) - towpath._ready_ids_span());
    _tid tid;
begin
    select r.ctid into _tid from towpath.job_ready r
     where r.lane = p_lane and r.due_at = p_due_at and r.job_id >= _low and r.job_id <= p_job_id
       and p_job_id = any(r.job_ids)
     order by r.job_id desc limit 1 for update;
    if not found then
        return false;
    end if;
    perform towpath._job_ready_split(array[_tid], '{}');
    return true;
end;
$$;
