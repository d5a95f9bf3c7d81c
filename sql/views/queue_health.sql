-- v_queue_health: one row per heartbeat, or one row without any, each with the state of the
-- whole queue beside it (Q14). Unfinished jobs are counted, finished ones come
-- from folded counters, so it stays fast however many jobs have finished: how many ended so since the installation,
-- also those that retention has dropped. No job is ever failed (see job_queue); attempts are.
create or replace view towpath.v_queue_health as
select h.executor_name,
       h.executor_kind,
       h.last_tick_at,
       h.last_tick_status,
       h.seconds_since_tick,
       h.freshness,
       h.ticks_total,
       h.current_job_id,
       h.lease_owner,
       live.jobs_queued,
       live.jobs_leased,
       live.jobs_in_progress,
       live.jobs_retry_waiting,
       done.jobs_succeeded,
       0::bigint as jobs_failed,
       done.jobs_dead_letter,
       done.jobs_cancelled,
       live.jobs_blocked,
       live.leases_expired,
       live.oldest_due_at,
       letter.dead_letters_pending,
       letter.dead_letters_acknowledged,
       letter.dead_letters_manual_replay,
       letter.dead_letters_escalated,
       letter.dead_letters_closed,
       subscription.subscription_rules,
       subscription.subscriptions_enabled,
       (select count(*) from towpath.job_pause) as kinds_paused,
       gate.job_substrate_enabled,
       gate.worker_enabled,
       gate.notify_enabled,
       gate.heartbeat_enabled,
       n.now as checked_at,
       -- Events beside the jobs (R10).
       event.last_position as event_last_position,
       event.slowest_lag as event_slowest_lag,
       event.deliveries_waiting,
       event.route_dead_letters_open,
       event.circuits_open,
       event.events_24h,
       broadcast.broadcast_events_24h,
       broadcast.broadcast_kinds_24h,
       event.routing_enabled,
       event.route_worker_enabled,
       event.delivery_enabled,
       event.subscription_resolution_enabled,
       done.attempts_failed
  from (select towpath.fn_now() as now) n
 cross join lateral (
       select coalesce(sum(v.jobs) filter (where v.state = 0), 0) as jobs_queued,
              coalesce(sum(v.jobs) filter (where v.state = 1), 0) as jobs_leased,
              coalesce(sum(v.jobs) filter (where v.state = 2), 0) as jobs_in_progress,
              coalesce(sum(v.jobs) filter (where v.state = 3), 0) as jobs_retry_waiting,
              count(*) filter (where v.blocked > 0) as jobs_blocked,
              coalesce(sum(v.jobs) filter (where v.lease_until < n.now), 0) as leases_expired,
              min(v.due_at) filter (where v.state in (0, 3) and v.blocked = 0 and v.due_at <= n.now) as oldest_due_at
         from towpath._job_groups v) live
 cross join (
       select coalesce(sum(c.n) filter (where c.outcome = 'succeeded'), 0)::bigint as jobs_succeeded,
              -- Attempts that ended badly and were tried again.
              coalesce(sum(c.n) filter (where c.outcome in ('failed', 'lost')), 0)::bigint as attempts_failed,
              coalesce(sum(c.n) filter (where c.outcome = 'dead_letter'), 0)::bigint as jobs_dead_letter,
              coalesce(sum(c.n) filter (where c.outcome = 'cancelled'), 0)::bigint as jobs_cancelled
         from (select t.outcome, t.n from towpath.job_counter t
               union all
               select d.outcome, d.n from towpath.job_counter_delta d) c) done
 cross join (
       select coalesce(sum(s.n) filter (where s.triage_status = 'pending'), 0)::bigint
                  as dead_letters_pending,
              coalesce(sum(s.n) filter (where s.triage_status = 'acknowledged'), 0)::bigint
                  as dead_letters_acknowledged,
              coalesce(sum(s.n) filter (where s.triage_status = 'manual_replay'), 0)::bigint
                  as dead_letters_manual_replay,
              coalesce(sum(s.n) filter (where s.triage_status = 'escalated'), 0)::bigint
                  as dead_letters_escalated,
              coalesce(sum(s.n) filter (where s.triage_status = 'closed'), 0)::bigint
                  as dead_letters_closed
         from (select c.triage_status, c.letters as n from towpath.job_dead_letter_count c) s) letter
 cross join (
       select coalesce(sum(s.rules), 0)::bigint as subscription_rules,
              coalesce(sum(s.enabled_rules), 0)::bigint as subscriptions_enabled
         from towpath.v_executor_subscription_health s) subscription
 cross join (
       select coalesce(bool_or(c.value = 'true') filter (where c.key = 'queue.job_substrate.enabled'), false)
                  as job_substrate_enabled,
              coalesce(bool_or(c.value = 'true') filter (where c.key = 'queue.worker.enabled'), false)
                  as worker_enabled,
              coalesce(bool_or(c.value = 'true') filter (where c.key = 'queue.notify.enabled'), false)
                  as notify_enabled,
              coalesce(bool_or(c.value = 'true') filter (where c.key = 'queue.heartbeat.enabled'), false)
                  as heartbeat_enabled
         from towpath.config c where c.kind = 'gate') gate
 cross join towpath.v_event_health event
 cross join (
       select coalesce(sum(b.broadcast_events_24h), 0)::bigint as broadcast_events_24h,
              count(*) as broadcast_kinds_24h
         from towpath.v_subscription_broadcast_used b) broadcast
  left join towpath.v_queue_heartbeat h on true;

grant select on towpath.v_queue_health to workflow_admin, towpath_observer;
