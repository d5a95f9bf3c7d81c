-- The job substrate: storage of jobs, their graphs, payloads and schedules; 0003_executor.sql says who enqueues and claims them.
--
-- A job lives in narrow tables that each do one thing (docs/decisions has the numbers):
--   job          the wide row, written once, partitioned by day of its uuid v7 id
--   job_ready    the order of the queue: jobs that may be claimed, now or once they are due
--   lease_entry  who holds which jobs until when
--   job_run      ended attempts: the result and the history at once
--   job_live     one narrow row for each unfinished job that something sets apart: a key, a graph, an earlier
--                attempt, a lease of its own
-- The view towpath.job_queue joins them into the table that users know.
--
-- A bundle is a row of job_ready or lease_entry whose jobs nothing sets apart: they came from one call, differ in
-- nothing but the id, and have no rows in job_live. Most jobs spend their whole life in bundles: a ready row becomes
-- (with others) a lease entry, and that becomes a row of job_run. Whatever concerns one job of a bundle sets the
-- job apart first (lease_entry.sql, job_ready.sql).
--
-- Life of a job (states with their numbers in job_live, outcomes of job_run in quotes):
--   enqueue          ─▶ queued [0]; in a graph it may be blocked, and then has no ready row
--   claim            queued, retry_waiting ─▶ leased [1]
--   start            leased ─▶ in_progress [2]
--   ack              leased, in_progress ─▶ "succeeded"
--   release, snooze  leased, in_progress ─▶ queued, retry_waiting: "released", "snoozed"
--   fail, reap       leased, in_progress ─▶ retry_waiting [3]: "failed", "lost"
--                    or, by a permanent error or on the last attempt, ─▶ "dead_letter"
--   cancel           anything unfinished ─▶ "cancelled"
--   retention        anything finished ─▶ cleaned, by a mark, then gone
--
-- Lock order. Every function takes row locks in this order and never goes back:
--   1. advisory locks: 7302 of the maintenance ticks (try only), 7301 of the subscriptions; then job_lane, to
--      open a closed lane (the collector skips what is locked)
--   2. schedule; job_dead_letter when a letter is triaged or replayed
--   3. job_subscription, by subscription_no (claims under max_parallel)
--   4. lease_entry, by entry_id (the reaper skips what is locked)
--   5. job_ready (skip locked when claiming)
--   6. job_live, by job_id ascending: the functions switch bitmap scans off, so that
--      job_id = any(...) walks the primary key
--   7. job_edge of the parents just ended, then their children in job_live, by job_id
--   8. inserts into append-only tables (job, job_run, deltas, releases, wakes): these wait
--      for nobody
-- An idempotency key waits for the transaction that holds it, in key order within one call;
-- two transactions that enqueue several keys in different orders can still deadlock, and
-- PostgreSQL ends one of them.

-- Domains and checks ---------------------------------------------------------------------

-- _executor_known: the executor whitelist, the only place where the seven names stand.
-- MOT emits graphs and never executes, so it is not among them.
create function towpath._executor_known(p_executor text) returns boolean
    language sql immutable parallel safe
    return p_executor in ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker',
                          'future_Kestra_adapter');

-- executor_kind: the type of every column that names an executor, so that the whitelist is
-- written once and holds on all surfaces (R07).
create domain towpath.executor_kind as text
    constraint executor_kind_whitelist_check check (towpath._executor_known(value));

-- _payload_denied_key: the first key of a payload, at any depth, that names data or a credential; null if there
-- is none (Q03). A key is read without separators and letter case: api_key, apiKey and X-API-Key are one.
--
-- Data words are whole keys, so that content_type and body_id pass. A credential is what the key ends in, so
-- that stripe_api_key is one, and token_count, secret_id and max_tokens are not. Two kinds of key end in such a
-- word and hold none: flags (has_password) and places in a list (next_page_token).
create function towpath._payload_denied_key(p_payload jsonb) returns text
    language plpgsql immutable parallel safe
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select k.key
          from (select k #>> '{}' as key, regexp_replace(lower(k #>> '{}' collate "C"), '[-_. :/]', '', 'g') as word
                  from jsonb_path_query(p_payload, '$.** ? (@.type() == "object").keyvalue().key') k) k
         where k.word ~ '^(body|content|raw|vector|embedding)$'
            or k.word ~ '^(x|http|proxy|set|session|auth|api|request|login)*(authorization|bearer|cookies?)$'
            or (k.word ~ ('(token|(access|refresh|auth|api|session|bearer)tokens'
                    || '|(password|passwd|passphrase|passcode|pwd|secret|credential|jwt)s?'
                    || '|(db|pg|smtp|ftp|user|admin|root|login)pass'
                    || '|(api|private|secret|access|signing|encryption|ssh)keys?'
                    || '|ssn|personaldata)(hash|string|confirmation)?[0-9]*$')
                and k.word !~ '((page|next|continuation|pagination|sync|resume)|(cost|price|ms|seconds)per)token$'
                and k.key !~ '^(is|has|needs|requires)([^A-Za-z]|[A-Z])')
         limit 1);
