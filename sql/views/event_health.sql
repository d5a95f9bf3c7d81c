-- v_event_health: the state of events in one row, for the dashboard and v_queue_health (R10). Reads
-- small tables only, however many events are stored.
create or replace view towpath.v_event_health as
select t.last_position,
       t.ticked_at as last_numbered_at,
       r.kept_from,
       c.slowest_lag,
       c.last_run_at as last_route_run_at,
       d.deliveries_waiting,
       d.deliveries_leased,
       d.oldest_delivery_at,
       (select count(*) from towpath.route_dead_letter l where l.resolved_at is null) as route_dead_letters_open,
       (select count(*) from towpath.delivery_target x where x.circuit <> 'closed') as circuits_open,
       b.events_24h,
       b.broadcast_events_24h,
       round(100.0 * b.broadcast_events_24h / nullif(b.events_24h, 0), 2) as broadcast_percent_24h,
       g.routing_enabled,
       g.route_worker_enabled,
       g.delivery_enabled,
       g.subscription_resolution_enabled,
       n.now as checked_at
  from (select towpath.fn_now() as now) n
 cross join (select t.last_position, t.ticked_at from towpath.event_tick t order by t.tick_no desc limit 1) t
 cross join towpath.event_retention r
 cross join lateral (
       select coalesce(max(greatest(t.last_position - m.position, 0)), 0) as slowest_lag, max(m.last_run_at) as last_run_at
         from towpath.route_worker_cursor c
        cross join lateral (select m.position, m.last_run_at from towpath.route_cursor_mark m
                             where m.cursor_no = c.cursor_no order by m.mark_no desc limit 1) m) c
 cross join (
       select count(*) filter (where d.lease_owner is null) as deliveries_waiting,
              count(*) filter (where d.lease_owner is not null) as deliveries_leased,
              min(d.created_at) as oldest_delivery_at
         from towpath._delivery_now d) d
 cross join lateral (
       select coalesce(sum(h.events), 0)::bigint as events_24h, coalesce(sum(h.broadcasts), 0)::bigint as broadcast_events_24h
         from towpath.event_resolution_hour h where h.hour_at > n.now - interval '25 hours') b
 cross join (
       select coalesce(bool_or(c.value = 'true') filter (where c.key = 'event.routing.enabled'), false) as routing_enabled,
              coalesce(bool_or(c.value = 'true') filter (where c.key = 'event.route_worker.enabled'), false)
                  as route_worker_enabled,
              coalesce(bool_or(c.value = 'true') filter (where c.key = 'event.delivery.enabled'), false) as delivery_enabled,
              coalesce(bool_or(c.value <> 'false') filter (where c.key = 'queue.subscription_resolution.enabled'), true)
                  as subscription_resolution_enabled
         from towpath.config c where c.kind = 'gate') g;

grant select on towpath.v_event_health to workflow_admin, towpath_observer;
