-- v_queue_heartbeat: heartbeats with their freshness: fresh up to the threshold, warning up to
-- twice of it, stale beyond (Q13). A process is registered here from its first tick to its end, or until retention
-- forgets one that was killed.
create or replace view towpath.v_queue_heartbeat as
select h.*,
       case when h.seconds_since_tick <= h.stale_threshold_seconds then 'fresh'
            when h.seconds_since_tick <= h.stale_threshold_seconds * 2 then 'warning'
            else 'stale' end as freshness
  from (select h.executor_name, h.executor_kind::text as executor_kind, h.last_tick_at, h.last_tick_status,
               h.ticks_total, h.current_job_id, h.lease_owner, h.metadata::jsonb as metadata, h.created_at, h.updated_at,
               h.created_at as registered_at,
               extract(epoch from towpath.fn_now() - h.last_tick_at)::double precision as seconds_since_tick,
               t.seconds as stale_threshold_seconds
          from towpath.queue_heartbeat h
         cross join (select case when c.value ~ '^[0-9]{1,15}$' and c.value::numeric between c.min_value and c.max_value
                                 then c.value::double precision else c.default_value::double precision end as seconds
                       from towpath.config c where c.key = 'queue.heartbeat.stale_threshold_seconds') t) h;

grant select on towpath.v_queue_heartbeat to workflow_admin, towpath_observer, towpath_maintainer;
