"""One real server for all tests: `up --dev` with its own PostgreSQL, in a directory that goes away."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import towpath as tp

BINARY = os.environ["TOWPATH_TEST_BIN"]
# Long enough for a busy machine; no test waits for it unless something is broken.
PATIENCE_SECONDS = 120.0


def until(what: str, ready: Callable[[], Any], every: float = 0.02) -> Any:
    """Waits for a condition, looks every so many seconds, and returns its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := ready()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(every)
    return value


def free_port() -> int:
    """A port that no connection gets by itself, so that a server that is started again finds it free."""
    while True:
        port = random.randint(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Towpath:
    """The real program, which tests may kill and start again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.listen}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.data / "server.log").open("ab")
        begin = log.tell()
        command = [
            BINARY,
            "up",
            "--dev",
            "--data",
            str(self.data),
            "--listen",
            self.listen,
            "--webhook-local",
        ]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment())
        until("towpath is ready", lambda: self._is_ready(begin))

    def _is_ready(self, begin: int) -> bool:
        log = (self.data / "server.log").read_bytes()[begin:]
        assert self.process is not None and self.process.poll() is None, log.decode()
        return b"towpath is ready" in log

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(PATIENCE_SECONDS)

    def environment(self) -> dict[str, str]:
        """The environment without settings of the caller."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TOWPATH_") and name != "DATABASE_URL"
        }

    def command(self, *arguments: str) -> str:
        done = subprocess.run(  # noqa: PLW1510
            [BINARY, *arguments, "--data", str(self.data), "--listen", self.listen],
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def host(self) -> str:
        """The directory of PostgreSQL's socket."""
        return str(self.data / "postgres")

    @property
    def database_url(self) -> str:
        return f"postgresql://postgres@/towpath?host={self.host}"

    @property
    def token(self) -> str:
        """The token of a development server: it may do everything the packages do."""
        return (self.data / "dev-token").read_text().strip()

    def sql(self, text: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(text, values)
            return (
                [row[0] if len(row) == 1 else row for row in cursor.fetchall()] if cursor.description else []
            )


def state_of(towpath: Towpath, job_id: str) -> str:
    return towpath.sql("select state from towpath.job_queue where job_id = %s", job_id)[0]


def runs_of(towpath: Towpath, job_id: str) -> list[str]:
    """How the attempts of a job ended, in order."""
    shown = towpath.sql("select towpath.fn_job_show(%s)", job_id)[0]
    return [run["outcome"] for run in shown["runs"]]


def wait_state(towpath: Towpath, job_id: str, state: str) -> None:
    until(f"{job_id} is {state}", lambda: state_of(towpath, job_id) == state)


@pytest.fixture(scope="session")
def towpath() -> Iterator[Towpath]:
    # PostgreSQL refuses a socket path of more than about 100 bytes, and runs as another user.
    data = Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
    data.chmod(0o711)
    server = Towpath(data)
    try:
        server.start()
        # Jobs of a dead worker are soon tried again.
        server.command("config", "set", "queue.retry.backoff_base_sec", "1", "--why", "a test")
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop()
        shutil.rmtree(data)


@pytest.fixture
def client(towpath: Towpath) -> Iterator[tp.Client]:
    with tp.Client(towpath.url, towpath.token) as client:
        yield client
