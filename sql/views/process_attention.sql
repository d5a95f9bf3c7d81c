-- v_process_attention: the processes that wait for a person, the most urgent deadline first.
create or replace view towpath.v_process_attention as
select p.process_id,
       p.process_kind,
       p.ref,
       h.recorded_at as held_at,
       h.attempt_no,
       h.detail->>'why' as why,
       p.deadline_at,
       p.started_by
  from towpath.process p
  left join lateral (select * from towpath.process_fact f
                      where f.process_id = p.process_id and f.fact = 'held' order by f.fact_no desc limit 1) h on true
 where p.finished_at is null and p.state = 'held'
 order by p.deadline_at;

grant select on towpath.v_process_attention to workflow_admin, towpath_observer;
