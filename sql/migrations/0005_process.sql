-- Processes: business work that is watched until it has ended, and the errors of tasks.
--
-- A process is a row, its facts, and a supervisor that decides what comes next:
--   process_kind     how processes of a kind are supervised and what an attempt of theirs is
--   process          one row per process: its state, when to look at it again, its deadline
--   process_attempt  one row per attempt: a job, begun by one worker, held by a lease
--   process_fact     what happened, append-only: results of steps, signals, one terminal fact per process
--
-- Life of a process (facts in quotes):
--   start            ─▶ open: "started"
--   attempt          open: "scheduled", a job is enqueued; at most one attempt is outstanding
--   begin            the worker that runs the job takes the attempt, once: "begun"
--   end              accepted ─▶ succeeded; otherwise "failed" or "uncertain", and the supervisor decides
--   step             "stepped": the first result recorded under a name stays; later attempts get it
--   wait             the attempt ends as suspended: "suspended"; no failure, and it does not count
--   signal           "signalled": the first one of a name stays, whether or not somebody waits for it
--   lease runs out   "lost": the worker died, or the job never ran
--   hold, resolve    open ─▶ held: "held", an operator decides; held ─▶ open or ended: "resolved"
--   terminal         "succeeded", "gave_up", "cancelled", "invalid"; the deadline ends in "gave_up"
--   after the end    an outcome that comes too late is "late" and changes no state but one: an
--                    acceptance of a lost attempt ends an unfinished process as succeeded
--
-- Nothing depends on a task surviving: fn_process_scan looks at every process whose next_check_at
-- has come. Lock order: process, then its attempts and facts, then jobs.

-- How processes of a kind are supervised. The functions are named schema.function and resolved
-- when they are called, by the rules of run_function.
create table towpath.process_kind (
    process_kind     towpath.label primary key,
    -- Who runs an attempt. function: the SQL function db_function, with steps. handler: a worker's handler, with
    -- steps, in any language. task: a job with handlers of the kind around it, as comms has, or a program outside.
    runs_as          text        not null default 'task',
    -- Decides what comes next. Null: a program outside the database does (fn_process_due).
    supervisor       text,
    -- Called with every fact, in its transaction; stores what the kind needs of it.
    recorder         text,
    -- The kind of the job that is an attempt, and what stands in its payload.
    task_kind        towpath.label not null,
    db_function      text,
    before_handler   text,
    success_handler  text,
    error_handler    text,
    -- The payload's name for the process's ref: send_email_task_id.
    ref_field        text        not null default 'ref',
    max_attempts     integer     not null default 5,
    -- How long a begun attempt may take before it counts as lost.
    lease_seconds    integer     not null default 120,
    -- How long a job may wait to be begun before somebody looks whether it still exists.
    pickup_seconds   integer     not null default 600,
    -- From the start, or from the moment it was scheduled for.
    deadline_seconds integer     not null default 86400,
    -- When to look again if the supervisor named no time, or failed.
    check_seconds    integer     not null default 30,
    backoff_seconds  integer     not null default 10,
    -- What to do when it is not known whether an attempt took effect and the other side does not
    -- honour the key: retry, or hold it for an operator.
    on_uncertain     text        not null default 'hold',
    changed_by       towpath.label not null,
    changed_at       timestamptz not null default towpath.fn_now(),
    constraint process_kind_ref_field_check check (ref_field ~ '^[a-z_][a-z0-9_]{0,62}$'
        and ref_field not in ('task_type', 'process_id', 'attempt_no', 'db_function', 'before_handler',
                              'success_handler', 'error_handler', 'worker')),
    constraint process_kind_max_attempts_positive_check check (max_attempts between 1 and 1000),
    constraint process_kind_lease_positive_check check (lease_seconds between 1 and 86400),
    constraint process_kind_pickup_positive_check check (pickup_seconds between 1 and 86400),
    constraint process_kind_deadline_positive_check check (deadline_seconds between 1 and 31536000),
    constraint process_kind_check_positive_check check (check_seconds between 1 and 86400),
    constraint process_kind_backoff_check check (backoff_seconds between 0 and 86400),
    constraint process_kind_on_uncertain_check check (on_uncertain in ('retry', 'hold')),
    constraint process_kind_runs_as_check check (runs_as in ('task', 'function', 'handler')),
    constraint process_kind_steps_are_general_check check (runs_as = 'task'
        or supervisor = 'towpath.process_supervisor' and recorder is null and before_handler is null
           and success_handler is null and error_handler is null and (runs_as = 'function') = (db_function is not null) and supervisor is not null)
);

