-- Messages: what is to be said. Checked when it is written and once more before it leaves.

-- _address_good: an e-mail address, or a name with one in angle brackets; nothing that could end a
-- header line.
create or replace function comms._address_good(p_address text) returns boolean
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(octet_length(p_address) <= 400 and p_address !~ '[[:cntrl:]]' and (
        p_address ~ '^[^@<>,;:"[:space:]]+@[^@<>,;:"[:space:]]+$'
        or p_address ~ '^[^@<>,;:"]+ <[^@<>,;:"[:space:]]+@[^@<>,;:"[:space:]]+>$'), false);
end;
$$;

-- _email_problem: why an e-mail cannot be sent, or null.
create or replace function comms._email_problem(p_message comms.email_message) returns text
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return case
        when p_message.message_id is null then 'there is no message'
        when coalesce(cardinality(p_message.to_addresses), 0) = 0 then 'to: at least one address is needed'
        when cardinality(p_message.to_addresses || p_message.cc || p_message.bcc) > 50 then 'at most 50 recipients'
        when exists (select 1 from unnest(p_message.to_addresses || p_message.cc || p_message.bcc || p_message.reply_to
                                          || coalesce(array[p_message.from_address], '{}')) a
                      where a is not null and not comms._address_good(a))
            then format('%s is not an e-mail address', (
                select to_jsonb(left(a, 200)) from unnest(p_message.to_addresses || p_message.cc || p_message.bcc
                    || p_message.reply_to || array[p_message.from_address]) a
                 where a is not null and not comms._address_good(a) limit 1))
        when array_position(p_message.to_addresses || p_message.cc || p_message.bcc || p_message.reply_to, null) is not null
            then 'an address is null'
        when coalesce(btrim(p_message.subject), '') = '' or p_message.subject ~ '[[:cntrl:]]' or length(p_message.subject) > 998
            then 'subject: one line that is not blank, of at most 998 characters, is needed'
        when coalesce(p_message.text_body, p_message.html_body, '') = '' then 'text or html is needed'
        when octet_length(p_message.text_body) > 1048576 or octet_length(p_message.html_body) > 1048576
            then 'text and html may have at most 1 MiB each'
        when jsonb_typeof(p_message.headers) <> 'object' then 'headers: an object is needed'
        when exists (select 1 from jsonb_each(p_message.headers) h
                      where h.key !~ '^[A-Za-z][A-Za-z0-9-]{0,60}$' or jsonb_typeof(h.value) <> 'string'
                         or (h.value #>> '{}') ~ '[[:cntrl:]]' or length(h.value #>> '{}') > 998
                         or lower(h.key) in ('from', 'to', 'cc', 'bcc', 'reply-to', 'subject', 'date', 'message-id', 'sender',
                                             'content-type', 'content-transfer-encoding', 'mime-version'))
            then 'headers: names with one line of text each, none that the message has anyway'
        end;
end;
$$;

-- _sms_problem: why a text message cannot be sent, or null.
create or replace function comms._sms_problem(p_message comms.sms_message) returns text
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return case
        when p_message.message_id is null then 'there is no message'
        when coalesce(p_message.to_number !~ '^\+[1-9][0-9]{5,14}$', true)
            then 'to: a number like +4915112345678 is needed'
        when p_message.from_number !~ '^(\+[1-9][0-9]{2,14}|[0-9]{3,8}|[A-Za-z0-9 ]{1,11}|MG[0-9a-f]{32})$'
            then 'from: a number, a short code, a sender name or a messaging service is needed'
        when coalesce(p_message.text_body, '') = '' or length(p_message.text_body) > 1600
            then 'text: between 1 and 1,600 characters are needed'
        end;
end;
$$;

-- _email_content: an e-mail as the provider gets it.
create or replace function comms._email_content(p_message comms.email_message, p_from text) returns jsonb
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return jsonb_build_object('from', coalesce(p_message.from_address, p_from), 'to', p_message.to_addresses,
        'cc', p_message.cc, 'bcc', p_message.bcc, 'reply_to', p_message.reply_to, 'subject', p_message.subject,
        'text', p_message.text_body, 'html', p_message.html_body, 'headers', p_message.headers);
end;
$$;

-- _sms_content: a text message as the provider gets it.
create or replace function comms._sms_content(p_message comms.sms_message, p_from text) returns jsonb
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return jsonb_build_object('from', coalesce(p_message.from_number, p_from), 'to', p_message.to_number,
                              'text', p_message.text_body);
end;
$$;

-- _addresses: one address or a list of them.
create or replace function comms._addresses(p_value jsonb) returns text[]
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return case jsonb_typeof(p_value) when 'array' then array(select jsonb_array_elements_text(p_value))
                                      when 'string' then array[p_value #>> '{}'] else '{}' end;
end;
$$;

-- _message_make: a message of either channel, or the one that has its key. p_email and p_sms: one of
-- them is null.
create or replace function comms._message_make(
    p_email comms.email_message, p_sms comms.sms_message, p_key text, p_actor text,
    out message_id bigint, out duplicate boolean)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _channel text := case when p_sms is null then 'email' else 'sms' end;
begin
    insert into comms.message as m (channel, idempotency_key, created_by)
    values (_channel, p_key, coalesce(p_actor, session_user))
    on conflict on constraint message_key_uq do nothing
    returning m.message_id into message_id;
    duplicate := not found;
    if duplicate then
        select m.message_id into message_id from comms.message m where m.idempotency_key = p_key and m.channel = _channel;
        return;
    end if;
    p_email.message_id := message_id;
    p_sms.message_id := message_id;
    if _channel = 'email' then
        insert into comms.email_message select p_email.*;
    else
        insert into comms.sms_message select p_sms.*;
    end if;
end;
$$;

-- _email_read, _sms_read: a message from the object a caller gave; not stored yet, so its id is 0.
create or replace function comms._email_read(p_message jsonb) returns comms.email_message
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return row(0, 'email', p_message->>'from', comms._addresses(p_message->'to'), comms._addresses(p_message->'cc'),
               comms._addresses(p_message->'bcc'), comms._addresses(p_message->'reply_to'), p_message->>'subject',
               p_message->>'text', p_message->>'html', coalesce(p_message->'headers', '{}'))::comms.email_message;
end;
$$;

-- _sms_read: see _email_read.
create or replace function comms._sms_read(p_message jsonb) returns comms.sms_message
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return row(0, 'sms', p_message->>'from', p_message->>'to', p_message->>'text')::comms.sms_message;
end;
$$;

-- _message_refusal: the answer to a message that cannot be stored, or null. An unknown key is refused,
-- so that a typing error does not lose a part of the message.
create or replace function comms._message_refusal(p_message jsonb, p_keys text[], p_problem text, p_key text, p_actor text)
    returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(
        towpath._filter_refusal(coalesce(p_message, 'null'), p_keys, 'message'),
        towpath._invalid('message', p_problem),
        towpath._invalid('idempotency_key', case when btrim(p_key) = '' then 'must be null or not blank'
                                                 else towpath._text_problem(p_key, 500) end),
        towpath._name_or_null_refusal(p_actor, 'actor'));
end;
$$;

-- create_email_message: stores an e-mail: {from, to, cc, bcc, reply_to, subject, text, html, headers}.
--
-- Answers: {ok, message_id}; invalid {detail}, unknown_key.
create or replace function comms.create_email_message(p_message jsonb, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _message comms.email_message := comms._email_read(p_message);
    _refusal jsonb := comms._message_refusal(p_message, array['from', 'to', 'cc', 'bcc', 'reply_to', 'subject', 'text',
                                             'html', 'headers'], comms._email_problem(_message), null, p_actor);
begin
    return coalesce(_refusal, jsonb_build_object('ok', true, 'message_id',
        (select m.message_id from comms._message_make(_message, null, null, p_actor) m)));
end;
$$;

-- create_sms_message: stores a text message: {from, to, text}.
--
-- Answers: {ok, message_id}; invalid {detail}, unknown_key.
create or replace function comms.create_sms_message(p_message jsonb, p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _message comms.sms_message := comms._sms_read(p_message);
    _refusal jsonb := comms._message_refusal(p_message, array['from', 'to', 'text'], comms._sms_problem(_message),
                                             null, p_actor);
begin
    return coalesce(_refusal, jsonb_build_object('ok', true, 'message_id',
        (select m.message_id from comms._message_make(null, _message, null, p_actor) m)));
end;
$$;

-- send_email: create_email_message and kickoff_send_email_task in one call. Repeated with the same
-- idempotency key it answers the first send and makes none, even if the message is another.
--
-- Answers: {ok, message_id, send_email_task_id, process_id, duplicate}; gate_closed, not_authorised, invalid,
-- unknown_key, conflict (the key belongs to a message of the other channel).
create or replace function comms.send_email(
    p_message jsonb, p_idempotency_key text default null, p_scheduled_at timestamptz default null,
    p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _message comms.email_message := comms._email_read(p_message);
    _refusal jsonb := coalesce(comms._send_refusal('email', p_scheduled_at), comms._message_refusal(p_message,
        array['from', 'to', 'cc', 'bcc', 'reply_to', 'subject', 'text', 'html', 'headers'],
        comms._email_problem(_message), p_idempotency_key, p_actor));
    _made record;
    _first jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _made from comms._message_make(_message, null, p_idempotency_key, p_actor);
    if _made.message_id is null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'detail', 'a message of another channel has this key');
    end if;
    select jsonb_build_object('ok', true, 'duplicate', true, 'message_id', _made.message_id,
               'send_email_task_id', t.send_email_task_id, 'process_id', p.process_id, 'state', p.state)
      into _first
      from comms.send_email_task t
      join towpath.process p on p.process_kind = 'comms.send_email' and p.ref = t.send_email_task_id::text
     where _made.duplicate and t.message_id = _made.message_id order by t.send_email_task_id limit 1;
    if found then
        return _first;
    end if;
    return jsonb_build_object('message_id', _made.message_id, 'duplicate', false)
        || comms.kickoff_send_email_task(_made.message_id, p_scheduled_at, p_actor);
end;
$$;

-- send_sms: the same for a text message.
create or replace function comms.send_sms(
    p_message jsonb, p_idempotency_key text default null, p_scheduled_at timestamptz default null,
    p_actor text default null) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _message comms.sms_message := comms._sms_read(p_message);
    _refusal jsonb := coalesce(comms._send_refusal('sms', p_scheduled_at), comms._message_refusal(p_message,
        array['from', 'to', 'text'], comms._sms_problem(_message), p_idempotency_key, p_actor));
    _made record;
    _first jsonb;
begin
    if _refusal is not null then
        return _refusal;
    end if;
    select * into _made from comms._message_make(null, _message, p_idempotency_key, p_actor);
    if _made.message_id is null then
        return jsonb_build_object('ok', false, 'error', 'conflict', 'detail', 'a message of another channel has this key');
    end if;
    select jsonb_build_object('ok', true, 'duplicate', true, 'message_id', _made.message_id,
               'send_sms_task_id', t.send_sms_task_id, 'process_id', p.process_id, 'state', p.state)
      into _first
      from comms.send_sms_task t
      join towpath.process p on p.process_kind = 'comms.send_sms' and p.ref = t.send_sms_task_id::text
     where _made.duplicate and t.message_id = _made.message_id order by t.send_sms_task_id limit 1;
    if found then
        return _first;
    end if;
    return jsonb_build_object('message_id', _made.message_id, 'duplicate', false)
        || comms.kickoff_send_sms_task(_made.message_id, p_scheduled_at, p_actor);
end;
$$;

-- _send_refusal: why the caller cannot send on a channel at that time, before anything is written, or null.
create or replace function comms._send_refusal(p_channel text, p_scheduled_at timestamptz) returns jsonb
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(
        case when not towpath._producer_may(p_channel, 'PG_worker') then
            jsonb_build_object('ok', false, 'error', 'not_authorised', 'detail',
                format('%s may not send: it needs a producer grant for %s jobs of PG_worker', session_user, p_channel)) end,
        towpath._moment_refusal(p_scheduled_at, 'scheduled_at'),
        towpath._process_start_refusal('comms.send_' || p_channel, 'new', p_scheduled_at, null, null, null));
end;
$$;

grant execute on function comms.create_email_message(jsonb, text), comms.create_sms_message(jsonb, text),
    comms.send_email(jsonb, text, timestamptz, text), comms.send_sms(jsonb, text, timestamptz, text)
    to towpath_producer, workflow_admin;
