-- The audit of the dashboard's actions.

-- fn_audit_record: writes down one action and how it went. Rows are never changed.
--
-- Answers: {ok, audit_id}; invalid.
create or replace function towpath.fn_audit_record(
    p_actor text, p_action text, p_target text, p_detail text, p_outcome text) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    _id bigint;
    _refusal jsonb := coalesce(towpath._name_refusal(p_actor, 'actor'), towpath._name_refusal(p_action, 'action'));
begin
    if _refusal is not null then
        return _refusal;
    end if;
    insert into towpath.audit (actor, action, target, detail, outcome)
    values (p_actor, p_action, left(coalesce(p_target, ''), 2000), left(p_detail, 2000), left(coalesce(p_outcome, 'ok'), 2000))
    returning audit_id into _id;
    return jsonb_build_object('ok', true, 'audit_id', _id);
end;
$$;

-- fn_audit_list: the newest actions first, from a cursor on.
create or replace function towpath.fn_audit_list(p_limit integer default 100, p_before bigint default null)
    returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true, 'actions', coalesce(jsonb_agg(to_jsonb(a) order by a.audit_id desc), '[]'))
      from (select * from towpath.audit a
             where p_before is null or a.audit_id < p_before
             order by a.audit_id desc
             limit least(greatest(coalesce(p_limit, 100), 1), 1000)) a
$$;

grant execute on function towpath.fn_audit_record(text, text, text, text, text) to workflow_admin;
grant execute on function towpath.fn_audit_list(integer, bigint) to workflow_admin, towpath_observer;
