"""examples/python, as its README says: an order, its job, its event as a verified webhook, its progress live."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Towpath, free_port, until
from workers import HERE, worker

EXAMPLE = HERE.parents[2] / "examples" / "python"


@pytest.fixture
def receiver(towpath: Towpath, tmp_path: Path) -> Iterator[Path]:
    """The receiver, with the signing key of its route; answers its log."""
    port = free_port()
    target = f"http://127.0.0.1:{port}/events"
    added = json.loads(
        towpath.command("routes", "add", "shop", "--to-webhook", target, "--domain", "shop", "--json")
    )
    towpath.command("routes", "enable", "shop", "--why", "example")
    key = re.findall(r"whsec_[A-Za-z0-9+/=]+", json.dumps(added))[0]
    log = tmp_path / "receiver.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "shop.receiver"],
            cwd=EXAMPLE,
            stdout=out,
            stderr=out,
            env={**os.environ, "WEBHOOK_KEY": key, "PORT": str(port)},
        )
    try:
        until("the receiver listens", lambda: "receiving at" in log.read_text())
        yield log
    finally:
        process.kill()
        process.wait()


def test_the_shop(towpath: Towpath, tmp_path: Path, receiver: Path) -> None:
    settings = {
        "DATABASE_URL": towpath.database_url,
        "TOWPATH_URL": towpath.url,
        "TOWPATH_TOKEN": towpath.token,
        "PYTHONPATH": str(EXAMPLE),
    }
    with worker(towpath, tmp_path, "shop.jobs", environment=settings) as working:
        order = subprocess.run(  # noqa: PLW1510
            [sys.executable, "-m", "shop.order", "7"],
            cwd=EXAMPLE,
            capture_output=True,
            text=True,
            env={**towpath.environment(), **settings},
        )
        assert order.returncode == 0, order.stderr + working.said()
    assert "order 7 is placed" in order.stdout
    assert "50 % writing the invoice" in order.stdout
    assert "the job says {'invoice': 1}" in order.stdout
    assert "result: {'cents': 1990, 'invoice': 1}" in order.stdout
    until(
        "the webhook is verified",
        lambda: "verified shop.invoiced: {'order': 7, 'invoice': 1}" in receiver.read_text(),
    )
