-- Traces: a job and an event remember the span that wrote them (O05).
--
-- The column holds a W3C traceparent. Its default reads the setting towpath.traceparent, so that
-- whatever a transaction writes, through whichever function, belongs to the trace that it named with
-- set local towpath.traceparent; without one it is null and costs nothing.

-- _traceparent: a given parent if it is well formed, else the setting's, else null. What is malformed is
-- as good as none.
create function towpath._traceparent(p_given text default null) returns text
    language sql stable parallel safe
    return case
        when p_given ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then p_given
        when current_setting('towpath.traceparent', true) ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            then current_setting('towpath.traceparent', true) end;

alter table towpath.job add column traceparent text default towpath._traceparent();
alter table towpath.event_outbox add column traceparent text default towpath._traceparent();
alter type towpath._job_input add attribute traceparent text;

-- Its result has another column now, which replacing cannot change.
drop function if exists towpath.fn_job_claim_rows(text, text[], integer, text, integer);
