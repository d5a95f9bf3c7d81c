-- Few statistics, and none on what nobody plans by.
--
-- The functions of the queue run by plans that do not look at values, so a sample of 3,000 rows (a target of 10) is plenty.
-- With the default, ANALYZE sorted 30,000 payloads and keys by value and counted the ids in every list of jobs: half a
-- second of CPU after 300,000 jobs, and when autovacuum comes by is when the queue is busy.

-- Holds for the partitions that exist; _job_partition_ensure hands it on to new ones.
alter table towpath.job
    alter column job_id set statistics 10,
    alter column job_kind set statistics 10,
    alter column executor set statistics 10,
    alter column event_domain set statistics 10,
    alter column priority set statistics 10,
    alter column scheduled_at set statistics 10,
    alter column max_attempts set statistics 10,
    alter column actor set statistics 10,
    alter column created_at set statistics 10,
    alter column payload_json set statistics 0,
    alter column idempotency_key set statistics 0,
    alter column source_ref set statistics 0,
    alter column target_ref set statistics 0,
    alter column payload_ref set statistics 0,
    alter column run_id set statistics 0,
    alter column traceparent set statistics 0,
    alter column login set statistics 0;
alter table towpath.job_run
    alter column job_id set statistics 10,
    alter column attempt set statistics 10,
    alter column refunded set statistics 10,
    alter column picked_at set statistics 10,
    alter column finished_at set statistics 10,
    alter column outcome set statistics 10,
    alter column lease_owner set statistics 10,
    alter column ended_by set statistics 10,
    alter column job_ids set statistics 0,
    alter column error set statistics 0;
alter table towpath.job_live
    alter column job_id set statistics 10,
    alter column due_at set statistics 10,
    alter column lease_until set statistics 10,
    alter column picked_at set statistics 10,
    alter column lane set statistics 10,
    alter column attempts set statistics 10,
    alter column max_attempts set statistics 10,
    alter column blocked set statistics 10,
    alter column subscription_no set statistics 10,
    alter column state set statistics 10,
    alter column refunded set statistics 10,
    alter column has_children set statistics 10,
    alter column lease_owner set statistics 10,
    alter column progress_percent set statistics 10,
    alter column progress_at set statistics 10,
    alter column touched_at set statistics 0,
    alter column key_hash set statistics 0,
    alter column progress_note set statistics 0;
alter table towpath.job_ready
    alter column lane set statistics 10,
    alter column due_at set statistics 10,
    alter column job_id set statistics 10,
    alter column attempts set statistics 10,
    alter column refunded set statistics 10,
    alter column moved set statistics 10;
alter table towpath.lease_batch
    alter column job_ids set statistics 0;
