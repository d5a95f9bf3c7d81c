-- Messages: what an e-mail or an SMS may say. Checked when it is stored and once more before it is sent.
-- sql/template/channel.sql stores and sends them.

-- _address_good: an e-mail address, or a name with one in angle brackets; nothing that could end a
-- header line.
create or replace function comms._address_good(p_address text) returns boolean
    language plpgsql immutable
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
as $$
begin
    return case
        when p_message.message_id is null then 'the message is missing'
        when coalesce(cardinality(p_message.to_addresses), 0) = 0 then 'to: at least one address is required'
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
            then 'subject: one non-blank line of at most 998 characters is required'
        when coalesce(p_message.text_body, p_message.html_body, '') = '' then 'text or html is required'
        when octet_length(p_message.text_body) > 1048576 or octet_length(p_message.html_body) > 1048576
            then 'text and html may have at most 1 MiB each'
        when jsonb_typeof(p_message.headers) <> 'object' then 'headers: must be an object'
        when exists (select 1 from jsonb_each(p_message.headers) h
                      where h.key !~ '^[A-Za-z][A-Za-z0-9-]{0,60}$' or jsonb_typeof(h.value) <> 'string'
                         or (h.value #>> '{}') ~ '[[:cntrl:]]' or length(h.value #>> '{}') > 998
                         or lower(h.key) in ('from', 'to', 'cc', 'bcc', 'reply-to', 'subject', 'date', 'message-id', 'sender',
                                             'content-type', 'content-transfer-encoding', 'mime-version'))
            then 'headers: each must be one line of text, and none may be a header that the message sets itself'
        end;
end;
$$;

-- _sms_problem: why a text message cannot be sent, or null.
create or replace function comms._sms_problem(p_message comms.sms_message) returns text
    language plpgsql immutable
as $$
begin
    return case
        when p_message.message_id is null then 'the message is missing'
        when coalesce(p_message.to_number !~ '^\+[1-9][0-9]{5,14}$', true)
            then 'to: a number such as +4915112345678 is required'
        when p_message.from_number !~ '^(\+[1-9][0-9]{2,14}|[0-9]{3,8}|[A-Za-z0-9 ]{1,11}|MG[0-9a-f]{32})$'
            then 'from: a number, a short code, a sender name or a messaging service is required'
        when coalesce(p_message.text_body, '') = '' or length(p_message.text_body) > 1600
            then 'text: must have 1 to 1,600 characters'
        end;
end;
$$;

-- _email_content: an e-mail as the provider gets it.
create or replace function comms._email_content(p_message comms.email_message, p_from text) returns jsonb
    language plpgsql immutable
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
as $$
begin
    return jsonb_build_object('from', coalesce(p_message.from_number, p_from), 'to', p_message.to_number,
                              'text', p_message.text_body);
end;
$$;

-- _addresses: one address or a list of them.
create or replace function comms._addresses(p_value jsonb) returns text[]
    language plpgsql immutable
as $$
begin
    return case jsonb_typeof(p_value) when 'array' then array(select jsonb_array_elements_text(p_value))
                                      when 'string' then array[p_value #>> '{}'] else '{}' end;
end;
$$;

-- _email_read: an e-mail from the object a caller gave; not stored yet, so its id is 0.
create or replace function comms._email_read(p_message jsonb) returns comms.email_message
    language plpgsql immutable
as $$
begin
    return row(0, 'email', p_message->>'from', comms._addresses(p_message->'to'), comms._addresses(p_message->'cc'),
               comms._addresses(p_message->'bcc'), comms._addresses(p_message->'reply_to'), p_message->>'subject',
               p_message->>'text', p_message->>'html', coalesce(p_message->'headers', '{}'))::comms.email_message;
end;
$$;

-- _sms_read: the same for a text message.
create or replace function comms._sms_read(p_message jsonb) returns comms.sms_message
    language plpgsql immutable
as $$
begin
    return row(0, 'sms', p_message->>'from', p_message->>'to', p_message->>'text')::comms.sms_message;
end;
$$;

-- _message_keys: what the object that describes a message may contain.
create or replace function comms._message_keys(p_channel text) returns text[]
    language sql immutable
    return case p_channel
        when 'email' then '{from,to,cc,bcc,reply_to,subject,text,html,headers}'::text[]
        when 'sms' then '{from,to,text}'::text[] end;

-- _message_refusal: the answer to a message that cannot be stored, or null. An unknown key is refused,
-- so that a typing error does not lose a part of the message.
create or replace function comms._message_refusal(
    p_channel text, p_message jsonb, p_problem text, p_key text, p_actor text) returns jsonb
    language plpgsql stable
as $$
begin
    return coalesce(
        towpath._filter_refusal(coalesce(p_message, 'null'), comms._message_keys(p_channel), 'message'),
        towpath._invalid('message', p_problem),
        towpath._invalid('idempotency_key', case when btrim(p_key) = '' then 'must be null or non-blank'
                                                 else towpath._text_problem(p_key, 500) end),
        towpath._name_or_null_refusal(p_actor, 'actor'));
end;
$$;

-- _send_refusal: why the caller cannot send on a channel at that time, before anything is written, or null.
create or replace function comms._send_refusal(p_channel text, p_scheduled_at timestamptz) returns jsonb
    language plpgsql stable
as $$
begin
    return coalesce(
        case when not towpath._producer_may(p_channel, 'PG_worker') then
            jsonb_build_object('ok', false, 'error', 'not_authorised',
                'producer', session_user, 'job_kind', p_channel, 'executor', 'PG_worker', 'detail',
                format('%s is not allowed to send: it needs a producer grant for %s jobs of PG_worker', session_user, p_channel)) end,
        towpath._moment_refusal(p_scheduled_at, 'scheduled_at'),
        towpath._process_start_refusal('comms.send_' || p_channel, 'new', p_scheduled_at, null, null, null));
end;
$$;
