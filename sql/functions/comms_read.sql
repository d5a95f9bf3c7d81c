-- Reading messages: lists without a word of their text, and one message whole.

-- _message_rows: messages with their newest send.
create or replace function comms._message_rows(p_channel text, p_before bigint, p_limit integer)
    returns table (message_id bigint, channel text, recipients text[], subject text, created_by text,
                   created_at timestamptz, task_id bigint, process_id uuid, state text, finished_at timestamptz)
    language sql stable
as $$
    select m.message_id, m.channel, coalesce(e.to_addresses, array[s.to_number]), e.subject, m.created_by, m.created_at,
           t.task_id, p.process_id, p.state, p.finished_at
      from comms.message m
      left join comms.email_message e on e.message_id = m.message_id
      left join comms.sms_message s on s.message_id = m.message_id
      left join lateral (
           select t.send_email_task_id as task_id from comms.send_email_task t where t.message_id = m.message_id
           union all
           select t.send_sms_task_id from comms.send_sms_task t where t.message_id = m.message_id and m.channel = 'sms'
           order by 1 desc limit 1) t on true
      left join towpath.process p on p.process_kind = 'comms.send_' || m.channel and p.ref = t.task_id::text
     where (p_channel is null or m.channel = p_channel) and m.message_id < p_before
     order by m.message_id desc limit p_limit
$$;

-- message_list: messages, newest first, with the state of their newest send; without their text. The
-- filter takes channel.
--
-- Answers: {ok, messages: [...], cursor}; invalid, unknown_key.
create or replace function comms.message_list(
    p_filter jsonb default '{}', p_limit integer default 50, p_cursor bigint default null) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _refusal jsonb := towpath._filter_refusal(p_filter, array['channel']);
    _limit integer := least(greatest(coalesce(p_limit, 50), 1), 1000);
    _rows jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select coalesce(jsonb_agg(to_jsonb(m) order by m.message_id desc), '[]') into _rows
      from comms._message_rows(p_filter->>'channel', coalesce(p_cursor, 9223372036854775807), _limit) m;
    return jsonb_build_object('ok', true, 'messages', _rows,
        'cursor', case when jsonb_array_length(_rows) = _limit then _rows->-1->'message_id' end);
end;
$$;

-- message_show: one message, whole, and every send of it with its process.
--
-- Answers: {ok, message, tasks: [{task_id, scheduled_at, process_id, state, succeeded, …}]}; not_found.
create or replace function comms.message_show(p_message_id bigint) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _message jsonb;
begin
    select to_jsonb(m) || coalesce(to_jsonb(e), to_jsonb(s)) into _message
      from comms.message m
      left join comms.email_message e on e.message_id = m.message_id
      left join comms.sms_message s on s.message_id = m.message_id
     where m.message_id = p_message_id;
    if not found then
        return jsonb_build_object('ok', false, 'error', 'not_found', 'message_id', p_message_id);
    end if;
    return jsonb_build_object('ok', true, 'message', _message, 'tasks', (
        select coalesce(jsonb_agg(jsonb_build_object('task_id', t.task_id, 'scheduled_at', t.scheduled_at,
                   'process_id', p.process_id, 'state', p.state, 'finished_at', p.finished_at,
                   'transport', t.transport, 'provider_id', t.provider_id) order by t.task_id), '[]')
          from (select t.send_email_task_id as task_id, t.scheduled_at, f.transport, f.provider_id, 'comms.send_email' as kind
                  from comms.send_email_task t left join comms.send_email_task_succeeded f using (send_email_task_id)
                 where t.message_id = p_message_id
                union all
                select t.send_sms_task_id, t.scheduled_at, f.transport, f.provider_id, 'comms.send_sms'
                  from comms.send_sms_task t left join comms.send_sms_task_succeeded f using (send_sms_task_id)
                 where t.message_id = p_message_id) t
          join towpath.process p on p.process_kind = t.kind and p.ref = t.task_id::text));
end;
$$;

grant execute on function comms.message_list(jsonb, integer, bigint) to towpath_observer, workflow_admin;
grant execute on function comms.message_show(bigint) to workflow_admin;
