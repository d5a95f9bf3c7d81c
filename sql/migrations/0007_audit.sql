-- Actions of operators through the dashboard: one row per action, whether it succeeded or not.

create table towpath.audit (
    audit_id bigint        generated always as identity primary key,
    at       timestamptz   not null default towpath.fn_now(),
    actor    towpath.label not null,
    action   towpath.label not null,
    target   text          not null,
    detail   text,
    outcome  text          not null
);
comment on table towpath.audit is 'One row per action on the dashboard. Rows are only added.';
