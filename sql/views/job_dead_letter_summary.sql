-- v_job_dead_letter_summary: dead letters by kind and triage status. Reads their counts and the ends of an index, so it
-- stays fast however many there are (Q14). Their ids have the order in which they were moved.
create or replace view towpath.v_job_dead_letter_summary as
select c.job_kind,
       c.triage_status,
       c.row_count,
       c.replayed_count,
       (select d.moved_at from towpath.job_dead_letter d
         where d.triage_status = c.triage_status and d.job_kind = c.job_kind
         order by d.dead_letter_id limit 1) as oldest_moved_at,
       (select d.moved_at from towpath.job_dead_letter d
         where d.triage_status = c.triage_status and d.job_kind = c.job_kind
         order by d.dead_letter_id desc limit 1) as newest_moved_at
  from (select x.job_kind, x.triage_status, sum(x.letters)::bigint as row_count, sum(x.replayed)::bigint as replayed_count
          from towpath.job_dead_letter_count x
         group by x.job_kind, x.triage_status having sum(x.letters) > 0) c;

grant select on towpath.v_job_dead_letter_summary to workflow_admin, towpath_observer;
