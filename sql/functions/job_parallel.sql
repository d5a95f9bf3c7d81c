-- max_parallel: how many jobs the holders of a counted subscription have under lease (R06).

-- _job_parallel_enter: locks the counted subscriptions among the holders and says how many
-- more jobs each may hold (rooms, negative after a limit was lowered). change_no is the row
-- that said so far what is held; changed: something has been given back since.
--
-- Only releases near the newest are folded, so that a held snapshot cannot make this slow;
-- one that committed late waits for fn_job_parallel_recount, which means fewer jobs in the
-- meantime, never more.
create or replace function towpath._job_parallel_enter(
    p_holders integer[], p_caps integer[],
    out nos integer[], out rooms integer[], out held integer[], out folded_to bigint[], out change_no bigint[],
    out changed boolean[])
    language plpgsql
as $$
declare
    _held integer;
    _released integer;
    _folded_to bigint;
    _top bigint;
    _change_no bigint;
begin
    nos := array(select distinct h from unnest(p_holders) h where h > 0 order by h);
    perform 1 from towpath.job_subscription s where s.subscription_no = any(nos)
      order by s.subscription_no for no key update;
    for _i in 1..cardinality(nos) loop
        select p.held, p.folded_to, p.change_no into _held, _folded_to, _change_no
          from towpath.job_parallel p
         where p.subscription_no = nos[_i] order by p.change_no desc limit 1;
        _folded_to := coalesce(_folded_to, 0);
        with gone as (
            delete from towpath.job_parallel_release r
             where r.subscription_no = nos[_i] and r.release_no > _folded_to - 2000
            returning r.n, r.release_no)
        select coalesce(sum(g.n), 0), max(g.release_no) into _released, _top from gone g;
        held[_i] := coalesce(_held, 0) - _released;
        rooms[_i] := p_caps[array_position(p_holders, nos[_i])] - held[_i];
        folded_to[_i] := greatest(_folded_to, _top);
        change_no[_i] := _change_no;
        changed[_i] := _released > 0;
    end loop;
end;
$$;

-- _job_parallel_leave: writes down what is held now, with the jobs that were just claimed, and what has been folded.
create or replace function towpath._job_parallel_leave(
    p_nos integer[], p_held integer[], p_folded_to bigint[], p_change_no bigint[], p_changed boolean[],
    p_claimed towpath._job_group[]) returns void
    language plpgsql
as $$
declare
    _claimed integer;
begin
    for _i in 1..cardinality(p_nos) loop
        _claimed := (select coalesce(sum(cardinality(c.job_ids)), 0) from unnest(p_claimed) c where c.holder = p_nos[_i]);
        continue when _claimed = 0 and not p_changed[_i];
        insert into towpath.job_parallel (subscription_no, held, folded_to)
        values (p_nos[_i], p_held[_i] + _claimed, p_folded_to[_i]);
        -- The one row that counted before: looking for older ones would walk over dead entries.
        delete from towpath.job_parallel p where p.subscription_no = p_nos[_i] and p.change_no = p_change_no[_i];
    end loop;
end;
$$;
