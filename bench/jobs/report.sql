-- Reads a results file on standard input and prints its table: medians over the rounds,
-- and in parentheses how many times Towpath's figure that is.

create temp table line (data jsonb);
-- No quote and no delimiter that JSON could contain: one line, one value.
\copy line from pstdin with (format csv, quote E'\x01', delimiter E'\x02')

create temp view measured as
select data ->> 'peer' as peer, data ->> 'measure' as measure,
       percentile_cont(0.5) within group (order by jobs / nullif(seconds, 0)) as per_second,
       percentile_cont(0.5) within group (order by 1e6 * server / jobs) as server_us,
       percentile_cont(0.5) within group (order by 1e6 * client / jobs) as client_us,
       percentile_cont(0.5) within group (order by wal / jobs) as wal_bytes,
       percentile_cont(0.5) within group (order by p50) as p50_ms,
       percentile_cont(0.5) within group (order by p99) as p99_ms
  from line
 cross join lateral jsonb_to_record(jsonb_build_object(
       'jobs', data -> 'jobs', 'seconds', data -> 'seconds', 'server', data -> 'server_cpu_seconds',
       'client', data -> 'client_cpu_seconds', 'wal', data -> 'wal_bytes',
       'p50', data -> 'p50_ms', 'p99', data -> 'p99_ms'))
       as n (jobs float8, seconds float8, server float8, client float8, wal float8, p50 float8, p99 float8)
 where data ? 'measure' and not data ? 'failed'
 group by 1, 2;

-- One row per cell of the table, n in the order of the columns.
create temp view cell as
select peer, n, title, value
  from measured
 cross join lateral (values
       ('single', 1, 'single enqueue/s', per_second),
       ('batch', 2, 'batch enqueue/s', per_second),
       ('process', 3, 'processed/s', per_second),
       ('single', 4, 'server µs: single', server_us),
       ('batch', 5, 'batch', server_us),
       ('process', 6, 'process', server_us),
       ('process', 7, 'client µs: process', client_us),
       ('batch', 8, 'WAL bytes: batch', wal_bytes),
       ('process', 9, 'process', wal_bytes),
       ('pickup', 10, 'pick-up ms: p50', p50_ms),
       ('pickup', 11, 'p99', p99_ms)) as c (of_measure, n, title, value)
 where of_measure = measure;

\echo
select format('%s, PostgreSQL %s, commit %s; %s jobs, %s s of single enqueues, %s pick-ups',
              data ->> 'machine', data ->> 'postgres', data ->> 'commit', data ->> 'jobs',
              data ->> 'seconds', data ->> 'samples')
  from line
 where data ? 'machine';
select format('%s rounds, load %s to %s, CPU taken by others: median %s %%, most %s %%',
              max((data ->> 'round')::int), min((data ->> 'load')::numeric), max((data ->> 'load')::numeric),
              percentile_disc(0.5) within group (order by (data ->> 'others_percent')::int),
              max((data ->> 'others_percent')::int))
  from line
 where data ? 'measure';
select format('FAILED in round %s: %s, %s', data ->> 'round', data ->> 'peer', data ->> 'measure')
  from line
 where data ? 'failed';
\echo

select '| peer | ' || string_agg(title, ' | ' order by n) || ' |' || E'\n|---' || repeat('|--:', count(*)::int) || '|'
  from (select distinct n, title from cell) as title;
select '| ' || peer || ' | '
       || string_agg(
              coalesce(to_char(value, case when value < 100 then 'FM990.0' else 'FM9,999,990' end), '–')
              || case when peer <> 'towpath' and ratio is not null
                      then to_char(ratio, case when ratio < 10 then '" ("FM990.00"×)"' else '" ("FM9,990"×)"' end)
                      else '' end,
              ' | ' order by n)
       || ' |'
  from (select cell.*, value / nullif(max(value) filter (where peer = 'towpath') over (partition by n), 0) as ratio
          from cell) as cell
 group by peer
 order by peer <> 'towpath', max(value) filter (where n = 3) desc nulls last;
