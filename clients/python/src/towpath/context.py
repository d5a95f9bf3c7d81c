"""What a handler knows about the attempt it runs, and what it can say about it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from .errors import Snooze

Report = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Sends one report about an attempt: a path below `/api/v1/jobs/`, and a body."""


class _Attempt:
    """One attempt of a job."""

    def __init__(self, claimed: dict[str, Any], report: Report) -> None:
        self._claimed = claimed
        self._report = report
        self.id: str = claimed["job_id"]
        self.kind: str = claimed["job_kind"]
        self.attempt: int = claimed["attempt"]
        self.max_attempts: int = claimed["max_attempts"]
        self.args: Any = None
        self._is_lost = False
        self._lost: threading.Event | None = None

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is lost: the job was cancelled, or another worker has it. Stop working on it."""
        # Made when a handler asks for it: an event costs as much as the rest of a short attempt.
        if self._lost is None:
            self._lost = threading.Event()
            if self._is_lost:
                self._lost.set()
        return self._lost

    def lose(self) -> None:
        """Sets `lost`; for the worker."""
        # In this order, because the handler may ask for the event at the same moment.
        self._is_lost = True
        if self._lost is not None:
            self._lost.set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind} {self.id}, attempt {self.attempt})"

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments as they were enqueued."""
        return self._claimed["payload_json"]

    @property
    def key(self) -> str | None:
        """The idempotency key."""
        return self._claimed.get("idempotency_key")

    @property
    def source_ref(self) -> str | None:
        return self._claimed.get("source_ref")

    @property
    def target_ref(self) -> str | None:
        return self._claimed.get("target_ref")

    @property
    def payload_ref(self) -> str | None:
        return self._claimed.get("payload_ref")

    @property
    def traceparent(self) -> str | None:
        """The span that enqueued the job, in the format of W3C Trace Context."""
        return self._claimed.get("traceparent")

    def snooze(self, seconds: float, message: str | None = None) -> NoReturn:
        """Ends the attempt: run again in `seconds`, without counting it."""
        raise Snooze(seconds, message)

    def _progress(self, percent: int | None, message: str | None) -> Awaitable[None]:
        body = {"job_id": self.id, "attempt": self.attempt, "percent": percent, "message": message}
        return self._report("progress", {name: value for name, value in body.items() if value is not None})

    def _append(self, value: Any) -> Awaitable[None]:
        return self._report(f"{self.id}/append", {"attempt": self.attempt, "data": value})


class Context(_Attempt):
    """The context of a handler that is no coroutine; it runs in a thread of its own."""

    def __init__(
        self, claimed: dict[str, Any], report: Report, wait: Callable[[Awaitable[None]], None]
    ) -> None:
        super().__init__(claimed, report)
        self._wait = wait

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Stores how far the job is; its stream tells browsers. Raises LeaseLost."""
        self._wait(self._progress(percent, message))

    def append(self, value: Any) -> None:
        """Appends one JSON value to the job's stream. Raises LeaseLost."""
        self._wait(self._append(value))


class AsyncContext(_Attempt):
    """The context of a handler that is a coroutine. When the lease is lost, its task is cancelled."""

    client: Any = None
    """The worker's own client, for calls about what the job is an attempt of."""

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Stores how far the job is; its stream tells browsers. Raises LeaseLost."""
        await self._progress(percent, message)

    async def append(self, value: Any) -> None:
        """Appends one JSON value to the job's stream. Raises LeaseLost."""
        await self._append(value)
