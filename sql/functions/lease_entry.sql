-- Lease entries: the leases of jobs that were claimed together, in one row instead of one each.
--
-- A claim deletes the ready rows of its jobs and writes lease entries: owner, attempt number, until when, which jobs,
-- in the order of their ids. It does not touch job_live. An entry holds all of its jobs until it loses all of them at
-- once, in one of two ways. Both take the entry's row for themselves, so whichever comes second sees what the first did,
-- and an attempt ends once.
--
-- Ack whole: an ack that names all jobs of an entry, next to one another and in the order of their ids, deletes the
-- entry and writes their runs (_job_ack_whole). Jobs of a bundle need nothing else; of others the rows of job_live go
-- too. The callers see to it that most acks are such: Database::ack_many sorts what it acks by entry and id, and the
-- worker holds a result back for the rest of its entry, once, and cuts its calls between entries
-- (crates/worker/src/finish.rs).
--
-- Settle: everything else that concerns a held attempt (start, extend, progress, fail, release, snooze, cancel, reap, an
-- ack of some of an entry's jobs) first writes into job_live what the entry says about all of its jobs, and goes on from
-- there. The entry stays without an attempt number: it only tells the reaper when to look. An extension leaves such an
-- entry too. Readers do not settle: the views read the entries themselves.

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

-- _job_settle: writes the leases of these entries into job_live. Entries that are settled already stay as they are.
create or replace function towpath._job_settle(p_entries bigint[]) returns void
    language plpgsql
as $$
declare
    _entry towpath.lease_entry;
begin
    for _entry in
        select e.* from towpath.lease_entry e
         where e.entry_id = any(p_entries) and e.attempt is not null order by e.entry_id for update
    loop
        perform towpath._job_settle_jobs(_entry, _entry.job_ids);
        update towpath.lease_entry e set attempt = null, lease_owner = null, picked_at = null, bundle = false
         where e.entry_id = _entry.entry_id;
    end loop;
end;
$$;

-- _job_settle_jobs: writes into job_live what a locked entry says about these of its jobs; jobs of a bundle get their rows
-- by that. The bounds let the statement open the partitions of these days only.
create or replace function towpath._job_settle_jobs(p_entry towpath.lease_entry, p_job_ids uuid[]) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _low uuid := p_job_ids[1];
    _high uuid := p_job_ids[cardinality(p_job_ids)];
begin
    if p_entry.bundle then
        insert into towpath.job_live (job_id, due_at, lane, max_attempts, state, attempts, lease_owner, lease_until,
            picked_at, subscription_no)
        select j.job_id, least(j.scheduled_at, p_entry.picked_at), p_entry.lane, j.max_attempts, 1, p_entry.attempt,
               p_entry.lease_owner, p_entry.lease_until, p_entry.picked_at, p_entry.subscription_no
          from towpath.job j
         where j.job_id = any(p_job_ids) and j.job_id >= _low and j.job_id <= _high;
    else
        update towpath.job_live v
           set state = 1, attempts = p_entry.attempt, lease_owner = p_entry.lease_owner,
               lease_until = p_entry.lease_until, picked_at = p_entry.picked_at,
               subscription_no = p_entry.subscription_no
         where v.job_id = any(p_job_ids);
    end if;
end;
$$;

-- _job_settle_ids: settles whatever entries hold these jobs, of one owner or of anybody, for callers that are about to lock
-- or change their rows. Jobs that are settled already cost one look.
create or replace function towpath._job_settle_ids(p_job_ids uuid[], p_lease_owner text) returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off
as $$
declare
    _open uuid[] := array(select x.job_id
                            from unnest(p_job_ids) as x(job_id) left join towpath.job_live v on v.job_id = x.job_id
                           where v.job_id is null or v.state in (0, 3) and v.blocked = 0);
begin
    if _open <> '{}' then
        perform towpath._job_settle(towpath._lease_entries(_open, p_lease_owner));
    end if;
end;
$$;

-- _job_set_apart: sees to it that an unfinished job has a row in job_live; false if the job has ended, or never was. If a
-- transaction holds its bundle, this waits for it; then the job may be somewhere else, so this looks again.
create or replace function towpath._job_set_apart(p_job_id uuid) returns boolean
    language plpgsql
as $$
begin
    for _try in 1..1000 loop
        perform towpath._job_settle_ids(array[p_job_id], null);
        if exists (select 1 from towpath.job_live v where v.job_id = p_job_id)
           or towpath._job_ready_set_apart(p_job_id) then
            return true;
        elsif not towpath._job_unfinished(p_job_id) then
            return false;
        end if;
    end loop;
    raise exception 'job % is unfinished but in no place', p_job_id;
end;
$$;

-- _job_unfinished: whether a job is there and has not ended. A job that is not set apart has no run before its end.
create or replace function towpath._job_unfinished(p_job_id uuid) returns boolean
    language sql stable
as $$
    select exists (select 1 from towpath.job_live v where v.job_id = p_job_id)
        or exists (select 1 from towpath.job j where j.job_id = p_job_id)
           and not exists (select 1 from towpath._job_runs(p_job_id))
$$;
