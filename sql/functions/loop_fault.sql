-- Loop faults: an item that makes a loop raise is set aside, and the loop continues with the others (Q22).
--
-- The pattern of a loop:
--   _aside := towpath._loop_aside('name');          what to skip; one probe of a table that is usually empty
--   begin
--       the whole batch, without what is aside
--   exception when others then
--       if towpath._error_passing(sqlstate) then raise; end if;
--       one item after the other, each in a block of its own that calls _loop_fault('name', item, error)
--   end;
--   perform towpath._loop_over('name', _now);       after a pass that left nothing out

-- _error_passing: whether an error is temporary and not the item's: a lost connection, a
-- deadlock, a lock that was not to be had, no memory or disk, a shutdown, a read-only server.
create or replace function towpath._error_passing(p_sqlstate text) returns boolean
    language sql immutable parallel safe
    return left(p_sqlstate, 2) in ('08', '40', '53', '57', '58') or p_sqlstate in ('55P03', '55006', '25006');

-- _error_common: whether an error would meet every item of a loop: a passing one, or one of the code itself (class 42: a
-- function or a table is missing, or a right). Setting items aside for it would set aside all of them.
create or replace function towpath._error_common(p_sqlstate text) returns boolean
    language sql immutable parallel safe
    return towpath._error_passing(p_sqlstate) or left(p_sqlstate, 2) = '42';

-- _loop_aside: the items that a loop skips for now. No pause is longer than an hour, unless the clock went back.
create or replace function towpath._loop_aside(p_loop text) returns text[]
    language sql stable
    return array(select f.item from towpath.loop_fault f
                  where f.loop_name = p_loop and (f.state = 'dropped'
                         or f.next_try_at > towpath.fn_now() and f.next_try_at <= towpath.fn_now() + interval '1 hour'));

-- _loop_fault: sets an item aside, or records that it failed again. It is retried after 10 seconds; the wait doubles
-- each time, up to an hour. What was dropped stays dropped. What looks like a credential is masked.
create or replace function towpath._loop_fault(p_loop text, p_item text, p_error text) returns void
    language plpgsql
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    insert into towpath.loop_fault as f (loop_name, item, error, first_at, last_at, next_try_at)
    values (p_loop, left(coalesce(p_item, ''), 500), left(towpath._error_text(p_error), 2000),
            _now, _now, _now + interval '10 seconds')
    on conflict (loop_name, item) do update
       set error = excluded.error, times = least(f.times, 1000000) + 1, last_at = _now,
           next_try_at = _now + least(interval '10 seconds' * 2 ^ least(f.times, 10), interval '1 hour');
end;
$$;

-- _loop_due: the items that were set aside and whose next try has come, at most p_limit. For loops that have moved past
-- an item and do not meet it again by themselves.
create or replace function towpath._loop_due(p_loop text, p_limit integer default 1000) returns text[]
    language sql stable
    return array(select f.item from towpath.loop_fault f
                  where f.loop_name = p_loop and f.state = 'waiting' and f.next_try_at <= towpath.fn_now()
                  order by f.first_at limit p_limit);

-- _loop_over: after a pass that left nothing out, items whose next try was due have been tried and did not fail again,
-- or are there no more. With p_items only these.
create or replace function towpath._loop_over(p_loop text, p_began timestamptz, p_items text[] default null)
    returns void
    language plpgsql
as $$
begin
    delete from towpath.loop_fault f
     where f.loop_name = p_loop and f.state = 'waiting' and f.next_try_at <= p_began
       and (p_items is null or f.item = any(p_items));
end;
$$;

