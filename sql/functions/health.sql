-- Health of the parts that the views of queue and events do not show, at a bounded cost.

-- fn_health_show: whether maintenance, numbering and supervision keep up.
--
-- unfolded_since is the oldest count that maintenance has not folded yet, which takes it a second
-- while it runs. unnumbered_since is the oldest of the newest 200 events without a position.
-- Overdue are processes whose supervisor is a function here and was not called in time.
-- loop_faults are items that a loop has set aside, deliveries_behind the deliveries that wait behind one, of at most
-- 100 items. Counts end at 10,001, which means more than 10,000.
--
-- Answers: {ok, checked_at, unfolded_since, unnumbered_since, loop_faults, deliveries_behind, processes_held,
-- processes_overdue, overdue_since, unhandled: as fn_queue_unhandled answers}.
create or replace function towpath.fn_health_show() returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    return jsonb_build_object('ok', true, 'checked_at', _now,
        'unfolded_since', (select min(d.counted_at) from (select x.counted_at from towpath.job_counter_delta x
                                                           limit 1000) d),
        'unnumbered_since', (select min(n.created_at)
                               from (select o.event_id, o.created_at from towpath.event_outbox o
                                      order by o.id desc limit 200) n
                              where not exists (select 1 from towpath.event_position p where p.event_id = n.event_id)),
        'unhandled', towpath.fn_queue_unhandled() -> 'unhandled',
        'loop_faults', (select count(*) from (select 1 from towpath.loop_fault f where f.state = 'waiting' limit 10001) f),
        'deliveries_behind', (select least(coalesce(sum(cardinality(towpath._loop_fault_behind(x.f, 10001))), 0), 10001)
                                from (select f from towpath.loop_fault f
                                       where f.loop_name = 'webhook_delivery' and f.state = 'waiting' limit 100) x(f)),
        'processes_held', (select count(*) from (select 1 from towpath.process p
                             where p.finished_at is null and p.state = 'held' limit 10001) h))
        || (select jsonb_build_object('processes_overdue', count(*), 'overdue_since', min(l.next_check_at))
              from (select p.next_check_at from towpath.process p
                     where p.finished_at is null and p.in_database and p.next_check_at < _now
                     order by p.next_check_at limit 10001) l);
end;
$$;

-- fn_health_marks: a short text for each topic that pages show, which is another one after anything of
-- the topic changed. Called every second while a page is open, so it reads ends of indexes and
-- small tables, and counts nothing.
--
-- Answers: {ok, marks: {topic: text}}.
create or replace function towpath.fn_health_marks() returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
begin
    return jsonb_build_object('ok', true, 'marks', jsonb_build_object(
        'jobs', concat_ws(' ',
            (select j.job_id from towpath.job j order by j.job_id desc limit 1),
            (select b.entry_id from towpath.lease_entry b order by b.entry_id desc limit 1),
            (select sum(c.n) from (select t.n from towpath.job_counter t
                                   union all
                                   select d.n from (select x.n from towpath.job_counter_delta x limit 10000) d) c),
            (select max(v.progress_at) from (select x.progress_at from towpath.job_live x
                                              order by x.job_id desc limit 200) v),
            (select count(*) from towpath.job_pause)),
        'dead-letters', (select md5(string_agg(concat_ws(' ', d.dead_letter_id, d.triage_status, d.triaged_at, d.replayed_at),
                                               ',' order by d.dead_letter_id))
                           from (select * from towpath.job_dead_letter x order by x.dead_letter_id desc limit 200) d),
        'executors', (select string_agg(h.executor_name || h.freshness, ' ' order by h.executor_name)
                        from towpath.v_queue_heartbeat h),
        'gates', (select max(c.changed_at) from towpath.config c),
        'schedules', (select string_agg(concat_ws(' ', s.name, s.changed_at, s.last_tick_at), ',' order by s.name)
                        from towpath.schedule s),
        'events', concat_ws(' ', towpath._event_last_position(),
            (select max(m.position) from towpath.route_cursor_mark m),
            (select max(r.changed_at) from towpath.outbound_route r),
            (select string_agg(t.circuit, '' order by t.target_no) from towpath.delivery_target t),
            (select d.delivery_id from towpath.delivery_attempt d order by d.delivery_id desc limit 1),
            (select concat(l.dead_letter_id, l.resolved_at) from towpath.route_dead_letter l
              order by l.dead_letter_id desc limit 1)),
        'processes', (select md5(string_agg(p.process_id || p.state, ',' order by p.process_id))
                        from (select * from towpath.process x order by x.process_id desc limit 50) p)));
end;
$$;

-- fn_event_chart: events by minute of the last hour, for charts. Positions follow time closely, so
-- the first position of each minute tells how many came between two of them; no event is
-- counted. Events without a position are missing.
--
-- Answers: {ok, minutes: [{minute_at, n}]}.
create or replace function towpath.fn_event_chart(p_minutes integer default 60) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _minutes integer := least(greatest(coalesce(p_minutes, 60), 1), 1440);
    _start timestamptz := date_trunc('minute', towpath.fn_now()) - (_minutes - 1) * interval '1 minute';
    _next bigint := towpath._event_last_position() + 1;
    _first bigint;
    _answer jsonb := '[]';
    _at timestamptz;
begin
    for _no in reverse _minutes - 1 .. 0 loop
        _at := _start + _no * interval '1 minute';
        _first := (select p.position from towpath.event_position p
                    where p.event_id >= towpath._uuid7_floor(_at)
                      and p.event_id < towpath._uuid7_floor(_at + interval '1 minute')
                    order by p.event_id limit 1);
        if _first < _next then
            _answer := _answer || jsonb_build_object('minute_at', _at, 'n', _next - _first);
            _next := _first;
        end if;
    end loop;
    return jsonb_build_object('ok', true, 'minutes', _answer);
end;
$$;

grant execute on function towpath.fn_health_show() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_health_marks() to workflow_admin, towpath_observer;
grant execute on function towpath.fn_event_chart(integer) to workflow_admin, towpath_observer;
