-- An order, in SQL: pay, wait for the signal `shipped` or three days, send an e-mail. Kill any worker at any moment.
--
--     psql -v ON_ERROR_STOP=1 -f order.sql "$(towpath db url)"
--     select towpath.start_process('shop.sql_order', '7', input => '{"cents": 4200, "email": "ann@example.org"}');
--     select towpath.signal_process('shop.sql_order', '7', 'shipped', '{"parcel": "1Z"}');
create schema if not exists shop;
grant usage on schema shop to worker_service_user;
create table if not exists shop.payment (order_ref text primary key, cents bigint not null);

create or replace function shop.run_order(process jsonb) returns jsonb
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    shipped jsonb;
    mail jsonb;
begin
    -- In one transaction with its record: it happens exactly once.
    if not process->'steps' ? 'pay' then
        insert into shop.payment values (process->>'ref', (process #>> '{input,cents}')::bigint);
        perform towpath.process_step(process, 'pay', jsonb_build_object('paid', process #> '{input,cents}'));
    end if;

    shipped := towpath.process_wait(process, 'shipped', interval '3 days');
    if shipped ? 'suspend' then return shipped; end if;

    mail := towpath.process_child(process, 'mail', 'shop.order_mail', 'sql:' || (process->>'ref'), jsonb_build_object(
        'to', process #> '{input,email}', 'from', 'shop@example.com', 'subject', 'Your order ' || (process->>'ref'),
        'text', case when shipped ? 'signal' then 'It is on its way: ' || (shipped #>> '{signal,parcel}')
                     else 'It is late. We are looking for it.' end));
    if mail ? 'suspend' then return mail; end if;
    return jsonb_build_object('shipped', shipped ? 'signal', 'mail', mail->'state');
end;
$$;
revoke execute on function shop.run_order(jsonb) from public;
grant execute on function shop.run_order(jsonb) to worker_service_user;

select towpath.process_kind('shop.sql_order', function => 'shop.run_order');
-- A process whose input is the e-mail that it sends.
select towpath.process_kind('shop.order_mail', task_kind => 'email');
