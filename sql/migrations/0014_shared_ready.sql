-- One ready row for up to sixteen jobs that were enqueued together.
--
-- New jobs of one call, one lane and one due time differ in nothing but the id. docs/decisions/0012-shared-ready-rows.md has
-- the numbers.

-- All jobs this row stands for, in the order of their ids; job_id is the first of them. Null if it stands for
-- one. Whoever wants a part of them puts the others back one by one.
alter table towpath.job_ready add column job_ids uuid[];
alter table towpath.job_ready alter column job_ids set statistics 0;
