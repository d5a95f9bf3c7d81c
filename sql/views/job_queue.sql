-- job_queue: every job as one row, with the columns of the contract (Q01).
--
-- The state is what a lease entry or the live row says, otherwise the outcome of the last attempt; below the retention
-- mark a finished job is cleaned. A job with none of the three waits in a bundle: it is queued. scheduled_at is when the
-- job is due next: a due time after its creation is a retry or a delay, one before it was only raised to the lane's
-- floor.
--
-- Of the contract's nine states no job is ever failed: an attempt fails, and its job is retry_waiting or dead_letter
-- then (docs/origins.md).
create or replace view towpath.job_queue as
select j.job_id,
       j.job_kind::text as job_kind,
       case when not f.finished
            then (array['queued', 'leased', 'in_progress', 'retry_waiting'])[coalesce(b.state, v.state, 0) + 1]
            when j.job_id < m.cleaned_below then 'cleaned'
            else r.outcome end as state,
       j.source_ref,
       j.target_ref,
       j.payload_ref,
       j.payload_json::jsonb as payload_json,
       j.priority::integer as priority,
       case when v.due_at > j.created_at then v.due_at else j.scheduled_at end as scheduled_at,
       coalesce(b.picked_at, v.picked_at, r.picked_at) as picked_at,
       case when f.finished then r.finished_at end as finished_at,
       coalesce(b.lease_owner, v.lease_owner) as lease_owner,
       coalesce(b.lease_until, v.lease_until) as lease_until,
       coalesce(b.attempt - b.refunded, v.attempts - v.refunded, r.attempt - r.refunded, 0) as attempts,
       j.max_attempts::integer as max_attempts,
       coalesce(j.idempotency_key, j.job_id::text) as idempotency_key,
       j.actor::text as actor,
       j.run_id,
       r.error as last_error,
       j.created_at,
       greatest(j.created_at, b.picked_at, v.picked_at, v.touched_at, v.progress_at, r.finished_at) as updated_at,
       -- As _job_executor.
       coalesce(j.executor::text, (select e.executor::text from towpath.job_kind_executor e where e.job_kind = j.job_kind),
                'PG_worker') as executor,
       j.event_domain,
       case when v.blocked > 0
            then array(select e.parent_id from towpath.job_edge e
                        where e.child_id = j.job_id and not e.satisfied order by e.parent_id) end as blocked_by,
       case when not f.finished then v.progress_percent
            when r.outcome = 'succeeded' then 100 end::smallint as progress_percent,
       v.progress_note as progress_message,
       v.progress_at,
       j.traceparent,
       j.login,
       r.result
  from towpath.job j
  left join towpath.job_live v on v.job_id = j.job_id
  left join (select i.job_id, 1 as state, e.attempt, e.refunded, e.lease_owner::text as lease_owner, e.lease_until,
                    e.picked_at
               from towpath.lease_entry e
              cross join lateral unnest(e.job_ids) as i(job_id)
              where e.attempt is not null) b on b.job_id = j.job_id
  -- As _job_runs, which readers of the view may not call: a view reads tables by its owner's rights, but calls
  -- functions by the reader's.
  left join lateral (
       select x.attempt, x.refunded, x.picked_at, x.finished_at, x.outcome::text as outcome, x.error, x.result
         from (select r.attempt, r.refunded, r.picked_at, r.finished_at, r.outcome, r.error, r.result
                 from towpath.job_run r where r.job_id = j.job_id and r.job_ids is null
               union all
               (select r.attempt, r.refunded, r.picked_at, r.finished_at, r.outcome, r.error, r.result
                  from towpath.job_run r
                 where r.job_ids is not null and r.job_id >= j.job_id
                   and r.job_id <= towpath._run_reach(j.job_id)
                   and r.job_ids[1] <= j.job_id and j.job_id = any(r.job_ids)
                 order by r.job_id limit 1)) x
        order by x.attempt desc limit 1) r on true
 cross join lateral (select v.job_id is null and b.job_id is null and r.outcome is not null as finished) f
 cross join towpath.job_retention m;

grant select on towpath.job_queue to workflow_admin, towpath_observer;
grant execute on function towpath._run_reach(uuid), towpath._run_span_ms() to workflow_admin, towpath_observer;
