-- Every bound of the job functions that is more than one function's business, each with its reason.

-- _ready_jobs_max: how many jobs share a ready row at most. Fewer than a claim usually takes, so that what it puts back
-- is little; 8 and 64 measured the same.
create or replace function towpath._ready_jobs_max() returns integer
    language sql immutable parallel safe
    return 16;

-- _ready_ids_span: within what time the ids of a ready row were made, at most. They come from one call, which makes them
-- microseconds apart.
create or replace function towpath._ready_ids_span() returns interval
    language sql immutable parallel safe
    return interval '1 second';

-- _entry_jobs_max: how many jobs share a lease entry at most. Larger entries are acked whole less often; two of these
-- fill a page.
create or replace function towpath._entry_jobs_max() returns integer
    language sql immutable parallel safe
    return 240;

-- _run_jobs_min: how many jobs share a run at least. Fewer gain nothing by it.
create or replace function towpath._run_jobs_min() returns integer
    language sql immutable parallel safe
    return 16;

-- _run_span_ms: within how many milliseconds the ids of a shared run were made, at most: a job's run is looked for so far
-- ahead of its id.
create or replace function towpath._run_span_ms() returns bigint
    language sql immutable parallel safe
    return 10000;

-- _claim_lanes_max: with more lanes a claim asks first which of them have something due.
create or replace function towpath._claim_lanes_max() returns integer
    language sql immutable parallel safe
    return 32;

-- _ids_dense: whether ids, in their order, lie so close together that reading all rows between the first and the last is
-- cheaper than looking each of them up: 20,000 or more to the second in which they were made.
create or replace function towpath._ids_dense(p_ids uuid[]) returns boolean
    language sql immutable parallel safe
    return towpath._uuid7_at(p_ids[cardinality(p_ids)]) - towpath._uuid7_at(p_ids[1])
        <= cardinality(p_ids) * interval '50 microseconds';
