-- Events: the outbox, the positions of its events, who gets them, where routes send them.
--
--   event_outbox     what happened, written in the transaction that made it happen
--   event_position   the number of each event, given once by the sequencer: dense, in an order
--                    in which no effect comes before its cause
--   route_attempt    what the route worker decided about an event and a route, once per mode
--                    and generation
--   delivery         a webhook that still has to be sent; delivery_attempt is its history
--   route_dead_letter  what could not be routed or delivered, whole
--
-- Life of an event:
--
--   emit ─▶ event_outbox ─sequence─▶ event_position ─route─┬─▶ job              "sent"
--                                                          ├─▶ delivery         "sent" ─▶ delivered | dead
--                                                          ├─▶ nothing          "dry_run" "disabled" "skipped"
--                                                          └─▶ route_dead_letter "failed"
--
-- Lock order. Every function takes row locks in this order and never goes back:
--   1. advisory locks of maintenance ticks (try only)
--   2. event_sequencer (skip locked)
--   3. route_worker, then route_worker_cursor by slice (skip locked in a pass)
--   4. route_dead_letter, one row
--   5. delivery_target, by target_no (skip locked when claiming)
--   6. delivery (skip locked when claiming; one row otherwise)
--   7. outbound_route, event_subscription, event_grant, event_actor: one row each
--   8. whatever the job substrate takes when jobs are enqueued
--   9. inserts into append-only tables: these wait for nobody
-- The sequencer's and the cursors' state are rows that are inserted and whose predecessors are
-- deleted, never updated: reading the newest stays cheap while somebody holds a snapshot.

-- What happened ---------------------------------------------------------------------------

-- _event_key: the ordering key of an event, null if its order does not matter.
create function towpath._event_key(p_ordering_key text, p_subject_table text, p_subject_ref text) returns text
    language sql immutable parallel safe
    return coalesce(p_ordering_key, p_subject_table || '/' || p_subject_ref);

-- Insert-only. Partitioned by day of the uuid v7 event_id; id is the order of writing, and
-- xact_id the writer's transaction, by which the sequencer tells what it has not seen yet.
create table towpath.event_outbox (
    event_id      uuid               not null,
    id            bigint             generated always as identity,
    xact_id       xid8               not null default pg_current_xact_id(),
    event_domain  towpath.label      not null,
    event_type    towpath.label      not null,
    event_stream  towpath.label,
    subject_table towpath.label,
    subject_ref   towpath.long_label,
    -- Events with one key are routed in the order of their positions. Null: the subject is the key.
    ordering_key  towpath.long_label,
    actor         towpath.label      not null,
    created_at    timestamptz        not null default towpath.fn_now(),
    payload       towpath.signal     not null default '{}',
    -- The login that named another actor than itself. Null: the actor is the login, or Towpath emitted it.
    login         text,
    -- The span that emitted it.
    traceparent   text               default towpath._traceparent(),
    constraint event_outbox_pk primary key (event_id)
) partition by range (event_id);
-- event_outbox_sequence_idx: fn_event_sequence, the transactions it has not seen.
create index event_outbox_sequence_idx on towpath.event_outbox (xact_id, id);
-- event_outbox_id_idx: fn_event_sequence, going on in the middle of a big step.
create index event_outbox_id_idx on towpath.event_outbox (id);

-- The number of each event. key_hash is stored, not computed, so that an event never changes
-- its slice, whatever a later PostgreSQL makes of the hash.
create table towpath.event_position (
    position bigint  not null,
    event_id uuid    not null,
    key_hash integer not null,
    constraint event_position_pk primary key (position),
    constraint event_position_positive_check check (position > 0)
) partition by range (position);
-- event_position_event_idx: fn_event_show, the sequencer after a restore, retention.
create index event_position_event_idx on towpath.event_position (event_id);

-- The row every sequencer locks before it looks.
create table towpath.event_sequencer (
    only_row boolean primary key default true,
    constraint event_sequencer_one_row_check check (only_row)
);
insert into towpath.event_sequencer default values;

