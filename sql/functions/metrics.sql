-- Numbers for monitoring: the state of everything in one answer, read every few seconds.
--
-- Whatever may be large is read within a bound: rows of unfinished jobs are sampled by pages,
-- rows that are only counted are counted to a hundred thousand. What has finished comes from
-- folded counters.

-- _metrics_kinds: the kinds of jobs that are named in answers: those that were before, then the
-- busiest, p_max of them in all. The others are reported together as other.
create or replace function towpath._metrics_kinds(p_named text[], p_max integer) returns text[]
    language plpgsql stable
as $$
begin
    return array(
        select k.job_kind
          from (select l.job_kind, coalesce(max(c.n), 0) as n
                  from (select l.job_kind from towpath.job_lane l union select c.job_kind from towpath.job_counter c) l
                  left join (select c.job_kind, sum(c.n) as n from towpath.job_counter c group by c.job_kind) c
                    on c.job_kind = l.job_kind
                 group by l.job_kind) k
         order by k.job_kind = any(p_named) desc, k.n desc, k.job_kind
         limit p_max);
end;
$$;

-- _metrics_sample: how many per cent of a table make 1,000 pages.
create or replace function towpath._metrics_sample(p_table regclass) returns real
    language sql stable
    return least(100.0, 100.0 * 1000 / greatest(pg_relation_size(p_table) / current_setting('block_size')::bigint, 1));

-- _metrics_jobs: unfinished jobs by kind and state, ended attempts by kind and outcome, the oldest job
-- that is due by kind, due jobs that no live worker handles by kind and cause, dead letters by status.
--
-- Of a large job_live or job_ready 1,000 pages are read, and the counts scaled: an estimate beyond about fifty
-- thousand unfinished jobs. The oldest job that is due is one index entry per lane, as for a claim.
create or replace function towpath._metrics_jobs(p_kinds text[], p_now timestamptz) returns jsonb
    language plpgsql stable
    set jit = off
as $$
declare
    _live real := towpath._metrics_sample('towpath.job_live');
    _ready real := towpath._metrics_sample('towpath.job_ready');
    _depth jsonb;
    _finished jsonb;
    _oldest jsonb;
    _unhandled jsonb;
    _letters jsonb;
begin
    select coalesce(jsonb_agg(jsonb_build_object('kind', d.kind, 'state', d.state, 'n', round(d.n))), '[]')
      into _depth
      from (select case when l.job_kind = any(p_kinds) then l.job_kind else 'other' end as kind, g.state,
                   sum(g.n)::numeric as n
              from (select v.lane,
                           case when v.blocked > 0 then 'blocked'
                                when b.job_id is not null then 'leased'
                                else (array['queued', 'leased', 'in_progress', 'retry_waiting'])[v.state + 1] end as state,
                           100 / _live as n
                      from towpath.job_live v tablesample system (_live)
                      left join (select m.job_id
                                   from towpath.lease_entry e
                                  cross join lateral unnest(e.job_ids) as m(job_id)
                                  where e.attempt is not null and not e.bundle) b on b.job_id = v.job_id
                    union all
                    select r.lane, 'queued', coalesce(cardinality(r.job_ids), 1) * (100 / _ready)
                      from towpath.job_ready r tablesample system (_ready) where r.bundle
                    union all
                    select e.lane, 'leased', cardinality(e.job_ids) from towpath.lease_entry e where e.bundle) g
              join towpath.job_lane l on l.lane = g.lane
             group by 1, 2) d;
    select coalesce(jsonb_agg(jsonb_build_object('kind', f.kind, 'outcome', f.outcome, 'n', f.n)), '[]')
      into _finished
      from (select case when c.job_kind = any(p_kinds) then c.job_kind else 'other' end as kind, c.outcome,
                   sum(c.n) as n
              from towpath.job_counter c group by 1, 2) f;
    select coalesce(jsonb_agg(jsonb_build_object('kind', o.kind,
               'seconds', extract(epoch from p_now - o.due_at))), '[]')
      into _oldest
      from (select case when l.job_kind = any(p_kinds) then l.job_kind else 'other' end as kind,
                   min(r.due_at) as due_at
              from (select l.lane, l.job_kind from towpath.job_lane l limit 10000) l
             cross join lateral (
                   select r.due_at from towpath.job_ready r
                    where r.lane = l.lane
                      and r.due_at >= coalesce((select f.floor_at from towpath.job_floor f where f.lane = l.lane
                                                 order by f.floor_no desc limit 1), '-infinity')
                    order by r.due_at, r.job_id limit 1) r
             where r.due_at <= p_now
             group by 1) o;
    select coalesce(jsonb_agg(jsonb_build_object('kind', u.kind, 'cause', u.cause, 'n', u.n)), '[]')
      into _unhandled
      from (select case when u.job_kind = any(p_kinds) then u.job_kind else 'other' end as kind, u.code as cause,
                   sum(u.jobs) as n
              from jsonb_to_recordset(towpath.fn_queue_unhandled() -> 'unhandled')
                   as u(job_kind text, code text, jobs bigint)
             group by 1, 2) u;
    select jsonb_object_agg(s.status, (select coalesce(sum(c.letters), 0) from towpath.job_dead_letter_count c
                                        where c.triage_status = s.status))
      into _letters
      from unnest(array['pending', 'acknowledged', 'manual_replay', 'escalated']) as s(status);
    return jsonb_build_object(
        'jobs_enqueued', (select r.dropped_jobs from towpath.job_retention r)
            + (select coalesce(sum(pg_stat_get_tuples_inserted(i.inhrelid)), 0)::bigint from pg_inherits i
                where i.inhparent = 'towpath.job'::regclass),
        'jobs_depth', _depth, 'jobs_finished', _finished, 'oldest_ready', _oldest, 'jobs_unhandled', _unhandled,
        'dead_letters', _letters, 'kinds_paused', (select count(*) from towpath.job_pause));
