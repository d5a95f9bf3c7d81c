-- The present schema, written by `./dev docs schema`. Change the files it names, not this one.

-- sql/install.sql

-- What is installed. schema_migration is the history of the tables; schema_object is the fingerprint of every
-- object as migrate left it, so that doctor can name what drifted.
create table towpath.schema_migration (
    version integer not null,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp(),
    release text not null,
    constraint schema_migration_pkey primary key (version),
    constraint schema_migration_version_positive_check check ((version > 0))
);

create table towpath.schema_release (
    only_row boolean not null default true,
    release text not null,
    checksum text not null,
    server_major integer not null,
    installed_at timestamptz not null default clock_timestamp(),
    constraint schema_release_pkey primary key (only_row),
    constraint schema_release_one_row_check check (only_row)
);

create table towpath.schema_object (
    identity text not null,
    fingerprint text not null,
    constraint schema_object_pkey primary key (identity)
);

-- sql/migrations/0001_base.sql
-- towpath.fn_now() returns timestamptz
-- towpath._text_plain(p_text text) returns boolean
-- towpath._text_plain_and_said(p_text text) returns boolean
-- towpath._name_fits(p_name text) returns boolean
-- towpath._ref_fits(p_ref text) returns boolean
-- towpath._key_fits(p_key text) returns boolean
-- towpath._moment_fits(p_moment timestamptz) returns boolean
-- towpath._moment_last() returns timestamptz
-- towpath._traceparent(p_given text default null::text) returns text

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

-- A config key is a gate (open only while its value is exactly 'true') or a number with bounds. Values are
-- text because a reader must survive any value: what cannot be read counts as closed, or as the default.
create table towpath.config (
    key text not null,
    kind text not null,
    value text not null,
    default_value text not null,
    min_value numeric,
    max_value numeric,
    description text not null,
    changed_at timestamptz not null default towpath.fn_now(),
    changed_by text not null default session_user,
    reason text not null default 'installed',
    constraint config_pkey primary key (key),
    constraint config_bounds_only_for_numbers_check check (((kind = 'number') or ((min_value is null) and
        (max_value is null)))),
    constraint config_changed_by_not_blank_check check ((btrim(changed_by) <> '')),
    constraint config_key_not_blank_check check ((btrim(key) <> '')),
    constraint config_kind_check check ((kind = any (array['gate', 'number']))),
    constraint config_reason_not_blank_check check ((btrim(reason) <> ''))
);
create trigger config_changed before insert or delete or update on towpath.config for each row execute
    function towpath._config_changed();
create trigger config_no_truncate before truncate on towpath.config for each statement execute function
    towpath._append_only();

-- One row per change of a config key, written by a trigger, so that direct changes are recorded too.
-- Append-only for every role.
create table towpath.config_change (
    change_id bigint not null generated always as identity,
    key text not null,
    old_value text,
    new_value text,
    changed_at timestamptz not null,
    changed_by text not null,
    reason text not null,
    db_user text not null default session_user,
    constraint config_change_pkey primary key (change_id)
);
-- config_change_by_key_idx: fn_config_history reads one key, newest first.
create index config_change_by_key_idx on towpath.config_change (key, change_id desc);
create trigger config_change_append_only before delete or update or truncate on towpath.config_change for each
    statement execute function towpath._append_only();
-- towpath._append_only() returns trigger
-- towpath._config_changed() returns trigger

-- What a loop could not process: one row per loop and item. The loop skips the item until next_try_at and
-- continues with the others; once it succeeds the row is deleted. A dropped item is not retried unless an
-- operator asks for it.
create table towpath.loop_fault (
    loop_name text not null,
    -- The item's own key, as text: a job id, a position, the name of a schedule or a partition.
    item text not null,
    error text not null,
    state text not null default 'waiting',
    times integer not null default 1,
    first_at timestamptz not null,
    last_at timestamptz not null,
    next_try_at timestamptz not null,
    -- Who last asked for a retry or dropped it, and why.
    changed_by text,
    changed_at timestamptz,
    reason text,
    constraint loop_fault_pk primary key (loop_name, item),
    constraint loop_fault_dropped_by_somebody_check check (((state <> 'dropped') or ((changed_by is not null)
        and (changed_at is not null) and (reason is not null)))),
    constraint loop_fault_loop_not_blank_check check ((btrim(loop_name) <> '')),
    constraint loop_fault_state_check check ((state = any (array['waiting', 'dropped']))),
    constraint loop_fault_times_positive_check check ((times >= 1))
);

-- sql/migrations/0002_job.sql
-- towpath._executor_known(p_executor text) returns boolean

-- executor_kind: the type of every column that names an executor, so that the whitelist is written once and
-- holds on all surfaces (R07).
create domain towpath.executor_kind as text
    constraint executor_kind_whitelist_check check (towpath._executor_known(value));
-- towpath._payload_denied_key(p_payload jsonb) returns text
-- towpath._number_huge(p_document jsonb) returns boolean
-- towpath._payload_safe(p_payload jsonb) returns boolean
-- towpath._payload_deep(p_payload jsonb) returns boolean
-- towpath._payload_small(p_payload jsonb) returns boolean
-- towpath._result_fits(p_result jsonb) returns boolean

-- result: what a handler may return, a step record and a process begin with. A domain rather than a check of
-- each table: PostgreSQL reads a check again for every statement, and a domain once in a session.
create domain towpath.result as jsonb
    constraint result_small_check check (towpath._result_fits(value));

-- signal: what a job may carry: an object of references, never data (Q03). Job payloads, dead letters,
-- heartbeats, schedules and events all have this type.
create domain towpath.signal as jsonb
    constraint signal_safe_check check (towpath._payload_safe(value))
    constraint signal_small_object_check check (((jsonb_typeof(value) = 'object') and
        towpath._payload_small(value)));

create domain towpath.natural_number as integer
    constraint natural_number_not_negative_check check ((value >= 0));

create domain towpath.positive_number as integer
    constraint positive_number_check check ((value >= 1));

-- priority: the highest first; as far as a subscription's floor reaches.
create domain towpath.priority as integer
    constraint priority_from_0_to_32767_check check (((value >= 0) and (value <= 32767)));

-- attempt_limit: how often something is tried. Far below where adding refunded attempts would overflow.
create domain towpath.attempt_limit as integer
    constraint attempt_limit_from_1_to_1000_check check (((value >= 1) and (value <= 1000)));

create domain towpath.percent as smallint
    constraint percent_check check (((value >= 0) and (value <= 100)));

-- live_state: 0 queued, 1 leased, 2 in_progress, 3 retry_waiting; the other five of the nine states follow
-- from job_run and the retention mark.
create domain towpath.live_state as smallint
    constraint live_state_check check (((value >= 0) and (value <= 3)));

-- run_outcome: how an attempt ended.
create domain towpath.run_outcome as text
    constraint run_outcome_check check ((value = any (array['succeeded', 'failed', 'lost', 'released',
        'snoozed', 'cancelled', 'dead_letter'])));
-- towpath._uuid7(p_micros bigint, p_tail bytea default null::bytea) returns uuid
-- towpath._uuid7_floor(p_at timestamptz) returns uuid
-- towpath._uuid7_at(p_id uuid) returns timestamptz
-- towpath._key_hash(p_key text) returns uuid

-- A lane is what a claimer takes in one index range. Subscriptions resolve to a set of lanes. Lanes are made
-- on first use and collected when nobody uses them (job_lane.sql).
create table towpath.job_lane (
    lane integer not null generated always as identity,
    job_kind towpath.label not null,
    -- Null: for any executor that is subscribed to the kind by name, or to every kind as PG_worker.
    executor towpath.executor_kind,
    priority towpath.priority not null,
    event_domain towpath.label,
    -- When it was last seen in use, to some seconds.
    used_at timestamptz not null default towpath.fn_now(),
    -- The transaction that closed it, because nobody used it: claims pass it by.
    closed_by xid8,
    constraint job_lane_pkey primary key (lane),
    constraint job_lane_uq unique nulls not distinct (job_kind, priority, executor, event_domain)
);
-- job_lane_open_idx: _job_lane_set reads open lanes only, and no page that collected ones have left behind.
create index job_lane_open_idx on towpath.job_lane (lane) where (closed_by is null);

-- The lane collector's note: transactions that had read job_lane when noted_by looked, and had not ended.
create table towpath.job_lane_tick (
    only_row boolean not null default true,
    readers text[],
    noted_by xid8,
    constraint job_lane_tick_pkey primary key (only_row),
    constraint job_lane_tick_one_row_check check (only_row)
);

-- The floor of a lane: nothing claimable is due before it, so a claim starts there and never walks over the
-- dead entries of finished jobs. The newest row counts; rows are inserted and old ones deleted, because
-- reading the newest index entry stays cheap while a held snapshot keeps every old version, and an updated
-- row would not.
create table towpath.job_floor (
    lane integer not null,
    floor_no bigint not null generated always as identity,
    floor_at timestamptz not null,
    constraint job_floor_pkey primary key (lane, floor_no)
);

-- A job as its producer asked for it. Written once; what changes lives in the other tables.
create table towpath.job (
    job_id uuid not null,
    job_kind towpath.label not null,
    -- Null: its producer named none, and no subscriptions decided it; see job_lane.
    executor towpath.executor_kind,
    -- The lane holds the domain's rule, and the enqueue checks that of references: each domain here costs a
    -- single enqueue a microsecond.
    event_domain text,
    source_ref text,
    target_ref text,
    payload_ref text,
    payload_json towpath.signal not null default '{}'::jsonb,
    priority towpath.priority not null default 100,
    scheduled_at towpath.moment not null,
    max_attempts towpath.attempt_limit not null,
    -- Null: it was given none; its id is shown as its key.
    idempotency_key towpath.long_label,
    actor towpath.label not null,
    run_id uuid,
    created_at timestamptz not null,
    -- The login that named another actor than itself. Null: the actor is the login, or Towpath made the job.
    login text,
    -- The span that enqueued it.
    traceparent text default towpath._traceparent(),
    constraint job_pk primary key (job_id)
) partition by range (job_id);
create trigger job_written_once before update on towpath.job for each statement execute function
    towpath._append_only();

-- A job as it was asked for, with its defaults filled in (_job_read).
create type towpath._job_input as (
    job_id uuid,
    job_kind text,
    executor text,
    event_domain text,
    source_ref text,
    target_ref text,
    payload_ref text,
    payload_json jsonb,
    priority integer,
    scheduled_at timestamptz,
    max_attempts integer,
    idempotency_key text,
    actor text,
    run_id uuid,
    traceparent text
);

-- An unfinished job that something sets apart; deleted at the end. A claim does not touch it: it writes a
-- lease entry. Whatever but an ack of the whole entry concerns a held attempt settles it first: it writes the
-- lease from the entry into this row (_job_settle). These updates are HOT: hence the fillfactor, and no index
-- on anything they change.
create table towpath.job_live (
    job_id uuid not null,
    -- Null if the producer gave no key: then there is nothing to be unique.
    key_hash uuid,
    due_at towpath.moment not null,
    lease_until timestamptz,
    picked_at timestamptz,
    lane integer not null,
    -- Claims so far, which is the fence: a refunded attempt does not reuse its number.
    attempts towpath.natural_number not null default 0,
    max_attempts towpath.attempt_limit not null,
    -- Parents that have not succeeded yet.
    blocked towpath.natural_number not null default 0,
    -- The subscription that holds the lease; negative if it has no max_parallel, so that nothing has to be
    -- released.
    subscription_no integer,
    state towpath.live_state not null default 0,
    -- Attempts that do not count: released or snoozed.
    refunded towpath.natural_number not null default 0,
    has_children boolean not null default false,
    -- Settled from lease_entry, whose domain checks it.
    lease_owner text,
    progress_percent towpath.percent,
    progress_note text,
    progress_at timestamptz,
    -- When it was last started or extended.
    touched_at timestamptz,
    -- What an attempt leaves for the next one.
    checkpoint jsonb,
    constraint job_live_pk primary key (job_id),
    constraint job_live_lease_pair_check check (((lease_owner is null) = (lease_until is null))),
    constraint job_live_leased_iff_owned_check check ((((state)::smallint = any (array[1, 2])) = (lease_owner
        is not null)))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, fillfactor = 80);
-- job_live_key_uq: fn_job_enqueue; one unfinished job per idempotency key, over all kinds.
create unique index job_live_key_uq on towpath.job_live (key_hash) where (key_hash is not null);

