-- After the sequencer: a route of each kind, what it did last, and what it could not deliver.
\set ON_ERROR_STOP on
set client_min_messages = warning;
set synchronous_commit = off;
select towpath.fn_route_put('ship', 'job', '{"job_kind": "order.ship"}', 'sales', p_actor => 'bench');
select towpath.fn_route_put('partner', 'webhook', '{"url": "https://partner.example/hook"}', 'billing', p_actor => 'bench');
select towpath.fn_route_worker_put('default', 1, (select max(position) from towpath.event_position), 'bench');

insert into towpath.route_attempt (position, worker_no, route_no, mode, event_id, decision, reason, step, error,
                                   attempted_at)
select p.position, r.worker_no, r.route_no, 'live', p.event_id, case when p.position % 50 = 0 then 'failed' else 'skipped' end,
       'filter', 5, case when p.position % 50 = 0 then 'no partition' end, now()
  from towpath.event_position p join towpath.outbound_route r on r.route_name = case when p.position % 2 = 0 then 'ship' else 'partner' end
 where p.position > (select max(position) from towpath.event_position) - 300000;
insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation, position,
    event_id, event_snapshot, error, attempts, idempotency_key, created_at)
select towpath._uuid7((extract(epoch from now()) * 1000000)::bigint + p.position), 'delivery', r.worker_no, r.route_no,
       r.route_name, 'live', 0, p.position, p.event_id, '{}', 'the receiver answered 500', 9, 'bench-' || p.position, now()
  from towpath.event_position p join towpath.outbound_route r on r.route_name = 'partner'
 where p.position % 200 = 0;
insert into towpath.delivery_attempt (delivery_id, attempt, route_no, position, event_id, lease_owner, ended_at, outcome,
    status_code, duration_ms, error)
select towpath._uuid7((extract(epoch from now()) * 1000000)::bigint - p.position), 1, r.route_no, p.position, p.event_id,
       'bench', now(), case when p.position % 10 = 0 then 'retry' else 'delivered' end, 200, 30, null
  from towpath.event_position p join towpath.outbound_route r on r.route_name = 'partner'
 where p.position % 5 = 0;
vacuum analyze;