end;
$$;

-- _number_huge: whether a document has a number that readers of JSON cannot hold: one such row would take the page of all
-- others away.
create function towpath._number_huge(p_document jsonb) returns boolean
    language sql immutable parallel safe
    return jsonb_path_exists(p_document, '$.** ? (@.type() == "number" && (@ > 1e308 || @ < -1e308))');

-- _payload_safe: false if a denied key or a huge number stands anywhere in a payload.
--
-- The expression decides for nearly every payload, at the cost of one small automaton: what no denied key ends
-- in needs no closer look. It may say too much, never too little. Reading the text is exact: jsonb prints a key
-- as "key": and a space, it has already resolved \u escapes, and a quote inside a string always has a backslash before
-- it. The C collation keeps the answer the same in every database. jsonb prints all digits of a number, so that a
-- short text has no huge one.
create function towpath._payload_safe(p_payload jsonb) returns boolean
    language sql immutable parallel safe
    return ((p_payload::text collate "C") !~*
            '(ken|ssn|tion|word|wd|ret|tent|jwt|raw|ctor|rer|kie|rase|code|tial|ass|key|data|ody|ing|hash)[-s0-9_. :/]*": '
            or towpath._payload_denied_key(p_payload) is null)
       and (octet_length(p_payload::text) < 309 or not towpath._number_huge(p_payload));

-- _payload_deep: more than 64 levels, which some readers of JSON do not follow: one such row would take the page of all
-- others away. Each level takes 8 bytes at least, so that what is small need not be walked through.
create function towpath._payload_deep(p_payload jsonb) returns boolean
    language sql stable parallel safe
    return pg_column_size(p_payload) > 512 and jsonb_path_exists(p_payload, '$.**{64}');

-- _payload_small: signals carry references, so 64 KiB as stored is generous. The size of the
-- datum costs nothing to read; printing the payload would cost a microsecond per job.
create function towpath._payload_small(p_payload jsonb) returns boolean
    language sql stable parallel safe
    return pg_column_size(p_payload) <= 65536 and not towpath._payload_deep(p_payload);

-- _result_fits: what a handler may return: not too large or deep, and no number that readers of JSON cannot hold.
create function towpath._result_fits(p_result jsonb) returns boolean
    language sql stable parallel safe
    return towpath._payload_small(p_result) and not towpath._number_huge(p_result);

-- result: what a handler may return, a step record and a process begin with. A domain rather than a check of each table:
-- PostgreSQL reads a check again for every statement, and a domain once in a session.
create domain towpath.result as jsonb
    constraint result_small_check check (towpath._result_fits(value));

-- signal: what a job may carry: an object of references, never data (Q03). Job payloads, dead letters,
-- heartbeats, schedules and events all have this type.
create domain towpath.signal as jsonb
    constraint signal_safe_check check (towpath._payload_safe(value))
    constraint signal_small_object_check check (jsonb_typeof(value) = 'object' and towpath._payload_small(value));
create domain towpath.natural_number as integer
    constraint natural_number_not_negative_check check (value >= 0);
create domain towpath.positive_number as integer
    constraint positive_number_check check (value >= 1);
-- priority: the highest first; as far as a subscription's floor reaches.
create domain towpath.priority as integer
    constraint priority_from_0_to_32767_check check (value between 0 and 32767);
-- attempt_limit: how often something is tried. Far below where adding refunded attempts would overflow.
create domain towpath.attempt_limit as integer
    constraint attempt_limit_from_1_to_1000_check check (value between 1 and 1000);
create domain towpath.percent as smallint
    constraint percent_check check (value between 0 and 100);
-- live_state: 0 queued, 1 leased, 2 in_progress, 3 retry_waiting; the other five of the nine
-- states follow from job_run and the retention mark.
create domain towpath.live_state as smallint
    constraint live_state_check check (value between 0 and 3);
-- run_outcome: how an attempt ended.
create domain towpath.run_outcome as text
    constraint run_outcome_check check (value in
        ('succeeded', 'failed', 'lost', 'released', 'snoozed', 'cancelled', 'dead_letter'));

-- _uuid7: a uuid v7 for a moment in microseconds since 1970, with the fraction of the
-- millisecond in its first random bits (as PostgreSQL 18 does), so that ids made one
-- microsecond apart keep their order. A batch counts microseconds up from its own start and
-- draws its random tail once: eight random bytes tell batches apart, the count its rows.
create function towpath._uuid7(p_micros bigint, p_tail bytea default null) returns uuid
    language sql volatile parallel safe
    return encode(
        int8send(((p_micros / 1000) << 16) | 28672 | ((p_micros % 1000) * 4096 / 1000))
        || coalesce(p_tail, substring(uuid_send(gen_random_uuid()) from 9)), 'hex')::uuid;

