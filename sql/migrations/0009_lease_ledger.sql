-- The lease ledger: a claim writes its leases down once per batch, not once per job.
--
-- Until now a claim updated every job's row in job_live. Now it inserts rows into lease_batch
-- that name owner, attempt and jobs, and leaves job_live alone; an ack deletes from job_live
-- what the ledger says the owner holds. Anything else that concerns a held attempt (start,
-- extend, progress, fail, release, snooze, cancel, reap) first settles it: writes into
-- job_live what the ledger says, and goes on from there (_job_settle).
--
-- An entry of the ledger counts for a job while job_live has the job with one attempt less,
-- waiting and unblocked. Every way out of a lease other than an ack raises attempts first, and
-- an ack deletes the row, so an entry counts once and needs no rewriting when jobs leave it.
-- docs/decisions/0009-lease-ledger.md has the numbers.

-- What a claim has to say about a job without reading job_live.
alter table towpath.job_ready
    add column attempts integer not null default 0,
    add column refunded integer not null default 0;
update towpath.job_ready r set attempts = v.attempts, refunded = v.refunded
  from towpath.job_live v where v.job_id = r.job_id and v.attempts > 0;

-- Whoever makes a job ready has to say it: a wrong number would be a lease nobody can end.
alter table towpath.job_ready alter column attempts drop default, alter column refunded drop default;

-- With an attempt, an entry is a claim's: jobs in the order of their ids, one owner, one
-- attempt number, one subscription. Without, it is only on the reaper's agenda: an extension,
-- or leases taken before this migration, which are in job_live.
alter table towpath.lease_batch
    add column attempt         integer,
    add column lease_owner     towpath.long_label,
    add column picked_at       timestamptz,
    add column subscription_no integer,
    add constraint lease_batch_claim_whole_check check (
        (attempt is null) = (lease_owner is null) and (attempt is null) = (picked_at is null));
-- Two entries of 240 jobs fill a page: they are read far more often than written.
alter table towpath.lease_batch set (toast_tuple_target = 8160);
alter table towpath.lease_batch drop constraint lease_batch_pkey;
alter table towpath.lease_batch add primary key (batch_id);
-- lease_batch_until_idx: fn_job_reap takes what runs out first.
create index lease_batch_until_idx on towpath.lease_batch (lease_until, batch_id);
-- lease_batch_owner_idx: _job_batches looks an owner's entries up, newest first.
create index lease_batch_owner_idx on towpath.lease_batch (lease_owner, batch_id) where attempt is not null;

-- Claims do not update the rows any more, so they need not leave room for it.
alter table towpath.job_live set (fillfactor = 80);

-- Who paused and resumed a kind, and when. Append-only; job_pause says how it is now.
create table towpath.job_pause_log (
    log_id   bigint        generated always as identity primary key,
    at       timestamptz   not null,
    job_kind towpath.label not null,
    action   text          not null,
    actor    towpath.label not null,
    reason   text,
    constraint job_pause_log_action_check check (action in ('pause', 'resume'))
);
insert into towpath.job_pause_log (at, job_kind, action, actor, reason)
select p.paused_at, p.job_kind, 'pause', p.paused_by, p.reason from towpath.job_pause p order by p.paused_at;
create trigger job_pause_log_append_only before update or delete on towpath.job_pause_log
    for each statement execute function towpath._append_only();

-- Its result has another column now, which replacing cannot change.
drop function if exists towpath.fn_job_claim_rows(text, text[], integer, text, integer);
