-- What everything else depends on: the clock, the rules of values, config, and loop faults.
--
-- Migrations run as towpath_owner inside the migrator's one transaction. They hold
-- tables and what tables depend on; functions that only callers need are in
-- sql/functions and are reinstalled whole.

-- fn_now: the one clock. Every default and every function reads time here, so that a
-- test database can move it. It follows the wall, not the transaction: a lease granted
-- late in a long transaction must not be expired already. Being volatile it defeats index
-- conditions, so functions read it once into _now. A body without a SET clause is inlined,
-- which saves 20 µs a call; its names were resolved when it was made.
create function towpath.fn_now() returns timestamptz
    language sql volatile parallel safe
    return pg_catalog.clock_timestamp();

-- Safe values (Q22): the rules, once. The domains below enforce them in every table, and
-- sql/functions/value.sql explains them at every door. A value outside of them could make a loop raise
-- for all jobs, or write control sequences to a terminal.

-- _text_plain: no control characters: neither line breaks nor escape sequences, C1 included. The C collation
-- keeps the answer the same in every database.
create function towpath._text_plain(p_text text) returns boolean
    language sql immutable parallel safe
    return (p_text collate "C") !~ '[\u0001-\u001f\u007f-\u009f]';

-- _text_plain_and_said: the same, and not blank, in one check.
create function towpath._text_plain_and_said(p_text text) returns boolean
    language sql immutable parallel safe
    return (p_text collate "C") !~ '[\u0001-\u001f\u007f-\u009f]|^ *$';

-- _name_fits: a name: kinds, domains, types, executors, actors.
create function towpath._name_fits(p_name text) returns boolean
    language sql immutable parallel safe
    return octet_length(p_name) <= 200 and towpath._text_plain_and_said(p_name);

-- _ref_fits: a reference to something elsewhere.
create function towpath._ref_fits(p_ref text) returns boolean
    language sql immutable parallel safe
    return octet_length(p_ref) <= 2000 and towpath._text_plain(p_ref);

-- _key_fits: a reference that says something: idempotency keys, lease owners.
create function towpath._key_fits(p_key text) returns boolean
    language sql immutable parallel safe
    return octet_length(p_key) <= 2000 and towpath._text_plain_and_said(p_key);

-- _moment_fits: a finite time that every program can read and every sum of waits can carry.
create function towpath._moment_fits(p_moment timestamptz) returns boolean
    language sql immutable parallel safe
    return p_moment >= timestamptz '1970-01-01 00:00:00+00' and p_moment < timestamptz '3000-01-01 00:00:00+00';

-- _moment_last: the last of them, for sums that would go beyond.
create function towpath._moment_last() returns timestamptz
    language sql immutable parallel safe
    return timestamptz '2999-12-31 23:59:59.999999+00';

-- _traceparent: a W3C traceparent (O05): the given one if it is well formed, else that of the setting
-- towpath.traceparent, else null. It is the default of the columns of that name, so whatever a transaction writes
-- after `set local towpath.traceparent`, through whichever function, belongs to that trace.
create function towpath._traceparent(p_given text default null) returns text
    language sql stable parallel safe
    return case
        when p_given ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then p_given
        when current_setting('towpath.traceparent', true) ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            then current_setting('towpath.traceparent', true) end;

-- Domains rather than CHECKs in the hot tables: PostgreSQL parses and plans a table's CHECK again for every
-- statement, a domain's once per session. As CHECKs those of a job cost a single enqueue a third.
create domain towpath.label as text
    constraint label_not_blank_short_and_plain_check check (towpath._name_fits(value));
create domain towpath.reference as text
    constraint reference_short_and_plain_check check (towpath._ref_fits(value));
create domain towpath.long_label as text
    constraint long_label_not_blank_short_and_plain_check check (towpath._key_fits(value));
create domain towpath.moment as timestamptz
    constraint moment_from_1970_to_3000_check check (towpath._moment_fits(value));

-- A config key is a gate (open only while its value is exactly 'true') or a number
-- with bounds. Values are text because a reader must survive any value: what cannot be
-- read counts as closed, or as the default.
create table towpath.config (
    key           text        primary key,
    kind          text        not null,
    value         text        not null,
    default_value text        not null,
    min_value     numeric,
    max_value     numeric,
    description   text        not null,
    changed_at    timestamptz not null default towpath.fn_now(),
    changed_by    text        not null default session_user,
    reason        text        not null default 'installed',
    constraint config_key_not_blank_check check (btrim(key) <> ''),
    constraint config_kind_check check (kind in ('gate', 'number')),
    constraint config_bounds_only_for_numbers_check check (
        kind = 'number' or (min_value is null and max_value is null)),
    constraint config_changed_by_not_blank_check check (btrim(changed_by) <> ''),
    constraint config_reason_not_blank_check check (btrim(reason) <> '')
);

