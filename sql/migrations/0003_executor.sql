-- Executors: who executes, who claims, who enqueues, and the tokens of those that come over HTTP.

-- Heartbeats. One row per executor process, overwritten by each tick.
create table towpath.queue_heartbeat (
    executor_name    towpath.label         primary key,
    executor_kind    towpath.executor_kind not null,
    last_tick_at     timestamptz           not null default towpath.fn_now(),
    last_tick_status text                  not null default 'ok',
    ticks_total      bigint                not null default 0,
    current_job_id   uuid,
    lease_owner      towpath.long_label,
    metadata         towpath.signal        not null default '{}',
    created_at       timestamptz           not null default towpath.fn_now(),
    updated_at       timestamptz           not null default towpath.fn_now(),
    constraint queue_heartbeat_status_check check (last_tick_status in ('ok', 'warn', 'error')),
    constraint queue_heartbeat_ticks_not_negative_check check (ticks_total >= 0)
) with (fillfactor = 40);

-- Which kinds a worker process handles, as it said when it registered or in its last heartbeat, and how many jobs it
-- runs at once, if it said. A process that ends takes its row along; rows of
-- processes that were killed go after an hour, when another heartbeat comes.
create table towpath.queue_worker (
    lease_owner   towpath.long_label primary key,
    executor_name towpath.label      not null,
    kinds         text[]             not null,
    concurrency   integer,
    seen_at       timestamptz        not null,
    constraint queue_worker_kinds_named_check check (
        cardinality(kinds) between 1 and 1000 and array_position(kinds, null) is null)
) with (fillfactor = 40);

-- Who exists. login_role, if set, is the only login (or group) that may claim as this executor.
create table towpath.consumer_registry (
    executor_id   towpath.label         primary key,
    executor      towpath.executor_kind not null,
    login_role    towpath.label,
    notes         text,
    registered_by towpath.label         not null,
    registered_at timestamptz           not null default towpath.fn_now()
);

-- Who claims what. Of an executor's rows that fit a lane the most specific one decides: a
-- named kind before any kind, then a named domain before any domain. max_parallel null
-- means no limit, and then a claim has nothing to count.
create table towpath.job_subscription (
    subscription_id uuid                  primary key default gen_random_uuid(),
    subscription_no integer               generated always as identity unique,
    executor_id     towpath.label         not null,
    executor_kind   towpath.executor_kind not null,
    job_kind        towpath.label,
    event_domain    towpath.label,
    priority_floor  smallint              not null default 0,
    max_parallel    integer               default 1,
    enabled         boolean               not null default false,
    notes           text,
    registered_by   towpath.label         not null,
    registered_at   timestamptz           not null default towpath.fn_now(),
    constraint job_subscription_uq unique nulls not distinct (executor_id, job_kind, event_domain),
    constraint job_subscription_priority_floor_not_negative_check check (priority_floor >= 0),
    constraint job_subscription_max_parallel_check check (max_parallel between 1 and 1000000)
);

-- The executor of jobs of a kind that name none: the one that all enabled subscriptions to the kind
-- name. No row: such a job is for any executor that is subscribed to the kind by name when it is
-- claimed. Written by the subscriptions' trigger alone, because an enqueue
-- that looks at the subscriptions themselves is measurably slower.
create table towpath.job_kind_executor (
    job_kind towpath.label         primary key,
    executor towpath.executor_kind not null
);

-- _job_kind_executor_keep: after a change of subscriptions, what they say about their kinds. Two changes
-- wait for each other, or neither would see the other's.
create function towpath._job_kind_executor_keep() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    lock table towpath.job_kind_executor in share row exclusive mode;
    delete from towpath.job_kind_executor e where e.job_kind in (old.job_kind, new.job_kind);
    insert into towpath.job_kind_executor (job_kind, executor)
    select s.job_kind, min(s.executor_kind) from towpath.job_subscription s
     where s.job_kind in (old.job_kind, new.job_kind) and s.enabled
     group by s.job_kind having min(s.executor_kind) = max(s.executor_kind);
    return null;
