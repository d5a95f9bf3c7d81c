-- The log of commits that the nodes of a stream store share (S04). Plain statements: put a commit under its
-- number, read the commits after a number, and say which node serves.

-- fn_stream_log_open: which log this is, its last number, 0 if there is none, and the clock that all nodes go by.
-- Makes the log, the first time.
--
-- Answers: {ok, log_id, last, now_ms}.
create or replace function towpath.fn_stream_log_open() returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into towpath.stream_log default values on conflict (is_only) do nothing;
    return jsonb_build_object('ok', true, 'log_id', (select l.log_id from towpath.stream_log l),
        'last', coalesce((select max(c.number) from towpath.stream_commit c), 0),
        'now_ms', (date_part('epoch', clock_timestamp()) * 1000)::bigint);
end;
$$;

-- fn_stream_log_put: makes a commit durable under its number, if it follows the commit that its writer knows.
--
-- Put is answered done, or taken if another writer has the number. A writer that did not get the answer calls again
-- with the same arguments: its own row is there then, or is made now. A row that is found may be visible although its
-- transaction's wait for the standby was cut short. Found therefore writes settled, so that the answer comes from a
-- later transaction, whose wait covers both. diverged means that the commit before is not the writer's: the database
-- lost commits, or is another one.
--
-- Answers: {ok, put: done | found | taken | diverged}; invalid.
create or replace function towpath.fn_stream_log_put(
    p_writer uuid, p_number bigint, p_before bigint, p_chain bigint, p_body bytea) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _put text;
begin
    if p_writer is null or coalesce(p_number, 0) < 1 or p_before is null or p_chain is null or p_body is null then
        return towpath._invalid('number', 'must be positive, and writer, chains and body must be given');
    end if;
    insert into towpath.stream_commit (number, chain, writer, body)
    select p_number, p_chain, p_writer, p_body
     where (p_number = 1 and p_before = 0)
        or exists (select 1 from towpath.stream_commit c where c.number = p_number - 1 and c.chain = p_before)
    on conflict (number) do nothing;
    if found then
        return '{"ok": true, "put": "done"}';
    end if;
    select case when c.writer = p_writer and c.chain = p_chain then 'found' else 'taken' end into _put
      from towpath.stream_commit c where c.number = p_number;
    if _put = 'found' then
        update towpath.stream_log l set settled = greatest(l.settled, p_number) where l.is_only;
    end if;
    return jsonb_build_object('ok', true, 'put', coalesce(_put, 'diverged'));
end;
$$;

-- fn_stream_log_read: the commits after a number, in order, without a hole; about p_bytes_max bytes of them, and at
-- least one if there is one.
create or replace function towpath.fn_stream_log_read(p_after bigint, p_bytes_max bigint)
    returns table (number bigint, chain bigint, body bytea)
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    rows 100
as $$
declare
    _bytes bigint := 0;
begin
    for number, chain, body in
        select c.number, c.chain, c.body from towpath.stream_commit c where c.number > p_after order by c.number
    loop
        return next;
        _bytes := _bytes + length(body) + 100;
        exit when _bytes >= p_bytes_max;
    end loop;
end;
$$;

-- fn_stream_log_hold: a node asks to be the one that serves, for p_seconds from now; or says with p_seconds 0 that it
-- stops. Advice only: commits are fenced by their number.
--
-- Answers: {ok, held: true}, or {ok, held: false, address, until}; invalid.
create or replace function towpath.fn_stream_log_hold(p_node uuid, p_address text, p_seconds integer) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    if p_node is null or coalesce(p_seconds, -1) not between 0 and 3600 then
        return towpath._invalid('seconds', 'a node and 0 to 3600 seconds must be given');
    end if;
    insert into towpath.stream_log default values on conflict (is_only) do nothing;
    update towpath.stream_log l
       set node = case when p_seconds > 0 then p_node end,
           address = case when p_seconds > 0 then coalesce(p_address, '') end,
           until = case when p_seconds > 0 then _now + p_seconds * interval '1 second' end
     where l.node is null or l.node = p_node or l.until <= _now;
    if found then
        return '{"ok": true, "held": true}';
    end if;
    return (select jsonb_build_object('ok', true, 'held', false, 'address', l.address, 'until', l.until)
              from towpath.stream_log l);
end;
$$;

grant execute on function towpath.fn_stream_log_hold(uuid, text, integer) to workflow_admin;
grant execute on function towpath.fn_stream_log_open() to workflow_admin;
grant execute on function towpath.fn_stream_log_put(uuid, bigint, bigint, bigint, bytea) to workflow_admin;
grant execute on function towpath.fn_stream_log_read(bigint, bigint) to workflow_admin;