-- One row per change of a config key, written by a trigger, so that direct changes are recorded too.
-- Append-only for every role.
create table towpath.config_change (
    change_id  bigint      generated always as identity primary key,
    key        text        not null,
    old_value  text,
    new_value  text,
    changed_at timestamptz not null,
    changed_by text        not null,
    reason     text        not null,
    db_user    text        not null default session_user
);

-- config_change_by_key_idx: fn_config_history reads one key, newest first.
create index config_change_by_key_idx on towpath.config_change (key, change_id desc);

-- _append_only: the trigger function behind every append-only table. It answers
-- statements, not rows, so truncate is refused too.
create function towpath._append_only() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception '%.% is append-only', tg_table_schema, tg_table_name
        using errcode = 'insufficient_privilege',
              hint = 'insert a new row instead';
end;
$$;

create trigger config_change_append_only
    before update or delete or truncate on towpath.config_change
    for each statement execute function towpath._append_only();

-- _config_changed: stamps and audits every write to towpath.config. A statement that
-- did not say who and why (it left changed_at alone) is recorded as the session's own.
create function towpath._config_changed() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := towpath.fn_now();
begin
    if tg_op = 'DELETE' then
        insert into towpath.config_change (key, old_value, changed_at, changed_by, reason)
        values (old.key, old.value, _now, session_user, 'deleted directly');
        return old;
    end if;
    if tg_op = 'UPDATE' and new.changed_at = old.changed_at then
        new.changed_at := _now;
        new.changed_by := session_user;
        new.reason := 'changed directly';
    end if;
    if tg_op = 'INSERT' or new.value is distinct from old.value then
        insert into towpath.config_change (key, old_value, new_value, changed_at, changed_by, reason)
        values (new.key, case when tg_op = 'UPDATE' then old.value end, new.value,
                new.changed_at, new.changed_by, new.reason);
    end if;
    return new;
end;
$$;

create trigger config_changed
    before insert or update or delete on towpath.config
    for each row execute function towpath._config_changed();

-- _config_truncated: truncating config would close every gate without an audit row.
create trigger config_no_truncate
    before truncate on towpath.config
    for each statement execute function towpath._append_only();

-- The eight keys of the job substrate, with their stated defaults. Migrating again
-- never touches a value: this insert runs once, and later keys come with later files.
insert into towpath.config (key, kind, value, default_value, min_value, max_value, description) values
    ('queue.job_substrate.enabled', 'gate', 'false', 'false', null, null,
     'enables jobs: every fn_job_* function'),
    ('queue.worker.enabled', 'gate', 'false', 'false', null, null,
     'enables claiming and running jobs'),
    ('queue.notify.enabled', 'gate', 'false', 'false', null, null,
     'enables notifications that wake idle workers; without them workers poll'),
    ('queue.heartbeat.enabled', 'gate', 'false', 'false', null, null,
     'enables heartbeats of executors'),
    ('queue.heartbeat.stale_threshold_seconds', 'number', '300', '300', 1, 86400,
     'seconds after which a heartbeat is late; after twice as many it is stale'),
    ('queue.retry.max_attempts_default', 'number', '5', '5', 1, 1000,
     'default number of attempts of a job'),
    ('queue.retry.backoff_base_sec', 'number', '10', '10', 0, 86400,
     'first retry delay in seconds; it doubles with each attempt, at most ten times'),
    ('queue.lease.duration_sec', 'number', '300', '300', 1, 86400,
     'lease of a claimed job in seconds');

-- What a loop could not process: one row per loop and item. The loop skips the item until next_try_at and
-- continues with the others; once it succeeds the row is deleted. A dropped item is not retried unless an
-- operator asks for it.
create table towpath.loop_fault (
    loop_name   text        not null,
    -- The item's own key, as text: a job id, a position, the name of a schedule or a partition.
    item        text        not null,
    error       text        not null,
    state       text        not null default 'waiting',
    times       integer     not null default 1,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    next_try_at timestamptz not null,
    -- Who last asked for a retry or dropped it, and why.
    changed_by  text,
    changed_at  timestamptz,
    reason      text,
    constraint loop_fault_pk primary key (loop_name, item),
    constraint loop_fault_loop_not_blank_check check (btrim(loop_name) <> ''),
    constraint loop_fault_state_check check (state in ('waiting', 'dropped')),
    constraint loop_fault_times_positive_check check (times >= 1),
    constraint loop_fault_dropped_by_somebody_check check (
        state <> 'dropped' or (changed_by is not null and changed_at is not null and reason is not null))
);
