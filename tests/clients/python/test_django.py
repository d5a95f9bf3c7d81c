"""The backend for Django's tasks, in a real project: Django 6 where Python is new enough, and django-tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Towpath
from workers import HERE, worker

PROJECT = HERE / "django_project"
# The Python of an environment with Django 6; tests/clients/python/run makes one if it finds Python 3.12 or newer.
DJANGO_6 = os.environ.get("DJANGO_6_PYTHON")
PYTHONS = {"backport": sys.executable, **({"django 6": DJANGO_6} if DJANGO_6 else {})}


@pytest.mark.parametrize("name", PYTHONS)
def test_tasks_are_jobs(towpath: Towpath, tmp_path: Path, name: str) -> None:
    """Q21: a task is enqueued in the current transaction; it runs, fails, is deferred, and tells its result."""
    project = {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "POSTGRES_HOST": towpath.host,
        "PYTHONPATH": str(PROJECT),
    }
    with worker(towpath, tmp_path, "towpath.django", environment=project, python=PYTHONS[name]) as working:
        done = subprocess.run(  # noqa: PLW1510
            [PYTHONS[name], PROJECT / "scenario.py"],
            env={**towpath.environment(), **project},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + working.said()
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {
        "new": ["READY", True, 1],
        "paid": [True, {"number": 1, "cents": 1990}, "SUCCESSFUL", 1],
        "times": True,
        "rolled back": [False, 0],
        "refused": [False, "invalid", "DatabaseError"],
        "async": [True, 4, "slow"],
        "declined": ["FAILED", "Declined", "shop.tasks.Declined: no funds for 5"],
        "context": [1, True, 6],
        "large": 20_000,
        "later": [150, True, "READY"],
        "unknown": ["01900000-0000-7000-8000-000000000000", "nonsense"],
    }
