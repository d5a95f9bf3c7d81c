-- v_executor_subscription_health: per executor, what it subscribed and whether it lives (R10).
create or replace view towpath.v_executor_subscription_health as
select s.executor_id,
       count(*) as rules,
       max(s.enabled::integer) as any_enabled,
       count(*) filter (where s.enabled) as enabled_rules,
       count(*) filter (where s.max_parallel is null) as unlimited_rules,
       sum(s.max_parallel) as max_parallel_total,
       min(s.executor_kind::text) as executor_kind,
       bool_or(r.executor_id is not null) as registered,
       max(h.last_tick_at) as last_tick_at
  from towpath.job_subscription s
  left join towpath.consumer_registry r on r.executor_id = s.executor_id
  -- A worker process sends heartbeats as executor@host-pid, an executor over HTTP under its own name.
  left join lateral (
       select max(h.last_tick_at) as last_tick_at from towpath.queue_heartbeat h
        where h.executor_name = s.executor_id or starts_with(h.executor_name, s.executor_id || '@')) h on true
 group by s.executor_id;

grant select on towpath.v_executor_subscription_health to workflow_admin, towpath_observer;
