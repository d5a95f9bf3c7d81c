-- Verification: the checks an operator runs on a live database, and after a restore (E10).

-- _check: one line of the report.
create or replace function towpath._check(p_name text, p_ok boolean, p_text text, p_more jsonb default '{}') returns jsonb
    language sql immutable
as $$ select jsonb_build_object('check', p_name, 'ok', coalesce(p_ok, false), 'text', p_text) || coalesce(p_more, '{}') $$;

-- fn_event_verify: the W-checks. Without p_full, the newest 100,000 positions and ten minutes; with it,
-- everything that is stored, which takes about ten seconds per million events.
--
--   W1 gates      which are closed, so that a quiet system can be distinguished from a broken one
--   W2 cursors    no cursor beyond the last position, one per slice
--   W3 gaps       positions are dense
--   W4 duplicates no event has two positions
--   W5 unnumbered no committed event is older than a minute and has no position
--   W6 attempts   every event behind a cursor has an attempt of that worker
--   W7 twice      no event was delivered twice on one route in one generation
--   W8 letters    no dead letter has been open for more than a day
--   W9 lag        how far cursors and deliveries lag, and who holds their locks
--
-- Answers: {ok, passed, full, last_position, checks: [{check, ok, text, ...}]}.
create or replace function towpath.fn_event_verify(p_full boolean default false) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
    _last bigint := towpath._event_last_position();
    _kept bigint := (select r.kept_from from towpath.event_retention r);
    _from bigint := case when p_full then _kept else greatest(_kept, _last - 99999) end;
    _checks jsonb := '[]';
    _n bigint;
    _m bigint;
    _row record;
    _list jsonb;
begin
    select coalesce(jsonb_agg(c.key order by c.key), '[]') into _list from towpath.config c
     where c.key in ('event.routing.enabled', 'event.route_worker.enabled', 'event.delivery.enabled',
                     'queue.job_substrate.enabled') and not towpath._gate_open(c.key);
    _checks := _checks || towpath._check('W1_gates', true, case when _list = '[]' then 'all gates are open'
        else 'closed: ' || (select string_agg(g, ', ') from jsonb_array_elements_text(_list) g) end,
        jsonb_build_object('closed', _list));

    select count(*) filter (where c.position > _last),
           (select count(*) from towpath.route_worker w
             where w.slices <> (select count(*) from towpath._route_cursors(w.worker_no)))
      into _n, _m from towpath.route_worker w cross join lateral towpath._route_cursors(w.worker_no) c;
    _checks := _checks || towpath._check('W2_cursors', _n = 0 and _m = 0,
        format('%s cursors are beyond position %s; %s workers lack a cursor for a slice', _n, _last, _m));

    select count(*), count(distinct p.event_id) into _n, _m
      from towpath.event_position p where p.position between _from and _last;
    _checks := _checks || towpath._check('W3_gaps', _n = greatest(_last - _from + 1, 0),
        format('%s of %s positions exist from %s to %s', _n, greatest(_last - _from + 1, 0), _from, _last));
    _checks := _checks || towpath._check('W4_duplicates', _n = _m, format('%s events have %s positions', _m, _n));

    select count(*), min(o.created_at) into _row from (
        select o.created_at from towpath.event_outbox o
         where o.created_at < _now - interval '1 minute'
           and (p_full or o.event_id >= towpath._uuid7_floor(_now - interval '10 minutes'))
           and not exists (select 1 from towpath.event_position p where p.event_id = o.event_id)
         limit 1000) o;
    _checks := _checks || towpath._check('W5_unnumbered', _row.count = 0,
        format('%s events older than a minute have no position', _row.count),
        jsonb_build_object('oldest_at', _row.min,
            'sequencer_held_by', (select towpath._lock_holder(s.xmax) from towpath.event_sequencer s)));

    select coalesce(sum(x.n), 0) into _n from towpath.route_worker w
     cross join lateral towpath._route_cursors(w.worker_no) c
     cross join lateral (
           select count(*) as n from towpath.event_position p
            where p.position between _from and c.position
              and abs(p.key_hash::bigint) % w.slices = c.slice
              and (w.event_domain is null or exists (select 1 from towpath.event_outbox o
                                                      where o.event_id = p.event_id and o.event_domain = w.event_domain))
              and not exists (select 1 from towpath.route_attempt a
                               where a.position = p.position and a.worker_no = w.worker_no)) x
     where w.worker_name = 'default' or exists (select 1 from towpath.outbound_route r where r.worker_no = w.worker_no);
    _checks := _checks || towpath._check('W6_attempts', _n = 0,
        format('%s events before a cursor have no routing attempt', _n));

    select count(*) into _n from (
        select 1 from towpath.route_attempt a
         where a.position >= _from and a.mode = 'live' and a.decision = 'sent'
         group by a.event_id, a.route_no, a.generation having count(*) > 1 limit 1000) x;
    _checks := _checks || towpath._check('W7_twice', _n = 0, format('%s deliveries recorded twice', _n));

    select count(*) as open, count(*) filter (where d.created_at < _now - interval '1 day') as stuck, min(d.created_at) as oldest
      into _row from towpath.route_dead_letter d where d.resolved_at is null;
    _checks := _checks || towpath._check('W8_letters', _row.stuck = 0,
        format('%s dead letters open, %s for more than a day', _row.open, _row.stuck),
        jsonb_build_object('oldest_at', _row.oldest));

    select coalesce(jsonb_agg(jsonb_build_object('worker_name', w.worker_name, 'slice', c.slice, 'lag', _last - m.position,
               'last_run_at', m.last_run_at, 'held_by', towpath._lock_holder(c.xmax)) order by w.worker_name, c.slice), '[]'),
           coalesce(max(_last - m.position), 0)
      into _list, _n
      from towpath.route_worker w
      join towpath.route_worker_cursor c on c.worker_no = w.worker_no
     cross join lateral (select m.position, m.last_run_at from towpath.route_cursor_mark m
                          where m.cursor_no = c.cursor_no order by m.mark_no desc limit 1) m;
    select count(*) as waiting, count(*) filter (where d.lease_until < _now - interval '1 minute') as expired, min(d.created_at) as oldest
      into _row from towpath._delivery_now d;
    _checks := _checks || towpath._check('W9_lag', _row.expired = 0,
        format('the slowest cursor is %s events behind; %s deliveries are waiting, %s with a lease that expired over a minute ago',
               _n, _row.waiting, _row.expired),
        jsonb_build_object('cursors', _list, 'oldest_delivery_at', _row.oldest,
            'circuits_open', (select coalesce(jsonb_agg(t.target_key order by t.target_key), '[]')
                                from towpath.delivery_target t where t.circuit <> 'closed')));

    return jsonb_build_object('ok', true, 'full', coalesce(p_full, false), 'last_position', _last,
        'passed', not exists (select 1 from jsonb_array_elements(_checks) c where c -> 'ok' = 'false'),
        'checks', _checks);
end;
$$;

grant execute on function towpath.fn_event_verify(boolean) to workflow_admin, towpath_observer;
