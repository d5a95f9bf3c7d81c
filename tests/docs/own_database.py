"""Follows README's "Use your own database" on a database whose login is no superuser, command by command."""

import os
import re
import shutil
import subprocess
import tempfile

from instance import Instance, free_port

HEADING = "## Use your own database"
SAYS = ["schema    migrated to version", "executor  registered towpath", "succeeded"]


def run(binary, root):
    """Runs the block as it stands in README; answers what went wrong."""
    section = (root / "README.md").read_text().split(HEADING)[1].split("\n## ")[0]
    block = re.search(r"(?m)(^    .+\n)+", section).group(0)
    lines = [line.strip() for line in block.splitlines()]
    if not lines[0].startswith("export DATABASE_URL="):
        return [f"README.md: {HEADING} does not begin with DATABASE_URL"]
    port = free_port()
    server = Instance(binary, root, ("--postgres-port", str(port)))
    place = tempfile.mkdtemp(prefix="towpath-readme-")
    try:
        server.wait_ready()
        made = server.shell(
            "towpath db psql -- -X -v ON_ERROR_STOP=1 "
            "-c \"create role shop login createrole password 'a-password'\" -c 'create database shop owner shop'"
        )
        if made[0] != 0:
            return [f"README.md: no login could be made:\n{made[1]}"]
        url = f"postgresql://shop:a-password@127.0.0.1:{port}/shop"
        script = "\n".join(["set -e", f"export DATABASE_URL={url}", *lines[1:], "towpath doctor || true", "kill %1; wait"])
        env = server.env | {"TOWPATH_LISTEN": f"127.0.0.1:{free_port()}"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=place, env=env, stdin=subprocess.DEVNULL, text=True, timeout=180,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        mode = os.stat(f"{place}/towpath.toml").st_mode & 0o777
        problems = [f"it does not say: {text}" for text in SAYS if text not in done.stdout]
        problems += [f"it ended with {done.returncode}"] if done.returncode else []
        problems += [f"others may read towpath.toml: {mode:o}"] if mode != 0o600 else []
        problems += [] if "live workers handle every job that is due" in done.stdout else ["doctor finds no worker"]
        if problems:
            return [f"README.md: {HEADING}:\n{script}\n--- printed:\n{done.stdout}\n---\n  " + "\n  ".join(problems)]
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
    print(f"README.md: {len(lines)} lines on a database without superuser rights", flush=True)
    return []
