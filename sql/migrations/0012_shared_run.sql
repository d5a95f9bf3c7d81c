-- One run row for all jobs of an entry of the ledger that was acked whole.
--
-- Such jobs were claimed together, ran as the same attempt under the same owner and ended together, so their rows
-- differed in nothing but the id. docs/decisions/0011-shared-runs.md has the numbers.

-- All jobs this row stands for, in the order of their ids; job_id is the last of them. Null if it stands for
-- one. Only a success is shared, which is a job's last run.
alter table towpath.job_run add column job_ids uuid[];

-- Two rows of 240 jobs fill a page, as in lease_batch.
do $$
declare
    _partition regclass;
begin
    for _partition in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'towpath.job_run'::regclass loop
        execute format('alter table %s set (toast_tuple_target = 8160)', _partition);
    end loop;
end;
$$;

-- job_run_shared_idx: _job_runs and fn_job_list look from a job's id upward for the row that has it.
create index job_run_shared_idx on towpath.job_run (job_id, (job_ids[1])) where job_ids is not null;

drop function if exists towpath._job_ack_whole(uuid[], towpath.lease_batch, double precision, timestamptz);
