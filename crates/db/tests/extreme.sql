-- The ground under the extreme calls: something of everything for them to act on, and the pulse that shows that
-- everybody else's work goes on. Read by extreme.rs.
--
-- What a call acts on is called victim and is made again for each call; what the pulse works with is called pulse.
create schema extreme;

do $$
declare
    _hook jsonb;
begin
    perform towpath.fn_consumer_put('victim', 'PG_worker'), towpath.fn_consumer_put('pulse', 'PG_worker');
    perform towpath.fn_job_subscription_put('victim', 'PG_worker', 'victim.job', null, 0, null, true);
    perform towpath.fn_job_subscription_put('pulse', 'PG_worker', 'pulse.job', null, 0, 100, true);
    perform towpath.fn_executor_token_create('victim', p_may_enqueue => true);
    update towpath.executor_token set token_hash = sha256('victim');
    perform towpath.fn_event_actor_put('agent:victim', p_executor_id => 'victim');
    perform towpath.fn_event_subscription_put('agent:victim', 'victim');
    perform towpath.fn_process_kind_put('victim.process', '{"task_kind": "victim.task"}');
    perform towpath.fn_process_kind_put('pulse.process',
        '{"task_kind": "pulse.task", "supervisor": "towpath.process_supervisor"}');
    foreach _hook in array array['"victim"', '"pulse"']::jsonb[] loop
        perform towpath.fn_route_put(_hook #>> '{}', 'webhook',
            jsonb_build_object('url', format('https://%s.test/hook', _hook #>> '{}')), _hook #>> '{}');
        perform towpath.fn_route_secret_rotate(_hook #>> '{}');
        perform towpath.fn_route_put((_hook #>> '{}') || '-job', 'job',
            jsonb_build_object('job_kind', (_hook #>> '{}') || '.routed',
                'from_payload', '{"scheduled_at": "at", "priority": "priority", "target_ref": "target"}'::jsonb), _hook #>> '{}');
        perform towpath.fn_route_put((_hook #>> '{}') || '-stream', 'stream',
            jsonb_build_object('stream', (_hook #>> '{}') || '-events'), _hook #>> '{}');
        perform towpath.fn_route_mode_set(r.route_name, 'live', 'tester', 'a test') from towpath.outbound_route r;
    end loop;
    perform towpath.fn_route_worker_put('victim');
    perform towpath.fn_job_enqueue('victim.first');
end;
$$;

-- held: a job that the owner 'o' holds in its first attempt.
create function extreme.held() returns uuid language plpgsql as $$
begin
    perform towpath.fn_job_enqueue('victim.job');
    return (select c.job_id from towpath.fn_job_claim_rows('victim', array['victim.job'], 1, 'o') c);
end;
$$;
-- waiting: a job that nobody holds.
create function extreme.waiting() returns uuid language sql as $$
    select (towpath.fn_job_enqueue('victim.waiting') ->> 'job_id')::uuid
$$;
-- dead_letter: a job that was given up.
create function extreme.dead_letter() returns uuid language plpgsql as $$
declare
    _job uuid := extreme.waiting();
begin
    perform towpath.fn_job_move_to_dead_letter(_job, 'broken', 'tester');
    return (select d.dead_letter_id from towpath.job_dead_letter d where d.job_id = _job);
end;
$$;
-- position: a number that no event has, for rows that are made by hand.
create sequence extreme.position start 1000000000;
-- delivery: a webhook that 'o' holds in its first attempt.
create function extreme.delivery() returns uuid language sql as $$
    insert into towpath.delivery (delivery_id, route_no, target_no, position, event_id, generation, event, next_at, attempts,
        lease_owner, lease_until, created_at)
    select towpath._uuid7((date_part('epoch', towpath.fn_now()) * 1000000)::bigint), r.route_no, r.target_no,
           nextval('extreme.position'), gen_random_uuid(), 0, '{"event_domain": "victim", "event_type": "t"}',
           towpath.fn_now(), 1, 'o', towpath.fn_now() + interval '1 minute', towpath.fn_now()
      from towpath.outbound_route r where r.route_name = 'victim'
    returning delivery_id
$$;
-- route_letter: an event that a route did not take.
create function extreme.route_letter() returns uuid language sql as $$
    insert into towpath.route_dead_letter (dead_letter_id, stage, worker_no, route_no, route_name, mode, generation, position,
        event_id, event_snapshot, error, attempts, idempotency_key, created_at)
    select gen_random_uuid(), 'routing', r.worker_no, r.route_no, r.route_name, 'live', 0, nextval('extreme.position'),
           gen_random_uuid(), jsonb_build_object('position', currval('extreme.position'), 'event_id', gen_random_uuid(),
               'event_domain', 'victim', 'event_type', 't', 'payload', '{}'::jsonb), 'broken', 1,
           gen_random_uuid()::text, towpath.fn_now()
      from towpath.outbound_route r where r.route_name = 'victim-job'
    returning dead_letter_id
$$;
-- stream: a stream delivery that 'o' holds; attempts says in which attempt.
create function extreme.stream() returns integer language sql as $$
    insert into towpath.route_stream (route_no, project, stream, attempts, lease_owner, lease_until)
    select r.route_no, 'default', gen_random_uuid()::text, 1, 'o', towpath.fn_now() + interval '1 minute'
      from towpath.outbound_route r where r.route_name = 'victim-stream'
    returning route_stream_no
$$;
-- process: one that a program outside supervises, open, with a first attempt.
create function extreme.process() returns uuid language plpgsql as $$
declare
    _id uuid := (towpath.fn_process_start('victim.process', gen_random_uuid()::text) ->> 'process_id')::uuid;
begin
    perform towpath.fn_process_decide(_id, 1, '{"do": "attempt"}');
    return _id;
end;
$$;
-- begun: the same, and 'o' has begun the attempt.
create function extreme.begun() returns uuid language plpgsql as $$
declare
    _id uuid := extreme.process();
begin
    perform towpath.fn_process_attempt_begin(_id, 1, 'o');
    return _id;
end;
$$;
-- undecided: the same without an attempt, of generation 1.
create function extreme.undecided() returns uuid language sql as $$
    select (towpath.fn_process_start('victim.process', gen_random_uuid()::text) ->> 'process_id')::uuid
$$;
-- asked: the same, held for a person.
create function extreme.asked() returns uuid language plpgsql as $$
declare
    _id uuid := extreme.undecided();
begin
    perform towpath.fn_process_decide(_id, 1, '{"do": "hold", "why": "a test"}');
    return _id;
end;
$$;
-- email, sms: a message; email_task, sms_task: a send of it.
create function extreme.email() returns bigint language sql as $$
    select (comms.create_email_message('{"to": "a@b.test", "subject": "s", "text": "t"}') ->> 'message_id')::bigint
$$;
create function extreme.sms() returns bigint language sql as $$
    select (comms.create_sms_message('{"to": "+4915112345678", "text": "t"}') ->> 'message_id')::bigint
$$;
create function extreme.email_task() returns bigint language sql as $$
    select (comms.kickoff_send_email_task(extreme.email()) ->> 'send_email_task_id')::bigint
$$;
create function extreme.sms_task() returns bigint language sql as $$
    select (comms.kickoff_send_sms_task(extreme.sms()) ->> 'send_sms_task_id')::bigint
$$;
-- schedule: one that waits for its tick at 2026-01-01.
create function extreme.schedule() returns text language plpgsql as $$
begin
    perform towpath.fn_schedule_put('victim', '* * * * *', 'UTC', '{"job_kind": "victim.tick"}', '2026-01-01 00:00:00+00');
    update towpath.schedule set last_tick_at = null, paused = false where name = 'victim';
    return 'victim';
end;
$$;
create function extreme.event() returns uuid language sql as $$
    select (towpath.fn_event_emit('victim', 't') ->> 'event_id')::uuid
$$;
create function extreme.graph() returns uuid language sql as $$
    select (towpath.fn_mot_graph_emit('{"nodes": [{"node": "a", "job_kind": "victim.node"}]}') ->> 'graph_id')::uuid
$$;
create function extreme.fault() returns text language sql as $$
    select case when towpath.fn_loop_fault_record('job_reaper', 'victim', 'broken') is not null then 'victim' end
$$;

-- must: what a pulse needs to be true.
create function extreme.must(p_true boolean, p_claim text) returns void language plpgsql as $$
begin
    if p_true is not true then
        raise exception 'the pulse stops: %', p_claim;
    end if;
end;
$$;

-- pulse: one round of everybody else's work, each step in a transaction of its own, as in real life. It raises if a
-- step raises or does not do its part.
create procedure extreme.pulse() language plpgsql as $$
declare
    _job uuid;
    _lost uuid;
    _event uuid;
    _process uuid;
    _claimed uuid[];
    _answer jsonb;
    _item jsonb;
    _found boolean;
    _name text;
begin
    -- Operators close gates and pause; that is no harm.
    update towpath.config set value = case kind when 'gate' then 'true' else default_value end
     where value <> case kind when 'gate' then 'true' else default_value end;
    commit;
    -- Producers.
    _job := (towpath.fn_job_enqueue('pulse.job', p_payload_json => '{"n": 1}') ->> 'job_id')::uuid;
    _lost := (towpath.fn_job_enqueue_many('[{"job_kind": "pulse.job"}]') #>> '{jobs,0,job_id}')::uuid;
    _event := (towpath.fn_event_emit('pulse', 'beat', p_payload => '{"target": "x"}') ->> 'event_id')::uuid;
    _process := (towpath.fn_process_start('pulse.process', gen_random_uuid()::text) ->> 'process_id')::uuid;
    _answer := towpath.fn_schedule_put('pulse', '* * * * *', 'UTC', '{"job_kind": "pulse.tick"}',
                                       date_trunc('second', towpath.fn_now()));
    perform extreme.must((_answer ->> 'ok')::boolean, format('a schedule is put: %s', _answer));
    commit;
    -- Workers: one job done, one lost and requeued by the reaper.
    _claimed := array(select c.job_id from towpath.fn_job_claim_rows('pulse', array['pulse.job'], 10, 'p', 1) c);
    perform extreme.must(_claimed @> array[_job, _lost], 'both jobs are claimed');
    commit;
    _answer := towpath.fn_job_ack(_job, 'p', 1);
    perform extreme.must((_answer ->> 'ok')::boolean, format('an ack: %s', _answer));
    commit;
    update testkit.clock set shift = shift + interval '90 seconds';
    commit;
    loop
        _answer := towpath.fn_job_reap();
        commit;
        exit when not (_answer ->> 'more')::boolean;
    end loop;
    perform extreme.must((select q.state = 'retry_waiting' from towpath.job_queue q where q.job_id = _lost),
                         'the lost job is requeued');
    perform towpath.fn_job_cancel(_lost, 'pulse');
    commit;
    -- Events: numbered, routed to a job, a webhook and a stream, and delivered.
    loop
        _answer := towpath.fn_event_sequence();
        commit;
        exit when not (_answer ->> 'more')::boolean;
    end loop;
    perform extreme.must(exists (select 1 from towpath.event_position p where p.event_id = _event), 'the event is numbered');
    loop
        _answer := towpath.fn_route_worker_run('default');
        commit;
        exit when not (_answer ->> 'more')::boolean;
    end loop;
    perform extreme.must((select count(*) = 3 from towpath.route_attempt a join towpath.outbound_route r on r.route_no = a.route_no
                           where a.event_id = _event and a.decision = 'sent' and r.route_name like 'pulse%'),
                         format('the event is routed: %s', _answer));
    _found := false;
    loop
        _answer := towpath.fn_delivery_claim('p', 100);
        exit when _answer -> 'deliveries' = '[]';
        for _item in select * from jsonb_array_elements(_answer -> 'deliveries') loop
            _found := _found or (_item ->> 'event_id')::uuid = _event;
            perform towpath.fn_delivery_succeed((_item ->> 'delivery_id')::uuid, 'p', (_item ->> 'attempt')::integer);
        end loop;
        commit;
    end loop;
    perform extreme.must(_found, 'the webhook is claimed');
    _found := false;
    loop
        _answer := towpath.fn_stream_delivery_claim('p', 100);
        exit when _answer -> 'streams' = '[]';
        for _item in select * from jsonb_array_elements(_answer -> 'streams') loop
            _found := _found or _item ->> 'stream' = 'pulse-events';
            perform towpath.fn_stream_delivery_end((_item ->> 'route_stream_no')::integer, 'p', (_item ->> 'attempt')::integer,
                                                   (_item #>> '{events,-1,number}')::bigint);
        end loop;
        commit;
    end loop;
    perform extreme.must(_found, 'the stream is claimed');
    -- Processes and schedules.
    loop
        _answer := towpath.fn_process_scan();
        commit;
        exit when not (_answer ->> 'more')::boolean;
    end loop;
    perform extreme.must(exists (select 1 from towpath.process_attempt a where a.process_id = _process),
                         'the process has an attempt');
    perform towpath.fn_process_cancel(_process, 'pulse');
    _found := false;
    for _item in select * from jsonb_array_elements(towpath.fn_schedule_due(1000) -> 'due') loop
        _answer := towpath.fn_schedule_fire(_item ->> 'name', (_item ->> 'next_at')::timestamptz,
                                            towpath.fn_now() + interval '1 hour');
        perform extreme.must((_answer ->> 'ok')::boolean, format('the schedule %s fires: %s', _item ->> 'name', _answer));
        _found := _found or _item ->> 'name' = 'pulse' and (_answer ->> 'fired')::boolean;
    end loop;
    perform extreme.must(_found, 'the schedule fires');
    commit;
    -- Everything that needs no argument: ticks, folds, retention, lists, health, metrics.
    for _name in
        select p.oid::regproc::text from pg_proc p
         where p.pronamespace in ('towpath'::regnamespace, 'comms'::regnamespace) and p.proname not like '\_%'
           and p.pronargs = p.pronargdefaults and p.prokind = 'f' and p.prorettype = 'jsonb'::regtype
         order by 1
    loop
        execute format('select %s()', _name) into _answer;
        perform extreme.must(_answer is not null, _name || ' answers');
        commit;
    end loop;
    for _name in
        select c.oid::regclass::text from pg_class c
         where c.relnamespace in ('towpath'::regnamespace, 'comms'::regnamespace) and c.relkind = 'v' order by 1
    loop
        execute format('select count(to_jsonb(v)) from %s v', _name);
        commit;
    end loop;
end;
$$;
