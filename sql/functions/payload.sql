-- Payloads: what a signal may carry, and the messages for what it may not.
--
-- The rules themselves are _payload_safe, _payload_denied_key and _payload_small, which tables depend on.

-- _payload_refusal: the answer to a payload that no table would take, or null.
create or replace function towpath._payload_refusal(p_payload jsonb, p_field text) returns jsonb
    language plpgsql stable
as $$
begin
    if jsonb_typeof(p_payload) is distinct from 'object' then
        return towpath._invalid(p_field, 'must be a JSON object');
    end if;
    if towpath._number_huge(p_payload) then
        return towpath._invalid(p_field, 'must have no number beyond 1e308; send it as a string');
    end if;
    if not towpath._payload_safe(p_payload) then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', p_field,
            'detail', format('the key %s is not allowed at any depth: it names data or a credential; '
                             'store the data with towpath.payload_put and pass its reference',
                             to_jsonb(towpath._payload_denied_key(p_payload))));
    end if;
    if towpath._payload_deep(p_payload) then
        return towpath._invalid(p_field, 'must have at most 64 levels');
    end if;
    if not towpath._payload_small(p_payload) then
        return jsonb_build_object('ok', false, 'error', 'invalid', 'field', p_field,
            'detail', format('%s bytes exceed the limit of 65536; store the data with towpath.payload_put and pass its reference',
                             pg_column_size(p_payload)));
    end if;
    return null;
end;
$$;
