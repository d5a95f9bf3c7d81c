"""Processes with steps: a handler that runs from the top at every attempt, and whose steps run once.

    @process("shop.order")
    async def order(input, steps):
        paid = await steps.step("pay", lambda: pay(input, steps.idempotency_key))
        shipped = await steps.wait_for("shipped", timeout=3 * 86_400)
        ...

Register the kind once (`towpath process kind shop.order`) and give the handler to a `Worker`, beside jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from .arguments import to_json
from .calls import Call
from .client import AsyncClient
from .context import AsyncContext
from .errors import LeaseLost, PermanentError, RetryAfter, TowpathError
from .job import Job, job

# The lease of an attempt is extended this often; the shortest useful lease of a kind is three times as long.
_EXTEND_SECONDS = 10.0


class Suspended(BaseException):
    """Ends the attempt: what it waits for has not come yet. Not an Exception, so that `except Exception` lets it pass."""


class Steps:
    """What a handler knows of its process, and what it can do."""

    def __init__(self, begun: Mapping[str, Any], context: AsyncContext, client: AsyncClient) -> None:
        self.id: str = begun["process_id"]
        self.ref: str = begun["ref"]
        self.attempt_no: int = begun["attempt_no"]
        self.idempotency_key: str = begun["idempotency_key"]
        self.context = context
        self._recorded: dict[str, Any] = dict(begun["steps"])
        self._client = client

    async def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs `work` once: if its result is recorded, that is the answer. The first result of a name stays."""
        if name not in self._recorded:
            value = work()
            if inspect.isawaitable(value):
                value = await value
            answer = await self._ask("step", {"name": name, "value": to_json(value)})
            self._recorded[name] = answer["value"]
        return self._recorded[name]

    async def sleep(self, name: str, seconds: float) -> None:
        """Sleeps, once under this name. No worker is held meanwhile."""
        await self._wait({"name": name, "seconds": seconds})

    async def sleep_until(self, name: str, moment: datetime) -> None:
        """Sleeps until a moment."""
        await self._wait({"name": name, "until_at": moment.isoformat()})

    async def wait_for(self, signal: str, timeout: float | None = None) -> Any:
        """Waits for a signal and returns what it says; None if the time was over first."""
        value = await self._wait({"name": signal, "signal": signal, "seconds": timeout})
        return value.get("signal")

    async def child(self, name: str, kind: str, ref: str, input: Any = None) -> dict[str, Any]:
        """Starts a process and waits for its end: `{"process_id", "state", "result"}`."""
        return await self._wait({"name": name, "child": {"kind": kind, "ref": ref, "input": to_json(input)}})

    async def _wait(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["name"]
        if name not in self._recorded:
            answer = await self._ask("wait", {key: value for key, value in asked.items() if value is not None})
            if not answer["ready"]:
                raise Suspended
            self._recorded[name] = answer["value"]
        return self._recorded[name]

    async def _ask(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        about = {"process_id": self.id, "attempt_no": self.attempt_no}
        return await self._client.send(Call("POST", f"/api/v1/processes/{verb}", dict, about | body))

    async def keep(self) -> None:
        """Extends the attempt's lease until it is cancelled."""
        lease = {"job_id": self.context.id, "attempt": self.context.attempt}
        while True:
            await asyncio.sleep(_EXTEND_SECONDS)
            with contextlib.suppress(TowpathError):
                await self._ask("extend", lease)


Handler = Callable[[Any, Steps], Awaitable[Any]]


def process(kind: str) -> Callable[[Handler], Job[Any, Any]]:
    """Makes a handler of processes of this kind, for a `Worker`."""

    def decorate(handler: Handler) -> Job[Any, Any]:
        @job(kind)
        async def run(args: dict[str, Any], ctx: AsyncContext) -> None:
            await _run(handler, args, ctx)

        return run

    return decorate


async def _run(handler: Handler, args: Mapping[str, Any], context: AsyncContext) -> None:
    client = context.client
    lease = {"job_id": context.id, "attempt": context.attempt}
    about = {"process_id": args["process_id"], "attempt_no": args["attempt_no"]}
    try:
        begun = await client.send(Call("POST", "/api/v1/processes/begin", dict, about | lease))
    except TowpathError as error:
        if error.word in ("lease_lost", "conflict"):
            return  # begun before, or over: nothing to do
        raise
    steps = Steps(begun, context, client)
    keeping = asyncio.create_task(steps.keep())
    try:
        end: dict[str, Any] = {"outcome": "accepted", "result": to_json(await handler(begun["input"], steps))}
    except Suspended:
        return
    except LeaseLost:
        return
    except PermanentError as error:
        end = {"outcome": "permanent", "detail": {"message": str(error)}}
    except RetryAfter as error:
        end = {"outcome": "transient", "detail": {"message": str(error), "retry_after_seconds": error.seconds}}
    except Exception as error:
        end = {"outcome": "transient", "detail": {"message": f"{type(error).__name__}: {error}"[:1000]}}
    finally:
        keeping.cancel()
    with contextlib.suppress(LeaseLost):
        await client.send(Call("POST", "/api/v1/processes/end", dict, about | end))


def start(kind: str, ref: str, input: Any = None) -> Call[str]:
    """Starts a process, or finds the one of that kind and reference: `client.send(start("shop.order", "7"))`."""
    body = {"kind": kind, "ref": ref, "input": to_json(input)}
    return Call("POST", "/api/v1/processes/start", lambda answer: answer["process_id"], body)


def signal(kind: str, ref: str, name: str, payload: Any = None) -> Call[bool]:
    """Tells a process something; returns whether it was the first signal of that name: only that one counts."""
    body = {"kind": kind, "ref": ref, "name": name, "payload": to_json(payload)}
    return Call("POST", "/api/v1/processes/signal", lambda answer: answer["recorded"], body)


def status(process_id: str | UUID, wait: int = 0) -> Call[dict[str, Any]]:
    """Where a process stands and what it came to, after its end or `wait` seconds."""
    return Call("GET", f"/api/v1/processes/{process_id}?wait={wait}", dict)
