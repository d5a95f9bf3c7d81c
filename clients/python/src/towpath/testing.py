"""For tests: run what is due in this process, and see what a transaction enqueued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, overload

from . import handles
from .arguments import to_payload
from .calls import moment
from .ends import End
from .handles import AsyncHandle, CursorHandle, Statement, SyncHandle
from .job import Job
from .worker import Held, Worker

# A job that was committed a moment ago may be missed by the first look.
_LOOKS = 3
_LOOK_SECONDS = 0.05
Outcome = Literal["succeeded", "failed", "permanent", "snoozed"]
"""How an attempt ended."""


@dataclass(frozen=True)
class Ran:
    """One attempt that ran. A permanent failure makes a dead letter at once; after another one there may be a retry."""

    id: str
    kind: str
    args: Any
    attempt: int
    outcome: Outcome
    result: Any = None
    error: str | None = None


@dataclass(frozen=True)
class Enqueued:
    """One job that waits."""

    id: str
    kind: str
    args: dict[str, Any]
    key: str
    priority: int
    run_at: datetime


class _Drainer(Worker):
    """A worker that stops when nothing is due."""

    def __init__(self, jobs: Iterable[Job[Any, Any]], **options: Any) -> None:
        super().__init__(jobs, **options)
        self.ran: list[Ran] = []
        self.wait_seconds = 0

    async def _claim_loop(self) -> None:
        looks = 0
        while looks < _LOOKS and await self._has_free_place():
            claimed = await self._claim(min(self.concurrency - len(self._running), 100))
            for job in claimed:
                self._begin(job)
            if not claimed and self._running:
                self._freed.clear()
                await self._freed.wait()
            await self._ends.all_told()
            looks = 0 if claimed or self._running else looks + 1
            if looks:
                await asyncio.sleep(_LOOK_SECONDS)

    def _tell(self, held: Held, end: End) -> None:
        context = held.context
        self.ran.append(
            Ran(
                context.id,
                context.kind,
                context.args,
                context.attempt,
                _outcome(end),
                end.body.get("result"),
                end.body.get("error"),
            )
        )
        super()._tell(held, end)


def _outcome(end: End) -> Outcome:
    if end.verb == "fail":
        return "permanent" if end.body.get("permanent") else "failed"
    return "succeeded" if end.verb == "ack" else "snoozed"


def run_until_drained(jobs: Iterable[Job[Any, Any]], **options: Any) -> list[Ran]:
    """Runs every job of these kinds that is due, also those that they enqueue, and returns what ran.

    The options are those of `Worker`. A failed attempt is due again later, so it runs once.
    """
    return asyncio.run(run_until_drained_async(jobs, **options))


async def run_until_drained_async(jobs: Iterable[Job[Any, Any]], **options: Any) -> list[Ran]:
    """The same, awaited."""
    drainer = _Drainer(jobs, **options)
    await drainer.run()
    return drainer.ran


# An awaited handle has the shape of a blocking one as well; the first overload that fits counts.
@overload
def expect_enqueued(  # pyright: ignore[reportOverlappingOverload]
    handle: AsyncHandle, job: Job[Any, Any] | str, args: Any = None, /
) -> Coroutine[Any, Any, list[Enqueued]]: ...
@overload
def expect_enqueued(
    handle: SyncHandle | CursorHandle, job: Job[Any, Any] | str, args: Any = None, /
) -> list[Enqueued]: ...
def expect_enqueued(
    handle: Any, job: Job[Any, Any] | str, args: Any = None, /
) -> list[Enqueued] | Coroutine[Any, Any, list[Enqueued]]:
    """The queued jobs of a kind that this transaction sees, oldest first. AssertionError if there is none.

    With `args`, only those whose arguments contain them.
    """
    kind = job if isinstance(job, str) else job.kind
    wanted: dict[str, Any] = {"job_kind": kind, "state": "queued"}
    if args is not None:
        wanted["payload"] = to_payload(args)
    if handles.is_async(handle):
        return _expect_async(handle, wanted)
    found: list[Enqueued] = []
    cursor: str | None = None
    while True:
        cursor = _page(handles.run(handle, _list(wanted, cursor)), found)
        if cursor is None:
            return _some(found, wanted)


async def _expect_async(handle: Any, wanted: dict[str, Any]) -> list[Enqueued]:
    found: list[Enqueued] = []
    cursor: str | None = None
    while True:
        cursor = _page(await handles.run_async(handle, _list(wanted, cursor)), found)
        if cursor is None:
            return _some(found, wanted)


def _list(wanted: dict[str, Any], cursor: str | None) -> Statement:
    more = {} if cursor is None else {"p_cursor": cursor}
    return Statement("fn_job_list", {"p_filter": wanted, "p_limit": 1000, **more}, "text")


def _page(text: str, found: list[Enqueued]) -> str | None:
    """Adds a page; answers where the next one begins."""
    answer = json.loads(text)
    found += [
        Enqueued(
            row["job_id"],
            row["job_kind"],
            row["payload_json"],
            row["idempotency_key"],
            row["priority"],
            moment(row["scheduled_at"]),
        )
        for row in answer["jobs"]
    ]
    return answer.get("cursor")


def _some(found: list[Enqueued], wanted: dict[str, Any]) -> list[Enqueued]:
    if not found:
        raise AssertionError(f"no job is queued that matches {json.dumps(wanted)}")
    return found[::-1]
