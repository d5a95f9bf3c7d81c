-- v_job_queue_backlog: unfinished jobs by kind and state. Reads unfinished jobs only, so
-- finished ones cost nothing; the age of a job is in its id.
create or replace view towpath.v_job_queue_backlog as
select b.job_kind,
       b.state,
       b.row_count,
       towpath._uuid7_at(b.oldest::uuid) as oldest_created_at,
       towpath._uuid7_at(b.newest::uuid) as newest_created_at,
       b.next_scheduled_at,
       b.avg_attempts,
       b.max_attempts,
       b.blocked_count,
       p.paused_at is not null as paused
  from (select l.job_kind,
               (array['queued', 'leased', 'in_progress', 'retry_waiting'])[v.state + 1] as state,
               sum(v.jobs) as row_count,
               min(v.job_id::text collate "C") as oldest,
               max(coalesce(v.job_ids[v.jobs], v.job_id)::text collate "C") as newest,
               min(v.due_at) filter (where v.state in (0, 3) and v.blocked = 0) as next_scheduled_at,
               round(sum((v.attempts - v.refunded) * v.jobs)::numeric / sum(v.jobs), 2) as avg_attempts,
               max(v.attempts - v.refunded) as max_attempts,
               count(*) filter (where v.blocked > 0) as blocked_count
          from towpath._job_groups v
          join towpath.job_lane l on l.lane = v.lane
         group by l.job_kind, v.state) b
  left join towpath.job_pause p on p.job_kind = b.job_kind;

grant select on towpath.v_job_queue_backlog to workflow_admin, towpath_observer;
grant execute on function towpath._uuid7_at(uuid) to workflow_admin, towpath_observer;
