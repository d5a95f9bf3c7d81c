# A private PostgreSQL for a benchmark; read by the programs beside it.

# Durable settings of a small real server; a directory of its own, reached by socket only.
start_postgres() {
    programs=$(find_postgres)
    home=$(mktemp -d "${TMPDIR:-/tmp}/bench-jobs.XXXXXX")
    if [ "$(id -u)" = 0 ]; then
        # PostgreSQL refuses to run as root.
        local user=postgres
        id "$user" >/dev/null 2>&1 || user=nobody
        chown "$user" "$home"
        as_server=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
    fi
    (cd "$home" && "${as_server[@]}" "$programs/initdb" --pgdata data --username postgres --auth trust \
        --encoding UTF8 --locale C >initdb.log)
    "${as_server[@]}" tee -a "$home/data/postgresql.conf" >/dev/null <<SETTINGS
listen_addresses = ''
unix_socket_directories = '$home'
max_connections = 100
shared_buffers = 1GB
max_wal_size = 4GB
checkpoint_timeout = 15min
fsync = on
synchronous_commit = on
full_page_writes = on
autovacuum = on
SETTINGS
    (cd "$home" && "${as_server[@]}" "$programs/pg_ctl" --pgdata data --log server.log --wait start >/dev/null) ||
        die "PostgreSQL did not start: $(tail -3 "$home/server.log")"
}

stop_postgres() {
    [ -n "${home:-}" ] || return 0
    (cd "$home" && "${as_server[@]}" "$programs/pg_ctl" --pgdata data --mode fast --wait stop >/dev/null) || true
    rm -rf "$home"
}

find_postgres() {
    local dir
    for dir in ${PATH//:/ } $(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV); do
        [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && [ -x "$dir/psql" ] && echo "$dir" && return
    done
    die "PostgreSQL is missing; ./dev test installs it"
}

psql_on() {
    "$programs/psql" -h "$home" -U postgres -d "$1" -X -q -A -t -v ON_ERROR_STOP=1 "${@:2}"
}

url() {
    echo "postgresql://postgres@${home//\//%2F}/$1"
}

die() {
    echo "bench/jobs: $*" >&2
    exit 1
}

home='' as_server=()