-- The order of the queue, and what a claim must know: jobs that are queued or retry_waiting, and unblocked. A
-- row is a job that is set apart, or a bundle of up to 16 jobs of one call, one lane and one due time
-- (docs/decisions/0016-bundles.md).
create table towpath.job_ready (
    lane integer not null,
    due_at timestamptz not null,
    job_id uuid not null,
    -- As in job_live. No default: a wrong number would make a lease that nobody can end.
    attempts integer not null,
    refunded integer not null,
    bundle boolean not null,
    -- All jobs of a bundle in the order of their ids; job_id is the first. Null if there is one. A claim that
    -- takes some of them puts the others back one by one.
    job_ids uuid[],
    constraint job_ready_pk primary key (lane, due_at, job_id),
    constraint job_ready_bundle_is_new_check check ( case when bundle then (attempts = 0) else (job_ids is
        null) end)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- job_ready_bundle_idx: _job_set_apart and fn_job_list find the bundle of a job by its id.
create index job_ready_bundle_idx on towpath.job_ready (job_id) where bundle;

-- One row per ended attempt. Append-only. An end without a lease (a waiting job was cancelled or moved) is
-- recorded under the next number with no picked_at, and refunded grows with it, so that attempt - refunded is
-- always the number of attempts that counted.
create table towpath.job_run (
    job_id uuid not null,
    attempt towpath.natural_number not null,
    refunded towpath.natural_number not null default 0,
    picked_at timestamptz,
    finished_at timestamptz not null,
    outcome towpath.run_outcome not null,
    lease_owner text,
    -- Who ended the attempt, if not its lease owner: the reaper, an operator.
    ended_by text,
    error text,
    -- What the handler returned.
    result jsonb,
    -- All jobs of this row in the order of their ids; job_id is the last. Null if there is one. Jobs whose
    -- lease entry was acked whole share a row, which is the last of each
    -- (docs/decisions/0011-shared-runs.md).
    job_ids uuid[],
    constraint job_run_pk primary key (job_id, attempt),
    constraint job_run_result_small_check check (towpath._result_fits(result))
) partition by range (job_id);
-- job_run_shared_idx: _job_runs and fn_job_list look from a job's id upward for the row that has it.
create index job_run_shared_idx on towpath.job_run (job_id, (job_ids[1])) where (job_ids is not null);
create trigger job_run_append_only before update on towpath.job_run for each statement execute function
    towpath._append_only();

-- Lease entries. A claim writes one for up to 240 jobs of a lane with the same attempt number
-- (docs/decisions/0009-lease-ledger.md and 0010-whole-entries.md). The reaper reads them by lease_until, so
-- that job_live needs no index on the lease.
create table towpath.lease_entry (
    entry_id bigint not null generated always as identity,
    lease_until timestamptz not null,
    -- In the order of the ids.
    job_ids uuid[] not null,
    attempt integer,
    lease_owner towpath.long_label,
    picked_at timestamptz,
    subscription_no integer,
    lane integer,
    refunded integer,
    -- How long its jobs had waited when they were claimed, all together.
    wait_ms double precision,
    bundle boolean not null default false,
    constraint lease_entry_pkey primary key (entry_id),
    constraint lease_entry_claim_whole_check check ((((attempt is null) = (lease_owner is null)) and ((attempt
        is null) = (picked_at is null))))
) with (toast_tuple_target = 8160);
-- lease_entry_owner_idx: _lease_entries looks up an owner's entries, newest first.
create index lease_entry_owner_idx on towpath.lease_entry (lease_owner, entry_id) where (attempt is not null);
-- lease_entry_until_idx: fn_job_reap takes what runs out first.
create index lease_entry_until_idx on towpath.lease_entry (lease_until, entry_id);

-- Jobs that a claim picked and that differ in nothing but id and due time (_job_pick), in the order of their
-- ids.
create type towpath._job_group as (
    lane integer,
    -- The subscription, negative if it has no max_parallel.
    holder integer,
    attempts integer,
    refunded integer,
    bundle boolean,
    job_ids uuid[],
    -- The sum of their due times in seconds.
    due_sum double precision
);

-- A claimed job, as the worker gets it. A refusal is a row with nothing but the refusal.
create type towpath._claimed_job as (
    job_id uuid,
    attempt integer,
    max_attempts integer,
    job_kind text,
    executor text,
    event_domain text,
    source_ref text,
    target_ref text,
    payload_ref text,
    payload_json jsonb,
    priority integer,
    scheduled_at timestamptz,
    idempotency_key text,
    actor text,
    run_id uuid,
    created_at timestamptz,
    lease_owner text,
    lease_until timestamptz,
    entry_id bigint,
    refusal jsonb,
    traceparent text
);

-- A finished job below cleaned_below shows as cleaned; partitions below dropped_below are gone.
create table towpath.job_retention (
    only_row boolean not null default true,
    cleaned_below uuid not null default '00000000-0000-0000-0000-000000000000'::uuid,
    dropped_below uuid not null default '00000000-0000-0000-0000-000000000000'::uuid,
    changed_at timestamptz not null default towpath.fn_now(),
    -- Jobs that were enqueued into partitions that are gone, as PostgreSQL's statistics counted them.
    dropped_jobs bigint not null default 0,
    constraint job_retention_pkey primary key (only_row),
    constraint job_retention_one_row_check check (only_row)
);

-- Ends of attempts, counted where they happen and folded by maintenance, so that nobody counts finished jobs.
-- One row per lane and outcome of a call.
create table towpath.job_counter_delta (
    lane integer not null,
    outcome text not null,
    n integer not null,
    wait_ms bigint not null,
    run_ms bigint not null,
    counted_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);

create table towpath.job_counter (
    job_kind text not null,
    outcome text not null,
    n bigint not null,
    constraint job_counter_pkey primary key (job_kind, outcome)
) with (fillfactor = 50);

-- The same by minute, for charts; fn_job_counter_fold drops old minutes.
create table towpath.job_minute (
    minute_at timestamptz not null,
    job_kind text not null,
    outcome text not null,
    n bigint not null,
    wait_ms bigint not null,
    run_ms bigint not null,
    constraint job_minute_pkey primary key (minute_at, job_kind, outcome)
) with (fillfactor = 50);

-- The floor tick's own notes: when it last looked below the floors, and what that cost; what the clock was,
-- and what it was before it went back.
create table towpath.job_floor_sweep (
    only_row boolean not null default true,
    swept_at timestamptz not null default '-infinity'::timestamptz,
    sweep_ms double precision not null default 0,
    seen_at timestamptz not null default '-infinity'::timestamptz,
    back_until timestamptz not null default '-infinity'::timestamptz,
    constraint job_floor_sweep_pkey primary key (only_row),
    constraint job_floor_sweep_one_row_check check (only_row)
);

-- Whether a worker waits for a notification of the next job of a kind. The newest row counts, for the same
-- reason as in job_floor.
create table towpath.job_wake (
    job_kind text not null,
    wake_no bigint not null generated always as identity,
    armed boolean not null,
    constraint job_wake_pkey primary key (job_kind, wake_no)
);

-- Kinds whose jobs are not claimed at the moment.
create table towpath.job_pause (
    job_kind towpath.label not null,
    paused_at timestamptz not null,
    paused_by towpath.label not null,
    reason text not null,
    constraint job_pause_pkey primary key (job_kind)
);

-- Who paused and resumed a kind, and when. Append-only; job_pause says what is paused now.
create table towpath.job_pause_log (
    log_id bigint not null generated always as identity,
    at timestamptz not null,
    job_kind towpath.label not null,
    action text not null,
    actor towpath.label not null,
    reason text,
    constraint job_pause_log_pkey primary key (log_id),
    constraint job_pause_log_action_check check ((action = any (array['pause', 'resume'])))
);
create trigger job_pause_log_append_only before delete or update on towpath.job_pause_log for each statement
    execute function towpath._append_only();

-- A full copy with no foreign key: it outlives the job's partition (Q12).
create table towpath.job_dead_letter (
    dead_letter_id uuid not null,
    job_id uuid not null,
    job_kind text not null,
    executor towpath.executor_kind not null,
    event_domain text,
    source_ref text,
    target_ref text,
    payload_ref text,
    payload_json towpath.signal not null,
    priority integer not null,
    max_attempts integer not null,
    final_error text not null,
    attempts integer not null,
    actor text not null,
    run_id uuid,
    idempotency_key text not null,
    created_at timestamptz not null,
    moved_at timestamptz not null default towpath.fn_now(),
    moved_by text not null,
    triage_status text not null default 'pending',
    triage_note text,
    triaged_at timestamptz,
    triaged_by text,
    replayed_job_id uuid,
    replayed_at timestamptz,
    replayed_by text,
    constraint job_dead_letter_pkey primary key (dead_letter_id),
    constraint job_dead_letter_job_uq unique (job_id),
    constraint job_dead_letter_attempts_not_negative_check check ((attempts >= 0)),
    constraint job_dead_letter_final_error_not_blank_check check ((btrim(final_error) <> '')),
    constraint job_dead_letter_moved_by_not_blank_check check ((btrim(moved_by) <> '')),
    constraint job_dead_letter_replayed_together_check check ((((replayed_job_id is null) = (replayed_at is
        null)) and ((replayed_at is null) = (replayed_by is null)))),
    constraint job_dead_letter_triage_status_check check ((triage_status = any (array['pending',
        'acknowledged', 'manual_replay', 'escalated', 'closed']))),
    constraint job_dead_letter_triaged_who_and_when_check check (((triaged_at is null) = (triaged_by is
        null)))
);
-- job_dead_letter_replayed_idx: fn_job_history finds where a replayed job came from.
create index job_dead_letter_replayed_idx on towpath.job_dead_letter (replayed_job_id) where (replayed_job_id
    is not null);
-- job_dead_letter_triage_idx: fn_job_dead_letter_list, and the oldest and newest of
-- v_job_dead_letter_summary.
create index job_dead_letter_triage_idx on towpath.job_dead_letter (triage_status, job_kind, dead_letter_id);
create trigger job_dead_letter_delete_counted after delete on towpath.job_dead_letter referencing old table as
    gone for each statement execute function towpath._job_dead_letter_counted();
create trigger job_dead_letter_insert_counted after insert on towpath.job_dead_letter referencing new table as
    added for each statement execute function towpath._job_dead_letter_counted();
create trigger job_dead_letter_update_counted after update on towpath.job_dead_letter referencing old table as
    gone new table as added for each statement execute function towpath._job_dead_letter_counted();

-- How many dead letters each kind and triage status has, so that no view counts them (Q14). The rows of a
-- group are summed: a statement adds one for each group that it changes, and so waits for no other.
create table towpath.job_dead_letter_count (
    job_kind text not null,
    triage_status text not null,
    count_no bigint not null generated always as identity,
    letters bigint not null,
    replayed bigint not null,
    constraint job_dead_letter_count_pk primary key (job_kind, triage_status, count_no)
);
-- towpath._job_dead_letter_count_add(p_job_kind text, p_triage_status text, p_letters bigint, p_replayed
--     bigint) returns void
-- towpath._job_dead_letter_counted() returns trigger

-- What handlers with a database connection appended to the stream of their job, numbered from 0 in each
-- attempt. The server copies it into the stream of a job that somebody follows; retention deletes it after a
-- day, as the stream.
create table towpath.job_chunk (
    job_id uuid not null,
    attempt integer not null,
    chunk_no integer not null,
    data jsonb not null,
    appended_at timestamptz not null default towpath.fn_now(),
    constraint job_chunk_pkey primary key (job_id, attempt, chunk_no)
);
-- job_chunk_old_idx: retention.
create index job_chunk_old_idx on towpath.job_chunk (appended_at);

-- The key that signs tokens for the streams of jobs: every server of this database accepts them. No role may
-- read the table; fn_job_token_key gives it to servers. Anyone who has a dump of it can sign, until
-- fn_job_token_key_rotate.
create table towpath.job_token_key (
    only_row boolean not null default true,
    secret bytea not null default (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    constraint job_token_key_pkey primary key (only_row),
    constraint job_token_key_one_row_check check (only_row)
);

create table towpath.job_graph (
    graph_id uuid not null,
    name towpath.label not null,
    idempotency_key towpath.long_label,
    actor towpath.label not null,
    created_at timestamptz not null,
    constraint job_graph_pkey primary key (graph_id),
    constraint job_graph_key_uq unique (idempotency_key)
);

create table towpath.job_graph_node (
    graph_id uuid not null,
    node towpath.label not null,
    job_id uuid not null,
    constraint job_graph_node_pkey primary key (graph_id, node),
    constraint job_graph_node_graph_id_fkey foreign key (graph_id) references towpath.job_graph(graph_id) on
        delete cascade
);
-- job_graph_node_job_idx: fn_job_show finds the graph of a job.
create index job_graph_node_job_idx on towpath.job_graph_node (job_id);

-- The child waits for the parent. What happens to the child when the parent ends without success is the
-- edge's own choice: cancel it, or hold it until the parent is replayed.
create table towpath.job_edge (
    parent_id uuid not null,
    child_id uuid not null,
    on_failure text not null default 'cancel',
    satisfied boolean not null default false,
    constraint job_edge_pkey primary key (parent_id, child_id),
    constraint job_edge_no_loop_check check ((parent_id <> child_id)),
    constraint job_edge_on_failure_check check ((on_failure = any (array['cancel', 'hold'])))
);
-- job_edge_child_idx: job_queue.blocked_by and fn_job_why look up the parents of a job.
create index job_edge_child_idx on towpath.job_edge (child_id);

-- The keys of projects that store their payloads encrypted, wrapped by a master key that is in no database.
-- The newest key of a project encrypts; older ones still decrypt. An erased key stays as a row without its
-- key: what it encrypted is gone, and the project still stores nothing unencrypted.
create table towpath.payload_key (
    key_id bigint not null generated always as identity,
    project text not null,
    wrapped bytea,
    created_at timestamptz not null default towpath.fn_now(),
    created_by text not null,
    erased_at timestamptz,
    erased_by text,
    constraint payload_key_pkey primary key (key_id),
    constraint payload_key_erased_who_and_when_check check (((erased_at is null) = (erased_by is null))),
    constraint payload_key_wrapped_unless_erased_check check (((wrapped is null) = (erased_at is not null)))
);
-- payload_key_project_idx: _payload_key finds the newest key of a project.
create index payload_key_project_idx on towpath.payload_key (project, key_id);

-- Data that jobs name instead of carrying it, partitioned by day of its uuid v7 id: retention drops whole
-- days. Without key_id it is unencrypted.
create table towpath.payload (
    payload_id uuid not null,
    project text not null,
    key_id bigint,
    content_type text not null,
    data bytea not null,
    created_at timestamptz not null,
    created_by text not null,
    constraint payload_pk primary key (payload_id)
) partition by range (payload_id);

-- A periodic job. Cron arithmetic happens outside; the row holds the next tick and is the lock that makes
-- every tick happen once.
create table towpath.schedule (
    name towpath.label not null,
    expression towpath.label not null,
    time_zone towpath.label not null default 'UTC',
    -- What to do with ticks missed while nobody ran: skip them, run the last one, run all.
    catch_up text not null default 'last',
    job_kind towpath.label not null,
    -- Null: as an enqueue that names none, at every tick.
    executor towpath.executor_kind,
    event_domain towpath.label,
    source_ref towpath.reference,
    target_ref towpath.reference,
    payload_ref towpath.reference,
    payload_json towpath.signal not null default '{}'::jsonb,
    priority towpath.priority not null default 100,
    max_attempts towpath.attempt_limit,
    paused boolean not null default false,
    next_at towpath.moment not null,
    last_tick_at towpath.moment,
    last_job_id uuid,
    changed_by towpath.label not null,
    changed_at timestamptz not null default towpath.fn_now(),
    constraint schedule_pkey primary key (name),
    constraint schedule_catch_up_check check ((catch_up = any (array['skip', 'last', 'all'])))
);
-- schedule_due_idx: fn_schedule_due.
create index schedule_due_idx on towpath.schedule (next_at) where (not paused);

-- sql/migrations/0003_executor.sql

-- Heartbeats. One row per executor process, overwritten by each tick.
create table towpath.queue_heartbeat (
    executor_name towpath.label not null,
    executor_kind towpath.executor_kind not null,
    last_tick_at timestamptz not null default towpath.fn_now(),
    last_tick_status text not null default 'ok',
    ticks_total bigint not null default 0,
    current_job_id uuid,
    lease_owner towpath.long_label,
    metadata towpath.signal not null default '{}'::jsonb,
    created_at timestamptz not null default towpath.fn_now(),
    updated_at timestamptz not null default towpath.fn_now(),
    constraint queue_heartbeat_pkey primary key (executor_name),
    constraint queue_heartbeat_status_check check ((last_tick_status = any (array['ok', 'warn', 'error']))),
    constraint queue_heartbeat_ticks_not_negative_check check ((ticks_total >= 0))
) with (fillfactor = 40);

-- Which kinds a worker process handles, as it said when it registered or in its last heartbeat, and how many
-- jobs it runs at once, if it said. A process that ends takes its row along; rows of processes that were
-- killed go after an hour, when another heartbeat comes.
create table towpath.queue_worker (
    lease_owner towpath.long_label not null,
    executor_name towpath.label not null,
    kinds text[] not null,
    concurrency integer,
    seen_at timestamptz not null,
    constraint queue_worker_pkey primary key (lease_owner),
    constraint queue_worker_kinds_named_check check ((((cardinality(kinds) >= 1) and (cardinality(kinds) <=
        1000)) and (array_position(kinds, null::text) is null)))
) with (fillfactor = 40);

-- Who exists. login_role, if set, is the only login (or group) that may claim as this executor.
create table towpath.consumer_registry (
    executor_id towpath.label not null,
    executor towpath.executor_kind not null,
    login_role towpath.label,
    notes text,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint consumer_registry_pkey primary key (executor_id)
);
create trigger consumer_registry_takes_tokens_along after delete on towpath.consumer_registry for each row
    execute function towpath._executor_token_orphaned();

-- Who claims what. Of an executor's rows that fit a lane the most specific one decides: a named kind before
-- any kind, then a named domain before any domain. max_parallel null means no limit, and then a claim has
-- nothing to count.
create table towpath.job_subscription (
    subscription_id uuid not null default gen_random_uuid(),
    subscription_no integer not null generated always as identity,
    executor_id towpath.label not null,
    executor_kind towpath.executor_kind not null,
    job_kind towpath.label,
    event_domain towpath.label,
    priority_floor smallint not null default 0,
    max_parallel integer default 1,
    enabled boolean not null default false,
    notes text,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint job_subscription_pkey primary key (subscription_id),
    constraint job_subscription_subscription_no_key unique (subscription_no),
    constraint job_subscription_uq unique nulls not distinct (executor_id, job_kind, event_domain),
    constraint job_subscription_max_parallel_check check (((max_parallel >= 1) and (max_parallel <=
        1000000))),
    constraint job_subscription_priority_floor_not_negative_check check ((priority_floor >= 0))
);
create trigger job_subscription_kind_executor after insert or delete or update of job_kind, executor_kind,
    enabled on towpath.job_subscription for each row execute function towpath._job_kind_executor_keep();

-- The executor of jobs of a kind that name none: the one that all enabled subscriptions to the kind name. No
-- row: such a job is for any executor that is subscribed to the kind by name when it is claimed. Written by
-- the subscriptions' trigger alone, because an enqueue that looks at the subscriptions themselves is
-- measurably slower.
create table towpath.job_kind_executor (
    job_kind towpath.label not null,
    executor towpath.executor_kind not null,
    constraint job_kind_executor_pkey primary key (job_kind)
);
-- towpath._job_kind_executor_keep() returns trigger

-- Leases held under a subscription with max_parallel. A claim locks the subscription's row and inserts the
-- new number; the newest row counts, as in job_floor. The end of a lease only appends a release, which the
-- next claim folds in.
create table towpath.job_parallel (
    subscription_no integer not null,
    change_no bigint not null generated always as identity,
    held integer not null,
    folded_to bigint not null,
    constraint job_parallel_pkey primary key (subscription_no, change_no)
);

create table towpath.job_parallel_release (
    subscription_no integer not null,
    release_no bigint not null generated always as identity,
    n integer not null,
    constraint job_parallel_release_pkey primary key (subscription_no, release_no),
    constraint job_parallel_release_positive_check check ((n > 0))
);

-- What a producer may enqueue; null means any. The producer is a login role.
create table towpath.producer_grant (
    grant_id uuid not null default gen_random_uuid(),
    producer towpath.label not null,
    job_kind towpath.label,
    executor towpath.executor_kind,
    granted_by towpath.label not null,
    granted_at timestamptz not null default towpath.fn_now(),
    constraint producer_grant_pkey primary key (grant_id),
    constraint producer_grant_uq unique nulls not distinct (producer, job_kind, executor)
);

-- Tokens for HTTP, for whom has no database login: executors that work, and producers that enqueue and emit.
create table towpath.executor_token (
    token_id uuid not null default gen_random_uuid(),
    token_hash bytea not null,
    executor_id towpath.label,
    kinds text[],
    may_enqueue boolean not null default false,
    may_register boolean not null default false,
    produce text[],
    emit text[],
    notes text,
    created_at timestamptz not null default towpath.fn_now(),
    created_by towpath.label not null,
    expires_at towpath.moment not null,
    revoked_at timestamptz,
    revoked_by towpath.label,
    -- To the minute, so that not every use is a write.
    last_used_at timestamptz,
    constraint executor_token_pkey primary key (token_id),
    constraint executor_token_hash_uq unique (token_hash),
    constraint executor_token_emit_named_check check (((emit is null) or (((cardinality(emit) >= 1) and
        (cardinality(emit) <= 1000)) and (array_position(emit, null::text) is null)))),
    constraint executor_token_expires_later_check check (((expires_at)::timestamptz > created_at)),
    constraint executor_token_hash_is_sha256_check check ((octet_length(token_hash) = 32)),
    constraint executor_token_kinds_named_check check (((kinds is null) or (((cardinality(kinds) >= 1) and
        (cardinality(kinds) <= 1000)) and (array_position(kinds, null::text) is null)))),
    constraint executor_token_produce_named_check check (((produce is null) or (((cardinality(produce) >= 1)
        and (cardinality(produce) <= 1000)) and (array_position(produce, null::text) is null)))),
    constraint executor_token_revoked_who_and_when_check check (((revoked_at is null) = (revoked_by is
        null))),
    constraint executor_token_without_executor_produces_check check (((executor_id is not null) or
        ((num_nonnulls(produce, emit) > 0) and (kinds is null) and (not may_enqueue) and (not may_register))))
);
-- executor_token_executor_idx: fn_executor_token_list shows one executor's tokens.
create index executor_token_executor_idx on towpath.executor_token (executor_id, created_at);
-- towpath._executor_token_orphaned() returns trigger

-- sql/migrations/0004_event.sql
-- towpath._event_key(p_ordering_key text, p_subject_table text, p_subject_ref text) returns text

-- Insert-only. Partitioned by day of the uuid v7 event_id; id is the order of writing, and xact_id the
-- writer's transaction, by which the sequencer tells what it has not seen yet.
create table towpath.event_outbox (
    event_id uuid not null,
    id bigint not null generated always as identity,
    xact_id xid8 not null default pg_current_xact_id(),
    event_domain towpath.label not null,
    event_type towpath.label not null,
    event_stream towpath.label,
    subject_table towpath.label,
    subject_ref towpath.long_label,
    -- Events with one key are routed in the order of their positions. Null: the subject is the key.
    ordering_key towpath.long_label,
    actor towpath.label not null,
    created_at timestamptz not null default towpath.fn_now(),
    payload towpath.signal not null default '{}'::jsonb,
    -- The login that named another actor than itself. Null: the actor is the login, or Towpath emitted it.
    login text,
    -- The span that emitted it.
    traceparent text default towpath._traceparent(),
    constraint event_outbox_pk primary key (event_id)
) partition by range (event_id);
-- event_outbox_id_idx: fn_event_sequence, going on in the middle of a big step.
create index event_outbox_id_idx on towpath.event_outbox (id);
-- event_outbox_sequence_idx: fn_event_sequence, the transactions it has not seen.
create index event_outbox_sequence_idx on towpath.event_outbox (xact_id, id);
create trigger event_outbox_insert_only before delete or update on towpath.event_outbox for each row execute
    function towpath._append_only();
create trigger event_outbox_no_truncate before truncate on towpath.event_outbox for each statement execute
    function towpath._append_only();

-- The number of each event. key_hash is stored, not computed, so that an event never changes its slice,
-- whatever a later PostgreSQL makes of the hash.
create table towpath.event_position (
    position bigint not null,
    event_id uuid not null,
    key_hash integer not null,
    constraint event_position_pk primary key ("position"),
    constraint event_position_positive_check check (("position" > 0))
) partition by range ("position");
-- event_position_event_idx: fn_event_show, the sequencer after a restore, retention.
create index event_position_event_idx on towpath.event_position (event_id);
create trigger event_position_insert_only before delete or update on towpath.event_position for each row
    execute function towpath._append_only();
create trigger event_position_no_truncate before truncate on towpath.event_position for each statement execute
    function towpath._append_only();

-- The row every sequencer locks before it looks.
create table towpath.event_sequencer (
    only_row boolean not null default true,
    constraint event_sequencer_pkey primary key (only_row),
    constraint event_sequencer_one_row_check check (only_row)
);

-- What the sequencer remembers; the newest row counts. Everything visible in snapshot has a position. While
-- target is set, a big step from snapshot to target is in progress, has come as far as target_id and ends at
-- target_last_id. Events up to checked_id may have had a position before the snapshot was taken (a restore),
-- so they are looked up before they are numbered.
create table towpath.event_tick (
    tick_no bigint not null generated always as identity,
    last_position bigint not null,
    snapshot pg_snapshot,
    target pg_snapshot,
    target_id bigint not null default 0,
    target_last_id bigint not null default 0,
    checked_id bigint not null default 0,
    -- The cluster and database whose transaction numbers the snapshot has.
    cluster text not null,
    ticked_at timestamptz not null default towpath.fn_now(),
    constraint event_tick_pkey primary key (tick_no)
);

-- Who may emit what; null means any. The producer is a login role, as in producer_grant.
create table towpath.event_grant (
    grant_id uuid not null default gen_random_uuid(),
    producer towpath.label not null,
    event_domain towpath.label,
    event_type towpath.label,
    granted_by towpath.label not null,
    granted_at timestamptz not null default towpath.fn_now(),
    constraint event_grant_pkey primary key (grant_id),
    constraint event_grant_uq unique nulls not distinct (producer, event_domain, event_type)
);

-- recipient_ref: role:, agency:, user: or agent: and a name (R01).
create domain towpath.recipient_ref as text
    constraint recipient_ref_prefix_check check ((value ~ '^(role|agency|user|agent):[^[:space:]]+$'))
    constraint recipient_ref_short_and_plain_check check (towpath._name_fits(value));

-- The optional registry of recipients. login_role, if set, is the login (or group) that may read events as
-- this recipient, executor_id the executor whose tokens may; a recipient without a row can be subscribed, but
-- not read.
create table towpath.event_actor (
    recipient_ref towpath.recipient_ref not null,
    login_role towpath.label,
    executor_id towpath.label,
    notes text,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint event_actor_pkey primary key (recipient_ref),
    constraint event_actor_executor_id_fkey foreign key (executor_id) references
        towpath.consumer_registry(executor_id) on delete set null
);

-- A row says that a recipient gets (or, muted, does not get) some events of a domain. Null type or stream
-- means any; the two scopes narrow the row.
create table towpath.event_subscription (
    subscription_id uuid not null default gen_random_uuid(),
    subscription_no integer not null generated always as identity,
    recipient_ref towpath.recipient_ref not null,
    event_domain towpath.label not null,
    event_type towpath.label,
    event_stream towpath.label,
    scope_subject_table towpath.label,
    scope_filter jsonb not null default '{}'::jsonb,
    mute boolean not null default false,
    notes text,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint event_subscription_pkey primary key (subscription_id),
    constraint event_subscription_subscription_no_key unique (subscription_no),
    constraint event_subscription_uq unique nulls not distinct (event_domain, event_type, event_stream,
        recipient_ref, scope_subject_table, scope_filter),
    constraint event_subscription_filter_object_check check ((jsonb_typeof(scope_filter) = 'object')),
    constraint event_subscription_filter_short_check check (((pg_column_size(scope_filter) <= 1024) and (not
        towpath._payload_deep(scope_filter))))
);

-- How many events nobody had subscribed, by the hour in which they were emitted, so that the share of
-- broadcasts costs no scan (R03); and how far fn_event_counter_fold has counted.
create table towpath.event_resolution_cursor (
    only_row boolean not null default true,
    position bigint not null default 0,
    constraint event_resolution_cursor_pkey primary key (only_row),
    constraint event_resolution_cursor_one_row_check check (only_row),
    constraint event_resolution_cursor_position_not_negative_check check (("position" >= 0))
) with (fillfactor = 50);

create table towpath.event_resolution_hour (
    hour_at timestamptz not null,
    event_domain text not null,
    event_type text not null,
    events bigint not null,
    broadcasts bigint not null,
    constraint event_resolution_hour_pkey primary key (hour_at, event_domain, event_type)
) with (fillfactor = 50);

-- When a warning event was last emitted, so that it comes once per window.
create table towpath.event_warning (
    warning text not null,
    warned_at timestamptz not null default '-infinity'::timestamptz,
    constraint event_warning_pkey primary key (warning)
);

-- A named worker and the number of slices its work is split into. With a domain it reads the events of that
-- domain only and records nothing about others.
create table towpath.route_worker (
    worker_no smallint not null generated always as identity,
    worker_name text not null,
    slices integer not null default 1,
    event_domain towpath.label,
    registered_by towpath.label not null,
    registered_at timestamptz not null default towpath.fn_now(),
    constraint route_worker_pkey primary key (worker_no),
    constraint route_worker_name_uq unique (worker_name),
    constraint route_worker_name_check check ((worker_name ~ '^[a-z0-9][a-z0-9_.-]{0,99}$')),
    constraint route_worker_slices_check check (((slices >= 1) and (slices <= 64)))
);

-- One row per slice: what a pass locks. Its position is the newest route_cursor_mark.
create table towpath.route_worker_cursor (
    cursor_no integer not null generated always as identity,
    worker_no smallint not null,
    slice integer not null,
    constraint route_worker_cursor_pkey primary key (cursor_no),
    constraint route_worker_cursor_uq unique (worker_no, slice),
    constraint route_worker_cursor_worker_no_fkey foreign key (worker_no) references
        towpath.route_worker(worker_no),
    constraint route_worker_cursor_slice_check check ((slice >= 0))
);

create table towpath.route_cursor_mark (
    cursor_no integer not null,
    mark_no bigint not null generated always as identity,
    position bigint not null,
    runs bigint not null default 0,
    events bigint not null default 0,
    last_run_at timestamptz not null default towpath.fn_now(),
    last_summary jsonb not null default '{}'::jsonb,
    constraint route_cursor_mark_pkey primary key (cursor_no, mark_no),
    constraint route_cursor_mark_cursor_no_fkey foreign key (cursor_no) references
        towpath.route_worker_cursor(cursor_no) on delete cascade,
    constraint route_cursor_mark_position_not_negative_check check (("position" >= 0))
);

-- What webhooks are sent to: scheme, host and port. Routes to one target share its circuit, its pauses and
-- the strictest of their rate limits.
create table towpath.delivery_target (
    target_no integer not null generated always as identity,
    target_key text not null,
    circuit text not null default 'closed',
    failures integer not null default 0,
    -- The first failure since the last success.
    failing_since timestamptz,
    opened_times integer not null default 0,
    -- Nothing is claimed before this: the circuit is open, the target asked for a pause, or its rate is used
    -- up.
    blocked_until timestamptz not null default '-infinity'::timestamptz,
    tokens double precision not null default 0,
    refilled_at timestamptz not null default '-infinity'::timestamptz,
    served_at timestamptz not null default '-infinity'::timestamptz,
    -- The route that had the last turn; the next one's is next.
    served_route_no integer not null default 0,
    last_error text,
    constraint delivery_target_pkey primary key (target_no),
    constraint delivery_target_key_uq unique (target_key),
    constraint delivery_target_circuit_check check ((circuit = any (array['closed', 'open', 'half_open']))),
    constraint delivery_target_failures_not_negative_check check (((failures >= 0) and (opened_times >= 0))),
    constraint delivery_target_key_not_blank_check check ((btrim(target_key) <> ''))
) with (fillfactor = 50);

-- A route: which events go where. It belongs to one worker for life, so that no second worker can deliver for
-- it. Retired routes stay, because attempts name them.
create table towpath.outbound_route (
    route_no integer not null generated always as identity,
    route_name text not null,
    worker_no smallint not null,
    event_domain towpath.label,
    event_type towpath.label,
    event_stream towpath.label,
    -- One recipient, or all of a kind as 'role:*'; null: everyone who gets it.
    recipient_filter text,
    payload_filter jsonb not null default '{}'::jsonb,
    target_kind text not null,
    target jsonb not null,
    target_no integer,
    mode text not null default 'off',
    mode_reason text not null default 'new',
    -- none: as fast as possible. key: one at a time and in order for each ordering key.
    ordering text not null default 'none',
    -- The waits between attempts; the defaults are the offsets of Standard Webhooks over a day.
    retry_seconds integer[] not null default '{5,300,1500,5400,10800,18000,14400,21600,14400}'::integer[],
    rate_limit_per_second numeric,
    notes text,
    changed_by towpath.label not null,
    changed_at timestamptz not null default towpath.fn_now(),
    retired_at timestamptz,
    constraint outbound_route_pkey primary key (route_no),
    constraint outbound_route_name_uq unique (route_name),
    constraint outbound_route_target_no_fkey foreign key (target_no) references
        towpath.delivery_target(target_no),
    constraint outbound_route_worker_no_fkey foreign key (worker_no) references
        towpath.route_worker(worker_no),
    constraint outbound_route_mode_check check ((mode = any (array['off', 'dry_run', 'live']))),
    constraint outbound_route_name_check check ((route_name ~ '^[a-z0-9][a-z0-9_.-]{0,99}$')),
    constraint outbound_route_ordering_check check ((ordering = any (array['none', 'key']))),
    constraint outbound_route_payload_filter_object_check check ((jsonb_typeof(payload_filter) = 'object')),
    constraint outbound_route_payload_filter_small_check check (towpath._payload_small(payload_filter)),
    constraint outbound_route_rate_check check (((rate_limit_per_second >= 0.001) and (rate_limit_per_second
        <= (1000000)::numeric))),
    constraint outbound_route_recipient_filter_check check (((recipient_filter ~
        '^(role|agency|user|agent):[^[:space:]]+$') and towpath._name_fits(recipient_filter))),
    constraint outbound_route_retired_is_off_check check (((retired_at is null) or (mode = 'off'))),
    constraint outbound_route_retry_check check (((cardinality(retry_seconds) <= 50) and (0 <= all
        (retry_seconds)) and (604800 >= all (retry_seconds)))),
    constraint outbound_route_target_kind_check check ((target_kind = any (array['job', 'stream', 'webhook',
        'process']))),
    constraint outbound_route_target_object_check check ((jsonb_typeof(target) = 'object')),
    constraint outbound_route_target_safe_check check (towpath._payload_safe(target)),
    constraint outbound_route_target_small_check check (towpath._payload_small(target)),
    constraint outbound_route_webhook_has_target_check check (((target_kind = 'webhook') = (target_no is not
        null)))
);

-- One event and one route on their way through a pass. Not a table: the shape of an array.
create type towpath._route_work as (
    position bigint,
    event_id uuid,
    event_domain text,
    event_type text,
    worker_no smallint,
    worker_name text,
    route_no integer,
    route_name text,
    mode text,
    generation integer,
    decision text,
    reason text,
    step smallint,
    recipients text[],
    suppressed text[],
    target_kind text,
    target jsonb,
    target_no integer,
    ordering_key text,
    event jsonb
);

-- What webhooks are signed with. Only fn_delivery_claim and fn_route_test read it; the login that sets a
-- secret sees it once. The previous one keeps signing until the overlap ends.
create table towpath.route_secret (
    route_no integer not null,
    secret text not null,
    previous text,
    previous_until timestamptz,
    changed_by text not null,
    changed_at timestamptz not null default towpath.fn_now(),
    constraint route_secret_pkey primary key (route_no),
    constraint route_secret_route_no_fkey foreign key (route_no) references towpath.outbound_route(route_no),
    constraint route_secret_form_check check ((secret ~ '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$')),
    constraint route_secret_previous_pair_check check (((previous is null) = (previous_until is null)))
);

-- One row per event, route, mode and generation; route_no 0 says that no route of the worker matched. A
-- replay is a new generation; a dry run and a delivery do not take each other's place, because the mode is
-- part of the key (E07). The view shows the key as text.
create table towpath.route_attempt (
    position bigint not null,
    worker_no smallint not null,
    route_no integer not null,
    mode text not null,
    generation integer not null default 0,
    event_id uuid not null,
    decision text not null,
    reason text,
    -- The step of recipient resolution: 1 exact_match to 5 broadcast_fallback.
    step smallint not null,
    recipients text[],
    suppressed text[],
    -- The job or the delivery.
    result_id uuid,
    error text,
    attempted_at timestamptz not null,
    constraint route_attempt_pk primary key ("position", worker_no, route_no, mode, generation),
    constraint route_attempt_decision_check check ((decision = any (array['dry_run', 'disabled', 'skipped',
        'failed', 'sent']))),
    constraint route_attempt_generation_not_negative_check check ((generation >= 0)),
    constraint route_attempt_mode_check check ((mode = any (array['off', 'dry_run', 'live']))),
    constraint route_attempt_sent_only_live_check check (((decision <> 'sent') or ((mode = 'live') and
        (result_id is not null)))),
    constraint route_attempt_step_check check (((step >= 1) and (step <= 5)))
) partition by range ("position");
create trigger route_attempt_append_only before delete or update on towpath.route_attempt for each row execute
    function towpath._append_only();
create trigger route_attempt_no_truncate before truncate on towpath.route_attempt for each statement execute
    function towpath._append_only();

-- What could not be routed (stage routing) or delivered (stage delivery), whole, so that it can be replayed
-- without the outbox (E06). Resolved, never deleted.
create table towpath.route_dead_letter (
    dead_letter_id uuid not null,
    stage text not null,
    worker_no smallint not null,
    route_no integer not null,
    route_name text not null,
    mode text not null,
    generation integer not null,
    position bigint not null,
    event_id uuid not null,
    event_snapshot jsonb not null,
    recipients text[],
    error text not null,
    attempts integer not null,
    idempotency_key text not null,
    replays integer not null default 0,
    created_at timestamptz not null,
    resolved_at timestamptz,
    resolved_by text,
    resolution text,
    constraint route_dead_letter_pkey primary key (dead_letter_id),
    constraint route_dead_letter_key_uq unique (idempotency_key),
    constraint route_dead_letter_error_not_blank_check check ((btrim(error) <> '')),
    constraint route_dead_letter_resolved_together_check check ((((resolved_at is null) = (resolved_by is
        null)) and ((resolved_at is null) = (resolution is null)))),
    constraint route_dead_letter_snapshot_safe_check check (towpath._payload_safe(event_snapshot)),
    constraint route_dead_letter_stage_check check ((stage = any (array['routing', 'delivery'])))
);
-- route_dead_letter_open_idx: retention and fn_event_verify, the oldest open letter.
create index route_dead_letter_open_idx on towpath.route_dead_letter ("position") where (resolved_at is null);
-- route_dead_letter_route_idx: fn_route_dead_letter_list and _replay_many.
create index route_dead_letter_route_idx on towpath.route_dead_letter (route_no, dead_letter_id);
create trigger route_dead_letter_never_deleted before delete or truncate on towpath.route_dead_letter for each
    statement execute function towpath._append_only();

-- A webhook that is not finished. Deleted at its end: delivery_attempt has the history.
create table towpath.delivery (
    delivery_id uuid not null,
    route_no integer not null,
    target_no integer not null,
    position bigint not null,
    event_id uuid not null,
    generation integer not null,
    -- Null unless the route keeps the order of keys.
    ordering_key text,
    event jsonb not null,
    recipients text[],
    next_at timestamptz not null,
    attempts integer not null default 0,
    lease_owner text,
    lease_until timestamptz,
    last_error text,
    created_at timestamptz not null,
    constraint delivery_pk primary key (delivery_id),
    constraint delivery_once_uq unique ("position", route_no, generation),
    constraint delivery_route_no_fkey foreign key (route_no) references towpath.outbound_route(route_no),
    constraint delivery_attempts_not_negative_check check ((attempts >= 0)),
    constraint delivery_lease_pair_check check (((lease_owner is null) = (lease_until is null))),
    constraint delivery_owner_not_blank_check check ((btrim(lease_owner) <> ''))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- delivery_due_idx: fn_delivery_claim, what a target is owed, route by route.
create index delivery_due_idx on towpath.delivery (target_no, route_no, next_at) where (lease_owner is null);
-- delivery_lease_idx: fn_delivery_claim, leases that ran out.
create index delivery_lease_idx on towpath.delivery (lease_until) where (lease_owner is not null);
-- delivery_order_idx: fn_delivery_claim, who is first of its key; fn_route_mode_set.
create index delivery_order_idx on towpath.delivery (route_no, ordering_key, "position");

-- One row per ended attempt to send. Append-only, partitioned by day of the delivery.
create table towpath.delivery_attempt (
    delivery_id uuid not null,
    attempt integer not null,
    route_no integer not null,
    position bigint not null,
    event_id uuid not null,
    lease_owner text not null,
    ended_at timestamptz not null,
    outcome text not null,
    status_code integer,
    duration_ms integer,
    address text,
    error text,
    answer text,
    next_at timestamptz,
    constraint delivery_attempt_pk primary key (delivery_id, attempt),
    constraint delivery_attempt_outcome_check check ((outcome = any (array['delivered', 'retry', 'lost',
        'released', 'dead', 'cancelled']))),
    constraint delivery_attempt_status_check check (((status_code >= 100) and (status_code <= 999)))
) partition by range (delivery_id);
create trigger delivery_attempt_append_only before delete or update on towpath.delivery_attempt for each row
    execute function towpath._append_only();
create trigger delivery_attempt_no_truncate before truncate on towpath.delivery_attempt for each statement
    execute function towpath._append_only();
-- towpath._event_no_truncate(p_table text) returns void
-- towpath._event_partition_rows() returns bigint

-- Below kept_from events are gone.
create table towpath.event_retention (
    only_row boolean not null default true,
    kept_from bigint not null default 1,
    changed_at timestamptz not null default towpath.fn_now(),
    constraint event_retention_pkey primary key (only_row),
    constraint event_retention_one_row_check check (only_row)
);

-- sql/migrations/0005_process.sql

-- How processes of a kind are supervised. The functions are named schema.function and resolved when they are
-- called, by the rules of run_function.
create table towpath.process_kind (
    process_kind towpath.label not null,
    -- Who runs an attempt. function: the SQL function db_function, with steps. handler: a worker's handler,
    -- with steps, in any language. task: a job with handlers of the kind around it, as comms has, or a
    -- program outside.
    runs_as text not null default 'task',
    -- Decides what comes next. Null: a program outside the database does (fn_process_due).
    supervisor text,
    -- Called with every fact, in its transaction; stores what the kind needs of it.
    recorder text,
    -- The kind of the job that is an attempt, and what stands in its payload.
    task_kind towpath.label not null,
    db_function text,
    before_handler text,
    success_handler text,
    error_handler text,
    -- The payload's name for the process's ref: send_email_task_id.
    ref_field text not null default 'ref',
    max_attempts integer not null default 5,
    -- How long a begun attempt may take before it counts as lost.
    lease_seconds integer not null default 120,
    -- How long a job may wait to be begun before somebody looks whether it still exists.
    pickup_seconds integer not null default 600,
    -- From the start, or from the moment it was scheduled for.
    deadline_seconds integer not null default 86400,
    -- When to look again if the supervisor named no time, or failed.
    check_seconds integer not null default 30,
    backoff_seconds integer not null default 10,
    -- What to do when it is not known whether an attempt took effect and the other side does not honour the
    -- key: retry, or hold it for an operator.
    on_uncertain text not null default 'hold',
    changed_by towpath.label not null,
    changed_at timestamptz not null default towpath.fn_now(),
    constraint process_kind_pkey primary key (process_kind),
    constraint process_kind_backoff_check check (((backoff_seconds >= 0) and (backoff_seconds <= 86400))),
    constraint process_kind_check_positive_check check (((check_seconds >= 1) and (check_seconds <= 86400))),
    constraint process_kind_deadline_positive_check check (((deadline_seconds >= 1) and (deadline_seconds <=
        31536000))),
    constraint process_kind_lease_positive_check check (((lease_seconds >= 1) and (lease_seconds <= 86400))),
    constraint process_kind_max_attempts_positive_check check (((max_attempts >= 1) and (max_attempts <=
        1000))),
    constraint process_kind_on_uncertain_check check ((on_uncertain = any (array['retry', 'hold']))),
    constraint process_kind_pickup_positive_check check (((pickup_seconds >= 1) and (pickup_seconds <=
        86400))),
    constraint process_kind_ref_field_check check (((ref_field ~ '^[a-z_][a-z0-9_]{0,62}$') and (ref_field <>
        all (array['task_type', 'process_id', 'attempt_no', 'db_function', 'before_handler',
        'success_handler', 'error_handler', 'worker'])))),
    constraint process_kind_runs_as_check check ((runs_as = any (array['task', 'function', 'handler']))),
    constraint process_kind_steps_are_general_check check (((runs_as = 'task') or ((supervisor =
        'towpath.process_supervisor') and (recorder is null) and (before_handler is null) and (success_handler
        is null) and (error_handler is null) and ((runs_as = 'function') = (db_function is not null)) and
        (supervisor is not null))))
);
-- towpath.process_kind(kind text, function text default null::text, task_kind text default null::text,
--     max_attempts integer default null::integer, lease_seconds integer default null::integer,
--     deadline_seconds integer default null::integer, backoff_seconds integer default null::integer,
--     check_seconds integer default null::integer, on_uncertain text default null::text, actor text default
--     null::text) returns void

-- What a process is called by, the states it has, the outcomes of its attempts and its facts. Domains, as
-- towpath.result.
create domain towpath.ref_label as text
    constraint ref_label_short_and_plain_check check ((towpath._key_fits(value) and (octet_length(value) <=
        500)));

create domain towpath.process_state as text
    constraint process_state_check check ((value = any (array['open', 'held', 'succeeded', 'gave_up',
        'cancelled', 'invalid'])));

create domain towpath.attempt_outcome as text
    constraint attempt_outcome_check check ((value = any (array['accepted', 'transient', 'permanent',
        'uncertain', 'lost', 'superseded', 'suspended'])));

create domain towpath.fact as text
    constraint fact_check check ((value = any (array['started', 'scheduled', 'begun', 'stepped', 'suspended',
        'signalled', 'failed', 'uncertain', 'lost', 'held', 'resolved', 'late', 'succeeded', 'gave_up',
        'cancelled', 'invalid'])));

-- A process. It is looked at when next_check_at has come, and ended at the latest by its deadline. One per
-- kind and ref, forever: starting it again finds it.
create table towpath.process (
    process_id uuid not null,
    process_kind towpath.label not null,
    ref towpath.ref_label not null,
    state towpath.process_state not null default 'open',
    -- Whether a function supervises it; copied, so that the scan reads one index.
    in_database boolean not null,
    next_check_at towpath.moment,
    deadline_at towpath.moment not null,
    max_attempts towpath.attempt_limit not null,
    started_by towpath.label not null,
    started_at timestamptz not null,
    finished_at timestamptz,
    -- What it was started with. What it came to is the value of its terminal fact.
    input towpath.result,
    -- The signal that a suspended process waits for.
    waits_for towpath.long_label,
    -- The process that waits for the end of this one.
    parent_id uuid,
    constraint process_pkey primary key (process_id),
    constraint process_ref_uq unique (process_kind, ref),
    constraint process_checked_iff_unfinished_check check (((finished_at is null) = (next_check_at is not
        null))),
    constraint process_finished_iff_terminal_check check ((((state)::text = any (array['open', 'held'])) =
        (finished_at is null)))
) with (autovacuum_vacuum_scale_factor = 0.05, fillfactor = 70);
-- process_deadline_idx: fn_process_scan ends what nobody outside has ended.
create index process_deadline_idx on towpath.process (deadline_at) where ((finished_at is null) and (not
    in_database));
-- process_due_idx: fn_process_scan.
create index process_due_idx on towpath.process (next_check_at) where ((finished_at is null) and in_database);
-- process_due_outside_idx: fn_process_due.
create index process_due_outside_idx on towpath.process (process_kind, next_check_at) where ((finished_at is
    null) and (not in_database));
-- process_unfinished_idx: fn_process_list and the views by state.
create index process_unfinished_idx on towpath.process (state, process_id) where (finished_at is null);

-- An attempt. Its number is the fence: it is begun once, so at most one worker ever holds it, and a worker
-- that comes back after the lease finds the outcome lost.
create table towpath.process_attempt (
    process_id uuid not null,
    attempt_no towpath.positive_number not null,
    job_id uuid not null,
    scheduled_at timestamptz not null,
    due_at towpath.moment not null,
    begun_at timestamptz,
    worker towpath.long_label,
    -- Whether the other side takes the same key twice for one: then repeating is safe.
    key_honoured boolean not null default false,
    -- Until it is begun: when to look whether the job still exists. From then on: the lease.
    lease_until timestamptz not null,
    outcome towpath.attempt_outcome,
    ended_at timestamptz,
    -- The other side asked not to be tried before; or, of a suspended attempt, the end of the wait.
    retry_at timestamptz,
    constraint process_attempt_pk primary key (process_id, attempt_no),
    constraint process_attempt_accepted_was_begun_check check ((((outcome)::text <> 'accepted') or (begun_at
        is not null))),
    constraint process_attempt_begun_together_check check (((begun_at is null) = (worker is null))),
    constraint process_attempt_ended_together_check check (((outcome is null) = (ended_at is null)))
) with (fillfactor = 70);
-- process_attempt_outstanding_uq: at most one attempt of a process is outstanding (P07).
create unique index process_attempt_outstanding_uq on towpath.process_attempt (process_id) where (outcome is
    null);

-- A fact. fact_no counts up per process; the newest number is the process's generation.
create table towpath.process_fact (
    process_id uuid not null,
    fact_no towpath.positive_number not null,
    fact towpath.fact not null,
    attempt_no integer,
    detail towpath.signal not null default '{}'::jsonb,
    actor towpath.long_label not null,
    recorded_at timestamptz not null,
    -- Of a step, a wait or a signal: what it is called. value: the result of a step or of the process, or the
    -- payload of a signal.
    name towpath.long_label,
    value towpath.result,
    constraint process_fact_pk primary key (process_id, fact_no),
    constraint process_fact_named_check check (((name is not null) = ((fact)::text = any (array['stepped',
        'suspended', 'signalled'])))),
    constraint process_fact_of_attempt_check check (((attempt_no is not null) or ((fact)::text <> all
        (array['scheduled', 'begun', 'stepped', 'suspended', 'failed', 'uncertain', 'lost', 'late']))))
);
-- process_fact_attempt_uq: a fact about an attempt is stated once; of steps an attempt records many.
create unique index process_fact_attempt_uq on towpath.process_fact (process_id, attempt_no, fact) where
    ((attempt_no is not null) and ((fact)::text <> 'stepped'));
-- process_fact_named_uq: the first result of a step and the first signal of a name are the only ones (P13,
-- P15).
create unique index process_fact_named_uq on towpath.process_fact (process_id, fact, name) where ((fact)::text
    = any (array['stepped', 'signalled']));
-- process_fact_outcome_uq: and an attempt fails, is lost or uncertain only once altogether.
create unique index process_fact_outcome_uq on towpath.process_fact (process_id, attempt_no) where
    ((fact)::text = any (array['failed', 'uncertain', 'lost']));
-- process_fact_terminal_uq: exactly one end per process, whatever races (P06).
create unique index process_fact_terminal_uq on towpath.process_fact (process_id) where ((fact)::text = any
    (array['succeeded', 'gave_up', 'cancelled', 'invalid']));
create trigger process_fact_append_only before delete or update or truncate on towpath.process_fact for each
    statement execute function towpath._append_only();

-- What went wrong in a task, a handler or a supervisor (P05). Append-only; ids and context make it possible
-- to find what it was about.
create table towpath.task_error (
    task_error_id bigint not null generated always as identity,
    recorded_at timestamptz not null default towpath.fn_now(),
    kind text not null,
    message text not null,
    job_id uuid,
    job_attempt integer,
    task_type text,
    function_name text,
    process_id uuid,
    attempt_no integer,
    context towpath.signal not null default '{}'::jsonb,
    db_user text not null default session_user,
    constraint task_error_pkey primary key (task_error_id),
    constraint task_error_kind_check check ((kind = any (array['validation', 'operational', 'provider',
        'refused', 'supervisor']))),
    constraint task_error_message_check check (((btrim(message) <> '') and (length(message) <= 4000)))
);
-- task_error_job_idx: fn_task_error_list.
create index task_error_job_idx on towpath.task_error (job_id, task_error_id) where (job_id is not null);
-- task_error_process_idx: fn_task_error_list and fn_process_show.
create index task_error_process_idx on towpath.task_error (process_id, task_error_id) where (process_id is not
    null);
create trigger task_error_append_only before delete or update or truncate on towpath.task_error for each
    statement execute function towpath._append_only();

-- sql/migrations/0006_comms.sql

create table comms.message (
    message_id bigint not null generated always as identity,
    channel text not null,
    -- A producer that repeats itself with the same key finds its message.
    idempotency_key towpath.long_label,
    created_by towpath.label not null,
    created_at timestamptz not null default towpath.fn_now(),
    constraint message_pkey primary key (message_id),
    constraint message_channel_uq unique (message_id, channel),
    constraint message_key_uq unique (idempotency_key),
    constraint message_channel_check check ((channel = any (array['email', 'sms']))),
    constraint message_key_short_check check ((octet_length((idempotency_key)::text) <= 500))
);

create table comms.email_message (
    message_id bigint not null,
    channel text not null default 'email',
    -- Null: the worker's own address.
    from_address text,
    to_addresses text[] not null,
    cc text[] not null default '{}'[],
    bcc text[] not null default '{}'[],
    reply_to text[] not null default '{}'[],
    subject text not null,
    text_body text,
    html_body text,
    headers jsonb not null default '{}'::jsonb,
    constraint email_message_pkey primary key (message_id),
    constraint email_message_fk foreign key (message_id, channel) references comms.message(message_id,
        channel),
    constraint email_message_channel_check check ((channel = 'email'))
);

create table comms.sms_message (
    message_id bigint not null,
    channel text not null default 'sms',
    from_number text,
    to_number text not null,
    text_body text not null,
    constraint sms_message_pkey primary key (message_id),
    constraint sms_message_fk foreign key (message_id, channel) references comms.message(message_id, channel),
    constraint sms_message_channel_check check ((channel = 'sms'))
);

create table comms.send_email_task (
    send_email_task_id bigint not null generated always as identity,
    message_id bigint not null,
    scheduled_at towpath.moment not null,
    created_at timestamptz not null default towpath.fn_now(),
    constraint send_email_task_pkey primary key (send_email_task_id),
    constraint send_email_task_message_id_fkey foreign key (message_id) references
        comms.email_message(message_id)
);
-- send_email_task_message_idx: comms.message_list and comms.message_show.
create index send_email_task_message_idx on comms.send_email_task (message_id);

create table comms.send_email_task_frozen (
    send_email_task_id bigint not null,
    provider_payload jsonb not null,
    frozen_at timestamptz not null,
    constraint send_email_task_frozen_pkey primary key (send_email_task_id),
    constraint send_email_task_frozen_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_frozen_append_only before delete or update or truncate on
    comms.send_email_task_frozen for each statement execute function towpath._append_only();

create table comms.send_email_task_scheduled (
    send_email_task_id bigint not null,
    attempt_no integer not null,
    job_id uuid not null,
    recorded_at timestamptz not null,
    constraint send_email_task_scheduled_pkey primary key (send_email_task_id, attempt_no),
    constraint send_email_task_scheduled_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_scheduled_append_only before delete or update or truncate on
    comms.send_email_task_scheduled for each statement execute function towpath._append_only();

create table comms.send_email_task_succeeded (
    send_email_task_id bigint not null,
    attempt_no integer,
    transport text,
    provider_id text,
    recorded_at timestamptz not null,
    constraint send_email_task_succeeded_pkey primary key (send_email_task_id),
    constraint send_email_task_succeeded_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_succeeded_append_only before delete or update or truncate on
    comms.send_email_task_succeeded for each statement execute function towpath._append_only();

-- outcome: transient, permanent or uncertain.
create table comms.send_email_task_failed (
    send_email_task_id bigint not null,
    attempt_no integer not null,
    outcome text not null,
    transport text,
    code text,
    message text,
    retry_after_seconds double precision,
    recorded_at timestamptz not null,
    constraint send_email_task_failed_pkey primary key (send_email_task_id, attempt_no),
    constraint send_email_task_failed_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id),
    constraint send_email_task_failed_outcome_check check ((outcome = any (array['transient', 'permanent',
        'uncertain'])))
);
create trigger send_email_task_failed_append_only before delete or update or truncate on
    comms.send_email_task_failed for each statement execute function towpath._append_only();

-- begun: whether it may have reached the provider.
create table comms.send_email_task_lost (
    send_email_task_id bigint not null,
    attempt_no integer not null,
    begun boolean not null,
    recorded_at timestamptz not null,
    constraint send_email_task_lost_pkey primary key (send_email_task_id, attempt_no),
    constraint send_email_task_lost_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_lost_append_only before delete or update or truncate on
    comms.send_email_task_lost for each statement execute function towpath._append_only();

create table comms.send_email_task_gave_up (
    send_email_task_id bigint not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_email_task_gave_up_pkey primary key (send_email_task_id),
    constraint send_email_task_gave_up_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_gave_up_append_only before delete or update or truncate on
    comms.send_email_task_gave_up for each statement execute function towpath._append_only();

create table comms.send_email_task_cancelled (
    send_email_task_id bigint not null,
    actor text not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_email_task_cancelled_pkey primary key (send_email_task_id),
    constraint send_email_task_cancelled_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_cancelled_append_only before delete or update or truncate on
    comms.send_email_task_cancelled for each statement execute function towpath._append_only();

create table comms.send_email_task_invalid (
    send_email_task_id bigint not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_email_task_invalid_pkey primary key (send_email_task_id),
    constraint send_email_task_invalid_send_email_task_id_fkey foreign key (send_email_task_id) references
        comms.send_email_task(send_email_task_id)
);
create trigger send_email_task_invalid_append_only before delete or update or truncate on
    comms.send_email_task_invalid for each statement execute function towpath._append_only();

create table comms.send_sms_task (
    send_sms_task_id bigint not null generated always as identity,
    message_id bigint not null,
    scheduled_at towpath.moment not null,
    created_at timestamptz not null default towpath.fn_now(),
    constraint send_sms_task_pkey primary key (send_sms_task_id),
    constraint send_sms_task_message_id_fkey foreign key (message_id) references comms.sms_message(message_id)
);
-- send_sms_task_message_idx: comms.message_list and comms.message_show.
create index send_sms_task_message_idx on comms.send_sms_task (message_id);

create table comms.send_sms_task_frozen (
    send_sms_task_id bigint not null,
    provider_payload jsonb not null,
    frozen_at timestamptz not null,
    constraint send_sms_task_frozen_pkey primary key (send_sms_task_id),
    constraint send_sms_task_frozen_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_frozen_append_only before delete or update or truncate on
    comms.send_sms_task_frozen for each statement execute function towpath._append_only();

create table comms.send_sms_task_scheduled (
    send_sms_task_id bigint not null,
    attempt_no integer not null,
    job_id uuid not null,
    recorded_at timestamptz not null,
    constraint send_sms_task_scheduled_pkey primary key (send_sms_task_id, attempt_no),
    constraint send_sms_task_scheduled_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_scheduled_append_only before delete or update or truncate on
    comms.send_sms_task_scheduled for each statement execute function towpath._append_only();

create table comms.send_sms_task_succeeded (
    send_sms_task_id bigint not null,
    attempt_no integer,
    transport text,
    provider_id text,
    recorded_at timestamptz not null,
    constraint send_sms_task_succeeded_pkey primary key (send_sms_task_id),
    constraint send_sms_task_succeeded_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_succeeded_append_only before delete or update or truncate on
    comms.send_sms_task_succeeded for each statement execute function towpath._append_only();

-- outcome: transient, permanent or uncertain.
create table comms.send_sms_task_failed (
    send_sms_task_id bigint not null,
    attempt_no integer not null,
    outcome text not null,
    transport text,
    code text,
    message text,
    retry_after_seconds double precision,
    recorded_at timestamptz not null,
    constraint send_sms_task_failed_pkey primary key (send_sms_task_id, attempt_no),
    constraint send_sms_task_failed_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id),
    constraint send_sms_task_failed_outcome_check check ((outcome = any (array['transient', 'permanent',
        'uncertain'])))
);
create trigger send_sms_task_failed_append_only before delete or update or truncate on
    comms.send_sms_task_failed for each statement execute function towpath._append_only();

-- begun: whether it may have reached the provider.
create table comms.send_sms_task_lost (
    send_sms_task_id bigint not null,
    attempt_no integer not null,
    begun boolean not null,
    recorded_at timestamptz not null,
    constraint send_sms_task_lost_pkey primary key (send_sms_task_id, attempt_no),
    constraint send_sms_task_lost_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_lost_append_only before delete or update or truncate on comms.send_sms_task_lost
    for each statement execute function towpath._append_only();

create table comms.send_sms_task_gave_up (
    send_sms_task_id bigint not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_sms_task_gave_up_pkey primary key (send_sms_task_id),
    constraint send_sms_task_gave_up_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_gave_up_append_only before delete or update or truncate on
    comms.send_sms_task_gave_up for each statement execute function towpath._append_only();

create table comms.send_sms_task_cancelled (
    send_sms_task_id bigint not null,
    actor text not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_sms_task_cancelled_pkey primary key (send_sms_task_id),
    constraint send_sms_task_cancelled_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_cancelled_append_only before delete or update or truncate on
    comms.send_sms_task_cancelled for each statement execute function towpath._append_only();

create table comms.send_sms_task_invalid (
    send_sms_task_id bigint not null,
    reason text,
    recorded_at timestamptz not null,
    constraint send_sms_task_invalid_pkey primary key (send_sms_task_id),
    constraint send_sms_task_invalid_send_sms_task_id_fkey foreign key (send_sms_task_id) references
        comms.send_sms_task(send_sms_task_id)
);
create trigger send_sms_task_invalid_append_only before delete or update or truncate on
    comms.send_sms_task_invalid for each statement execute function towpath._append_only();

-- sql/migrations/0007_audit.sql

create table towpath.audit (
    audit_id bigint not null generated always as identity,
    at timestamptz not null default towpath.fn_now(),
    actor towpath.label not null,
    action towpath.label not null,
    target text not null,
    detail text,
    outcome text not null,
    constraint audit_pkey primary key (audit_id)
);

-- sql/migrations/0008_stream_delivery.sql

-- A stream that a route writes to. The lease is on all of it: one sender at a time. attempts counts leases
-- and with the owner is the fence.
create table towpath.route_stream (
    route_stream_no integer not null generated always as identity,
    route_no integer not null,
    project text not null,
    stream text not null,
    -- Under which name the route appends.
    producer uuid not null default gen_random_uuid(),
    last_number bigint not null default 0,
    attempts integer not null default 0,
    -- Failed appends since the last that worked.
    failures integer not null default 0,
    lease_owner text,
    lease_until timestamptz,
    next_at timestamptz not null default '-infinity'::timestamptz,
    last_error text,
    constraint route_stream_pkey primary key (route_stream_no),
    constraint route_stream_uq unique (route_no, project, stream),
    constraint route_stream_route_no_fkey foreign key (route_no) references towpath.outbound_route(route_no),
    constraint route_stream_counts_not_negative_check check (((last_number >= 0) and (attempts >= 0) and
        (failures >= 0))),
    constraint route_stream_lease_pair_check check (((lease_owner is null) = (lease_until is null))),
    constraint route_stream_owner_not_blank_check check ((btrim(lease_owner) <> '')),
    constraint route_stream_project_not_blank_check check ((btrim(project) <> '')),
    constraint route_stream_stream_not_blank_check check ((btrim(stream) <> ''))
) with (fillfactor = 50);

-- An event on its way into a stream. Deleted at its end: delivery_attempt has the history.
create table towpath.stream_delivery (
    route_stream_no integer not null,
    number bigint not null,
    delivery_id uuid not null,
    route_no integer not null,
    position bigint not null,
    event_id uuid not null,
    generation integer not null,
    event jsonb not null,
    recipients text[],
    created_at timestamptz not null,
    in_intake boolean not null default false,
    constraint stream_delivery_pk primary key (route_stream_no, number),
    constraint stream_delivery_once_uq unique ("position", route_no, generation),
    constraint stream_delivery_route_stream_no_fkey foreign key (route_stream_no) references
        towpath.route_stream(route_stream_no),
    constraint stream_delivery_number_positive_check check ((number > 0))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index stream_delivery_intake_idx on towpath.stream_delivery (route_stream_no) where in_intake;

-- sql/migrations/0009_stream_log.sql

-- The log itself: one per database.
create table towpath.stream_log (
    is_only boolean not null default true,
    -- Which log this is: a node that has applied another one drops what it has.
    log_id uuid not null default gen_random_uuid(),
    -- A commit that a retry found is settled by writing here: the transaction that answers is then a later
    -- one.
    settled bigint not null default 0,
    created_at timestamptz not null default now(),
    -- Which node serves, until when. This is advice that spares nodes the fence; the number of a commit
    -- decides.
    node uuid,
    address text,
    until timestamptz,
    constraint stream_log_pkey primary key (is_only),
    constraint stream_log_lease_check check ((((node is null) = (until is null)) and ((node is null) =
        (address is null)))),
    constraint stream_log_only_check check (is_only)
) with (fillfactor = 50);

-- One commit. The chain is a checksum over the chain before it and the body, so two nodes with one chain have
-- applied the same bytes. The writer is the process that made it.
create table towpath.stream_commit (
    number bigint not null,
    chain bigint not null,
    writer uuid not null,
    body bytea not null,
    constraint stream_commit_pk primary key (number),
    constraint stream_commit_number_positive_check check ((number > 0))
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

-- A message on its way from a transaction to a stream. The store takes rows in the order of their ids and
-- notes them in the commit that appends them; then they are deleted. What a stream refuses stays, with the
-- error.
create table towpath.stream_intake (
    intake_id bigint not null generated always as identity,
    project text not null,
    stream text not null,
    -- JSON creates the stream if there is none; bytes need one.
    is_json boolean not null,
    body bytea not null,
    created_by text not null,
    created_at timestamptz not null,
    error text,
    refused_at timestamptz,
    -- The delivery of a route that it is; it ends with that, and is cancelled with that.
    route_stream_no integer,
    number bigint,
    constraint stream_intake_pk primary key (intake_id),
    constraint stream_intake_delivery_fk foreign key (route_stream_no, number) references
        towpath.stream_delivery(route_stream_no, number) on delete cascade,
    constraint stream_intake_refusal_pair_check check (((error is null) = (refused_at is null)))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- For the end of a delivery.
create index stream_intake_delivery_idx on towpath.stream_intake (route_stream_no, number) where
    (route_stream_no is not null);
-- For fn_stream_intake_refused.
create index stream_intake_refused_idx on towpath.stream_intake (intake_id) where (refused_at is not null);

-- Which store takes the intake in, until when, and whether routes deliver to its streams. Another store may
-- take its place only after that.
create table towpath.stream_intake_store (
    is_only boolean not null default true,
    store_id uuid not null,
    address text not null,
    until timestamptz not null,
    takes_routes boolean not null,
    constraint stream_intake_store_pkey primary key (is_only),
    constraint stream_intake_store_only_check check (is_only)
) with (fillfactor = 50);

-- Whether the store sleeps and wants to be notified of the next message: the last row says.
create table towpath.stream_intake_wake (
    wake_no bigint not null generated always as identity,
    armed boolean not null,
    constraint stream_intake_wake_pkey primary key (wake_no)
);

-- sql/functions/schema.sql
-- towpath._schema_catalogue() returns table(identity text, definition text)
-- towpath._schema_record(p_release text, p_checksum text) returns void
-- towpath.fn_schema_status() returns jsonb
-- towpath.fn_schema_drift() returns jsonb

-- sql/functions/config.sql
-- towpath._gate_open(p_gate text) returns boolean
-- towpath._gate_refusal(p_gate text) returns jsonb
-- towpath._config_value_error(p_config towpath.config, p_value text) returns text
-- towpath._config_number(p_key text) returns numeric
-- towpath.fn_config_list() returns jsonb
-- towpath.fn_config_set(p_key text, p_value text, p_actor text, p_reason text) returns jsonb
-- towpath.fn_config_history(p_key text default null::text, p_limit integer default 100) returns jsonb
-- towpath.fn_gate_set(p_gate text, p_open boolean, p_actor text, p_reason text) returns jsonb

-- sql/functions/value.sql
-- towpath._invalid(p_field text, p_detail text) returns jsonb
-- towpath._text_problem(p_text text, p_bytes_max integer) returns text
-- towpath._name_problem(p_name text, p_field text) returns text
-- towpath._name_refusal(p_name text, p_field text) returns jsonb
-- towpath._name_or_null_refusal(p_name text, p_field text) returns jsonb
-- towpath._ref_refusal(p_ref text, p_field text) returns jsonb
-- towpath._key_refusal(p_key text, p_field text) returns jsonb
-- towpath._owner_refusal(p_owner text, p_field text) returns jsonb
-- towpath._note_refusal(p_note text, p_field text) returns jsonb
-- towpath._moment_refusal(p_moment timestamptz, p_field text) returns jsonb
-- towpath._uuid_read(p_text text) returns uuid
-- towpath._number_read(p_text text) returns bigint
-- towpath._names_refusal(p_names text[], p_field text) returns jsonb
-- towpath._own_actor(p_part text, p_name text) returns text

-- sql/functions/error_text.sql
-- towpath._text_masked(p_text text) returns text
-- towpath._error_text(p_error text) returns text

-- sql/functions/payload.sql
-- towpath._payload_refusal(p_payload jsonb, p_field text) returns jsonb

-- sql/functions/payload_store.sql
-- towpath._payload_bytes_max() returns integer
-- towpath._payload_id(p_ref text) returns uuid
-- towpath._payload_key(p_project text) returns towpath.payload_key
-- towpath._payload_place_refusal(p_project text, p_key towpath.payload_key) returns jsonb
-- towpath._payload_put(p_data bytea, p_content_type text, p_project text, p_created_by text, p_payload_id
--     uuid, p_key_id bigint) returns jsonb
-- towpath._payload_gone(p_ref text) returns jsonb
-- towpath._payload_read(p_ref text) returns jsonb
-- towpath.payload_put(data jsonb, project text default 'default') returns text
-- towpath.payload_put_bytes(data bytea, content_type text default 'application/octet-stream', project text
--     default 'default') returns text
-- towpath.payload_get(ref text) returns jsonb
-- towpath.fn_payload_prepare(p_project text default 'default') returns jsonb
-- towpath.fn_payload_put(p_data bytea, p_content_type text, p_project text default 'default', p_payload_id
--     uuid default null::uuid, p_key_id bigint default null::bigint) returns jsonb
-- towpath.fn_executor_token_payload_put(p_token_hash bytea, p_data bytea, p_content_type text, p_project text
--     default 'default', p_payload_id uuid default null::uuid, p_key_id bigint default null::bigint) returns
--     jsonb
-- towpath.fn_payload_get(p_ref text, p_actor text default null::text) returns jsonb
-- towpath.fn_payload_delete(p_ref text, p_actor text default null::text) returns jsonb
-- towpath.fn_job_payload(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
-- towpath._result_refusal(p_results jsonb[]) returns jsonb
-- towpath._result_stored(p_job_id uuid, p_result jsonb) returns jsonb
-- towpath.fn_job_result_payload(p_job_id uuid) returns jsonb

-- sql/functions/payload_keep.sql
-- towpath.fn_payload_key_rotate(p_project text, p_wrapped bytea, p_actor text default null::text) returns
--     jsonb
-- towpath.fn_payload_key_erase(p_project text, p_actor text default null::text) returns jsonb
-- towpath.fn_payload_key_list() returns jsonb
-- towpath._payload_named(p_below uuid) returns uuid[]
-- towpath._payload_partition_drop(p_name text, p_below uuid) returns integer
-- towpath.fn_payload_retention_tick(p_limit integer default 1000) returns jsonb

-- sql/functions/filter.sql
-- towpath._filter_refusal(p_filter jsonb, p_keys text[], p_field text default 'filter') returns jsonb

-- sql/functions/loop_fault.sql
-- towpath._error_passing(p_sqlstate text) returns boolean
-- towpath._error_common(p_sqlstate text) returns boolean
-- towpath._loop_aside(p_loop text) returns text[]
-- towpath._loop_fault(p_loop text, p_item text, p_error text) returns void
-- towpath._loop_due(p_loop text, p_limit integer default 1000) returns text[]
-- towpath._loop_over(p_loop text, p_began timestamptz, p_items text[] default null::text[]) returns void
-- towpath.fn_loop_fault_record(p_loop text, p_item text, p_error text) returns jsonb
-- towpath.fn_loop_fault_over(p_loop text, p_item text) returns jsonb
-- towpath._loop_faults() returns jsonb
-- towpath._loop_fault_behind(p_fault towpath.loop_fault, p_limit integer) returns uuid[]
-- towpath.fn_loop_fault_list(p_loop text default null::text, p_limit integer default 100) returns jsonb
-- towpath.fn_loop_fault_retry(p_loop text, p_item text, p_actor text default null::text) returns jsonb
-- towpath.fn_loop_fault_drop(p_loop text, p_item text, p_reason text, p_actor text default null::text)
--     returns jsonb

-- sql/functions/subscription.sql
-- towpath._executor_unknown(p_executor text) returns text
-- towpath.fn_executor_kinds() returns jsonb
-- towpath._executor_lock(p_executor_id text) returns void
-- towpath._executor_kind_refusal(p_executor_id text, p_kind text, p_registered text) returns jsonb
-- towpath.fn_job_subscription_put(p_executor_id text, p_executor_kind text, p_job_kind text default
--     null::text, p_event_domain text default null::text, p_priority_floor integer default 0, p_max_parallel
--     integer default 1, p_enabled boolean default false, p_notes text default null::text, p_actor text
--     default null::text) returns jsonb
-- towpath._job_parallel_recount(p_no integer) returns integer
-- towpath.fn_job_subscription_delete(p_subscription_id uuid) returns jsonb
-- towpath.fn_job_subscription_list(p_executor_id text default null::text) returns jsonb
-- towpath.fn_consumer_put(p_executor_id text, p_executor text, p_login_role text default null::text, p_notes
--     text default null::text, p_actor text default null::text) returns jsonb
-- towpath.fn_executor_register(p_executor_id text, p_kinds text[], p_executor text default 'PG_worker',
--     p_actor text default null::text) returns jsonb
-- towpath.fn_consumer_delete(p_executor_id text) returns jsonb
-- towpath.fn_consumer_list() returns jsonb
-- towpath.fn_producer_grant_put(p_producer text, p_job_kind text default null::text, p_executor text default
--     null::text, p_actor text default null::text, p_any_kind boolean default false) returns jsonb
-- towpath.fn_producer_grant_revoke(p_grant_id uuid) returns jsonb
-- towpath.fn_producer_grant_list(p_producer text default null::text) returns jsonb

-- sql/functions/job_limits.sql
-- towpath._ready_jobs_max() returns integer
-- towpath._ready_ids_span() returns interval
-- towpath._entry_jobs_max() returns integer
-- towpath._run_jobs_min() returns integer
-- towpath._run_span_ms() returns bigint
-- towpath._claim_lanes_max() returns integer
-- towpath._ids_dense(p_ids uuid[]) returns boolean

-- sql/functions/job_wake.sql
-- towpath._job_wake(p_lanes integer[]) returns void
-- towpath.fn_job_arm(p_executor text, p_kinds text[] default null::text[]) returns jsonb

-- sql/functions/job_lane.sql
-- towpath._job_lane(p_job_kind text, p_executor text, p_priority integer, p_event_domain text) returns
--     integer
-- towpath.fn_job_lane_tick(p_limit integer default 1000) returns jsonb
-- towpath._job_lanes_collect(p_limit integer, p_ask boolean, out collected integer, out used integer[])
--     returns record

-- sql/functions/job_enqueue.sql
-- towpath._job_refusal(p_job towpath._job_input) returns jsonb
-- towpath._job_read(p_job jsonb) returns towpath._job_input
-- towpath._producer_may(p_job_kind text, p_executor text) returns boolean
-- towpath._producer_refusal(p_job_kind text, p_executor text) returns jsonb
-- towpath._job_executor(p_job_kind text) returns text
-- towpath._job_max_attempts_default() returns integer
-- towpath.fn_job_enqueue(p_job_kind text, p_source_ref text default null::text, p_target_ref text default
--     null::text, p_payload_ref text default null::text, p_payload_json jsonb default '{}'::jsonb, p_priority
--     integer default 100, p_scheduled_at timestamptz default null::timestamptz, p_max_attempts integer
--     default null::integer, p_idempotency_key text default null::text, p_actor text default null::text,
--     p_run_id uuid default null::uuid, p_executor text default null::text, p_event_domain text default
--     null::text) returns jsonb

-- sql/functions/job_enqueue_many.sql
-- towpath._job_enqueue_rows(p_jobs jsonb, p_login text default null::text, out job_ids uuid[], out duplicates
--     boolean[]) returns record
-- towpath._job_enqueue_object(p_job jsonb) returns jsonb
-- towpath.fn_job_enqueue_many(p_jobs jsonb) returns jsonb

-- sql/functions/job_run.sql
-- towpath._run_reach(p_job_id uuid) returns uuid
-- towpath._run_shared(p_job_ids uuid[]) returns boolean
-- towpath._job_runs(p_job_id uuid) returns table(attempt integer, refunded integer, picked_at timestamptz,
--     finished_at timestamptz, outcome text, lease_owner text, ended_by text, error text, result jsonb)

-- sql/functions/job_stream.sql
-- towpath._job_state(p_job_id uuid) returns jsonb
-- towpath.fn_job_state(p_job_id uuid) returns jsonb
-- towpath.fn_job_watch(p_job_ids uuid[]) returns jsonb
-- towpath.fn_job_held(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
-- towpath.fn_job_append(p_job_id uuid, p_lease_owner text, p_attempt integer, p_data jsonb) returns jsonb
-- towpath.fn_job_chunks(p_job_id uuid, p_attempt integer, p_no integer) returns jsonb
-- towpath._base64url(p_data bytea) returns text
-- towpath._hmac_sha256(p_key bytea, p_data bytea) returns bytea
-- towpath.fn_job_token_key() returns jsonb
-- towpath.fn_job_token_key_rotate(p_actor text default null::text) returns jsonb
-- towpath.fn_job_token(p_job_id uuid, p_seconds integer default 3600) returns jsonb

-- sql/functions/job_ready.sql
-- towpath._job_ready_split(p_tid tid, p_taken uuid[]) returns void
-- towpath._job_ready_take(p_tid tid, p_taken uuid[]) returns void
-- towpath._job_ready_set_apart(p_job_id uuid) returns boolean

-- sql/functions/job_parallel.sql
-- towpath._job_parallel_enter(p_holders integer[], p_caps integer[], out nos integer[], out rooms integer[],
--     out held integer[], out folded_to bigint[], out change_no bigint[], out changed boolean[]) returns
--     record
-- towpath._job_parallel_leave(p_nos integer[], p_held integer[], p_folded_to bigint[], p_change_no bigint[],
--     p_changed boolean[], p_claimed towpath._job_group[]) returns void

-- sql/functions/job_claim.sql
-- towpath._job_lane_set(p_executor text, p_kinds text[]) returns table(substrate text, worker text,
--     login_role text, executor text, lanes integer[], floors timestamptz[], priorities integer[], holders
--     integer[], caps integer[])
-- towpath._job_claim_refusal(p_executor text, p_substrate text, p_worker text, p_login_role text, p_lanes
--     integer[]) returns jsonb
-- towpath._job_claim_invalid(p_executor text, p_owner text, p_limit integer, p_lease_seconds integer,
--     p_counted boolean) returns jsonb
-- towpath._job_lanes_due(inout lanes integer[], inout floors timestamptz[], inout priorities integer[], inout
--     holders integer[], inout caps integer[]) returns record
-- towpath._job_group_add(p_groups towpath._job_group[], p_jobs towpath._job_group) returns
--     towpath._job_group[]
-- towpath._job_pick(p_lanes integer[], p_floors timestamptz[], p_priorities integer[], p_holders integer[],
--     p_nos integer[], p_rooms integer[], p_limit integer, p_now timestamptz) returns towpath._job_group[]
-- towpath._job_answer(p_entry towpath.lease_entry, p_executor text) returns setof towpath._claimed_job
-- towpath.fn_job_claim_rows(p_executor text, p_kinds text[] default null::text[], p_limit integer default 1,
--     p_lease_owner text default null::text, p_lease_seconds integer default null::integer) returns setof
--     towpath._claimed_job
-- towpath._job_lease_seconds() returns double precision
-- towpath.fn_job_claim(p_executor text, p_kinds text[] default null::text[], p_limit integer default 1,
--     p_lease_owner text default null::text, p_lease_seconds integer default null::integer) returns jsonb

-- sql/functions/lease_entry.sql
-- towpath._lease_entries(p_job_ids uuid[], p_lease_owner text) returns bigint[]
-- towpath._job_settle(p_entries bigint[]) returns void
-- towpath._job_settle_jobs(p_entry towpath.lease_entry, p_job_ids uuid[]) returns void
-- towpath._job_settle_ids(p_job_ids uuid[], p_lease_owner text) returns void
-- towpath._job_set_apart(p_job_id uuid) returns boolean
-- towpath._job_unfinished(p_job_id uuid) returns boolean

-- sql/functions/job_lease.sql
-- towpath._job_lost(p_job_id uuid) returns jsonb
-- towpath._job_lock_held(p_job_ids uuid[], p_lease_owner text, p_attempts integer[]) returns uuid[]
-- towpath._job_missing(p_job_ids uuid[], p_done uuid[]) returns jsonb
-- towpath.fn_job_start_many(p_job_ids uuid[], p_lease_owner text, p_attempts integer[]) returns jsonb
-- towpath.fn_job_start(p_job_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
-- towpath.fn_job_extend_lease_many(p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_seconds
--     integer default null::integer) returns jsonb
-- towpath.fn_job_extend_lease(p_job_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer default
--     null::integer) returns jsonb
-- towpath.fn_job_progress(p_job_id uuid, p_lease_owner text, p_attempt integer, p_percent integer default
--     null::integer, p_message text default null::text) returns jsonb
-- towpath._job_give_back(p_job_ids uuid[], p_outcome text, p_note text, p_due_at timestamptz) returns void
-- towpath.fn_job_release(p_job_ids uuid[], p_lease_owner text, p_attempts integer[]) returns jsonb
-- towpath.fn_job_snooze(p_job_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer, p_note text
--     default null::text) returns jsonb

-- sql/functions/job_finish.sql
-- towpath._job_leases_end(p_job_ids uuid[], p_outcome text, p_now timestamptz) returns void
-- towpath.fn_job_ack_many(p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_entries bigint[]
--     default null::bigint[], p_results jsonb[] default null::jsonb[]) returns jsonb
-- towpath._job_ack_whole(p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_entries bigint[],
--     p_now timestamptz, out acked uuid[], out parents uuid[]) returns record
-- towpath._job_ack_settled(p_job_ids uuid[], p_lease_owner text, p_attempts integer[], p_results jsonb[],
--     p_now timestamptz, out acked uuid[], out parents uuid[]) returns record
-- towpath.fn_job_ack(p_job_id uuid, p_lease_owner text, p_attempt integer, p_result jsonb default
--     null::jsonb) returns jsonb
-- towpath._job_close(p_job_ids uuid[], p_outcome text, p_errors text[], p_ended_by text, p_now timestamptz)
--     returns void
-- towpath._job_fail_rows(p_job_ids uuid[], p_errors text[], p_permanent boolean[], p_delays double
--     precision[], p_jitter double precision, p_outcome text, p_ended_by text, p_now timestamptz, out retried
--     uuid[], out dead uuid[]) returns record
-- towpath.fn_job_fail_or_retry_many(p_lease_owner text, p_failures jsonb, p_jitter double precision default
--     null::double precision) returns jsonb
-- towpath.fn_job_fail_or_retry(p_job_id uuid, p_lease_owner text, p_attempt integer, p_error text,
--     p_permanent boolean default false, p_retry_delay_seconds double precision default null::double
--     precision, p_jitter double precision default null::double precision) returns jsonb

-- sql/functions/job_dead_letter.sql
-- towpath._job_take_out(p_job_id uuid) returns boolean
-- towpath.fn_job_cancel(p_job_id uuid, p_actor text, p_reason text default null::text) returns jsonb
-- towpath.fn_job_move_to_dead_letter(p_job_id uuid, p_error text, p_actor text) returns jsonb
-- towpath._job_end(p_job_id uuid, p_outcome text, p_error text, p_actor text) returns jsonb
-- towpath.fn_job_dead_letter_triage(p_dead_letter_id uuid, p_status text, p_actor text, p_note text default
--     null::text) returns jsonb
-- towpath.fn_job_dead_letter_replay(p_dead_letter_id uuid, p_actor text) returns jsonb
-- towpath._dead_letter_filter_refusal(p_filter jsonb) returns jsonb
-- towpath._dead_letters(p_filter jsonb, p_after uuid, p_limit integer) returns setof towpath.job_dead_letter
-- towpath.fn_job_dead_letter_replay_many(p_filter jsonb, p_actor text, p_limit integer default 100, p_cursor
--     uuid default null::uuid) returns jsonb
-- towpath.fn_job_dead_letter_count(p_filter jsonb default '{}'::jsonb) returns jsonb
-- towpath.fn_job_retry(p_job_id uuid, p_actor text) returns jsonb
-- towpath.fn_job_dead_letter_show(p_dead_letter_id uuid) returns jsonb
-- towpath.fn_job_dead_letter_list(p_filter jsonb default '{}'::jsonb, p_limit integer default 100, p_cursor
--     uuid default null::uuid) returns jsonb

-- sql/functions/graph.sql
-- towpath._job_parents_succeeded(p_parents uuid[], p_now timestamptz) returns void
-- towpath._job_parents_failed(p_parents uuid[], p_now timestamptz) returns void
-- towpath._graph_refusal(p_graph jsonb, out refusal jsonb, out sorted text[]) returns record
-- towpath.fn_mot_graph_emit(p_graph jsonb) returns jsonb
-- towpath._graph_node(p_node jsonb, p_blocked integer, p_parent boolean, p_actor text, p_run_id uuid, p_now
--     timestamptz, p_micros bigint) returns jsonb
-- towpath.fn_mot_graph_show(p_graph_id uuid) returns jsonb

-- sql/functions/schedule.sql
-- towpath.fn_schedule_put(p_name text, p_expression text, p_time_zone text, p_job jsonb, p_next_at
--     timestamptz, p_catch_up text default 'last', p_actor text default null::text) returns jsonb
-- towpath.fn_schedule_due(p_limit integer default 100) returns jsonb
-- towpath.fn_schedule_fire(p_name text, p_tick_at timestamptz, p_next_at timestamptz) returns jsonb
-- towpath.fn_schedule_skip(p_name text, p_seen_next_at timestamptz, p_next_at timestamptz) returns jsonb
-- towpath.fn_schedule_pause(p_name text, p_actor text default null::text) returns jsonb
-- towpath.fn_schedule_resume(p_name text, p_next_at timestamptz default null::timestamptz, p_actor text
--     default null::text) returns jsonb
-- towpath._schedule_set_paused(p_name text, p_paused boolean, p_next_at timestamptz, p_actor text) returns
--     jsonb
-- towpath.fn_schedule_delete(p_name text) returns jsonb
-- towpath.fn_schedule_list() returns jsonb

-- sql/functions/queue.sql
-- towpath.fn_queue_heartbeat_tick(p_executor_name text, p_executor_kind text, p_status text default 'ok',
--     p_current_job_id uuid default null::uuid, p_lease_owner text default null::text, p_metadata jsonb
--     default '{}'::jsonb, p_kinds text[] default null::text[]) returns jsonb
-- towpath._queue_worker_see(p_lease_owner text, p_executor_name text, p_kinds text[], p_concurrency integer,
--     p_now timestamptz) returns void
-- towpath.fn_queue_worker_list(p_job_kind text default null::text) returns jsonb
-- towpath.fn_queue_heartbeat_forget(p_executor_name text) returns jsonb
-- towpath.fn_queue_heartbeat_end(p_executor_name text, p_lease_owner text) returns jsonb
-- towpath.fn_queue_stale_check(p_threshold_seconds integer default null::integer) returns jsonb
-- towpath.fn_queue_pause(p_job_kind text, p_actor text, p_reason text default null::text) returns jsonb
-- towpath.fn_queue_resume(p_job_kind text, p_actor text) returns jsonb
-- towpath.fn_queue_paused() returns jsonb
-- towpath.fn_queue_pause_history(p_job_kind text default null::text, p_limit integer default 100) returns
--     jsonb
-- towpath.fn_queue_chart(p_since timestamptz default null::timestamptz, p_job_kind text default null::text)
--     returns jsonb

-- sql/functions/queue_latency.sql
-- towpath.fn_queue_latency(p_limit integer default 5000) returns jsonb

-- sql/functions/audit.sql
-- towpath.fn_audit_record(p_actor text, p_action text, p_target text, p_detail text, p_outcome text) returns
--     jsonb
-- towpath.fn_audit_list(p_limit integer default 100, p_before bigint default null::bigint) returns jsonb

-- sql/functions/job_fault.sql
-- towpath.fn_job_claim_set_aside(p_executor text, p_kinds text[] default null::text[]) returns jsonb
-- towpath._job_claim_try(p_job_id uuid, p_tid tid, p_now timestamptz) returns void
-- towpath._job_faults_follow(p_now timestamptz) returns void

-- sql/functions/job_maintain.sql
-- towpath._tick_refusal(p_tick integer) returns jsonb
-- towpath.fn_job_reap(p_limit integer default 50) returns jsonb
-- towpath._job_reap_entries(p_limit integer, p_careful boolean, p_now timestamptz, out entries integer, out
--     retried integer, out dead integer) returns record
-- towpath._job_reap_jobs(p_entry towpath.lease_entry, p_job_ids uuid[], p_now timestamptz, out retried
--     integer, out dead integer, out faulty uuid[]) returns record
-- towpath._job_reap_carefully(p_entry towpath.lease_entry, p_job_ids uuid[], p_now timestamptz, out retried
--     integer, out dead integer, out faulty uuid[]) returns record
-- towpath.fn_job_floor_tick() returns jsonb
-- towpath._job_clock_back(p_now timestamptz, p_until timestamptz, p_first boolean) returns void
-- towpath._job_floors_move(p_sweep boolean, p_careful boolean, p_now timestamptz, out lanes integer, out
--     moved integer, out lowered integer) returns record
-- towpath._job_floor_move(p_lane integer, p_floor_at timestamptz, p_floor_no bigint, p_sweep boolean, p_now
--     timestamptz) returns integer
-- towpath.fn_job_counter_fold(p_limit integer default 10000) returns jsonb
-- towpath._job_deltas_fold(p_tids tid[]) returns integer
-- towpath.fn_job_parallel_recount() returns jsonb

-- sql/functions/job_retention.sql
-- towpath._job_partition_ensure(p_table text, p_day timestamptz, p_move_limit integer) returns text
-- towpath.fn_job_partition_tick(p_move_limit integer default 50000) returns jsonb
-- towpath._job_partition_drop(p_suffix text, p_below uuid, out dropped boolean, out kept integer) returns
--     record
-- towpath.fn_job_retention_tick(p_limit integer default 10000) returns jsonb
-- towpath._job_retention_step(p_step text, p_below uuid, p_limit integer, p_now timestamptz) returns integer

-- sql/functions/job_read.sql
-- towpath.fn_job_show(p_job_id uuid) returns jsonb
-- towpath.fn_job_history(p_job_id uuid) returns jsonb
-- towpath._job_unfinished_page(p_cursor uuid, p_limit integer, out job_ids uuid[], out oldest uuid, out jobs
--     integer) returns record
-- towpath.fn_job_list(p_filter jsonb default '{}'::jsonb, p_limit integer default 50, p_cursor uuid default
--     null::uuid) returns jsonb

-- sql/functions/job_why.sql
-- towpath._lane_takers(p_lane towpath.job_lane) returns text[]
-- towpath._lane_unhandled(p_lane towpath.job_lane) returns jsonb
-- towpath._job_why_live(p_job_id uuid) returns jsonb
-- towpath.fn_job_why(p_job_id uuid) returns jsonb
-- towpath.fn_queue_unhandled() returns jsonb

-- sql/functions/executor_token.sql
-- towpath._executor_token_refusal(p_token towpath.executor_token) returns jsonb
-- towpath._executor_token_actor(p_token towpath.executor_token) returns text
-- towpath.fn_executor_token_create(p_executor_id text, p_kinds text[] default null::text[], p_may_enqueue
--     boolean default false, p_expires_at timestamptz default null::timestamptz, p_notes text default
--     null::text, p_actor text default null::text, p_may_register boolean default false, p_produce text[]
--     default null::text[], p_emit text[] default null::text[]) returns jsonb
-- towpath.fn_executor_token_list(p_executor_id text default null::text) returns jsonb
-- towpath.fn_executor_token_revoke(p_token_id uuid, p_actor text default null::text) returns jsonb
-- towpath.fn_executor_token_check(p_token_hash bytea) returns jsonb
-- towpath._executor_token_may_enqueue(p_token towpath.executor_token, p_job_kind text, p_executor text)
--     returns boolean
-- towpath._executor_token_job_refusal(p_token towpath.executor_token, p_job jsonb) returns jsonb
-- towpath._rows_refusal(p_refusals jsonb[], p_field text) returns jsonb
-- towpath.fn_executor_token_enqueue(p_token_hash bytea, p_jobs jsonb) returns jsonb
-- towpath.fn_executor_token_register(p_token_hash bytea, p_kinds text[], p_lease_owner text default
--     null::text, p_concurrency integer default null::integer) returns jsonb

-- sql/functions/event_emit.sql
-- towpath._event_producer_may(p_event_domain text, p_event_type text) returns boolean
-- towpath._event_id_fits(p_event_id uuid, p_now timestamptz) returns boolean
-- towpath._event_fits(p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text,
--     p_subject_ref text, p_ordering_key text, p_actor text, p_payload jsonb) returns boolean
-- towpath._event_refusal(p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text,
--     p_subject_ref text, p_ordering_key text, p_actor text, p_payload jsonb, p_event_id uuid, p_now
--     timestamptz) returns jsonb
-- towpath.fn_event_emit(p_event_domain text, p_event_type text, p_event_stream text default null::text,
--     p_subject_table text default null::text, p_subject_ref text default null::text, p_payload jsonb default
--     '{}'::jsonb, p_actor text default null::text, p_ordering_key text default null::text, p_event_id uuid
--     default null::uuid) returns jsonb
-- towpath._event_emit_own(p_event_type text, p_event_stream text, p_subject_table text, p_subject_ref text,
--     p_payload jsonb) returns uuid
-- towpath.fn_event_emit_many(p_events jsonb) returns jsonb
-- towpath._event_emit_object(p_event jsonb) returns jsonb

-- sql/functions/executor_token_job.sql
-- towpath._executor_token_may_read(p_token towpath.executor_token, p_job_kind text, p_executor text) returns
--     boolean
-- towpath._executor_token_job(p_token_hash bytea, p_job_id uuid, p_cancel boolean) returns jsonb
-- towpath.fn_executor_token_job_state(p_token_hash bytea, p_job_id uuid, p_cancel boolean default false)
--     returns jsonb
-- towpath.fn_executor_token_job_cancel(p_token_hash bytea, p_job_id uuid, p_reason text default null::text)
--     returns jsonb
-- towpath._executor_token_may_emit(p_token towpath.executor_token, p_event_domain text, p_event_type text)
--     returns boolean
-- towpath.fn_executor_token_emit(p_token_hash bytea, p_events jsonb) returns jsonb

-- sql/functions/event_subscription.sql
-- towpath._recipient_refusal(p_recipient_ref text) returns jsonb
-- towpath.fn_event_subscription_put(p_recipient_ref text, p_event_domain text, p_event_type text default
--     null::text, p_event_stream text default null::text, p_scope_subject_table text default null::text,
--     p_scope_filter jsonb default '{}'::jsonb, p_mute boolean default false, p_notes text default
--     null::text, p_actor text default null::text) returns jsonb
-- towpath.fn_event_subscription_mute(p_subscription_id uuid, p_mute boolean, p_actor text default null::text)
--     returns jsonb
-- towpath.fn_event_subscription_delete(p_subscription_id uuid) returns jsonb
-- towpath.fn_event_subscription_list(p_recipient_ref text default null::text) returns jsonb
-- towpath.fn_event_actor_put(p_recipient_ref text, p_login_role text default null::text, p_notes text default
--     null::text, p_actor text default null::text, p_executor_id text default null::text) returns jsonb
-- towpath.fn_event_actor_delete(p_recipient_ref text) returns jsonb
-- towpath.fn_event_actor_list() returns jsonb
-- towpath.fn_event_grant_put(p_producer text, p_event_domain text default null::text, p_event_type text
--     default null::text, p_actor text default null::text) returns jsonb
-- towpath.fn_event_grant_revoke(p_grant_id uuid) returns jsonb
-- towpath.fn_event_grant_list(p_producer text default null::text) returns jsonb

-- sql/functions/sequencer.sql
-- towpath._event_cluster() returns text
-- towpath._snapshot_without(p_snapshot pg_snapshot, p_xact xid8) returns pg_snapshot
-- towpath._event_hash(p_event_id uuid, p_ordering_key text, p_subject_table text, p_subject_ref text) returns
--     integer
-- towpath._event_unseen(p_seen pg_snapshot, p_now pg_snapshot) returns boolean
-- towpath._event_fresh(p_seen pg_snapshot, p_target pg_snapshot, p_checked_id bigint, p_limit integer, out
--     event_ids uuid[], out key_hashes integer[], out last_id bigint) returns record
-- towpath._event_fresh_on(p_seen pg_snapshot, p_target pg_snapshot, p_after_id bigint, p_last_id bigint,
--     p_checked_id bigint, p_limit integer, out event_ids uuid[], out key_hashes integer[], out last_id
--     bigint) returns record
-- towpath._event_fresh_rest(p_limit integer, out event_ids uuid[], out key_hashes integer[], out last_id
--     bigint) returns record
-- towpath._event_place(p_event_ids uuid[], p_key_hashes integer[], p_position bigint) returns bigint
-- towpath._event_place_again(p_position bigint) returns bigint
-- towpath._event_last_id() returns bigint
-- towpath.fn_event_sequence(p_limit integer default 10000) returns jsonb
-- towpath._event_last_position() returns bigint

-- sql/functions/recipient.sql
-- towpath._resolution_on() returns boolean
-- towpath._event_rows_matching(p_event_domain text, p_event_type text, p_event_stream text, p_subject_table
--     text, p_payload jsonb) returns table(recipient_ref text, step smallint, mute boolean, subscription_id
--     uuid)
-- towpath._step_name(p_step smallint) returns text
-- towpath.fn_resolve_recipients(p_event jsonb) returns jsonb
-- towpath._event_count(p_after bigint, p_to bigint) returns void
-- towpath._event_count_each(p_positions bigint[]) returns void
-- towpath.fn_event_counter_fold(p_limit integer default 10000) returns jsonb
-- towpath.fn_event_broadcast_check() returns jsonb

-- sql/functions/route.sql
-- towpath._route_target_refusal(p_target_kind text, p_target jsonb) returns jsonb
-- towpath.fn_route_put(p_route_name text, p_target_kind text, p_target jsonb, p_event_domain text default
--     null::text, p_event_type text default null::text, p_event_stream text default null::text,
--     p_recipient_filter text default null::text, p_payload_filter jsonb default '{}'::jsonb, p_ordering text
--     default 'none', p_retry_seconds integer[] default null::integer[], p_rate_limit_per_second numeric
--     default null::numeric, p_worker_name text default 'default', p_notes text default null::text, p_actor
--     text default null::text) returns jsonb
-- towpath.fn_route_mode_set(p_route_name text, p_mode text, p_actor text, p_reason text) returns jsonb
-- towpath.fn_route_retire(p_route_name text, p_actor text, p_reason text) returns jsonb
-- towpath.fn_route_secret_rotate(p_route_name text, p_signing_key text default null::text, p_overlap_seconds
--     integer default 86400, p_actor text default null::text) returns jsonb
-- towpath.fn_route_test(p_route_name text) returns jsonb
-- towpath.fn_route_list(p_route_name text default null::text, p_retired boolean default false) returns jsonb

-- sql/functions/route_decide.sql
-- towpath._recipient_fits(p_recipient text, p_filter text) returns boolean
-- towpath._route_decisions(p_worker_no smallint, p_event_domain text, p_event_type text, p_event_stream text,
--     p_payload jsonb, p_recipients text[], p_suppressed text[]) returns table(route_no integer, route_name
--     text, mode text, decision text, reason text, target_kind text, target jsonb, target_no integer,
--     ordering text)
-- towpath._event_envelope(p_event towpath.event_outbox, p_position bigint) returns jsonb
-- towpath._route_batch(p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint) returns
--     towpath._route_work[]
-- towpath.fn_route_explain(p_event jsonb, p_worker_name text default 'default') returns jsonb

-- sql/functions/route_operate.sql
-- towpath.fn_route_attempts(p_route_name text, p_limit integer default 50) returns jsonb
-- towpath.fn_route_circuit_close(p_route_name text, p_actor text, p_reason text) returns jsonb

-- sql/functions/route_worker.sql
-- towpath._route_key(p_worker_name text, p_route_name text, p_event_id uuid, p_mode text, p_generation
--     integer) returns text
-- towpath._route_job(p_event jsonb, p_target jsonb, p_event_id uuid, p_event_domain text, p_route_name text,
--     p_key text) returns jsonb
-- towpath._route_signal(p_work towpath._route_work, p_now timestamptz) returns uuid
-- towpath._route_write(p_work towpath._route_work[], p_now timestamptz) returns void
-- towpath._route_fail(p_work towpath._route_work, p_error text, p_now timestamptz) returns void
-- towpath._route_job_problem(p_work towpath._route_work) returns text
-- towpath._route_trouble(p_sqlstate text) returns boolean
-- towpath._route_apply(p_work towpath._route_work[], p_now timestamptz) returns integer
-- towpath._route_item(p_worker_name text, p_position bigint) returns text
-- towpath._route_span(p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint, p_now
--     timestamptz, out counts bigint[], out refusal jsonb) returns record
-- towpath._route_each(p_worker towpath.route_worker, p_slice integer, p_after bigint, p_to bigint, p_now
--     timestamptz, out counts bigint[], out reached bigint) returns record
-- towpath._route_again(p_worker towpath.route_worker, p_due text[], p_now timestamptz) returns void
-- towpath.fn_route_worker_run(p_worker_name text, p_batch_limit integer default 500, p_slice integer default
--     null::integer, p_slices integer default null::integer) returns jsonb
-- towpath._route_cursors(p_worker_no smallint) returns table(cursor_no integer, slice integer, "position"
--     bigint)
-- towpath._route_idle(p_worker towpath.route_worker, p_slice integer, p_last bigint, p_busy boolean) returns
--     jsonb
-- towpath.fn_route_worker_put(p_worker_name text, p_slices integer default 1, p_from_position bigint default
--     null::bigint, p_actor text default null::text, p_event_domain text default null::text) returns jsonb
-- towpath._lock_holder(p_xmax xid) returns jsonb
-- towpath.fn_route_worker_list() returns jsonb

-- sql/functions/route_replay.sql
-- towpath._route_generation(p_position bigint, p_worker_no smallint, p_route_no integer, p_mode text) returns
--     integer
-- towpath._route_replay_one(p_route towpath.outbound_route, p_event jsonb, p_recipients text[], p_now
--     timestamptz, out decision text, out generation integer, out error text) returns record
-- towpath._route_replay_refusal(p_route towpath.outbound_route, p_actor text) returns jsonb
-- towpath._route_replay_failed(p_route towpath.outbound_route, p_event jsonb, p_recipients text[],
--     p_generation integer, p_error text, p_now timestamptz) returns void
-- towpath.fn_route_replay(p_route_name text, p_after_position bigint, p_to_position bigint, p_actor text,
--     p_dry_count boolean default true, p_limit integer default 1000) returns jsonb
-- towpath.fn_route_send(p_route_name text, p_event_id uuid, p_actor text) returns jsonb

-- sql/functions/route_dead_letter.sql
-- towpath.fn_route_dead_letter_replay(p_dead_letter_id uuid, p_actor text) returns jsonb
-- towpath.fn_route_dead_letter_replay_many(p_actor text, p_route_name text default null::text, p_limit
--     integer default 100) returns jsonb
-- towpath.fn_route_dead_letter_resolve(p_dead_letter_id uuid, p_actor text, p_resolution text) returns jsonb
-- towpath.fn_route_dead_letter_list(p_route_name text default null::text, p_resolved boolean default false,
--     p_limit integer default 100, p_cursor uuid default null::uuid) returns jsonb
-- towpath.fn_route_dead_letter_show(p_dead_letter_id uuid) returns jsonb

-- sql/functions/delivery.sql
-- towpath._delivery_gate() returns jsonb
-- towpath._delivery_lost(p_now timestamptz, p_limit integer, p_aside text[], p_only uuid default null::uuid)
--     returns integer
-- towpath._delivery_room(p_target towpath.delivery_target, p_now timestamptz, out room integer, out tokens
--     double precision, out rate double precision) returns record
-- towpath._delivery_lines() returns table(target_no integer, route_no integer, next_at timestamptz)
-- towpath._delivery_take(p_target towpath.delivery_target, p_routes integer[], p_room integer, p_lease_owner
--     text, p_until timestamptz, p_now timestamptz, p_aside text[], p_only uuid default null::uuid, out taken
--     uuid[], out served_route_no integer) returns record
-- towpath._delivery_take_each(p_target towpath.delivery_target, p_routes integer[], p_room integer,
--     p_lease_owner text, p_until timestamptz, p_now timestamptz, p_aside text[], out taken uuid[], out
--     served_route_no integer) returns record
-- towpath._delivery_lease(p_lease_owner text, p_limit integer, p_until timestamptz, p_now timestamptz, p_each
--     boolean) returns uuid[]
-- towpath._delivery_reap(p_now timestamptz) returns integer
-- towpath.fn_delivery_claim(p_lease_owner text, p_limit integer default 10, p_lease_seconds integer default
--     null::integer) returns jsonb
-- towpath.fn_delivery_extend(p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_seconds integer
--     default 60) returns jsonb
-- towpath.fn_delivery_release(p_delivery_id uuid, p_lease_owner text, p_attempt integer) returns jsonb
-- towpath.fn_delivery_history(p_delivery_id uuid default null::uuid, p_event_id uuid default null::uuid,
--     p_limit integer default 200) returns jsonb

-- sql/functions/delivery_finish.sql
-- towpath._delivery_hold(p_delivery_id uuid, p_lease_owner text, p_attempt integer, out delivery
--     towpath.delivery, out target towpath.delivery_target) returns record
-- towpath._delivery_next(p_delivery towpath.delivery, p_now timestamptz) returns void
-- towpath.fn_delivery_succeed(p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_status_code
--     integer default 200, p_duration_ms integer default null::integer, p_address text default null::text,
--     p_answer text default null::text) returns jsonb
-- towpath._delivery_end(p_delivery towpath.delivery, p_outcome text, p_status_code integer, p_duration_ms
--     integer, p_address text, p_error text, p_answer text, p_now timestamptz) returns void
-- towpath._delivery_verdict(p_class text, p_status_code integer, out permanent boolean, out gone boolean, out
--     sick boolean) returns record
-- towpath.fn_delivery_fail(p_delivery_id uuid, p_lease_owner text, p_attempt integer, p_class text, p_error
--     text, p_status_code integer default null::integer, p_retry_after_seconds double precision default
--     null::double precision, p_duration_ms integer default null::integer, p_address text default null::text,
--     p_answer text default null::text) returns jsonb
-- towpath._delivery_sick(p_target towpath.delivery_target, p_sick boolean, p_pause interval, p_error text,
--     p_now timestamptz) returns towpath.delivery_target

-- sql/functions/stream_delivery.sql
-- towpath._stream_state_key(p_event jsonb, p_target jsonb) returns text
-- towpath._stream_event_body(p_event jsonb, p_target jsonb) returns text
-- towpath._stream_queue(p_work towpath._route_work[], p_ids uuid[], p_now timestamptz) returns void
-- towpath._stream_delivery_lease(p_lease_owner text, p_limit integer, p_until timestamptz, p_now timestamptz,
--     p_aside text[], p_only integer default null::integer) returns integer[]
-- towpath._stream_delivery_lease_each(p_lease_owner text, p_limit integer, p_until timestamptz, p_now
--     timestamptz, p_aside text[]) returns integer[]
-- towpath.fn_stream_delivery_claim(p_lease_owner text, p_limit integer default 10, p_lease_seconds integer
--     default 30) returns jsonb
-- towpath._stream_delivery_end(p_stream towpath.route_stream, p_from bigint, p_to bigint, p_outcome text,
--     p_error text, p_now timestamptz) returns bigint
-- towpath._stream_delivery_taken(p_done bigint[], p_refused jsonb, p_now timestamptz) returns void
-- towpath.fn_stream_delivery_end(p_route_stream_no integer, p_lease_owner text, p_attempt integer, p_appended
--     bigint default null::bigint, p_error text default null::text, p_permanent boolean default false,
--     p_restored boolean default false) returns jsonb
-- towpath._stream_delivery_cancel(p_route_no integer, p_reason text, p_now timestamptz) returns bigint

-- sql/functions/event_read.sql
-- towpath.fn_event_show(p_event_id uuid) returns jsonb
-- towpath._event_filter_refusal(p_filter jsonb) returns jsonb
-- towpath.fn_event_list(p_filter jsonb default '{}'::jsonb, p_after_position bigint default null::bigint,
--     p_limit integer default 100, p_before_position bigint default null::bigint) returns jsonb
-- towpath._event_consumer_may(p_recipient_ref text) returns boolean
-- towpath._event_read(p_consumer text, p_after_position bigint, p_limit integer) returns jsonb
-- towpath.fn_event_read(p_consumer text, p_after_position bigint default 0, p_limit integer default 100)
--     returns jsonb
-- towpath.fn_executor_token_event_read(p_token_hash bytea, p_consumer text default null::text,
--     p_after_position bigint default null::bigint, p_limit integer default 100) returns jsonb

-- sql/functions/event_retention.sql
-- towpath._event_partition_add(p_table text, p_name text, p_from text, p_to text) returns text
-- towpath.fn_event_partition_tick() returns jsonb
-- towpath._event_keep_from() returns bigint
-- towpath._event_partition_drop(p_name text, p_keep_from bigint) returns text
-- towpath._partition_replace(p_table text, p_name text) returns text
-- towpath._partitions_drop(p_names text[]) returns void
-- towpath._partitions_drop_again() returns void
-- towpath._event_numbers_drop(p_kept_from bigint) returns text[]
-- towpath._event_kept_after(p_name text) returns bigint
-- towpath._delivery_history_drop(p_before timestamptz) returns text[]
-- towpath.fn_event_retention_tick() returns jsonb

-- sql/functions/event_verify.sql
-- towpath._check(p_name text, p_ok boolean, p_text text, p_more jsonb default '{}'::jsonb) returns jsonb
-- towpath.fn_event_verify(p_full boolean default false) returns jsonb

-- sql/functions/health.sql
-- towpath.fn_health_show() returns jsonb
-- towpath.fn_health_marks() returns jsonb
-- towpath.fn_event_chart(p_minutes integer default 60) returns jsonb

-- sql/functions/run_function.sql
-- towpath.function_refusal(function_name text) returns jsonb
-- towpath.run_function(function_name text, payload jsonb, as_process boolean default false, raise_passing
--     boolean default false) returns jsonb
-- towpath._envelope_ok(p_payload jsonb default '{}'::jsonb) returns jsonb
-- towpath._envelope_invalid(p_why text) returns jsonb

-- sql/functions/task_error.sql
-- towpath._task_error(p_kind text, p_message text, p_job_id uuid, p_job_attempt integer, p_task_type text,
--     p_function_name text, p_process_id uuid, p_attempt_no integer, p_context jsonb) returns bigint
-- towpath.fn_task_error_record(p_kind text, p_message text, p_job_id uuid default null::uuid, p_job_attempt
--     integer default null::integer, p_task_type text default null::text, p_function_name text default
--     null::text, p_context jsonb default '{}'::jsonb) returns jsonb
-- towpath.fn_task_error_list(p_filter jsonb default '{}'::jsonb, p_limit integer default 50, p_cursor bigint
--     default null::bigint) returns jsonb

-- sql/functions/job_checkpoint.sql
-- towpath.fn_job_checkpoint(p_job_id uuid, p_lease_owner text, p_attempt integer, p_checkpoint jsonb) returns
--     jsonb
-- towpath.fn_job_checkpoints(p_job_ids uuid[], p_lease_owner text) returns jsonb

-- sql/functions/process_kind.sql
-- towpath._function_problem(p_name text) returns text
-- towpath._process_function_problem(p_name text) returns text
-- towpath.fn_process_kind_put(p_process_kind text, p_settings jsonb, p_actor text default null::text) returns
--     jsonb
-- towpath.fn_process_kind_list() returns jsonb

-- sql/functions/process.sql
-- towpath._process_lock(p_process_id uuid) returns towpath.process
-- towpath._process_find(p_process_kind text, p_ref text) returns towpath.process
-- towpath._process_ref(p_ref text) returns jsonb
-- towpath._process_fact(p_process towpath.process, p_fact text, p_attempt_no integer, p_detail jsonb, p_actor
--     text, p_now timestamptz, p_value jsonb default null::jsonb) returns void
-- towpath._process_check(p_process towpath.process, p_check_at timestamptz) returns void
-- towpath._process_end(p_process towpath.process, p_state text, p_attempt_no integer, p_detail jsonb, p_actor
--     text, p_now timestamptz, p_result jsonb default null::jsonb) returns void
-- towpath._process_hold(p_process towpath.process, p_attempt_no integer, p_why text, p_now timestamptz)
--     returns void
-- towpath._process_attempt(p_process towpath.process, p_due_at timestamptz, p_now timestamptz) returns
--     integer
-- towpath._process_job(p_kind towpath.process_kind, p_process_id uuid, p_payload jsonb, p_due_at timestamptz,
--     p_now timestamptz) returns uuid
-- towpath._process_executor(p_kind towpath.process_kind) returns text
-- towpath._process_expire(p_process towpath.process, p_now timestamptz) returns boolean
-- towpath._process_supervise(p_process towpath.process, p_now timestamptz) returns boolean

-- sql/functions/process_attempt.sql
-- towpath._process_attempt_begin(p_process towpath.process, p_attempt_no integer, p_worker text,
--     p_key_honoured boolean, p_now timestamptz) returns jsonb
-- towpath._process_attempt_end(p_process towpath.process, p_attempt_no integer, p_outcome text, p_detail
--     jsonb, p_now timestamptz, p_result jsonb default null::jsonb) returns jsonb
-- towpath._process_invalid(p_process towpath.process, p_attempt_no integer, p_why text, p_now timestamptz)
--     returns void
-- towpath._process_attempt_no(p_process towpath.process, p_payload jsonb) returns integer
-- towpath._process_envelope(p_answer jsonb) returns jsonb
-- towpath._process_failure(p_error jsonb, out outcome text, out detail jsonb) returns record
-- towpath._process_outside(p_process_id uuid, out process towpath.process, out refusal jsonb) returns record
-- towpath.fn_process_attempt_begin(p_process_id uuid, p_attempt_no integer, p_worker text, p_key_honoured
--     boolean default false) returns jsonb
-- towpath.fn_process_attempt_extend(p_process_id uuid, p_attempt_no integer, p_worker text, p_seconds integer
--     default null::integer) returns jsonb
-- towpath.fn_process_attempt_end(p_process_id uuid, p_attempt_no integer, p_outcome text, p_detail jsonb
--     default '{}'::jsonb) returns jsonb

-- sql/functions/process_supervise.sql
-- towpath._process_retry(p_process towpath.process, p_now timestamptz) returns text
-- towpath._process_decide(p_process towpath.process, p_now timestamptz) returns text
-- towpath.process_supervisor(payload jsonb) returns jsonb
-- towpath._process_look(p_process towpath.process, p_now timestamptz) returns boolean
-- towpath.fn_process_scan(p_limit integer default 100) returns jsonb

-- sql/functions/process_start.sql
-- towpath._process_start_refusal(p_process_kind text, p_ref text, p_check_at timestamptz, p_deadline_at
--     timestamptz, p_max_attempts integer, p_actor text) returns jsonb
-- towpath._process_right_refusal(p_kind towpath.process_kind, p_process_kind text, p_verb text) returns jsonb
-- towpath._process_start_rows(p_kind towpath.process_kind, p_processes jsonb, p_actor text, p_parent uuid,
--     p_now timestamptz, out process_ids uuid[], out duplicates boolean[]) returns record
-- towpath._process_attempt_rows(p_kind towpath.process_kind, p_process_ids uuid[], p_now timestamptz) returns
--     void
-- towpath.fn_process_start(p_process_kind text, p_ref text, p_check_at timestamptz default null::timestamptz,
--     p_deadline_at timestamptz default null::timestamptz, p_max_attempts integer default null::integer,
--     p_actor text default null::text, p_input jsonb default null::jsonb) returns jsonb
-- towpath._process_start(p_process_kind text, p_ref text, p_check_at timestamptz, p_deadline_at timestamptz,
--     p_max_attempts integer, p_actor text, p_input jsonb, p_parent uuid, p_now timestamptz) returns jsonb
-- towpath._process_value_refusal(p_value jsonb, p_field text) returns jsonb
-- towpath.fn_process_start_many(p_process_kind text, p_processes jsonb, p_actor text default null::text)
--     returns jsonb

-- sql/functions/process_run.sql
-- towpath._process_lock_many(p_process_ids uuid[]) returns uuid[]
-- towpath._process_asked(p_process_id uuid, p_attempt_no integer, p_worker text) returns table(process_row
--     tid, attempt_row tid, process_kind text, ref text, input jsonb, parent_id uuid, deadline_at
--     timestamptz, runs_as text, db_function text, lease_seconds integer, waits boolean, holds boolean)
-- towpath._process_begin_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured
--     boolean, p_runs_as text, p_now timestamptz) returns table(no integer, answer jsonb)
-- towpath._process_begin_refusal(p_process_id uuid, p_attempt_no integer, p_runs_as text, p_now timestamptz)
--     returns jsonb
-- towpath.fn_process_begin_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured
--     boolean default false) returns table(no integer, answer jsonb)
-- towpath._process_take_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_key_honoured
--     boolean, p_runs_as text) returns table(no integer, answer jsonb)
-- towpath._process_fence(p_process towpath.process, p_attempt_no integer, p_worker text) returns jsonb
-- towpath.fn_process_step_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_names text[],
--     p_values jsonb[]) returns table(no integer, answer jsonb)
-- towpath._process_step(p_process_id uuid, p_attempt_no integer, p_worker text, p_name text, p_value jsonb,
--     p_now timestamptz) returns jsonb
-- towpath.fn_process_wait(p_process_id uuid, p_attempt_no integer, p_worker text, p_name text, p_signal text
--     default null::text, p_until_at timestamptz default null::timestamptz, p_seconds double precision
--     default null::double precision, p_child jsonb default null::jsonb) returns jsonb
-- towpath._process_child(p_process towpath.process, p_child jsonb, p_now timestamptz) returns jsonb
-- towpath.fn_process_end_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text, p_ends jsonb)
--     returns table(no integer, answer jsonb)
-- towpath._process_end_one(p_process_id uuid, p_attempt_no integer, p_worker text, p_end jsonb, p_now
--     timestamptz) returns jsonb
-- towpath.fn_process_extend_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text) returns
--     table(no integer)

-- sql/functions/process_signal.sql
-- towpath._process_signal(p_process towpath.process, p_name text, p_payload jsonb, p_actor text, p_now
--     timestamptz) returns boolean
-- towpath.fn_process_signal(p_process_kind text, p_ref text, p_name text, p_payload jsonb default
--     null::jsonb, p_actor text default null::text, p_process_id uuid default null::uuid) returns jsonb

-- sql/functions/process_function.sql
-- towpath._process_held(p_process jsonb) returns towpath.process
-- towpath.process_step(process jsonb, name text, result jsonb) returns jsonb
-- towpath._process_wait_or_raise(p_process jsonb, p_name text, p_signal text, p_until timestamptz, p_seconds
--     double precision, p_child jsonb) returns jsonb
-- towpath.process_wait(process jsonb, signal text, timeout interval default null::interval) returns jsonb
-- towpath.process_sleep(process jsonb, name text, how_long interval) returns jsonb
-- towpath.process_sleep_until(process jsonb, name text, moment timestamptz) returns jsonb
-- towpath.process_child(process jsonb, name text, kind text, ref text, input jsonb default null::jsonb)
--     returns jsonb
-- towpath.fn_process_run_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text) returns table(no
--     integer, answer jsonb)
-- towpath.fn_process_function_end_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text,
--     p_results jsonb[]) returns table(no integer, answer jsonb)
-- towpath.fn_process_function_begin_many(p_process_ids uuid[], p_attempt_nos integer[], p_worker text)
--     returns table(no integer, answer jsonb)

-- sql/functions/executor_token_process.sql
-- towpath._executor_token_process_refusal(p_token towpath.executor_token, p_process_kind text, p_read
--     boolean) returns jsonb
-- towpath.fn_executor_token_process_start(p_token_hash bytea, p_process_kind text, p_processes jsonb) returns
--     jsonb
-- towpath.fn_executor_token_process_signal(p_token_hash bytea, p_process_kind text, p_ref text, p_process_id
--     uuid, p_name text, p_payload jsonb) returns jsonb
-- towpath.fn_executor_token_process_state(p_token_hash bytea, p_process_id uuid) returns jsonb
-- towpath.fn_executor_token_process_resolve(p_token_hash bytea, p_process_id uuid, p_resolution text,
--     p_reason text) returns jsonb
-- towpath.fn_process_ended(p_process_ids uuid[]) returns jsonb

-- sql/functions/process_read.sql
-- towpath.fn_process_show(p_process_id uuid) returns jsonb
-- towpath.fn_process_list(p_filter jsonb default '{}'::jsonb, p_limit integer default 50, p_cursor uuid
--     default null::uuid) returns jsonb

-- sql/functions/process_outside.sql
-- towpath.fn_process_due(p_process_kind text, p_limit integer default 10, p_lease_seconds integer default 30)
--     returns jsonb
-- towpath.fn_process_decide(p_process_id uuid, p_generation integer, p_decision jsonb) returns jsonb

-- sql/functions/process_operate.sql
-- towpath.fn_process_cancel(p_process_id uuid, p_actor text, p_reason text default null::text) returns jsonb
-- towpath.fn_process_resolve(p_process_id uuid, p_resolution text, p_actor text, p_note text default
--     null::text) returns jsonb

-- sql/functions/door.sql
-- towpath._shell_word(p_text text) returns text
-- towpath._refusal_sqlstate(p_word text) returns text
-- towpath._refusal_hint(p_answer jsonb, p_field text) returns text
-- towpath._raise_refusal(p_answer jsonb, p_what text) returns void
-- towpath.enqueue(kind text, payload jsonb default '{}'::jsonb, priority integer default null::integer,
--     run_at timestamptz default null::timestamptz, key text default null::text, executor text default
--     null::text, max_attempts integer default null::integer, domain text default null::text, source_ref text
--     default null::text, target_ref text default null::text, payload_ref text default null::text, actor text
--     default null::text, run_id uuid default null::uuid) returns uuid
-- towpath.enqueue_many(jobs jsonb) returns uuid[]
-- towpath.ack(job_id uuid, lease_owner text, attempt integer, result jsonb default null::jsonb) returns void
-- towpath.job_token(job_id uuid, seconds integer default 3600) returns text
-- towpath.emit(domain text, type text, payload jsonb default '{}'::jsonb, stream text default null::text,
--     subject_table text default null::text, subject_ref text default null::text, ordering_key text default
--     null::text, actor text default null::text, event_id uuid default null::uuid) returns uuid
-- towpath.emit_many(events jsonb) returns uuid[]
-- towpath.start_process(kind text, ref text, run_at timestamptz default null::timestamptz, deadline_at
--     timestamptz default null::timestamptz, max_attempts integer default null::integer, actor text default
--     null::text, input jsonb default null::jsonb) returns uuid
-- towpath.signal_process(kind text, ref text, signal text, payload jsonb default null::jsonb, actor text
--     default null::text) returns boolean
-- towpath._raise_unknown_names(p_rows jsonb, p_names text[], p_what text) returns void
-- towpath._raise_refused_row(p_answer jsonb, p_rows jsonb, p_what text, p_array text) returns void

-- sql/functions/stream_log.sql
-- towpath.fn_stream_log_open() returns jsonb
-- towpath.fn_stream_log_put(p_writer uuid, p_number bigint, p_before bigint, p_chain bigint, p_body bytea)
--     returns jsonb
-- towpath.fn_stream_log_read(p_after bigint, p_bytes_max bigint) returns table(number bigint, chain bigint,
--     body bytea)
-- towpath.fn_stream_log_hold(p_node uuid, p_address text, p_seconds integer) returns jsonb

-- sql/functions/stream_intake.sql
-- towpath._stream_intake_wake() returns void
-- towpath._stream_intake_put(p_project text, p_stream text, p_is_json boolean, p_body bytea) returns jsonb
-- towpath.publish(stream text, data jsonb, project text default 'default') returns bigint
-- towpath.append(stream text, data bytea, project text default 'default') returns bigint
-- towpath.fn_stream_intake_hold(p_store_id uuid, p_address text, p_seconds integer default 15, p_takes_routes
--     boolean default false) returns jsonb
-- towpath.fn_stream_intake_read(p_store_id uuid, p_done bigint[], p_refused jsonb, p_limit integer) returns
--     table(intake_id bigint, project text, stream text, is_json boolean, body bytea)
-- towpath.fn_stream_intake_arm() returns jsonb
-- towpath.fn_stream_intake_refused(p_limit integer default 100) returns jsonb
-- towpath.fn_stream_intake_end(p_intake_id bigint, p_action text) returns jsonb

-- sql/functions/comms_message.sql
-- comms._address_good(p_address text) returns boolean
-- comms._email_problem(p_message comms.email_message) returns text
-- comms._sms_problem(p_message comms.sms_message) returns text
-- comms._email_content(p_message comms.email_message, p_from text) returns jsonb
-- comms._sms_content(p_message comms.sms_message, p_from text) returns jsonb
-- comms._addresses(p_value jsonb) returns text[]
-- comms._email_read(p_message jsonb) returns comms.email_message
-- comms._sms_read(p_message jsonb) returns comms.sms_message
-- comms._message_keys(p_channel text) returns text[]
-- comms._message_refusal(p_channel text, p_message jsonb, p_problem text, p_key text, p_actor text) returns
--     jsonb
-- comms._send_refusal(p_channel text, p_scheduled_at timestamptz) returns jsonb

-- sql/functions/comms_read.sql
-- comms._message_rows(p_channel text, p_before bigint, p_limit integer) returns table(message_id bigint,
--     channel text, recipients text[], subject text, created_by text, created_at timestamptz, task_id bigint,
--     process_id uuid, state text, finished_at timestamptz)
-- comms.message_list(p_filter jsonb default '{}'::jsonb, p_limit integer default 50, p_cursor bigint default
--     null::bigint) returns jsonb
-- comms.message_show(p_message_id bigint) returns jsonb

-- sql/functions/metrics.sql
-- towpath._metrics_kinds(p_named text[], p_max integer) returns text[]
-- towpath._metrics_sample(p_table regclass) returns real
-- towpath._metrics_jobs(p_kinds text[], p_now timestamptz) returns jsonb
-- towpath._metrics_events(p_now timestamptz) returns jsonb
-- towpath.fn_metrics_read(p_named text[] default '{}'[], p_kinds_max integer default 100) returns jsonb
-- towpath.fn_metrics_postgres() returns jsonb

-- sql/views/job_now.sql

-- _job_groups: all unfinished jobs as they are now: a row for each job that is set apart, and one for each
-- bundle. A claimed job shows as leased before anything has settled it. For code that counts; _job_now has a
-- row for each job.
create view towpath._job_groups (
    job_id uuid,
    job_ids uuid[],
    jobs integer,
    bundle boolean,
    lane integer,
    due_at timestamptz,
    blocked integer,
    refunded integer,
    state smallint,
    attempts integer,
    lease_owner text,
    lease_until timestamptz,
    picked_at timestamptz,
    subscription_no integer,
    progress_percent smallint,
    progress_note text,
    progress_at timestamptz,
    touched_at timestamptz
);

-- _job_now: the same with a row for each job. For reading all of them; one job is found faster by
-- _job_now_of.
create view towpath._job_now (
    job_id uuid,
    lane integer,
    due_at timestamptz,
    blocked integer,
    refunded integer,
    state smallint,
    attempts integer,
    lease_owner text,
    lease_until timestamptz,
    picked_at timestamptz,
    subscription_no integer,
    progress_percent smallint,
    progress_note text,
    progress_at timestamptz,
    touched_at timestamptz
);
-- towpath._job_now_of(p_job_id uuid) returns table(job_id uuid, lane integer, due_at timestamptz, blocked
--     integer, refunded integer, state smallint, attempts integer, lease_owner text, lease_until timestamptz,
--     picked_at timestamptz, subscription_no integer, progress_percent smallint, progress_note text,
--     progress_at timestamptz, touched_at timestamptz)

-- sql/views/job_run_each.sql

-- _job_run_each: every ended attempt of every job as a row of its own. For reading all of them; one job's are
-- found faster by _job_runs.
create view towpath._job_run_each (
    job_id uuid,
    attempt towpath.natural_number,
    refunded towpath.natural_number,
    picked_at timestamptz,
    finished_at timestamptz,
    outcome towpath.run_outcome,
    lease_owner text,
    ended_by text,
    error text,
    result jsonb
);

-- sql/views/job_queue.sql

-- job_queue: every job as one row, with the columns of the contract (Q01).
create view towpath.job_queue (
    job_id uuid,
    job_kind text,
    state text,
    source_ref text,
    target_ref text,
    payload_ref text,
    payload_json jsonb,
    priority integer,
    scheduled_at towpath.moment,
    picked_at timestamptz,
    finished_at timestamptz,
    lease_owner text,
    lease_until timestamptz,
    attempts integer,
    max_attempts integer,
    idempotency_key text,
    actor text,
    run_id uuid,
    last_error text,
    created_at timestamptz,
    updated_at timestamptz,
    executor text,
    event_domain text,
    blocked_by uuid[],
    progress_percent smallint,
    progress_message text,
    progress_at timestamptz,
    traceparent text,
    login text,
    result jsonb
);

-- sql/views/job_queue_backlog.sql

-- v_job_queue_backlog: unfinished jobs by kind and state. Reads unfinished jobs only, so finished ones cost
-- nothing; the age of a job is in its id.
create view towpath.v_job_queue_backlog (
    job_kind towpath.label,
    state text,
    row_count bigint,
    oldest_created_at timestamptz,
    newest_created_at timestamptz,
    next_scheduled_at timestamptz,
    avg_attempts numeric,
    max_attempts integer,
    blocked_count bigint,
    paused boolean
);

-- sql/views/job_dead_letter_summary.sql

-- v_job_dead_letter_summary: dead letters by kind and triage status. Reads their counts and the ends of an
-- index, so it stays fast however many there are (Q14). Their ids have the order in which they were moved.
create view towpath.v_job_dead_letter_summary (
    job_kind text,
    triage_status text,
    row_count bigint,
    replayed_count bigint,
    oldest_moved_at timestamptz,
    newest_moved_at timestamptz
);

-- sql/views/executor_subscription_health.sql

-- v_executor_subscription_health: per executor, what it subscribed and whether it lives (R10).
create view towpath.v_executor_subscription_health (
    executor_id towpath.label,
    rules bigint,
    any_enabled integer,
    enabled_rules bigint,
    unlimited_rules bigint,
    max_parallel_total bigint,
    executor_kind text,
    registered boolean,
    last_tick_at timestamptz
);

-- sql/views/queue_heartbeat.sql

-- v_queue_heartbeat: heartbeats with their freshness: fresh up to the threshold, warning up to twice of it,
-- stale beyond (Q13). A process is registered here from its first tick to its end, or until retention forgets
-- one that was killed.
create view towpath.v_queue_heartbeat (
    executor_name towpath.label,
    executor_kind text,
    last_tick_at timestamptz,
    last_tick_status text,
    ticks_total bigint,
    current_job_id uuid,
    lease_owner towpath.long_label,
    metadata jsonb,
    created_at timestamptz,
    updated_at timestamptz,
    registered_at timestamptz,
    seconds_since_tick double precision,
    stale_threshold_seconds double precision,
    freshness text
);

-- sql/views/subscription_broadcast_used.sql

-- v_subscription_broadcast_used: events of the last 24 hours that nobody had subscribed, by domain and type
-- (R03). fn_event_counter_fold counts each event once, soon after it has a position, by the hour; so this
-- costs no scan of events, knows scopes and mutes, and reaches back 24 to 25 hours. Towpath's own warnings
-- are not counted.
create view towpath.v_subscription_broadcast_used (
    event_domain text,
    event_type text,
    broadcast_events_24h bigint,
    events_24h bigint,
    broadcast_percent numeric
);

-- sql/views/delivery_now.sql

-- _delivery_now: everything that waits or is in flight outside of any transaction: webhooks, and appends to
-- streams, whose lease and wait are those of their stream. behind is the earlier delivery of its ordering key
-- that it waits for. For what counts or shows deliveries.
create view towpath._delivery_now (
    delivery_id uuid,
    route_no integer,
    target_kind text,
    position bigint,
    event_id uuid,
    generation integer,
    attempts integer,
    lease_owner text,
    lease_until timestamptz,
    next_at timestamptz,
    last_error text,
    created_at timestamptz,
    behind uuid
);

-- sql/views/route_attempt.sql

-- v_route_attempt: what was decided about events, with names and the idempotency key in full (E07).
create view towpath.v_route_attempt (
    position bigint,
    event_id uuid,
    worker_name text,
    route_name text,
    mode text,
    generation integer,
    decision text,
    reason text,
    step text,
    recipients text[],
    suppressed text[],
    result_id uuid,
    error text,
    attempted_at timestamptz,
    idempotency_key text
);

-- sql/views/route_worker_cursor.sql

-- v_route_worker_cursor: where every slice of every worker stands.
create view towpath.v_route_worker_cursor (
    worker_name text,
    slices integer,
    slice integer,
    position bigint,
    last_position bigint,
    lag bigint,
    runs bigint,
    events bigint,
    last_run_at timestamptz,
    last_summary jsonb,
    event_domain towpath.label
);

-- sql/views/route_health.sql

-- v_route_health: one row per route: its mode, how many events its worker lags behind, its target's circuit,
-- and what waits or failed.
create view towpath.v_route_health (
    route_name text,
    worker_name text,
    event_domain towpath.label,
    event_type towpath.label,
    event_stream towpath.label,
    target_kind text,
    mode text,
    mode_reason text,
    worker_lag bigint,
    target_key text,
    circuit text,
    target_failures integer,
    failing_since timestamptz,
    blocked_until timestamptz,
    last_error text,
    deliveries_waiting bigint,
    deliveries_leased bigint,
    oldest_delivery_at timestamptz,
    dead_letters_open bigint,
    oldest_dead_letter_at timestamptz,
    changed_at timestamptz,
    changed_by towpath.label
);

-- sql/views/event_health.sql

-- v_event_health: the state of events in one row, for the dashboard and v_queue_health (R10). Reads small
-- tables only, however many events are stored.
create view towpath.v_event_health (
    last_position bigint,
    last_numbered_at timestamptz,
    kept_from bigint,
    slowest_lag bigint,
    last_route_run_at timestamptz,
    deliveries_waiting bigint,
    deliveries_leased bigint,
    oldest_delivery_at timestamptz,
    route_dead_letters_open bigint,
    circuits_open bigint,
    events_24h bigint,
    broadcast_events_24h bigint,
    broadcast_percent_24h numeric,
    routing_enabled boolean,
    route_worker_enabled boolean,
    delivery_enabled boolean,
    subscription_resolution_enabled boolean,
    checked_at timestamptz
);

-- sql/views/queue_health.sql

-- v_queue_health: one row per heartbeat, or one row without any, each with the state of the whole queue
-- beside it (Q14). Unfinished jobs are counted, finished ones come from folded counters, so it stays fast
-- however many jobs have finished: how many ended so since the installation, also those that retention has
-- dropped. No job is ever failed (see job_queue); attempts are.
create view towpath.v_queue_health (
    executor_name towpath.label,
    executor_kind text,
    last_tick_at timestamptz,
    last_tick_status text,
    seconds_since_tick double precision,
    freshness text,
    ticks_total bigint,
    current_job_id uuid,
    lease_owner towpath.long_label,
    jobs_queued bigint,
    jobs_leased bigint,
    jobs_in_progress bigint,
    jobs_retry_waiting bigint,
    jobs_succeeded bigint,
    jobs_failed bigint,
    jobs_dead_letter bigint,
    jobs_cancelled bigint,
    jobs_blocked bigint,
    leases_expired bigint,
    oldest_due_at timestamptz,
    dead_letters_pending bigint,
    dead_letters_acknowledged bigint,
    dead_letters_manual_replay bigint,
    dead_letters_escalated bigint,
    dead_letters_closed bigint,
    subscription_rules bigint,
    subscriptions_enabled bigint,
    kinds_paused bigint,
    job_substrate_enabled boolean,
    worker_enabled boolean,
    notify_enabled boolean,
    heartbeat_enabled boolean,
    checked_at timestamptz,
    event_last_position bigint,
    event_slowest_lag bigint,
    deliveries_waiting bigint,
    route_dead_letters_open bigint,
    circuits_open bigint,
    events_24h bigint,
    broadcast_events_24h bigint,
    broadcast_kinds_24h bigint,
    routing_enabled boolean,
    route_worker_enabled boolean,
    delivery_enabled boolean,
    subscription_resolution_enabled boolean,
    attempts_failed bigint
);

-- sql/views/process_attention.sql

-- v_process_attention: the processes that wait for a person, the most urgent deadline first.
create view towpath.v_process_attention (
    process_id uuid,
    process_kind towpath.label,
    ref towpath.ref_label,
    held_at timestamptz,
    attempt_no integer,
    why text,
    deadline_at towpath.moment,
    started_by towpath.label
);

-- sql/views/process_health.sql

-- v_process_health: one row per process kind: what is unfinished, and whether supervision keeps up.
create view towpath.v_process_health (
    process_kind towpath.label,
    supervisor text,
    open bigint,
    held bigint,
    overdue bigint,
    oldest_check_at timestamptz,
    next_deadline_at timestamptz
);

-- sql/template/process.sql
-- comms.has_send_email_task_succeeded(send_email_task_id bigint) returns boolean
-- comms.is_send_email_task_over(send_email_task_id bigint) returns boolean
-- comms.count_send_email_task_scheduled(send_email_task_id bigint) returns integer
-- comms.count_send_email_task_failures(send_email_task_id bigint) returns integer
-- comms.count_send_email_task_lost(send_email_task_id bigint) returns integer
-- comms.record_send_email_fact(payload jsonb) returns jsonb
-- comms.get_email_payload(payload jsonb) returns jsonb
-- comms.record_email_success(payload jsonb) returns jsonb
-- comms.record_email_failure(payload jsonb) returns jsonb
-- comms.send_email_supervisor(payload jsonb) returns jsonb

-- sql/template/channel.sql
-- comms._email_make(p_message comms.email_message, p_key text, p_actor text, out message_id bigint, out
--     duplicate boolean) returns record
-- comms.create_email_message(p_message jsonb, p_actor text default null::text) returns jsonb
-- comms.kickoff_send_email_task(root_id bigint, scheduled_at timestamptz default null::timestamptz, actor
--     text default null::text) returns jsonb
-- comms.send_email(p_message jsonb, p_idempotency_key text default null::text, p_scheduled_at timestamptz
--     default null::timestamptz, p_actor text default null::text) returns jsonb
-- towpath.send_email(message jsonb, key text default null::text, run_at timestamptz default
--     null::timestamptz, actor text default null::text) returns uuid

-- sql/template/process.sql
-- comms.has_send_sms_task_succeeded(send_sms_task_id bigint) returns boolean
-- comms.is_send_sms_task_over(send_sms_task_id bigint) returns boolean
-- comms.count_send_sms_task_scheduled(send_sms_task_id bigint) returns integer
-- comms.count_send_sms_task_failures(send_sms_task_id bigint) returns integer
-- comms.count_send_sms_task_lost(send_sms_task_id bigint) returns integer
-- comms.record_send_sms_fact(payload jsonb) returns jsonb
-- comms.get_sms_payload(payload jsonb) returns jsonb
-- comms.record_sms_success(payload jsonb) returns jsonb
-- comms.record_sms_failure(payload jsonb) returns jsonb
-- comms.send_sms_supervisor(payload jsonb) returns jsonb

-- sql/template/channel.sql
-- comms._sms_make(p_message comms.sms_message, p_key text, p_actor text, out message_id bigint, out duplicate
--     boolean) returns record
-- comms.create_sms_message(p_message jsonb, p_actor text default null::text) returns jsonb
-- comms.kickoff_send_sms_task(root_id bigint, scheduled_at timestamptz default null::timestamptz, actor text
--     default null::text) returns jsonb
-- comms.send_sms(p_message jsonb, p_idempotency_key text default null::text, p_scheduled_at timestamptz
--     default null::timestamptz, p_actor text default null::text) returns jsonb
-- towpath.send_sms(message jsonb, key text default null::text, run_at timestamptz default null::timestamptz,
--     actor text default null::text) returns uuid