end;
$$;

-- _metrics_events: how far numbering, routing and delivering are.
--
-- The horizon lag is the age of the oldest event that is visible and has no position.
create or replace function towpath._metrics_events(p_now timestamptz) returns jsonb
    language plpgsql stable
    set jit = off
    set enable_seqscan = off
as $$
declare
    _tick towpath.event_tick;
    _unnumbered timestamptz;
    _lag jsonb;
begin
    select * into _tick from towpath.event_tick t order by t.tick_no desc limit 1;
    if _tick.snapshot is null then
        select min(o.created_at) into _unnumbered
          from (select o.created_at from towpath.event_outbox o order by o.xact_id, o.id limit 1) o;
    else
        select min(o.created_at) into _unnumbered
          from ((select o.created_at from towpath.event_outbox o
                  where o.xact_id >= pg_snapshot_xmax(_tick.snapshot) order by o.xact_id, o.id limit 1)
                union all
                (select o.created_at from towpath.event_outbox o
                  where o.xact_id = any(array(select pg_snapshot_xip(_tick.snapshot))) order by o.xact_id, o.id limit 1)) o;
    end if;
    select coalesce(jsonb_agg(jsonb_build_object('worker', c.worker_name, 'n', c.lag)), '[]') into _lag
      from (select c.worker_name, max(c.lag) as lag from towpath.v_route_worker_cursor c
             group by c.worker_name order by c.worker_name limit 100) c;
    return jsonb_build_object(
        'events_numbered', _tick.last_position,
        'outbox_horizon_lag_seconds', coalesce(greatest(extract(epoch from p_now - _unnumbered), 0), 0),
        'outbox_cursor_lag', _lag,
        'deliveries', jsonb_build_object(
            'webhook', (select count(*) from (select 1 from towpath.delivery d limit 100000) d),
            'stream', (select count(*) from (select 1 from towpath.stream_delivery d limit 100000) d)),
        'route_dead_letters', (select count(*) from (select 1 from towpath.route_dead_letter d
                                                      where d.resolved_at is null limit 100000) d),
        'route_circuits_open', (select count(*) from towpath.delivery_target t where t.circuit <> 'closed'));
end;
$$;

