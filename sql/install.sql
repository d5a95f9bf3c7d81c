-- The roles, made by the login that runs the migration before it becomes towpath_owner.
--
-- Roles belong to the whole cluster, so several databases may install them at the same
-- moment: losing that race is fine. They cannot log in; grant them to login roles.
--   towpath_owner        owns everything, used by migrations only
--   workflow_admin       changes gates, config, subscriptions, routes, grants
--   towpath_producer     enqueues jobs and emits events, within its grants
--   worker_service_user  claims and runs jobs
--   towpath_router       numbers events, routes them, sends webhooks and stream deliveries
--   towpath_maintainer   reaps, fires schedules, scans processes, makes and drops partitions
--   towpath_consumer     reads the events it subscribed to
--   towpath_observer     reads health, history and views
do $$
declare
    _role text;
begin
    foreach _role in array array['towpath_owner', 'workflow_admin', 'towpath_producer', 'worker_service_user',
                                 'towpath_router', 'towpath_maintainer', 'towpath_consumer', 'towpath_observer'] loop
        begin
            if not exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
                execute pg_catalog.format('create role %I nologin', _role);
            end if;
        exception when duplicate_object or unique_violation then
            null; -- another database installed it in the same moment
        end;
    end loop;
    if not pg_catalog.pg_has_role(current_user, 'towpath_owner', 'member') then
        execute pg_catalog.format('grant towpath_owner to %I', current_user);
    end if;
    if pg_catalog.to_regnamespace('towpath') is null then
        create schema towpath authorization towpath_owner;
    end if;
    if pg_catalog.to_regnamespace('comms') is null then
        create schema comms authorization towpath_owner;
    end if;
end;
$$;

set local role towpath_owner;

-- What the owner creates is closed until it is granted by name.
alter default privileges for role towpath_owner revoke execute on functions from public;
grant usage on schema towpath, comms
    to workflow_admin, towpath_producer, worker_service_user, towpath_observer, towpath_router, towpath_maintainer,
       towpath_consumer;

-- What is installed. schema_migration is the history of the tables; schema_object is the
-- fingerprint of every object as migrate left it, so that doctor can name what drifted.
create table if not exists towpath.schema_migration (
    version    integer     primary key,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default pg_catalog.clock_timestamp(),
    release    text        not null,
    constraint schema_migration_version_positive_check check (version > 0)
);
create table if not exists towpath.schema_release (
    only_row     boolean     primary key default true,
    release      text        not null,
    checksum     text        not null,
    server_major integer     not null,
    installed_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint schema_release_one_row_check check (only_row)
);
create table if not exists towpath.schema_object (
    identity    text primary key,
    fingerprint text not null
);
