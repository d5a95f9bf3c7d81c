-- Takes {{schema}}.{{name}} through a failure, a retry and success, and leaves nothing behind.
-- Run it with psql after the installation, as somebody who may migrate: it raises what is wrong.

begin;
set local role towpath_owner;
update towpath.config set value = 'true' where key in ('process.enabled', 'queue.job_substrate.enabled');

do $$
declare
    _started jsonb := {{schema}}.kickoff_{{name}}_task(
        ({{schema}}.create_{{name}}({{example}})->>'{{name}}_id')::bigint);
    _id bigint := _started->>'{{name}}_task_id';
    _process uuid := _started->>'process_id';
    _job jsonb;
    _answer jsonb;
    _facts text;
begin
    assert (_started->>'ok')::boolean, _started;

    -- The first attempt fails. The worker's own role is enough for all of it.
    select j.payload_json into strict _job from towpath.job j where j.idempotency_key = format('process:%s:1', _process);
    set local role worker_service_user;
    _answer := towpath.run_function('{{schema}}.get_{{name}}_payload', _job);
    assert (_answer->>'success')::boolean, _answer;
    _answer := towpath.run_function('{{schema}}.record_{{name}}_failure',
        jsonb_build_object('original_payload', _job, 'error', 'the other side is busy'));
    assert (_answer->>'success')::boolean, _answer;
    _answer := towpath.run_function('{{schema}}.{{name}}_supervisor', _job);
    assert _answer #>> '{payload,did}' = 'wait', _answer;

    -- The second, scheduled by the failure, succeeds.
    set local role towpath_owner;
    select j.payload_json into strict _job from towpath.job j where j.idempotency_key = format('process:%s:2', _process);
    set local role worker_service_user;
-- [db_function]
    _answer := towpath.run_function(_job->>'db_function', _job);
-- [end]
-- [email sms other]
    _answer := towpath.run_function(_job->>'before_handler', _job);
    assert (_answer->>'success')::boolean, _answer;
    _answer := towpath.run_function(_job->>'success_handler', jsonb_build_object('original_payload', _job,
        'worker_payload', jsonb_build_object('result_ref', 'done')));
-- [end]
    assert _answer #>> '{payload,state}' = 'succeeded', _answer;
    _answer := towpath.run_function('{{schema}}.record_{{name}}_success', jsonb_build_object('original_payload', _job));
    assert not (_answer->>'success')::boolean, 'success is recorded once';

    set local role towpath_owner;
    select string_agg(f.fact, ' ' order by f.fact_no) into _facts from towpath.process_fact f where f.process_id = _process;
    assert _facts = 'started scheduled begun failed scheduled begun succeeded', _facts;
    assert {{schema}}.has_{{name}}_task_succeeded(_id);
    assert {{schema}}.count_{{name}}_task_scheduled(_id) = 2 and {{schema}}.count_{{name}}_task_failures(_id) = 1
       and {{schema}}.count_{{name}}_task_lost(_id) = 0;
    begin
        delete from {{schema}}.{{name}}_task_succeeded;
        assert false, 'facts are append-only';
    exception when insufficient_privilege then
        null;
    end;
end;
$$;
rollback;
\echo {{schema}}.{{name}}: failure, retry, success and its facts are as they should be
