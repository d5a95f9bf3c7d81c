-- Ready rows: one job's place in its lane, or that of a bundle. To take some jobs out of a bundle is to split it.

-- _job_ready_split: takes a ready row apart: each of its jobs that is not taken gets a row of its own. Claimers pass by
-- these rows until this transaction has committed and may sleep by then, so they are woken.
create or replace function towpath._job_ready_split(p_tid tid, p_taken uuid[]) returns void
    language plpgsql
as $$
declare
    _lanes integer[];
begin
    with gone as (
        delete from towpath.job_ready r where r.ctid = p_tid returning r.*),
    alone as (
        insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
        select g.lane, g.due_at, g.each_id, g.attempts, g.refunded, g.bundle
          from (select g.*, unnest(coalesce(g.job_ids, array[g.job_id])) as each_id from gone g) g
         where g.each_id not in (select unnest(p_taken))
        returning lane, due_at)
    select array_agg(distinct a.lane) filter (where a.due_at <= towpath.fn_now()) into _lanes from alone a;
    if _lanes is not null then
        perform towpath._job_wake(_lanes);
    end if;
end;
$$;

-- _job_ready_take: takes jobs out of a ready row. Those of a bundle get their live rows, so that each waits without a
-- place in the queue until its caller gives it one.
create or replace function towpath._job_ready_take(p_tid tid, p_taken uuid[]) returns void
    language plpgsql
as $$
begin
    insert into towpath.job_live (job_id, due_at, lane, max_attempts)
    select j.job_id, r.due_at, r.lane, j.max_attempts
      from towpath.job_ready r
      join towpath.job j on j.job_id = any(coalesce(r.job_ids, array[r.job_id])) and j.job_id = any(p_taken)
     where r.ctid = p_tid and r.bundle;
    perform towpath._job_ready_split(p_tid, p_taken);
end;
$$;

-- _job_ready_set_apart: gives a waiting job of a bundle a ready row and a row in job_live of its own; false if it waits in
-- no bundle. Waits for a claim that is just taking it.
create or replace function towpath._job_ready_set_apart(p_job_id uuid) returns boolean
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _low uuid := towpath._uuid7_floor(towpath._uuid7_at(p_job_id) - towpath._ready_ids_span());
    _ready record;
begin
    select r.ctid as tid, r.lane, r.due_at into _ready from towpath.job_ready r
     where r.bundle and r.job_id >= _low and r.job_id <= p_job_id
       and (r.job_id = p_job_id or p_job_id = any(r.job_ids))
     order by r.job_id desc limit 1 for update;
    if not found then
        return false;
    end if;
    perform towpath._job_ready_take(_ready.tid, array[p_job_id]);
    insert into towpath.job_ready (lane, due_at, job_id, attempts, refunded, bundle)
    values (_ready.lane, _ready.due_at, p_job_id, 0, 0, false);
    return true;
end;
$$;
