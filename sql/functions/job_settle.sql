-- Settling: what only the lease ledger knows about an attempt is written into job_live.

-- _job_batches: the entries of the ledger that hold these jobs, newest first; of one owner, or
-- of anybody. Stops when every job is found, which for a live worker is soon.
--
-- Entry by entry from an index, and not by a loop over the query, which would fetch ten ahead:
-- behind the newest entries lie the dead ones of acked claims, and a held snapshot keeps them.
create or replace function towpath._job_batches(p_job_ids uuid[], p_lease_owner text) returns bigint[]
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
as $$
declare
    _ids uuid[] := array(select x from unnest(p_job_ids) x order by x);
    _left integer := cardinality(p_job_ids);
    _batches bigint[] := '{}';
    _entries refcursor;
    _batch record;
    _found integer;
begin
    if p_lease_owner is null then
        open _entries for select b.batch_id, b.job_ids from towpath.lease_batch b
                           where b.attempt is not null order by b.batch_id desc;
    else
        open _entries for select b.batch_id, b.job_ids from towpath.lease_batch b
                           where b.lease_owner = p_lease_owner and b.attempt is not null order by b.batch_id desc;
    end if;
    loop
        fetch _entries into _batch;
        exit when not found;
        continue when _batch.job_ids[1] > _ids[cardinality(_ids)]
                   or _batch.job_ids[cardinality(_batch.job_ids)] < _ids[1];
        _found := (select count(*) from (select unnest(_batch.job_ids) intersect select unnest(_ids)) x);
        if _found > 0 then
            _batches := _batches || _batch.batch_id;
            _left := _left - _found;
            exit when _left <= 0;
        end if;
    end loop;
    close _entries;
    return _batches;
end;
$$;

-- _job_settle: leases of these entries of the ledger -> job_live; of these jobs only, or of all
-- (null). What has ended or is settled already stays as it is, so settling twice is nothing.
--
-- An ack holds its entries by a share lock until it commits, so the two cannot miss each other.
create or replace function towpath._job_settle(p_batches bigint[], p_job_ids uuid[]) returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
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
        _ids := array(select unnest(b.job_ids) from towpath.lease_batch b where b.batch_id = any(p_batches));
    end if;
    with lease as materialized (
        select b.job_ids, b.attempt, b.lease_owner, b.lease_until, b.picked_at, b.subscription_no
          from towpath.lease_batch b
         where b.batch_id = any(p_batches) and b.attempt is not null
         order by b.batch_id for no key update),
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
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    _open uuid[] := array(select v.job_id from towpath.job_live v
                           where v.job_id = any(p_job_ids) and v.state in (0, 3) and v.blocked = 0);
    _batches bigint[];
begin
    if _open <> '{}' then
        _batches := towpath._job_batches(_open, p_lease_owner);
        if _batches <> '{}' then
            perform towpath._job_settle(_batches, _open);
        end if;
    end if;
end;
$$;
