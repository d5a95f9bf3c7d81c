-- v_route_worker_cursor: where every slice of every worker stands.
create or replace view towpath.v_route_worker_cursor as
select w.worker_name,
       w.slices,
       c.slice,
       m.position,
       t.last_position,
       greatest(t.last_position - m.position, 0) as lag,
       m.runs,
       m.events,
       m.last_run_at,
       m.last_summary,
       w.event_domain
  from towpath.route_worker w
  join towpath.route_worker_cursor c on c.worker_no = w.worker_no
 cross join lateral (select * from towpath.route_cursor_mark m
                      where m.cursor_no = c.cursor_no order by m.mark_no desc limit 1) m
 cross join (select t.last_position from towpath.event_tick t order by t.tick_no desc limit 1) t;

grant select on towpath.v_route_worker_cursor to workflow_admin, towpath_observer;
