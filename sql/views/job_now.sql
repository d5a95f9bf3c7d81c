-- _job_groups: all unfinished jobs as they are now: a row for each job that is set apart, and one for each bundle. A
-- claimed job shows as leased before anything has settled it. For code that counts; _job_now has a row for each job.
create or replace view towpath._job_groups as
select v.job_id,
       -- All jobs of a bundle, in the order of their ids; job_id is the first. Null if there is one.
       null::uuid[] as job_ids,
       1 as jobs,
       false as bundle,
       v.lane,
       v.due_at::timestamptz as due_at,
       v.blocked::integer as blocked,
       v.refunded::integer as refunded,
       case when b.job_id is null then v.state::smallint else 1::smallint end as state,
       coalesce(b.attempt, v.attempts::integer) as attempts,
       coalesce(b.lease_owner, v.lease_owner) as lease_owner,
       coalesce(b.lease_until, v.lease_until) as lease_until,
       coalesce(b.picked_at, v.picked_at) as picked_at,
       coalesce(b.subscription_no, v.subscription_no) as subscription_no,
       v.progress_percent::smallint as progress_percent,
       v.progress_note,
       v.progress_at,
       v.touched_at
  from towpath.job_live v
  left join (select m.job_id, e.attempt, e.lease_owner::text as lease_owner, e.lease_until, e.picked_at, e.subscription_no
               from towpath.lease_entry e
              cross join lateral unnest(e.job_ids) as m(job_id)
              where e.attempt is not null and not e.bundle) b on b.job_id = v.job_id
union all
select r.job_id, r.job_ids, coalesce(cardinality(r.job_ids), 1), true, r.lane, r.due_at, 0, 0, 0::smallint, 0,
       null, null, null, null, null, null, null, null
  from towpath.job_ready r where r.bundle
union all
select e.job_ids[1], e.job_ids, cardinality(e.job_ids), true, e.lane, e.picked_at, 0, 0, 1::smallint, e.attempt,
       e.lease_owner, e.lease_until, e.picked_at, e.subscription_no, null, null, null, null
  from towpath.lease_entry e where e.bundle;

-- _job_now: the same with a row for each job. For reading all of them; one job is found faster by _job_now_of.
create or replace view towpath._job_now as
select m.job_id, g.lane, g.due_at, g.blocked, g.refunded, g.state, g.attempts, g.lease_owner, g.lease_until, g.picked_at,
       g.subscription_no, g.progress_percent, g.progress_note, g.progress_at, g.touched_at
  from towpath._job_groups g
 cross join lateral unnest(coalesce(g.job_ids, array[g.job_id])) as m(job_id);

-- _job_now_of: one unfinished job as it is now, or no row.
create or replace function towpath._job_now_of(p_job_id uuid)
    returns table (
        job_id uuid, lane integer, due_at timestamptz, blocked integer, refunded integer, state smallint, attempts integer,
        lease_owner text, lease_until timestamptz, picked_at timestamptz, subscription_no integer,
        progress_percent smallint, progress_note text, progress_at timestamptz, touched_at timestamptz)
    language sql stable
as $$
    select p_job_id, g.lane, g.due_at, g.blocked, g.refunded, g.state, g.attempts, g.lease_owner, g.lease_until,
           g.picked_at, g.subscription_no, g.progress_percent, g.progress_note, g.progress_at, g.touched_at
      from (select * from towpath._job_groups g where not g.bundle and g.job_id = p_job_id
            union all
            select * from towpath._job_groups g
             where g.bundle and g.state = 0 and g.job_id <= p_job_id
               and g.job_id >= towpath._uuid7_floor(towpath._uuid7_at(p_job_id) - towpath._ready_ids_span())
            union all
            select * from towpath._job_groups g where g.bundle and g.state = 1) g
     where g.job_id = p_job_id or p_job_id = any(g.job_ids)
$$;
