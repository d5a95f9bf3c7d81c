-- The shop's own table, beside Towpath's in the same database.
create schema if not exists shop;
create table if not exists shop.orders (
    order_id     bigint  generated always as identity primary key,
    parcels      integer not null,
    job_id       uuid,
    -- Set by the webhook that the order's event reaches.
    announced_at timestamptz
);
