-- Filters: the objects with which lists are narrowed.

-- _filter_refusal: the answer to a filter that is no object or has a key the list does not know,
-- or null. A typing error must not widen a list.
create or replace function towpath._filter_refusal(p_filter jsonb, p_keys text[], p_field text default 'filter')
    returns jsonb
    language plpgsql immutable
as $$
begin
    return case
        when jsonb_typeof(coalesce(p_filter, '{}')) <> 'object' then
            towpath._invalid(p_field, 'must be an object')
        when exists (select 1 from jsonb_object_keys(p_filter) k where k <> all (p_keys)) then
            jsonb_build_object('ok', false, 'error', 'unknown_key', 'detail', 'must be one of ' || array_to_string(p_keys, ', '),
                'key', (select k from jsonb_object_keys(p_filter) k where k <> all (p_keys) order by k limit 1))
        end;
end;
$$;