-- What the sequencer remembers; the newest row counts. Everything visible in snapshot has a
-- position. While target is set, a big step from snapshot to target is in progress, has come as
-- far as target_id and ends at target_last_id. Events up to checked_id may have had a position before the
-- snapshot was taken (a restore), so they are looked up before they are numbered.
create table towpath.event_tick (
    tick_no        bigint      generated always as identity primary key,
    last_position  bigint      not null,
    snapshot       pg_snapshot,
    target         pg_snapshot,
    target_id      bigint      not null default 0,
    target_last_id bigint      not null default 0,
    checked_id     bigint      not null default 0,
    -- The cluster and database whose transaction numbers the snapshot has.
    cluster        text        not null,
    ticked_at      timestamptz not null default towpath.fn_now()
);
insert into towpath.event_tick (last_position, cluster) values (0, 'none');

-- Who may emit what; null means any. The producer is a login role, as in producer_grant.
create table towpath.event_grant (
    grant_id     uuid          primary key default gen_random_uuid(),
    producer     towpath.label not null,
    event_domain towpath.label,
    event_type   towpath.label,
    granted_by   towpath.label not null,
    granted_at   timestamptz   not null default towpath.fn_now(),
    constraint event_grant_uq unique nulls not distinct (producer, event_domain, event_type)
);

-- Who gets what ---------------------------------------------------------------------------

-- recipient_ref: role:, agency:, user: or agent: and a name (R01).
create domain towpath.recipient_ref as text
    constraint recipient_ref_prefix_check check (value ~ '^(role|agency|user|agent):[^[:space:]]+$')
    constraint recipient_ref_short_and_plain_check check (towpath._name_fits(value));

-- The optional registry of recipients. login_role, if set, is the login (or group) that may
-- read events as this recipient, executor_id the executor whose tokens may; a recipient
-- without a row can be subscribed, but not read.
create table towpath.event_actor (
    recipient_ref towpath.recipient_ref primary key,
    login_role    towpath.label,
    executor_id   towpath.label references towpath.consumer_registry on delete set null,
    notes         text,
    registered_by towpath.label not null,
    registered_at timestamptz   not null default towpath.fn_now()
);

-- A row says that a recipient gets (or, muted, does not get) some events of a domain.
-- Null type or stream means any; the two scopes narrow the row.
create table towpath.event_subscription (
    subscription_id     uuid                  primary key default gen_random_uuid(),
    subscription_no     integer               generated always as identity unique,
    recipient_ref       towpath.recipient_ref not null,
    event_domain        towpath.label         not null,
    event_type          towpath.label,
    event_stream        towpath.label,
    scope_subject_table towpath.label,
    scope_filter        jsonb                 not null default '{}',
    mute                boolean               not null default false,
    notes               text,
    registered_by       towpath.label         not null,
    registered_at       timestamptz           not null default towpath.fn_now(),
    constraint event_subscription_uq unique nulls not distinct
        (event_domain, event_type, event_stream, recipient_ref, scope_subject_table, scope_filter),
    constraint event_subscription_filter_object_check check (jsonb_typeof(scope_filter) = 'object'),
    constraint event_subscription_filter_short_check check (
        pg_column_size(scope_filter) <= 1024 and not towpath._payload_deep(scope_filter))
);

-- How many events nobody had subscribed, by the hour in which they were emitted, so that the share
-- of broadcasts costs no scan (R03); and how far fn_event_counter_fold has counted.
create table towpath.event_resolution_cursor (
    only_row boolean primary key default true,
    position bigint  not null default 0,
    constraint event_resolution_cursor_one_row_check check (only_row),
    constraint event_resolution_cursor_position_not_negative_check check (position >= 0)
) with (fillfactor = 50);
insert into towpath.event_resolution_cursor default values;
create table towpath.event_resolution_hour (
    hour_at      timestamptz not null,
    event_domain text        not null,
    event_type   text        not null,
    events       bigint      not null,
    broadcasts   bigint      not null,
    primary key (hour_at, event_domain, event_type)
) with (fillfactor = 50);

-- When a warning event was last emitted, so that it comes once per window.
create table towpath.event_warning (
    warning   text        primary key,
    warned_at timestamptz not null default '-infinity'
);
insert into towpath.event_warning (warning) values ('subscription.broadcast_drift');

-- Where routes send them --------------------------------------------------------------------

-- A named worker and the number of slices its work is split into. With a domain it reads the events of
-- that domain only and records nothing about others.
create table towpath.route_worker (
    worker_no     smallint    generated always as identity primary key,
    worker_name   text        not null,
    slices        integer     not null default 1,
    event_domain  towpath.label,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint route_worker_name_uq unique (worker_name),
    constraint route_worker_name_check check (worker_name ~ '^[a-z0-9][a-z0-9_.-]{0,99}$'),
    constraint route_worker_slices_check check (slices between 1 and 64)
);

