"""The handlers of the worker's tests, run by `python -m towpath work battery_jobs`.

A handler that waits does so for a file; the test that enqueued it makes the file.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath import AsyncContext, Context, PermanentError, RetryAfter, job


@dataclass
class Wait:
    """Says in `dir` that it began, and ends when `dir` has a file `go`."""

    dir: str

    def begin(self, ctx: Context | AsyncContext) -> None:
        Path(self.dir, f"began-{ctx.attempt}").touch()

    @property
    def may_end(self) -> bool:
        return Path(self.dir, "go").exists()


@job("count")
async def count(args: dict[str, Any]) -> None: ...


@job("count_in_threads")
def count_in_threads(args: dict[str, Any]) -> None: ...


@job("wait")
async def wait(args: Wait, ctx: AsyncContext) -> None:
    args.begin(ctx)
    try:
        while not args.may_end:
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        Path(args.dir, "cancelled").touch()
        raise


@job("wait_in_thread")
def wait_in_thread(args: Wait, ctx: Context) -> None:
    args.begin(ctx)
    while not args.may_end:
        if ctx.lost.is_set():
            Path(args.dir, "cancelled").touch()
            return
        time.sleep(0.02)


@dataclass
class Stubborn:
    dir: str


@job("stubborn")
def stubborn(args: Stubborn, ctx: Context) -> None:
    Path(args.dir, "began-1").touch()
    while True:
        time.sleep(60)


@dataclass
class Do:
    """What the handler does, for tests of each way to end."""

    what: str
    size: int = 0


def outcome(args: Do, ctx: Context | AsyncContext) -> Any:
    match args.what:
        case "return":
            return {"what": args.what, "id": ctx.id, "attempt": ctx.attempt, "of": ctx.max_attempts}
        case "fail":
            raise ValueError("told to fail")
        case "fail for good":
            raise PermanentError("told to fail for good")
        case "retry" if ctx.attempt == 1:
            raise RetryAfter(0, "told to retry")
        case "snooze" if ctx.attempt == 1:
            ctx.snooze(0, "not yet")
        case "large":
            return "x" * args.size
        case "not json":
            return object()
        case "not text":
            return "\ud800"
        case "zero":
            return "\0"
        case "fail with zero":
            raise ValueError("\0\ud800")
        case "exit":
            raise SystemExit("told to exit")
        case _:
            return ctx.attempt


@job("do")
async def do(args: Do, ctx: AsyncContext) -> Any:
    await ctx.progress(50, "half way")
    if args.what == "append":
        await ctx.append({"n": 1})
        await ctx.append({"n": 2})
    return outcome(args, ctx)


@job("do_in_thread")
def do_in_thread(args: Do, ctx: Context) -> Any:
    ctx.progress(50, "half way")
    if args.what == "append":
        ctx.append({"n": 1})
        ctx.append({"n": 2})
    return outcome(args, ctx)


async def noted(ctx: Context | AsyncContext, next: Any) -> Any:
    """A middleware that adds a mark to what comes back."""
    result = await next()
    return {**result, "noted": ctx.kind} if isinstance(result, dict) else result
