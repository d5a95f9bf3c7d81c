"""A running `towpath up --dev` in a directory of its own, and a shell beside it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# `… --json | field jobs.0.job_id`, for the hidden commands of pages.
FIELD = """#!/usr/bin/env python3
import json, sys
value = json.load(sys.stdin)
for part in sys.argv[1].split("."):
    value = value[int(part) if part.isdigit() else part]
print(value if isinstance(value, str) else json.dumps(value))
"""
# `browser ADDRESS`: what a real browser shows of a page when its requests have been answered.
BROWSER = """#!/bin/sh
program=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "please install chromium"
    exit 1
}
exec "$program" --headless --no-sandbox --disable-gpu --virtual-time-budget=20000 --dump-dom "$1" 2>/dev/null
"""
READY_SECONDS = 120
COMMAND_SECONDS = 300


class Instance:
    """Everything a reader of a guide has: a server, the program on the path, a directory."""

    def __init__(self, binary, root, arguments=("--dev",)):
        self.dir = tempfile.mkdtemp(prefix="towpath-docs-")
        # The private PostgreSQL runs as another user when this is root.
        os.chmod(self.dir, 0o755)
        self.port = free_port()
        os.mkdir(f"{self.dir}/bin")
        os.symlink(binary, f"{self.dir}/bin/towpath")
        with open(f"{self.dir}/bin/field", "w") as field:
            field.write(FIELD)
        os.chmod(f"{self.dir}/bin/field", 0o755)
        with open(f"{self.dir}/bin/browser", "w") as browser:
            browser.write(BROWSER)
        os.chmod(f"{self.dir}/bin/browser", 0o755)
        # Pages name files of the repository as a reader in a clone sees them.
        made = shutil.ignore_patterns("node_modules", "build")
        shutil.copytree(f"{root}/examples", f"{self.dir}/examples", ignore=made)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOWPATH_")}
        self.env = clean | {
            "PATH": f"{self.dir}/bin:{os.environ['PATH']}",
            "TOWPATH_LISTEN": f"127.0.0.1:{self.port}",
            "NO_COLOR": "1",
            "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", f"{root}/target"),
        }
        self.log = open(f"{self.dir}/up.log", "w")
        self.server = subprocess.Popen(
            ["towpath", "up", *arguments], cwd=self.dir, env=self.env, stdout=self.log, stderr=self.log
        )

    def wait_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while "towpath is ready" not in self.said():
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"towpath up did not become ready:\n{self.said()}")
            time.sleep(0.05)

    def said(self):
        with open(f"{self.dir}/up.log") as log:
            return log.read()

    def shell(self, script, until=None):
        """Runs a script; answers its code and everything it printed. With `until`, it ends when it
        has printed that."""
        script = script.replace("127.0.0.1:4437", f"127.0.0.1:{self.port}")
        path = f"{self.dir}/printed"
        with open(path, "w") as printed:
            process = subprocess.Popen(
                ["bash", "-uo", "pipefail", "-c", script], cwd=self.dir, env=self.env,
                stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, start_new_session=True,
            )
        deadline = time.monotonic() + COMMAND_SECONDS
        while True:
            code = process.poll()
            with open(path, errors="replace") as printed:
                text = printed.read()
            if until is not None and until in text:
                code = 0
            if code is not None or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.end(process, gently=until is not None and code == 0)
        return (code, text) if code is not None else (-1, text + "\n(it did not end)")

    def end(self, process, gently):
        """Ends a script and what it left in the background; gently: as a reader's own signal would, who lets it
        finish what it does."""
        try:
            deadline = time.monotonic() + (5 if gently else 0)
            os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def stop(self):
        self.server.terminate()
        try:
            self.server.wait(60)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