-- fn_loop_fault_record: a loop outside of the database sets an item aside.
--
-- Answers: {ok, loop, item}; invalid.
create or replace function towpath.fn_loop_fault_record(p_loop text, p_item text, p_error text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(p_loop, '') !~ '^[a-z_]{1,50}$' or coalesce(btrim(p_item), '') = '' then
        return jsonb_build_object('ok', false, 'error', 'invalid',
            'detail', 'a fault requires the name of its loop (letters a to z and _) and an item');
    end if;
    perform towpath._loop_fault(p_loop, p_item, p_error);
    return jsonb_build_object('ok', true, 'loop', p_loop, 'item', p_item);
end;
$$;

-- fn_loop_fault_over: a loop outside of the database has processed an item that it had set aside.
--
-- Answers: {ok, loop, item, was: whether it was set aside}.
create or replace function towpath.fn_loop_fault_over(p_loop text, p_item text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from towpath.loop_fault f where f.loop_name = p_loop and f.item = p_item and f.state = 'waiting';
    return jsonb_build_object('ok', true, 'loop', p_loop, 'item', p_item, 'was', found);
end;
$$;

-- _loop_faults: how many items wait to be tried again, by loop.
create or replace function towpath._loop_faults() returns jsonb
    language sql stable
as $$
    select coalesce(jsonb_object_agg(f.loop_name, f.n), '{}')
      from (select f.loop_name, count(*) as n from towpath.loop_fault f
             where f.state = 'waiting' group by f.loop_name order by count(*) desc limit 100) f
$$;

-- _loop_fault_behind: the deliveries that wait behind an item that is set aside, because their route keeps the order
-- of its key. They are sent once it is sent or dropped.
create or replace function towpath._loop_fault_behind(p_fault towpath.loop_fault, p_limit integer) returns uuid[]
    language plpgsql stable
as $$
begin
    if p_fault.loop_name <> 'webhook_delivery' or p_fault.state <> 'waiting'
       or p_fault.item !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        return '{}';
    end if;
    return array(select d.delivery_id
                   from towpath.delivery h
                   join towpath.delivery d on d.route_no = h.route_no and d.ordering_key = h.ordering_key
                                          and d.position > h.position
                  where h.delivery_id = p_fault.item::uuid
                  order by d.position limit p_limit);
end;
$$;

-- fn_loop_fault_list: what is set aside, newest failure first; of one loop, or of all. Dropped items are included.
-- behind are the first 1,000 deliveries that wait behind it.
--
-- Answers: {ok, faults: [{loop, item, state, error, times, first_at, last_at, next_try_at, behind, changed_by, changed_at,
-- reason}], loops: {loop: how many wait}}.
create or replace function towpath.fn_loop_fault_list(p_loop text default null, p_limit integer default 100)
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true,
        'faults', (select coalesce(jsonb_agg(to_jsonb(x.f) - 'loop_name' || jsonb_build_object('loop', (x.f).loop_name,
                                                 'behind', towpath._loop_fault_behind(x.f, 1000))
                                             order by (x.f).last_at desc, (x.f).loop_name, (x.f).item), '[]')
                     from (select f from towpath.loop_fault f
                            where p_loop is null or f.loop_name = p_loop
                            order by f.last_at desc, f.loop_name, f.item
                            limit least(greatest(coalesce(p_limit, 100), 1), 1000)) x(f)),
        'loops', towpath._loop_faults())
$$;

-- fn_loop_fault_retry: the loop tries the item again in its next pass, also one that was dropped.
--
-- Answers: {ok, loop, item}; not_found.
create or replace function towpath.fn_loop_fault_retry(p_loop text, p_item text, p_actor text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    update towpath.loop_fault f
       set state = 'waiting', next_try_at = _now, changed_at = _now, reason = null,
           changed_by = coalesce(nullif(btrim(p_actor), ''), session_user)
     where f.loop_name = p_loop and f.item = p_item;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'loop', p_loop, 'item', p_item,
            'detail', 'there is no such fault; list them with: towpath fault list');
    end if;
    return jsonb_build_object('ok', true, 'loop', p_loop, 'item', p_item);
end;
$$;

-- fn_loop_fault_drop: the loop skips the item from now on; who decided it and why is recorded. Deliveries that waited
-- behind a webhook are sent without it.
--
-- Answers: {ok, loop, item}; invalid (no reason), not_found.
create or replace function towpath.fn_loop_fault_drop(p_loop text, p_item text, p_reason text, p_actor text default null)
    returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(btrim(p_reason), '') = '' then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'reason',
            'detail', 'a reason is required');
    end if;
    update towpath.loop_fault f
       set state = 'dropped', changed_at = towpath.fn_now(), reason = left(p_reason, 2000),
           changed_by = coalesce(nullif(btrim(p_actor), ''), session_user)
     where f.loop_name = p_loop and f.item = p_item;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'loop', p_loop, 'item', p_item,
            'detail', 'there is no such fault; list them with: towpath fault list');
    end if;
    return jsonb_build_object('ok', true, 'loop', p_loop, 'item', p_item);
end;
$$;

grant execute on function towpath.fn_loop_fault_record(text, text, text)
    to worker_service_user, towpath_router, towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_loop_fault_over(text, text) to towpath_router, towpath_maintainer, workflow_admin;
grant execute on function towpath.fn_loop_fault_list(text, integer) to workflow_admin, towpath_observer;
grant execute on function towpath.fn_loop_fault_retry(text, text, text) to workflow_admin;
grant execute on function towpath.fn_loop_fault_drop(text, text, text, text) to workflow_admin;
