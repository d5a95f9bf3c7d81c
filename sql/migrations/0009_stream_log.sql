-- Streams in this database: the log of commits that the nodes of a stream store share (S04), and the intake, where
-- any transaction leaves messages for streams (S07).
--
-- A commit is one group of changes, in the bytes of the store's own records. Its number is the fence: of two nodes
-- that plan commit n, one inserts the row, and the other finds it taken, applies it and plans again. Nothing here
-- knows what a stream is. docs/decisions/0018 says why.

-- The log itself: one per database.
create table towpath.stream_log (
    is_only    boolean     primary key default true,
    -- Which log this is: a node that has applied another one drops what it has.
    log_id     uuid        not null default gen_random_uuid(),
    -- A commit that a retry found is settled by writing here: the transaction that answers is then a later one.
    settled    bigint      not null default 0,
    created_at timestamptz not null default now(),
    -- Which node serves, until when. This is advice that spares nodes the fence; the number of a commit decides.
    node       uuid,
    address    text,
    until      timestamptz,
    constraint stream_log_only_check check (is_only),
    constraint stream_log_lease_check check ((node is null) = (until is null) and (node is null) = (address is null))
) with (fillfactor = 50);

-- One commit. The chain is a checksum over the chain before it and the body, so two nodes with one chain have applied
-- the same bytes. The writer is the process that made it.
create table towpath.stream_commit (
    number bigint not null,
    chain  bigint not null,
    writer uuid   not null,
    body   bytea  not null,
    constraint stream_commit_pk primary key (number),
    constraint stream_commit_number_positive_check check (number > 0)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);
-- Message data hardly shrinks, and compressing it would hold up every commit.
alter table towpath.stream_commit alter column body set storage external;

-- A message on its way from a transaction to a stream. The store takes rows in the order of their ids and notes them in
-- the commit that appends them; then they are deleted. What a stream refuses stays, with the error.
create table towpath.stream_intake (
    intake_id  bigint      generated always as identity,
    project    text        not null,
    stream     text        not null,
    -- JSON creates the stream if there is none; bytes need one.
    is_json    boolean     not null,
    body       bytea       not null,
    created_by text        not null,
    created_at timestamptz not null,
    error      text,
    refused_at timestamptz,
    -- The delivery of a route that it is; it ends with that, and is cancelled with that.
    route_stream_no integer,
    number     bigint,
    constraint stream_intake_pk primary key (intake_id),
    constraint stream_intake_delivery_fk foreign key (route_stream_no, number) references towpath.stream_delivery
        on delete cascade,
    constraint stream_intake_refusal_pair_check check ((error is null) = (refused_at is null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- For fn_stream_intake_refused.
create index stream_intake_refused_idx on towpath.stream_intake (intake_id) where refused_at is not null;

-- For the end of a delivery.
create index stream_intake_delivery_idx on towpath.stream_intake (route_stream_no, number)
    where route_stream_no is not null;

-- A delivery that waits in the intake is not sent in any other way.
alter table towpath.stream_delivery add column in_intake boolean not null default false;
-- For _stream_delivery_lease: streams that a sender leaves to the store.
create index stream_delivery_intake_idx on towpath.stream_delivery (route_stream_no) where in_intake;

-- Which store takes the intake in, until when, and whether routes deliver to its streams. Another store may take its place only after that.
create table towpath.stream_intake_store (
    is_only  boolean     primary key default true,
    store_id uuid        not null,
    address  text        not null,
    until    timestamptz not null,
    takes_routes boolean not null,
    constraint stream_intake_store_only_check check (is_only)
) with (fillfactor = 50);

-- Whether the store sleeps and wants to be notified of the next message: the last row says.
create table towpath.stream_intake_wake (
    wake_no bigint  generated always as identity primary key,
    armed   boolean not null
);
