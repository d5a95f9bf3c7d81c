-- v_subscription_broadcast_used: events of the last 24 hours that nobody had subscribed, by domain
-- and type (R03). fn_event_counter_fold counts each event once, soon after it has a position, by the
-- hour; so this costs no scan of events, knows scopes and mutes, and reaches back 24 to 25 hours.
-- Towpath's own warnings are not counted.
create or replace view towpath.v_subscription_broadcast_used as
select h.event_domain,
       h.event_type,
       sum(h.broadcasts)::bigint as broadcast_events_24h,
       sum(h.events)::bigint as events_24h,
       round(100.0 * sum(h.broadcasts) / nullif(sum(h.events), 0), 2) as broadcast_percent
  from (select towpath.fn_now() as now) n
  join towpath.event_resolution_hour h on h.hour_at > n.now - interval '25 hours'
 group by h.event_domain, h.event_type
having sum(h.broadcasts) > 0;

grant select on towpath.v_subscription_broadcast_used to workflow_admin, towpath_observer;
