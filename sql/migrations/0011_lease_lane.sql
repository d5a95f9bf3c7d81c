-- Entries of the ledger say enough that an ack of all their jobs reads none of them.
--
-- An entry has one lane and one number of refunds now, and knows how long its jobs had waited when they were
-- claimed. docs/decisions/0010-whole-entries.md has the numbers.

-- Null in entries from before this migration: they are acked job by job.
alter table towpath.lease_batch
    add column lane     integer,
    add column refunded integer,
    -- Of all its jobs together.
    add column wait_ms  double precision;

-- True if due_at is not the job's scheduled_at; null costs no space. A claim of jobs that have neither moved
-- nor run need not carry their due times to the rows it answers with.
alter table towpath.job_ready add column moved boolean;
update towpath.job_ready r set moved = true;

drop function if exists towpath._job_ledger_enter(uuid[], integer[], integer[], text, timestamptz, timestamptz);