-- _uuid7_floor: the lowest uuid v7 of a moment; ids made before it are smaller.
create function towpath._uuid7_floor(p_at timestamptz) returns uuid
    language sql immutable parallel safe
    return (lpad(to_hex(floor(extract(epoch from p_at) * 1000)::bigint), 12, '0')
            || '00000000000000000000')::uuid;

-- _uuid7_at: the moment inside a uuid v7, to the millisecond.
create function towpath._uuid7_at(p_id uuid) returns timestamptz
    language sql immutable parallel safe
    return to_timestamp((('x' || replace(left(p_id::text, 13), '-', ''))::bit(48)::bigint) / 1000.0);

-- _key_hash: 16 bytes of sha256 stand for an idempotency key; half the index of the text,
-- and nobody can construct a collision that swallows another producer's job.
-- Stable, because convert_to is: marked immutable it could not be inlined.
create function towpath._key_hash(p_key text) returns uuid
    language sql stable parallel safe
    return encode(substring(sha256(convert_to(p_key, 'UTF8')) from 1 for 16), 'hex')::uuid;

-- The queue -------------------------------------------------------------------------------

-- A lane is what a claimer takes in one index range. Subscriptions resolve to a set of
-- lanes. Lanes are made on first use and collected when nobody uses them (job_lane.sql).
create table towpath.job_lane (
    lane         integer generated always as identity primary key,
    job_kind     towpath.label         not null,
    -- Null: for any executor that is subscribed to the kind by name, or to every kind as PG_worker.
    executor     towpath.executor_kind,
    priority     towpath.priority      not null,
    event_domain towpath.label,
    -- When it was last seen in use, to some seconds.
    used_at      timestamptz           not null default towpath.fn_now(),
    -- The transaction that closed it, because nobody used it: claims pass it by.
    closed_by    xid8,
    -- Used by enqueue too: executor and domain come last because "is not distinct from" cannot
    -- be an index condition.
    constraint job_lane_uq unique nulls not distinct (job_kind, priority, executor, event_domain)
);

-- job_lane_open_idx: _job_lane_set reads open lanes only, and no page that collected ones have left behind.
create index job_lane_open_idx on towpath.job_lane (lane) where closed_by is null;

-- The lane collector's note: transactions that had read job_lane when noted_by looked, and had not ended.
create table towpath.job_lane_tick (
    only_row boolean primary key default true,
    readers  text[],
    noted_by xid8,
    constraint job_lane_tick_one_row_check check (only_row)
);
insert into towpath.job_lane_tick default values;

-- The floor of a lane: nothing claimable is due before it, so a claim starts there and
-- never walks over the dead entries of finished jobs. The newest row counts; rows are
-- inserted and old ones deleted, because reading the newest index entry stays cheap while a
-- held snapshot keeps every old version, and an updated row would not.
create table towpath.job_floor (
    lane     integer     not null,
    floor_no bigint      generated always as identity,
    floor_at timestamptz not null,
    primary key (lane, floor_no)
);

-- A job as its producer asked for it. Written once; what changes lives in the other tables.
create table towpath.job (
    job_id          uuid                    not null,
    job_kind        towpath.label           not null,
    -- Null: its producer named none, and no subscriptions decided it; see job_lane.
    executor        towpath.executor_kind,
    -- The lane holds the domain's rule, and the enqueue checks that of references: each domain here costs a
    -- single enqueue a microsecond.
    event_domain    text,
    source_ref      text,
    target_ref      text,
    payload_ref     text,
    payload_json    towpath.signal          not null default '{}',
    priority        towpath.priority        not null default 100,
    scheduled_at    towpath.moment          not null,
    max_attempts    towpath.attempt_limit   not null,
    -- Null: it was given none; its id is shown as its key.
    idempotency_key towpath.long_label,
    actor           towpath.label           not null,
    run_id          uuid,
    created_at      timestamptz             not null,
    -- The login that named another actor than itself. Null: the actor is the login, or Towpath made the job.
    login           text,
    -- The span that enqueued it.
    traceparent     text                    default towpath._traceparent(),
    constraint job_pk primary key (job_id)
) partition by range (job_id);
-- Catches what no partition was made for, so that an enqueue never fails for want of
-- maintenance. fn_job_partition_tick moves its rows out when it makes their partition.
create table towpath.job_default partition of towpath.job default;

