-- Lease entries: the leases of jobs that were claimed together, in one row instead of one each.
--
-- A claim deletes the ready rows of its jobs and writes lease entries: owner, attempt number, until when, which jobs,
-- in the order of their ids. It does not touch job_live. An entry counts for a job while job_live has the job waiting,
-- unblocked and with one attempt less: every other end of a lease raises attempts first, and an ack deletes the
-- row. So a job leaves its entry without the entry being written again, and an attempt ends once.
--
-- Ack whole: an ack that names all jobs of an entry, next to one another and in the order of their ids, reads none of
-- them: as many rows of job_live must go as the entry has jobs (_job_ack_whole). The callers see to it that most acks
-- are such: Database::ack_many sorts what it acks by entry and id, and the worker holds a result back for the rest of
-- its entry, once, and cuts its calls between entries (crates/worker/src/finish.rs).
--
-- Settle: everything else that concerns a held attempt (start, extend, progress, fail, release, snooze, cancel, reap, an
-- ack of some of an entry's jobs) first writes into job_live what the entry says about it, and goes on from there. Both
-- lock the entry before job_live, the ack for itself and settling by a share lock, so that whichever comes second sees
-- what the first did, and those who settle do not wait for one another. Readers do not settle:
-- the view _job_now reads the entries into job_live.
--
-- An entry without an attempt number holds no lease. It only tells the reaper when to look at jobs whose leases are
-- settled: after an extension, or because they were locked when it came by.

-- _lease_entries: the lease entries that have these jobs, newest first; of one owner, or
-- of anybody. Stops when every job is found, which for a live worker is soon.
--
-- Entry by entry from an index, and not by a loop over the query, which would fetch ten ahead:
-- behind the newest entries lie the dead ones of acked claims, and a held snapshot keeps them.
create or replace function towpath._lease_entries(p_job_ids uuid[], p_lease_owner text) returns bigint[]
    language plpgsql stable
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
declare
    _ids uuid[] := array(select x from unnest(p_job_ids) x order by x);
    _left integer := cardinality(p_job_ids);
    _entries bigint[] := '{}';
    _cursor refcursor;
    _entry record;
    _found integer;
begin
    if p_lease_owner is null then
        open _cursor for select e.entry_id, e.job_ids from towpath.lease_entry e
                          where e.attempt is not null order by e.entry_id desc;
    else
        open _cursor for select e.entry_id, e.job_ids from towpath.lease_entry e
                          where e.lease_owner = p_lease_owner and e.attempt is not null order by e.entry_id desc;
    end if;
    loop
        fetch _cursor into _entry;
        exit when not found;
        continue when _entry.job_ids[1] > _ids[cardinality(_ids)]
                   or _entry.job_ids[cardinality(_entry.job_ids)] < _ids[1];
        _found := (select count(*) from (select unnest(_entry.job_ids) intersect select unnest(_ids)) x);
        if _found > 0 then
            _entries := _entries || _entry.entry_id;
            _left := _left - _found;
            exit when _left <= 0;
        end if;
    end loop;
    close _cursor;
    return _entries;
end;
$$;

-- _job_settle: leases of these entries -> job_live; of these jobs only, or of all (null). What has
-- ended or is settled already stays as it is, so settling twice changes nothing.
create or replace function towpath._job_settle(p_entries bigint[], p_job_ids uuid[]) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_nestloop = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _ids uuid[] := p_job_ids;
begin
    if _ids is null then
        _ids := array(select unnest(e.job_ids) from towpath.lease_entry e where e.entry_id = any(p_entries));
    end if;
    with lease as materialized (
        select e.job_ids, e.attempt, e.lease_owner, e.lease_until, e.picked_at, e.subscription_no
          from towpath.lease_entry e
         where e.entry_id = any(p_entries) and e.attempt is not null
         order by e.entry_id for share),
    member as materialized (
        select unnest(l.job_ids) as job_id, l.attempt, l.lease_owner, l.lease_until, l.picked_at, l.subscription_no
          from lease l)
    update towpath.job_live v
       set state = 1, attempts = m.attempt, lease_owner = m.lease_owner, lease_until = m.lease_until,
           picked_at = m.picked_at, subscription_no = m.subscription_no
      from member m
     where v.job_id = any(_ids) and v.job_id = m.job_id
       and v.attempts = m.attempt - 1 and v.state in (0, 3) and v.blocked = 0;
end;
$$;

-- _job_settle_ids: the same by job, for callers that are about to lock or change these rows.
-- Jobs that are settled already cost one look.
create or replace function towpath._job_settle_ids(p_job_ids uuid[], p_lease_owner text) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _open uuid[] := array(select v.job_id from towpath.job_live v
                           where v.job_id = any(p_job_ids) and v.state in (0, 3) and v.blocked = 0);
    _entries bigint[];
begin
    if _open <> '{}' then
        _entries := towpath._lease_entries(_open, p_lease_owner);
        if _entries <> '{}' then
            perform towpath._job_settle(_entries, _open);
        end if;
    end if;
end;
$$;
