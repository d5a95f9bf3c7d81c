# Sourced by the tests of the packages: the program, and each package built from this tree as it is published. What was
# built and installed is kept below the target directory for as long as its sources stay the same.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
clients=$target/clients
mkdir -p "$clients"

# The caller's own settings must not affect the tests.
test_bin=${TOWPATH_TEST_BIN:-}
unset DATABASE_URL "${!TOWPATH_@}"

# TOWPATH_TEST_BIN names a binary to test instead of building one.
need_towpath() {
    if [ -z "$test_bin" ]; then
        (cd "$root" && cargo build --quiet --package towpath-cli)
        test_bin=$(realpath "$target/debug/towpath")
    fi
    export TOWPATH_TEST_BIN=$test_bin
}

need_browser() {
    TOWPATH_TEST_BROWSER=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
        echo "please install chromium" >&2
        exit 1
    }
    export TOWPATH_TEST_BROWSER
}

# once NAME "FILES" COMMAND…: runs it unless it has succeeded before with the same files. Several runs at once wait
# for each other.
once() {
    local stamp=$clients/$1.stamp sum
    sum=$(cd "$root" && find $2 -type f ! -path '*/node_modules/*' ! -path '*/build/*' ! -path '*/dist/*' \
        ! -path '*/generated/*' -exec sha256sum {} + | sort | sha256sum)
    exec 9>"$clients/$1.lock"
    flock 9
    if [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ]; then
        "${@:3}" 9>&-
        echo "$sum" >"$stamp"
    fi
    exec 9>&-
}

# The Python package: a virtual environment that has it, installed from its wheel, and what the tests need.
python_package() {
    export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
    python=$clients/venv/bin/python
    once venv tests/clients/python/requirements.txt install_requirements
    once wheel "clients/python" build_wheel
    wheel=$(echo "$clients"/wheel/*.whl)
}

install_requirements() {
    rm -rf "$clients/venv"
    python3 -m venv "$clients/venv"
    "$python" -m pip install --quiet -r "$root/tests/clients/python/requirements.txt"
}

build_wheel() {
    rm -rf "$clients/wheel"
    "$python" -m build --wheel --no-isolation --outdir "$clients/wheel" "$root/clients/python" >"$clients/wheel.log" 2>&1 ||
        { cat "$clients/wheel.log" >&2; return 1; }
    "$python" -m pip install --quiet --no-deps --force-reinstall "$clients"/wheel/*.whl
}

# The npm package: a copy of its directory, built, and its tarball. The copy keeps the tree as it is.
typescript_package() {
    tree=$clients/tree
    once typescript "clients/typescript crates/server/src/openapi.json" build_typescript
    CLIENT_TARBALL=$(echo "$tree"/clients/typescript/*.tgz)
    export CLIENT_TARBALL
}

build_typescript() {
    copy clients/typescript
    mkdir -p "$tree/crates/server/src"
    cp "$root/crates/server/src/openapi.json" "$tree/crates/server/src"
    npm_install clients/typescript
    (cd "$tree/clients/typescript" && npm run --silent build && npm run --silent pretest && npm pack --silent >/dev/null)
}

# What npm installed the last time stays.
copy() {
    mkdir -p "$tree/$1"
    find "$tree/$1" -mindepth 1 -maxdepth 1 ! -name node_modules -exec rm -rf {} +
    tar -C "$root/$1" --exclude ./node_modules --exclude ./dist --exclude ./build --exclude ./test/generated -cf - . |
        tar -C "$tree/$1" -xf -
}

npm_install() {
    (cd "$tree/$1" && cmp --silent package-lock.json node_modules/.installed ||
        { npm ci --no-audit --no-fund --loglevel=error && cp package-lock.json node_modules/.installed; })
}
