-- v_route_attempt: what was decided about events, with names and the idempotency key in full (E07).
create or replace view towpath.v_route_attempt as
select a.position,
       a.event_id,
       w.worker_name,
       r.route_name,
       a.mode,
       a.generation,
       a.decision,
       a.reason,
       (array['exact_match', 'domain_wildcard', 'stream_wildcard', 'domain_only', 'broadcast_fallback'])[a.step] as step,
       a.recipients,
       a.suppressed,
       a.result_id,
       a.error,
       a.attempted_at,
       format('wrk:%s:%s:%s:%s:%s', w.worker_name, coalesce(r.route_name, '-'), a.event_id, a.mode, a.generation)
           as idempotency_key
  from towpath.route_attempt a
  join towpath.route_worker w on w.worker_no = a.worker_no
  left join towpath.outbound_route r on r.route_no = a.route_no;

grant select on towpath.v_route_attempt to workflow_admin, towpath_observer;