-- One row per slice: what a pass locks. Its position is the newest route_cursor_mark.
create table towpath.route_worker_cursor (
    cursor_no integer  generated always as identity primary key,
    worker_no smallint not null references towpath.route_worker,
    slice     integer  not null,
    constraint route_worker_cursor_uq unique (worker_no, slice),
    constraint route_worker_cursor_slice_check check (slice >= 0)
);
create table towpath.route_cursor_mark (
    cursor_no    integer     not null references towpath.route_worker_cursor on delete cascade,
    mark_no      bigint      generated always as identity,
    position     bigint      not null,
    runs         bigint      not null default 0,
    events       bigint      not null default 0,
    last_run_at  timestamptz not null default towpath.fn_now(),
    last_summary jsonb       not null default '{}',
    primary key (cursor_no, mark_no),
    constraint route_cursor_mark_position_not_negative_check check (position >= 0)
);
insert into towpath.route_worker (worker_name, registered_by) values ('default', 'installed');
insert into towpath.route_worker_cursor (worker_no, slice) select w.worker_no, 0 from towpath.route_worker w;
insert into towpath.route_cursor_mark (cursor_no, position) select c.cursor_no, 0 from towpath.route_worker_cursor c;

-- What webhooks are sent to: scheme, host and port. Routes to one target share its circuit,
-- its pauses and the strictest of their rate limits.
--
--   closed ──failures reach the threshold──▶ open ──open_until──▶ half_open (one probe)
--      ▲                                      ▲                     │ │
--      └──────────────success─────────────────│─────────────────────┘ │
--                                             └──────────failure──────┘ twice as long
create table towpath.delivery_target (
    target_no        integer          generated always as identity primary key,
    target_key       text             not null,
    circuit          text             not null default 'closed',
    failures         integer          not null default 0,
    -- The first failure since the last success.
    failing_since    timestamptz,
    opened_times     integer          not null default 0,
    -- Nothing is claimed before this: the circuit is open, the target asked for a pause, or its
    -- rate is used up.
    blocked_until    timestamptz      not null default '-infinity',
    tokens           double precision not null default 0,
    refilled_at      timestamptz      not null default '-infinity',
    served_at        timestamptz      not null default '-infinity',
    -- The route that had the last turn; the next one's is next.
    served_route_no  integer          not null default 0,
    last_error       text,
    constraint delivery_target_key_uq unique (target_key),
    constraint delivery_target_key_not_blank_check check (btrim(target_key) <> ''),
    constraint delivery_target_circuit_check check (circuit in ('closed', 'open', 'half_open')),
    constraint delivery_target_failures_not_negative_check check (failures >= 0 and opened_times >= 0)
) with (fillfactor = 50);

-- A route: which events go where. It belongs to one worker for life, so that no second worker
-- can deliver for it. Retired routes stay, because attempts name them.
create table towpath.outbound_route (
    route_no              integer     generated always as identity primary key,
    route_name            text        not null,
    worker_no             smallint    not null references towpath.route_worker,
    event_domain          towpath.label,
    event_type            towpath.label,
    event_stream          towpath.label,
    -- One recipient, or all of a kind as 'role:*'; null: everyone who gets it.
    recipient_filter      text,
    payload_filter        jsonb       not null default '{}',
    target_kind           text        not null,
    target                jsonb       not null,
    target_no             integer     references towpath.delivery_target,
    mode                  text        not null default 'off',
    mode_reason           text        not null default 'new',
    -- none: as fast as possible. key: one at a time and in order for each ordering key.
    ordering              text        not null default 'none',
    -- The waits between attempts; the defaults are the offsets of Standard Webhooks over a day.
    retry_seconds         integer[]   not null default '{5,300,1500,5400,10800,18000,14400,21600,14400}',
    rate_limit_per_second numeric,
    notes                 text,
    changed_by            towpath.label not null,
    changed_at            timestamptz not null default towpath.fn_now(),
    retired_at            timestamptz,
    -- Forever: idempotency keys carry the name.
    constraint outbound_route_name_uq unique (route_name),
    constraint outbound_route_name_check check (route_name ~ '^[a-z0-9][a-z0-9_.-]{0,99}$'),
    constraint outbound_route_recipient_filter_check check (
        recipient_filter ~ '^(role|agency|user|agent):[^[:space:]]+$' and towpath._name_fits(recipient_filter)),
    constraint outbound_route_payload_filter_object_check check (jsonb_typeof(payload_filter) = 'object'),
    constraint outbound_route_payload_filter_small_check check (towpath._payload_small(payload_filter)),
    constraint outbound_route_target_kind_check check (target_kind in ('job', 'stream', 'webhook', 'process')),
    constraint outbound_route_target_object_check check (jsonb_typeof(target) = 'object'),
    constraint outbound_route_target_safe_check check (towpath._payload_safe(target)),
    constraint outbound_route_target_small_check check (towpath._payload_small(target)),
    constraint outbound_route_webhook_has_target_check check ((target_kind = 'webhook') = (target_no is not null)),
    constraint outbound_route_mode_check check (mode in ('off', 'dry_run', 'live')),
    constraint outbound_route_retired_is_off_check check (retired_at is null or mode = 'off'),
    constraint outbound_route_ordering_check check (ordering in ('none', 'key')),
    constraint outbound_route_retry_check check (
        cardinality(retry_seconds) <= 50 and 0 <= all (retry_seconds) and 604800 >= all (retry_seconds)),
    constraint outbound_route_rate_check check (rate_limit_per_second between 0.001 and 1000000)
);

