-- _delivery_now: everything that waits or is under way outside of any transaction: webhooks, and appends
-- to streams, whose lease and wait are those of their stream. For whoever counts or shows deliveries.
create or replace view towpath._delivery_now as
select d.delivery_id,
       d.route_no,
       'webhook' as target_kind,
       d.position,
       d.event_id,
       d.generation,
       d.attempts,
       d.lease_owner,
       d.lease_until,
       d.next_at,
       d.last_error,
       d.created_at
  from towpath.delivery d
 union all
select d.delivery_id,
       d.route_no,
       'stream',
       d.position,
       d.event_id,
       d.generation,
       s.failures,
       s.lease_owner,
       s.lease_until,
       s.next_at,
       s.last_error,
       d.created_at
  from towpath.stream_delivery d
  join towpath.route_stream s on s.route_stream_no = d.route_stream_no;
