-- _job_run_each: every ended attempt of every job as a row of its own. For reading all of them; one job's are
-- found faster by _job_runs.
create or replace view towpath._job_run_each as
select r.job_id, r.attempt, r.refunded, r.picked_at, r.finished_at, r.outcome, r.lease_owner, r.ended_by, r.error, r.result
  from towpath.job_run r where r.job_ids is null
union all
select unnest(r.job_ids), r.attempt, r.refunded, r.picked_at, r.finished_at, r.outcome, r.lease_owner, r.ended_by, r.error, r.result
  from towpath.job_run r where r.job_ids is not null;