-- A job as it was asked for, with its defaults filled in (_job_read).
create type towpath._job_input as (
    job_id          uuid,
    job_kind        text,
    executor        text,
    event_domain    text,
    source_ref      text,
    target_ref      text,
    payload_ref     text,
    payload_json    jsonb,
    priority        integer,
    scheduled_at    timestamptz,
    max_attempts    integer,
    idempotency_key text,
    actor           text,
    run_id          uuid,
    traceparent     text
);

-- An unfinished job that something sets apart; deleted at the end. A claim does not touch it: it writes a lease entry.
-- Whatever but an ack of the whole entry concerns a held attempt settles it first: it writes the lease from
-- the entry into this row (_job_settle). These updates are HOT: hence the fillfactor, and no index on anything they
-- change.
create table towpath.job_live (
    job_id           uuid                    not null,
    -- Null if the producer gave no key: then there is nothing to be unique.
    key_hash         uuid,
    due_at           towpath.moment          not null,
    lease_until      timestamptz,
    picked_at        timestamptz,
    lane             integer                 not null,
    -- Claims so far, which is the fence: a refunded attempt does not reuse its number.
    attempts         towpath.natural_number  not null default 0,
    max_attempts     towpath.attempt_limit   not null,
    -- Parents that have not succeeded yet.
    blocked          towpath.natural_number  not null default 0,
    -- The subscription that holds the lease; negative if it has no max_parallel, so that
    -- nothing has to be released.
    subscription_no  integer,
    state            towpath.live_state      not null default 0,
    -- Attempts that do not count: released or snoozed.
    refunded         towpath.natural_number  not null default 0,
    has_children     boolean                 not null default false,
    -- Settled from lease_entry, whose domain checks it.
    lease_owner      text,
    progress_percent towpath.percent,
    progress_note    text,
    progress_at      timestamptz,
    -- When it was last started or extended.
    touched_at       timestamptz,
    -- What an attempt leaves for the next one.
    checkpoint       jsonb,
    constraint job_live_pk primary key (job_id),
    constraint job_live_lease_pair_check check ((lease_owner is null) = (lease_until is null)),
    constraint job_live_leased_iff_owned_check check ((state in (1, 2)) = (lease_owner is not null))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- job_live_key_uq: fn_job_enqueue; one unfinished job per idempotency key, over all kinds.
create unique index job_live_key_uq on towpath.job_live (key_hash) where key_hash is not null;

-- The order of the queue, and what a claim must know: jobs that are queued or retry_waiting, and unblocked. A row is a
-- job that is set apart, or a bundle of up to 16 jobs of one call, one lane and one due time
-- (docs/decisions/0016-bundles.md).
create table towpath.job_ready (
    lane     integer     not null,
    due_at   timestamptz not null,
    job_id   uuid        not null,
    -- As in job_live. No default: a wrong number would make a lease that nobody can end.
    attempts integer     not null,
    refunded integer     not null,
    bundle   boolean     not null,
    -- All jobs of a bundle in the order of their ids; job_id is the first. Null if there is one. A claim that takes some of
    -- them puts the others back one by one.
    job_ids  uuid[],
    constraint job_ready_pk primary key (lane, due_at, job_id),
    constraint job_ready_bundle_is_new_check check (case when bundle then attempts = 0 else job_ids is null end)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- job_ready_bundle_idx: _job_set_apart and fn_job_list find the bundle of a job by its id.
create index job_ready_bundle_idx on towpath.job_ready (job_id) where bundle;

-- One row per ended attempt. Append-only. An end without a lease (a waiting job was
-- cancelled or moved) is recorded under the next number with no picked_at, and refunded
-- grows with it, so that attempt - refunded is always the number of attempts that counted.
create table towpath.job_run (
    job_id      uuid                   not null,
    attempt     towpath.natural_number not null,
    refunded    towpath.natural_number not null default 0,
    picked_at   timestamptz,
    finished_at timestamptz            not null,
    outcome     towpath.run_outcome    not null,
    lease_owner text,
    -- Who ended the attempt, if not its lease owner: the reaper, an operator.
    ended_by    text,
    error       text,
    -- What the handler returned.
    result      jsonb,
    -- All jobs of this row in the order of their ids; job_id is the last. Null if there is one. Jobs whose lease
    -- entry was acked whole share a row, which is the last of each (docs/decisions/0011-shared-runs.md).
    job_ids     uuid[],
    constraint job_run_pk primary key (job_id, attempt),
    constraint job_run_result_small_check check (towpath._result_fits(result))
) partition by range (job_id);
-- Two rows of 240 jobs fill a page.
create table towpath.job_run_default partition of towpath.job_run default with (toast_tuple_target = 8160);
-- job_run_shared_idx: _job_runs and fn_job_list look from a job's id upward for the row that has it.
create index job_run_shared_idx on towpath.job_run (job_id, (job_ids[1])) where job_ids is not null;

-- Today and a week ahead; fn_job_partition_tick goes on from there.
do $$
declare
    _day timestamptz;
begin
    for _i in 0..7 loop
        _day := date_trunc('day', towpath.fn_now(), 'UTC') + _i * interval '1 day';
        execute format('create table towpath.%I partition of towpath.job for values from (%L) to (%L)',
            'job_p' || to_char(_day at time zone 'UTC', 'YYYYMMDD'),
            towpath._uuid7_floor(_day), towpath._uuid7_floor(_day + interval '1 day'));
        execute format('create table towpath.%I partition of towpath.job_run for values from (%L) to (%L) '
                       'with (toast_tuple_target = 8160)',
            'job_run_p' || to_char(_day at time zone 'UTC', 'YYYYMMDD'),
            towpath._uuid7_floor(_day), towpath._uuid7_floor(_day + interval '1 day'));
    end loop;
end;
$$;

create trigger job_written_once before update on towpath.job
    for each statement execute function towpath._append_only();
create trigger job_run_append_only before update on towpath.job_run
    for each statement execute function towpath._append_only();

-- Lease entries. A claim writes one for up to 240 jobs of a lane with the same attempt number
-- (docs/decisions/0009-lease-ledger.md and 0010-whole-entries.md). The reaper reads them by lease_until, so that
-- job_live needs no index on the lease.
--
-- An entry with an attempt number holds all of its jobs. It loses all of them at once: an ack of the whole entry deletes
-- it, anything else settles it. Without an attempt number it holds none and only tells the reaper when to look: the
-- leases of its jobs are in job_live.
create table towpath.lease_entry (
    entry_id        bigint             generated always as identity primary key,
    lease_until     timestamptz        not null,
    -- In the order of the ids.
    job_ids         uuid[]             not null,
    attempt         integer,
    lease_owner     towpath.long_label,
    picked_at       timestamptz,
    subscription_no integer,
    lane            integer,
    refunded        integer,
    -- How long its jobs had waited when they were claimed, all together.
    wait_ms         double precision,
    bundle          boolean            not null default false,
    constraint lease_entry_claim_whole_check check (
        (attempt is null) = (lease_owner is null) and (attempt is null) = (picked_at is null))
) with (toast_tuple_target = 8160);
-- Two entries of 240 jobs fill a page: they are read far more often than written.
alter table towpath.lease_entry alter column job_ids set storage external, alter column job_ids set statistics 0;
-- lease_entry_until_idx: fn_job_reap takes what runs out first.
create index lease_entry_until_idx on towpath.lease_entry (lease_until, entry_id);
-- lease_entry_owner_idx: _lease_entries looks up an owner's entries, newest first.
create index lease_entry_owner_idx on towpath.lease_entry (lease_owner, entry_id) where attempt is not null;

-- Jobs that a claim picked and that differ in nothing but id and due time (_job_pick), in the order of their ids.
create type towpath._job_group as (
    lane     integer,
    -- The subscription, negative if it has no max_parallel.
    holder   integer,
    attempts integer,
    refunded integer,
    bundle   boolean,
    job_ids  uuid[],
    -- The sum of their due times in seconds.
    due_sum  double precision
);

-- A claimed job, as the worker gets it. A refusal is a row with nothing but the refusal.
create type towpath._claimed_job as (
    job_id uuid, attempt integer, max_attempts integer, job_kind text, executor text, event_domain text,
    source_ref text, target_ref text, payload_ref text, payload_json jsonb, priority integer,
    scheduled_at timestamptz, idempotency_key text, actor text, run_id uuid, created_at timestamptz,
    lease_owner text, lease_until timestamptz, entry_id bigint, refusal jsonb, traceparent text
);

-- Small samples, and none of columns that no plan depends on: the plans of the queue's functions do not depend on
-- values. With the default target ANALYZE costs half a second of CPU after 300,000 jobs, while the queue is busy.
-- Partitions that exist inherit this; _job_partition_ensure copies it to new ones.
do $$
declare
    _column record;
begin
    for _column in
        select a.attrelid::regclass as table_name, a.attname,
               case when a.attname in ('payload_json', 'idempotency_key', 'source_ref', 'target_ref', 'payload_ref',
                                       'run_id', 'traceparent', 'login', 'job_ids', 'touched_at', 'key_hash', 'progress_note',
                                       'error', 'result') then 0 else 10 end as target
          from pg_attribute a
         where a.attrelid in ('towpath.job'::regclass, 'towpath.job_run'::regclass, 'towpath.job_live'::regclass,
                              'towpath.job_ready'::regclass)
           and a.attnum > 0 and not a.attisdropped
    loop
        execute format('alter table %s alter column %I set statistics %s',
                       _column.table_name, _column.attname, _column.target);
    end loop;
end;
$$;

-- A finished job below cleaned_below shows as cleaned; partitions below dropped_below are gone.
create table towpath.job_retention (
    only_row      boolean     primary key default true,
    cleaned_below uuid        not null default '00000000-0000-0000-0000-000000000000',
    dropped_below uuid        not null default '00000000-0000-0000-0000-000000000000',
    changed_at    timestamptz not null default towpath.fn_now(),
    -- Jobs that were enqueued into partitions that are gone, as PostgreSQL's statistics counted them.
    dropped_jobs  bigint      not null default 0,
    constraint job_retention_one_row_check check (only_row)
);
insert into towpath.job_retention default values;

-- Ends of attempts, counted where they happen and folded by maintenance, so that nobody
-- counts finished jobs. One row per lane and outcome of a call.
create table towpath.job_counter_delta (
    lane       integer     not null,
    outcome    text        not null,
    n          integer     not null,
    wait_ms    bigint      not null,
    run_ms     bigint      not null,
    counted_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);
create table towpath.job_counter (
    job_kind text   not null,
    outcome  text   not null,
    n        bigint not null,
    primary key (job_kind, outcome)
) with (fillfactor = 50);
-- The same by minute, for charts; fn_job_counter_fold drops old minutes.
create table towpath.job_minute (
    minute_at timestamptz not null,
    job_kind  text        not null,
    outcome   text        not null,
    n         bigint      not null,
    wait_ms   bigint      not null,
    run_ms    bigint      not null,
    primary key (minute_at, job_kind, outcome)
) with (fillfactor = 50);

-- The floor tick's own notes: when it last looked below the floors, and what that cost; what the clock was, and what it
-- was before it went back.
create table towpath.job_floor_sweep (
    only_row   boolean          primary key default true,
    swept_at   timestamptz      not null default '-infinity',
    sweep_ms   double precision not null default 0,
    seen_at    timestamptz      not null default '-infinity',
    back_until timestamptz      not null default '-infinity',
    constraint job_floor_sweep_one_row_check check (only_row)
);
insert into towpath.job_floor_sweep default values;

-- Whether a worker waits for a notification of the next job of a kind. The newest row counts, for the
-- same reason as in job_floor.
create table towpath.job_wake (
    job_kind text    not null,
    wake_no  bigint  generated always as identity,
    armed    boolean not null,
    primary key (job_kind, wake_no)
);

-- Kinds whose jobs are not claimed at the moment.
create table towpath.job_pause (
    job_kind  towpath.label primary key,
    paused_at timestamptz   not null,
    paused_by towpath.label not null,
    reason    text          not null
);

-- Who paused and resumed a kind, and when. Append-only; job_pause says what is paused now.
create table towpath.job_pause_log (
    log_id   bigint        generated always as identity primary key,
    at       timestamptz   not null,
    job_kind towpath.label not null,
    action   text          not null,
    actor    towpath.label not null,
    reason   text,
    constraint job_pause_log_action_check check (action in ('pause', 'resume'))
);
create trigger job_pause_log_append_only before update or delete on towpath.job_pause_log
    for each statement execute function towpath._append_only();

-- Dead letters ------------------------------------------------------------------------------

-- A full copy with no foreign key: it outlives the job's partition (Q12).
create table towpath.job_dead_letter (
    dead_letter_id  uuid                  primary key,
    job_id          uuid                  not null,
    job_kind        text                  not null,
    executor        towpath.executor_kind not null,
    event_domain    text,
    source_ref      text,
    target_ref      text,
    payload_ref     text,
    payload_json    towpath.signal        not null,
    priority        integer               not null,
    max_attempts    integer               not null,
    final_error     text                  not null,
    attempts        integer               not null,
    actor           text                  not null,
    run_id          uuid,
    idempotency_key text                  not null,
    created_at      timestamptz           not null,
    moved_at        timestamptz           not null default towpath.fn_now(),
    moved_by        text                  not null,
    triage_status   text                  not null default 'pending',
    triage_note     text,
    triaged_at      timestamptz,
    triaged_by      text,
    replayed_job_id uuid,
    replayed_at     timestamptz,
    replayed_by     text,
    constraint job_dead_letter_job_uq unique (job_id),
    constraint job_dead_letter_final_error_not_blank_check check (btrim(final_error) <> ''),
    constraint job_dead_letter_moved_by_not_blank_check check (btrim(moved_by) <> ''),
    constraint job_dead_letter_attempts_not_negative_check check (attempts >= 0),
    constraint job_dead_letter_triage_status_check check (triage_status in
        ('pending', 'acknowledged', 'manual_replay', 'escalated', 'closed')),
    constraint job_dead_letter_triaged_who_and_when_check check (
        (triaged_at is null) = (triaged_by is null)),
    constraint job_dead_letter_replayed_together_check check (
        (replayed_job_id is null) = (replayed_at is null) and (replayed_at is null) = (replayed_by is null))
);
-- job_dead_letter_triage_idx: fn_job_dead_letter_list, and the oldest and newest of v_job_dead_letter_summary.
create index job_dead_letter_triage_idx on towpath.job_dead_letter (triage_status, job_kind, dead_letter_id);
-- job_dead_letter_replayed_idx: fn_job_history finds where a replayed job came from.
create index job_dead_letter_replayed_idx on towpath.job_dead_letter (replayed_job_id)
    where replayed_job_id is not null;

-- How many dead letters each kind and triage status has, so that no view counts them (Q14). The rows of a group are
-- summed: a statement adds one for each group that it changes, and so waits for no other.
create table towpath.job_dead_letter_count (
    job_kind      text   not null,
    triage_status text   not null,
    count_no      bigint generated always as identity,
    letters       bigint not null,
    replayed      bigint not null,
    constraint job_dead_letter_count_pk primary key (job_kind, triage_status, count_no)
);

-- _job_dead_letter_count_add: adds to a group, and replaces its rows by their sum when they are more than 64. Rows that
-- another transaction is replacing are left to it.
create function towpath._job_dead_letter_count_add(
    p_job_kind text, p_triage_status text, p_letters bigint, p_replayed bigint) returns void
    language plpgsql
as $$
begin
    insert into towpath.job_dead_letter_count (job_kind, triage_status, letters, replayed)
    values (p_job_kind, p_triage_status, p_letters, p_replayed);
    if (select count(*) from (select 1 from towpath.job_dead_letter_count c
                               where c.job_kind = p_job_kind and c.triage_status = p_triage_status limit 65) c) > 64 then
        with summed as (
            delete from towpath.job_dead_letter_count c
             where c.job_kind = p_job_kind and c.triage_status = p_triage_status
               and c.count_no in (select x.count_no from towpath.job_dead_letter_count x
                                   where x.job_kind = p_job_kind and x.triage_status = p_triage_status
                                     for update skip locked)
            returning c.letters, c.replayed)
        insert into towpath.job_dead_letter_count (job_kind, triage_status, letters, replayed)
        select p_job_kind, p_triage_status, sum(s.letters), sum(s.replayed) from summed s having count(*) > 0;
    end if;
end;
$$;

-- _job_dead_letter_counted: counts what a statement added, changed or deleted.
create function towpath._job_dead_letter_counted() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op <> 'INSERT' then
        perform towpath._job_dead_letter_count_add(g.job_kind, g.triage_status, -count(*), -count(g.replayed_job_id))
           from gone g group by g.job_kind, g.triage_status;
    end if;
    if tg_op <> 'DELETE' then
        perform towpath._job_dead_letter_count_add(a.job_kind, a.triage_status, count(*), count(a.replayed_job_id))
           from added a group by a.job_kind, a.triage_status;
    end if;
    return null;
end;
$$;
create trigger job_dead_letter_insert_counted after insert on towpath.job_dead_letter
    referencing new table as added for each statement execute function towpath._job_dead_letter_counted();
create trigger job_dead_letter_update_counted after update on towpath.job_dead_letter
    referencing old table as gone new table as added
    for each statement execute function towpath._job_dead_letter_counted();
create trigger job_dead_letter_delete_counted after delete on towpath.job_dead_letter
    referencing old table as gone for each statement execute function towpath._job_dead_letter_counted();

-- Streams of jobs -----------------------------------------------------------------------------

-- What handlers with a database connection appended to the stream of their job, numbered from 0 in each attempt. The
-- server copies it into the stream of a job that somebody follows; retention deletes it after a day, as the stream.
create table towpath.job_chunk (
    job_id      uuid        not null,
    attempt     integer     not null,
    chunk_no    integer     not null,
    data        jsonb       not null,
    appended_at timestamptz not null default towpath.fn_now(),
    primary key (job_id, attempt, chunk_no)
);
-- job_chunk_old_idx: retention.
create index job_chunk_old_idx on towpath.job_chunk (appended_at);

-- The key that signs tokens for the streams of jobs: every server of this database accepts them. No role may read the
-- table; fn_job_token_key gives it to servers. Anyone who has a dump of it can sign, until fn_job_token_key_rotate.
create table towpath.job_token_key (
    only_row boolean primary key default true,
    secret   bytea   not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    constraint job_token_key_one_row_check check (only_row)
);
insert into towpath.job_token_key default values;

-- Graphs ------------------------------------------------------------------------------------

create table towpath.job_graph (
    graph_id        uuid          primary key,
    name            towpath.label not null,
    idempotency_key towpath.long_label,
    actor           towpath.label not null,
    created_at      timestamptz   not null,
    constraint job_graph_key_uq unique (idempotency_key)
);
create table towpath.job_graph_node (
    graph_id uuid          not null references towpath.job_graph on delete cascade,
    node     towpath.label not null,
    job_id   uuid          not null,
    primary key (graph_id, node)
);
-- job_graph_node_job_idx: fn_job_show finds the graph of a job.
create index job_graph_node_job_idx on towpath.job_graph_node (job_id);

-- The child waits for the parent. What happens to the child when the parent ends without
-- success is the edge's own choice: cancel it, or hold it until the parent is replayed.
create table towpath.job_edge (
    parent_id  uuid    not null,
    child_id   uuid    not null,
    on_failure text    not null default 'cancel',
    satisfied  boolean not null default false,
    primary key (parent_id, child_id),
    constraint job_edge_on_failure_check check (on_failure in ('cancel', 'hold')),
    constraint job_edge_no_loop_check check (parent_id <> child_id)
);
-- job_edge_child_idx: job_queue.blocked_by and fn_job_why look up the parents of a job.
create index job_edge_child_idx on towpath.job_edge (child_id);

-- Payloads ----------------------------------------------------------------------------------

-- The keys of projects that store their payloads encrypted, wrapped by a master key that is in no
-- database. The newest key of a project encrypts; older ones still decrypt. An erased key stays as a row
-- without its key: what it encrypted is gone, and the project still stores nothing unencrypted.
create table towpath.payload_key (
    key_id     bigint      generated always as identity primary key,
    project    text        not null,
    wrapped    bytea,
    created_at timestamptz not null default towpath.fn_now(),
    created_by text        not null,
    erased_at  timestamptz,
    erased_by  text,
    constraint payload_key_wrapped_unless_erased_check check ((wrapped is null) = (erased_at is not null)),
    constraint payload_key_erased_who_and_when_check check ((erased_at is null) = (erased_by is null))
);
-- payload_key_project_idx: _payload_key finds the newest key of a project.
create index payload_key_project_idx on towpath.payload_key (project, key_id);

-- Data that jobs name instead of carrying it, partitioned by day of its uuid v7 id: retention drops
-- whole days. Without key_id it is unencrypted.
create table towpath.payload (
    payload_id   uuid        not null,
    project      text        not null,
    key_id       bigint,
    content_type text        not null,
    data         bytea       not null,
    created_at   timestamptz not null,
    created_by   text        not null,
    constraint payload_pk primary key (payload_id)
) partition by range (payload_id);
create table towpath.payload_default partition of towpath.payload default;

-- Schedules ---------------------------------------------------------------------------------

-- A periodic job. Cron arithmetic happens outside; the row holds the next tick and is the
-- lock that makes every tick happen once.
create table towpath.schedule (
    name         towpath.label         primary key,
    expression   towpath.label         not null,
    time_zone    towpath.label         not null default 'UTC',
    -- What to do with ticks missed while nobody ran: skip them, run the last one, run all.
    catch_up     text                  not null default 'last',
    job_kind     towpath.label         not null,
    -- Null: as an enqueue that names none, at every tick.
    executor     towpath.executor_kind,
    event_domain towpath.label,
    source_ref   towpath.reference,
    target_ref   towpath.reference,
    payload_ref  towpath.reference,
    payload_json towpath.signal        not null default '{}',
    priority     towpath.priority      not null default 100,
    max_attempts towpath.attempt_limit,
    paused       boolean               not null default false,
    next_at      towpath.moment        not null,
    last_tick_at towpath.moment,
    last_job_id  uuid,
    changed_by   towpath.label         not null,
    changed_at   timestamptz           not null default towpath.fn_now(),
    constraint schedule_catch_up_check check (catch_up in ('skip', 'last', 'all'))
);
-- schedule_due_idx: fn_schedule_due.
create index schedule_due_idx on towpath.schedule (next_at) where not paused;

insert into towpath.config (key, kind, value, default_value, min_value, max_value, description) values
    ('queue.retry.jitter_ratio', 'number', '0', '0', 0, 1,
     'random extra fraction of every retry delay; 0 for exact delays'),
    ('queue.retention.clean_after_days', 'number', '7', '7', 1, 365,
     'finished jobs older than this show as cleaned'),
    ('queue.retention.drop_after_days', 'number', '14', '14', 1, 366,
     'partitions of jobs older than this are dropped; dead letters stay'),
    ('queue.retention.partitions_ahead_days', 'number', '7', '7', 1, 31,
     'days of partitions to create ahead'),
    ('queue.retention.chart_days', 'number', '7', '7', 1, 90,
     'days to keep per-minute counts for charts'),
    ('payload.retention.drop_after_days', 'number', '30', '30', 1, 3650,
     'stored payloads older than this are dropped, except those that unfinished jobs reference');
