-- {{kind}}: a process in SQL. Install it: psql -v ON_ERROR_STOP=1 -f {{name}}.sql
create schema if not exists {{schema}};
grant usage on schema {{schema}} to worker_service_user;

-- Runs from the top at every attempt, in one transaction: what it writes and the steps it records commit together. If
-- it raises, nothing of the attempt is kept, and it is tried again.
create or replace function {{schema}}.{{name}}(process jsonb) returns jsonb
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    go jsonb;
begin
    if not process->'steps' ? 'begin' then
        -- Your work. Its result is kept: a later attempt finds it in process->'steps'->'begin'.
        perform towpath.process_step(process, 'begin', jsonb_build_object('worked_on', process->>'ref'));
    end if;

    -- Goes on after: select towpath.signal_process('{{kind}}', 'order:1', 'go'); or after a second.
    go := towpath.process_wait(process, 'go', interval '1 second');
    if go ? 'suspend' then return go; end if;
    return jsonb_build_object('go', go);
end;
$$;
revoke execute on function {{schema}}.{{name}}(jsonb) from public;
grant execute on function {{schema}}.{{name}}(jsonb) to worker_service_user;

select towpath.process_kind('{{kind}}', function => '{{schema}}.{{name}}', max_attempts => 5, deadline_seconds => 2592000);
