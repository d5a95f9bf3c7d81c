-- Tokens with which an executor works over HTTP instead of through a database login.

-- A token is random and only its holder knows it; the table stores its sha256, so that reading the table (or
-- a backup of it) gives no access. It names one executor of the registry.
-- kinds null means whatever the executor's subscriptions say; a list narrows that, never
-- widens it. Tokens are revoked, not deleted: a lease names the token that took it.
create table towpath.executor_token (
    token_id     uuid           primary key default gen_random_uuid(),
    token_hash   bytea          not null,
    executor_id  towpath.label  not null,
    kinds        text[],
    may_enqueue  boolean        not null default false,
    notes        text,
    created_at   timestamptz    not null default towpath.fn_now(),
    created_by   towpath.label  not null,
    expires_at   towpath.moment not null,
    revoked_at   timestamptz,
    revoked_by   towpath.label,
    -- To the minute, so that not every use is a write.
    last_used_at timestamptz,
    constraint executor_token_hash_uq unique (token_hash),
    constraint executor_token_hash_is_sha256_check check (octet_length(token_hash) = 32),
    constraint executor_token_kinds_named_check check (
        kinds is null or (cardinality(kinds) between 1 and 1000 and array_position(kinds, null) is null)),
    constraint executor_token_expires_later_check check (expires_at > created_at),
    constraint executor_token_revoked_who_and_when_check check ((revoked_at is null) = (revoked_by is null))
);
-- executor_token_executor_idx: fn_executor_token_list shows one executor's tokens.
create index executor_token_executor_idx on towpath.executor_token (executor_id, created_at);

-- _executor_token_orphaned: an executor that leaves the registry takes its tokens with it, so
-- that they are not valid for another one that is registered under its name.
create function towpath._executor_token_orphaned() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    update towpath.executor_token t
       set revoked_at = towpath.fn_now(), revoked_by = 'registry: the executor was removed'
     where t.executor_id = old.executor_id and t.revoked_at is null;
    return null;
end;
$$;
create trigger consumer_registry_takes_tokens_along
    after delete on towpath.consumer_registry
    for each row execute function towpath._executor_token_orphaned();