-- One event and one route on their way through a pass. Not a table: the shape of an array.
create type towpath._route_work as (
    position     bigint,
    event_id     uuid,
    event_domain text,
    event_type   text,
    worker_no    smallint,
    worker_name  text,
    route_no     integer,
    route_name   text,
    mode         text,
    generation   integer,
    decision     text,
    reason       text,
    step         smallint,
    recipients   text[],
    suppressed   text[],
    target_kind  text,
    target       jsonb,
    target_no    integer,
    ordering_key text,
    event        jsonb
);

-- What webhooks are signed with. Only fn_delivery_claim and fn_route_test read it; the login that
-- sets a secret sees it once. The previous one keeps signing until the overlap ends.
create table towpath.route_secret (
    route_no       integer     primary key references towpath.outbound_route,
    secret         text        not null,
    previous       text,
    previous_until timestamptz,
    changed_by     text        not null,
    changed_at     timestamptz not null default towpath.fn_now(),
    constraint route_secret_form_check check (secret ~ '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$'),
    constraint route_secret_previous_pair_check check ((previous is null) = (previous_until is null))
);

-- One row per event, route, mode and generation; route_no 0 says that no route of the worker
-- matched. A replay is a new generation; a dry run and a delivery do not take each other's
-- place, because the mode is part of the key (E07). The view shows the key as text.
create table towpath.route_attempt (
    position     bigint      not null,
    worker_no    smallint    not null,
    route_no     integer     not null,
    mode         text        not null,
    generation   integer     not null default 0,
    event_id     uuid        not null,
    decision     text        not null,
    reason       text,
    -- The step of recipient resolution: 1 exact_match to 5 broadcast_fallback.
    step         smallint    not null,
    recipients   text[],
    suppressed   text[],
    -- The job or the delivery.
    result_id    uuid,
    error        text,
    attempted_at timestamptz not null,
    constraint route_attempt_pk primary key (position, worker_no, route_no, mode, generation),
    constraint route_attempt_mode_check check (mode in ('off', 'dry_run', 'live')),
    constraint route_attempt_decision_check check (decision in ('dry_run', 'disabled', 'skipped', 'failed', 'sent')),
    constraint route_attempt_sent_only_live_check check (decision <> 'sent' or (mode = 'live' and result_id is not null)),
    constraint route_attempt_step_check check (step between 1 and 5),
    constraint route_attempt_generation_not_negative_check check (generation >= 0)
) partition by range (position);

