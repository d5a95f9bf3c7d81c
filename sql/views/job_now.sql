-- _job_now: job_live with the lease entries read into it, so that a claimed job shows as leased
-- before anything has settled it. For whoever reads states; whoever changes them settles first.
create or replace view towpath._job_now as
select v.job_id,
       v.lane,
       v.due_at,
       v.max_attempts,
       v.blocked,
       v.refunded,
       case when b.job_id is null then v.state::smallint else 1::smallint end as state,
       coalesce(b.attempt, v.attempts::integer) as attempts,
       coalesce(b.lease_owner, v.lease_owner::text) as lease_owner,
       coalesce(b.lease_until, v.lease_until) as lease_until,
       coalesce(b.picked_at, v.picked_at) as picked_at,
       coalesce(b.subscription_no, v.subscription_no) as subscription_no,
       v.progress_percent,
       v.progress_note,
       v.progress_at,
       v.touched_at
  from towpath.job_live v
  left join (select m.job_id, e.attempt, e.lease_owner, e.lease_until, e.picked_at, e.subscription_no
               from towpath.lease_entry e
              cross join lateral unnest(e.job_ids) as m(job_id)
              where e.attempt is not null) b
    on b.job_id = v.job_id and b.attempt = v.attempts + 1 and v.state in (0, 3) and v.blocked = 0;
