-- v_subscription_broadcast_used: events of the last 24 hours that nobody had subscribed, by domain
-- and type (R03). Counted when they were resolved, so it costs no scan of events and knows
-- scopes and mutes. Towpath's own warnings are not counted.
create or replace view towpath.v_subscription_broadcast_used as
select c.event_domain,
       c.event_type,
       sum(c.broadcasts)::bigint as broadcast_events_24h,
       sum(c.events)::bigint as events_24h,
       round(100.0 * sum(c.broadcasts) / nullif(sum(c.events), 0), 2) as broadcast_percent
  from (select towpath.fn_now() as now) n
 cross join lateral (
       select h.event_domain, h.event_type, h.events, h.broadcasts
         from towpath.event_resolution_hour h where h.hour_at > n.now - interval '25 hours'
       union all
       select d.event_domain, d.event_type, d.events, d.broadcasts
         from towpath.event_resolution_delta d where d.counted_at > n.now - interval '24 hours') c
 group by c.event_domain, c.event_type
having sum(c.broadcasts) > 0;

grant select on towpath.v_subscription_broadcast_used to workflow_admin, towpath_observer;
