-- fn_queue_latency: how long the newest jobs waited, ran and took in all, by minute.
--
-- Reads the newest p_limit ended attempts by id, so it costs the same however many there are.
-- Each triple is the 50th, 95th and 99th percentile in milliseconds. A job waits from when it
-- was due; the whole is from then to its end.
--
-- Answers: {ok, n, wait, run, whole, minutes: [{minute_at, n, wait, run, whole}]}.
create or replace function towpath.fn_queue_latency(p_limit integer default 5000) returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
    -- The planner does not know the limit; these plans are the ones that read no more than it.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
    with newest as materialized (
        select x.job_id, r.picked_at, r.finished_at
          from (select r.job_id, r.job_ids, r.picked_at, r.finished_at
                  from towpath.job_run r
                 where r.picked_at is not null and r.outcome = 'succeeded'
                 order by r.job_id desc
                 limit least(greatest(coalesce(p_limit, 5000), 1), 20000)) r
         cross join lateral unnest(coalesce(r.job_ids, array[r.job_id])) as x(job_id)
         limit least(greatest(coalesce(p_limit, 5000), 1), 20000)),
    run as materialized (
        select date_trunc('minute', n.finished_at) as minute_at,
               extract(epoch from n.picked_at - greatest(j.created_at, j.scheduled_at)) * 1000 as wait,
               extract(epoch from n.finished_at - n.picked_at) * 1000 as run,
               extract(epoch from n.finished_at - greatest(j.created_at, j.scheduled_at)) * 1000 as whole
          from newest n join towpath.job j on j.job_id = n.job_id),
    minute as (
        select r.minute_at, count(*) as n,
               percentile_disc(array[0.5, 0.95, 0.99]) within group (order by r.wait) as wait,
               percentile_disc(array[0.5, 0.95, 0.99]) within group (order by r.run) as run,
               percentile_disc(array[0.5, 0.95, 0.99]) within group (order by r.whole) as whole
          from run r group by grouping sets ((r.minute_at), ()))
    select jsonb_build_object('ok', true,
               'n', coalesce(max(m.n) filter (where m.minute_at is null), 0),
               'wait', (select m.wait from minute m where m.minute_at is null),
               'run', (select m.run from minute m where m.minute_at is null),
               'whole', (select m.whole from minute m where m.minute_at is null),
               'minutes', coalesce(jsonb_agg(to_jsonb(m) order by m.minute_at)
                                   filter (where m.minute_at is not null), '[]'))
      from minute m
$$;

grant execute on function towpath.fn_queue_latency(integer) to workflow_admin, towpath_observer;
