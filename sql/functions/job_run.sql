-- Runs: ended attempts. A row of job_run is one job's, or is shared by jobs of a lease entry that was acked whole.

-- _run_reach: the highest id that a run with this job in it can have.
create or replace function towpath._run_reach(p_job_id uuid) returns uuid
    language sql immutable parallel safe
    return (lpad(to_hex(least(('x' || left(replace(p_job_id::text, '-', ''), 12))::bit(48)::bigint + towpath._run_span_ms(),
                              281474976710655)), 12, '0') || 'ffffffffffffffffffff')::uuid;

-- _run_shared: whether these jobs, in the order of their ids, may share a row. Few gain nothing by it, and
-- ids far apart would make every row between them a row to look into.
create or replace function towpath._run_shared(p_job_ids uuid[]) returns boolean
    language sql immutable parallel safe
    return cardinality(p_job_ids) >= towpath._run_jobs_min() and p_job_ids[cardinality(p_job_ids)] <= towpath._run_reach(p_job_ids[1]);

-- _job_runs: the ended attempts of one job. A job has at most one shared row, because that is its last.
create or replace function towpath._job_runs(p_job_id uuid)
    returns table (
        attempt integer, refunded integer, picked_at timestamptz, finished_at timestamptz, outcome text,
        lease_owner text, ended_by text, error text, result jsonb)
    language sql stable parallel safe
as $$
    select r.attempt::integer, r.refunded::integer, r.picked_at, r.finished_at, r.outcome::text, r.lease_owner, r.ended_by,
           r.error, r.result
      from towpath.job_run r where r.job_id = p_job_id and r.job_ids is null
    union all
    (select r.attempt::integer, r.refunded::integer, r.picked_at, r.finished_at, r.outcome::text, r.lease_owner, r.ended_by,
            r.error, r.result
       from towpath.job_run r
      where r.job_ids is not null and r.job_id >= p_job_id and r.job_id <= towpath._run_reach(p_job_id)
        and r.job_ids[1] <= p_job_id and p_job_id = any(r.job_ids)
      order by r.job_id limit 1)
$$;