-- What could not be routed (stage routing) or delivered (stage delivery), whole, so that it can
-- be replayed without the outbox (E06). Resolved, never deleted.
create table towpath.route_dead_letter (
    dead_letter_id  uuid        primary key,
    stage           text        not null,
    worker_no       smallint    not null,
    route_no        integer     not null,
    route_name      text        not null,
    mode            text        not null,
    generation      integer     not null,
    position        bigint      not null,
    event_id        uuid        not null,
    event_snapshot  jsonb       not null,
    recipients      text[],
    error           text        not null,
    attempts        integer     not null,
    idempotency_key text        not null,
    replays         integer     not null default 0,
    created_at      timestamptz not null,
    resolved_at     timestamptz,
    resolved_by     text,
    resolution      text,
    constraint route_dead_letter_key_uq unique (idempotency_key),
    constraint route_dead_letter_stage_check check (stage in ('routing', 'delivery')),
    constraint route_dead_letter_snapshot_safe_check check (towpath._payload_safe(event_snapshot)),
    constraint route_dead_letter_error_not_blank_check check (btrim(error) <> ''),
    constraint route_dead_letter_resolved_together_check check (
        (resolved_at is null) = (resolved_by is null) and (resolved_at is null) = (resolution is null))
);
-- route_dead_letter_open_idx: retention and fn_event_verify, the oldest open letter.
create index route_dead_letter_open_idx on towpath.route_dead_letter (position) where resolved_at is null;
-- route_dead_letter_route_idx: fn_route_dead_letter_list and _replay_many.
create index route_dead_letter_route_idx on towpath.route_dead_letter (route_no, dead_letter_id);

