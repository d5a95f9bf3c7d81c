-- Reading processes: one with its facts as a timeline, and many.

-- fn_process_show: one process, its attempts, its facts, oldest first.
--
-- Answers: {ok, process: {…, generation, result}, attempts: [...], facts: [{fact_no, at, fact, attempt_no, detail, actor,
-- name, value}]}; not_found.
create or replace function towpath.fn_process_show(p_process_id uuid) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _process jsonb;
begin
    select to_jsonb(p) || jsonb_build_object('generation',
               (select max(f.fact_no) from towpath.process_fact f where f.process_id = p.process_id),
               'result', (select f.value from towpath.process_fact f where f.process_id = p.process_id
                             and f.fact in ('succeeded', 'gave_up', 'cancelled', 'invalid')))
      into _process from towpath.process p where p.process_id = p_process_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'process_id', p_process_id);
    end if;
    return jsonb_build_object('ok', true, 'process', _process,
        'attempts', (select coalesce(jsonb_agg(to_jsonb(a) - 'process_id' order by a.attempt_no), '[]')
                       from towpath.process_attempt a where a.process_id = p_process_id),
        'facts', (select coalesce(jsonb_agg(jsonb_build_object('fact_no', f.fact_no, 'at', f.recorded_at, 'fact', f.fact,
                             'attempt_no', f.attempt_no, 'detail', f.detail, 'actor', f.actor)
                             || case when f.name is null then '{}' else jsonb_build_object('name', f.name, 'value', f.value) end
                             order by f.fact_no), '[]')
                    from towpath.process_fact f where f.process_id = p_process_id));
end;
$$;

-- fn_process_list: processes by filter, newest first, a page at a time. The filter takes process_kind,
-- state and ref. Finished ones have no index but their id, so a page of those reads at most
-- 20,000 processes: an empty page with a cursor is not the end.
--
-- Answers: {ok, processes: [...], cursor}; invalid, unknown_key.
create or replace function towpath.fn_process_list(
    p_filter jsonb default '{}', p_limit integer default 50, p_cursor uuid default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set jit = off
as $$
declare
    _refusal jsonb := towpath._filter_refusal(p_filter, array['process_kind', 'state', 'ref']);
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 1000);
    _cursor uuid := coalesce(p_cursor, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    _kind text := p_filter->>'process_kind';
    _state text := p_filter->>'state';
    _ref text := p_filter->>'ref';
    _rows jsonb := '[]';
    _page jsonb;
    _last uuid;
    _read integer;
    _walked integer := 0;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if _state is not null and _state not in ('open', 'held', 'succeeded', 'gave_up', 'cancelled', 'invalid') then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', 'state',
                                  'detail', 'must be one of open, held, succeeded, gave_up, cancelled, invalid');
    end if;
    if _ref is not null then
        select coalesce(jsonb_agg(to_jsonb(p) order by p.process_id desc), '[]') into _rows
          from (select * from towpath.process p
                 where p.ref = _ref and (_state is null or p.state = _state) and p.process_id < _cursor
                   and p.process_kind = any (case when _kind is null
                       then array(select k.process_kind from towpath.process_kind k) else array[_kind] end)
                 order by p.process_id desc limit _limit) p;
    elsif _state in ('open', 'held') then
        select coalesce(jsonb_agg(to_jsonb(p) order by p.process_id desc), '[]') into _rows
          from (select * from towpath.process p
                 where p.finished_at is null and p.state = _state and p.process_id < _cursor
                   and (_kind is null or p.process_kind = _kind)
                 order by p.process_id desc limit _limit) p;
    else
        loop
            with page as (select * from towpath.process p where p.process_id < _cursor order by p.process_id desc limit 1000)
            select (select coalesce(jsonb_agg(to_jsonb(f) order by f.process_id desc), '[]')
                      from (select * from page p
                             where (_kind is null or p.process_kind = _kind) and (_state is null or p.state = _state)
                             order by p.process_id desc limit _limit - jsonb_array_length(_rows)) f),
                   count(*), (array_agg(p.process_id order by p.process_id))[1]
              into _page, _read, _last from page p;
            _rows := _rows || _page;
            _walked := _walked + _read;
            exit when _read < 1000 or jsonb_array_length(_rows) >= _limit;
            _cursor := _last;
            if _walked >= 20000 then
                return jsonb_build_object('ok', true, 'processes', _rows, 'cursor', _cursor);
            end if;
        end loop;
    end if;
    return jsonb_build_object('ok', true, 'processes', _rows,
        'cursor', case when jsonb_array_length(_rows) = _limit then _rows->-1->'process_id' end);
end;
$$;

grant execute on function towpath.fn_process_show(uuid) to towpath_observer, workflow_admin;
grant execute on function towpath.fn_process_list(jsonb, integer, uuid) to towpath_observer, workflow_admin;
