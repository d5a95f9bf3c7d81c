-- v_route_health: one row per route: its mode, how many events its worker lags behind, its target's circuit, and what waits or failed.
create or replace view towpath.v_route_health as
select r.route_name,
       w.worker_name,
       r.event_domain,
       r.event_type,
       r.event_stream,
       r.target_kind,
       r.mode,
       r.mode_reason,
       (select max(greatest(t.last_position - m.position, 0))
          from towpath.route_worker_cursor c
         cross join lateral (select m.position from towpath.route_cursor_mark m where m.cursor_no = c.cursor_no
                              order by m.mark_no desc limit 1) m
         cross join lateral (select t.last_position from towpath.event_tick t order by t.tick_no desc limit 1) t
         where c.worker_no = r.worker_no) as worker_lag,
       t.target_key,
       t.circuit,
       t.failures as target_failures,
       t.failing_since,
       case when t.blocked_until > towpath.fn_now() then t.blocked_until end as blocked_until,
       coalesce(t.last_error, (select max(s.last_error) from towpath.route_stream s
                                where s.route_no = r.route_no and s.failures > 0)) as last_error,
       coalesce(d.waiting, 0) as deliveries_waiting,
       coalesce(d.leased, 0) as deliveries_leased,
       d.oldest_at as oldest_delivery_at,
       coalesce(l.open, 0) as dead_letters_open,
       l.oldest_at as oldest_dead_letter_at,
       r.changed_at,
       r.changed_by
  from towpath.outbound_route r
  join towpath.route_worker w on w.worker_no = r.worker_no
  left join towpath.delivery_target t on t.target_no = r.target_no
  left join (select d.route_no, count(*) filter (where d.lease_owner is null) as waiting,
                    count(*) filter (where d.lease_owner is not null) as leased, min(d.created_at) as oldest_at
               from towpath._delivery_now d group by d.route_no) d on d.route_no = r.route_no
  left join (select d.route_no, count(*) as open, min(d.created_at) as oldest_at
               from towpath.route_dead_letter d where d.resolved_at is null group by d.route_no) l on l.route_no = r.route_no
 where r.retired_at is null;

grant select on towpath.v_route_health to workflow_admin, towpath_observer;