-- fn_metrics_read: the numbers of the whole system for monitoring (O05). Changes nothing, and costs
-- the same however much is stored.
--
-- p_named are the kinds of jobs that were named before and keep their names; p_kinds_max bounds how
-- many are named at all. The answer's kinds are the ones to name next time.
--
-- Answers: {ok, kinds, jobs_..., executors, outbox_..., processes, gates, ...}.
create or replace function towpath.fn_metrics_read(p_named text[] default '{}', p_kinds_max integer default 100)
    returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
    _kinds text[] := towpath._metrics_kinds(coalesce(p_named, '{}'), least(greatest(coalesce(p_kinds_max, 100), 0), 1000));
    _executors jsonb;
    _processes jsonb;
    _gates jsonb;
    _dead_rows jsonb;
begin
    select jsonb_build_object('fresh', count(*) filter (where h.freshness = 'fresh'),
                              'warning', count(*) filter (where h.freshness = 'warning'),
                              'stale', count(*) filter (where h.freshness = 'stale'))
      into _executors from towpath.v_queue_heartbeat h;
    select coalesce(jsonb_agg(jsonb_build_object('kind', p.process_kind, 'state', p.state, 'n', p.n,
                                                 'overdue', p.overdue)), '[]')
      into _processes
      from (select p.process_kind, p.state, count(*) as n, count(*) filter (where p.next_check_at < _now) as overdue
              from (select p.process_kind, p.state, p.next_check_at from towpath.process p
                     where p.finished_at is null limit 100000) p
             group by p.process_kind, p.state order by count(*) desc limit 200) p;
    select coalesce(jsonb_object_agg(c.key, c.value = 'true'), '{}') into _gates
      from towpath.config c where c.kind = 'gate';
    select jsonb_object_agg(t.name, pg_stat_get_dead_tuples(('towpath.' || t.name)::regclass)) into _dead_rows
      from unnest(array['job_live', 'job_ready', 'lease_entry', 'delivery', 'stream_delivery', 'process']) as t(name);
    return jsonb_build_object('ok', true, 'kinds', to_jsonb(_kinds), 'executors', _executors, 'processes', _processes,
                              'gates', _gates, 'dead_rows', _dead_rows, 'loop_faults', towpath._loop_faults(),
                              'schedules_paused', (select count(*) from towpath.schedule s where s.paused),
                              'schedule_late_seconds', (select coalesce(greatest(extract(epoch from _now - min(s.next_at)), 0), 0)
                                                          from towpath.schedule s where not s.paused))
        || towpath._metrics_jobs(_kinds, _now) || towpath._metrics_events(_now);
end;
$$;

-- fn_metrics_postgres: the health of PostgreSQL, as far as the caller may see it: what other logins do
-- is visible to members of pg_read_all_stats.
--
-- Answers: {ok, connections, connections_max, oldest_transaction_seconds, commits, rollbacks, deadlocks,
-- transaction_id_age, replicas, replica_lag_bytes}.
create or replace function towpath.fn_metrics_postgres() returns jsonb
    language sql stable security invoker
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
    select jsonb_build_object('ok', true,
        'connections', (select coalesce(jsonb_object_agg(a.state, a.n), '{}')
                          from (select case when a.state like 'idle in transaction%' then 'idle_in_transaction'
                                            when a.state in ('active', 'idle') then a.state else 'other' end as state,
                                       count(*) as n
                                  from pg_stat_activity a
                                 where a.backend_type = 'client backend' group by 1) a),
        'connections_max', current_setting('max_connections')::integer,
        'oldest_transaction_seconds', coalesce((
            select extract(epoch from max(clock_timestamp() - a.xact_start)) from pg_stat_activity a
             where a.datname = current_database() and a.pid <> pg_backend_pid()
               and a.backend_type = 'client backend'), 0),
        'commits', d.xact_commit, 'rollbacks', d.xact_rollback, 'deadlocks', d.deadlocks,
        'transaction_id_age', (select max(age(x.datfrozenxid)) from pg_database x),
        'replicas', (select count(*) from pg_stat_replication r where r.state = 'streaming'),
        'replica_lag_bytes', coalesce((select max(pg_wal_lsn_diff(r.sent_lsn, r.replay_lsn)) from pg_stat_replication r), 0))
      from pg_stat_database d where d.datname = current_database()
$$;

grant execute on function towpath.fn_metrics_read(text[], integer)
    to workflow_admin, towpath_observer, towpath_maintainer;
grant execute on function towpath.fn_metrics_postgres() to workflow_admin, towpath_observer, towpath_maintainer;