end;
$$;
create trigger job_subscription_kind_executor
    after insert or delete or update of job_kind, executor_kind, enabled on towpath.job_subscription
    for each row execute function towpath._job_kind_executor_keep();

-- Leases held under a subscription with max_parallel. A claim locks the subscription's row
-- and inserts the new number; the newest row counts, as in job_floor. The end of
-- a lease only appends a release, which the next claim folds in.
create table towpath.job_parallel (
    subscription_no integer not null,
    change_no       bigint  generated always as identity,
    held            integer not null,
    folded_to       bigint  not null,
    primary key (subscription_no, change_no)
);
create table towpath.job_parallel_release (
    subscription_no integer not null,
    release_no      bigint  generated always as identity,
    n               integer not null,
    primary key (subscription_no, release_no),
    constraint job_parallel_release_positive_check check (n > 0)
);

-- What a producer may enqueue; null means any. The producer is a login role.
create table towpath.producer_grant (
    grant_id   uuid          primary key default gen_random_uuid(),
    producer   towpath.label not null,
    job_kind   towpath.label,
    executor   towpath.executor_kind,
    granted_by towpath.label not null,
    granted_at timestamptz   not null default towpath.fn_now(),
    constraint producer_grant_uq unique nulls not distinct (producer, job_kind, executor)
);

-- Tokens ------------------------------------------------------------------------------------

-- Tokens for HTTP, for whom has no database login: executors that work, and producers that enqueue and emit.
--
-- A token is random and only its holder knows it; the table stores its sha256, so that reading the table (or
-- a backup of it) gives no access. It names one executor of the registry, or none if it is for a producer.
-- kinds null means whatever the executor's subscriptions say; a list narrows that, never
-- widens it. produce are the kinds it may enqueue for any executor, emit the domains it may emit in; * is all of them.
-- Tokens are revoked, not deleted: a lease names the token that took it.
create table towpath.executor_token (
    token_id     uuid           primary key default gen_random_uuid(),
    token_hash   bytea          not null,
    executor_id  towpath.label,
    kinds        text[],
    may_enqueue  boolean        not null default false,
    may_register boolean        not null default false,
    produce      text[],
    emit         text[],
    notes        text,
    created_at   timestamptz    not null default towpath.fn_now(),
    created_by   towpath.label  not null,
    expires_at   towpath.moment not null,
    revoked_at   timestamptz,
    revoked_by   towpath.label,
    -- To the minute, so that not every use is a write.
    last_used_at timestamptz,
    constraint executor_token_hash_uq unique (token_hash),
    constraint executor_token_hash_is_sha256_check check (octet_length(token_hash) = 32),
    constraint executor_token_kinds_named_check check (
        kinds is null or (cardinality(kinds) between 1 and 1000 and array_position(kinds, null) is null)),
    constraint executor_token_produce_named_check check (
        produce is null or (cardinality(produce) between 1 and 1000 and array_position(produce, null) is null)),
    constraint executor_token_emit_named_check check (
        emit is null or (cardinality(emit) between 1 and 1000 and array_position(emit, null) is null)),
    constraint executor_token_without_executor_produces_check check (
        executor_id is not null
        or (num_nonnulls(produce, emit) > 0 and kinds is null and not may_enqueue and not may_register)),
    constraint executor_token_expires_later_check check (expires_at > created_at),
    constraint executor_token_revoked_who_and_when_check check ((revoked_at is null) = (revoked_by is null))
);
-- executor_token_executor_idx: fn_executor_token_list shows one executor's tokens.
create index executor_token_executor_idx on towpath.executor_token (executor_id, created_at);

-- _executor_token_orphaned: an executor that leaves the registry takes its tokens with it, so
-- that they are not valid for another one that is registered under its name.
create function towpath._executor_token_orphaned() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    update towpath.executor_token t
       set revoked_at = towpath.fn_now(), revoked_by = 'registry: the executor was removed'
     where t.executor_id = old.executor_id and t.revoked_at is null;
    return null;
end;
$$;
create trigger consumer_registry_takes_tokens_along
    after delete on towpath.consumer_registry
    for each row execute function towpath._executor_token_orphaned();
