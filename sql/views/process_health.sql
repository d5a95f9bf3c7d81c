-- v_process_health: one row per process kind: what is unfinished, and whether supervision keeps up.
create or replace view towpath.v_process_health as
select k.process_kind,
       k.supervisor,
       coalesce(u.open, 0) as open,
       coalesce(u.held, 0) as held,
       coalesce(u.overdue, 0) as overdue,
       u.oldest_check_at,
       u.next_deadline_at
  from towpath.process_kind k
  left join (select p.process_kind,
                    count(*) filter (where p.state = 'open') as open,
                    count(*) filter (where p.state = 'held') as held,
                    count(*) filter (where p.next_check_at < n.now) as overdue,
                    min(p.next_check_at) as oldest_check_at,
                    min(p.deadline_at) as next_deadline_at
               from towpath.process p cross join (select towpath.fn_now() as now) n
              where p.finished_at is null
              group by p.process_kind) u on u.process_kind = k.process_kind;

grant select on towpath.v_process_health to workflow_admin, towpath_observer;