-- A webhook that is not finished. Deleted at its end: delivery_attempt has the history.
create table towpath.delivery (
    delivery_id  uuid        not null,
    route_no     integer     not null references towpath.outbound_route,
    target_no    integer     not null,
    position     bigint      not null,
    event_id     uuid        not null,
    generation   integer     not null,
    -- Null unless the route keeps the order of keys.
    ordering_key text,
    event        jsonb       not null,
    recipients   text[],
    next_at      timestamptz not null,
    attempts     integer     not null default 0,
    lease_owner  text,
    lease_until  timestamptz,
    last_error   text,
    created_at   timestamptz not null,
    constraint delivery_pk primary key (delivery_id),
    constraint delivery_once_uq unique (position, route_no, generation),
    constraint delivery_lease_pair_check check ((lease_owner is null) = (lease_until is null)),
    constraint delivery_owner_not_blank_check check (btrim(lease_owner) <> ''),
    constraint delivery_attempts_not_negative_check check (attempts >= 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- delivery_due_idx: fn_delivery_claim, what a target is owed, route by route.
create index delivery_due_idx on towpath.delivery (target_no, route_no, next_at) where lease_owner is null;
-- delivery_lease_idx: fn_delivery_claim, leases that ran out.
create index delivery_lease_idx on towpath.delivery (lease_until) where lease_owner is not null;
-- delivery_order_idx: fn_delivery_claim, who is first of its key; fn_route_mode_set.
create index delivery_order_idx on towpath.delivery (route_no, ordering_key, position);

-- One row per ended attempt to send. Append-only, partitioned by day of the delivery.
create table towpath.delivery_attempt (
    delivery_id uuid        not null,
    attempt     integer     not null,
    route_no    integer     not null,
    position    bigint      not null,
    event_id    uuid        not null,
    lease_owner text        not null,
    ended_at    timestamptz not null,
    outcome     text        not null,
    status_code integer,
    duration_ms integer,
    address     text,
    error       text,
    answer      text,
    next_at     timestamptz,
    constraint delivery_attempt_pk primary key (delivery_id, attempt),
    constraint delivery_attempt_outcome_check check (outcome in
        ('delivered', 'retry', 'lost', 'released', 'dead', 'cancelled')),
    constraint delivery_attempt_status_check check (status_code between 100 and 999)
) partition by range (delivery_id);

-- Partitions and triggers -------------------------------------------------------------------

create trigger event_outbox_insert_only before update or delete on towpath.event_outbox
    for each row execute function towpath._append_only();
create trigger event_position_insert_only before update or delete on towpath.event_position
    for each row execute function towpath._append_only();
create trigger route_attempt_append_only before update or delete on towpath.route_attempt
    for each row execute function towpath._append_only();
create trigger delivery_attempt_append_only before update or delete on towpath.delivery_attempt
    for each row execute function towpath._append_only();
create trigger route_dead_letter_never_deleted before delete or truncate on towpath.route_dead_letter
    for each statement execute function towpath._append_only();
-- Always: also for a superuser who switches triggers off for the session (session_replication_role).
alter table towpath.event_outbox enable always trigger event_outbox_insert_only;
alter table towpath.event_position enable always trigger event_position_insert_only;
alter table towpath.route_attempt enable always trigger route_attempt_append_only;
alter table towpath.delivery_attempt enable always trigger delivery_attempt_append_only;
alter table towpath.route_dead_letter enable always trigger route_dead_letter_never_deleted;

-- _event_no_truncate: row triggers reach every partition by themselves, truncate triggers do not.
-- Called for each table and each partition that is made.
create function towpath._event_no_truncate(p_table text) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('create trigger %I before truncate on towpath.%I for each statement '
                   'execute function towpath._append_only()', p_table || '_no_truncate', p_table);
    execute format('alter table towpath.%I enable always trigger %I', p_table, p_table || '_no_truncate');
end;
$$;

-- Positions per partition of event_position and route_attempt.
create function towpath._event_partition_rows() returns bigint
    language sql immutable parallel safe
    return 1000000;

do $$
declare
    _table text;
    _name text;
    _day timestamptz;
begin
    foreach _table in array array['event_outbox', 'delivery_attempt', 'event_position', 'route_attempt'] loop
        perform towpath._event_no_truncate(_table);
        execute format('create table towpath.%I partition of towpath.%I default', _table || '_default', _table);
        perform towpath._event_no_truncate(_table || '_default');
        for _i in 0..3 loop
            if _table in ('event_outbox', 'delivery_attempt') then
                _day := date_trunc('day', towpath.fn_now(), 'UTC') + _i * interval '1 day';
                _name := _table || '_p' || to_char(_day at time zone 'UTC', 'YYYYMMDD');
                execute format('create table towpath.%I partition of towpath.%I for values from (%L) to (%L)',
                    _name, _table, towpath._uuid7_floor(_day), towpath._uuid7_floor(_day + interval '1 day'));
            else
                _name := _table || '_p' || lpad(_i::text, 10, '0');
                execute format('create table towpath.%I partition of towpath.%I for values from (%s) to (%s)',
                    _name, _table, _i * towpath._event_partition_rows(), (_i + 1) * towpath._event_partition_rows());
            end if;
            perform towpath._event_no_truncate(_name);
        end loop;
    end loop;
end;
$$;

-- Below kept_from events are gone.
create table towpath.event_retention (
    only_row    boolean     primary key default true,
    kept_from   bigint      not null default 1,
    changed_at  timestamptz not null default towpath.fn_now(),
    constraint event_retention_one_row_check check (only_row)
);
insert into towpath.event_retention default values;

insert into towpath.config (key, kind, value, default_value, min_value, max_value, description) values
    ('event.routing.enabled', 'gate', 'false', 'false', null, null,
     'enables routing and delivery; while closed, no event is delivered and no cursor moves'),
    ('event.route_worker.enabled', 'gate', 'false', 'false', null, null,
     'enables route workers; event.routing.enabled must also be open'),
    ('event.delivery.enabled', 'gate', 'false', 'false', null, null,
     'enables claiming and sending webhooks; event.routing.enabled must also be open'),
    ('queue.subscription_resolution.enabled', 'gate', 'true', 'true', null, null,
     'enables event subscriptions; while closed, every event is a broadcast'),
    ('event.broadcast.warn_percent', 'number', '5', '5', 0, 100,
     'percentage of broadcasts in the last 24 hours above which a warning event is emitted'),
    ('event.broadcast.warn_min_events', 'number', '100', '100', 1, 1000000000,
     'minimum events in the last 24 hours for a broadcast warning'),
    ('event.retention.drop_after_days', 'number', '14', '14', 1, 3650,
     'events older than this are dropped, except those still needed by a cursor or an open dead letter'),
    ('event.retention.partitions_ahead_days', 'number', '3', '3', 1, 31,
     'days of event partitions to create ahead'),
    ('event.delivery.lease_sec', 'number', '15', '15', 1, 3600,
     'lease of a claimed webhook in seconds; the sender renews it while it waits for the receiver'),
    ('event.delivery.jitter_ratio', 'number', '0.1', '0.1', 0, 1,
     'random extra fraction of every webhook retry delay'),
    ('event.circuit.failure_threshold', 'number', '5', '5', 1, 1000,
     'consecutive failures that open a target''s circuit'),
    ('event.circuit.open_sec', 'number', '30', '30', 1, 86400,
     'seconds a circuit stays open at first; it doubles, up to an hour'),
    ('event.webhook.disable_after_hours', 'number', '120', '120', 1, 8760,
     'hours of failures without a success after which a webhook route is disabled');
