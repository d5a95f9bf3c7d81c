-- Deliveries to streams: what routes have for a stream, counted per route and stream (E08).
--
-- The number is given in the transaction of the pass, under the lock of route_stream, and the
-- lock lasts to the commit: so numbers are dense and become visible in their order. The sender
-- appends in that order and names the number as the epoch of an idempotent producer. A repeated
-- append is then a duplicate or fenced off, even if a sender died or lost its lease in between. A stream that
-- knows a higher number than last_number shows that the database was restored: the route continues as a
-- new producer, or its new events would be taken for the lost ones.
--
-- Lock order: route_stream comes with delivery_target (5), stream_delivery with delivery (6).

-- A stream that a route writes to. The lease is on all of it: one sender at a time. attempts counts
-- leases and with the owner is the fence.
create table towpath.route_stream (
    route_stream_no integer     generated always as identity primary key,
    route_no        integer     not null references towpath.outbound_route,
    project         text        not null,
    stream          text        not null,
    -- Under which name the route appends.
    producer        uuid        not null default gen_random_uuid(),
    last_number     bigint      not null default 0,
    attempts        integer     not null default 0,
    -- Failed appends since the last that worked.
    failures        integer     not null default 0,
    lease_owner     text,
    lease_until     timestamptz,
    next_at         timestamptz not null default '-infinity',
    last_error      text,
    constraint route_stream_uq unique (route_no, project, stream),
    constraint route_stream_project_not_blank_check check (btrim(project) <> ''),
    constraint route_stream_stream_not_blank_check check (btrim(stream) <> ''),
    constraint route_stream_counts_not_negative_check check (last_number >= 0 and attempts >= 0 and failures >= 0),
    constraint route_stream_lease_pair_check check ((lease_owner is null) = (lease_until is null)),
    constraint route_stream_owner_not_blank_check check (btrim(lease_owner) <> '')
) with (fillfactor = 50);

-- An event on its way into a stream. Deleted at its end: delivery_attempt has the history.
create table towpath.stream_delivery (
    route_stream_no integer     not null references towpath.route_stream,
    number          bigint      not null,
    delivery_id     uuid        not null,
    route_no        integer     not null,
    position        bigint      not null,
    event_id        uuid        not null,
    generation      integer     not null,
    event           jsonb       not null,
    recipients      text[],
    created_at      timestamptz not null,
    constraint stream_delivery_pk primary key (route_stream_no, number),
    constraint stream_delivery_once_uq unique (position, route_no, generation),
    constraint stream_delivery_number_positive_check check (number > 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
