"""Worker processes of the tests: `python -m towpath work …`, as a user starts one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import PATIENCE_SECONDS, Towpath, until

HERE = Path(__file__).parent


class WorkerProcess:
    def __init__(
        self,
        towpath: Towpath,
        *arguments: str,
        log: Path,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.log = log
        settings = {
            "TOWPATH_URL": towpath.url,
            "TOWPATH_TOKEN": towpath.token,
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        command = [python, "-m", "towpath", "work", *arguments]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                cwd=HERE,
                env={**towpath.environment(), **settings, **(environment or {})},
            )

    def said(self) -> str:
        return self.log.read_text()

    def wait_ready(self) -> None:
        self.wait_for("working on")

    def wait_for(self, text: str) -> None:
        def said_it() -> bool:
            if text in self.said():
                return True
            assert self.process.poll() is None, self.said()
            return False

        until(f"the worker says {text!r}", said_it)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_exit(self) -> int:
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end:\n{self.said()}") from None

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


@contextmanager
def worker(towpath: Towpath, dir: Path, *arguments: str, **more: Any) -> Iterator[WorkerProcess]:
    """A worker that is ready; it is gone when the test has ended, however it ended."""
    process = WorkerProcess(
        towpath, *(arguments or ("battery_jobs",)), log=dir / f"worker-{os.urandom(4).hex()}.log", **more
    )
    try:
        process.wait_ready()
        yield process
    finally:
        if process.is_alive:
            process.signal(signal.SIGKILL)
            process.wait_exit()
