"""How attempts ended, on their way to the server: in batches, and kept while the server is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .backoff import Backoff
from .calls import Call
from .client import AsyncClient
from .errors import GateClosed, Invalid, LeaseLost, TowpathError, Unavailable

log = logging.getLogger("towpath.worker")

# The server's limit for one call.
_JOBS_MAX = 1000
# Below the server's limit for one body, 4 MiB, with room for what surrounds the results.
_BYTES_MAX = 2 << 20
# The verbs with a call for many attempts.
_MANY = {"ack": "ack_many", "fail": "fail_many", "release": "release"}


@dataclass(frozen=True)
class End:
    """The end of one attempt: the verb, and what the call says of it."""

    verb: str
    body: dict[str, Any]
    size: int = 0

    @property
    def job_id(self) -> str:
        return self.body["job_id"]


class Ends:
    """The ends that the server does not know yet.

    One call per verb is in flight; what ends meanwhile goes with the next one, so batches grow with the load.
    """

    def __init__(self, client: AsyncClient, told: Callable[[str], None]) -> None:
        self._client = client
        self._told = told
        self._waiting: list[End] = []
        self._sending = 0
        self._changed = asyncio.Event()
        self._all_told = asyncio.Event()
        self._all_told.set()

    def __len__(self) -> int:
        return len(self._waiting) + self._sending

    def add(self, end: End) -> None:
        """Tells the server soon."""
        self._waiting.append(end)
        self._all_told.clear()
        self._changed.set()

    async def all_told(self) -> None:
        """Waits until the server knows all of them."""
        await self._all_told.wait()

    async def run(self) -> None:
        """Sends them, until it is cancelled."""
        backoff = Backoff()
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Handlers that are ready to end as well do so first, and go into the same batch.
            await asyncio.sleep(0)
            ends, self._waiting = self._waiting, []
            self._sending = len(ends)
            kept = await self._send(ends)
            self._sending = 0
            self._waiting = kept + self._waiting
            if self._waiting:
                self._changed.set()
            else:
                self._all_told.set()
            if kept:
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()

    async def _send(self, ends: Sequence[End]) -> list[End]:
        """Sends all; answers those to send again."""
        kept: list[End] = []
        for verb in {end.verb for end in ends}:
            for batch in _batches(
                [end for end in ends if end.verb == verb], _JOBS_MAX if verb in _MANY else 1
            ):
                kept += await self._send_batch(verb, batch)
        return kept

    async def _send_batch(self, verb: str, batch: list[End]) -> list[End]:
        many = _MANY.get(verb)
        body = {"jobs": [end.body for end in batch]} if many else batch[0].body
        try:
            lost = await self._client.send(Call("POST", f"/api/v1/jobs/{many or verb}", _lost, body))
        except LeaseLost:
            lost = frozenset({batch[0].job_id})
        except TowpathError as error:
            return await self._not_sent(verb, batch, error)
        for end in batch:
            if end.job_id in lost:
                log.warning("job %s: its lease was lost before it ended", end.job_id)
            self._told(end.job_id)
        return []

    async def _not_sent(self, verb: str, batch: list[End], error: TowpathError) -> list[End]:
        """Keeps them all for a server that is away. Else one of them spoils the batch: each goes alone."""
        if isinstance(error, (Unavailable, GateClosed)) and (error.word != "internal" or len(batch) == 1):
            log.warning("cannot tell the server how %d jobs ended, trying again: %s", len(batch), error)
            return batch
        if len(batch) == 1:
            self._give_up(batch[0], error)
            return []
        kept: list[End] = []
        for end in batch:
            kept += await self._send_batch(verb, [end])
        return kept

    def _give_up(self, end: End, error: TowpathError) -> None:
        """The server refuses this end. A refused result fails the attempt; else the lease runs out."""
        log.error("job %s: the server refused its %s: %s", end.job_id, end.verb, error)
        if end.verb == "ack" and isinstance(error, Invalid):
            body = {
                "job_id": end.job_id,
                "attempt": end.body["attempt"],
                "error": f"result: {error}",
                "permanent": True,
            }
            self.add(End("fail", body))
        else:
            self._told(end.job_id)


def _batches(ends: Sequence[End], jobs_max: int) -> list[list[End]]:
    """At most so many jobs and 2 MiB each."""
    batches: list[list[End]] = []
    size = 0
    for end in ends:
        if not batches or len(batches[-1]) >= jobs_max or size + end.size > _BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(end)
        size += end.size
    return batches


def _lost(answer: dict[str, Any]) -> frozenset[str]:
    return frozenset(answer.get("lost", ()))
