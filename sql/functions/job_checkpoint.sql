-- Checkpoints: a small cursor that an attempt of a plain job leaves for the next one. For more, write a process.

-- fn_job_checkpoint: stores where an attempt has got to; null removes it. At most 4 KiB.
--
-- Answers: {ok, job_id}; gate_closed, invalid, lease_lost.
create or replace function towpath.fn_job_checkpoint(
    p_job_id uuid, p_lease_owner text, p_attempt integer, p_checkpoint jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
    set jit = off
    set enable_seqscan = off
as $$
declare
    _refusal jsonb := towpath._gate_refusal('queue.job_substrate.enabled');
begin
    if _refusal is not null then
        return _refusal;
    end if;
    if octet_length(p_checkpoint::text) > 4096 or not towpath._result_fits(p_checkpoint) then
        return towpath._invalid('checkpoint', 'must have at most 4 KiB; store more with towpath.payload_put and keep its reference');
    end if;
    if towpath._job_lock_held(array[p_job_id], p_lease_owner, array[p_attempt]) = '{}' then
        return towpath._job_lost(p_job_id);
    end if;
    update towpath.job_live v set checkpoint = p_checkpoint where v.job_id = p_job_id;
    return jsonb_build_object('ok', true, 'job_id', p_job_id);
end;
$$;

-- fn_job_checkpoints: what earlier attempts of these jobs left, for the owner that holds them. At most 1,000.
--
-- Answers: {ok, checkpoints: {job_id: checkpoint}}; invalid.
create or replace function towpath.fn_job_checkpoints(p_job_ids uuid[], p_lease_owner text) returns jsonb
    language plpgsql stable security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
begin
    if coalesce(cardinality(p_job_ids), 0) > 1000 then
        return towpath._invalid('job_ids', 'must be at most 1000 ids');
    end if;
    return jsonb_build_object('ok', true, 'checkpoints', (
        select coalesce(jsonb_object_agg(v.job_id, v.checkpoint), '{}') from towpath.job_live v
         where v.job_id = any (p_job_ids) and v.checkpoint is not null
           and exists (select 1 from towpath._job_now_of(v.job_id) n where n.lease_owner = p_lease_owner
                          and n.state in (1, 2))));
end;
$$;

grant execute on function towpath.fn_job_checkpoint(uuid, text, integer, jsonb),
    towpath.fn_job_checkpoints(uuid[], text) to worker_service_user;