-- What a process is called by, the states it has, the outcomes of its attempts and its facts. Domains, as towpath.result.
create domain towpath.ref_label as text
    constraint ref_label_short_and_plain_check check (towpath._key_fits(value) and octet_length(value) <= 500);
create domain towpath.process_state as text
    constraint process_state_check check (value in ('open', 'held', 'succeeded', 'gave_up', 'cancelled', 'invalid'));
create domain towpath.attempt_outcome as text
    constraint attempt_outcome_check check (value in
        ('accepted', 'transient', 'permanent', 'uncertain', 'lost', 'superseded', 'suspended'));
create domain towpath.fact as text
    constraint fact_check check (value in ('started', 'scheduled', 'begun', 'stepped', 'suspended', 'signalled',
        'failed', 'uncertain', 'lost', 'held', 'resolved', 'late', 'succeeded', 'gave_up', 'cancelled', 'invalid'));

-- A process. It is looked at when next_check_at has come, and ended at the latest by its
-- deadline. One per kind and ref, forever: starting it again finds it.
--
-- No foreign keys here and below: nothing deletes kinds or processes, and every writer of an attempt or a fact has locked
-- the process. Checking seven rows of every process again was a fifth of what it cost the database.
create table towpath.process (
    process_id    uuid                  primary key,
    process_kind  towpath.label         not null,
    ref           towpath.ref_label     not null,
    state         towpath.process_state not null default 'open',
    -- Whether a function supervises it; copied, so that the scan reads one index.
    in_database   boolean               not null,
    next_check_at towpath.moment,
    deadline_at   towpath.moment        not null,
    max_attempts  towpath.attempt_limit not null,
    started_by    towpath.label         not null,
    started_at    timestamptz           not null,
    finished_at   timestamptz,
    -- What it was started with. What it came to is the value of its terminal fact.
    input         towpath.result,
    -- The signal that a suspended process waits for.
    waits_for     towpath.long_label,
    -- The process that waits for the end of this one.
    parent_id     uuid,
    constraint process_ref_uq unique (process_kind, ref),
    constraint process_finished_iff_terminal_check check ((state in ('open', 'held')) = (finished_at is null)),
    constraint process_checked_iff_unfinished_check check ((finished_at is null) = (next_check_at is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- process_due_idx: fn_process_scan.
create index process_due_idx on towpath.process (next_check_at) where finished_at is null and in_database;
-- process_due_outside_idx: fn_process_due.
create index process_due_outside_idx on towpath.process (process_kind, next_check_at)
    where finished_at is null and not in_database;
-- process_deadline_idx: fn_process_scan ends what nobody outside has ended.
create index process_deadline_idx on towpath.process (deadline_at) where finished_at is null and not in_database;
-- process_unfinished_idx: fn_process_list and the views by state.
create index process_unfinished_idx on towpath.process (state, process_id) where finished_at is null;

-- An attempt. Its number is the fence: it is begun once, so at most one worker ever holds it,
-- and a worker that comes back after the lease finds the outcome lost.
create table towpath.process_attempt (
    process_id   uuid                    not null,
    attempt_no   towpath.positive_number not null,
    job_id       uuid                    not null,
    scheduled_at timestamptz             not null,
    due_at       towpath.moment          not null,
    begun_at     timestamptz,
    worker       towpath.long_label,
    -- Whether the other side takes the same key twice for one: then repeating is safe.
    key_honoured boolean                 not null default false,
    -- Until it is begun: when to look whether the job still exists. From then on: the lease.
    lease_until  timestamptz             not null,
    outcome      towpath.attempt_outcome,
    ended_at     timestamptz,
    -- The other side asked not to be tried before; or, of a suspended attempt, the end of the wait.
    retry_at     timestamptz,
    constraint process_attempt_pk primary key (process_id, attempt_no),
    constraint process_attempt_ended_together_check check ((outcome is null) = (ended_at is null)),
    constraint process_attempt_begun_together_check check ((begun_at is null) = (worker is null)),
    constraint process_attempt_accepted_was_begun_check check (outcome <> 'accepted' or begun_at is not null)
) with (fillfactor = 70);
-- process_attempt_outstanding_uq: at most one attempt of a process is outstanding (P07).
create unique index process_attempt_outstanding_uq on towpath.process_attempt (process_id) where outcome is null;

-- A fact. fact_no counts up per process; the newest number is the process's generation.
create table towpath.process_fact (
    process_id  uuid                    not null,
    fact_no     towpath.positive_number not null,
    fact        towpath.fact            not null,
    attempt_no  integer,
    detail      towpath.signal          not null default '{}',
    actor       towpath.long_label      not null,
    recorded_at timestamptz             not null,
    -- Of a step, a wait or a signal: what it is called.
    -- value: the result of a step or of the process, or the payload of a signal.
    name        towpath.long_label,
    value       towpath.result,
    constraint process_fact_pk primary key (process_id, fact_no),
    constraint process_fact_of_attempt_check check (attempt_no is not null
        or fact not in ('scheduled', 'begun', 'stepped', 'suspended', 'failed', 'uncertain', 'lost', 'late')),
    constraint process_fact_named_check check ((name is not null) = (fact in ('stepped', 'suspended', 'signalled')))
);
-- process_fact_terminal_uq: exactly one end per process, whatever races (P06).
create unique index process_fact_terminal_uq on towpath.process_fact (process_id)
    where fact in ('succeeded', 'gave_up', 'cancelled', 'invalid');
-- process_fact_named_uq: the first result of a step and the first signal of a name are the only ones (P13, P15).
create unique index process_fact_named_uq on towpath.process_fact (process_id, fact, name)
    where fact in ('stepped', 'signalled');
-- process_fact_attempt_uq: a fact about an attempt is stated once; of steps an attempt records many.
create unique index process_fact_attempt_uq on towpath.process_fact (process_id, attempt_no, fact)
    where attempt_no is not null and fact <> 'stepped';
-- process_fact_outcome_uq: and an attempt fails, is lost or uncertain only once altogether.
create unique index process_fact_outcome_uq on towpath.process_fact (process_id, attempt_no)
    where fact in ('failed', 'uncertain', 'lost');

create trigger process_fact_append_only before update or delete or truncate on towpath.process_fact
    for each statement execute function towpath._append_only();

-- What went wrong in a task, a handler or a supervisor (P05). Append-only; ids and context make
-- it possible to find what it was about.
create table towpath.task_error (
    task_error_id bigint         generated always as identity primary key,
    recorded_at   timestamptz    not null default towpath.fn_now(),
    kind          text           not null,
    message       text           not null,
    job_id        uuid,
    job_attempt   integer,
    task_type     text,
    function_name text,
    process_id    uuid,
    attempt_no    integer,
    context       towpath.signal not null default '{}',
    db_user       text           not null default session_user,
    constraint task_error_kind_check check (kind in ('validation', 'operational', 'provider', 'refused', 'supervisor')),
    constraint task_error_message_check check (btrim(message) <> '' and length(message) <= 4000)
);
-- task_error_process_idx: fn_task_error_list and fn_process_show.
create index task_error_process_idx on towpath.task_error (process_id, task_error_id) where process_id is not null;
-- task_error_job_idx: fn_task_error_list.
create index task_error_job_idx on towpath.task_error (job_id, task_error_id) where job_id is not null;

create trigger task_error_append_only before update or delete or truncate on towpath.task_error
    for each statement execute function towpath._append_only();

insert into towpath.config (key, kind, value, default_value, min_value, max_value, description) values
    ('process.enabled', 'gate', 'false', 'false', null, null,
     'enables starting and supervising processes and starting attempts; outcomes are recorded even while it is closed');
