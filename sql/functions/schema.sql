-- Schema: what is installed, and whether it still is what migrate left.

-- _schema_catalogue: every object of ours as one line of text, without what depends on
-- the moment of creation (oids, the order of grants). Two databases with equal
-- catalogues are the same schema. Partitions are left out: maintenance makes and drops
-- them, and they are copies of their parent.
create or replace function towpath._schema_catalogue()
    returns table (identity text, definition text)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    with ours as (
        select n.oid, n.nspname from pg_namespace n where n.nspname in ('towpath', 'comms')
    ), relation as (
        select c.*, o.nspname from pg_class c join ours o on o.oid = c.relnamespace
         where not c.relispartition
    )
    select 'schema ' || n.nspname,
           concat_ws(' ', pg_get_userbyid(n.nspowner),
                     (select string_agg(a::text, ',' order by a::text) from unnest(n.nspacl) a))
      from pg_namespace n where n.nspname in ('towpath', 'comms')
    union all
    select format('%s %s.%s', case r.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
                  r.nspname, r.relname),
           concat_ws(' | ', pg_get_userbyid(r.relowner), r.relpersistence::text,
               (select string_agg(option, ',' order by option) from unnest(r.reloptions) option),
               (select string_agg(a::text, ',' order by a::text) from unnest(r.relacl) a),
               (select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                           case when a.attnotnull then 'not null' end, nullif(a.attidentity::text, ''),
                           nullif(a.attgenerated::text, ''), pg_get_expr(d.adbin, d.adrelid)),
                           ', ' order by a.attnum)
                  from pg_attribute a
                  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                 where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped),
               case when r.relkind = 'p' then pg_get_partkeydef(r.oid) end,
               case when r.relkind = 'v' then pg_get_viewdef(r.oid) end)
      from relation r where r.relkind in ('r', 'p', 'v', 'S')
    union all
    select format('index %s.%s', r.nspname, r.relname), pg_get_indexdef(r.oid)
      from relation r where r.relkind in ('i', 'I')
    union all
    select format('constraint %s on %s', c.conname, coalesce(t.oid::regtype::text, r.nspname || '.' || r.relname)),
           pg_get_constraintdef(c.oid)
      from pg_constraint c
      left join relation r on r.oid = c.conrelid
      left join pg_type t on t.oid = c.contypid
     where c.connamespace in (select oid from ours) and (r.oid is not null or t.oid is not null)
    union all
    select format('trigger %s on %s.%s', t.tgname, r.nspname, r.relname),
           t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid)
      from pg_trigger t join relation r on r.oid = t.tgrelid where not t.tgisinternal
    union all
    select format('domain %s.%s', o.nspname, t.typname),
           concat_ws(' ', format_type(t.typbasetype, t.typtypmod), t.typdefault,
                     case when t.typnotnull then 'not null' end)
      from pg_type t join ours o on o.oid = t.typnamespace where t.typtype = 'd'
    union all
    select format('function %s.%s(%s)', o.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
           concat_ws(' | ', pg_get_userbyid(p.proowner),
               coalesce((select string_agg(a::text, ',' order by a::text) from unnest(p.proacl) a), 'default'),
               pg_get_functiondef(p.oid))
      from pg_proc p join ours o on o.oid = p.pronamespace where p.prokind in ('f', 'p')
$$;

-- _schema_record: remembers the catalogue as it is now. The last statement of a migration.
create or replace function towpath._schema_record(p_release text, p_checksum text) returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    delete from towpath.schema_object;
    insert into towpath.schema_object (identity, fingerprint)
        select c.identity, md5(c.definition) from towpath._schema_catalogue() c;
    insert into towpath.schema_release (release, checksum, server_major)
        values (p_release, p_checksum, current_setting('server_version_num')::integer / 10000)
        on conflict (only_row) do update
            set release = excluded.release, checksum = excluded.checksum,
                server_major = excluded.server_major, installed_at = excluded.installed_at;
$$;

-- fn_schema_status: which migration and which functions are installed. Every role may
-- ask, because every role refuses to run on a schema it does not know.
create or replace function towpath.fn_schema_status() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object('ok', true,
        'version', coalesce((select max(m.version) from towpath.schema_migration m), 0),
        'release', (select r.release from towpath.schema_release r),
        'checksum', (select r.checksum from towpath.schema_release r))
$$;

-- fn_schema_drift: the objects that differ from what migrate left, in words. After a
-- major upgrade of PostgreSQL the server prints definitions differently, so the
-- comparison is not made until migrate has recorded them again.
create or replace function towpath.fn_schema_drift() returns jsonb
    language sql stable security definer
    set search_path = pg_catalog, pg_temp
as $$
    with difference as (
        select coalesce(c.identity, s.identity) as identity,
               case when s.identity is null then 'was added'
                    when c.identity is null then 'is gone'
                    else 'differs from what migrate installed' end as what
          from towpath._schema_catalogue() c
          full join towpath.schema_object s using (identity)
         where s.fingerprint is distinct from md5(c.definition)
           and exists (select 1 from towpath.schema_release r
                        where r.server_major = current_setting('server_version_num')::integer / 10000)
    )
    select jsonb_build_object('ok', true, 'drift',
        coalesce(jsonb_agg(d.identity || ' ' || d.what order by d.identity), '[]'))
      from difference d
$$;

grant execute on function towpath.fn_schema_status()
    to workflow_admin, towpath_producer, worker_service_user, towpath_observer, towpath_router, towpath_maintainer,
       towpath_consumer;
grant execute on function towpath.fn_schema_drift() to workflow_admin, towpath_observer;
