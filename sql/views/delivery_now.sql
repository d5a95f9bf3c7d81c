-- _delivery_now: everything that waits or is in flight outside of any transaction: webhooks, and appends
-- to streams, whose lease and wait are those of their stream. behind is the earlier delivery of its ordering key that
-- it waits for. For what counts or shows deliveries.
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
       d.created_at,
       (select e.delivery_id from towpath.delivery e
         where e.route_no = d.route_no and e.ordering_key = d.ordering_key and e.position < d.position
           and not exists (select 1 from towpath.loop_fault f
                            where f.loop_name = 'webhook_delivery' and f.item = e.delivery_id::text and f.state = 'dropped')
         order by e.position limit 1) as behind
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
       d.created_at,
       null
  from towpath.stream_delivery d
  join towpath.route_stream s on s.route_stream_no = d.route_stream_no;
