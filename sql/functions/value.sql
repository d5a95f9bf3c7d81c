-- Values: the rules of 0001_base.sql and 0002_job.sql in words, for the people they refuse (Q22).
--
-- Each answers null if the value is good, otherwise {ok: false, error: invalid, field, detail}. A function
-- that has several of them takes the first that is not null.

-- _invalid: the answer to a bad value of a field; null if there is nothing to say about it.
create or replace function towpath._invalid(p_field text, p_detail text) returns jsonb
    language plpgsql immutable
as $$
begin
    return case when p_detail is not null then
        jsonb_build_object('ok', false, 'error', 'invalid', 'field', p_field, 'detail', p_detail) end;
end;
$$;

-- _text_problem: why a text does not go on one line of at most so many bytes, or null.
create or replace function towpath._text_problem(p_text text, p_bytes_max integer) returns text
    language plpgsql immutable
as $$
begin
    return case
        when octet_length(p_text) > p_bytes_max then
            format('must have at most %s bytes, not %s', p_bytes_max, octet_length(p_text))
        when not towpath._text_plain(p_text) then 'must not contain control characters such as line breaks'
        end;
end;
$$;

-- _name_problem: what is wrong with a name, or null. Domains and types of events are words, because routes and grants
-- match them exactly: "Orders Placed" is a mistake for orders placed, two names.
create or replace function towpath._name_problem(p_name text, p_field text) returns text
    language plpgsql immutable
as $$
begin
    return case when p_field in ('event_domain', 'event_type') and strpos(p_name, ' ') > 0
                then 'must not contain spaces; write order_placed, for example'
                else towpath._text_problem(p_name, 200) end;
end;
$$;

-- _name_refusal: the answer to something that is no name: a kind, a domain, a type, an executor, an actor.
create or replace function towpath._name_refusal(p_name text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when coalesce(btrim(p_name), '') = '' then 'must not be blank'
                                          else towpath._name_problem(p_name, p_field) end);
end;
$$;

-- _name_or_null_refusal: the same where null means any, or none.
create or replace function towpath._name_or_null_refusal(p_name text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when btrim(p_name) = '' then 'must be null or non-blank'
                                          else towpath._name_problem(p_name, p_field) end);
end;
$$;

-- _ref_refusal: the answer to a reference, which may be null.
create or replace function towpath._ref_refusal(p_ref text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, towpath._text_problem(p_ref, 2000));
end;
$$;

-- _key_refusal: the answer to an idempotency key or an ordering key, which may be null.
create or replace function towpath._key_refusal(p_key text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when btrim(p_key) = '' then 'must be null or non-blank'
                                          else towpath._text_problem(p_key, 2000) end);
end;
$$;

-- _owner_refusal: the answer to the owner of a lease.
create or replace function towpath._owner_refusal(p_owner text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when coalesce(btrim(p_owner), '') = '' then 'must not be blank'
                                          else towpath._text_problem(p_owner, 2000) end);
end;
$$;

-- _note_refusal: the answer to words for people: notes and reasons. They may have several lines, or be null.
create or replace function towpath._note_refusal(p_note text, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when length(p_note) > 8000 then 'must have at most 8000 characters' end);
end;
$$;

-- _moment_refusal: the answer to a time, which may be null.
create or replace function towpath._moment_refusal(p_moment timestamptz, p_field text) returns jsonb
    language plpgsql immutable
as $$
begin
    return towpath._invalid(p_field, case when not towpath._moment_fits(p_moment)
        then 'must be a time from 1970 up to the year 3000' end);
end;
$$;

-- _uuid_read: the uuid that a text is, or null.
create or replace function towpath._uuid_read(p_text text) returns uuid
    language plpgsql immutable
as $$
begin
    return case when p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then p_text::uuid end;
end;
$$;

-- _number_read: the whole number that a text is, as far as an identity column counts, or null.
create or replace function towpath._number_read(p_text text) returns bigint
    language plpgsql immutable
as $$
begin
    return case when p_text ~ '^[0-9]{1,18}$' then p_text::bigint end;
end;
$$;

-- _names_refusal: why a list of names is not accepted, or null.
create or replace function towpath._names_refusal(p_names text[], p_field text) returns jsonb
    language sql stable
as $$
    select coalesce(
        case when cardinality(p_names) not between 1 and 1000 then
            towpath._invalid(p_field, 'must be 1 to 1000 names, or null') end,
        (select towpath._name_refusal(n, p_field) from unnest(p_names) n where towpath._name_fits(n) is not true limit 1))
$$;

-- _own_actor: the name of a part of Towpath that acts, such as schedule:nightly, cut to what a name may have.
create or replace function towpath._own_actor(p_part text, p_name text) returns text
    language plpgsql immutable
as $$
begin
    return p_part || ':' || case when octet_length(p_name) <= 180 then p_name else left(p_name, 45) end;
end;
$$;
