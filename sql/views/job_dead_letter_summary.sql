-- v_job_dead_letter_summary: dead letters by kind and triage status.
create or replace view towpath.v_job_dead_letter_summary as
select d.job_kind,
       d.triage_status,
       count(*) as row_count,
       count(d.replayed_job_id) as replayed_count,
       min(d.moved_at) as oldest_moved_at,
       max(d.moved_at) as newest_moved_at
  from towpath.job_dead_letter d
 group by d.job_kind, d.triage_status;

grant select on towpath.v_job_dead_letter_summary to workflow_admin, towpath_observer;
